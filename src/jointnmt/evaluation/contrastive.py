"""Contrastive evaluation: how often does a model find the right translation more probable than wrong ones?

A tie is wrong: the reference has to be strictly more probable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from jointnmt.evaluation.contrastive_breakdowns import Accuracy, Breakdown, item_breakdowns, pair_breakdowns
from jointnmt.evaluation.contrastive_scores import Rule, ScoredItem
from jointnmt.evaluation.contrastive_suites import Suite


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
    breakdowns = item_breakdowns(suite, scored, rule) if suite.by_item else pair_breakdowns(suite, scored, rule)
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
