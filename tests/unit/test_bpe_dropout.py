"""BPE-dropout: the pieces of a word by Algorithm 1, and those of an epoch."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from jointnmt.data.batch import Batch
from jointnmt.data.bpe_dropout import ResegmentedStore, _Segmented, _Words, segment_word
from jointnmt.data.store import TokenStore, build_store
from jointnmt.errors import ConfigurationError
from jointnmt.experiment import Experiment
from jointnmt.text.segmentation import Segmentation
from jointnmt.training.progress import NoDisplay
from jointnmt.training.report import StepReport
from jointnmt.training.run import train
from jointnmt.training.trainer import Trainer
from support.runs import At, assert_same_runs
from support.tiny import tiny_recipe, write_corpus

MERGES = {(1, 2): (0, 4), (2, 3): (1, 5), (4, 3): (2, 6), (1, 5): (3, 6), (6, 1): (4, 7)}
"""Merges of the letters 1, 2, 3."""


def distribution(pieces: tuple[int, ...], rate: float) -> dict[tuple[int, ...], float]:
    """Probability of each outcome of Algorithm 1, by enumeration of all sets of dropped merges."""
    possible = [(*MERGES[pair], at) for at, pair in enumerate(pairwise(pieces)) if pair in MERGES]
    found: Counter[tuple[int, ...]] = Counter()
    for subset in range(2 ** len(possible)):
        kept = [merge for bit, merge in enumerate(possible) if subset >> bit & 1]
        chance = (1 - rate) ** len(kept) * rate ** (len(possible) - len(kept))
        if not kept:
            found[pieces] += chance
            continue
        _, merged, at = min(kept)
        for outcome, probability in distribution((*pieces[:at], merged, *pieces[at + 2 :]), rate).items():
            found[outcome] += chance * probability
    return found


@pytest.mark.parametrize("rate", [0.1, 0.6])
def test_a_word_is_cut_with_the_probabilities_of_the_algorithm(rate: float) -> None:
    letters, draws, draw = (1, 2, 3, 1, 2), 20_000, Random(1).random
    seen = Counter(segment_word(letters, MERGES, rate, draw) for _ in range(draws))
    expected = distribution(letters, rate)
    assert seen.keys() <= expected.keys() and abs(sum(expected.values()) - 1) < 1e-9
    for outcome, probability in expected.items():
        deviation = (probability * (1 - probability) / draws) ** 0.5
        assert abs(seen[outcome] / draws - probability) < 5 * deviation + 1e-9, outcome
    assert segment_word(letters, MERGES, 0, draw) == (6, 4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus")
    write_corpus(path)
    return path


def experiment(folder: Path, kind: str = "bpe", **options: Any) -> Experiment:
    """An experiment with a vocabulary of whole words, and a tag before each source."""
    segmentation = {"kind": kind, "vocabulary_size": 60, "min_frequency": 1, **options}
    values = tiny_recipe(folder, segmentation=segmentation)
    values["data"]["train"][0]["tag"] = "<t>"
    values["training"]["bpe_dropout"] = 0.3
    return Experiment.parse(values, origin="test")


@pytest.fixture(scope="module")
def text(folder: Path) -> tuple[TokenStore, Segmentation]:
    train(experiment(folder), folder / "run", NoDisplay())
    segmentation = Segmentation.load(folder / "run" / "segmentation")
    return build_store(experiment(folder).data, segmentation), segmentation


def test_without_dropout_the_pieces_are_those_of_the_tokenizer(text: tuple[TokenStore, Segmentation]) -> None:
    store, segmentation = text
    epoch = ResegmentedStore(store, segmentation, 0.0, 1).of_epoch(0)
    assert epoch.pairs(range(len(store))) == store.pairs(range(len(store)))
    assert all(np.array_equal(one, other) for one, other in zip(epoch.lengths, store.lengths, strict=True))


def test_an_epoch_has_the_same_text_in_other_pieces(text: tuple[TokenStore, Segmentation]) -> None:
    store, segmentation = text
    everything = range(len(store))
    resegmented = ResegmentedStore(store, segmentation, 0.3, 1)
    first, second = (resegmented.of_epoch(number) for number in (0, 1))
    again = ResegmentedStore(store, segmentation, 0.3, 1).of_epoch(0)
    other = ResegmentedStore(store, segmentation, 0.3, 2).of_epoch(0)
    assert first.pairs(everything) == again.pairs(everything), "a pure function of store, seed and epoch"
    assert first.pairs(everything) != second.pairs(everything) and first.pairs(everything) != other.pairs(everything)
    stored = store.pairs(everything)
    for (source, target), (plain_source, plain_target) in zip(first.pairs(everything), stored, strict=True):
        assert segmentation.source.piece(source[0]) == "<t>"
        assert segmentation.source.decode_ids(source) == segmentation.source.decode_ids(plain_source)
        assert segmentation.target.decode_ids(target) == segmentation.target.decode_ids(plain_target)
    lengths = [[len(ids) + 1 for ids in side] for side in zip(*first.pairs(everything), strict=True)]
    assert lengths == [side.tolist() for side in first.lengths]
    assert first.lengths[0].sum() > store.lengths[0].sum()


def test_digits_stay_apart(folder: Path, tmp_path: Path) -> None:
    settled = experiment(folder, split_digits=True)
    train(settled, tmp_path / "run", NoDisplay())
    segmentation = Segmentation.load(tmp_path / "run" / "segmentation")
    store = build_store(settled.data, segmentation)
    pairs = ResegmentedStore(store, segmentation, 0.3, 1).of_epoch(0).pairs(range(len(store)))
    assert pairs != store.pairs(range(len(store)))
    pieces = {segmentation.target.piece(piece) for _, target in pairs for piece in target}
    assert {piece for piece in pieces if any(map(str.isdecimal, piece))} == set("0123456789")


def test_no_limit_that_the_store_keeps_is_exceeded(text: tuple[TokenStore, Segmentation]) -> None:
    store, segmentation = text
    source, target = ResegmentedStore(store, segmentation, 0.4, 1).of_epoch(0).lengths
    assert source.max() <= store.lengths[0].max() and target.max() <= store.lengths[1].max()
    cells = store.lengths[0].astype(int) * store.lengths[1]
    assert (source.astype(int) * target).max() <= cells.max()
    assert source.sum() > store.lengths[0].sum()


def test_no_grid_is_larger_than_any_of_the_store(text: tuple[TokenStore, Segmentation], tmp_path: Path) -> None:
    """Two narrow grids, and a square one that in any segmentation is within both lengths, but not within the cells."""
    sources, targets = [f"wort{i}" for i in range(8)], [f"word{i}" for i in range(8)]
    sizes = (8, 1), (1, 8), (3, 3)
    for name, words, side in (("train.de", sources, 0), ("train.en", targets, 1)):
        lines = "".join(f"{' '.join(words[: size[side]])}\n" for size in sizes)
        (tmp_path / name).write_text(lines, encoding="utf-8")
    store = build_store(experiment(tmp_path).data, text[1])
    cells = store.lengths[0].astype(int) * store.lengths[1]
    assert len(store) == 3
    drawn = [ResegmentedStore(store, text[1], 0.2, 1).of_epoch(epoch) for epoch in range(60)]
    assert all((each.lengths[0].astype(int) * each.lengths[1]).max() <= cells.max() for each in drawn)


def test_a_loss_is_the_mean_over_the_tokens_of_its_epoch(
    text: tuple[TokenStore, Segmentation], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    step = Trainer._step

    def noting(self: Trainer, batches: list[Batch], divisor: int, *rest: Any) -> StepReport:
        seen.append((divisor, sum(int(batch.target_mask.sum()) for batch in batches)))
        return step(self, batches, divisor, *rest)

    monkeypatch.setattr(Trainer, "_step", noting)
    train(experiment(folder), tmp_path / "run", NoDisplay())
    assert seen and [divisor for divisor, _ in seen] == [tokens for _, tokens in seen]


def test_it_resumes_exactly(text: tuple[TokenStore, Segmentation], folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        train(experiment(folder), tmp_path / "cut", At(5, lambda: 1 / 0))
    train(experiment(folder), tmp_path / "cut", NoDisplay())
    assert_same_runs(folder / "run", tmp_path / "cut")


def test_pieces_that_are_not_of_bpe_are_refused_before_any_work(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"bpe_dropout needs segmentation.kind bpe: the pieces of unigram"):
        experiment(folder, "unigram")


def test_the_time_of_a_long_word_grows_with_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """A word is cut where it would be merged for long, and the text is drawn in slices."""
    letters, merges = tuple(range(3, 13)) * 50, {(number, number + 1): (number, number + 20) for number in range(3, 12)}
    steps: list[int] = []
    monkeypatch.setattr("jointnmt.data.bpe_dropout.segment_word", lambda part, *_: steps.append(len(part)) or part)
    words = _Words([letters, (3,)], np.array([0, 1, 0], np.int32), np.array([0, 3]))
    drawn = _Segmented.draw(words, merges, 0.5, [1])
    assert steps == [200, 200, 100] * 2 + [1] and drawn.ids(0) == [*letters, 3, *letters]
    monkeypatch.setattr("jointnmt.data.bpe_dropout.WORDS_AT_ONCE", 2)
    many = _Words([(3, 4)], np.zeros(99, np.int32), np.array([0, 99]))
    in_slices = _Segmented.draw(many, merges, 0.5, [1]).chosen
    monkeypatch.undo()
    assert in_slices.tolist() == _Segmented.draw(many, merges, 0.5, [1]).chosen.tolist()
