"""Accuracies of contrastive decisions, overall and in groups: by class, type, frequency, distance, origin."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from jointnmt.evaluation.contrastive_scores import Rule, ScoredItem
from jointnmt.evaluation.contrastive_suites import Contrast, SenseFrequency, Suite

SENSE_EDGES = (20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
"""Upper bounds of ContraWSD's frequency bins, without the last."""
WORD_EDGES = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
"""Upper bounds of LingEval97's frequency bins; its script names the bins 3 to 5 and 5 to 10, and 5 is in the first."""
DISTANCE_EDGES = tuple(range(16))
"""Upper bounds of LingEval97's distance bins, one for each distance up to 15."""


@dataclass(frozen=True)
class Accuracy:
    """Number of right decisions, and of all."""

    right: int
    total: int

    @property
    def value(self) -> float:
        """The share of right decisions, 0 to 1; 0 without decisions."""
        return self.right / self.total if self.total else 0.0

    @classmethod
    def of(cls, decisions: Iterable[bool]) -> Accuracy:
        """The accuracy of decisions."""
        counts = Counter(decisions)
        return cls(counts[True], counts.total())

    def plain(self) -> dict[str, Any]:
        """The fields as JSON-compatible values."""
        return {"right": self.right, "total": self.total, "accuracy": self.value}


@dataclass(frozen=True)
class Group:
    """The decisions of one group."""

    name: str
    decisions: tuple[bool, ...]
    """Decisions in the order of the items, True if right."""
    items: tuple[int, ...]
    """The item of each decision, by its place in the suite."""
    frequency: SenseFrequency | None = None
    """Frequency of a class (an ambiguous word in one sense), if known; if its items disagree, the last one's."""

    @property
    def accuracy(self) -> Accuracy:
        """The accuracy of its decisions."""
        return Accuracy.of(self.decisions)

    def plain(self) -> dict[str, Any]:
        """The fields as JSON-compatible values."""
        values = {"group": self.name, **self.accuracy.plain()}
        if self.frequency is not None:
            values |= {"frequency": self.frequency.sense, "relative_frequency": self.frequency.relative}
        return values


@dataclass(frozen=True)
class Breakdown:
    """Decisions by groups."""

    name: str
    groups: tuple[Group, ...]
    left_out: int
    """Number of decisions without a group, because the suite does not give it."""

    def plain(self) -> dict[str, Any]:
        """The fields as JSON-compatible values."""
        return {"groups": [group.plain() for group in self.groups], "left_out": self.left_out}


@dataclass
class _Groups:
    """Collects decisions by group."""

    name: str
    labels: Sequence[str] = ()
    """The order of the groups; empty: by name."""
    decisions: dict[str, list[tuple[bool, int]]] = field(default_factory=dict)
    left_out: int = 0

    def add(self, label: str | None, right: bool, item: int) -> None:
        """Add a decision on an item to a group; None: no group."""
        if label is None:
            self.left_out += 1
        else:
            self.decisions.setdefault(label, []).append((right, item))

    def finished(self, frequencies: Mapping[str, SenseFrequency] | None = None) -> Breakdown:
        """The groups that are not empty."""
        labels = [each for each in self.labels if each in self.decisions] or sorted(self.decisions)
        known = frequencies or {}
        groups = []
        for label in labels:
            decisions, items = zip(*self.decisions[label], strict=True)
            groups.append(Group(label, decisions, items, known.get(label)))
        return Breakdown(self.name, tuple(groups), self.left_out)


def item_breakdowns(suite: Suite, scored: Sequence[ScoredItem], rule: Rule) -> Iterator[Breakdown]:
    """Breakdowns by class (word and sense), type, and frequency of the sense (ContraWSD) or origin (MuCoW)."""
    label, labels = bins(SENSE_EDGES)
    classes, types = _Groups("class"), _Groups("type")
    by_sense, origins = _Groups("frequency", labels), _Groups("origin")
    frequencies: dict[str, SenseFrequency] = {}
    for number, each in enumerate(scored):
        item, beaten = each.item, each.beaten(rule)
        name = f"{item.word}:{item.sense}"
        classes.add(name, all(beaten), number)
        if item.frequency is not None:
            frequencies[name] = item.frequency
        by_sense.add(None if item.frequency is None else label(item.frequency.sense), all(beaten), number)
        origins.add(item.origin, all(beaten), number)
        for kind, right in _by_type(item.contrasts, beaten).items():
            types.add(kind, right, number)
    yield classes.finished(frequencies)
    yield (by_sense if suite.kind == "contrawsd" else origins).finished()
    yield types.finished()


def _by_type(contrasts: Sequence[Contrast], beaten: Sequence[bool]) -> dict[str | None, bool]:
    """For each type of contrast of an item, whether the reference beats all contrasts of that type."""
    found: dict[str | None, bool] = {}
    for contrast, right in zip(contrasts, beaten, strict=True):
        found[contrast.type] = found.get(contrast.type, True) and right
    return found


def pair_breakdowns(suite: Suite, scored: Sequence[ScoredItem], rule: Rule) -> Iterator[Breakdown]:
    """Breakdowns by type and, for LingEval97, by distance and frequency."""
    by_distance, distances = bins(DISTANCE_EDGES)
    by_frequency, frequencies = bins(WORD_EDGES)
    types, far, often = _Groups("type"), _Groups("distance", distances), _Groups("frequency", frequencies)
    for number, each in enumerate(scored):
        for contrast, right in zip(each.item.contrasts, each.beaten(rule), strict=True):
            types.add(contrast.type, right, number)
            far.add(None if contrast.distance is None else by_distance(contrast.distance), right, number)
            often.add(None if contrast.frequency is None else by_frequency(contrast.frequency), right, number)
    yield types.finished()
    if suite.kind == "lingeval97":
        yield far.finished()
        yield often.finished()


def bins(edges: Sequence[int]) -> tuple[Callable[[int], str], list[str]]:
    """A function from counts to names of bins, and all names; `edges` are the upper bounds without the last."""
    spans = [(0, edges[0]), *((low + 1, high) for low, high in pairwise(edges))]
    names = [str(low) if low == high else f"{low}-{high}" for low, high in spans] + [f">{edges[-1]}"]
    return lambda count: names[bisect_left(edges, count)], names
