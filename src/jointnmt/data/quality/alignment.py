"""Blocks of text whose lines are shifted against each other, found by what a sentence and its translation share.

They are of about the same length (Gale and Church 1993), and where one has a certain frequent word, the other often has
another one. Which words go together is learnt from the text itself, by a linear regression, as most of its lines are in
place. Where one line is missing on one side, prediction and text stop correlating, and correlate again with the lines
of the other side moved by one. Lengths alone would not do in a corpus that is sorted by length.
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
"""Frequent words of either side that are looked at: as many as an integer has bits."""

MOST_SHIFT = 5
SHIFTS = tuple(shift for shift in range(-MOST_SHIFT, MOST_SHIFT + 1) if shift)

MOST_BLOCKS = 200
"""Of a text."""

FEWEST_LINES = 200
"""Of a text in which words that go together can be learnt."""

LEAST_GAIN = 18.0
"""What a shift has to gain over the lines of a block, in mean absolute differences of a line. A block of 50 lines gains
19 or more, one of 100 lines 30 or more. On the bundled corpus nothing gains more than 13, neither as it lies there,
sorted by length, nor in a random order."""

LEAST_CORRELATION = 0.2
"""Of a text in which blocks can be told: with less, its lines do not belong together at all."""

RIDGE = 0.01

_TOKENS = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]|\w+|[^\w\s]")
"""Words and marks; characters, in scripts without spaces."""


class ShiftedBlock(NamedTuple):
    """Lines whose translations stand some lines away."""

    begin: int
    """First line, from 0."""
    end: int
    """Last line and one."""
    shift: int
    """The translation of line i stands in line i + shift of the other side."""


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
        """A bit for each of the words: whether it is there."""
        bits, found = self.bits, 0
        for token in _TOKENS.findall(text.casefold()):
            found |= bits.get(token, 0)
        return found


def features(signatures: Sequence[int] | npt.NDArray[np.uint64], lengths: npt.NDArray[np.integer[Any]]) -> Floats:
    """`[lines, 1 + NUM_WORDS]`: the logarithm of each line's length in characters, and which words it has."""
    words = np.asarray(signatures, np.uint64)[:, None] >> np.arange(NUM_WORDS, dtype=np.uint64) & np.uint64(1)
    return np.concatenate([np.log1p(np.asarray(lengths, np.float32))[:, None], words.astype(np.float32)], axis=1)


def shifted_blocks(source: Floats, target: Floats) -> tuple[list[ShiftedBlock], float]:
    """Blocks of lines that are shifted against each other, in order, and the correlation in the whole text.

    Args:
        source: `[lines, 1 + NUM_WORDS]`, as `features` gives them.
        target: likewise.
    """
    if len(source) < FEWEST_LINES:
        return [], math.nan
    x, y = _scaled(source), _scaled(target)
    # Most lines may be shifted: what goes together is learnt where the text fits best.
    tried = [_learnt(x, _moved(y, shift)) for shift in (0, *SHIFTS)]
    predictor, weights, overall = max(tried, key=lambda learnt: learnt[2])
    if overall < LEAST_CORRELATION:
        return [], overall
    return _blocks(x @ predictor, y * weights), overall


def _learnt(x: Floats, y: Floats) -> tuple[Floats, Floats, float]:
    """What predicts the target's features from the source's, their weights, and the correlation of both.

    A feature weighs as much as it can be predicted: most of the words of one side say nothing of the other's.
    """
    learn, test = slice(0, None, 2), slice(1, None, 2)  # or chance would count as correlation
    gram = x[learn].T @ x[learn] + RIDGE * len(x) * np.eye(x.shape[1], dtype=x.dtype)
    predictor = np.linalg.solve(gram, x[learn].T @ y[learn])
    deviation = np.maximum((x @ predictor).std(axis=0), 1e-6)
    weights = np.maximum(0, ((x @ predictor)[learn] / deviation * y[learn]).mean(axis=0))
    a, b = (x @ predictor)[test] / deviation * weights, y[test] * weights
    overall = float((a * b).sum() / max(1e-9, math.sqrt(float((a * a).sum()) * float((b * b).sum()))))
    return predictor / deviation * weights, weights, overall


def _scaled(values: Floats) -> Floats:
    """Features with mean 0 and deviation 1; what never differs is 0."""
    deviation = values.std(axis=0)
    scaled: Floats = (values - values.mean(axis=0)) / np.where(deviation > 1e-6, deviation, np.inf)
    return scaled


def _blocks(x: Floats, y: Floats) -> list[ShiftedBlock]:
    """The blocks of a text, by what its source predicts and its target has.

    Each line is given the shift of the stretch that gains most, over what the stretches before have given it.
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
    """The largest sum of successive gains, its first index and its last and one."""
    total = np.concatenate([[0.0], np.cumsum(np.clip(gains, -3, 3), dtype=float)])
    last = int((total - np.minimum.accumulate(total)).argmax())
    first = int(total[: last + 1].argmin())
    return float(total[last] - total[first]), first, last


def _moved(y: Floats, shift: int) -> Floats:
    """Row i is row i + shift of y; beyond the ends, the mean, which is 0."""
    if not shift:
        return y
    moved = np.zeros_like(y)
    if shift > 0:
        moved[:-shift] = y[shift:]
    else:
        moved[-shift:] = y[:shift]
    return moved
