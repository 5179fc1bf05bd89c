"""Segmentations by codes of subword-nmt: its pieces, files that are something else, keys, and models that have them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import ctranslate2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jointnmt.analysis.alignment import word_numbers
from jointnmt.data.bpe_dropout import ResegmentedStore
from jointnmt.data.store import build_store
from jointnmt.errors import ConfigurationError, DataError
from jointnmt.experiment import Experiment
from jointnmt.export import export_ctranslate2
from jointnmt.recipe import read_recipe
from jointnmt.text.config import SegmentationConfig
from jointnmt.text.segmentation import Segmentation
from jointnmt.text.segmenter import Segmenter
from jointnmt.text.special import SPECIAL_PIECES, UNK, unk_id
from jointnmt.text.words import goes_on, word_starts
from jointnmt.training.directory import TrainingDirectory
from jointnmt.training.progress import NoDisplay
from jointnmt.training.run import train
from jointnmt.training.segmentation import prepare_segmentation
from jointnmt.translator import Translator
from support.subword_nmt.make import HERE, texts
from support.tiny import tiny_recipe, write_corpus

CODES, SOURCE_COUNTS, TARGET_COUNTS = HERE / "codes", HERE / "vocabulary.de", HERE / "vocabulary.en"
COUNTS = {"vocabulary": str(SOURCE_COUNTS), "target_vocabulary": str(TARGET_COUNTS)}
SIDES = ("de", "en")


def segmented(lines: Mapping[int, Sequence[str]] | None = None, **options: Any) -> Segmentation:
    config = SegmentationConfig.parse({"from": str(CODES), **options}, origin="recipe.yaml")
    source, target = (texts(side)[0] if lines is None else lines[side] for side in (0, 1))
    return Segmentation.train(config, source, target, *SIDES)


def written(pieces: Sequence[str]) -> str:
    """Pieces in the notation of subword-nmt."""
    return " ".join(piece[:-1] if piece.endswith("▁") else f"{piece}@@" for piece in pieces)


def read(name: str) -> list[str]:
    return (HERE / name).read_text(encoding="utf-8").split("\n")[:-1]


def knowing_all() -> dict[int, list[str]]:
    """The training text, and each character of the test text within and at the end of a word."""
    return {side: [*texts(side)[0], " ".join(2 * letter for letter in "".join(texts(side)[1]))] for side in (0, 1)}


# --- pieces


@pytest.mark.parametrize("joint", [True, False])
def test_pieces_are_those_of_subword_nmt(joint: bool) -> None:
    options = {"joint": True} if joint else {"joint": False, "target_from": str(CODES)}
    segmentation = segmented(knowing_all(), **options)
    for number, segmenter in enumerate((segmentation.source, segmentation.target)):
        test = texts(number)[1]
        assert [written(segmenter.encode(line)) for line in test] == read(f"plain.{SIDES[number]}")
        assert [segmenter.decode_ids(ids) for ids in segmenter.encode_ids_batch(test)] == test


@pytest.mark.parametrize("options", [COUNTS, {}, {**COUNTS, "joint": "merges"}, {"joint": "merges"}])
def test_rare_pieces_are_split_as_by_subword_nmt(options: dict[str, Any]) -> None:
    """By the counts of a vocabulary file, or by those of the training text, which are the same."""
    known = knowing_all() if COUNTS.items() <= options.items() else None
    segmentation = segmented(known, vocabulary_threshold=10, **options)
    for number, segmenter in enumerate((segmentation.source, segmentation.target)):
        counts = dict(line.rsplit(" ", 1) for line in read(f"vocabulary.{SIDES[number]}"))
        assert {written([piece]): str(count) for piece, count in (segmenter.counts or {}).items() if count} == counts
        for line, expected in zip(texts(number)[1], read(f"threshold.{SIDES[number]}"), strict=True):
            pieces = expected.split()
            found = [piece if piece == UNK else written([piece]) for piece in segmenter.encode(line)]
            assert known is None or found == pieces
            # Only characters that the text lacks are unknown.
            assert found == [piece if piece in found else UNK for piece in pieces]


def test_each_side_has_the_pieces_of_its_text_and_a_joint_one_all() -> None:
    shared, merges = segmented(), segmented(joint="merges")
    joint = {shared.source.piece(i) for i in range(shared.source.vocabulary_size)}
    made = {line.replace(" ", "").replace("</w>", "▁") for line in read("codes")[1:]}
    assert made < joint and shared.source.to_json() == shared.target.to_json()
    for number, segmenter in enumerate((merges.source, merges.target)):
        own = {segmenter.piece(i) for i in range(segmenter.vocabulary_size)}
        found = {*SPECIAL_PIECES, *(piece for line in texts(number)[0] for piece in segmenter.encode(line))}
        assert found <= own < joint and all(len(piece.removesuffix("▁")) == 1 for piece in own - found)


def reference(word: str, ranks: Mapping[tuple[str, str], int]) -> list[str]:
    """`encode` of apply_bpe.py, subword-nmt 0.3.8: all occurrences of the best pair are merged, then the next."""
    pieces = [*word[:-1], f"{word[-1]}▁"]
    while known := [pair for pair in pairwise(pieces) if pair in ranks]:
        best, merged = min(known, key=ranks.__getitem__), []
        while pieces:
            size = 2 if tuple(pieces[:2]) == best else 1
            merged.append("".join(pieces[:size]))
            pieces = pieces[size:]
        pieces = merged
    return pieces


@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_merges_in_any_order_are_applied_as_by_subword_nmt(data: st.DataObject, tmp_path_factory: Any) -> None:
    """Among them those by which a pair that a merge makes precedes other occurrences of the merge."""
    pieces, merges = ["a", "b", "a▁", "b▁"], list[tuple[str, str]]()
    for _ in range(data.draw(st.integers(1, 8))):
        left = data.draw(st.sampled_from([piece for piece in pieces if not piece.endswith("▁")]))
        merges.append((left, data.draw(st.sampled_from(pieces))))
        pieces.append("".join(merges[-1]))
    path = tmp_path_factory.mktemp("codes") / "codes"
    lines = [f"{left} {right}".replace("▁", "</w>") for left, right in merges]
    path.write_text("\n".join(["#version: 0.2", *lines, ""]), encoding="utf-8")
    segmenter = segmented({0: ["ab ba"], 1: ["ab"]}, **{"from": str(path)}).source
    words = data.draw(st.lists(st.text("ab", min_size=1, max_size=20), max_size=5))
    ranks = {pair: rank for rank, pair in reversed([*enumerate(merges)])}
    expected = [piece for word in words for piece in reference(word, ranks)]
    assert segmenter.encode(" ".join(words)) == expected
    assert segmenter.decode(expected) == " ".join(words)


@pytest.mark.parametrize("mark", [*SPECIAL_PIECES, "<2en>", "<pad>▁", "▁</s>"])
def test_special_pieces_and_tags_in_a_text_are_ordinary_text(mark: str, tmp_path: Path) -> None:
    """Even if codes merge them to one piece, within and at the end of a word."""
    spelt = mark.replace("▁", "_")
    merges = [f"{spelt[:i]} {spelt[i]}{end}" for i in range(1, len(spelt)) for end in ("", "</w>")]
    (tmp_path / "codes").write_text("\n".join(["#version: 0.2", *merges, ""]), encoding="utf-8")
    learnt = segmented(
        {0: [f"{spelt}{spelt} Hund"], 1: ["dog"]}, **{"from": str(tmp_path / "codes"), "tags": ["<2en>"]}
    )
    segmenter = learnt.source
    for text in (f"Hund {mark}", f"Hund {mark}{mark}", f"{mark}{mark} Hund"):
        ids = segmenter.encode_ids(text)
        assert not {0, 1, 2, 3, *segmenter.tag_ids} & set(ids)
        assert segmenter.decode_ids(ids) == segmenter.decode(segmenter.encode(text)) == text.replace("▁", "_")
    tagged = segmenter.encode_ids("<2en> Hund")
    assert tagged[0] in segmenter.tag_ids and segmenter.decode_ids(tagged) == "Hund"
    pieces = [segmenter.piece(i) for i in range(segmenter.vocabulary_size)]
    assert len(set(pieces)) == len(pieces)


def test_an_unknown_piece_is_written_as_the_end_of_a_word() -> None:
    segmenter = segmented().source
    ids = segmenter.encode_ids("der 日 Hund")
    assert unk_id in ids and segmenter.decode_ids(ids) == "der <unk> Hund"


def test_words_are_grouped_by_the_marks_at_their_ends() -> None:
    pieces = ["H", "und▁", "(", "der▁", "un", "d▁"]
    assert word_numbers(pieces, whole_words=False) == [0, 0, 1, 1, 2, 2]
    assert word_starts(pieces, whole_words=False) == [True, False, True, True, True, False]
    assert goes_on("und▁", "H") and not goes_on("der▁", "und▁")


# --- files and keys


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "begins with ''"),
        (b"e n</w> 1234\n", "begins with 'e n</w> 1234', not with '#version: 0.2'"),
        (b"#version: 0.1\ne n\n", "begins with '#version: 0.1'"),
        (b"\x0a\x0e\x0a\x05<unk>\xff", "not text in UTF-8"),
        (b"#version: 0.2\n", "no merges"),
        (b"#version: 0.2\ne n</w> 12\n", ":2: 'e n</w> 12' is not a merge"),
        (b"#version: 0.2\ne n\nen </w>\n", ":3: 'en </w>' is not a merge"),
        (b"#version: 0.2\n\n", ":2: '' is not a merge"),
        (b"#version: 0.2\ne n\nen ch</w>\n", ":3: merges 'ch▁', which no line before it makes"),
        (None, "cannot be read: No such file"),
    ],
)
def test_what_are_no_codes_is_refused(content: bytes | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "codes").write_bytes(content)
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        segmented(**{"from": str(tmp_path / "codes")})
    assert str(caught.value).startswith(str(tmp_path / "codes"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("der 12\nHund\n", ":2: 'Hund' is not a piece and its count"),
        ("der@@ zwölf\n", ":1: 'der@@ zwölf' is not"),
        ("der 12\nHundehütte 3\nXyz@@ 1\n", "has 2 pieces that .*codes does not make, such as 'Hundehütte▁'"),
    ],
)
def test_what_is_no_vocabulary_of_the_codes_is_refused(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "vocabulary"
    path.write_text(content, encoding="utf-8")
    for side in COUNTS:
        with pytest.raises(DataError, match=message):
            segmented(vocabulary_threshold=1, **{**COUNTS, side: str(path)})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocabulary_size": 4000}, "nothing is learnt: leave out vocabulary_size"),
        ({"num_merges": 300, "min_frequency": 5}, "leave out num_merges and min_frequency"),
        ({"split_punctuation": True, "split_digits": True}, "leave out split_punctuation and split_digits"),
        ({"kind": "unigram"}, r"from needs kind bpe.*\(given: unigram\)"),
        ({"joint": False}, "target_from goes with joint false"),
        ({"target_from": "codes.en"}, "target_from goes with joint false"),
        ({"from": None, "joint": False, "target_from": "codes.en"}, "target_from needs from"),
        ({"from": None, **COUNTS}, "vocabulary needs from"),
        ({"vocabulary": "vocab.de", "vocabulary_threshold": 1}, "vocabulary and target_vocabulary go together"),
        (COUNTS, "vocabulary needs joint merges, or vocabulary_threshold of at least 1"),
        ({"joint": False, "target_from": "codes.en", **COUNTS}, "vocabulary needs joint merges"),
    ],
)
def test_keys_that_contradict_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        SegmentationConfig.parse({"from": "codes", **options}, origin="recipe.yaml")


def test_files_are_relative_to_the_recipe_and_replace_what_would_be_learnt(tmp_path: Path) -> None:
    recipe = tmp_path / "recipes" / "mine.yaml"
    recipe.parent.mkdir()
    recipe.write_text("extends: package:small-corpus\nsegmentation: {from: bpe/codes}\n", encoding="utf-8")
    assert read_recipe(recipe)["segmentation"] == {
        "kind": "bpe", "joint": True, "from": str(recipe.parent / "bpe" / "codes")
    }  # fmt: skip
    recipe.write_text("extends: package:small-corpus\n", encoding="utf-8")
    values = read_recipe(recipe, [f"segmentation.from={CODES}", "segmentation.joint=merges"])
    assert values["segmentation"] == {"kind": "bpe", "joint": "merges", "from": str(CODES)}


# --- models


def experiment(folder: Path, codes: Path, **options: Any) -> Experiment:
    values = tiny_recipe(folder, training__max_updates=4)
    values["segmentation"] = {"from": str(codes), **options}
    return Experiment.parse(values, origin="test")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained run and the codes that it was made of, which merge `wor`, `t1`, `d1` and `5` at the end."""
    path = tmp_path_factory.mktemp("run")
    write_corpus(path)
    merges = ["w o", "wo r", "t 1", "d 1", "t1 5</w>", "t 2</w>"]
    (path / "codes").write_text("\n".join(["#version: 0.2", *merges, ""]), encoding="utf-8")
    train(experiment(path, path / "codes"), path / "run", NoDisplay())
    return path


