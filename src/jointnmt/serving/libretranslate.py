"""LibreTranslate's API: JSON, forms or query parameters in, JSON out.

Unsupported requests are refused: a language without a model, files, suggestions.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from jointnmt.serving.admission import (
    check_cells,
    check_lengths,
    check_number,
    check_sentences,
    check_texts,
    check_unicode,
    to_sentences,
)
from jointnmt.serving.aside import aside
from jointnmt.serving.detection import Detected, confidence, detect
from jointnmt.serving.direct import DirectRoute
from jointnmt.serving.documents import EMPTY, Document, Html, PlainText, Rendered
from jointnmt.serving.engine import Engine, Translation, TranslationOptions
from jointnmt.serving.errors import NO_JSON, RequestError, is_json
from jointnmt.serving.schemas import ERRORS
from jointnmt.serving.services import Services, Shared, services
from jointnmt.serving.settings import Limits
from jointnmt.serving.work import Translating
from jointnmt.text.languages import language_name

router = APIRouter(tags=["LibreTranslate"], responses=ERRORS)


class Lenient(BaseModel):
    """Parameters of a request; unknown ones are ignored, as by LibreTranslate."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)


def _text_or_texts(given: object) -> object:
    if not isinstance(given, str) and not (isinstance(given, list) and all(isinstance(each, str) for each in given)):
        raise ValueError("should be a text or a list of texts")
    return given


class TranslateParameters(Lenient):
    """Parameters of `/translate`."""

    q: Annotated[str | list[str], BeforeValidator(_text_or_texts)] = Field(
        description="a text, or several", min_length=1
    )
    source: str = Field(description="a language code, or `auto` if only one language is possible", min_length=1)
    target: str = Field(description="a language code", min_length=1)
    format: Annotated[Literal["text", "html"], BeforeValidator(lambda given: given or "text")] = Field(
        "text", description="`html` keeps tags"
    )
    alternatives: Annotated[int, BeforeValidator(lambda given: given or 0)] = Field(
        0, ge=0, description="most further translations"
    )
    api_key: str | None = Field(None, description="the API key, if the server needs one")


class DetectParameters(Lenient):
    """Parameters of `/detect`."""

    q: Annotated[str, BeforeValidator(lambda q: " ".join(map(str, q)) if isinstance(q, list) else q)] = Field(
        description="a text", min_length=1
    )
    api_key: str | None = None


class Language(BaseModel):
    """A source language."""

    code: str
    name: str
    targets: list[str]


class Detection(BaseModel):
    """A language that a text may be in."""

    language: str
    confidence: float = Field(description="confidence in percent")


class LibreTranslateAnswer(BaseModel):
    """Answer of `/translate`; lists for a list."""

    translatedText: str | list[str]  # noqa: N815 (LibreTranslate's name)
    detectedLanguage: Detection | list[Detection] | None = None  # noqa: N815
    alternatives: list[str] | list[list[str]] | None = None


def _body(parameters: type[BaseModel]) -> dict[str, Any]:
    """The description of a body that may be JSON or a form."""
    schema = parameters.model_json_schema()
    kinds = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data")
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema} for kind in kinds}}}


async def translate(request: Request) -> Response:
    """Translate a text, or each text of a list; lines stay lines, and HTML keeps its tags."""
    shared = services(request)
    values = await _values(request)
    shared.admit(request, _text(values.get("api_key")))
    asked = _parse(TranslateParameters, values)
    texts = asked.q if isinstance(asked.q, list) else [asked.q]
    model = shared.models.for_pair(asked.source, asked.target)
    documents = await aside(texts, lambda: _documents(texts, asked.format, model.pair[0], shared.config.limits))
    ranked = await shared.answer(request, _translations(shared, model.engine, documents, asked))
    found = LibreTranslateAnswer(translatedText=[ranks[0] for ranks in ranked])
    if asked.source == "auto":
        language = model.pair[0]
        sure = await asyncio.to_thread(lambda: [confidence(_text_of(each), language) for each in documents])
        found.detectedLanguage = [Detection(language=language, confidence=each) for each in sure]
    if asked.alternatives:
        found.alternatives = [ranks[1:] for ranks in ranked]
    request.state.texts = texts, [ranks[0] for ranks in ranked]
    answer = found if isinstance(asked.q, list) else _single(found)
    return Response(answer.model_dump_json(exclude_none=True), media_type="application/json")


