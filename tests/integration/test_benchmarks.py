"""The benchmarks: their counts are right, and each of them runs."""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from benchmarks import __main__ as command
from benchmarks import cluster, lengths, paired, preparation, shortcuts, traffic
from benchmarks.comparing import compare
from benchmarks.counting import decoding_operations, forward_operations, training_operations
from benchmarks.decoding import Decoding, DecodingCase
from benchmarks.engines import CTranslate2Decoding, of_one_length
from benchmarks.growth import growth, growth_figure
from benchmarks.machine import description, peak_bytes, product_rate, resident_bytes
from benchmarks.padding import epoch_padding
from benchmarks.processes import SubjectLostError, Work, Worker
from benchmarks.profiling import shares_of_time
from benchmarks.report import Report
from benchmarks.sizes import SIZES, model_config
from benchmarks.traffic import Counting, count_update
from benchmarks.training import Training, TrainingCase
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from jointnmt.data.batches import plan_epoch
from jointnmt.data.length_buckets import BatchConfig
from jointnmt.models import FAMILIES, build_model
from jointnmt.models.layers.dropout import SharedDropout
from jointnmt.models.reference import Reference
from jointnmt.models.reformer import ReformerBaseConfig
from jointnmt.ops import AttentionMask, BFloat16Linear, add_norm, axial_attention, dropout_mask, mlp_update
from jointnmt.ops.native import library
from support.tiny_run import write_run

VOCABULARY = SIZES["tiny"].vocabulary
SOURCE, TARGET = np.array([5, 9, 7, 3], dtype=np.int32), np.array([6, 4, 8, 2], dtype=np.int32)
LAYERS = BFloat16Linear.of(torch.nn.Linear(512, 1024)), BFloat16Linear.of(torch.nn.Linear(1024, 512))
NO_DROPOUT = SharedDropout(0.0)
every_family = pytest.mark.parametrize("family", FAMILIES)


@every_family
def test_useful_operations_are_those_of_the_references_products(family: str) -> None:
    """The library counts the products of the reference, which also computes scores of the future."""
    model = build_model(model_config(family, "tiny"), VOCABULARY, VOCABULARY)
    source, target = 7, 5
    ids = torch.randint(4, VOCABULARY, (2, 1, 9))
    with FlopCounterMode(display=False) as forward:
        logits = Reference(model.config, model.state_dict())(ids[0][:, :source], ids[1][:, :target])
    with FlopCounterMode(display=False) as backward:
        logits.sum().backward()
    config: Any = model.config
    layers, columns = (config.decoder_layers, 1) if family == "transformer" else (config.num_layers, source)
    future = layers * columns * 4 * config.embed_dim * target * (target - 1) // 2
    expected = forward_operations(config, VOCABULARY, source, target)
    assert forward.get_total_flops() - future == expected
    assert training_operations(config, VOCABULARY, source, target) == 3 * expected
    assert backward.get_total_flops() - 2 * future == 2 * expected


@every_family
def test_operations_of_decoding_are_those_of_the_rows(family: str) -> None:
    config, beam, lengths = model_config(family, "tiny"), 5, np.arange(1, 9)
    whole = decoding_operations(config, VOCABULARY, 7, lengths, beam)
    once = forward_operations(config, VOCABULARY, 7, lengths)
    assert whole[0] == once[0]
    assert (np.diff(whole) == beam * np.diff(once)).all()
    assert (decoding_operations(config, VOCABULARY, 7, lengths, 1) == once).all()


def test_the_documented_operations_are_the_counted_ones(repository: Path) -> None:
    page = (repository / "docs/performance.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\w-]+), (\w+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", page, re.M)
    assert len(rows) == 6
    for family, size, *told in rows:
        config, vocabulary = model_config(family, size), SIZES[size].vocabulary
        counted = [count(config, vocabulary, 23, 23) for count in (forward_operations, training_operations)]
        counted.append(decoding_operations(config, vocabulary, 23, 23, 5))
        assert told == [f"{each / 1e9:.3f}" for each in counted]


def training_case(family: str, implementation: Any = "product", **changes: Any) -> TrainingCase:
    values = {"max_tokens": 10, "max_cells": 200, "updates": 2, "precision": "float32", **changes}
    return TrainingCase(family, "tiny", implementation=implementation, source=SOURCE, target=TARGET, **values)