SOURCES, TARGETS = ["wort15 wort2 wort7", "wort7", "wort11 neu wort5"], ["word7 word2", "word7 word7", "neu word15"]


def test_a_model_needs_none_of_the_files(folder: Path, tmp_path: Path) -> None:
    expected = Translator.load(folder / "run").score(SOURCES, TARGETS)
    run = shutil.copytree(folder / "run", tmp_path / "moved")
    recipe = (run / "experiment.yaml").read_text(encoding="utf-8")
    (run / "experiment.yaml").write_text(recipe.replace(str(folder / "codes"), str(tmp_path / "nowhere")), "utf-8")
    moved = Translator.load(run)
    assert moved.score(SOURCES, TARGETS) == expected
    assert moved.segmentation.source.encode("wort15") == ["wor", "t15▁"]
    moved.save_pretrained(tmp_path / "shared")
    shared = Translator.from_pretrained(tmp_path / "shared")
    assert shared.score(SOURCES, TARGETS) == expected
    assert str(tmp_path) not in (tmp_path / "shared" / "experiment.yaml").read_text(encoding="utf-8")
    assert shared.experiment.segmentation.codes == Path("nowhere")
    export_ctranslate2(tmp_path / "shared", tmp_path / "exported")
    segmentation = Segmentation.load(tmp_path / "exported" / "segmentation")
    engine = ctranslate2.Translator(str(tmp_path / "exported"), device="cpu", compute_type="float32", intra_threads=1)
    pieces = [*map(segmentation.source.encode, SOURCES)], [*map(segmentation.target.encode, TARGETS)]
    found = [sum(each.log_probs) for each in engine.score_batch(*pieces)]
    assert found == pytest.approx([each.log_probability for each in expected], 1e-5)


