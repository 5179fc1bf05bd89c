"""Where sentences end."""

from __future__ import annotations

import re
from typing import SupportsIndex

import pytest

from jointnmt.text import sentences
from jointnmt.text.sentences import split_sentences


@pytest.mark.parametrize(
    "expected",
    [
        ["One sentence."],
        ["No full stop"],
        ["He came.", "She left!", "Why?", "Well…", "Nobody knows."],
        ["“Stop!”", "She turned round.", "(It was late.)", "Nobody spoke."],
        ["„Wer da?“", "Niemand antwortete."],
        ["»Wer da?«", "Es war nur der Wind."],
        ["Am 3. Mai um 12. Stunde, z. B. morgen, schneite es.", "Danach nicht."],
        ["It costs 3.50 dollars at example.org.", "Buy it."],
        ["“Why?” he asked."],
        ["J. S. Bach was born in 1685.", "He died in 1750."],
        ["Wait... what?", "¿Qué?", "“Yes.”"],
        ["А он ушёл.", "Она осталась."],
    ],
)
def test_splits_at_the_ends_of_sentences_and_nowhere_else(expected: list[str]) -> None:
    assert split_sentences(" ".join(expected)) == expected
    assert split_sentences("  " + "  \t".join(expected) + " ") == expected


def test_chinese_and_japanese_full_stops_need_no_space() -> None:
    assert split_sentences("你好。你是谁？“走！”他说。") == ["你好。", "你是谁？", "“走！”", "他说。"]


def test_nothing_is_lost() -> None:
    text = "A. Bc! d? E... “F.” G 1. H. 。x？！ Y"
    assert "".join(split_sentences(text)).replace(" ", "") == text.replace(" ", "")
    assert split_sentences("") == split_sentences("  ") == []


class Counted(str):
    """A text that counts the characters that are copied out of it."""

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
    """Each character is copied a few times at most, however many ends of sentences there may be."""
    Counted.copied = 0
    text = Counted(unit * 3000)
    split_sentences(text)
    assert Counted.copied <= 4 * len(text)


def test_no_pattern_gives_back_what_it_has_taken() -> None:
    """Without backtracking, and with no stop before the first, a pattern looks at each character once."""
    patterns = [value for value in vars(sentences).values() if isinstance(value, re.Pattern)]
    for pattern in patterns:
        without_sets = re.sub(r"\[(?:\\.|[^]\\])*\]", "C", pattern.pattern)
        repeats = re.findall(r"[+*]+", without_sets)
        assert all(repeat in ("++", "*+") for repeat in repeats), pattern.pattern
    assert len(patterns) > 1
