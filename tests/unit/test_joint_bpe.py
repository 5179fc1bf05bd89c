"""Joint BPE as papers prepare it: the number of merges, the pieces of each side, and true case."""

import json
import random
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from sacremoses import MosesTruecaser
from typer.testing import CliRunner

from jointnmt.cli.main import app
from jointnmt.errors import ModelError
from jointnmt.experiment import Experiment
from jointnmt.text.config import SegmentationConfig
from jointnmt.text.learning import _with_merges
from jointnmt.text.moses import Truecaser
from jointnmt.text.pieces import SPACE, read_vocabulary
from jointnmt.text.preprocessing import TextPreprocessor
from jointnmt.text.segmentation import Segmentation, hash_files
from jointnmt.text.segmenter import Segmenter
from jointnmt.text.special import SPECIAL_PIECES, unk_id
from jointnmt.translator.ensemble import _read_alike
from support.tiny import tiny_recipe

GENERATOR = random.Random(3)
GERMAN = [
    " ".join(GENERATOR.choices(["der", "Hund", "Hunde", "sieht", "schläft", "nicht", "Katzen", "laut", "lauter"], k=6))
    for _ in range(200)
]
ENGLISH = [
    " ".join(GENERATOR.choices(["the", "dog", "dogs", "sees", "sleeps", "not", "cats", "loud", "louder"], k=6))
    for _ in range(200)
]
Pair = tuple[str, str]


def train(source: Sequence[str] = GERMAN, target: Sequence[str] = ENGLISH, **options: Any) -> Segmentation:
    """Learnt from streams that can be read once."""
    return Segmentation.train(SegmentationConfig(min_frequency=1, **options), iter(source), iter(target), "de", "en")


def learnt_merges(segmentation: Segmentation) -> list[Pair]:
    return [(left, right) for left, right in json.loads(segmentation.source.to_json())["model"]["merges"]]


def merged(word: str, merges: Sequence[Pair]) -> list[str]:
    """BPE by its definition: of all neighbouring pieces, those whose merge was learnt first are joined everywhere."""
    pieces = list(word)
    while True:
        ranks = [merges.index(pair) for pair in pairwise(pieces) if pair in merges]
        if not ranks:
            return pieces
        best, joined = merges[min(ranks)], list[str]()
        while pieces:
            size = 2 if tuple(pieces[:2]) == best else 1
            joined.append("".join(pieces[:size]))
            del pieces[:size]
        pieces = joined


def cut(piece: str, own: frozenset[str], merges: Sequence[Pair]) -> list[str]:
    """A piece split into those that a side has."""
    if piece in own or len(piece) == 1:
        return [piece]
    left, right = next(pair for pair in merges if "".join(pair) == piece)
    return cut(left, own, merges) + cut(right, own, merges)


def counted(texts: Sequence[str], merges: Sequence[Pair]) -> Counter[str]:
    return Counter(piece for text in texts for word in text.split() for piece in merged(SPACE + word, merges))


@pytest.mark.parametrize("number", [1, 20, 50])
def test_merges_are_counted_as_merges(number: int) -> None:
    segmentation = train(num_merges=number)
    assert len(learnt_merges(segmentation)) == number
    letters = {letter for text in (*GERMAN, *ENGLISH) for letter in text if letter != " "} | {SPACE}
    assert segmentation.source.vocabulary_size == len(SPECIAL_PIECES) + len(letters) + number


def test_merges_beyond_the_number_go_with_the_pieces_that_only_they_lead_to() -> None:
    merges = [["a", "b"], ["b", "c"], ["ab", "c"], ["a", "bc"], ["c", "c"]]
    vocabulary = {piece: number for number, piece in enumerate(["<s>", "a", "b", "c", "ab", "bc", "abc", "cc"])}
    values = {"model": {"type": "BPE", "merges": merges, "vocab": vocabulary}}
    assert _with_merges(values, 5) == _with_merges(values, None) == values
    kept = _with_merges(values, 3)["model"]
    assert kept["merges"] == merges[:3]
    assert kept["vocab"] == {piece: number for number, piece in enumerate(["<s>", "a", "b", "c", "ab", "bc", "abc"])}
    assert "abc" in _with_merges(values, 4)["model"]["vocab"]


