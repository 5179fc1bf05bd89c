"""The server's own API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict, replace
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import StreamingResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from jointnmt.serving.admission import (
    check_alternatives,
    check_lines,
    check_number,
    check_surrogates,
    to_lines,
    to_lines_or_errors,
    to_sentences,
)
from jointnmt.serving.aside import aside
from jointnmt.serving.dispatcher import refusal
from jointnmt.serving.engine import Engine, ScoredTranslation, Translation, TranslationOptions
from jointnmt.serving.errors import RequestError
from jointnmt.serving.exploration import plain_translation
from jointnmt.serving.models import Served
from jointnmt.serving.schemas import (
    ERRORS,
    LimitsAnswer,
    ModelAnswer,
    ModelsAnswer,
    OfModel,
    ScoreAnswer,
    ScoreRequest,
    ScoresAnswer,
    SentencesAnswer,
    SentencesRequest,
    StreamedError,
    StreamedTranslation,
    TranslateAnswer,
    TranslateRequest,
    TranslationAnswer,
)
from jointnmt.serving.services import Services, Shared
from jointnmt.serving.work import Scoring, Sentence, Translating
from jointnmt.text.sentences import split_sentences

LINES = "application/x-ndjson"

bearer = HTTPBearer(auto_error=False, description="the API key, if the server needs one")


async def admitted(
    request: Request, shared: Shared, _: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]
) -> None:
    """Admit a request by its key."""
    shared.admit(request)


router = APIRouter(prefix="/v1", tags=["v1"], responses=ERRORS, dependencies=[Depends(admitted)])


@router.post("/translate", response_model_exclude_none=True)
async def translate(request: Request, asked: TranslateRequest, shared: Shared) -> TranslateAnswer:
    """Translate lines: n-best, scores, prefixes, alignments, gates, samples."""
    check_lines(asked.texts, shared.config.limits)
    check_lines(asked.prefixes or [], shared.config.limits)
    model, options = _translation(shared, asked)

    async def answer() -> list[Translation]:
        lines = await to_lines(model.engine, asked.texts, asked.prefixes, shared.config.limits, options)
        sentences = [sentence for line in lines for sentence in line]
        found = iter(await shared.dispatcher.results(_work(model.engine, options), sentences))
        parts = ([next(found) for _ in line] for line in lines)
        return [model.engine.joined(text, each, options) for text, each in zip(asked.texts, parts, strict=True)]

    found = await shared.answer(request, answer())
    request.state.texts = asked.texts, [each.text for each in found]
    return TranslateAnswer(
        model=model.name, translations=[TranslationAnswer(**plain_translation(each)) for each in found]
    )


@router.post(
    "/translate/stream",
    response_class=StreamingResponse,
    responses={200: {"description": "StreamedTranslation or StreamedError, one a line", "content": {LINES: {}}}},
)
async def translate_stream(request: Request, asked: TranslateRequest, shared: Shared) -> StreamingResponse:
    """Translate a document as a stream: one JSON object a line, in order, each as soon as it is ready.

    A line that is refused, or cannot be translated, is answered by an error, and the others continue.
    """
    limits = shared.config.limits
    check_number(asked.texts, limits)
    check_number(asked.prefixes or [], limits)
    model, options = _translation(shared, asked)
    lines = await shared.answer(request, to_lines_or_errors(model.engine, asked.texts, asked.prefixes, limits, options))
    sentences = [sentence for line in lines if isinstance(line, list) for sentence in line]
    outcomes = shared.dispatcher.outcomes(_work(model.engine, options), sentences)
    # The first one is awaited here, so that a full queue is answered as such, not within a stream.
    first = await shared.answer(request, _next(outcomes))
    request.state.texts = asked.texts, list[str]()
    joined = partial(model.engine.joined, options=options)
    return StreamingResponse(_lines(shared, request, lines, first, outcomes, joined), media_type=LINES)


@router.post("/sentences")
async def sentences(asked: SentencesRequest, shared: Shared) -> SentencesAnswer:
    """Split lines into sentences, as `split` does."""
    check_number(asked.texts, shared.config.limits)
    check_surrogates(asked.texts)
    language = chosen(shared, asked).pair[0]
    return SentencesAnswer(
        sentences=await aside(asked.texts, lambda: [split_sentences(text, language) for text in asked.texts])
    )


@router.post("/score", response_model_exclude_none=True)
async def score(request: Request, asked: ScoreRequest, shared: Shared) -> ScoresAnswer:
    """Score given translations by their log-probabilities."""
    limits = shared.config.limits
    check_lines(asked.sources, limits)
    check_lines(asked.targets, limits)
    if asked.alternatives > limits.num_best:
        raise RequestError(400, f"alternatives is {asked.alternatives}; at most {limits.num_best} are given.")
    model = chosen(shared, asked)

    async def answer() -> list[ScoredTranslation]:
        sentences = await to_sentences(model.engine, asked.sources, asked.targets, limits, scored=True)
        check_alternatives(sentences, asked.alternatives, limits)
        return await shared.dispatcher.results(Scoring(model.engine, asked.pieces, asked.alternatives), sentences)

    found = await shared.answer(request, answer())
    request.state.texts = asked.sources, asked.targets
    return ScoresAnswer(model=model.name, scores=[ScoreAnswer(**each.plain()) for each in found])


@router.get("/models")
async def models(shared: Shared) -> ModelsAnswer:
    """The models that are served, and the limits on a request."""
    found = [ModelAnswer(name=each.name, **asdict(each.engine.info)) for each in shared.models]
    limits = shared.config.limits
    return ModelsAnswer(
        models=found,
        limits=LimitsAnswer(lines=limits.lines, body_bytes=limits.body_bytes, num_best=limits.num_best),
    )


def chosen(shared: Services, asked: OfModel) -> Served:
    """The model that a request asks for."""
    return shared.models.choose(asked.model, asked.source_language, asked.target_language)


def _translation(shared: Services, asked: TranslateRequest) -> tuple[Served, TranslationOptions]:
    """The model that a request asks for, and its options, within the limits."""
    limits = shared.config.limits
    if refused := limits.refused_breadth(asked.num_best, asked.beam_size or 1):
        raise RequestError(400, refused)
    if asked.sampling and asked.beam_size is not None:
        raise RequestError(400, "beam_size does not go with sampling, which has no beam.")
    model = chosen(shared, asked)
    given = {
        "beam_size": asked.beam_size,
        "length_penalty": asked.length_penalty,
        "length_offset": asked.length_offset,
        "allow_unknown": asked.allow_unknown,
        **(asked.sampling.model_dump(exclude={"seed"}) if asked.sampling else {}),
    }
    settings = {name: value for name, value in given.items() if value is not None}
    options = TranslationOptions(
        search=model.engine.search(settings, sampling=asked.sampling is not None),
        num_best=asked.num_best,
        alignments=asked.alignments,
        gates=asked.gates,
        split=asked.split,
        seed=asked.sampling.seed if asked.sampling else 0,
    )
    model.engine.check_options(options)
    return model, options


def _work(engine: Engine, options: TranslationOptions) -> Translating:
    """The work on sentences of lines that are already split."""
    return Translating(engine, replace(options, split="never"))


async def _next(outcomes: AsyncIterator[Any]) -> Any:
    return await anext(outcomes, None)


async def _lines(
    shared: Services,
    request: Request,
    lines: Sequence[list[Sentence] | RequestError],
    first: Any,
    outcomes: AsyncIterator[Any],
    joined: Callable[[str, list[Translation]], Translation],
) -> AsyncIterator[str]:
    """The lines of a stream; it ends with an error when the request's time is over.

    Args:
        shared: the server.
        request: the request, whose state records the translations.
        lines: sentences of each line, or the error of a refused line.
        first: outcome of the first sentence.
        outcomes: outcomes of the other sentences.
        joined: makes the translation of a line from those of its sentences.
    """
    come, (texts, translations) = [first], request.state.texts
    async with aclosing(outcomes):  # type: ignore[type-var]
        for number, (text, line) in enumerate(zip(texts, lines, strict=True), start=1):
            outcome: Any = line
            if isinstance(line, list):
                try:
                    async with asyncio.timeout(shared.seconds_left(request)):
                        found = [come.pop() if come else await anext(outcomes) for _ in line]
                except TimeoutError:
                    over = "The request's time is over: the lines from here on are missing."
                    yield _line(number, RequestError(503, over))
                    return
                failed = next((each for each in found if isinstance(each, Exception)), None)
                outcome = failed or joined(text, found)
            translations.append(outcome.text if isinstance(outcome, Translation) else "")
            yield _line(number, outcome)


def _line(number: int, outcome: Any) -> str:
    if isinstance(outcome, Exception):
        return StreamedError(line=number, error=refusal(outcome).message).model_dump_json() + "\n"
    return StreamedTranslation(line=number, **plain_translation(outcome)).model_dump_json(exclude_none=True) + "\n"
