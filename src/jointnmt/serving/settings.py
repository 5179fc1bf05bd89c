"""What the server takes and refuses: all limits in one place."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from jointnmt.config import Config
from jointnmt.translator.limits import TextLimits


class Limits(TextLimits):
    """How much one request, and all of them together, may ask for; of one line, what `TextLimits` says."""

    body_bytes: int = Field(1_000_000, ge=1, description="most bytes of a request's body")
    body_seconds: float = Field(20.0, gt=0, description="longest time for a body to arrive")
    header_bytes: int = Field(16_384, ge=1024, description="most bytes of a request's line and headers")
    header_seconds: float = Field(10.0, gt=0, description="longest time for a request's line and headers to arrive")
    connections: int = Field(512, ge=1, description="most connections at once")
    lines: int = Field(2_000, ge=1, description="most lines of a request's texts")
    attention_tokens: int = Field(
        80, ge=2, description="most tokens of either side, end marks counted, whose attention is told"
    )
    grid_weights: int = Field(
        4_000_000, ge=0, description="most attention weights of a grid in an answer; more are averaged or left out"
    )
    alignment_weights: int = Field(
        4_000_000, ge=0, description="most weights of alignments in an answer that is no stream"
    )
    queued_sentences: int = Field(10_000, ge=1, description="most sentences that wait or are computed")
    request_seconds: float = Field(120.0, gt=0, description="longest time from a request's arrival to its last byte")
    drain_seconds: int = Field(60, ge=1, description="longest time for running requests to end when the server stops")
    retry_after_seconds: int = Field(2, ge=1, description="what Retry-After says when the server is busy")


class ServerConfig(Config):
    """How the server listens, whom it lets in, what it logs, and its limits."""

    host: str = Field("127.0.0.1", description="address to listen on; 0.0.0.0: every IPv4 address of the machine")
    port: int = Field(5000, ge=0, le=65535, description="port to listen on; 0: any that is free")
    keys: Path | None = Field(None, description="file of hashed API keys; null: no key is needed")
    allow_origins: tuple[str, ...] = Field((), description="web origins whose pages may call the server (CORS)")
    allow_hosts: tuple[str, ...] = Field(
        (), description="further host names to be called by, if the server listens on the loopback only"
    )
    log_text: bool = Field(False, description="whether the log holds the texts and translations themselves")
    limits: Limits = Field(Limits(), description="see Limits")
