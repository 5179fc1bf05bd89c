"""Blocks of text whose lines are shifted against each other, found by what a sentence and its translation share.

Both have about the same length (Gale and Church 1993), and a certain frequent word in one often comes with a certain
word in the other. These pairs of words are learnt from the text itself by linear regression, as most of its lines are
aligned. After a line that is missing on one side, prediction and text stop correlating, and correlate again with the
lines of the other side moved by one. Lengths alone would not suffice in a corpus that is sorted by length.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]

NUM_WORDS = 64
"""Number of frequent words of either side that are used: one for each bit of an integer."""

MOST_SHIFT = 5
SHIFTS = tuple(shift for shift in range(-MOST_SHIFT, MOST_SHIFT + 1) if shift)

MOST_BLOCKS = 200
"""Most shifted blocks of a text."""

FEWEST_LINES = 200
"""Fewest lines of a text from which corresponding words can be learnt."""

LEAST_GAIN = 18.0
"""Least gain of a shift over the lines of a block, in mean absolute differences of a line. A block of 50 lines gains
19 or more, one of 100 lines 30 or more. On the bundled corpus no shift gains more than 13, neither in its own order,
sorted by length, nor in a random order."""

LEAST_CORRELATION = 0.2
"""Least correlation of a text in which blocks can be found: with less, its lines do not correspond at all."""

RIDGE = 0.01

_TOKENS = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]|\w+|[^\w\s]")
"""Words and marks; characters, in scripts without spaces."""


class ShiftedBlock(NamedTuple):
    """Lines whose translations are some lines away."""

    begin: int
    """First line, from 0."""
    end: int
    """One after the last line."""
    shift: int
    """Offset of the translations: that of line i is line i + shift of the other side."""


class FrequentWords:
    """The most frequent words of one side, and which of them a sentence has."""

    def __init__(self, counts: Counter[str]) -> None:
        self.bits = {word: 1 << number for number, (word, _) in enumerate(counts.most_common(NUM_WORDS))}

    @classmethod
    def of(cls, texts: Iterable[str]) -> FrequentWords:
        """Count the words of a text."""
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(set(_TOKENS.findall(text.casefold())))
        return cls(counts)

    def signature(self, text: str) -> int:
        """Bits of the frequent words that occur in the text."""
        bits, found = self.bits, 0
        for token in _TOKENS.findall(text.casefold()):
            found |= bits.get(token, 0)
        return found


def features(signatures: Sequence[int] | npt.NDArray[np.uint64], lengths: npt.NDArray[np.integer[Any]]) -> Floats:
    """Features of lines, `[lines, 1 + NUM_WORDS]`: logarithm of the length in characters, and the words that occur."""
    words = np.asarray(signatures, np.uint64)[:, None] >> np.arange(NUM_WORDS, dtype=np.uint64) & np.uint64(1)
    return np.concatenate([np.log1p(np.asarray(lengths, np.float32))[:, None], words.astype(np.float32)], axis=1)


def shifted_blocks(source: Floats, target: Floats) -> tuple[list[ShiftedBlock], float]:
    """Blocks of lines that are shifted against each other, in order, and the correlation in the whole text.

    Args:
        source: features of the source lines, `[lines, 1 + NUM_WORDS]`, from `features`.
        target: features of the target lines, `[lines, 1 + NUM_WORDS]`.
    """
    if len(source) < FEWEST_LINES:
        return [], math.nan
    x, y = _scaled(source), _scaled(target)
    # Most lines may be shifted, so the regression is learnt at the shift that fits best.
    tried = [_learnt(x, _moved(y, shift)) for shift in (0, *SHIFTS)]
    predictor, weights, overall = max(tried, key=lambda learnt: learnt[2])
    if overall < LEAST_CORRELATION:
        return [], overall
    return _blocks(x @ predictor, y * weights), overall


def _learnt(x: Floats, y: Floats) -> tuple[Floats, Floats, float]:
    """Scaled prediction from the source and scaled target features, both weighted, and their correlation.

    A feature is weighted by how well it can be predicted, as most words of one side say nothing about the other.
    """
    learn, test = slice(0, None, 2), slice(1, None, 2)  # otherwise chance would count as correlation
    gram = x[learn].T @ x[learn] + RIDGE * len(x) * np.eye(x.shape[1], dtype=x.dtype)
    predictor = np.linalg.solve(gram, x[learn].T @ y[learn])
    deviation = np.maximum((x @ predictor).std(axis=0), 1e-6)
    weights = np.maximum(0, ((x @ predictor)[learn] / deviation * y[learn]).mean(axis=0))
    a, b = (x @ predictor)[test] / deviation * weights, y[test] * weights
    overall = float((a * b).sum() / max(1e-9, math.sqrt(float((a * a).sum()) * float((b * b).sum()))))
    return predictor / deviation * weights, weights, overall


def _scaled(values: Floats) -> Floats:
    """Features with mean 0 and deviation 1; constant ones are 0."""
    deviation = values.std(axis=0)
    return (values - values.mean(axis=0)) / np.where(deviation > 1e-6, deviation, np.inf)


def _blocks(x: Floats, y: Floats) -> list[ShiftedBlock]:
    """The shifted blocks of a text, by the features that its source predicts and those of its target.

    Repeatedly, the stretch that gains most over the shifts assigned so far gets its shift.
    """
    score = (x * y).sum(axis=1)
    moved = {shift: (x * _moved(y, shift)).sum(axis=1) for shift in SHIFTS}
    size = float(np.mean([np.abs(each - score).mean() for each in moved.values()])) + 1e-9
    shifts = np.zeros(len(x), int)
    for _ in range(MOST_BLOCKS):
        gain, first, last, shift = max((*_best_stretch((moved[shift] - score) / size), shift) for shift in SHIFTS)
        if gain <= LEAST_GAIN:
            break
        shifts[first:last], score[first:last] = shift, moved[shift][first:last]
    bounds = np.flatnonzero(np.diff(shifts, prepend=0, append=0)).tolist()
    runs = [(first, last, int(shifts[first])) for first, last in pairwise(bounds) if shifts[first]]
    return [ShiftedBlock(*run) for run in runs]


def _best_stretch(gains: Floats) -> tuple[float, int, int]:
    """The largest sum of successive gains, its first index, and one after its last."""
    total = np.concatenate([[0.0], np.cumsum(np.clip(gains, -3, 3), dtype=float)])
    last = int((total - np.minimum.accumulate(total)).argmax())
    first = int(total[: last + 1].argmin())
    return float(total[last] - total[first]), first, last


def _moved(y: Floats, shift: int) -> Floats:
    """Features with row i + shift of y in row i; 0, which is the mean, beyond the ends."""
    if not shift:
        return y
    moved = np.zeros_like(y)
    if shift > 0:
        moved[:-shift] = y[shift:]
    else:
        moved[-shift:] = y[:shift]
    return moved
