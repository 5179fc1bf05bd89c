"""Contrastive scoring: how often does a model find the right translation more probable than wrong ones?

A tie is wrong: the reference has to be strictly more probable.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, Literal

from jointnmt.evaluation.contrastive_suites import Contrast, SenseFrequency, Suite, SuiteItem

Rule = Literal["length-normalised", "summed"]

SENSE_EDGES = (20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
"""The last count of each bin of frequencies but the last bin, in ContraWSD."""
WORD_EDGES = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
"""The same in LingEval97. Its script puts 5 into two bins, 3 to 5 and 5 to 10, of which the first one gets it."""
DISTANCE_EDGES = tuple(range(16))
"""Each distance up to 15 is a bin of its own, in LingEval97."""


@dataclass(frozen=True)
class TargetScore:
    """How probable a model finds a translation."""

    log_probability: float
    """The sum of its tokens', natural logarithms."""
    tokens: int
    """Its tokens, the end mark included."""
    pieces: str = ""
    """What the model sees of it; translations with the same pieces are one and the same to the model."""

    def value(self, rule: Rule) -> float:
        """What is compared; higher is better."""
        return self.log_probability / max(self.tokens, 1) if rule == "length-normalised" else self.log_probability


@dataclass(frozen=True)
class ScoredItem:
    """An item with how probable the model finds its reference and each of its contrasts."""

    item: SuiteItem
    reference: TargetScore
    contrasts: tuple[TargetScore, ...]

    def beaten(self, rule: Rule) -> tuple[bool, ...]:
        """For each contrast, whether the reference is strictly more probable."""
        return tuple(self.reference.value(rule) > contrast.value(rule) for contrast in self.contrasts)

    def ties(self, rule: Rule) -> int:
        """How many contrasts are exactly as probable as the reference."""
        return sum(self.reference.value(rule) == contrast.value(rule) for contrast in self.contrasts)

    def plain(self, rule: Rule) -> dict[str, Any]:
        """As JSON-compatible values; both log-probability and number of tokens are there, so either rule follows."""
        item, beaten = self.item, self.beaten(rule)
        values: dict[str, Any] = {"item": item.number, "place": item.place}
        known = {"word": item.word, "sense": item.sense, "origin": item.origin}
        values |= {key: value for key, value in known.items() if value is not None}
        if item.frequency is not None:
            values |= {"sense_frequency": item.frequency.sense, "word_frequency": item.frequency.word}
        values |= {"source": item.source, "right": all(beaten)}
        values["reference"] = {"text": item.reference, **_plain_score(self.reference, rule)}
        values["contrasts"] = [
            {**_plain_contrast(contrast), **_plain_score(score, rule), "right": right}
            for contrast, score, right in zip(item.contrasts, self.contrasts, beaten, strict=True)
        ]
        return values


def _plain_score(score: TargetScore, rule: Rule) -> dict[str, Any]:
    return {"log_probability": score.log_probability, "tokens": score.tokens, "score": score.value(rule)}


def _plain_contrast(contrast: Contrast) -> dict[str, Any]:
    return {key: value for key, value in asdict(contrast).items() if value is not None}


def distinct_pairs(items: Iterable[SuiteItem]) -> list[tuple[str, str]]:
    """Every pair of a source and a translation once, in the order in which `scored_items` wants their scores."""
    return list(dict.fromkeys((item.source, text) for item in items for text in _texts(item)))


def scored_items(items: Iterable[SuiteItem], scores: Iterable[TargetScore]) -> Iterator[ScoredItem]:
    """The items with their scores, each as soon as these are there; `scores` are those of `distinct_pairs(items)`.

    Translations of a source that have the same pieces get the same score, that of the first of them: computed in
    batches of different shapes, theirs might differ in the last digits, which would decide what is a tie.
    """
    following = iter(scores)
    of_pair: dict[tuple[str, str], TargetScore] = {}
    of_pieces: dict[tuple[str, str], TargetScore] = {}
    for item in items:
        for text in _texts(item):
            if (item.source, text) not in of_pair:
                score = next(following)
                key = (item.source, score.pieces or text)
                of_pair[item.source, text] = of_pieces.setdefault(key, score)
        reference, *contrasts = (of_pair[item.source, text] for text in _texts(item))
        yield ScoredItem(item, reference, tuple(contrasts))


def _texts(item: SuiteItem) -> Iterator[str]:
    yield item.reference
    yield from (contrast.text for contrast in item.contrasts)


