"""Which lines of a window can be translated, and why the others cannot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from jointnmt.errors import DataError
from jointnmt.search import SamplingConfig
from jointnmt.search.rules import check_prefix, target_limit
from jointnmt.text.special import unk_id
from jointnmt.translator.limits import Search, TextLimits
from jointnmt.translator.preprocessing import EncodedSentence, Line, Preprocessor

Admitted = list[EncodedSentence] | DataError


def bounded_lines(lines: Iterable[Line], limits: TextLimits) -> Iterator[Line]:
    """The lines; those with too many characters are replaced by an error, so that no window holds their text."""
    for line in lines:
        refused = limits.refused_line(max(len(line.source), len(line.target)))
        yield line._replace(source="", target="", error=DataError(f"{line.origin}: {refused}")) if refused else line


def beam_size(search: Search) -> int:
    """The beam size; 1 for sampling."""
    return 1 if isinstance(search, SamplingConfig) else search.beam_size


def num_rows(search: Search, num_best: int) -> int:
    """Hypotheses of a sentence that are extended at once."""
    return num_best if isinstance(search, SamplingConfig) else search.beam_size


def admit(
    window: Sequence[Line], preprocessor: Preprocessor, search: Search, rows: int, limits: TextLimits | None
) -> list[Admitted]:
    """The sentences of each line, or its error: not text, too long, or a prefix that cannot be used."""
    return [_checked(each, search, rows, limits) for each in preprocessor.encode_each(window)]


def _checked(sentences: Admitted, search: Search, rows: int, limits: TextLimits | None) -> Admitted:
    if isinstance(sentences, DataError):
        return sentences
    try:
        for sentence in sentences:
            _check(sentence, search, rows, limits)
    except DataError as error:
        return error
    return sentences


def check_prefix_fits(sentence: EncodedSentence, search: Search) -> None:
    """Refuse a sentence whose translation cannot begin with its prefix.

    Raises:
        DataError: if the prefix is too long, or holds a character or word that the model has no piece for.
    """
    check_prefix(sentence.target, target_limit(sentence.source_tokens, search), sentence.origin)
    if unk_id in sentence.target:
        raise DataError(
            f"{sentence.origin}: the target prefix holds a character or word that the model has no piece for. "
            "Change the prefix."
        )


def _check(sentence: EncodedSentence, search: Search, rows: int, limits: TextLimits | None) -> None:
    check_prefix_fits(sentence, search)
    if limits is None:
        return
    tokens, limit = sentence.source_tokens, target_limit(sentence.source_tokens, search)
    if refused := limits.refused_sentence(tokens) or limits.refused_cells(rows, tokens, limit):
        raise DataError(f"{sentence.origin}: {refused}")
