"""Scores of a contrastive suite's translations, each distinct text once, and the resulting decisions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from jointnmt.evaluation.contrastive_suites import Contrast, SuiteItem

Rule = Literal["length-normalised", "summed"]
"""Score that is compared: the mean log-probability of a token, or the sum over tokens."""


@dataclass(frozen=True)
class TargetScore:
    """The log-probability of a translation."""

    log_probability: float
    """Sum over tokens, natural logarithm."""
    tokens: int
    """Number of tokens, end mark included."""
    pieces: str = ""
    """Its pieces; translations with the same pieces are identical to the model."""

    def value(self, rule: Rule) -> float:
        """The score that is compared; higher is better."""
        return self.log_probability / max(self.tokens, 1) if rule == "length-normalised" else self.log_probability


@dataclass(frozen=True)
class ScoredItem:
    """An item with the scores of its reference and contrasts."""

    item: SuiteItem
    reference: TargetScore
    contrasts: tuple[TargetScore, ...]

    def beaten(self, rule: Rule) -> tuple[bool, ...]:
        """For each contrast, whether the reference is strictly more probable."""
        return tuple(self.reference.value(rule) > contrast.value(rule) for contrast in self.contrasts)

    def ties(self, rule: Rule) -> int:
        """The number of contrasts exactly as probable as the reference."""
        return sum(self.reference.value(rule) == contrast.value(rule) for contrast in self.contrasts)

    def plain(self, rule: Rule) -> dict[str, Any]:
        """The fields as JSON-compatible values, with log-probability and number of tokens, which give both rules."""
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
    """Every distinct pair of source and translation, in the order of the scores for `scored_items`."""
    return list(dict.fromkeys((item.source, text) for item in items for text in _texts(item)))


def scored_items(items: Iterable[SuiteItem], scores: Iterable[TargetScore]) -> Iterator[ScoredItem]:
    """The items with their scores; `scores` are those of `distinct_pairs(items)`, read as a stream.

    Translations of a source with the same pieces share the score of the first one: in batches of different shapes,
    their scores could differ in the last digits, and a tie would be missed.
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
