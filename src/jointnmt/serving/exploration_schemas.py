"""What the routes of `/v1` that look into models take and give, typed."""

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
    """A sentence and its translation to look into."""

    source: str = Field(min_length=1)
    target: str | None = Field(None, description=PAIR)


class StreamNormsAnswer(BaseModel):
    """The residual stream of a stack, in Euclidean norms."""

    norm: ArrayAnswer = Field(description="[L + 1, *places]: of the input, then of each layer's output")
    change: ArrayAnswer = Field(description="[L, *places]: of the difference that each layer makes")


class InspectAnswer(BaseModel):
    """What a model does with a sentence and its translation, in arrays.

    L layers, H heads, S source positions (pieces and end mark), T target positions (read: begin mark and pieces;
    predicted: pieces and end mark). Which names there are depends on the family: `encoder`, `decoder` and `cross` of a
    Transformer, `prenet`, and along the axes of the grid `source` and `target`, of a Reformer.
    """

    model: str
    family: str
    translation: str
    source_tokens: list[str]
    target_read: list[str]
    target_predicted: list[str]
    token_log_probabilities: list[float] = Field(description="of what is predicted")
    alignment: ArrayAnswer = Field(description="[T, S]; a row sums to 1")
    attention: dict[str, ArrayAnswer | None] = Field(
        description="[L, H, queries, keys], of a grid `source` [L, H, T, S, S] and `target` [L, H, S, T, T]; a row "
        "sums to 1; null: too large, see /v1/inspect/cell"
    )
    grid_heads: Literal["each", "mean"] | None = Field(
        description="of a grid's attention and entropy: of each head, or their mean because of its size (then H is 1); "
        "null: attention left out because of its size, or no grid"
    )
    entropy: dict[str, ArrayAnswer] = Field(
        description="of attention rows, in nats: [L, H, queries], of a grid [L, H, S, T]"
    )
    states: dict[str, StreamNormsAnswer] = Field(description="of `encoder`, `decoder`, `prenet` and `grid`")
    gates: dict[str, ArrayAnswer] = Field(
        description="of lexical shortcuts, mean over features: [L, *places, 2], of keys and of values; 1: all lexical"
    )
    left_out: int = Field(description="further target positions, if the translation is longer than the server tells")


class CellRequest(InspectRequest):
    """A source and a target position of a sentence pair."""

    source_position: int = Field(ge=0)
    target_position: int = Field(ge=0)


class CellStreamAnswer(BaseModel):
    """The residual stream at a position or cell."""

    norm: list[float]
    change: list[float]


class CellAnswer(BaseModel):
    """What /v1/inspect has of one source and one target position, as plain numbers."""

    model: str
    source_position: int
    target_position: int
    attention: dict[str, list[list[list[float]]]] = Field(description="[L][H][keys]: the row of this position or cell")
    entropy: dict[str, list[list[float]]]
    states: dict[str, CellStreamAnswer]
    gates: dict[str, list[list[float]]]
    alignment: float


class SearchRequest(OfModel):
    """A sentence whose search is to be seen."""

    source: str = Field(min_length=1)
    prefix: str = Field("", description="what the translation has to begin with")
    beam_size: int | None = Field(None, ge=1, description="null: as the model has it")
    length_penalty: float | None = Field(None, ge=0, le=MOST_LENGTH_PENALTY, description="null: as the model has it")
    pruned: int = Field(5, ge=0, le=64, description="most pruned hypotheses of a position to tell")


class SearchNodeAnswer(BaseModel):
    """A hypothesis: that of its parent and one piece more."""

    id: int
    parent: int | None
    position: int = Field(description="of its newest piece; -1 of the root, the begin mark")
    piece: str
    fate: Fate = Field(
        description="kept: was extended; finished: ended; pruned: was among the 2 * beam_size best, but fell out; "
        "abandoned: was in the beam when the sentence was done"
    )
    rank: int = Field(description="by log_probability among the continuations of its position, from 0")
    token_log_probability: float
    log_probability: float = Field(description="the sum so far, by which search prunes")
    score: float = Field(description="over the length penalty, by which finished hypotheses are ranked")
    behind: float = Field(description="of a pruned one: how far below the last one that was taken in its place")


class SearchAnswer(BaseModel):
    """The beam as a tree."""

    model: str
    source_tokens: list[str]
    beam_size: int
    length_penalty: float
    length_offset: float = Field(description="a length counts as (this + length) / (this + 1); 0: as itself")
    max_tokens: int
    num_positions: int
    nodes: list[SearchNodeAnswer] = Field(description="a parent comes before its children; the root is the first one")
    finished: list[int] = Field(description="ids of finished hypotheses, best first")
    translations: list[str] = Field(description="their texts")


class AlternativesRequest(OfModel):
    """A sentence, and the beginning of its translation."""

    source: str = Field(min_length=1)
    prefix: str = Field("", description="whose last word is finished")
    count: int = Field(5, ge=1, description="how many next words, at most")
    alignments: bool = Field(False, description="whether to align the tokens of candidates")


class ContinuedAnswer(BaseModel):
    """A word that might come next."""

    word: str = Field(description="empty: the translation ends")
    prefix: str = Field(description="what was given, and the word")
    log_probability: float = Field(description="of the word's first piece")
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
    by: list[str] = Field(description="the models that translate so; none: it was given")


class CompareAnswer(BaseModel):
    """Each model's translation, and what each thinks of the others'."""

    source: str
    models: list[str]
    texts: list[ComparedText]
    scores: dict[str, list[ScoreAnswer]] = Field(description="by model, of each text, segmented anew")
