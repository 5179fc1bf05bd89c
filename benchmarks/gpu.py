"""Everything to measure in a first hour with a GPU, the most important first.

    python -m benchmarks.gpu [STEP ...] [--out FOLDER] [--minutes 9.5] [--device cpu] [--quick]

| step | what it does |
|---|---|
| `tests` | on the GPU: every family's logits, gradients, updates, translations and recorded positions |
| `training`, `decoding` | the benchmarks in bfloat16, with CUDA graphs |
| `without-graphs` | decoding without them (`JOINTNMT_GRAPHS=0`) |
| `compiled` | training through torch.compile |
| `attention` | flash attention on lines of 23 tokens against batched products |
| `profile` | the kernels that take most of the time, in training and decoding |
| `trainings` | the missing trainings of the results, the first seed of all systems first |

Each step is a process of its own that ends within `--minutes`, downloads nothing and leaves JSON in FOLDER; its output
is in STEP.log. A step that has succeeded is not repeated: the same command continues, and `trainings` resumes until
nothing is missing. `--device cpu --quick` runs all steps without a GPU, on tiny models.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.machine import description

ROOT = Path(__file__).resolve().parents[1]
MINUTES = 9.5
FAILED, OUT_OF_TIME = 1, 124
SAVING = 1.0
"""Minutes of a step that are left for a training to stop and to be collected."""


@dataclass(frozen=True)
class Step:
    """A process, by its module and arguments."""

    module: str
    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    once: bool = True
    """Whether one success completes the step."""

    @property
    def command(self) -> list[str]:
        """Command to start in the root of the repository."""
        return [sys.executable, "-m", self.module, *self.arguments]


def steps(device: str, out: Path, minutes: float, quick: bool) -> dict[str, Step]:
    """All steps, the most important first."""
    common = ["--device", device, "--out", str(out)]
    tiny = ["--quick", "--sizes", "tiny", "--precisions", "bfloat16", "--families", "reformer-fast"] if quick else []
    timed = ["--implementations", "product", *tiny]
    compiled = ["product", "checkpointed" if quick else "compiled"]  # compiling takes minutes even for tiny models
    changes = ["training.max_updates=1"] if quick else []
    return {
        "tests": Step(
            "pytest",
            ["-q", "-p", "no:cacheprovider", f"--junit-xml={out / 'tests.xml'}", "tests/properties/test_device.py"],
            {"JOINTNMT_TEST_DEVICE": device},
        ),
        "training": Step("benchmarks", ["training", *common, *timed]),
        "decoding": Step("benchmarks", ["decoding", "latency", *common, *timed]),
        "without-graphs": Step(
            "benchmarks",
            ["decoding", "latency", "--device", device, "--out", str(out / "without-graphs"), *timed],
            {"JOINTNMT_GRAPHS": "0"},
        ),
        "compiled": Step(
            "benchmarks",
            ["training", "--device", device, "--out", str(out / "compiled"), *tiny, "--implementations", *compiled],
        ),
        "attention": Step("benchmarks.attention", [*common, *(["--quick"] if quick else [])]),
        "profile": Step("benchmarks.hotspots", [*common, *(["--quick"] if quick else [])]),
        "trainings": Step(
            "results",
            [
                *("train", "results/tatoeba-de-en", "--runs", str(out / "runs"), "--device", device),
                *("--minutes", str(0 if quick else max(minutes - SAVING, 0.1))),
                *(part for change in changes for part in ("--set", change)),
            ],
            once=False,
        ),
    }


def do(name: str, step: Step, out: Path, minutes: float) -> dict[str, Any]:
    """Run a step; returns its command, environment, exit code and seconds."""
    began = time.monotonic()
    environment = {**os.environ, **step.environment}
    with (out / f"{name}.log").open("w", encoding="utf-8") as log:
        try:
            done = subprocess.run(
                step.command,
                cwd=ROOT,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=60 * minutes,
                check=False,
            )
            code = done.returncode
        except subprocess.TimeoutExpired:
            code = OUT_OF_TIME
    return {
        "command": step.command[1:],
        "environment": dict(step.environment),
        "exit_code": code,
        "seconds": round(time.monotonic() - began, 1),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the requested steps that are not done; exit code 1, after all of them, if one fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="*", metavar="STEP", help="default: all, in this order")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"), metavar="FOLDER")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="limit of a step")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--quick", action="store_true", help="tiny models: checks that everything runs")
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("there is no GPU here that torch can use; --device cpu --quick tries the steps without one")
    out = options.out.resolve()
    known = steps(options.device, out, options.minutes, options.quick)
    if unknown := set(options.steps) - known.keys():
        parser.error(f"there is no step {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    out.mkdir(parents=True, exist_ok=True)
    file = out / "steps.json"
    record: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"steps": {}}
    record["machine"] = description(options.device)
    for name in options.steps or known:
        before = record["steps"].get(name)
        if before and before["exit_code"] == 0 and known[name].once:
            print(f"{name}: done before", flush=True)
            continue
        record["steps"][name] = found = do(name, known[name], out, options.minutes)
        file.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        print(f"{name}: exit code {found['exit_code']} after {found['seconds']:.0f} s", flush=True)
    asked = [record["steps"][name] for name in options.steps or known]
    return FAILED if any(each["exit_code"] for each in asked) else 0


if __name__ == "__main__":
    sys.exit(main())