router.add_api_route(
    "/translate",
    translate,
    methods=["POST"],
    openapi_extra=_body(TranslateParameters),
    response_model=LibreTranslateAnswer,
    route_class_override=DirectRoute,
)


@router.get("/languages")
async def languages(shared: Shared) -> list[Language]:
    """The languages of the models, each with those that it is translated to."""
    pairs = shared.models.pairs()
    codes = [*pairs, *(target for target in shared.models.targets() if target not in pairs)]
    return [Language(code=code, name=language_name(code), targets=pairs.get(code, [])) for code in codes]


@router.post("/detect", openapi_extra=_body(DetectParameters))
async def detect_language(request: Request, shared: Shared) -> list[Detection]:
    """The languages that a text may be in, likeliest first.

    As clients rely on a first one, a text whose language cannot be identified is said to be in the first model's source
    language, with a confidence of 0.
    """
    values = await _values(request)
    shared.admit(request, _text(values.get("api_key")))
    asked = _parse(DetectParameters, values)
    check_texts([asked.q], shared.config.limits)
    found: list[Detected] = await asyncio.to_thread(detect, asked.q)
    none = Detected(next(iter(shared.models)).pair[0], 0.0)
    return [Detection(language=language, confidence=sure) for language, sure in found or [none]]


@router.get("/frontend/settings")
async def frontend_settings(shared: Shared) -> dict[str, Any]:
    """Settings that LibreTranslate's own page requests when it opens."""
    source, target = next(iter(shared.models)).pair
    return {
        "apiKeys": shared.access.needs_key,
        "charLimit": min(shared.config.limits.line_characters, shared.config.limits.body_bytes),
        "filesTranslation": False,
        "frontendTimeout": 500,
        "keyRequired": shared.access.needs_key,
        "language": {
            "source": {"code": source, "name": language_name(source)},
            "target": {"code": target, "name": language_name(target)},
        },
        "suggestions": False,
        "supportedFilesFormat": [],
    }


@router.get("/health")
async def health() -> dict[str, str]:
    """Whether the server answers."""
    return {"status": "ok"}


@router.post("/translate_file", status_code=403, include_in_schema=False)
async def translate_file() -> None:
    """Files are not translated."""
    raise RequestError(403, "This server does not translate files: send their text to /translate.")


@router.post("/suggest", status_code=403, include_in_schema=False)
async def suggest() -> None:
    """Suggestions are not taken."""
    raise RequestError(403, "This server takes no suggestions.")


LINE_BREAKS = {ord(each): " " for each in "\r\n"}


def _documents(texts: Sequence[str], form: str, language: str, limits: Limits) -> list[Document]:
    """The texts as documents.

    Raises:
        RequestError: if they are not valid Unicode, or exceed the limits; the lines of HTML are the texts in it.
    """
    found: list[Document]
    if form == "html":
        check_unicode(texts)
        check_number(texts, limits)
        read = [Html.of(text, language) for text in texts]
        check_lengths([segment for each in read for segment in each.segments], limits)
        found = [*read]
    else:
        check_texts(texts, limits)
        found = [PlainText.of(text, language) for text in texts]
    check_sentences([each.pieces for each in found], limits)
    return found


async def _translations(
    shared: Services, engine: Engine, documents: Sequence[Document], asked: TranslateParameters
) -> list[list[str]]:
    """The translations of each document, best first, without repetitions."""
    pieces = [piece for document in documents for piece in document.pieces]
    options = _options(shared, engine, asked.alternatives)
    plain, aligned = ([piece.text for piece in pieces if piece.needs_alignment == needed] for needed in (False, True))
    found = [
        iter(await _translated(shared, engine, some, options, alignments))
        for some, alignments in ((plain, False), (aligned, True))
    ]
    in_order = [next(found[piece.needs_alignment]) for piece in pieces]
    texts = [piece.text for piece in pieces]
    return await aside(texts, lambda: _put_back(documents, in_order, asked.target))


