"""The outcome of a comparison in words: significant differences, and metrics without one."""

from __future__ import annotations

from collections.abc import Sequence

from jointnmt.evaluation.p_values import SIGNIFICANT, stated
from jointnmt.evaluation.scores import TITLES
from jointnmt.evaluation.significance import FEWEST_COMPARED, Comparison

LOWER_IS_BETTER = frozenset({"ter", "nll"})


def verdict(comparisons: Sequence[Comparison]) -> str:
    """A sentence for each system but the first, which it is compared with."""
    if not comparisons:
        return "One system: there is nothing to compare it with."
    first, *others = (each.system for each in comparisons[0].systems)
    return " ".join(_of_system(first, comparisons, name) for name in others)


def _of_system(first: str, comparisons: Sequence[Comparison], name: str) -> str:
    different, alike = [], []
    for comparison in comparisons:
        if (found := comparison.of(name)) is None:
            continue
        if found.p_value is None:
            return f"{name} and {first}: fewer than {FEWEST_COMPARED} sentences are too few to compare."
        change = found.score - comparison.systems[0].score
        said = f"{TITLES[comparison.metric]} ({change:+.{comparison.decimals}f}, {stated(found.p_value)})"
        if found.p_value >= SIGNIFICANT:
            alike.append(said)
            continue
        better = (change > 0) != (comparison.metric in LOWER_IS_BETTER)
        different.append(f"{'better' if better else 'worse'} by {said}")
    if not different:
        return f"No significant difference between {name} and {first}: {listed(alike)}."
    rest = f"; no significant difference by {listed(alike)}" if alike else ""
    return f"{name} is significantly {listed(different)} than {first}{rest}."


def listed(parts: Sequence[str]) -> str:
    """Parts of a sentence, at least one, as `a, b and c`."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
