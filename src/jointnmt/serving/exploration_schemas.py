"""Typed requests and answers of the routes of `/v1` that explore models."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from jointnmt.search.trace import Fate
from jointnmt.serving.arrays import Packing
from jointnmt.serving.engine import MOST_LENGTH_PENALTY
from jointnmt.serving.schemas import Asked, CandidateAnswer, OfModel, ScoreAnswer

PAIR = "its translation; null: the model's own"


class ArrayAnswer(BaseModel):
    """An array of numbers."""

    shape: list[int]
    dtype: Packing = Field(description="float32; or unorm16: unsigned 16-bit integers in units of 1/65535")
    data: str = Field(description="its numbers in base64, little-endian, the last dimension varying fastest")


class InspectRequest(OfModel):
    """A sentence and its translation to inspect."""

    source: str = Field(min_length=1)
    target: str | None = Field(None, description=PAIR)


class StreamNormsAnswer(BaseModel):
    """The residual stream of a stack, in Euclidean norms."""

    norm: ArrayAnswer = Field(description="[L + 1, *places]: norms of the input, then of each layer's output")
    change: ArrayAnswer = Field(description="[L, *places]: norms of the difference that each layer makes")


class InspectAnswer(BaseModel):
    """Internal values of a model for a sentence and its translation, as arrays.

    L layers, H heads, S source positions (pieces and end mark), T target positions (read: begin mark and pieces;
    predicted: pieces and end mark). The names depend on the family: `encoder`, `decoder` and `cross` for a Transformer;
    `prenet` and, along the axes of the grid, `source` and `target` for a Reformer.
    """

    model: str
    family: str
    translation: str
    source_tokens: list[str]
    target_read: list[str]
    target_predicted: list[str]
    token_log_probabilities: list[float] = Field(description="log-probabilities of the predicted tokens, in nats")
    alignment: ArrayAnswer = Field(description="[T, S]: alignment weights; a row sums to 1")
    attention: dict[str, ArrayAnswer | None] = Field(
        description="[L, H, queries, keys]; for a grid `source` [L, H, T, S, S] and `target` [L, H, S, T, T]; a row "
        "sums to 1; null: too large, see /v1/inspect/cell"
    )
    grid_heads: Literal["each", "mean"] | None = Field(
        description="whether a grid's attention and entropy are given for each head, or as their mean because of the "
        "size (then H is 1); null: attention left out because of its size, or no grid"
    )
    entropy: dict[str, ArrayAnswer] = Field(
        description="entropy of attention rows, in nats: [L, H, queries], for a grid [L, H, S, T]"
    )
    states: dict[str, StreamNormsAnswer] = Field(description="streams of `encoder`, `decoder`, `prenet` and `grid`")
    gates: dict[str, ArrayAnswer] = Field(
        description="gates of lexical shortcuts, mean over features: [L, *places, 2], of keys and of values; 1: lexical"
    )
    left_out: int = Field(description="target positions left out, if the translation exceeds the server's limit")


class CellRequest(InspectRequest):
    """A source and a target position of a sentence pair."""

    source_position: int = Field(ge=0)
    target_position: int = Field(ge=0)


class CellStreamAnswer(BaseModel):
    """The residual stream at a position or cell."""

    norm: list[float]
    change: list[float]


class CellAnswer(BaseModel):
    """Values of /v1/inspect at one source and one target position, as plain numbers."""

    model: str
    source_position: int
    target_position: int
    attention: dict[str, list[list[list[float]]]] = Field(description="[L][H][keys]: the row of this position or cell")
    entropy: dict[str, list[list[float]]]
    states: dict[str, CellStreamAnswer]
    gates: dict[str, list[list[float]]]
    alignment: float


class SearchRequest(OfModel):
    """A sentence whose search is traced."""

    source: str = Field(min_length=1)
    prefix: str = Field("", description="the beginning that the translation must have")
    beam_size: int | None = Field(None, ge=1, description="null: the model's own")
    length_penalty: float | None = Field(None, ge=0, le=MOST_LENGTH_PENALTY, description="null: the model's own")
    pruned: int = Field(5, ge=0, le=64, description="most pruned hypotheses of a position to return")


class SearchNodeAnswer(BaseModel):
    """A hypothesis: that of its parent, extended by one piece."""

    id: int
    parent: int | None
    position: int = Field(description="position of its newest piece; -1 for the root, the begin mark")
    piece: str
    fate: Fate = Field(
        description="kept: was extended; finished: ended; pruned: was among the 2 * beam_size best, but fell out; "
        "abandoned: was in the beam when the sentence was done"
    )
    rank: int = Field(description="rank by log_probability among the continuations of its position, from 0")
    token_log_probability: float
    log_probability: float = Field(description="the sum so far, by which search prunes")
    score: float = Field(description="log_probability over the length penalty, which ranks finished hypotheses")
    behind: float = Field(description="for a pruned one: how far below the last one that was kept")


class SearchAnswer(BaseModel):
    """The beam as a tree."""

    model: str
    source_tokens: list[str]
    beam_size: int
    length_penalty: float
    length_offset: float = Field(description="o: a length counts as (o + length) / (o + 1); 0: as itself")
    max_tokens: int
    num_positions: int
    nodes: list[SearchNodeAnswer] = Field(description="a parent comes before its children; the root is the first one")
    finished: list[int] = Field(description="ids of finished hypotheses, best first")
    translations: list[str] = Field(description="texts of the finished hypotheses")


class AlternativesRequest(OfModel):
    """A sentence, and the beginning of its translation."""

    source: str = Field(min_length=1)
    prefix: str = Field("", description="the beginning, whose last word is complete")
    count: int = Field(5, ge=1, description="most next words")
    alignments: bool = Field(False, description="whether to align the tokens of candidates")


class ContinuedAnswer(BaseModel):
    """A word that might come next."""

    word: str = Field(description="empty: the translation ends")
    prefix: str = Field(description="the given prefix followed by the word")
    log_probability: float = Field(description="log-probability of the word's first piece")
    candidate: CandidateAnswer = Field(description="the best translation that goes on with it")


class AlternativesAnswer(BaseModel):
    """The likeliest next words, best first."""

    model: str
    prefix: str
    source_tokens: list[str]
    alternatives: list[ContinuedAnswer]


class CompareRequest(Asked):
    """A sentence for several models of one language pair."""

    models: list[str] | None = Field(None, min_length=1, description="null: all of the first one's language pair")
    source: str = Field(min_length=1)
    targets: list[str] = Field([], description="further translations to score")


class ComparedText(BaseModel):
    """A translation."""

    text: str
    by: list[str] = Field(description="the models that translate so; empty: given")


class CompareAnswer(BaseModel):
    """Each model's translation, and each model's scores of all translations."""

    source: str
    models: list[str]
    texts: list[ComparedText]
    scores: dict[str, list[ScoreAnswer]] = Field(description="by model: its score of each text, segmented again")
