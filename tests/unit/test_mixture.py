"""Several texts in one training: the frequency of their pairs in an epoch, and the tags of their sources."""

from __future__ import annotations

import json
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from jointnmt.cli.main import app
from jointnmt.data import order
from jointnmt.data.length_buckets import BatchConfig
from jointnmt.data.mixture import WeightedPairs, epoch_pairs, plan_mixture
from jointnmt.data.store import TokenStore, build_store
from jointnmt.errors import ConfigurationError, ModelError
from jointnmt.experiment import Experiment
from jointnmt.text.config import SegmentationConfig
from jointnmt.text.segmentation import Segmentation
from jointnmt.training.progress import NoDisplay
from jointnmt.training.run import train
from jointnmt.translator import TranslationOptions, Translator
from support.runs import At, assert_same_runs
from support.tiny import tiny_recipe, write_corpus

TAGS = ("<2en>", "<bt>")


def pairs_of(sizes: list[int], weights: tuple[float, ...], seed: int, epoch: int) -> np.ndarray:
    pairs = WeightedPairs(sizes, weights, seed, epoch)
    return pairs(np.arange(len(pairs)))


@settings(max_examples=50, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=3),
    quarters=st.lists(st.integers(1, 13), min_size=3, max_size=3),
    seed=st.integers(0, 5),
)
def test_each_pair_occurs_as_often_as_its_weight_says(sizes: list[int], quarters: list[int], seed: int) -> None:
    """Exact in each epoch to one pair, and over epochs no pair is ahead of another by more than one turn."""
    texts, weights = np.repeat(np.arange(len(sizes)), sizes), tuple(each / 4 for each in quarters[: len(sizes)])
    total: Counter[int] = Counter()
    for epoch in range(8):
        pairs = pairs_of(sizes, weights, seed, epoch)
        assert np.array_equal(pairs, pairs_of(sizes, weights, seed, epoch))
        counts = np.bincount(texts[pairs], minlength=len(sizes))
        for size, weight, count in zip(sizes, weights, counts, strict=True):
            assert abs(count - max(1, size * weight)) <= 0.5
        total.update(pairs.tolist())
    for number in range(len(sizes)):
        of_text = [total[pair] for pair in np.flatnonzero(texts == number)]
        assert max(of_text) - min(of_text) <= 1


def test_fractions_take_turns_in_an_order_that_follows_seed_and_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    for listed in (100, 10):  # as a list, or without one
        monkeypatch.setattr(order, "LISTED", listed)
        epochs = [pairs_of([40], (0.25,), 1, epoch).tolist() for epoch in range(8)]
        assert sorted(chain(*epochs[:4])) == sorted(chain(*epochs[4:])) == list(range(40))
        assert epochs[:4] != epochs[4:] and epochs[0] != pairs_of([40], (0.25,), 2, 0).tolist()


def test_pairs_are_found_by_their_positions_alone() -> None:
    pairs = WeightedPairs([7, 0, 5], (2.5, 3, 0.7), 1, 5)
    every = pairs(np.arange(len(pairs)))
    assert every[:14].tolist() == [*range(7), *range(7)]
    places = np.random.default_rng(1).permutation(len(pairs))
    assert pairs(places).tolist() == every[places].tolist()


def recipe(folder: Path, **changes: Any) -> dict[str, Any]:
    """Two texts with tags, the second with weight 2.5, like two directions of the same files."""
    values = tiny_recipe(folder, segmentation={"kind": "bpe", "vocabulary_size": 60, "min_frequency": 1})
    values["data"]["train"] = [
        {"source": "train.de", "target": "train.en", "tag": TAGS[0]},
        {"source": "train.de", "target": "train.en", "tag": TAGS[1], "weight": 2.5},
    ]
    values["data"]["validation"][0]["tag"] = TAGS[0]
    return {**values, **changes}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mixture")
    write_corpus(folder)
    train(Experiment.parse(recipe(folder), origin="test"), folder / "run", NoDisplay())
    return folder / "run"


def stored(run: Path) -> TokenStore:
    return build_store(Experiment.load(run / "experiment.yaml").data, Segmentation.load(run / "segmentation"))


def test_an_epoch_has_the_texts_by_weight_and_each_source_its_tag(run: Path) -> None:
    store, segmenter = stored(run), Segmentation.load(run / "segmentation").source
    updates = plan_mixture(store, store, BatchConfig(), 1, 0)
    pairs = [int(pair) for update in updates for batch in update for pair in batch]
    assert store.text_sizes() == [120, 120]
    numbers = np.repeat([0, 1], store.text_sizes())
    assert Counter(numbers[pairs].tolist()) == {0: 120, 1: 300}
    assert epoch_pairs(store) == 420
    for number, (source, _) in zip(numbers.tolist(), store.pairs(range(len(store))), strict=True):
        assert segmenter.piece(source[0]) == TAGS[number]
        assert segmenter.decode_ids(source).startswith("wort")


def test_it_resumes_exactly_and_not_with_other_weights(run: Path, tmp_path: Path) -> None:
    experiment = Experiment.load(run / "experiment.yaml")
    with pytest.raises(ZeroDivisionError):
        train(experiment, tmp_path / "cut", At(5, lambda: 1 / 0))
    train(experiment, tmp_path / "cut", NoDisplay())
    assert_same_runs(run, tmp_path / "cut")
    other = Experiment.load(run / "experiment.yaml", ["data.train.1.weight=2", "training.max_updates=14"])
    with pytest.raises(ConfigurationError, match=r"data.train.1.weight: 2.5 -> 2.0"):
        train(other, tmp_path / "cut", NoDisplay())
    configuration = tmp_path / "cut" / "experiment.yaml"
    configuration.write_text(configuration.read_text().replace("weight: 2.5", "weight: 2.0"))
    with pytest.raises(ModelError, match=r"weights.1: 2.5 -> 2.0"):
        train(other, tmp_path / "cut", NoDisplay())