def decoding_case(family: str, implementation: Any = "product", precision: str = "float32") -> DecodingCase:
    sides = (SOURCE[:3], SOURCE[3:]), (TARGET[:3], TARGET[3:])
    return DecodingCase(family, "tiny", precision, implementation, *sides, beam_size=3)


@every_family
@pytest.mark.parametrize("updates", [1, 2])
def test_training_does_the_work_that_it_tells(family: str, updates: int) -> None:
    subject = Training(training_case(family, updates=updates))
    before = [parameter.clone() for parameter in subject.trainer.model.parameters()]
    subject.run()
    seen = [subject.work()]
    for _ in range(subject.reports[0].epoch_updates - 1):
        subject.run()
        seen.append(subject.work())
    assert any(not torch.equal(old, new) for old, new in zip(before, subject.trainer.model.parameters(), strict=True))
    assert (subject.trainer.position.epoch, subject.trainer.position.update) == (updates, 0)
    lengths = SOURCE.astype(np.int64), TARGET.astype(np.int64)
    epoch = [training_operations(subject.config, VOCABULARY, *lengths).sum(), len(SOURCE), (SOURCE * TARGET).sum()]
    done = [sum(getattr(work, name) for work in seen) for name in ("operations", "sentences", "cells")]
    assert done == [updates * each for each in epoch]
    assert all(work.cells <= work.padded_cells and work.largest_batch <= work.padded_cells for work in seen)


@every_family
def test_all_implementations_are_trained_by_the_same_batches(family: str) -> None:
    subjects = [Training(training_case(family, each)) for each in ("product", "checkpointed", "reference")]
    for subject in subjects:
        subject.run()
    assert len({subject.work() for subject in subjects}) == 1
    losses = [subject.reports[0].sums.loss for subject in subjects]
    assert losses[0] == losses[1]
    assert losses[0] == pytest.approx(losses[2], rel=0.2)  # dropout has other masks


def test_training_is_compiled_if_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    monkeypatch.setattr(torch, "compile", lambda model, **_: compiled.append(model) or model)
    Training(training_case("transformer"))
    assert not compiled
    subject = Training(training_case("transformer", "compiled"))
    assert compiled == [subject.trainer.model]


@every_family
def test_decoding_gives_each_translation_its_length(family: str) -> None:
    subject = Decoding(decoding_case(family))
    subject.run()
    assert [len(text.split()) + 1 for part in subject.found for text in part] == TARGET.tolist()
    work = subject.work()
    assert work.sentences == len(SOURCE)
    assert work.cells == int((SOURCE * TARGET).sum())
    assert work.padded_cells == 9 * (6 + 4 + 8) + 3 * 2
    reference = Decoding(decoding_case(family, "reference"))
    reference.run()
    assert reference.found == subject.found


def test_recorded_lengths_stand_in_for_the_corpora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOINTNMT_DATA", str(tmp_path))
    found = lengths.sentence_lengths.__wrapped__("IWSLT")
    assert found.origin == "recorded of iwslt14-de-en"
    assert (len(found.source), found.left_out) == (22559, 113)
    assert found.source.max() <= lengths.LONGEST
    assert 20 < found.source.mean() < 30


def test_recorded_lengths_are_those_of_the_corpus(corpora: Path) -> None:
    folder = corpora / "iwslt14-de-en"
    counted = lengths.count("iwslt14-de-en", folder)
    texts = [gzip.decompress((folder / f"bpe10k.valid.{side}.gz").read_bytes()) for side in ("de", "en")]
    as_given = [
        (len(source.split()) + 1, len(target.split()) + 1)
        for source, target in zip(*map(bytes.splitlines, texts), strict=True)
    ]
    assert counted[: len(as_given)] == as_given
    kept = sorted(pair for pair in counted if max(pair) <= lengths.LONGEST)
    found = lengths.recorded("IWSLT")
    assert sorted(zip(found.source.tolist(), found.target.tolist(), strict=True)) == kept


def test_padding_of_an_epoch_is_counted_in_its_plan() -> None:
    generator = np.random.default_rng(0)
    source, target = generator.integers(2, 20, (2, 500))
    found = epoch_padding(source, target, 200)
    assert found.cells == sum(int(s) * int(t) for s, t in zip(source, target, strict=True))
    assert 0 < found.share < 0.3
    equal = epoch_padding(np.full(500, 7), np.full(500, 9), 200)
    assert (equal.share, equal.padded_cells, equal.batches) == (0, 500 * 63, 23)  # 22 sentences of 9 tokens in a batch


