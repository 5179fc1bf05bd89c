"""The runs of several benchmarks: the table of a machine, and the steps for a GPU."""

from __future__ import annotations

import json
import re
import runpy
import sys
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from benchmarks import __main__ as command
from benchmarks import attention, beside, gpu, hotspots, machines, paired, serving, systems
from benchmarks import table as measuring
from benchmarks.gpu import Step
from torch import Tensor

from jointnmt.models import FAMILIES
from jointnmt.training.speed import untrained
from support.tiny_run import SOURCE_WORDS, TARGET_WORDS, write_run

ROOT = Path(__file__).resolve().parents[2]


def written(file: Path) -> dict[str, Any]:
    """The figures of a benchmark, with the facts that they depend on."""
    figures: dict[str, Any] = json.loads(file.read_text())
    assert {"hardware", "threads", "torch", "commit", "date", "command"} <= figures.keys()
    return figures


def row(task: str, precision: str, seconds: float, implementation: str = "product", **changes: Any) -> dict[str, Any]:
    names = {"task": task, "family": "transformer", "shortcuts": None, "precision": precision}
    work = {"cells": 1000, "sentences": 50, "operations": 10**10}
    return {**names, "implementation": implementation, **work, "seconds": seconds, **changes}


def machine(**changes: Any) -> dict[str, Any]:
    rows = [
        row("training", "float32", 2.0),
        row("training", "bfloat16", 1.0),
        row("training", "float32", 3.0, "reference"),
        row("decoding", "float32", 1.0),
        row("decoding", "bfloat16", 1.06),
        row("decoding", "int8", 0.5),
        row("decoding", "float32", 0.8, "ctranslate2"),
        row("latency", "float32", 0.25),
        row("latency", "bfloat16", 0.25),
        row("latency", "int8", 0.125),
        row("latency", "int8", 0.1, "ctranslate2"),
    ]
    facts = {"kind": "avx2", "hardware": "a processor", "threads": 1, "torch": "2", "jointnmt": "1", "commit": "abc"}
    rates = {"float32": 20.0, "bfloat16": 5.0, "int8": 100.0}
    return {
        **facts,
        "date": "2026-01-02T03:04",
        "command": "make",
        "size": "IWSLT",
        "rates": rates,
        "rows": rows,
        **changes,
    }


def test_a_table_has_a_machines_ratios() -> None:
    text = machines.table(machine())
    assert text.startswith("**avx2**: a processor; one thread. Products, GFLOP/s: float32 20, bfloat16 5, int8 100.")
    # 50 sentences a second at 20 GFLOP/s, against 25 at 139 for the authors' code.
    authors = 50 / 20 / (25 / 139)
    cells = [
        "500",
        "25%",
        "",
        "1.50",
        "2.00",
        "50.00",
        f"{authors:.2f}",
        "0.80",
        "0.94",
        "2.00",
        "250",
        "0.80",
        "1.00",
        "2.00",
    ]
    assert f"| transformer | {' | '.join(cells)} |" in text
    assert text.count("|") == 3 * 16
    assert "Slower than float32 by more than 5%: bfloat16 in decoding of transformer.\n" in text


def test_a_table_has_the_version_of_ctranslate2_if_it_is_told() -> None:
    assert "torch 2, CTranslate2 4.8, jointnmt 1 (abc)" in machines.table(machine(ctranslate2="4.8"))
    for facts in (machine(), machine(ctranslate2=None)):
        assert "torch 2, jointnmt 1 (abc)" in machines.table(facts)


def test_the_authors_figures_are_of_their_size_and_models() -> None:
    other_size, with_shortcuts = machine(size="tiny"), machine()
    for each in with_shortcuts["rows"]:
        each["shortcuts"] = "fusion"
    authors = f"{50 / 20 / (25 / 139):.2f}"
    assert authors in machines.table(machine())
    for changed in (other_size, with_shortcuts):
        assert authors not in machines.table(changed)


def test_the_tables_of_the_page_are_of_one_machine_each(tmp_path: Path) -> None:
    for kind in ("avx512", "avx2"):
        (tmp_path / f"{kind}.json").write_text(json.dumps(machine(kind=kind)))
    assert re.findall(r"^\*\*(.+?)\*\*", machines.machine_tables(tmp_path), re.M) == ["avx2", "avx512"]


@pytest.mark.slow
def test_this_machine_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    families = dict(islice(FAMILIES.items(), 1))
    monkeypatch.setattr(measuring, "FAMILIES", families)
    assert measuring.main(["--quick", "--threads", "1", "--out", str(tmp_path)]) == 0
    (file,) = tmp_path.iterdir()
    found = json.loads(file.read_text())
    assert file.stem == found["kind"]
    assert min(found["rates"].values()) > 0
    assert found["ctranslate2"] == measuring._version("ctranslate2")
    assert measuring._version("no-such-package") is None
    product = {
        (each["task"], each["family"], each["shortcuts"], each["precision"])
        for each in found["rows"]
        if each["implementation"] == "product"
    }
    assert len(product) == len(families) * 2 * (2 + 3 + 3)
    assert min(each["seconds"] for each in found["rows"]) > 0
    assert machines.table(found) in capsys.readouterr().out


