"""p-value and interval of a score or a difference of scores from resampled texts, over sentences alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]


ROUNDING = 1e-9
"""Relative difference of two numbers that may be due to rounding; ties are frequent with few or alike sentences."""


def two_sided(difference: float, resampled: Numbers) -> float:
    """The two-sided p-value of a difference, given the difference of each resampled text.

    The share of texts, the original one included, whose difference deviates from the observed one by at least its
    absolute value.
    """
    as_large = np.abs(resampled - difference) >= abs(difference) * (1 - ROUNDING)
    return float((1 + np.count_nonzero(as_large)) / (1 + len(resampled)))


def half_width(resampled: Numbers) -> float:
    """Half the width of the interval that holds 95% of the resampled values, as sacrebleu draws its bounds."""
    ordered, outside = np.sort(resampled), len(resampled) // 40
    return float(ordered[len(ordered) - outside - 1] - ordered[outside]) / 2