def test_traffic_is_counted_operation_by_operation() -> None:
    x, y, column = torch.ones(2, 3).bfloat16(), torch.ones(3, 5).bfloat16(), torch.ones(2, 1)
    for rate, seconds in ((100.0, 6.2), (1.0, 60.0)):  # the longer of 62 bytes and 60 operations
        counting = Counting(rate, bandwidth=10.0)
        with counting:
            (x @ y).t().t() + column.expand(2, 5)
        assert counting.moved == {"matrix products": 2 * (6 + 15 + 10), "norm and element-wise": 20 + 8 + 40}
        assert counting.seconds == pytest.approx({"matrix products": seconds, "norm and element-wise": 6.8})


@pytest.mark.parametrize(
    ("operation", "moved"),
    [
        (lambda x, y, index: x[index], 8 * 2 + 2 * 4 * 20),
        (lambda x, y, index: x.gather(0, index[:, None]), 8 * 2 + 2 * 4 * 2),
        (lambda x, y, index: x.index_put_((index,), y), 8 * 2 + 3 * 4 * 20),
        (lambda x, y, index: x.fill_(1), 4 * 1000),
        (lambda x, y, index: x.mul_(2), 8 * 1000),
        (lambda x, y, index: x.copy_(y[0]), 4 * 10 + 4 * 1000),
        (lambda x, y, index: x * x, 8 * 1000),
        (lambda x, y, index: x.view(10, 100)[0], 0),
    ],
)
def test_traffic_of_operations_that_read_or_write_parts(
    operation: Callable[[Tensor, Tensor, Tensor], Any], moved: int
) -> None:
    tensors, counting = (torch.zeros(100, 10), torch.ones(2, 10), torch.tensor([3, 4])), Counting(1.0, 1.0)
    with counting:
        operation(*tensors)
    assert counting.moved.total() == moved


