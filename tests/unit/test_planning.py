"""Held-out text, copies with other numbers and names, expected values, and the text of the recipe."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

from jointnmt.experiment import Experiment
from jointnmt.planning.approaches import FromScratch
from jointnmt.planning.copies import OtherNames, OtherNumbers, Typed, make_copies
from jointnmt.planning.expectation import MEASURED, expectation, expected_bleu
from jointnmt.planning.holdout import LEFT_OUT, TEST, TRAIN, VALID, hold_out, num_held_out
from jointnmt.planning.parts import CorpusParts, copies_of
from jointnmt.planning.recipe import recipe_text
from jointnmt.planning.sizing import CorpusCounts, Machine, plan


def digests(pairs: int, sentences: int, seed: int = 1) -> np.ndarray:
    """Pairs many of which share a sentence."""
    return np.random.default_rng(seed).integers(0, sentences, (pairs, 2)).astype(np.uint64)


@pytest.mark.parametrize("sentences", [150, 5000])
def test_no_sentence_of_a_part_is_in_another(sentences: int) -> None:
    sides = digests(1000, sentences)
    part = hold_out(sides, 60, 40, seed=3)
    assert np.array_equal(part, hold_out(sides, 60, 40, seed=3))
    assert (part == TEST).sum() == 40
    assert 0 < (part == VALID).sum() <= 60
    for column in (0, 1):
        found = [set(sides[part == each, column].tolist()) for each in (TRAIN, VALID, TEST)]
        assert not found[0] & found[1] and not found[0] & found[2] and not found[1] & found[2]


def test_pairs_that_share_no_sentence_are_held_out_first() -> None:
    sides = np.stack([np.arange(1000), np.arange(1000)], axis=1).astype(np.uint64)
    sides[:500, 0] = 7
    part = hold_out(sides, 100, 100, seed=1)
    assert (part[:500] == TRAIN).all()
    assert not (part == LEFT_OUT).any()
    assert [(part[500:] == each).sum() for each in (TRAIN, VALID, TEST)] == [300, 100, 100]


def test_another_seed_draws_others() -> None:
    sides = digests(1000, 10**9)
    assert not np.array_equal(hold_out(sides, 50, 50, seed=1), hold_out(sides, 50, 50, seed=2))


@pytest.mark.parametrize(("pairs", "held"), [(600, 60), (3_000, 200), (10_000, 500), (10**6, 2000)])
def test_a_small_corpus_keeps_most_for_training(pairs: int, held: int) -> None:
    assert num_held_out(pairs) == held


def test_the_expectation_is_what_was_measured() -> None:
    for pairs, bleu in MEASURED:
        assert expected_bleu(pairs) == pytest.approx(bleu)
    scores = [expected_bleu(pairs) for pairs in (500, 2_000, 5_000, 20_000, 100_000, 10**7)]
    assert scores == sorted(scores) and scores[-1] == MEASURED[-1][1]
    few = expectation(2_500, "transformer")
    assert "gist at best" in few and "2,500 pairs" in few and expectation(2_500, "reformer-base") == few
    assert expectation(2_500, "reformer-fast").startswith(f"{few}. This holds for the Transformer")
    assert "above BLEU" in expectation(10**6, "reformer-fast") and "Reformer" not in expectation(10**6, "reformer-fast")


def test_a_recipe_reads_back_as_the_plan(tmp_path) -> None:  # type: ignore[no-untyped-def]
    machine = Machine(2, memory=8.0, rates={"float32": 1000.0, "bfloat16": 3000.0})
    corpus = CorpusCounts(3_000, 22_000, 33_000, 40)
    chosen = plan(corpus, machine)
    parts = CorpusParts(
        tmp_path / 'a "folder": #1', ("no", "en"), {"train": 3_000, "valid": 9, "test": 9}, 22_000, 0, ()
    )
    path = tmp_path / "recipe.yaml"
    path.write_text(recipe_text("on", parts, corpus, chosen, machine, seed=4), encoding="utf-8")
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert {section: values[section] for section in chosen.values} == chosen.values
    experiment = Experiment.load(path)
    assert (experiment.name, experiment.seed) == ("on", 4)
    assert experiment.data.root.resolve() == (tmp_path / 'a "folder": #1').resolve()
    comments = [line for line in path.read_text(encoding="utf-8").splitlines() if line.lstrip().startswith("#")]
    assert any("bfloat16 3,000" in line for line in comments) and len(comments) > 12


@pytest.mark.parametrize(
    ("source", "target", "suits"),
    [
        ("Ich bin 37.", "I am 37.", True),
        ("3 von 12", "12 and 3", True),
        ("1.250,5 Euro", "1,250.5 euros", True),
        ("Ich habe 1 Hund.", "I have 1 dog.", False),
        ("Ich bin 37.", "I am 73.", False),
        ("um 8 Uhr", "at eight o'clock", False),
        ("der 2. Platz", "2nd place", False),
        ("die 80er", "the 80s", False),
        ("H2O 5", "H2O 5", False),
        ("keine", "none", False),
    ],
)
def test_numbers_are_changed_where_others_fit(source: str, target: str, suits: bool) -> None:
    assert OtherNumbers().fits((source, target)) == suits


def test_copies_have_the_same_other_numbers_on_both_sides() -> None:
    random = Random(1)
    for _ in range(50):
        source, target = OtherNumbers().changed(("1 von 7: 2019, 08 und 2019", "08, 2019 and 2019: 1 of 7"), random)
        numbers = re.findall("[0-9]+", source)
        assert [*map(len, numbers)] == [1, 1, 4, 2, 4] and re.sub("[0-9]+", "n", source) == "n von n: n, n und n"
        assert numbers[0] == "1" and numbers[1] not in "01" and numbers[2] == numbers[4]
        assert numbers[2][0] != "0" and numbers[3][0] == "0"
        assert target == f"{numbers[3]}, {numbers[2]} and {numbers[2]}: 1 of {numbers[1]}"
    assert len({OtherNumbers().changed(("2019", "2019"), random) for _ in range(50)}) > 40


NAMED = [
    ("Tom kennt Anna.", "Anna knows Tom."),
    ("Winter in Rom", "Winter in Rome"),
    ("im Norden", "winter there"),
    ("Ed und Toms Hund", "Ed and Tom's dog"),
    ("NATO? Der Hund", "NATO? Their dog"),
]


def test_names_are_words_that_are_the_same_on_both_sides_and_never_in_lower_case() -> None:
    names = OtherNames.of(NAMED)
    assert names.names == {"Tom", "Anna"} and "knows" in names.words and "im" not in names.words
    assert [names.fits(pair) for pair in NAMED] == [True, False, False, False, False]
    assert not OtherNames.of([("トムは行く。", "Tom goes.")]).fits(("Tom", "Tom"))
    assert OtherNames.of([("Здесь Tom, здесь.", "Tom is here.")]).words == ("here",)


def test_copies_have_the_same_made_up_names_on_both_sides() -> None:
    names, random = OtherNames(frozenset({"Tom", "Anna"}), ("kenntnisse", "nordlichter")), Random(1)
    found = set()
    for _ in range(50):
        source, target = names.changed(("Tom kennt Anna, Tom!", "Anna: Tom, Tom"), random)
        first, known, second, again = re.findall(r"\w+", source)
        assert first == again and known == "kennt" and target == f"{second}: {first}, {first}"
        assert first.istitle() and 4 <= len(first) <= 10
        found.add(first)
    assert len(found) > 30 and all(re.fullmatch("(Ke|No)[a-z]*(se|er)", name) for name in found)


def test_copies_as_people_type_keep_the_words() -> None:
    typed, random = Typed(), Random(1)
    assert typed.fits(("Wer?!", "Who?")) and not any(map(typed.fits, [("Ja.", "Yes"), ("Ja", "Yes."), ("?", "?")]))
    found = {typed.changed(("Der Hund bellt.", "The dog barks."), random) for _ in range(50)}
    assert found == {
        ("Der Hund bellt", "The dog barks"),
        ("der Hund bellt.", "The dog barks."),
        ("der Hund bellt", "The dog barks"),
        ("der hund bellt.", "The dog barks."),
        ("der hund bellt", "The dog barks"),
    }
    assert typed.changed(("犬です。", "It's a dog."), random) == ("犬です", "It's a dog")


@pytest.mark.parametrize(("enough", "most"), [(8000, 250), (100, 100), (50, 50), (10, 50)])
@pytest.mark.parametrize("fitting", [0, 1, 6, 51, 900])
def test_copies_are_a_small_part_of_the_text_and_of_many_pairs(
    fitting: int, enough: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jointnmt.planning.copies.ENOUGH", enough)
    number = min(50 * fitting, most)
    pairs = [("a" * place + " 7", "7") if place <= fitting else ("", "") for place in range(1, 1001)]
    made = [pair for copies in make_copies(lambda: pairs, lambda _: True) for pair in copies.pairs]
    assert len(made) == number
    per_pair = Counter(source.split()[0] for source, _ in made)
    assert not number or max(per_pair.values()) - min(per_pair.values()) <= 1


def test_the_pieces_of_copies_count(tmp_path: Path) -> None:
    pairs = [SimpleNamespace(source=f"Das sind {n} Hunde.", target=f"These are {n} dogs.") for n in range(100, 140)]
    checked: Any = [SimpleNamespace(good_pairs=lambda: pairs)]
    parts = CorpusParts(tmp_path, ("de", "en"), {"train": 40}, 160, 0, (), {0: np.full(40, TRAIN, np.uint8)})
    with_copies = replace(parts, copies=copies_of(parts, checked))
    assert [len(copies.pairs) for copies in with_copies.copies] == [10, 10]
    fewer, more = (FromScratch("transformer").segment(each, checked)[1] for each in (parts, with_copies))
    assert more.pieces == pytest.approx(1.5 * fewer.pieces, rel=0.1) and more.pairs == fewer.pairs == 40


def test_no_copy_is_a_held_out_sentence_but_for_case_and_punctuation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jointnmt.planning.copies.MOST_OF_TEXT", 100)
    monkeypatch.setattr(OtherNumbers, "most_of_pair", 100)
    held_out = [("", f"i am {number}") if number % 2 else (f"ICH BIN {number}!", "") for number in range(2, 9)]
    pairs = [SimpleNamespace(source=de, target=en) for de, en in [("Ich bin 5.", "I am 5."), *held_out]]
    checked: Any = [SimpleNamespace(good_pairs=lambda: pairs)]
    assigned = {0: np.array([TRAIN, *[VALID, TEST] * 3, TEST], np.uint8)}
    parts = CorpusParts(tmp_path, ("de", "en"), {}, 0, 0, (), assigned)
    (numbers,) = copies_of(parts, checked)
    assert (
        numbers.kind == "numbers" and set(numbers.pairs) == {("Ich bin 9.", "I am 9.")} and 0 < len(numbers.pairs) < 50
    )
