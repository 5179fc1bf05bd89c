"""Where sentences end."""

import pytest

from jointnmt.text.sentences import split_sentences


@pytest.mark.parametrize(
    "sentences",
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
def test_splits_at_the_ends_of_sentences_and_nowhere_else(sentences: list[str]) -> None:
    assert split_sentences(" ".join(sentences)) == sentences
    assert split_sentences("  " + "  \t".join(sentences) + " ") == sentences


def test_chinese_and_japanese_full_stops_need_no_space() -> None:
    assert split_sentences("你好。你是谁？“走！”他说。") == ["你好。", "你是谁？", "“走！”", "他说。"]


def test_nothing_is_lost() -> None:
    text = "A. Bc! d? E... “F.” G 1. H. 。x？！ Y"
    assert "".join(split_sentences(text)).replace(" ", "") == text.replace(" ", "")
    assert split_sentences("") == split_sentences("  ") == []