@pytest.mark.parametrize("wrong", ["--tokens 5", "--length 0", "--tflops 0", "--terabytes nan", "--families t5"])
def test_traffic_refuses_what_cannot_be(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with patch.object(sys, "argv", ["traffic", *wrong.split()]), pytest.raises(SystemExit, match="2"):
        traffic.main()
    assert "error" in capsys.readouterr().err


def test_traffic_is_told_by_family(capsys: pytest.CaptureFixture[str]) -> None:
    with patch.object(sys, "argv", ["traffic", "--size", "tiny", "--tokens", "40", "--length", "8"]):
        traffic.main()
    told = capsys.readouterr().out
    assert all(re.search(rf"^{family}: .* GB, .* useful operations a byte", told, re.M) for family in FAMILIES)


def test_a_gpu_is_given_states_in_half_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eager PyTorch moves 2.2 times the least traffic of a grid layer's products (see the docs), and a fourth more
    with autocast's norms in float32."""
    config = model_config("reformer-base", "IWSLT")
    assert isinstance(config, ReformerBaseConfig)
    least = 8 * 16 * 16 * config.num_layers * 3 * 2 * (28 * config.embed_dim + 4 * config.ffn_dim)
    ours, widened = Counting(1.0, 1.0), Counting(1.0, 1.0)
    count_update(config, 1000, 8, 16, ours)
    monkeypatch.setattr("jointnmt.ops.norm.no_autocast", lambda _: nullcontext())
    count_update(config, 1000, 8, 16, widened)
    assert 1 < ours.moved.total() / least < 2.3
    assert widened.moved.total() > 1.2 * ours.moved.total()


def test_decoded_batches_are_spread_over_the_corpus() -> None:
    pairs = lengths.SentenceLengths(np.arange(100, 0, -1), np.arange(100), "test", 0)
    found = [source.tolist() for source, _ in command.evenly_spread(pairs, 2, 4)]
    assert found == [[24, 25, 26, 27], [74, 75, 76, 77]]


def test_time_is_shared_out_among_operations() -> None:
    subject = Training(training_case("reformer-fast"))
    subject.run()
    shares = shares_of_time(subject.run)
    assert sum(shares.values()) == pytest.approx(1)
    assert min(shares[name] for name in ("attention", "matrix products", "norm and element-wise", "copies")) > 0
    decoding = Decoding(decoding_case("reformer-fast", precision="bfloat16"))
    shares = shares_of_time(decoding.run)
    assert min(shares[name] for name in ("attention", "matrix products", "norm and element-wise")) > 0
    square = torch.randn(700, 700)
    shares = shares_of_time(lambda: [square @ square for _ in range(3)] and None)
    assert {name for name, share in shares.items() if share} <= {"matrix products", "rest"}


def test_the_machine_is_measured_and_described() -> None:
    for precision in ("float32", "bfloat16", "int8"):
        assert min(product_rate(precision, square=64, repeats=1)) > 0
    assert {"hardware", "threads", "torch", "jointnmt", "date", "command"} <= description().keys()
    assert 0 < resident_bytes() <= peak_bytes()


@pytest.mark.skipif(library() is None, reason="needs a C++ compiler")
@pytest.mark.parametrize(
    ("kernel", "group"),
    [
        (lambda x: add_norm(x, x, NO_DROPOUT, torch.nn.LayerNorm(512)), "norm and element-wise"),
        (lambda x: dropout_mask(x.shape, 0.1, x), "norm and element-wise"),
        (lambda x: mlp_update(x, *LAYERS, NO_DROPOUT).total, "matrix products"),
        (
            lambda x: axial_attention([x[None].repeat(1, 1, 3)], 8, 1, AttentionMask.causal(2000, x), NO_DROPOUT),
            "attention",
        ),
    ],
)
def test_time_of_the_custom_kernels_is_told(kernel: Any, group: str) -> None:
    """Also without autograd, whose functions are named in a profile."""
    x = torch.randn(2000, 512)
    with torch.no_grad():
        kernel(x)
        assert shares_of_time(lambda: [kernel(x) for _ in range(3)] and None)[group] > 0.5


class Hungry:
    """A subject that takes memory, or fails."""

    device, late_bytes, warm_up_runs = "cpu", 0, 1

    def __init__(self, fails: bool = False) -> None:
        self.runs, self.fails = 0, fails

    def run(self) -> None:
        self.runs += 1
        if self.fails and self.runs == 2:
            raise RuntimeError("no more")
        torch.ones(64 * 2**20 // 4)

    def work(self) -> Work:
        return Work(1, 1, 1, 1, 1)


class Failing(Hungry):
    def __init__(self) -> None:
        super().__init__(fails=True)


def test_a_subject_has_memory_of_its_own_and_tells_its_errors() -> None:
    mine = torch.ones(512 * 2**20 // 4)  # in this process, not in the subject's
    with Worker(Hungry, 1) as worker:
        done = worker.run()
        # Of its 64 MiB, some may have been freed since the base was measured.
        assert 48 * 2**20 <= done.peak_bytes - worker.base_bytes < 400 * 2**20
        assert worker.base_bytes < mine.nbytes + 200 * 2**20
        assert done.seconds > 0
        assert done.process_seconds > 0
    with Worker(Failing, 1) as worker, pytest.raises(SubjectLostError, match="RuntimeError: no more"):
        worker.run()


def test_a_gpu_has_defaults_of_its_own(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def asked(*arguments: str) -> Any:
        monkeypatch.setattr("sys.argv", ["benchmarks", *arguments])
        return command.options()

    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert asked().max_tokens == 1024
    with pytest.raises(SystemExit):
        asked("--device", "cuda")
    assert "no GPU" in capsys.readouterr().err
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    on_gpu = asked("--device", "cuda", "--rounds", "7")
    assert (on_gpu.max_tokens, on_gpu.max_cells, on_gpu.rounds) == (4096, None, 7)
    assert on_gpu.benchmarks == ["training", "decoding", "latency"]
    case = command.case("training", ("reformer-base", "IWSLT", "bfloat16"), "product", on_gpu)
    assert case.device == "cuda"
    with pytest.raises(SystemExit):
        asked("growth", "--device", "cuda")


def test_what_cannot_be_measured_is_told_and_the_rest_goes_on() -> None:
    cases = [
        decoding_case("transformer", precision="int4"),
        training_case("transformer", precision="float31"),
        training_case("transformer"),
    ]
    unknown, refused, done = compare(cases, rounds=2, threads=1, profiled=False)
    assert unknown["skipped"].startswith("the translator does not know int4, only float32")
    assert "float31" in refused["skipped"]
    assert done["rounds"] == 2
    assert 0 < done["share_of_product_rate"] < 1


@pytest.fixture
def without_corpora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("JOINTNMT_DATA", str(tmp_path))
    lengths.sentence_lengths.cache_clear()
    yield
    lengths.sentence_lengths.cache_clear()


@pytest.mark.usefixtures("without_corpora")
def test_benchmarks_print_and_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--quick", "--sizes", "tiny", "--families", "reformer-fast", "--precisions", "float32", "--threads", "1"]
    monkeypatch.setattr(sys, "argv", ["benchmarks", "training", "latency", *asked, "--out", str(tmp_path)])
    command.main()
    printed = capsys.readouterr().out
    assert "reformer-fast, tiny size, float32" in printed
    assert "time of reference: attention" in printed
    assert "time of product without recordings: attention" in printed
    training, latency = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("training", "latency"))
    assert {"hardware", "threads", "torch", "jointnmt", "date", "command", "settings"} <= training.keys()
    assert [row["implementation"] for row in training["rows"]] == ["product", "checkpointed", "reference"]
    assert training["rows"][2]["reference_seconds_over_seconds"] == 1
    assert latency["rows"][0]["sentences_per_second"] > 0


@pytest.mark.usefixtures("without_corpora")
@pytest.mark.parametrize("size", ["IWSLT", "Multi30k"])
@pytest.mark.parametrize("options", [[], ["--quick"]])
def test_batches_of_training_have_room_for_every_sentence(
    size: str, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", *options])
    case = command.case("training", ("transformer", size, "float32"), "product", command.options())
    assert isinstance(case, TrainingCase)
    batches = BatchConfig(max_tokens=case.max_tokens, max_cells=case.max_cells, update_tokens=case.max_tokens)
    assert plan_epoch(case.source, case.target, batches, seed=1, epoch=0)  # refuses what does not fit


@pytest.mark.usefixtures("without_corpora")
@pytest.mark.parametrize("task", ["training", "decoding"])
def test_a_measured_process_tells_what_it_has_done(
    task: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = {"task": task, "family": "transformer", "size": "tiny", "precision": "float32"}
    monkeypatch.setattr(sys, "stdin", ["run\n"])
    paired.serve({**asked, "max_tokens": 64, "updates": 1, "batches": 1})
    answer = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert answer["seconds"] > 0 and min(answer["work"][name] for name in ("operations", "cells")) > 0


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_time_on_the_cpu_is_that_of_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks"])
    assert command.options().threads == 1


def test_the_cost_of_shortcuts_is_relative_to_the_model_without(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def compare(group: list[TrainingCase], rounds: int, threads: int, profiled: bool) -> list[dict[str, float]]:
        assert (rounds, threads, profiled) == (2, 1, False)
        return [{"process_seconds": {None: 2.0, "plain": 3.0, "fusion": 4.0}[case.shortcuts]} for case in group]

    monkeypatch.setattr(shortcuts, "compare", compare)
    shortcuts.main(["--models", "transformer/tiny", "--rounds", "2", "--out", str(tmp_path / "costs.json")])
    rows = json.loads((tmp_path / "costs.json").read_text())["rows"]
    assert [(row["shortcuts"], row["ratio"]) for row in rows] == [(None, 1.0), ("plain", 1.5), ("fusion", 2.0)]


def test_growth_has_a_row_for_each_point_and_a_figure() -> None:
    names = ("transformer", "tiny", "float32")
    rows = list(growth("training", names, ["product"], ([8], [4]), rounds=1, threads=1))
    assert [(row["axis"], row["length"], row["sentences"]) for row in rows] == [("length", 8, 2), ("sentences", 23, 4)]
    assert all(row["padded_share_of_cells"] == 0 for row in rows)
    figure = growth_figure(rows, "title")
    drawn = [line.get_xydata().tolist() for axes in figure.axes for line in axes.get_lines()]
    assert [points[0][0] for points in drawn] == [8, 4, 8, 4]
    assert drawn[0][0][1] == rows[0]["seconds"]


@pytest.mark.usefixtures("without_corpora")
@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (["trainig"], "there are training, decoding, latency, engines, growth"),
        (["training", "latency", "--implementations", "product", "compiled"], "compiled: of training only"),
        (["--implementations", "checkpointed"], "checkpointed: of training only"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(
    asked: list[str], answer: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", *asked])
    with pytest.raises(SystemExit) as refused:
        command.main()
    assert refused.value.code == 2
    assert answer in capsys.readouterr().err


def test_parts_of_a_preparation_begin_without_what_they_have_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparation, "ProcessPoolExecutor", lambda count, _: ThreadPoolExecutor(count))
    for name in preparation.PARTS:
        monkeypatch.setitem(
            preparation.PARTS, name, lambda folder, _: {"left": {each.name for each in folder.iterdir()}}
        )
    text, cache, run = "000.tsv", "cache", "run"
    for asked, left in (("plan", {text, cache, run}), ("training", {text, cache}), ("store", {text, run})):
        for name in (cache, run):
            (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / text).touch()
        assert preparation.prepare(tmp_path, 1, 1, [asked])[asked]["left"] == left


@pytest.mark.slow
def test_each_part_of_a_preparation_is_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All in this process, as a process for each part would take most of the time."""
    monkeypatch.setattr(preparation, "FILE_PAIRS", 1500)
    monkeypatch.setattr(preparation, "ProcessPoolExecutor", lambda *_, **__: ThreadPoolExecutor(1))
    found = preparation.prepare(tmp_path, 4000, 1, list(preparation.PARTS))
    assert len(list(tmp_path.glob("*.tsv"))) == 3
    assert 3500 < found["store"]["kept"] < 4000
    assert found["plan"]["updates"] > 10 and found["training"]["updates"] == preparation.UPDATES
    assert all(found[part]["peak_bytes"] > 10**7 and found[part]["processor_seconds"] > 0 for part in preparation.PARTS)


def test_workers_of_ray_and_plain_processes_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    called, clock = [], iter([9.0, 9.0, 1.0, 2.0, 2.0, 1.0, 1.0, 2.0, 5.0, 8.0, 7.0, 5.0, 99.0, 9.0])

    def timed(way: str) -> Callable[..., float]:
        return lambda run, texts, *_: called.append((way, len(texts))) or next(clock)

    for way in ("plain", "cluster"):
        monkeypatch.setattr(cluster, f"_{way}", timed(way))
    monkeypatch.setattr(cluster, "_check", lambda _: None)
    found = cluster.measure("run", 40, 10, rounds=3)
    first = [way for way, _ in called[::2]]
    assert first == ["plain", "plain", "cluster", "plain", "plain", "cluster", "plain"]
    assert [count for _, count in called] == [2] * 8 + [40] * 6
    assert (found["plain_start_seconds"], found["cluster_start_seconds"]) == (1.0, 2.0)
    assert (found["plain_seconds"], found["cluster_seconds"]) == (5.0, 8.0)
    assert (found["efficiency"], found["efficiency_without_start"]) == (5 / 8, 4 / 6)


@pytest.mark.slow
def test_workers_of_ray_translate_as_plain_processes_do(tmp_path: Path) -> None:
    run, lines = write_run(tmp_path / "run", model={"max_length": 100}), ["der Hund", "die Katze", "ein Hund"] * 5
    assert min(cluster._both(str(run), lines, tmp_path / "both", shard_rows=10)) > 0
    (tmp_path / "both" / "0.en").write_text("another\n")
    with pytest.raises(AssertionError, match="other translations"):
        cluster._check(tmp_path / "both")


def test_both_engines_translate_the_same_sentences_to_the_same_lengths() -> None:
    pytest.importorskip("ctranslate2")
    case = decoding_case("transformer", "ctranslate2")
    case = replace(case, target=of_one_length(case.target))
    assert [each.tolist() for each in case.target] == [[6, 6, 6], [2]]
    theirs, ours = case(), replace(case, implementation="product")()
    for subject in (theirs, ours):
        subject.run()
    assert isinstance(theirs, CTranslate2Decoding)
    assert [[len(pieces) for pieces in batch] for batch in theirs.translated] == [[6, 6, 6], [2]]
    lengths = [[len(text.split()) + 1 for text in batch] for batch in ours.found]
    assert lengths == [[6, 6, 6], [2]]
    assert theirs.texts == ours.texts and theirs.work() == ours.work()


def test_memory_of_ctranslate2_is_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Its process also has the product's model."""
    pytest.importorskip("ctranslate2")
    case = decoding_case("transformer", "ctranslate2")
    cases = [
        replace(case, target=of_one_length(case.target), implementation=each) for each in ("product", "ctranslate2")
    ]
    rows = [{**row, "sentences": 3} for row in compare(cases, 1, 1, profiled=False)]
    assert ["peak_bytes" in row for row in rows] == [True, False]
    Report("engines", None, {}).add(rows)
    assert "ctranslate2" in capsys.readouterr().out


def test_ctranslate2_is_compared_with_transformers_in_its_precisions() -> None:
    case = decoding_case("reformer-base", "ctranslate2")
    assert "Transformers" in compare([case], 1, 1)[0]["skipped"]
    assert "bfloat16" in compare([decoding_case("transformer", "ctranslate2", "bfloat16")], 1, 1)[0]["skipped"]