@dataclass(frozen=True)
class Accuracy:
    """How many decisions are right."""

    right: int
    total: int

    @property
    def value(self) -> float:
        """The share that is right, 0 to 1; 0 of none."""
        return self.right / self.total if self.total else 0.0

    @classmethod
    def of(cls, decisions: Iterable[bool]) -> Accuracy:
        """That of decisions."""
        counts = Counter(decisions)
        return cls(counts[True], counts.total())

    def plain(self) -> dict[str, Any]:
        """As JSON-compatible values."""
        return {"right": self.right, "total": self.total, "accuracy": self.value}


@dataclass(frozen=True)
class Group:
    """The accuracy of the decisions that have something in common."""

    name: str
    decisions: tuple[bool, ...]
    """What is right, in the order of the items."""
    frequency: SenseFrequency | None = None
    """Of a class (an ambiguous word in one sense), if it is known; that of its last item, if they disagree."""

    @property
    def accuracy(self) -> Accuracy:
        """That of its decisions."""
        return Accuracy.of(self.decisions)

    def plain(self) -> dict[str, Any]:
        """As JSON-compatible values."""
        values = {"group": self.name, **self.accuracy.plain()}
        if self.frequency is not None:
            values |= {"frequency": self.frequency.sense, "relative_frequency": self.frequency.relative}
        return values


@dataclass(frozen=True)
class Breakdown:
    """Accuracies of the decisions in groups."""

    name: str
    groups: tuple[Group, ...]
    left_out: int
    """How many decisions belong to no group, since the suite does not tell."""

    def plain(self) -> dict[str, Any]:
        """As JSON-compatible values."""
        return {"groups": [group.plain() for group in self.groups], "left_out": self.left_out}


@dataclass(frozen=True)
class SuiteResult:
    """What a suite says of a model."""

    suite: Suite
    rule: Rule
    decisions: tuple[bool, ...]
    """Of items or of pairs, as the suite has it; see `Suite.by_item`."""
    pairs: Accuracy
    """Of all pairs of a reference and a contrast."""
    ties: int
    """Pairs in which both are exactly as probable: these are wrong."""
    breakdowns: tuple[Breakdown, ...]

    @property
    def accuracy(self) -> Accuracy:
        """That of all decisions."""
        return Accuracy.of(self.decisions)

    @property
    def unit(self) -> Literal["item", "pair"]:
        """What is right or wrong."""
        return "item" if self.suite.by_item else "pair"

    def plain(self) -> dict[str, Any]:
        """As JSON-compatible values."""
        return {
            "suite": self.suite.name,
            "kind": self.suite.kind,
            "scoring": self.rule,
            "unit": self.unit,
            **self.accuracy.plain(),
            "pairs": self.pairs.plain(),
            "ties": self.ties,
            "frequency_corpus": self.suite.frequency_corpus,
            "breakdowns": {breakdown.name: breakdown.plain() for breakdown in self.breakdowns},
        }


def judge_suite(suite: Suite, scored: Sequence[ScoredItem], rule: Rule) -> SuiteResult:
    """Accuracies of the items of `suite` that have been scored.

    An item of ContraWSD or MuCoW is right if its reference beats all contrasts; elsewhere every pair counts for itself.
    """
    pairs = [right for each in scored for right in each.beaten(rule)]
    ties = sum(each.ties(rule) for each in scored)
    decisions = [all(each.beaten(rule)) for each in scored] if suite.by_item else pairs
    breakdowns = _item_breakdowns(suite, scored, rule) if suite.by_item else _pair_breakdowns(suite, scored, rule)
    return SuiteResult(suite, rule, tuple(decisions), Accuracy.of(pairs), ties, tuple(breakdowns))


@dataclass(frozen=True)
class PairedDifference:
    """How another model decides the same items or pairs."""

    accuracy: Accuracy
    """Of the other model."""
    lost: int
    """Decisions that are right by the first model alone."""
    gained: int
    """Decisions that are right by the other model alone."""

    @classmethod
    def of(cls, first: Sequence[bool], other: Sequence[bool]) -> PairedDifference:
        """That of two models' decisions, in the same order."""
        decided = Counter(zip(first, other, strict=True))
        return cls(Accuracy.of(other), decided[True, False], decided[False, True])

    @property
    def p_value(self) -> float:
        """Of a split as uneven by chance, if neither model were better: exact, of both sides (McNemar 1947)."""
        count, ways, total = self.lost + self.gained, 1, 0
        for k in range(min(self.lost, self.gained) + 1):
            total += ways
            ways = ways * (count - k) // (k + 1)
        return min(1.0, 2 * total / 2**count)

    def plain(self) -> dict[str, Any]:
        """As JSON-compatible values."""
        return {**self.accuracy.plain(), "lost": self.lost, "gained": self.gained, "p_value": self.p_value}