@pytest.mark.slow
def test_the_steps_for_a_gpu_run_without_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["attention", "profile", "trainings"]
    command = [*asked, "--device", "cpu", "--quick", "--out", str(tmp_path)]
    assert gpu.main(command) == 0, [log.read_text() for log in tmp_path.glob("*.log")]
    assert gpu.main(command) == 0
    assert capsys.readouterr().out.count("done before") == 2  # trainings continue
    assert list(json.loads((tmp_path / "steps.json").read_text())["steps"]) == asked
    for name in ("attention", "profile"):
        assert json.loads((tmp_path / f"{name}.json").read_text())["rows"], name


def test_a_failing_step_does_not_keep_others_from_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sleeping.py").write_text("import time; time.sleep(60)")
    (tmp_path / "telling.py").write_text("import os; print(os.environ['TOLD'])")
    known = {
        "wrong": Step("no_such_module", []),
        "endless": Step("sleeping", []),
        "right": Step("telling", [], {"TOLD": "what it does"}),
    }
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(gpu, "steps", lambda *_: known)
    assert gpu.main(["--device", "cpu", "--minutes", "0.05", "--out", str(tmp_path / "out")]) == gpu.FAILED
    done = json.loads((tmp_path / "out" / "steps.json").read_text())["steps"]
    assert [each["exit_code"] for each in done.values()] == [1, gpu.OUT_OF_TIME, 0]
    assert (tmp_path / "out" / "right.log").read_text() == "what it does\n"


def test_every_step_ends_in_time_and_downloads_nothing(tmp_path: Path) -> None:
    """Steps that are compared differ in one setting."""
    known = gpu.steps("cuda", tmp_path, gpu.MINUTES, quick=False)
    assert gpu.MINUTES < 10
    assert list(known)[:3] == ["tests", "training", "decoding"] and list(known)[-1] == "trainings"
    assert known["tests"].environment == {"JOINTNMT_TEST_DEVICE": "cuda"}
    assert known["without-graphs"].environment == {"JOINTNMT_GRAPHS": "0"}
    assert "compiled" in known["compiled"].arguments
    minutes = known["trainings"].arguments[known["trainings"].arguments.index("--minutes") + 1]
    assert float(minutes) < gpu.MINUTES


@pytest.mark.parametrize(("device", "quick"), [("cuda", False), ("cpu", True)])
def test_the_benchmarks_know_the_options_of_the_steps(
    device: str, quick: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that the tests do not run, as they take minutes even on tiny models."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    known = gpu.steps(device, tmp_path, gpu.MINUTES, quick)
    found = {}
    for name, step in known.items():
        if step.module == "benchmarks":
            monkeypatch.setattr(sys, "argv", ["benchmarks", *step.arguments])
            found[name] = command.options()
    assert {name: asked.benchmarks for name, asked in found.items()} == {
        "training": ["training"],
        "decoding": ["decoding", "latency"],
        "without-graphs": ["decoding", "latency"],
        "compiled": ["training"],
    }
    for asked in found.values():
        assert (asked.device, asked.precisions) == (device, ["bfloat16"])
        assert asked.out.is_relative_to(tmp_path)
    assert len({asked.out / task for asked in found.values() for task in asked.benchmarks}) == 6
    assert (ROOT / known["tests"].arguments[-1]).is_file()


def test_a_gpu_is_asked_for(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for wrong, answer in ((["tests"], "no GPU"), (["test", "--device", "cpu"], "there are tests, training")):
        with pytest.raises(SystemExit, match="2"):
            gpu.main(wrong)
        assert answer in capsys.readouterr().err
    assert sys.executable in gpu.steps("cpu", Path(), 1, quick=True)["tests"].command


@pytest.mark.parametrize(
    ("threads", "busy", "cores", "share"),
    [(2, 0, 2, 1.0), (2, 1, 2, 2 / 3), (2, 2, 2, 0.5), (1, 1, 2, 1.0), (4, 4, 8, 1.0)],
)
def test_the_fair_share_of_a_training(threads: int, busy: int, cores: int, share: float) -> None:
    assert beside.fair_share(threads, busy, cores) == pytest.approx(share)


@pytest.mark.slow
def test_a_training_beside_busy_processes_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "FAMILIES", ("transformer",))
    assert beside.main(["--quick", "--spins", "1000", "--out", str(tmp_path / "rows.json")]) == 0
    rows = written(tmp_path / "rows.json")["rows"]
    assert [(each["spins"], each["busy"]) for each in rows] == [(1000, 0), (1000, 1), (1000, 2)]
    assert min(each["rate"] for each in rows) > 0


def test_figures_of_two_checkouts_and_of_the_server_tell_what_they_depend_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"ratio": 1.0, "lowest": 1.0, "highest": 1.0, "memory": 1.0, "seconds": 1.0}
    names = {"task": "decoding", "family": "transformer", "size": "tiny", "precision": "float32"}
    monkeypatch.setattr(paired, "rows", lambda *_: [{**names, **values}])
    paired.main(["--against", str(ROOT), "--out", str(tmp_path / "paired.json")])
    assert written(tmp_path / "paired.json")["rows"] == [{**names, **values}]
    monkeypatch.setattr(serving, "compare", lambda *_: {"throughput": 0.9})
    (tmp_path / "source").write_text("der Hund\n")
    arguments = ["run", "--source", str(tmp_path / "source"), "--json", str(tmp_path / "serving.json")]
    monkeypatch.setattr(sys, "argv", ["serving", *arguments])
    serving.main()
    assert written(tmp_path / "serving.json")["throughput"] == 0.9


