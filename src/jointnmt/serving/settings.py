"""Settings and limits of the server."""

from __future__ import annotations

import re
import socket
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from jointnmt.config import Config
from jointnmt.translator.limits import TextLimits


class Limits(TextLimits):
    """Limits on one request and on all of them together; those on one line are `TextLimits`."""

    body_bytes: int = Field(1_000_000, ge=1, description="most bytes of a request's body")
    body_seconds: float = Field(20.0, gt=0, description="longest time for a body to arrive")
    header_bytes: int = Field(16_384, ge=1024, description="most bytes of a request's line and headers")
    header_seconds: float = Field(10.0, gt=0, description="longest time for a request's line and headers to arrive")
    connections: int = Field(512, ge=1, description="most connections at once")
    lines: int = Field(2_000, ge=1, description="most lines of a request's texts")
    attention_tokens: int = Field(
        80, ge=2, description="most tokens of either side, end marks included, for attention and inspection"
    )
    grid_weights: int = Field(
        4_000_000, ge=0, description="most attention weights of a grid in an answer; more are averaged or left out"
    )
    alignment_weights: int = Field(
        4_000_000, ge=0, description="most weights of alignments in an answer that is not a stream"
    )
    score_alternatives: int = Field(
        50_000, ge=0, description="most alternative pieces in an answer of scores: those of each token, together"
    )
    queued_sentences: int = Field(10_000, ge=1, description="most sentences that wait or are being computed")
    request_seconds: float = Field(
        120.0,
        gt=0,
        description="longest time from a request's arrival to its answer, or the end of its stream; and for reading it",
    )
    drain_seconds: int = Field(60, ge=1, description="longest time for running requests to finish at shutdown")
    retry_after_seconds: int = Field(2, ge=1, description="value of Retry-After when the server is busy")


LOOPBACK = ("localhost", "127.0.0.1", "::1")
_DEFAULT_PORTS = (r"^(https://.*):443$", r"^(http://.*):80$")


def _origin(given: str) -> str:
    """An origin in the form that browsers send."""
    if given == "*":
        return given
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#@\s]+", given):
        raise ValueError("should be * or an origin, as in https://example.org or http://localhost:3000")
    found = given.lower()
    for port in _DEFAULT_PORTS:
        found = re.sub(port, r"\1", found)
    return found


class ServerConfig(Config):
    """Address, access, logging and limits of the server."""

    host: str = Field("127.0.0.1", description="address to listen on; 0.0.0.0: every IPv4 address of the machine")
    port: int = Field(5000, ge=0, le=65535, description="port to listen on; 0: any free one")
    keys: Path | None = Field(None, description="file of hashed API keys; null: no key is needed")
    allow_origins: tuple[Annotated[str, AfterValidator(_origin)], ...] = Field(
        (), description="web origins whose pages may call the server (CORS)"
    )
    allow_hosts: tuple[str, ...] = Field(
        (), description="further host names of the server, if it listens on the loopback only"
    )
    search: dict[str, Any] = Field(
        {}, description="search settings, such as beam_size, that replace those of the models"
    )
    log_text: bool = Field(False, description="whether the log holds the texts and translations themselves")
    limits: Limits = Field(Limits(), description="see Limits")

    def address(self) -> tuple[socket.AddressFamily, Any]:
        """The family and the address of the socket to listen on.

        Raises:
            OSError: if there is no such host.
            UnicodeError: if `host` is not a valid name.
        """
        family, _, _, _, found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0]
        return family, found

    @property
    def local_names(self) -> tuple[str, ...]:
        """Accepted host names of a server that only this machine can reach; empty for any other server."""
        try:
            address = str(self.address()[1][0])
        except (OSError, UnicodeError):
            return ()
        return (*LOOPBACK, self.host, address, *self.allow_hosts) if ip_address(address).is_loopback else ()
