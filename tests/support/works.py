"""Commands that write files, each with the results that must be the same whatever happened on the way."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.commands import NOTHING, Commands, Fault, Outcome

Result = Mapping[str, Any]


@dataclass(frozen=True)
class Work:
    """A command on the folder of the fixture `trained`, writing into a folder of its own."""

    arguments: Callable[[Path, Path], list[object]]
    """Arguments of the command, given the folder of `trained` and its own."""
    result: Callable[[Path], Result]
    """What the command has written, without times."""
    prepare: Callable[[Path, Path], object] = lambda trained, place: None
    """Writes the command's input into its folder."""

    once: bool = False
    """Whether the command refuses to overwrite its results."""

    def run(self, commands: Commands, trained: Path, place: Path, fault: Fault = NOTHING) -> Outcome:
        """Run the command."""
        env = {"JOINTNMT_CACHE": str(place / "cache")}
        return commands.run(*self.arguments(trained, place), places=[place], fault=fault, env=env)

    def begin(self, trained: Path, place: Path) -> None:
        """Make the folder."""
        place.mkdir()
        self.prepare(trained, place)


@dataclass(frozen=True)
class Undisturbed:
    """Result of a command without faults."""

    outcome: Outcome
    result: Result
    largest: int
    """Bytes of the largest file."""
    seconds: float


def contents(folder: Path, *patterns: str) -> Result:
    """Contents of files by their names."""
    found = [path for pattern in patterns for path in folder.glob(pattern) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def _scaled(place: Path) -> Result:
    report = json.loads((place / "scale/report.json").read_text(encoding="utf-8"))
    for run in [*report["runs"].values(), report["cost"] or {}]:
        run.pop("seconds", None)
    return {"report": report, **contents(place / "scale", "scaled.yaml", "*/model.safetensors")}


def _copy_half(trained: Path, place: Path) -> None:
    shutil.copytree(trained / "half-recipe", place / "run")


def _sides(trained: Path, second: str) -> list[object]:
    return ["--source", trained / "test.de", f"--{second}", trained / "test.en", "--device", "cpu"]


SMALL = ["--set", "data.validation=[]", "--set", "training.max_updates=1"]

WORKS: dict[str, Work] = {
    "train": Work(
        lambda trained, place: ["train", trained / "recipe.yaml", "--out", place / "run"],
        lambda place: contents(place / "run", "model.safetensors", "segmentation/*", "validation/*", "experiment.yaml"),
        _copy_half,
    ),
    "building a store": Work(
        lambda trained, place: ["train", trained / "recipe.yaml", "--out", place / "run", *SMALL],
        lambda place: contents(place, "cache/segmented/*/*", "run/model.safetensors"),
    ),
    "average": Work(
        lambda trained, place: ["average", trained / "whole-recipe", "--best", 2, "--out", place / "mean.safetensors"],
        lambda place: contents(place, "mean.safetensors"),
    ),
    "share": Work(
        lambda trained, place: ["share", trained / "whole-recipe", "--out", place / "shared"],
        lambda place: contents(place, "shared/*", "shared/segmentation/*"),
        once=True,
    ),
    "translate --resume": Work(
        lambda trained, place: [
            *("translate", trained / "whole-recipe", "--device", "cpu", "--resume", "--json"),
            *("--input", trained / "train.de", "--out", place / "out"),
        ],
        lambda place: contents(place, "*"),
    ),
    "report": Work(
        lambda trained, place: [
            *("report", trained / "whole-recipe", "--out", place / "report.html", *_sides(trained, "reference")),
        ],
        lambda place: contents(place, "report.html"),
    ),
    "probe": Work(
        lambda trained, place: [
            *("probe", trained / "whole-recipe", "--out", place / "probes", *_sides(trained, "reference")),
            *("--set", "max_rounds=2"),
        ],
        lambda place: contents(place / "probes", "*.csv", "probe.json", "*/*.safetensors"),
    ),
    "scale": Work(
        lambda trained, place: ["scale", trained / "recipe.yaml", "--out", place / "scale", "--updates", 2],
        _scaled,
    ),
}
