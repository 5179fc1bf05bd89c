"""The first line of a report: significant differences with their direction, and systems without one."""

from __future__ import annotations

import pytest

from jointnmt.evaluation.significance import BootstrapResult, Comparison
from jointnmt.report.verdict import verdict


def compared(metric: str, *values: tuple[float, float | None]) -> Comparison:
    """Scores and p-values of systems a, b, ..."""
    systems = (BootstrapResult(name, score, score, 1.0, p) for name, (score, p) in zip("abc", values, strict=False))
    return Comparison(metric, tuple(systems), "signature")


BASE = (30.0, None)


@pytest.mark.parametrize(
    ("comparisons", "said"),
    [
        ([], "One system: there is nothing to compare it with."),
        (
            [
                compared("bleu", BASE, (32.0, 0.01)),
                compared("ter", BASE, (33.0, 0.03)),
                compared("chrf", BASE, (31, 0.3)),
            ],
            "b is significantly better by BLEU (+2.00, p = 0.010) and worse by TER (+3.00, p = 0.030) than a; "
            "no significant difference by chrF2 (+1.00, p = 0.300).",
        ),
        (
            [compared("bleu", BASE, (29.0, 0.05)), compared("ter", BASE, (28.0, 0.2))],
            "No significant difference between b and a: BLEU (-1.00, p = 0.050) and TER (-2.00, p = 0.200).",
        ),
        ([compared("ter", BASE, (28.0, 0.001))], "b is significantly better by TER (-2.00, p = 0.001) than a."),
        ([compared("ter", BASE, (28.0, 0.0004))], "b is significantly better by TER (-2.00, p < 0.001) than a."),
        (
            [compared("bleu", BASE, (30.5, 0.3)), compared("nll", (1.25, None), (1.237, 0.02))],
            "b is significantly better by nll (-0.013, p = 0.020) than a; "
            "no significant difference by BLEU (+0.50, p = 0.300).",
        ),
        (
            [compared("bleu", BASE, (31.0, 0.01)), compared("nll", (1.25, None))],
            "b is significantly better by BLEU (+1.00, p = 0.010) than a.",
        ),
        ([compared("bleu", BASE, (20.0, None))], "b and a: fewer than 10 sentences are too few to compare."),
        (
            [compared("bleu", BASE, (31.0, 0.01), (29.0, 0.5))],
            "b is significantly better by BLEU (+1.00, p = 0.010) than a. "
            "No significant difference between c and a: BLEU (-1.00, p = 0.500).",
        ),
    ],
)
def test_the_verdict(comparisons: list[Comparison], said: str) -> None:
    assert verdict(comparisons) == said
