"""Contrastive evaluation: how often a model finds the correct translation more probable than wrong ones.

A tie counts as wrong: the reference must be strictly more probable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from jointnmt.evaluation.contrastive_breakdowns import Accuracy, Breakdown, item_breakdowns, pair_breakdowns
from jointnmt.evaluation.contrastive_scores import Rule, ScoredItem
from jointnmt.evaluation.contrastive_suites import Suite
from jointnmt.evaluation.sign_flips import sign_flip_p_value


@dataclass(frozen=True)
class SuiteResult:
    """The result of a model on a suite."""

    suite: Suite
    rule: Rule
    decisions: tuple[bool, ...]
    """Decisions on items or on pairs, True if right; see `Suite.by_item`."""
    items: tuple[int, ...]
    """The item of each decision, by its place in the suite."""
    pairs: Accuracy
    """The accuracy over all pairs of a reference and a contrast."""
    ties: int
    """Pairs with equal scores, which are wrong."""
    breakdowns: tuple[Breakdown, ...]

    @property
    def accuracy(self) -> Accuracy:
        """The accuracy of all decisions."""
        return Accuracy.of(self.decisions)

    @property
    def unit(self) -> Literal["item", "pair"]:
        """The unit of a decision."""
        return "item" if self.suite.by_item else "pair"

    def plain(self) -> dict[str, Any]:
        """The fields as JSON-compatible values."""
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
    """Evaluate the scored items of a suite.

    An item of ContraWSD or MuCoW is right if its reference beats all contrasts; in other suites every pair counts.
    """
    beaten = [each.beaten(rule) for each in scored]
    pairs = Accuracy.of(right for each in beaten for right in each)
    ties = sum(each.ties(rule) for each in scored)
    decided = [(all(each),) for each in beaten] if suite.by_item else beaten
    decisions, items = zip(*((right, item) for item, each in enumerate(decided) for right in each), strict=True)
    breakdowns = item_breakdowns(suite, scored, rule) if suite.by_item else pair_breakdowns(suite, scored, rule)
    return SuiteResult(suite, rule, decisions, items, pairs, ties, tuple(breakdowns))


@dataclass(frozen=True)
class PairedDifference:
    """Another model's decisions on the same items or pairs, against a first model's."""

    accuracy: Accuracy
    """The other model's accuracy."""
    lost: int
    """Decisions that only the first model has right."""
    gained: int
    """Decisions that only the other model has right."""
    p_value: float
    """Exact two-sided p-value by `sign_flip_p_value` over items, as pairs of one item share the reference's score."""

    @classmethod
    def of(cls, first: Sequence[bool], other: Sequence[bool], items: Sequence[int]) -> PairedDifference:
        """Compare two models' decisions on the same items, given in the same order."""
        changes: Counter[int] = Counter()
        for before, after, item in zip(first, other, items, strict=True):
            changes[item] += after - before
        decided = Counter(zip(first, other, strict=True))
        p_value = sign_flip_p_value(changes.values())
        return cls(Accuracy.of(other), decided[True, False], decided[False, True], p_value)

    def plain(self) -> dict[str, Any]:
        """The fields as JSON-compatible values."""
        return {**self.accuracy.plain(), "lost": self.lost, "gained": self.gained, "p_value": self.p_value}


@dataclass(frozen=True)
class PairedDifferences:
    """Another model's decisions, overall and in each group."""

    overall: PairedDifference
    breakdowns: Mapping[str, Mapping[str, PairedDifference]]
    """Differences by name of breakdown and group."""

    def plain(self) -> dict[str, Any]:
        """The fields as JSON-compatible values."""
        breakdowns = {
            name: {"groups": [{"group": group, **difference.plain()} for group, difference in groups.items()]}
            for name, groups in self.breakdowns.items()
        }
        return {**self.overall.plain(), "breakdowns": breakdowns}


def compare(first: SuiteResult, other: SuiteResult) -> PairedDifferences:
    """Compare another model's decisions with a first one's on the same items."""
    breakdowns = {
        ours.name: {
            group.name: PairedDifference.of(group.decisions, same.decisions, group.items)
            for group, same in zip(ours.groups, theirs.groups, strict=True)
        }
        for ours, theirs in zip(first.breakdowns, other.breakdowns, strict=True)
    }
    return PairedDifferences(PairedDifference.of(first.decisions, other.decisions, first.items), breakdowns)
