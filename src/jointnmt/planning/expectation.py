"""Expected quality of translations for a corpus of a certain size, from measurements on the bundled corpus."""

from __future__ import annotations

import math
from itertools import pairwise

MEASURED: tuple[tuple[int, float], ...] = ((3_000, 14.1), (10_000, 23.4), (30_000, 32.8), (162_136, 48.0))
"""Numbers of training pairs, and BLEU of the Transformer on 2,000 unseen sentences of the same kind: everyday German to
English, recipes of `jointnmt init`. `docs/own-text.md` has command, seeds and hardware."""


OF_REFORMER_FAST = (
    "This holds for the Transformer: Reformer-fast scores lower with so little text, by 1.5 BLEU at 10,000 pairs"
)
OF_FINE_TUNING = (
    "more than without a trained model if there are few pairs, and text like that of the model (docs/little-text.md)"
)
LITTLE = 100_000
"""Pairs below which the note on Reformer-fast is added; with 162,136 pairs, the families are level."""


def expected_bleu(pairs: int) -> float:
    """BLEU on the bundled corpus with so many pairs: log-linear between measurements, proportional to pairs below."""
    if pairs <= MEASURED[0][0]:
        return MEASURED[0][1] * pairs / MEASURED[0][0]
    for (fewer, low), (more, high) in pairwise(MEASURED):
        if pairs <= more:
            return low + (high - low) * math.log(pairs / fewer) / math.log(more / fewer)
    return MEASURED[-1][1]


def expectation(pairs: int, family: str) -> str:
    """The expectation as a sentence."""
    last = MEASURED[-1]
    if pairs > last[0]:
        measured = f"above BLEU {last[1]:.0f}, reached on short everyday German-English sentences with {last[0]:,}"
    else:
        measured = (
            f"near BLEU {expected_bleu(pairs):.0f} if it is like the measured corpus, short everyday German-English "
            "sentences"
        )
    expectation = f"{pairs:,} pairs to learn from: {measured}; {_verdict(pairs)}"
    return f"{expectation}. {OF_REFORMER_FAST}" if family == "reformer-fast" and pairs < LITTLE else expectation


def _verdict(pairs: int) -> str:
    if pairs < 15_000:
        return "enough for gist at best, with many sentences wrong. Long or varied sentences score lower"
    if pairs < 60_000:
        return "simple sentences often right, rare words wrong. Long or varied sentences score lower"
    return "everyday sentences mostly right. Long or varied sentences score lower"
