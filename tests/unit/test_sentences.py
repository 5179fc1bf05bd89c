"""Ends of sentences."""

from __future__ import annotations

import re
from typing import SupportsIndex

import pytest

from jointnmt.text import sentences
from jointnmt.text.sentences import split_sentences, splitter_of


@pytest.mark.parametrize(
    "expected",
    [
        ["One sentence."],
        ["No full stop"],
        ["He came.", "She left!", "Why?", "Well…", "Nobody knows."],
        ["“Stop!”", "She turned round.", "(It was late.)", "Nobody spoke."],
        ["„Wer da?“", "Niemand antwortete."],
        ["»Wer da?«", "Es war nur der Wind."],
        ["It costs 3.50 dollars at example.org.", "Buy it."],
        ["“Why?” he asked."],
        ["J. S. Bach was born in 1685.", "He died in 1750."],
        ["Wait... what?", "¿Qué?", "“Yes.”"],
        ["А он ушёл.", "Она осталась."],
        ["« Pourquoi ? »", "Je ne sais pas !"],
        ["He came at 6:30.", "She is at her aunt's.", "They left."],
        ["1. Open the box.", "2. Close it."],
        ["He is 30.", "She is 25."],
        ["« Pourquoi ? », dit-il.", "« Non ! »"],
        ["what is it?", "nothing!", "and then. well … no."],
        ["Thanks!😀", "See you!👍"],
    ],
)
def test_splits_at_the_ends_of_sentences_and_nowhere_else(expected: list[str]) -> None:
    assert split_sentences(" ".join(expected), "en") == expected
    assert split_sentences("  " + "  \t".join(expected) + " ", "en") == expected


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("en", ["Mr. Smith met Dr. Who at St. Mary's.", "It was No. 512.", "Who told me?"]),
        ("en", ["He said no.", "Nobody asked him.", "(Mr. Smith did.)"]),
        ("de", ["Herr Dr. Müller kam bzw. ging.", "„Prof. Huber“ wohnt in Haus Nr. 512.", "Ich nicht."]),
        ("de-AT", ["Hof-Prof. Huber kam.", "Vgl. Müller."]),
        ("fr", ["M. Dupont est venu.", "Il est parti."]),
        ("tlh", ["Mr. Worf came.", "He left."]),
        ("de", ["Am 3. Mai um 12. Stunde, z. B. morgen, schneite es.", "Danach nicht."]),
        ("de", ["Am 3. Okt. 2020 zog Dr. med. Huber in die Hauptstr. 5 um.", "Siehe § 5 Abs. 2 und Abb. 3."]),
        ("de", ["Er hat einen Bart.", "Der Dipl.-Ing. (z. B.) Müller hat inkl. Mütze keinen."]),
        ("en", ["Mt. Everest is in Fig. 3 of Smith et al. (2010).", "It is approx. Ft. Worth."]),
    ],
)
def test_abbreviations_of_the_language_are_no_ends(language: str, expected: list[str]) -> None:
    assert split_sentences(" ".join(expected), language) == expected


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Thanks! 😀", ["Thanks! 😀"]),
        ("That is good. ;) Bye. :-)", ["That is good. ;)", "Bye. :-)"]),
        ("He waited . . . Then he left. ***", ["He waited . . .", "Then he left. ***"]),
        ("! ! ! Yes. No.", ["! ! ! Yes.", "No."]),
        ("? ! 😀", ["? ! 😀"]),
        ("He left. – She stayed. :) Both…", ["He left.", "– She stayed. :)", "Both…"]),
    ],
)
def test_what_has_no_letter_is_no_sentence(text: str, sentences: list[str]) -> None:
    assert split_sentences(text, "en") == sentences


def test_of_german_and_english_abbreviations_each_has_its_own() -> None:
    assert split_sentences("Er kam bzw. Sie ging.", "en") == ["Er kam bzw.", "Sie ging."]
    assert split_sentences("Er hat No. Sie nicht.", "en") == ["Er hat No.", "Sie nicht."], "numeric only"


def test_a_single_sentence_needs_no_list_of_abbreviations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sentences, "splitter_of")
    for text in ("Ein Satz.", "Nur ein Satz! 😀", "„Wer da?“", "keiner"):
        assert split_sentences(f" {text} ", "de") == [text]


def test_chinese_and_japanese_full_stops_need_no_space() -> None:
    assert split_sentences("你好。你是谁？“走！”他说。", "zh") == ["你好。", "你是谁？", "“走！”", "他说。"]


def test_nothing_is_lost() -> None:
    text = "A. Bc! d? E... “F.” G 1. H. 。x？！ Y"
    assert "".join(split_sentences(text, "en")).replace(" ", "") == text.replace(" ", "")
    assert split_sentences("", "en") == split_sentences("  ", "en") == []


class Counted(str):
    """A text that counts the characters copied from it."""

    copied = 0

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        found = super().__getitem__(key)
        Counted.copied += len(found)
        return found

    def strip(self, chars: str | None = None) -> Counted:
        return Counted(super().strip(chars))


UNITS = [".", ". ", "a. ", "1. ", ".)", ".) ", "。", ". (", "? (a", "…” ", ". \t\n", "z. B. ", "ab. ", "A! B? "]


@pytest.mark.parametrize("unit", UNITS)
def test_the_steps_grow_with_the_length_and_no_faster(unit: str) -> None:
    """Each character is copied at most a few times, however many ends of sentences there may be."""
    Counted.copied = 0
    text = Counted(unit * 3000)
    splitter_of("en").split(text)
    assert Counted.copied <= (2 * sentences._WINDOW + 4) * len(text)


def test_no_pattern_gives_back_what_it_has_taken() -> None:
    """Without backtracking, and with no stop before the first one, a pattern reads each character once."""
    patterns = [value for value in vars(sentences).values() if isinstance(value, re.Pattern)]
    for pattern in patterns:
        without_sets = re.sub(r"\[(?:\\.|[^]\\])*\]", "C", pattern.pattern)
        repeats = re.findall(r"(?<!\()[?+*]+", without_sets)
        assert all(repeat in ("++", "*+", "?+") for repeat in repeats), pattern.pattern
    assert len(patterns) == 3