async def _translated(
    shared: Services, engine: Engine, texts: Sequence[str], options: TranslationOptions, alignments: bool
) -> list[Translation]:
    if not texts:
        return []
    texts = [text.translate(LINE_BREAKS) for text in texts]  # white space in HTML; positions stay
    limits = shared.config.limits
    wanted = TranslationOptions(options.search, options.num_best, alignments)
    sentences = check_cells(engine, await to_sentences(engine, texts, None, limits), wanted, limits)
    return await shared.dispatcher.results(Translating(engine, wanted), sentences)


def _text_of(document: Document) -> str:
    """Its sentences, joined by spaces."""
    return " ".join(piece.text for piece in document.pieces)


def _options(shared: Services, engine: Engine, alternatives: int) -> TranslationOptions:
    """The model's own search, with a beam at least as wide as the number of translations."""
    number, limits = alternatives + 1, shared.config.limits
    if number > min(limits.num_best, limits.beam_size):
        most = min(limits.num_best, limits.beam_size) - 1
        raise RequestError(400, f"{alternatives} alternatives were asked for; at most {most} are given.")
    wider = engine.search({"beam_size": number}) if number > engine.info.beam_size else None
    return TranslationOptions(wider, number)


def _put_back(documents: Sequence[Document], translations: Sequence[Translation], language: str) -> list[list[str]]:
    found, remaining = [], iter(translations)
    for document in documents:
        sentences = [next(remaining) for _ in document.pieces]
        number = min((len(each.candidates) for each in sentences if each.candidates), default=1)
        ranks = [
            [Rendered(each.source_tokens, each.candidates[rank] if each.candidates else EMPTY) for each in sentences]
            for rank in range(number)
        ]
        found.append(list(dict.fromkeys(document.filled(rank, language) for rank in ranks)))
    return found


def _single(answer: LibreTranslateAnswer) -> LibreTranslateAnswer:
    """The answer for a text that was not in a list."""
    values = {
        name: value[0] for name in LibreTranslateAnswer.model_fields if (value := getattr(answer, name)) is not None
    }
    return LibreTranslateAnswer(**values)


async def _values(request: Request) -> dict[str, Any]:
    """The parameters of a JSON object, or of query and form.

    Raises:
        RequestError: if the body cannot be read.
    """
    body = await request.body()
    if is_json(request):
        try:
            values = json.loads(body)
        except (ValueError, RecursionError):
            raise RequestError(400, "The body is not valid JSON.") from None
        if not isinstance(values, dict):
            raise RequestError(400, "The body should be a JSON object.")
        return {name: value for name, value in values.items() if value is not None}
    if body.startswith(b"{"):  # it would be read as one key of a form
        raise RequestError(400, NO_JSON)
    if request.headers.get("content-type", "").lower().startswith("application/x-www-form-urlencoded"):
        form = _fields(body)
    else:
        form = [(name, value) for name, value in (await request.form()).multi_items() if isinstance(value, str)]
    # Forms end lines in CRLF; with plain line feeds, texts have the same length either way.
    sent = _fields(request.scope["query_string"]) + [(name, value.replace("\r\n", "\n")) for name, value in form]
    texts = [value for name, value in sent if name == "q"]
    return {**dict(sent), **({"q": texts} if len(texts) > 1 else {})}


def _fields(encoded: bytes) -> list[tuple[str, str]]:
    """Names and values of a query or a form, percent-encoded or not.

    Raises:
        RequestError: if they are not UTF-8, which Starlette would read as Latin-1, or replace.
    """
    try:
        return parse_qsl(encoded.decode("utf-8"), keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        raise RequestError(400, "The parameters are not UTF-8. Send them in UTF-8.") from None


def _parse(kind: type[Any], values: dict[str, Any]) -> Any:
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_url=False)) from None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
