"""Contrastive evaluation: right decisions, their groups, and the comparison of two models."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np
import pytest

from jointnmt.evaluation.contrastive import PairedDifference, SuiteResult, compare, judge_suite
from jointnmt.evaluation.contrastive_breakdowns import DISTANCE_EDGES, SENSE_EDGES, WORD_EDGES, Accuracy, bins
from jointnmt.evaluation.contrastive_scores import Rule, TargetScore, distinct_pairs, scored_items
from jointnmt.evaluation.contrastive_suites import SenseFrequency, Suite, pair_items
from jointnmt.evaluation.sign_flips import sign_flip_p_value
from support.contrastive import FRENCH, WMT16, lingeval, suite_of, wsd, wsd_item

SCORES = {
    "best": TargetScore(-2.0, 4),
    "a": TargetScore(-4.0, 4),
    "tie": TargetScore(-4.0, 4),
    "b": TargetScore(-8.0, 4),
    "c": TargetScore(-12.0, 4),
    "long": TargetScore(-6.0, 6),  # a mean of -1
    "short": TargetScore(-5.0, 2),  # a mean of -2.5
}


def verdict(suite: Suite, scores: Mapping[str, TargetScore] = SCORES, rule: Rule = "length-normalised") -> SuiteResult:
    given = [scores[target] for _, target in distinct_pairs(suite.items)]
    return judge_suite(suite, list(scored_items(suite.items, given)), rule)


def groups(found: SuiteResult, name: str) -> dict[str, tuple[int, int]]:
    """Numbers of right and of all decisions, by group, of a break-down."""
    (breakdown,) = [each for each in found.breakdowns if each.name == name]
    return {group.name: (group.accuracy.right, group.accuracy.total) for group in breakdown.groups}


def left_out(found: SuiteResult) -> dict[str, int]:
    return {each.name: each.left_out for each in found.breakdowns}


def test_an_item_is_right_if_its_reference_beats_all_contrasts() -> None:
    """Counted by hand: the first, third and fifth are right; items with a tie or a better contrast are not."""
    found = verdict(suite_of(wsd()))
    assert (found.accuracy.right, found.accuracy.total, found.accuracy.value) == (3, 5, 0.6)
    assert (found.pairs.right, found.pairs.total) == (5, 7)
    assert (found.unit, found.ties, found.suite.kind) == ("item", 1, "contrawsd")
    assert groups(found, "class") == {"Bank:bank": (1, 2), "Bank:bench": (2, 3)}
    assert groups(found, "frequency") == {"0-20": (2, 3), "201-500": (1, 2)}
    assert groups(found, "type") == {"word_sense": (3, 5)}
    assert set(left_out(found).values()) == {0}


def test_sums_are_compared_if_asked_for() -> None:
    """The short contrast's sum is greater than the long reference's, though its mean is smaller: the third is wrong."""
    found = verdict(suite_of(wsd()), rule="summed")
    assert (found.accuracy.right, found.accuracy.total) == (2, 5)
    assert groups(found, "class")["Bank:bench"] == (1, 3)
    assert found.plain()["scoring"] == "summed"


def test_classes_have_their_frequencies() -> None:
    classes = verdict(suite_of(wsd())).breakdowns[0].groups
    assert [(each.name, each.frequency) for each in classes] == [
        ("Bank:bank", SenseFrequency(380, 400)),
        ("Bank:bench", SenseFrequency(20, 400)),
    ]
    assert classes[0].plain() == {
        "group": "Bank:bank",
        "right": 1,
        "total": 2,
        "accuracy": 0.5,
        "frequency": 380,
        "relative_frequency": 0.95,
    }
    assert SenseFrequency(0, 0).relative is None


def test_mucow_is_the_same_without_frequencies_by_origin() -> None:
    items = [{key: value for key, value in item.items() if key != WMT16} for item in wsd()]
    found = verdict(suite_of(items))
    assert (found.suite.kind, found.suite.frequency_corpus) == ("mucow", None)
    assert found.accuracy.right == 3
    assert groups(found, "origin") == {"books": (1, 2), "news": (2, 3)}
    assert [each.name for each in found.breakdowns] == ["class", "origin", "type"]


def test_frequencies_are_those_of_contrawsds_own_evaluation() -> None:
    items = wsd(**{"frequency of sense/ambig word in a corpus": "1/1", FRENCH: "7/7"})
    del items[1][WMT16]
    found = verdict(suite_of(items))
    assert found.suite.frequency_corpus == "wmt16"
    assert groups(found, "frequency") == {"0-20": (2, 2), "201-500": (1, 2)}
    assert left_out(found)["frequency"] == 1
    for item in items[:1] + items[2:]:
        del item[WMT16]
    assert suite_of(items).frequency_corpus == "europarl-v7 and nc11"
    assert verdict(suite_of(items, "mucow")).suite.frequency_corpus is None


def test_an_item_counts_once_for_each_type_of_its_contrasts() -> None:
    item = wsd_item("bench", "a", "b", "best", "c", "tie", origin="x")
    for error, kind in zip(item["errors"], ("near", "near", "far", None), strict=True):
        error["type"] = kind
    found = verdict(suite_of([item]))
    assert groups(found, "type") == {"near": (0, 1), "far": (1, 1)}
    assert left_out(found)["type"] == 1


def test_lingeval_counts_pairs() -> None:
    found = verdict(suite_of(lingeval()))
    assert (found.suite.kind, found.unit, found.ties) == ("lingeval97", "pair", 1)
    assert (found.accuracy.right, found.accuracy.total) == (3, 6)
    assert found.pairs == found.accuracy
    assert groups(found, "type") == {"agreement": (3, 5), "negation": (0, 1)}
    assert groups(found, "distance") == {"0": (2, 2), "15": (0, 1), ">15": (1, 2)}
    assert groups(found, "frequency") == {"3-5": (2, 2), "6-10": (0, 1), ">10000": (1, 1)}
    assert left_out(found) == {"type": 0, "distance": 1, "frequency": 2}
    assert list(groups(found, "frequency")) == ["3-5", "6-10", ">10000"]  # in the order of the counts


def testbins() -> None:
    sense, names = bins(SENSE_EDGES)
    assert [sense(count) for count in (0, 20, 21, 50, 10000, 10001)] == ["0-20"] * 2 + ["21-50"] * 2 + [
        "5001-10000",
        ">10000",
    ]
    assert len(names) == 10
    word, names = bins(WORD_EDGES)
    assert names[:6] == ["0", "1", "2", "3-5", "6-10", "11-20"]
    assert [word(count) for count in (0, 1, 2, 3, 5, 6, 10)] == ["0", "1", "2", "3-5", "3-5", "6-10", "6-10"]
    distance, names = bins(DISTANCE_EDGES)
    assert names == [*map(str, range(16)), ">15"]
    assert (distance(15), distance(16)) == ("15", ">15")


def test_pairs_of_lines() -> None:
    items = pair_items(["s", "t", "u"], ["a", "a", "a"], ["b", "tie", "best"], ["src", "right", "wrong"], "negation")
    found = verdict(Suite("pairs", "lines", tuple(items)))
    assert (found.accuracy.right, found.accuracy.total, found.unit) == (1, 3, "pair")
    assert groups(found, "type") == {"negation": (1, 3)}
    assert items[2].place == "src:3"
    untyped = verdict(Suite("pairs", "lines", tuple(pair_items(["s"], ["a"], ["b"], ["src", "right", "wrong"]))))
    assert groups(untyped, "type") == {}


def test_distinct_texts_are_scored_once_and_equal_pieces_are_a_tie() -> None:
    items = suite_of([wsd_item("bench", "a", "b", "c", origin="x"), wsd_item("bench", "b", "a", origin="x")]).items
    assert [target for _, target in distinct_pairs(items)] == ["a", "b", "c"]
    scores = [TargetScore(-1.0, 2, "x <unk>"), TargetScore(-1.0000001, 2, "x <unk>"), TargetScore(-3.0, 2, "x y")]
    first, second = scored_items(items, scores)
    assert first.beaten("summed") == (False, True)
    assert (first.ties("summed"), second.ties("summed")) == (1, 1)


def test_two_verdicts_differ_by_group() -> None:
    """Counted by hand: the second item is no longer a tie, the fourth is now right, and the fifth wrong."""
    suite = suite_of(wsd())
    changed = {**SCORES, "tie": TargetScore(-4.4, 4), "best": TargetScore(-9.0, 4), "c": TargetScore(-3.0, 4)}
    found = compare(verdict(suite), verdict(suite, changed))
    assert found.overall == PairedDifference(Accuracy(4, 5), lost=1, gained=2, p_value=1.0)
    assert found.breakdowns["class"] == {
        "Bank:bank": PairedDifference(Accuracy(1, 2), lost=1, gained=1, p_value=1.0),
        "Bank:bench": PairedDifference(Accuracy(3, 3), lost=0, gained=1, p_value=1.0),
    }
    assert found.breakdowns["type"] == {"word_sense": found.overall}
    assert found.plain()["breakdowns"]["class"]["groups"][1] == {
        "group": "Bank:bench", "right": 3, "total": 3, "accuracy": 1.0, "lost": 0, "gained": 1, "p_value": 1.0,
    }  # fmt: skip


def test_the_test_of_two_models_is_exact() -> None:
    """With one decision per item it is McNemar's test; the values are those of the binomial distribution."""

    def p_value(lost: int, gained: int) -> float:
        return sign_flip_p_value([-1] * lost + [1] * gained + [0] * 9)

    assert p_value(1, 7) == pytest.approx(2 * (1 + 8) / 2**8)
    assert p_value(7, 1) == p_value(1, 7)
    assert p_value(5, 5) == p_value(0, 0) == 1
    assert p_value(276, 269) == pytest.approx(0.797, abs=1e-3)
    assert p_value(2000, 3000) == pytest.approx(0, abs=1e-30)


def test_the_test_of_two_models_counts_all_signs() -> None:
    generator = np.random.default_rng(1)
    for _ in range(20):
        differences = generator.integers(-4, 5, size=9)
        sums = np.array(list(product((-1, 1), repeat=9))) @ differences
        assert sign_flip_p_value(differences.tolist()) == pytest.approx(np.mean(abs(sums) >= abs(differences.sum())))


def test_pairs_of_an_item_are_no_independent_evidence() -> None:
    """A worse score of the only reference loses all of its eight pairs: one change, not eight."""
    names = [f"c{number}" for number in range(8)]
    item = {
        "source": "s",
        "reference": "best",
        "origin": "x",
        "errors": [{"contrastive": n, "type": "t"} for n in names],
    }
    scores = {**SCORES, **{name: TargetScore(-8.0, 4) for name in names}}
    found = compare(
        verdict(suite_of([item]), scores), verdict(suite_of([item]), {**scores, "best": TargetScore(-9.0, 4)})
    )
    assert (found.overall.lost, found.overall.gained, found.overall.p_value) == (8, 0, 1.0)
    assert found.breakdowns["type"]["t"].p_value == 1.0
