"""Pieces equal to those of `tokenizers`, which learns the vocabularies, and files that are not a vocabulary."""

from __future__ import annotations

import json
import lzma
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from jointnmt.text.config import SegmentationConfig
from jointnmt.text.pieces import SPACE, compact, read_vocabulary
from jointnmt.text.segmentation import Segmentation
from jointnmt.text.segmenter import Segmenter

CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "bpe": {},
    "bpe, lower case, punctuation apart": {"lowercase": True, "split_punctuation": True},
    "bpe, digits apart": {"split_digits": True},
    "unigram": {"kind": "unigram"},
    "unigram, lower case, punctuation apart": {"kind": "unigram", "lowercase": True, "split_punctuation": True},
    "unigram, digits and punctuation apart": {"kind": "unigram", "split_digits": True, "split_punctuation": True},
    "word, lower case": {"kind": "word", "lowercase": True},
}
LETTERS = "aabbcde ΣσςİIßÄäö\u0308\u0301.,!?+$«»„“—–…_▁<>unkpad/s|0123٣٤²한글字\u200d🙂"
"""Few letters, so that texts share words and pieces; with odd cases of case, composition and punctuation."""


@cache
def learnt(name: str) -> Segmenter:
    corpus = Path(__file__).parents[2] / "corpora" / "tatoeba-de-en" / "valid.tsv.xz"
    with lzma.open(corpus, "rt", encoding="utf-8") as file:
        lines = [line.rstrip("\n").replace("\t", " ") for line in file][:600]
    made_up = [LETTERS[i:] + LETTERS[:i] for i in range(len(LETTERS))]
    # Without 한, as an unknown letter.
    text = [*lines, *(line.replace("한", "") for line in made_up)]
    config = SegmentationConfig.model_validate({"vocabulary_size": 400, **CONFIGURATIONS[name]})
    return Segmentation.train(config, text, text, "de", "en").source


def by_the_library(segmenter: Segmenter, texts: list[str]) -> list[list[int]]:
    """The ids of `tokenizers` with all its steps, for text whose only white space is plain spaces."""
    tokenizer = Tokenizer.from_str(segmenter.to_json())
    return [each.ids for each in tokenizer.encode_batch([" ".join(text.split()) for text in texts])]


@pytest.mark.parametrize("name", CONFIGURATIONS)
@given(text=st.text(st.sampled_from(LETTERS), max_size=60))
@settings(max_examples=200, deadline=None)
def test_pieces_of_made_up_text_are_those_of_the_library(name: str, text: str) -> None:
    segmenter = learnt(name)
    assert segmenter.encode_ids(text) == by_the_library(segmenter, [text])[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_pieces_of_real_text_are_those_of_the_library(name: str, repository: Path) -> None:
    with lzma.open(repository / "corpora" / "tatoeba-de-en" / "test.tsv.xz", "rt", encoding="utf-8") as file:
        lines = [side for line in file for side in line.rstrip("\n").split("\t")]
    segmenter = learnt(name)
    assert segmenter.encode_ids_batch(lines) == by_the_library(segmenter, lines)
    assert segmenter.encode_ids_batch(lines) == by_the_library(segmenter, lines), "from what is remembered, too"


@pytest.mark.parametrize("name", ["bpe", "unigram"])
def test_the_time_of_a_long_word_grows_with_its_length_alone(name: str) -> None:
    """A quadratic algorithm would take minutes."""
    segmenter, word = learnt(name), "Donaudampfschiff" * 4_000
    start = time.process_time()
    ids = segmenter.encode_ids(word)
    assert time.process_time() - start < 10
    assert ids == by_the_library(segmenter, [word])[0]


def test_a_vocabulary_is_laid_out_as_by_the_library_and_stored_at_less_than_half_the_size() -> None:
    """Stores of segmented text and results are named by it."""
    for name in CONFIGURATIONS:
        text = learnt(name).to_json()
        assert text == Tokenizer.from_str(text).to_str(pretty=True)
        assert read_vocabulary(compact(text)).to_json() == text
    assert len(compact(learnt("bpe").to_json())) < 0.5 * len(learnt("bpe").to_json())


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"vocab": {"a": 0}}, ValueError),
        ({"type": "WordPiece"}, KeyError),
        ({"merges": [["a", "ß#"]]}, KeyError),
        ({"merges": [["a"]]}, ValueError),
    ],
)
def test_what_is_no_vocabulary_is_refused(change: dict[str, Any], wrong: type[Exception]) -> None:
    values = json.loads(learnt("bpe").to_json())
    values["model"] |= change
    with pytest.raises(wrong):
        read_vocabulary(json.dumps(values))


@pytest.mark.parametrize("number", [5, 10_000])
def test_ids_with_a_gap_or_given_twice_are_refused(number: int) -> None:
    values = json.loads(learnt("bpe").to_json())
    last = max(values["model"]["vocab"], key=values["model"]["vocab"].__getitem__)
    values["model"]["vocab"][last] = number
    with pytest.raises(ValueError, match="no gaps"):
        read_vocabulary(json.dumps(values))


def test_a_special_piece_is_never_read_out_of_text() -> None:
    segmenter = learnt("bpe")
    assert SPACE not in segmenter.decode(segmenter.encode(f"<pad>{SPACE} </s>"))
    assert not set(segmenter.encode_ids("<pad> <s> </s> <unk>▁")) & {0, 1, 2, 3}