def test_a_training_starts_from_such_a_model(folder: Path, tmp_path: Path) -> None:
    values = tiny_recipe(folder, training__max_updates=2)
    del values["segmentation"], values["model"]
    values["training"]["from"] = str(folder / "run")
    train(Experiment.load(values), tmp_path / "tuned", NoDisplay())
    ours, theirs = (Segmentation.load(run / "segmentation") for run in (tmp_path / "tuned", folder / "run"))
    assert ours.fingerprint() == theirs.fingerprint()


def test_a_training_resumes_wherever_the_same_codes_are_and_not_with_others(folder: Path, tmp_path: Path) -> None:
    codes = tmp_path / "codes"
    codes.write_bytes((folder / "codes").read_bytes())
    run = tmp_path / "run"
    train(experiment(folder, codes), run, NoDisplay())
    train(experiment(folder, folder / "codes"), run, NoDisplay())
    codes.write_text("#version: 0.2\nw o\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"files of segmentation.from have changed"):
        train(experiment(folder, codes), run, NoDisplay())
    codes.unlink()
    train(experiment(folder, codes), run, NoDisplay())
    learnt = tiny_recipe(folder, training__max_updates=4, segmentation={"kind": "bpe"})
    with pytest.raises(ConfigurationError, match=r"another configuration: .*segmentation.from"):
        train(Experiment.parse(learnt, origin="test"), run, NoDisplay())


def test_untrained_pieces_are_made_again_if_the_codes_have_changed(folder: Path, tmp_path: Path) -> None:
    codes, directory = tmp_path / "codes", TrainingDirectory(tmp_path / "run")
    directory.path.mkdir()
    sizes = list[int]()
    for merges in ("w o\n", "w o\n", "w o\nwo r\n"):
        codes.write_text(f"#version: 0.2\n{merges}", encoding="utf-8")
        prepare_segmentation(experiment(folder, codes), directory, NoDisplay())
        sizes.append(Segmentation.load(directory.segmentation).source.vocabulary_size)
    assert sizes[0] == sizes[1] == sizes[2] - 1


def test_merges_can_be_left_out_at_random(folder: Path) -> None:
    given = experiment(folder, folder / "codes")
    segmentation = Segmentation.load(folder / "run" / "segmentation")
    store = build_store(given.data, segmentation)
    everything = range(len(store))
    assert ResegmentedStore(store, segmentation, 0.0, 1).of_epoch(0).pairs(everything) == store.pairs(everything)
    dropped = ResegmentedStore(store, segmentation, 0.4, 1).of_epoch(0).pairs(everything)
    assert dropped != store.pairs(everything)
    sides: tuple[Segmenter, Segmenter] = segmentation.source, segmentation.target
    for number, segmenter in enumerate(sides):
        for pair, stored in zip(dropped, store.pairs(everything), strict=True):
            assert segmenter.decode_ids(pair[number]) == segmenter.decode_ids(stored[number])


def test_a_segmentation_is_saved_and_loaded(tmp_path: Path) -> None:
    for number, options in enumerate(({}, {"joint": "merges", **COUNTS}, {"joint": False, "target_from": str(CODES)})):
        segmentation = segmented(tags=["<2en>"], **options)
        segmentation.save(tmp_path / str(number))
        loaded = Segmentation.load(tmp_path / str(number))
        assert loaded.fingerprint() == segmentation.fingerprint() and loaded.config == segmentation.config
        assert not loaded.config.files and str(HERE) not in "".join(
            path.read_text(encoding="utf-8") for path in (tmp_path / str(number)).iterdir()
        )
        for line in texts(0)[1]:
            assert loaded.source.encode_ids(f"<2en> {line}") == segmentation.source.encode_ids(f"<2en> {line}")
