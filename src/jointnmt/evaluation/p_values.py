"""P-values as tables and figures show them."""

SIGNIFICANT = 0.05
"""Level below which p-values are starred."""

SMALLEST = 0.001
"""Smallest p-value that is written; smaller ones are written as `< 0.001`."""


def stated(p_value: float) -> str:
    """The p-value in a text, such as `p = 0.012` or `p < 0.001`."""
    return f"p {'<' if p_value < SMALLEST else '='} {max(p_value, SMALLEST):.3f}"


def star(p_value: float | None) -> str:
    """A star if the p-value is below `SIGNIFICANT`."""
    return "*" if p_value is not None and p_value < SIGNIFICANT else ""


def starred(p_value: float) -> str:
    """The p-value in a column of them, such as `0.012*` or `<0.001*`."""
    return f"{'<' if p_value < SMALLEST else ''}{max(p_value, SMALLEST):.3f}{star(p_value)}"
