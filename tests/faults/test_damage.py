"""Damaged files of a RUN, the cache and a shared folder: the same result as without damage, or a clear error."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from jointnmt.testset.records import CachedTask, cached_records
from jointnmt.translator import Translator
from support.commands import Commands, Outcome
from support.damage import DAMAGES, damage, swap
from support.runs import log_records
from support.tried import SCALE, Tried


def train(commands: Commands, trained: Path, run: Path, recipe: str = "recipe", cache: Path | None = None) -> Outcome:
    return commands.run(
        "train", trained / f"{recipe}.yaml", "--out", run, env={"JOINTNMT_CACHE": str(cache or trained / "cache")}
    )


def files_of(folder: Path) -> list[Path]:
    """All files, as sorted paths in the folder."""
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def cases(folder: Path, count: int) -> Iterator[tuple[Path, str, random.Random]]:
    """`count` kinds of damage to each file of a trained folder, by seed, with the generator of their places."""
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
    trained: Path, commands: Commands, tmp_path: Path, tried: Tried, which: str
) -> None:
    """It ends with the same weights or an error; a finished run stays, or is made again from undamaged parts."""
    original, whole, failures, count = trained / f"{which}-recipe", trained / "whole-recipe", [], 0
    for name, kind, dice in cases(original, SCALE):
        run = tmp_path / f"run-{count}"
        shutil.copytree(original, run)
        count += damage(run / name, kind, dice)
        outcome = train(commands, trained, run)
        if complaint := outcome.complaint or differs(outcome, run, whole, name):
            failures.append(f"{name}, {kind}: {complaint}")
        shutil.rmtree(run)
    report(tried, "damaged file of a RUN, training goes on", count, failures)


def differs(outcome: Outcome, run: Path, whole: Path, damaged: Path) -> str | None:
    """Differences of a successful training from one without the damage."""
    if outcome.code:
        return None
    if (run / "model.safetensors").read_bytes() != (whole / "model.safetensors").read_bytes():
        return f"other weights: {outcome.said}"
    is_same = damaged == Path("log.jsonl") or log_records(run) == log_records(whole)
    return None if is_same else f"other records: {outcome.said}"


def test_a_damaged_run_translates_as_before_or_not_at_all(
    trained: Path, commands: Commands, tmp_path: Path, tried: Tried
) -> None:
    for name, fault in (("whole-recipe", "damaged file of a RUN"), ("shared", "damaged file of a shared folder")):
        expected, failures, count = translate(commands, trained, trained / name), [], 0
        assert expected.code == 0, expected.said
        for file, kind, dice in cases(trained / name, 2 * SCALE):
            copy = tmp_path / name
            shutil.copytree(trained / name, copy, dirs_exist_ok=True)
            count += damage(copy / file, kind, dice)
            outcome = translate(commands, trained, copy)
            if complaint := outcome.complaint or (
                outcome.code == 0 and outcome.printed != expected.printed and "other"
            ):
                failures.append(f"{name}/{file}, {kind}: {complaint}")
        report(tried, f"{fault}, translation", count, failures)


def translate(commands: Commands, trained: Path, run: Path) -> Outcome:
    return commands.run("translate", run, "--input", trained / "text", "--device", "cpu")


def test_files_in_each_others_place_are_noticed(
    trained: Path, commands: Commands, tmp_path: Path, tried: Tried
) -> None:
    """Files of one RUN, or of two trainings that differ only in their seed: training ends with no other weights."""
    count, failures = 0, list[str]()
    names = [name for name in files_of(trained / "half-recipe") if name.name != ".lock"]
    pairs = [(one, other) for one, other in product(names, names) if one < other and one.suffix == other.suffix]
    for one, other in [*pairs, *((name, None) for name in files_of(trained / "half-other"))]:
        run, count = tmp_path / f"run-{count}", count + 1
        shutil.copytree(trained / "half-recipe", run)
        if other is not None:
            swap(run / one, run / other)
        elif (run / one).exists():
            shutil.copy(trained / "half-other" / one, run / one)
        outcome = train(commands, trained, run)
        if complaint := outcome.complaint or differs(outcome, run, trained / "whole-recipe", one):
            failures.append(f"{one} for {other or 'the one of another seed'}: {complaint}")
    report(tried, "files of a RUN in each other's place", count, failures)


def test_a_damaged_store_is_made_anew(trained: Path, commands: Commands, tmp_path: Path, tried: Tried) -> None:
    """Whatever is damaged in it, training ends with the same weights; the warning names the store."""
    cache, count, failures = trained / "cache", 0, list[str]()
    names = [name for name in files_of(cache) if name.suffix != ".lock"]
    assert {name.name for name in names} == {"pairs-000000.arrow", "lengths.bin", "store.json"}
    for name, kind, dice in cases(cache, 2 * SCALE):
        copy, run = tmp_path / "cache", tmp_path / "run"
        for path in (copy, run):
            shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(cache, copy)
        shutil.copytree(trained / "half-recipe", run)
        changed = damage(copy / name, kind, dice)
        outcome = train(commands, trained, run, cache=copy)
        complaint = outcome.complaint or differs(outcome, run, trained / "whole-recipe", name)
        if not complaint and changed and (outcome.code or "is segmented again" not in outcome.said):
            complaint = f"not made anew: {outcome.said}"
        failures += [f"{name}, {kind}: {complaint}"] if complaint else []
        count += changed
    report(tried, "damaged file of a cached store", count, failures)


def test_damaged_measurements_are_made_anew(trained: Path, tmp_path: Path, tried: Tried) -> None:
    """Records of a run by `report`, `analyse` and `contrast`: each line is as it was written, or computed again."""
    translator, run, failures, count = Translator.load(trained / "whole-recipe", "cpu"), trained / "whole-recipe", [], 0
    records = [{"text": f"word{number}", "hits": [True, False], "score": number / 7} for number in range(9)]
    task = CachedTask("measuring", {}, len(records), lambda start: iter(records[start:]))

    def kept() -> list[Any]:
        return cached_records(translator, run, task, lambda *each: None)

    assert kept() == records
    (file,) = translator.experiment.data.cache_folder.glob("measured/*.jsonl")
    whole = file.read_bytes()
    for number, kind in product(range(3 * SCALE), sorted(DAMAGES)):
        count += damage(file, kind, random.Random(f"{number} {kind}"))
        if kept() != records or file.read_bytes() != whole:
            failures.append(f"{kind}, {number}")
    report(tried, "damaged file of cached measurements", count, failures)