@pytest.mark.parametrize("threshold", [1, 30, 10**6])
@pytest.mark.parametrize("joint", [True, "merges"])
def test_each_side_has_the_pieces_that_its_text_has_often_enough(joint: Any, threshold: int) -> None:
    segmentation = train(joint=joint, num_merges=60, vocabulary_threshold=threshold)
    merges = learnt_merges(segmentation)
    for side, texts in ((segmentation.source, GERMAN), (segmentation.target, ENGLISH)):
        counts = counted(texts, merges)
        own = frozenset(piece for piece, count in counts.items() if count >= threshold)
        letters = {letter for line in texts for letter in line} | {SPACE}
        for text in (*GERMAN[:50], *ENGLISH[:50]):
            whole = [piece for word in text.split() for piece in merged(SPACE + word, merges)]
            expected = [part for piece in whole for part in cut(piece, own, merges)]
            if joint == "merges":
                expected = [piece if len(piece) > 1 or piece in letters else "<unk>" for piece in expected]
            assert side.encode(text) == expected
        for text in texts:
            assert side.decode_ids(side.encode_ids(text)) == text


def test_vocabularies_of_joint_merges_are_those_of_the_sides() -> None:
    segmentation = train(joint="merges", num_merges=60)
    assert not segmentation.config.shared
    merges = learnt_merges(segmentation)
    for side, texts in ((segmentation.source, GERMAN), (segmentation.target, ENGLISH)):
        letters = {letter for text in texts for letter in text if letter != " "} | {SPACE}
        pieces = [side.piece(i) for i in range(side.vocabulary_size)]
        assert set(pieces) == {*SPECIAL_PIECES, *letters, *counted(texts, merges)}
        assert len(pieces) == len(set(pieces))
    assert unk_id in segmentation.target.encode_ids("schläft")
    assert segmentation.source.vocabulary_size != segmentation.target.vocabulary_size


@pytest.mark.parametrize(
    "options",
    [{"joint": "merges", "num_merges": 40}, {"num_merges": 40, "vocabulary_threshold": 20}, {"truecase": True}],
    ids=["apart", "threshold", "truecase"],
)
def test_files_hold_all_of_it(options: dict[str, Any], tmp_path: Path) -> None:
    segmentation = train(**options)
    segmentation.save(tmp_path)
    loaded = Segmentation.load(tmp_path)
    assert loaded.fingerprint() == segmentation.fingerprint()
    assert loaded.fingerprint() != train(num_merges=39).fingerprint()
    for text in (*GERMAN, *ENGLISH):
        assert loaded.source.encode_ids(text) == segmentation.source.encode_ids(text)
        assert loaded.target.encode_ids(text) == segmentation.target.encode_ids(text)
    before = hash_files(tmp_path)
    extra = next(path for path in tmp_path.iterdir() if path.suffix in {".pieces", ".truecase"})
    content = extra.read_text(encoding="utf-8")
    extra.write_text(content + content.splitlines()[-1].replace("1", "2") + "\n", encoding="utf-8")
    assert hash_files(tmp_path) != before
    extra.write_text("Hund\n", encoding="utf-8")
    with pytest.raises(ModelError, match="missing or damaged"):
        Segmentation.load(tmp_path)
    extra.unlink()
    with pytest.raises(ModelError, match="missing or damaged"):
        Segmentation.load(tmp_path)


CASED = [
    "Heute schläft der Hund .",
    "Der Hund schläft heute .",
    "Ist das der Hund ?",
    "Nein , das ist Rex ! Rex schläft .",
]


def test_true_case_is_that_within_sentences_and_is_undone() -> None:
    segmentation = train(source=CASED, target=CASED, truecase=True, moses=True, num_merges=200)
    side = segmentation.source
    plain = train(source=CASED, target=CASED, moses=True, num_merges=200).source
    assert "".join(side.encode("Der Hund schläft.")).replace(SPACE, " ").split() == ["der", "Hund", "schläft", "."]
    assert "".join(side.encode("Rex schläft. Das ist Rex.")).replace(SPACE, " ").split()[3] == "das"
    assert "".join(plain.encode("Der Hund schläft.")).replace(SPACE, " ").split()[0] == "Der"
    for text in ("Der Hund schläft.", "Ist das Rex? Nein, das ist der Hund!"):
        assert side.decode_ids(side.encode_ids(text)) == text