@dataclass(frozen=True)
class PairedDifferences:
    """How another model decides, overall and in each group."""

    overall: PairedDifference
    breakdowns: Mapping[str, Mapping[str, PairedDifference]]
    """By the names of break-down and group."""

    def plain(self) -> dict[str, Any]:
        """As JSON-compatible values."""
        breakdowns = {
            name: {"groups": [{"group": group, **difference.plain()} for group, difference in groups.items()]}
            for name, groups in self.breakdowns.items()
        }
        return {**self.overall.plain(), "breakdowns": breakdowns}


def compare(first: SuiteResult, other: SuiteResult) -> PairedDifferences:
    """Set a model's decisions beside those of a first one on the same items."""
    breakdowns = {
        ours.name: {
            group.name: PairedDifference.of(group.decisions, same.decisions)
            for group, same in zip(ours.groups, theirs.groups, strict=True)
        }
        for ours, theirs in zip(first.breakdowns, other.breakdowns, strict=True)
    }
    return PairedDifferences(PairedDifference.of(first.decisions, other.decisions), breakdowns)


@dataclass
class _Groups:
    """Decisions sorted into groups."""

    name: str
    labels: Sequence[str] = ()
    """The order of the groups, where it is not that of their names."""
    decisions: dict[str, list[bool]] = field(default_factory=dict)
    left_out: int = 0

    def add(self, label: str | None, right: bool) -> None:
        """Put a decision into a group; None: it belongs to none."""
        if label is None:
            self.left_out += 1
        else:
            self.decisions.setdefault(label, []).append(right)

    def finished(self, frequencies: Mapping[str, SenseFrequency] | None = None) -> Breakdown:
        """The accuracies of the groups that are not empty."""
        labels = [each for each in self.labels if each in self.decisions] or sorted(self.decisions)
        known = frequencies or {}
        groups = (Group(label, tuple(self.decisions[label]), known.get(label)) for label in labels)
        return Breakdown(self.name, tuple(groups), self.left_out)


def _item_breakdowns(suite: Suite, scored: Sequence[ScoredItem], rule: Rule) -> Iterator[Breakdown]:
    """By class (ambiguous word and sense), by type, and by frequency of the sense (ContraWSD) or by origin (MuCoW)."""
    label, labels = _bins(SENSE_EDGES)
    classes, types = _Groups("class"), _Groups("type")
    bins, origins = _Groups("frequency", labels), _Groups("origin")
    frequencies: dict[str, SenseFrequency] = {}
    for each in scored:
        item, beaten = each.item, each.beaten(rule)
        name = f"{item.word}:{item.sense}"
        classes.add(name, all(beaten))
        if item.frequency is not None:
            frequencies[name] = item.frequency
        bins.add(None if item.frequency is None else label(item.frequency.sense), all(beaten))
        origins.add(item.origin, all(beaten))
        for kind, right in _by_type(item.contrasts, beaten).items():
            types.add(kind, right)
    yield classes.finished(frequencies)
    yield (bins if suite.kind == "contrawsd" else origins).finished()
    yield types.finished()


def _by_type(contrasts: Sequence[Contrast], beaten: Sequence[bool]) -> dict[str | None, bool]:
    """For each type of contrast that an item has, whether the reference beats all its contrasts of that type."""
    found: dict[str | None, bool] = {}
    for contrast, right in zip(contrasts, beaten, strict=True):
        found[contrast.type] = found.get(contrast.type, True) and right
    return found


def _pair_breakdowns(suite: Suite, scored: Sequence[ScoredItem], rule: Rule) -> Iterator[Breakdown]:
    """By type; and by distance and frequency, if the suite is LingEval97's."""
    by_distance, distances = _bins(DISTANCE_EDGES)
    by_frequency, frequencies = _bins(WORD_EDGES)
    types, far, often = _Groups("type"), _Groups("distance", distances), _Groups("frequency", frequencies)
    for each in scored:
        for contrast, right in zip(each.item.contrasts, each.beaten(rule), strict=True):
            types.add(contrast.type, right)
            far.add(None if contrast.distance is None else by_distance(contrast.distance), right)
            often.add(None if contrast.frequency is None else by_frequency(contrast.frequency), right)
    yield types.finished()
    if suite.kind == "lingeval97":
        yield far.finished()
        yield often.finished()


def _bins(edges: Sequence[int]) -> tuple[Callable[[int], str], list[str]]:
    """What names the bin of a count, and all the names; `edges` are the last counts of all bins but the last one."""
    spans = [(0, edges[0]), *((low + 1, high) for low, high in pairwise(edges))]
    names = [str(low) if low == high else f"{low}-{high}" for low, high in spans] + [f">{edges[-1]}"]
    return lambda count: names[bisect_left(edges, count)], names
