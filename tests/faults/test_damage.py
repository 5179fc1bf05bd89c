"""Damaged files of a RUN, of the cache and of a folder to share: the same result as without, or an error that says so."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from jointnmt.experiment import Experiment
from jointnmt.train import train as run_training
from jointnmt.training.loop import TrainingInterruptedError
from jointnmt.translator import Translator
from support.commands import Commands, Outcome
from support.damage import DAMAGES, damage, swap
from support.runs import At, log_records
from support.tiny import tiny_recipe
from support.tried import SCALE, Tried

TEXT = "wort1 wort2 wort3\nwort4 wort7 .\n\nwort19 wort0 wort0\n"
SHORT = {"training__max_updates": 6, "validation": {"every_updates": 2, "bleu_every": 0}}


@pytest.fixture(scope="module")
def folder(corpus: Path, commands: Commands) -> Path:
    """A folder with recipes, `half` a RUN that training stopped in, `whole` one that went on, text, and a shared folder."""
    for name, changes in (("recipe", {}), ("other", {"seed": 5})):
        values = tiny_recipe(corpus, **SHORT, **changes)
        (corpus / f"{name}.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    for name in ("recipe", "other"):
        half = corpus / f"half-{name}"
        with pytest.raises(TrainingInterruptedError):
            stopping = At(3, lambda: os.kill(os.getpid(), signal.SIGINT))
            run_training(Experiment.load(corpus / f"{name}.yaml"), half, stopping)
        shutil.copytree(half, corpus / f"whole-{name}")
        assert train(commands, corpus, corpus / f"whole-{name}", recipe=name).code == 0
    (corpus / "text").write_text(TEXT, encoding="utf-8")
    Translator.load(corpus / "whole-recipe", "cpu").save_pretrained(corpus / "shared")
    return corpus


def train(commands: Commands, folder: Path, run: Path, *more: str, recipe: str = "recipe") -> Outcome:
    return commands.run("train", folder / f"{recipe}.yaml", "--out", run, *more)


def files_of(folder: Path) -> list[Path]:
    """All, as paths in the folder, in one order."""
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def cases(folder: Path, count: int) -> Iterator[tuple[Path, str, random.Random]]:
    """`count` kinds of damage to each file of a folder, by seed, with what decides where they fall."""
    for name in files_of(folder):
        dice = random.Random(str(name))
        kinds = sorted(DAMAGES) * count
        dice.shuffle(kinds)
        for number, kind in enumerate(kinds[:count]):
            yield name, kind, random.Random(f"{name} {number}")


def report(tried: Tried, fault: str, count: int, failures: list[str]) -> None:
    tried(fault, count, len(failures))
    assert not failures, "\n\n".join(failures)


@pytest.mark.parametrize("which", ["half", "whole"])
def test_training_goes_on_from_a_damaged_run(
    folder: Path, commands: Commands, tmp_path: Path, tried: Tried, which: str
) -> None:
    """To the same weights, or to an error; one that is finished is left as it is, or made again from what is whole."""
    original, whole, failures, count = folder / f"{which}-recipe", folder / "whole-recipe", [], 0
    for name, kind, dice in cases(original, 2 * SCALE if which == "half" else SCALE):
        run = tmp_path / f"run-{count}"
        shutil.copytree(original, run)
        count += damage(run / name, kind, dice)
        outcome = train(commands, folder, run)
        if complaint := outcome.complaint or differs(outcome, run, whole, name):
            failures.append(f"{name}, {kind}: {complaint}")
        shutil.rmtree(run)
    report(tried, "damaged file of a RUN, training goes on", count, failures)


def differs(outcome: Outcome, run: Path, whole: Path, damaged: Path) -> str | None:
    """What of a training that ended well is not as without the damage."""
    if outcome.code:
        return None
    if (run / "model.safetensors").read_bytes() != (whole / "model.safetensors").read_bytes():
        return f"other weights: {outcome.said}"
    is_same = damaged == Path("log.jsonl") or log_records(run) == log_records(whole)
    return None if is_same else f"other records: {outcome.said}"


def test_a_damaged_run_translates_as_before_or_not_at_all(
    folder: Path, commands: Commands, tmp_path: Path, tried: Tried
) -> None:
    for name, fault in (("whole-recipe", "damaged file of a RUN"), ("shared", "damaged file of a shared folder")):
        expected, failures, count = translate(commands, folder, folder / name), [], 0
        assert expected.code == 0, expected.said
        for file, kind, dice in cases(folder / name, 2 * SCALE):
            copy = tmp_path / name
            shutil.copytree(folder / name, copy, dirs_exist_ok=True)
            count += damage(copy / file, kind, dice)
            outcome = translate(commands, folder, copy)
            if complaint := outcome.complaint or (outcome.code == 0 and outcome.printed != expected.printed and "other"):
                failures.append(f"{name}/{file}, {kind}: {complaint}")
        report(tried, f"{fault}, translation", count, failures)


def translate(commands: Commands, folder: Path, run: Path) -> Outcome:
    return commands.run("translate", run, "--input", folder / "text", "--device", "cpu")


def test_files_in_each_others_place_are_noticed(
    folder: Path, commands: Commands, tmp_path: Path, tried: Tried
) -> None:
    """Of one RUN, and of two trainings that differ in their seed alone: training ends with no other weights."""
    count, failures = 0, list[str]()
    names = [name for name in files_of(folder / "half-recipe") if name.name != ".lock"]
    pairs = [(one, other) for one, other in product(names, names) if one < other and one.suffix == other.suffix]
    for one, other in [*pairs, *((name, None) for name in files_of(folder / "half-other"))]:
        run, count = tmp_path / f"run-{count}", count + 1
        shutil.copytree(folder / "half-recipe", run)
        if other is not None:
            swap(run / one, run / other)
        elif (run / one).exists():
            shutil.copy(folder / "half-other" / one, run / one)
        outcome = train(commands, folder, run)
        if complaint := outcome.complaint or differs(outcome, run, folder / "whole-recipe", one):
            failures.append(f"{one} for {other or 'the one of another seed'}: {complaint}")
    report(tried, "files of a RUN in each other's place", count, failures)


def test_a_damaged_store_is_made_anew(folder: Path, commands: Commands, tmp_path: Path, tried: Tried) -> None:
    """Whatever is damaged in it, training ends with the same weights; the warning names the store."""
    cache, count, failures = folder / "cache", 0, list[str]()
    names = [name for name in files_of(cache) if name.suffix != ".lock"]
    assert {name.name for name in names} == {"pairs.arrow", "lengths.bin", "store.json"}
    for name, kind, dice in cases(cache, 2 * SCALE):
        copy, run = tmp_path / "cache", tmp_path / "run"
        for path in (copy, run):
            shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(cache, copy)
        shutil.copytree(folder / "half-recipe", run)
        changed = damage(copy / name, kind, dice)
        outcome = train(commands, folder, run, "--set", f"data.cache={copy}")
        complaint = outcome.complaint or differs(outcome, run, folder / "whole-recipe", name)
        if not complaint and changed and (outcome.code or "is segmented anew" not in outcome.said):
            complaint = f"not made anew: {outcome.said}"
        failures += [f"{name}, {kind}: {complaint}"] if complaint else []
        count += changed
    report(tried, "damaged file of a cached store", count, failures)