def test_attention_alone_is_timed() -> None:
    """Neither sums, nor gradients that are added to others, or broadcast."""
    seen: list[Tensor] = []

    class Attend(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return query + key + value

        @staticmethod
        def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
            seen.append(gradients[0])
            return gradients * 3

    def attend(*inputs: Tensor) -> Tensor:
        assert all(each.is_leaf and each.grad is None for each in inputs)
        output: Tensor = Attend.apply(*inputs)
        return output

    assert attention.seconds(attend, 2, 3, "cpu", 1) > 0
    assert len(seen) == 3 and all(each.is_contiguous() and each.unique().numel() > 1 for each in seen)


def test_time_of_a_gpu_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def event(device: str, key: str) -> SimpleNamespace:
        kind = SimpleNamespace(name=device)
        return SimpleNamespace(
            device_type=kind, key=key, count=2, self_device_time_total=3e6, is_user_annotation=key == "a part"
        )

    class Profiler(nullcontext[Any]):
        def key_averages(self) -> list[SimpleNamespace]:
            return [event("CUDA", "sm90_gemm"), event("CPU", "aten::mm"), event("CUDA", "a part")]

    def build(*_: Any, **__: Any) -> Any:
        return lambda: SimpleNamespace(run=lambda: None)

    monkeypatch.setattr(hotspots, "DecodingCase", build)
    monkeypatch.setattr(hotspots, "finish", lambda _: None)
    monkeypatch.setattr(hotspots, "profile", lambda **_: profiled)
    profiled = Profiler()
    profiled.enter_result = profiled
    found = hotspots.hotspots("decoding", "transformer", "tiny", 1, "cuda")
    assert found["busy_seconds"] == 3
    assert [each["name"] for each in found["operations"]] == ["aten::mm"]


class Answering:
    """Stands for a checkout's process, which does less work in another folder."""

    base_bytes = 0

    def __init__(self, folder: Path, *_: Any) -> None:
        self.cells = 20 if folder == paired.HERE else 19

    def run(self) -> dict[str, Any]:
        return {"seconds": 1.0, "peak_bytes": 1, "work": {"operations": 100.0, "cells": self.cells}}


def test_two_checkouts_that_do_other_work_are_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paired, "Checkout", Answering)
    with pytest.raises(SystemExit, match=r"other work: .*20.* here, .*19"):
        paired.start(tmp_path, {}, 1, here_first=True)


@pytest.mark.slow
def test_trained_systems_are_timed_in_one_precision_and_their_dropout_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times are those on the CPU, wherever the systems were trained."""
    for name, words in (("de", SOURCE_WORDS), ("en", TARGET_WORDS)):
        (tmp_path / name).write_text("".join(f"{' '.join(words[:3])}\n" for _ in range(50)))
    texts = {"source_language": "de", "target_language": "en", "train": [{"source": "de", "target": "en"}]}
    data = {**texts, "root": str(tmp_path), "cache": str(tmp_path / "cache")}
    for dropout, precision in ((0.0, "float32"), (0.1, "bfloat16")):
        changes: dict[str, Any] = {
            "data": data,
            "model": {"dropout": dropout},
            "training": {"precision": precision, "accelerator": "gpu"},
        }
        write_run(tmp_path / f"run-{precision}", **changes)
    used = []

    def told(experiment: Any, precision: str, *rest: Any) -> Any:
        used.append(precision)
        return untrained(experiment, precision, *rest)

    monkeypatch.setattr(systems, "untrained", told)
    runs = [f"first={tmp_path}/run-float32", f"second={tmp_path}/run-bfloat16"]
    out = tmp_path / "costs.json"
    systems.main([*runs, "--text", str(tmp_path / "de"), "--lines", "2", "--rounds", "1", "--out", str(out)])
    costs = written(out)
    assert (costs["precision"], costs["dropout"]) == ("float32", {"first": 0.0, "second": 0.1})
    assert used == ["float32", "float32"]
    assert costs["systems"]["training"]["first"]["ratio"] == costs["systems"]["translating"]["first"]["ratio"] == 1


@pytest.mark.parametrize(
    "script", ["benchmarks.scale_tables", "benchmarks.relative", "benchmarks.paths", "docs/generate"]
)
def test_what_writes_tables_has_a_help_text(
    script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [script, "--help"])
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(SystemExit) as ended:
        if script == "docs/generate":
            runpy.run_path(str(ROOT / f"{script}.py"), run_name="__main__")
        else:
            runpy.run_module(script, run_name="__main__")
    assert ended.value.code == 0
    assert "usage:" in capsys.readouterr().out
