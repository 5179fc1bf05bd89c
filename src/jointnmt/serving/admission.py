"""From the texts of a request to sentences for the queue, within the limits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from jointnmt.errors import DataError
from jointnmt.serving.aside import aside
from jointnmt.serving.engine import Engine, Split, TranslationOptions
from jointnmt.serving.errors import RequestError
from jointnmt.serving.settings import Limits
from jointnmt.serving.work import Sentence
from jointnmt.text.invisible import has_surrogate, is_blank

QUOTED = 80
"""Characters of a text that an error quotes."""


def check_texts(texts: Sequence[str], limits: Limits) -> None:
    """Refuse invalid Unicode, too many lines, and lines that are too long.

    Raises:
        RequestError: quoting the text, or naming the limit.
    """
    check_lines([line for text in texts for line in text.splitlines() or [""]], limits)


def check_lines(lines: Sequence[str], limits: Limits) -> None:
    """Refuse lines like `check_texts`, and several lines in place of one.

    Raises:
        RequestError: quoting the line, or naming the limit.
    """
    check_unicode(lines)
    check_lengths(lines, limits)
    for line in lines:
        if re.search(r"[\r\n]", line.rstrip("\r\n")):
            raise RequestError(
                400, f"{line[:QUOTED]!r} has several lines. Send each line by itself, or whole texts to /translate."
            )


def check_unicode(texts: Sequence[str]) -> None:
    """Refuse what JSON escapes can express but is not text: surrogates and NUL bytes.

    Raises:
        RequestError: quoting the text.
    """
    check_surrogates(texts)
    for text in texts:
        if "\0" in text:
            raise RequestError(400, f"{text[:QUOTED]!r} holds a NUL byte, so it is not text. Remove it.")


def check_surrogates(texts: Sequence[str]) -> None:
    """Refuse unpaired surrogates, which cannot be encoded in an answer.

    Raises:
        RequestError: quoting the text.
    """
    for text in texts:
        if has_surrogate(text):
            raise RequestError(400, f"{text[:QUOTED]!r} holds an unpaired surrogate, so it is not text. Fix it.")


def check_lengths(lines: Sequence[str], limits: Limits) -> None:
    """Refuse too many lines, and lines that are too long.

    Raises:
        RequestError: naming the limit.
    """
    check_number(lines, limits)
    longest = max(lines, key=len, default="")
    if refused := limits.refused_line(len(longest)):
        raise RequestError(400, f"{longest[:QUOTED]!r}...: {refused}")


def check_number(lines: Sequence[str], limits: Limits) -> None:
    """Refuse too many lines, of any length.

    Raises:
        RequestError: naming the limit.
    """
    if len(lines) > limits.lines:
        raise RequestError(400, f"The request has {len(lines)} lines; at most {limits.lines} are taken.")


def check_cells(
    engine: Engine, sentences: Sequence[Sentence], options: TranslationOptions, limits: Limits
) -> list[Sentence]:
    """The sentences, if none needs more memory than is allowed.

    Raises:
        RequestError: if one does.
    """
    for sentence in sentences:
        if refused := limits.refused_cells(*engine.breadth(sentence.source_tokens, options)):
            raise RequestError(400, refused)
    return list(sentences)


def check_alignments(
    engine: Engine, sentences: Sequence[Sentence], options: TranslationOptions, limits: Limits
) -> None:
    """Refuse an answer with too many alignment weights, which would block all other requests while it is written.

    Raises:
        RequestError: naming the limit.
    """
    if not options.alignments:
        return
    breadths = [engine.breadth(each.source_tokens, options) for each in sentences]
    weights = options.num_best * sum(source * target for _, source, target in breadths)
    if weights > limits.alignment_weights:
        raise RequestError(
            400,
            f"The alignments of {len(sentences)} sentences may have {weights} weights; at most "
            f"{limits.alignment_weights} are returned. Send fewer at once, or ask for a stream of lines.",
        )


def check_alternatives(sentences: Sequence[Sentence], alternatives: int, limits: Limits) -> None:
    """Refuse scores with too many alternatives, which would block all other requests while they are written.

    Raises:
        RequestError: naming the limit.
    """
    pieces = alternatives * sum(each.target_tokens for each in sentences)
    if pieces > limits.score_alternatives:
        raise RequestError(
            400,
            f"The scores of {len(sentences)} sentences would have {pieces} alternative pieces; at most "
            f"{limits.score_alternatives} are returned. Send fewer at once, or ask for fewer alternatives.",
        )


async def to_sentences(
    engine: Engine, sources: Sequence[str], targets: Sequence[str] | None, limits: Limits, scored: bool = False
) -> list[Sentence]:
    """Sentences with their lengths.

    Args:
        engine: the engine, which counts tokens.
        sources: one sentence each.
        targets: a prefix or a translation for each; None: none.
        limits: the server's limits.
        scored: whether targets are scored, so that their lengths matter too.

    Raises:
        RequestError: if a sentence is too long, is not valid Unicode, or lists are not equally long.
    """
    _check_pairs(sources, targets)
    texts = [*sources, *(targets or ())]
    return await aside(texts, lambda: _sentences(engine, sources, targets or [""] * len(sources), limits, scored))


async def to_lines(
    engine: Engine, sources: Sequence[str], prefixes: Sequence[str] | None, limits: Limits, options: TranslationOptions
) -> list[list[Sentence]]:
    """The sentences of each line: one, unless the options split it.

    Raises:
        RequestError: if a line is refused, there are too many sentences, or lists are not equally long.
    """
    _check_pairs(sources, prefixes)
    given = prefixes or [""] * len(sources)

    def compute() -> list[list[Sentence]]:
        cut = [_cut(engine, *line, options.split) for line in zip(sources, given, strict=True)]
        check_sentences(cut, limits)
        parts = [part for line in cut for part in line]
        begun = [prefix for line, prefix in zip(cut, given, strict=True) for _ in line]
        found = check_cells(engine, _sentences(engine, parts, begun, limits), options, limits)
        check_alignments(engine, found, options, limits)
        remaining = iter(found)
        return [
            [replace(next(remaining), place=(number, part)) for part in range(len(line))]
            for number, line in enumerate(cut)
        ]

    return await aside([*sources, *given], compute)


async def to_lines_or_errors(
    engine: Engine, sources: Sequence[str], prefixes: Sequence[str] | None, limits: Limits, options: TranslationOptions
) -> list[list[Sentence] | RequestError]:
    """The sentences of each line as by `to_lines`, with an error in place of a refused line.

    Raises:
        RequestError: if there are too many sentences, or lists are not equally long.
    """
    _check_pairs(sources, prefixes)
    given = prefixes or [""] * len(sources)

    def admitted(source: str, prefix: str) -> list[Sentence] | RequestError:
        try:
            check_lines([source, prefix], limits)
            cut = _cut(engine, source, prefix, options.split)
            found = check_cells(engine, _sentences(engine, cut, [prefix] * len(cut), limits), options, limits)
            check_alignments(engine, found, options, limits)
        except RequestError as error:
            return error
        return found

    def compute() -> list[list[Sentence] | RequestError]:
        lines = list(map(admitted, sources, given))
        check_sentences([line for line in lines if isinstance(line, list)], limits)
        numbers = count()
        return [
            line
            if isinstance(line, RequestError)
            else [replace(each, number=next(numbers), place=(place, part)) for part, each in enumerate(line)]
            for place, line in enumerate(lines)
        ]

    return await aside([*sources, *given], compute)


def _cut(engine: Engine, source: str, prefix: str, split: Split) -> list[str]:
    """The parts of a line that are translated separately."""
    found = engine.sentences(source, split)
    if len(found) > 1 and not is_blank(prefix):
        raise RequestError(
            400, f"{source[:QUOTED]!r} has several sentences, which cannot share a prefix. Send each by itself."
        )
    return found


def check_sentences(parts: Sequence[Sequence[object]], limits: Limits) -> None:
    """Refuse too many sentences in all lines or documents, given by the sentences of each.

    Raises:
        RequestError: naming the limit.
    """
    if (number := sum(map(len, parts))) > limits.lines:
        raise RequestError(400, f"The request has {number} sentences; at most {limits.lines} are taken.")


def _check_pairs(sources: Sequence[str], targets: Sequence[str] | None) -> None:
    if targets is not None and len(targets) != len(sources):
        raise RequestError(400, f"{len(sources)} texts, but {len(targets)} targets or prefixes: give one for each.")


def _sentences(
    engine: Engine, sources: Sequence[str], given: Sequence[str], limits: Limits, scored: bool = False
) -> list[Sentence]:
    for line, (source, target) in enumerate(zip(sources, given, strict=True), start=1):
        if scored and is_blank(source) and not is_blank(target):
            raise RequestError(400, f"line {line}: an empty line cannot have a target. Leave both empty.")
    try:
        source_tokens = engine.source_tokens(sources)
        target_tokens = engine.target_tokens(given) if any(given) else [1] * len(given)  # the end mark
    except DataError as error:
        raise RequestError(400, str(error)) from error
    counted = [*zip(source_tokens, sources, strict=True)]
    counted += zip(target_tokens, given, strict=True) if scored else ()
    tokens, longest = max(counted, default=(0, ""))
    if refused := limits.refused_sentence(tokens, engine.info.max_length):
        raise RequestError(400, f"{longest[:QUOTED]!r}...: {refused}")
    numbered = enumerate(zip(sources, given, source_tokens, target_tokens, strict=True))
    return [Sentence(number, *values, place=(number, 0)) for number, values in numbered]