def test_members_of_an_ensemble_read_alike_only_with_the_same_case_and_pieces() -> None:
    config = SegmentationConfig(joint="merges", truecase=True)
    vocabulary = read_vocabulary(train(num_merges=20).source.to_json())
    counts = dict(counted(GERMAN, learnt_merges(train(num_merges=20))))

    def reader(cased: Sequence[str], counts: dict[str, int], **changes: Any) -> Segmenter:
        preprocessor = TextPreprocessor(truecaser=Truecaser.learn(cased))
        return Segmenter(vocabulary, config.model_copy(update=changes), "de", (), preprocessor, counts)

    one = reader(CASED, counts)
    assert _read_alike(one, reader(CASED, dict(counts)))
    assert not _read_alike(one, reader(GERMAN, counts))
    assert not _read_alike(one, reader(CASED, {**counts, "er": 0}))
    for changes in ({"vocabulary_threshold": 50}, {"split_punctuation": True}, {"split_digits": True}, {"joint": True}):
        assert not _read_alike(one, reader(CASED, counts, **changes))


def test_truecasing_is_that_of_the_library_where_there_is_no_markup(tmp_path: Path) -> None:
    truecaser = Truecaser.learn([*CASED, *GERMAN])
    (tmp_path / "model").write_text(truecaser.model, encoding="utf-8")
    library = MosesTruecaser(load_from=str(tmp_path / "model"))
    words = ["Heute", "HUND", "der", "Der", "rex", "Rex", ".", "!", '"', "(", ":", "Unbekannt", "schläft", "Sieht"]
    for _ in range(300):
        text = " ".join(GENERATOR.choices(words, k=8))
        assert truecaser.truecase(text) == library.truecase(text, return_str=True, use_known=True)


@given(st.lists(st.text("abDEr.:!?,-<>|()'\"&5", min_size=1, max_size=6), max_size=12))
def test_truecasing_changes_nothing_but_case(tokens: list[str]) -> None:
    truecaser = Truecaser.learn(CASED)
    text = " ".join(tokens)
    assert truecaser.truecase(text).lower() == text.lower()
    assert [token.lower() for token in truecaser.detruecase(tokens)] == [token.lower() for token in tokens]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"joint": False, "num_merges": 5}, "num_merges 5 needs kind bpe"),
        ({"kind": "unigram", "joint": "merges"}, "joint merges needs kind bpe"),
        ({"kind": "word", "vocabulary_threshold": 5}, "vocabulary_threshold 5 needs kind bpe"),
        ({"truecase": True, "lowercase": True}, "exclude each other"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        SegmentationConfig.model_validate(options)


@pytest.mark.parametrize("options", [{"joint": "merges"}, {"vocabulary_threshold": 2}])
def test_bpe_dropout_does_not_go_with_pieces_of_ones_own(options: dict[str, Any], tmp_path: Path) -> None:
    settings = {f"segmentation__{name}": value for name, value in options.items()}
    recipe = tiny_recipe(tmp_path, segmentation__kind="bpe", training__bpe_dropout=0.1, **settings)
    with pytest.raises(ValidationError, match="bpe_dropout needs"):
        Experiment.model_validate(recipe)


def test_one_table_needs_one_vocabulary(tmp_path: Path) -> None:
    recipe = tiny_recipe(tmp_path, segmentation__joint="merges", segmentation__kind="bpe", model__embeddings="all")
    with pytest.raises(ValidationError, match="one embedding table needs one vocabulary"):
        Experiment.model_validate(recipe)


def test_info_asks_for_the_sizes_of_vocabularies_that_are_not_learnt_yet() -> None:
    found = CliRunner().invoke(app, ["info", "package:iwslt14/de-en-transformer"])
    assert found.exit_code == 2
    assert "--source-vocabulary" in found.stderr
    sizes = ["--source-vocabulary", "8848", "--target-vocabulary", "6632"]
    assert CliRunner().invoke(app, ["info", "package:iwslt14/de-en-transformer", *sizes]).exit_code == 0
