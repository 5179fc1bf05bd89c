"""Typed requests and answers of `/v1`, by which FastAPI validates requests and writes the OpenAPI description."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from jointnmt.serving.engine import MOST_LENGTH_OFFSET, MOST_LENGTH_PENALTY, By, Split


class ErrorAnswer(BaseModel):
    """The error of a refused request."""

    error: str


ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorAnswer, "description": what}
    for status, what in (
        (400, "The request is wrong, or asks for too much"),
        (403, "The API key is missing or wrong, or the server does not do this"),
        (408, "The request did not arrive in time"),
        (413, "The request is too large"),
        (415, "The body is compressed"),
        (429, "The key has used up its requests of this minute"),
        (503, "The server is busy; Retry-After says when to retry"),
    )
}


class Asked(BaseModel):
    """A request: an unknown key is an error, and so is a number in quotes."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class OfModel(Asked):
    """The model that is asked."""

    model: str | None = Field(None, description="its name in /v1/models; null: by languages, or the only one")
    source_language: str | None = Field(None, description="code of the source language")
    target_language: str | None = Field(None, description="code of the target language")


class Sampling(Asked):
    """Settings of sampling, which replaces beam search."""

    temperature: float = Field(1.0, ge=0.0001, le=1000, description="below 1, likely tokens become likelier")
    top_k: int | None = Field(None, ge=1, le=2**31, description="draw from this many likeliest tokens; null: from all")
    top_p: float = Field(1.0, gt=0, le=1, description="draw from the fewest tokens with this total probability")
    seed: int = Field(0, ge=0, lt=2**63, description="seed of the samples")


class TranslateRequest(OfModel):
    """Lines to translate."""

    texts: list[str] = Field(min_length=1, description="the lines")
    prefixes: list[str] | None = Field(None, description="the beginning of each translation; empty: any")
    num_best: int = Field(1, ge=1, description="number of translations, or samples, of each line")
    beam_size: int | None = Field(None, ge=1, description="hypotheses extended at once; null: the model's own")
    length_penalty: float | None = Field(
        None,
        ge=0,
        le=MOST_LENGTH_PENALTY,
        description="p in score = log-probability / length ** p; null: the model's own",
    )
    length_offset: float | None = Field(
        None,
        ge=0,
        le=MOST_LENGTH_OFFSET,
        description="o: the length counts as (o + length) / (o + 1); null: the model's own",
    )
    allow_unknown: bool | None = Field(None, description="whether `<unk>` may be generated; null: the model's own")
    sampling: Sampling | None = Field(None, description="draw translations at random; null: beam search")
    alignments: bool = Field(False, description="whether to align source and target tokens")
    gates: bool = Field(False, description="whether to return the mean gates of lexical shortcuts")
    split: Split = Field(
        "never",
        description="which lines to split into sentences, each translated by itself: never; long: those too long for "
        "the model, which are refused otherwise; always: all",
    )


class CandidateAnswer(BaseModel):
    """One translation of a line."""

    text: str
    score: float = Field(description="the score that ranks candidates")
    log_probability: float
    complete: bool = Field(description="false if the translation was cut at the maximum length")
    tokens: list[str] = Field(description="target pieces and the end mark")
    token_log_probabilities: list[float]
    alignment: list[list[float]] | None = Field(
        None, description="for each target token, the weight of each source token; a row sums to 1"
    )
    gates: dict[str, list[dict[str, float]]] | None = Field(None, description="mean gates of lexical shortcuts")


class TranslationAnswer(BaseModel):
    """A line and its translations."""

    source: str
    source_tokens: list[str] = Field(description="source pieces and the end mark")
    translation: str = Field(description="the best one, or the first sample; empty for an empty line")
    candidates: list[CandidateAnswer] = Field(description="best first, or samples; none for an empty line")


class TranslateAnswer(BaseModel):
    """All translations."""

    model: str
    translations: list[TranslationAnswer]


class StreamedTranslation(TranslationAnswer):
    """A line of a stream."""

    line: int = Field(description="number of the line, from 1")


class StreamedError(ErrorAnswer):
    """A line of a stream that could not be translated, or the end of a stream that cannot continue."""

    line: int


class SentencesRequest(OfModel):
    """Lines to split into sentences."""

    texts: list[str] = Field(min_length=1, description="the lines")


class SentencesAnswer(BaseModel):
    """The sentences of each line."""

    sentences: list[list[str]] = Field(description="without the white space between them; empty line: none")


class ScoreRequest(OfModel):
    """Pairs to score."""

    sources: list[str] = Field(min_length=1)
    targets: list[str] = Field(min_length=1)
    pieces: bool = Field(False, description="whether targets are pieces with spaces between them, not text")
    alternatives: int = Field(0, ge=0, description="number of likeliest pieces to return at each position")


class NextPieceAnswer(BaseModel):
    """A piece that might stand at a position."""

    piece: str
    log_probability: float


class ScoreAnswer(BaseModel):
    """The log-probability of a translation."""

    source: str
    target: str
    score: float
    log_probability: float
    tokens: list[str]
    token_log_probabilities: list[float]
    first_choices: list[bool] = Field(description="whether each token is the model's most probable one")
    alternatives: list[list[NextPieceAnswer]] | None = Field(
        None, description="for each token, the likeliest pieces at its position, best first"
    )


class ScoresAnswer(BaseModel):
    """All scores."""

    model: str
    scores: list[ScoreAnswer]


class AttentionRequest(OfModel):
    """A sentence whose attention is returned."""

    source: str = Field(min_length=1)
    target: str | None = Field(None, description="its translation; null: the model's own")
    by: By = Field("mean", description="means over layers and heads; each layer; each head of each layer")


class AttentionPanel(BaseModel):
    """One attention matrix."""

    title: str
    layer: int | None
    head: int | None
    averaged_over: str
    row_axis: str
    rows: list[str]
    column_axis: str
    columns: list[str]
    weights: list[list[float]]


class AttentionAnswer(BaseModel):
    """Attention weights of a teacher-forced translation."""

    model: str
    translation: str
    source: list[str] = Field(description="source pieces, without the end mark")
    target: list[str] = Field(description="target pieces, without begin and end mark")
    panels: list[AttentionPanel]
    source_attention: list[list[list[float]]] | None = Field(
        None, description="for a grid: [t][s] are the weights of source position s under target position t"
    )
    target_attention: list[list[list[float]]] | None = Field(
        None, description="for a grid: [s][t] are the weights of target position t under source position s"
    )


class ModelAnswer(BaseModel):
    """A model that is served."""

    name: str
    source_language: str
    target_language: str
    family: str
    parameters: int
    max_length: int | None = Field(description="most source tokens of a sentence; null: only the server's limit")
    has_gates: bool = Field(description="whether it has lexical shortcuts, whose gates can be returned")
    has_alignments: bool = Field(description="whether its translations can be aligned")
    beam_size: int = Field(description="beam size of its own search")


class LimitsAnswer(BaseModel):
    """Limits on one request."""

    lines: int = Field(description="most lines of its texts")
    body_bytes: int = Field(description="most bytes of its body")
    num_best: int = Field(description="most translations, or samples, of a line")


class ModelsAnswer(BaseModel):
    """The models in the given order; the first one of a language pair translates unless another is named."""

    models: Annotated[list[ModelAnswer], Field(min_length=1)]
    limits: LimitsAnswer
