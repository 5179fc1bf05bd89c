"""P-values as tables and figures show them."""

SIGNIFICANT = 0.05
"""p-values below it are starred."""


def starred(p_value: float) -> str:
    """The p-value as text, with a star if it is below `SIGNIFICANT`."""
    return f"{p_value:.3f}{'*' if p_value < SIGNIFICANT else ''}"
