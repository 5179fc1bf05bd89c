"""Sample translations of several systems side by side, with marked differences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby

from jointnmt.extras import extra
from jointnmt.testset.eval_set import EvalSet
from jointnmt.testset.outputs import RunOutputs, ignores_case
from jointnmt.text.languages import has_spaces, num_words

with extra("report"):
    from sacrebleu.metrics.chrf import CHRF

SAMPLES_PER_KIND = 6
"""Number of evenly spread lines, and of lines on which systems differ."""

PICTURED, MOST_WORDS = 2, 12
"""Number of sentences whose attention is drawn, and most words of such a sentence."""

GAP = "[…]"
"""Marks words that a translation leaves out."""


@dataclass(frozen=True)
class Span:
    """Consecutive words of a translation with the same marks, or a gap."""

    text: str
    missing: bool
    """Whether the words differ from the reference, or words of the reference are left out here."""
    different: bool
    """Whether they differ from the first system's translation in the same sense."""


@dataclass(frozen=True)
class SampleTranslation:
    """One system's translation of a sample."""

    system: str
    spans: Sequence[Span]
    chrf: float
    """Sentence chrF against the reference."""


@dataclass(frozen=True)
class Sample:
    """A sentence and its translations."""

    number: int
    """Line number, from 1."""
    source: str
    reference: str
    renderings: Sequence[SampleTranslation]


def spread_lines(count: int) -> list[int]:
    """Line numbers, from 0, evenly spread, so that they are chosen independently of the translations."""
    return sorted({(2 * i + 1) * count // (2 * SAMPLES_PER_KIND) for i in range(SAMPLES_PER_KIND)})


def attention_lines(eval_set: EvalSet, language: str) -> list[int]:
    """The first two evenly spread lines that are short enough for a picture, else the shortest of them.

    `language` is that of the sources; words are counted by `num_words`.
    """
    sources = {line: eval_set.sources[line] for line in spread_lines(len(eval_set.sources))}
    lengths = {line: num_words(text, language) for line, text in sources.items()}
    short = [line for line, length in lengths.items() if 0 < length <= MOST_WORDS]
    long = sorted((line for line in lengths if lengths[line] > MOST_WORDS), key=lambda line: lengths[line])
    return sorted([*short, *long][:PICTURED])


def different_lines(runs: Sequence[RunOutputs], eval_set: EvalSet, wanted: int) -> list[int]:
    """Line numbers, from 0, on which the systems' chrF differs most; none if they do not differ."""
    metric = CHRF(lowercase=ignores_case(runs))
    ranges = []
    for number, reference in enumerate(eval_set.references):
        scores = {metric.sentence_score(text, [reference]).score for text in {run.translations[number] for run in runs}}
        ranges.append(max(scores) - min(scores))
    best = sorted(range(len(ranges)), key=lambda number: -ranges[number])[:wanted]
    return [number for number in best if ranges[number] > 0]


def sample(runs: Sequence[RunOutputs], eval_set: EvalSet, number: int) -> Sample:
    """The sentence of a line, counted from 0, with every system's translation."""
    ignored = ignores_case(runs)
    metric, language = CHRF(lowercase=ignored), runs[0].languages[1]
    reference, first = eval_set.references[number], runs[0].translations[number]
    renderings = [
        SampleTranslation(
            run.name,
            [*_spans(run.translations[number], (reference, first), language, ignored)],
            metric.sentence_score(run.translations[number], [reference]).score,
        )
        for run in runs
    ]
    return Sample(number + 1, eval_set.sources[number], reference, renderings)


def _spans(text: str, others: tuple[str, str], language: str, ignores_case: bool) -> Iterator[Span]:
    """The text in spans, marked by their differences from the `others`: the reference and the first translation."""
    tokens = _tokens(text, language)
    words = [place for place, token in enumerate(tokens) if not token.isspace()]
    alike = str.lower if ignores_case else str
    compared = [_compare([alike(tokens[i]) for i in words], alike(other), language) for other in others]
    marks = {place: tuple(number in unmatched for unmatched, _ in compared) for number, place in enumerate(words)}
    gaps = {place: tuple(number in left_out for _, left_out in compared) for number, place in enumerate(words)}
    pieces = []
    for place, token in enumerate(tokens):
        if place not in marks:  # a space has the marks of the words around it, if these are equal
            around = marks.get(place - 1), marks.get(place + 1)
            marks[place] = around[0] if around[0] and around[0] == around[1] else (False, False)
        if any(gaps.get(place, ())):
            pieces.append((GAP, gaps[place]))
        pieces.append((token, marks[place]))
    if any(end := tuple(len(words) in left_out for _, left_out in compared)):
        pieces.append((GAP, end))
    for (is_gap, (missing, different)), some in groupby(pieces, lambda piece: (piece[0] == GAP, piece[1])):
        yield Span(GAP if is_gap else "".join(token for token, _ in some), missing, different)


def _compare(words: Sequence[str], other: str, language: str) -> tuple[set[int], set[int]]:
    """Indices of words that differ from the other text, and of words before which words of it are left out."""
    others = [token for token in _tokens(other, language) if not token.isspace()]
    unmatched, left_out = set(), set()
    for kind, _, _, start, end in SequenceMatcher(None, others, words, autojunk=False).get_opcodes():
        if kind == "delete":
            left_out.add(start)
        elif kind != "equal":
            unmatched |= {*range(start, end)}
    return unmatched, left_out


def _tokens(text: str, language: str) -> list[str]:
    """Words, punctuation and white space; single letters in languages without spaces."""
    word = r"\w+" if has_spaces(language) else r"\w"
    return re.findall(rf"\s+|{word}|[^\w\s]", text)