def test_a_line_is_translated_with_its_tag_or_that_of_the_command(run: Path) -> None:
    translator = Translator.load(run)
    by_option = list(translator.translate_stream(["wort1", " "], TranslationOptions(tag="<bt>")))
    (by_text,) = translator.translate_stream(["<bt> wort1"])
    assert by_option[0].source_tokens == by_text.source_tokens and by_text.source_tokens[0] == "<bt>"
    assert by_option[0].candidates[0].score == by_text.candidates[0].score
    (other,) = translator.translate_stream(["<2en> wort1"])
    assert other.candidates[0].score != by_text.candidates[0].score
    assert not by_option[1].candidates, "an empty line stays empty"
    (inside,) = translator.translate_stream(["wort1 <bt>"])
    assert "<bt>" not in inside.source_tokens
    called = CliRunner().invoke(app, ["translate", str(run), "--json", "--tag", "<bt>"], input="wort1\n")
    assert json.loads(called.stdout)["source_tokens"][0] == "<bt>"
    wrong = CliRunner().invoke(app, ["translate", str(run), "--tag", "<2fr>"], input="wort1\n")
    assert wrong.exit_code == 2 and "It has <2en>, <bt>." in " ".join(wrong.stderr.split())


def test_a_line_without_a_tag_is_warned_of_once_if_the_model_has_seen_tagged_text_alone(
    run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    translator = Translator.load(run)
    list(translator.translate_stream(["", "<bt> wort1"]))
    list(translator.translate_stream(["wort1"], TranslationOptions(tag="<bt>")))
    assert "without a tag" not in caplog.text
    assert len(list(translator.translate_stream(["<bt> wort1", "wort1", "wort2"]))) == 3
    assert caplog.text.count("without a tag") == 1 and "Text 2 begins without a tag" in caplog.text
    translator.experiment.data.train[0].__dict__["tag"] = None  # then it also knows text without a tag
    caplog.clear()
    list(translator.translate_stream(["wort1"]))
    assert "without a tag" not in caplog.text


@pytest.mark.parametrize("kind", ["bpe", "unigram", "word"])
@pytest.mark.parametrize("joint", [True, False])
def test_tags_are_pieces_by_themselves_that_no_text_makes(kind: Any, joint: bool, tmp_path: Path) -> None:
    config = SegmentationConfig(kind=kind, joint=joint, vocabulary_size=40, min_frequency=1, tags=TAGS)
    lines = ["<2en> ab <bt> cd"] * 3 + ["a b c d < > 2 e n t"] * 3
    segmentation = Segmentation.train(config, lines, ["ab <2en> cd"] * 3, "de", "en")
    segmentation.save(tmp_path)
    for each in (segmentation, Segmentation.load(tmp_path)):
        assert each.source.encode("<bt> ab")[0] == "<bt>"
        assert each.source.encode_ids("<bt> ab")[1:] == each.source.encode_ids("ab")
        assert each.source.encode("  <bt>  ") == []
        assert all(each.source.encode(f"<bt>{space}ab")[0] == "<bt>" for space in "\t\u3000\u00a0")
        assert each.target.encode_ids("<bt> ab")[:1] != each.source.encode_ids("<bt> ab")[:1]
        assert each.source.decode_ids(each.source.encode_ids("<2en> ab")) == "ab"


def test_a_segmentation_without_its_tags_is_damaged(tmp_path: Path) -> None:
    config = SegmentationConfig(vocabulary_size=40, min_frequency=1, tags=TAGS)
    Segmentation.train(config, ["ab cd"], ["ab"], "de", "en").save(tmp_path)
    settings = tmp_path / "segmentation.json"
    settings.write_text(settings.read_text().replace("<bt>", "<no>"))
    with pytest.raises(ModelError, match="the vocabulary lacks the tag <no>"):
        Segmentation.load(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tag": "2en"}, "a tag should be a word in angle brackets"),
        ({"tag": "<pad>"}, "not a special piece"),
        ({"tag": "<a b>"}, "a tag should be a word"),
        ({"weight": 0}, "more than 0"),
    ],
)
def test_other_tags_and_weights_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    values = recipe(tmp_path)
    values["data"]["train"][0] |= changes
    with pytest.raises(ConfigurationError, match=message):
        Experiment.parse(values, origin="test")
    values = recipe(tmp_path)
    values["data"]["validation"][0]["weight"] = 2
    with pytest.raises(ConfigurationError, match="validation texts have no weight"):
        Experiment.parse(values, origin="test")


@pytest.mark.slow
def test_a_model_to_begin_with_has_to_know_the_tags(run: Path, tmp_path: Path) -> None:
    values = recipe(run.parent)
    values["training"]["from"] = str(run)
    del values["model"], values["segmentation"]
    path = tmp_path / "tuned.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    assert Experiment.load(path).segmentation.tags == TAGS
    with pytest.raises(ConfigurationError, match=r"segmentation\.tags: <2en>, <bt> -> <2en>, <bt>, <x>"):
        Experiment.load(path, ["data.train.0.tag=<x>"])
