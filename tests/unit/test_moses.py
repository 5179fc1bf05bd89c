"""Moses tokenisation: tokens as the Moses scripts make them, running text again, and nothing escaped."""

import pickle

import pytest

from jointnmt.text.moses import Moses


@pytest.mark.parametrize(
    ("language", "text", "tokens"),
    [
        ("en", "Hello, world!", "Hello , world !"),
        ("en", "It's Tom's, isn't it?", "It 's Tom 's , isn 't it ?"),
        ("en", "Mr. Smith paid $3.50 (or so).", "Mr. Smith paid $ 3.50 ( or so ) ."),
        ("de", "Das ist z. B. Straße 5, oder?", "Das ist z. B. Straße 5 , oder ?"),
        ("fr", "L'homme n'a rien.", "L' homme n' a rien ."),
        ("en", "", ""),
    ],
)
def test_words_and_punctuation_apart_and_together_again(language: str, text: str, tokens: str) -> None:
    moses = Moses(language)
    assert moses.tokenize(text) == tokens
    assert moses.detokenize(tokens.split()) == text


@pytest.mark.parametrize("character", "&<>|[]\"'")
def test_nothing_is_escaped(character: str) -> None:
    moses = Moses("en")
    assert moses.tokenize(f"a {character} b").split() == ["a", character, "b"]
    assert "&" not in moses.detokenize(["a", character, "b"]).replace(character, "")


def test_escapes_in_text_stay_as_they_are() -> None:
    assert Moses("en").detokenize(["&quot;"]) == "&quot;"


def test_an_unknown_language_has_the_abbreviations_of_english_and_lone_apostrophes() -> None:
    assert Moses("xx").tokenize("Well, Dr. No isn't here.") == "Well , Dr. No isn ' t here ."
    assert Moses("xx").detokenize(["Hello", ",", "world", "!"]) == "Hello, world!"


def test_pickling_for_worker_processes() -> None:
    assert pickle.loads(pickle.dumps(Moses("de"))).tokenize("Hallo, Welt!") == "Hallo , Welt !"
