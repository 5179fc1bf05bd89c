"""The size of a model and the length of a training, as functions of a corpus and a machine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
import torch

from jointnmt.analysis.parameters import count_parameters
from jointnmt.experiment import Experiment
from jointnmt.planning import speed
from jointnmt.planning.sizing import LONGER, PATIENCE, SIZES, CorpusCounts, Machine, PlannedFamily, plan, size_for
from jointnmt.training.outlook import Outlook
from support.tiny_run import experiment as tiny_experiment

LAPTOP = Machine(cores=4, memory=16.0, rates={"float32": 2000.0, "bfloat16": 6000.0})


def counts(pairs: int) -> CorpusCounts:
    """Counts of a text with eight words in a sentence."""
    return CorpusCounts(pairs, 8 * pairs, 12 * pairs, 256)


CORPORA = [counts(pairs) for pairs in (500, 3_000, 10_000, 30_000, 160_000, 2_000_000, 30_000_000)]
DATA: dict[str, Any] = {"source_language": "de", "target_language": "en", "train": [{"path": "a.tsv"}]}
DATA |= {"validation": [{"path": "b.tsv"}]}


@pytest.mark.parametrize("family", get_args(PlannedFamily))
@pytest.mark.parametrize("corpus", CORPORA, ids=lambda corpus: f"{corpus.pairs}")
def test_every_plan_is_a_valid_recipe(corpus: CorpusCounts, family: PlannedFamily) -> None:
    experiment = Experiment.parse({"name": "mine", "data": DATA, **plan(corpus, LAPTOP, family).values}, "test")
    assert experiment.model.family == family
    assert experiment.model.max_length is not None
    assert experiment.batches.update_tokens >= experiment.model.max_length


@pytest.mark.parametrize("corpus", CORPORA, ids=lambda corpus: f"{corpus.pairs}")
def test_the_warm_up_is_a_tenth_and_patience_lasts_longer(corpus: CorpusCounts) -> None:
    chosen = plan(corpus, LAPTOP)
    values = chosen.values
    warmup = values["training"]["schedule"]["warmup_steps"]
    assert chosen.updates / 11 < warmup <= chosen.updates / 10 + 1
    assert PATIENCE * values["validation"]["every_updates"] > 2 * warmup
    assert chosen.updates % values["validation"]["every_updates"] == 0  # the last weights are validated
    assert values["training"]["schedule"]["zero_at"] == values["training"]["max_updates"] == chosen.updates


def test_smaller_corpora_get_smaller_vocabularies_and_more_dropout_and_passes() -> None:
    sizes = [size_for(corpus.words) for corpus in CORPORA]
    assert [size.vocabulary for size in sizes] == sorted(size.vocabulary for size in sizes)
    of_one_width = [size.dropout for size in sizes if size.width == sizes[0].width]
    assert of_one_width == sorted(of_one_width, reverse=True)
    assert [size.passes for size in sizes] == sorted((size.passes for size in sizes), reverse=True)
    assert sizes[1] == SIZES[0] and sizes[-1] == SIZES[-1]


def test_each_character_may_be_a_piece() -> None:
    assert size_for(6_000, 90) == size_for(6_000), "an alphabet changes nothing"
    assert size_for(6_000, 1_100).vocabulary == 1_400
    assert size_for(10**9, 5_000) == size_for(10**9)


@pytest.mark.parametrize("corpus", CORPORA, ids=lambda corpus: f"{corpus.pairs}")
def test_families_have_about_as_many_parameters(corpus: CorpusCounts) -> None:
    """Outside the embeddings, so that comparisons are between families."""
    numbers = {}
    for family in get_args(PlannedFamily):
        experiment = Experiment.parse({"name": "mine", "data": DATA, **plan(corpus, LAPTOP, family).values}, "test")
        numbers[family] = sum(count_parameters(experiment.model, 1000, 1000).rest.values())
    assert numbers["reformer-base"] == pytest.approx(numbers["transformer"], rel=0.02)
    assert numbers["reformer-fast"] == pytest.approx(numbers["transformer"], rel=0.15)


def test_reformers_have_as_little_dropout_as_suits_them() -> None:
    rates = {
        family: [plan(each, LAPTOP, family).values["model"]["dropout"] for each in CORPORA]
        for family in get_args(PlannedFamily)
    }
    assert rates["transformer"] == [size_for(each.words).dropout for each in CORPORA]
    assert rates["reformer-fast"] == rates["reformer-base"] == [min(0.1, rate) for rate in rates["transformer"]]


def test_updates_follow_from_the_counted_pieces() -> None:
    few, many = (plan(CorpusCounts(5_000, 40_000, pieces, 256), LAPTOP) for pieces in (60_000, 120_000))
    assert many.updates == pytest.approx(2 * few.updates, rel=0.02)
    assert few.updates == pytest.approx(few.size.passes * 60_000 / few.size.update_pieces, rel=0.02)


def test_the_fastest_measured_precision_is_taken() -> None:
    corpus = CORPORA[1]
    assert plan(corpus, LAPTOP).values["training"]["precision"] == "bfloat16"
    assert (
        plan(corpus, Machine(1, rates={"float32": 9.0, "bfloat16": 2.0})).values["training"]["precision"] == "float32"
    )


def test_updates_do_not_depend_on_the_machine_but_batches_do() -> None:
    corpus = CORPORA[4]
    machines = LAPTOP, Machine(1, memory=2.0), Machine(8, gpu="a GPU", rates={"bfloat16": 9.0})
    plans = [plan(corpus, machine) for machine in machines]
    assert len({each.updates for each in plans}) == 1
    assert {each.values["batches"]["update_tokens"] for each in plans} == {1024}
    assert plans[1].values["batches"]["max_tokens"] < plans[0].values["batches"]["max_tokens"]
    assert plans[2].values["training"]["precision"] == "bfloat16"


def test_a_longer_training_has_more_passes_and_some_dropout() -> None:
    for corpus in CORPORA:
        usual, longer = (plan(corpus, LAPTOP, longer=longer) for longer in (False, True))
        assert longer.updates == pytest.approx(LONGER * usual.updates, rel=0.05)
        assert longer.values["model"]["dropout"] == max(usual.values["model"]["dropout"], 0.1)
        schedules = [each.values["training"]["schedule"] for each in (usual, longer)]
        assert schedules[1]["zero_at"] == longer.updates
        assert schedules[1]["warmup_steps"] == pytest.approx(LONGER * schedules[0]["warmup_steps"], rel=0.05)
        assert longer.values["segmentation"] == usual.values["segmentation"]


def test_nothing_to_learn_from() -> None:
    with pytest.raises(ValueError, match="no text"):
        plan(counts(0), LAPTOP)


@pytest.mark.parametrize("pairs", [500, 1_000, 2_000, 3_000, 9_000, 50_000])
def test_training_has_nothing_against_the_plan(pairs: int) -> None:
    """Except that fewer than 2,000 pairs are too few for any useful model."""
    corpus = counts(pairs)
    chosen = plan(corpus, LAPTOP)
    experiment = Experiment.parse({"name": "mine", "data": DATA, **chosen.values}, "test")
    vocabulary = chosen.size.vocabulary
    pieces = corpus.pieces
    parameters = count_parameters(experiment.model, vocabulary, vocabulary).total
    warnings = Outlook(experiment, pieces // 1024 + 1, pairs, pieces, parameters, vocabulary).warnings()
    assert ["it will overfit" in warning for warning in warnings] == ([True] if pairs < 2_000 else [])


@pytest.mark.parametrize(("limit", "memory"), [("2147483648", 2.0), ("max", None), ("", None)])
def test_a_container_has_the_memory_that_it_may_use(
    limit: str, memory: float | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "memory.max").write_text(limit)
    monkeypatch.setattr(speed, "MEMORY_LIMIT", tmp_path / "nothing")
    whole = speed.machine().memory
    monkeypatch.setattr(speed, "MEMORY_LIMIT", tmp_path / "memory.max")
    assert whole and whole > 2 and speed.machine().memory == (memory or whole)


@pytest.fixture
def faked_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """A measurement of speed that computes nothing, on what seems to be a GPU."""
    fakes = {
        "launch_fabric": lambda *_: SimpleNamespace(device=torch.device("cuda")),
        "measure_rates": lambda trainers, seconds: dict.fromkeys(trainers, 1.0),
        "_validation": lambda *_: (1.0, 1.0),
    }
    for name in ("build_store", "untrained", "_validation", "keep_freed_memory", "launch_fabric", "measure_rates"):
        monkeypatch.setattr(speed, name, fakes.get(name, lambda *_, **__: 1.0))


@pytest.mark.usefixtures("faked_training")
def test_a_gpu_that_would_emulate_bfloat16_is_measured_in_float32(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: including_emulation)
    segmentation: Any = None
    assert speed.measure_speed(tiny_experiment(), segmentation, tmp_path).rates.keys() == {"float32"}


@pytest.mark.usefixtures("faked_training")
@pytest.mark.parametrize(("waited", "warned"), [(0.1, 0), (0.4, 1)])
def test_a_measurement_beside_other_work_is_warned_of(
    waited: float,
    warned: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    threads = iter([{"1": 7.0, "2": 8.0}, {"1": 7.0, "2": 8.0 + 10 * waited, "3": 0.2}])
    monkeypatch.setattr(speed, "seconds_without_core", lambda: next(threads))
    monkeypatch.setattr(speed, "time", SimpleNamespace(monotonic=iter([100.0, 110.0]).__next__))
    segmentation: Any = None
    speed.measure_speed(tiny_experiment(), segmentation, tmp_path)
    assert [record.getMessage()[:55] for record in caplog.records if record.levelname == "WARNING"] == warned * [
        "other programs kept the processor busy: for 40% of the "
    ]
