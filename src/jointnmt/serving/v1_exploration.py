"""The routes of `/v1` that explore models: attention, cells, search, next words, models side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastapi import APIRouter, Depends, Request

from jointnmt.serving.admission import check_cells, check_lines, to_sentences
from jointnmt.serving.engine import Engine, SearchConfig, TranslationOptions
from jointnmt.serving.errors import RequestError
from jointnmt.serving.exploration import plain_inspection, plain_next_words
from jointnmt.serving.exploration_schemas import (
    AlternativesAnswer,
    AlternativesRequest,
    CellAnswer,
    CellRequest,
    CompareAnswer,
    CompareRequest,
    InspectAnswer,
    InspectRequest,
    SearchAnswer,
    SearchRequest,
)
from jointnmt.serving.schemas import ERRORS, AttentionAnswer, AttentionRequest
from jointnmt.serving.services import Services, Shared
from jointnmt.serving.v1 import admitted, chosen
from jointnmt.serving.work import Asking

router = APIRouter(prefix="/v1", tags=["v1"], responses=ERRORS, dependencies=[Depends(admitted)])

Values = dict[str, Any]


@router.post("/attention")
async def attention(request: Request, asked: AttentionRequest, shared: Shared) -> AttentionAnswer:
    """Return the attention weights of a model for a sentence with its translation."""
    model, limits = chosen(shared, asked), shared.config.limits
    check_lines([asked.target or ""], limits)

    def compute() -> Values:
        return model.engine.attention(asked.source, asked.target, asked.by, limits.attention_tokens)

    return AttentionAnswer(model=model.name, **await _answer(request, shared, model.engine, asked.source, compute))


@router.post("/inspect")
async def inspect(request: Request, asked: InspectRequest, shared: Shared) -> InspectAnswer:
    """Return a model's internal values for a sentence and its translation, layer by layer and cell by cell."""
    model, limits = chosen(shared, asked), shared.config.limits
    check_lines([asked.target or ""], limits)

    def compute() -> Values:
        found = model.engine.inspect(asked.source, asked.target, limits.attention_tokens)
        return plain_inspection(found, limits.grid_weights)

    return InspectAnswer(model=model.name, **await _answer(request, shared, model.engine, asked.source, compute))


@router.post("/inspect/cell")
async def inspect_cell(request: Request, asked: CellRequest, shared: Shared) -> CellAnswer:
    """Return the values of /v1/inspect at one source and one target position, as plain numbers."""
    model, limits = chosen(shared, asked), shared.config.limits
    check_lines([asked.target or ""], limits)
    position = {"source_position": asked.source_position, "target_position": asked.target_position}

    def compute() -> Values:
        found = model.engine.inspect(asked.source, asked.target, limits.attention_tokens)
        return found.cell(asked.source_position, asked.target_position).plain()

    found = await _answer(request, shared, model.engine, asked.source, compute)
    return CellAnswer(model=model.name, **position, **found)


@router.post("/search")
async def search(request: Request, asked: SearchRequest, shared: Shared) -> SearchAnswer:
    """Trace beam search: the hypotheses kept at each position, and those pruned and by how much."""
    model, limits = chosen(shared, asked), shared.config.limits
    check_lines([asked.prefix], limits)
    if (asked.beam_size or 1) > limits.beam_size:
        raise RequestError(400, f"beam_size is {asked.beam_size}; at most {limits.beam_size} is taken.")
    given = {"beam_size": asked.beam_size, "length_penalty": asked.length_penalty}
    config = model.engine.search({name: value for name, value in given.items() if value is not None})
    assert isinstance(config, SearchConfig)

    def compute() -> Values:
        return model.engine.trace(asked.source, asked.prefix, config, asked.pruned).plain()

    found = await _answer(request, shared, model.engine, asked.source, compute, config)
    _note(request, asked.source, found["translations"])
    return SearchAnswer(model=model.name, **found)


@router.post("/alternatives", response_model_exclude_none=True)
async def alternatives(request: Request, asked: AlternativesRequest, shared: Shared) -> AlternativesAnswer:
    """Return the likeliest next words after the beginning of a translation, each with a full translation."""
    model, limits = chosen(shared, asked), shared.config.limits
    check_lines([asked.prefix], limits)
    if asked.count > limits.num_best:
        raise RequestError(400, f"count is {asked.count}; at most {limits.num_best} is taken.")

    def compute() -> Values:
        found = model.engine.next_words(asked.source, asked.prefix, asked.count, asked.alignments)
        return plain_next_words(found)

    found = await _answer(request, shared, model.engine, asked.source, compute)
    _note(request, asked.source, [each["candidate"]["text"] for each in found["alternatives"]])
    return AlternativesAnswer(model=model.name, prefix=asked.prefix, **found)


@router.post("/compare", response_model_exclude_none=True)
async def compare(request: Request, asked: CompareRequest, shared: Shared) -> CompareAnswer:
    """Translate a sentence by several models, and let each of them score every translation."""
    limits, pair = shared.config.limits, next(iter(shared.models)).pair
    check_lines([asked.source, *asked.targets], limits)
    if len(asked.targets) > limits.num_best:
        raise RequestError(400, f"{len(asked.targets)} targets are too many; at most {limits.num_best} are taken.")
    names = asked.models or [each.name for each in shared.models if each.pair == pair]
    engines = {name: shared.models.named(name).engine for name in names}
    for engine in engines.values():
        sources = [asked.source] * max(1, len(asked.targets))
        sentences = await to_sentences(engine, sources, asked.targets or None, limits, scored=True)
        check_cells(engine, sentences[:1], TranslationOptions(), limits)

    def compute() -> Values:
        return Engine.compare(engines, asked.source, asked.targets).plain()

    found = await _answer(request, shared, engines[names[0]], asked.source, compute)
    _note(request, asked.source, [each["text"] for each in found["texts"]])
    return CompareAnswer(**found)


def _note(request: Request, source: str, translations: Sequence[str]) -> None:
    """Record texts for the log, which holds them if configured."""
    request.state.texts = [source] * len(translations), translations


async def _answer(
    request: Request,
    shared: Services,
    engine: Engine,
    source: str,
    compute: Callable[[], Values],
    search: SearchConfig | None = None,
) -> Values:
    """The result of the worker's thread for one text; `search` is given if it is not the model's own."""
    limits = shared.config.limits
    check_lines([source], limits)

    async def answer() -> Values:
        sentences = await to_sentences(engine, [source], None, limits)
        check_cells(engine, sentences, TranslationOptions(search), limits)
        found: list[Values] = await shared.dispatcher.results(Asking(compute), sentences)
        return found[0]

    found = await shared.answer(request, answer())
    _note(request, source, [found.get("translation", "")])
    return found
