"""Moses tokenisation: the tokens of the Moses scripts, detokenised text, and nothing escaped."""

import pickle

import pytest

from jointnmt.text.moses import Moses, PunctuationNormalizer, Truecaser


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


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [  # by the named rules of normalize-punctuation.perl
        ("en", "“Yes” – he said…", '"Yes" - he said...'),  # quotation marks, dash, ellipsis
        ("fr", "«\u00a0Oui\u00a0»\u00a0!", '"Oui"!'),  # French quotation marks, pseudo-spaces
        ("en", 'He said "yes".', 'He said "yes."'),  # English quotation followed by a full stop
        ("de", "Er sagt „ja“.", 'Er sagt "ja".'),  # German: the full stop stays
        ("de", "1\u00a0000", "1,000"),  # decimal commas between digits
        ("en", "1\u00a0000", "1.000"),
        ("en", "", ""),
    ],
)
def test_punctuation_is_normalised_as_the_script_does(language: str, text: str, expected: str) -> None:
    assert PunctuationNormalizer(language).normalize(text) == expected


def test_normalising_takes_no_longer_for_very_many_full_stops() -> None:
    text = f"a … {'.' * 300_000} „b“"
    assert PunctuationNormalizer("de").normalize(text) == f'a ... {"." * 300_000} "b"'


def test_a_normaliser_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(PunctuationNormalizer("de"))).normalize("„Ja“") == '"Ja"'


def test_a_sentence_begins_with_a_capital_letter_where_its_script_has_one() -> None:
    truecaser = Truecaser.learn(["x The dog", "x the dog", "x THE dog"])
    assert truecaser.truecase("The dog") == "the dog", "of equally frequent forms, the one of lower case"
    truecaser = Truecaser.learn(["a b"])
    assert truecaser.detruecase(["ja", ".", "éa"]) == ["Ja", ".", "Éa"]
    assert truecaser.detruecase(["გამარჯობა", "."]) == ["გამარჯობა", "."]
