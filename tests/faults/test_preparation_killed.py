"""`jointnmt prepare` is killed at random: it continues from the finished blocks, to the same store."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
import yaml

from jointnmt.data.blocks import BLOCK_LINES
from jointnmt.experiment import Experiment
from support.ray_processes import descendants, start_command, wait_for_the_end_of, wait_until
from support.tiny import tiny_recipe, write_corpus
from support.tried import SCALE, Tried

BLOCKS, KILLS = 4, 2 * SCALE


@pytest.mark.slow
def test_a_store_survives_the_death_of_the_command_and_of_its_processes(tmp_path: Path, tried: Tried) -> None:
    dice = random.Random(SCALE)
    write_corpus(tmp_path)
    for side, word in (("de", "wort"), ("en", "word")):
        lines = (
            f"{word}{number % 20} {word}{number // 7 % 20} {number % 100_000}\n"
            for number in range(BLOCKS * BLOCK_LINES)
        )
        (tmp_path / f"train.{side}").write_text("".join(lines), encoding="utf-8")

    def command(name: str) -> list[object]:
        values = tiny_recipe(tmp_path, data__cache=str(tmp_path / name), data__processes=2)
        values["data"]["filters"] = {"duplicates": "drop"}
        values["segmentation"] = {"kind": "word", "vocabulary_size": 60}
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(Experiment.parse(values, origin="test").plain()), encoding="utf-8")
        return ["prepare", path, "--out", tmp_path / f"run-{name}"]

    said = tmp_path / "said"
    assert start_command(said, *command("whole")).wait(300) == 0, said.read_text()
    killed = command("killed")
    for number in range(KILLS):
        process = start_command(said, *killed)
        folder, due = tmp_path / "killed" / "segmented", number % BLOCKS
        wait_until(
            lambda: len(list(folder.glob("*.partial/blocks/*.json"))) >= due or process.poll() is not None,  # noqa: B023
            f"block {due}",
        )
        time.sleep(dice.uniform(0, 1))
        if process.poll() is not None:
            break
        workers = descendants(process)
        if number % 2 and workers:
            dice.choice(workers).kill()
            process.wait(300)
        else:
            process.kill()
            process.wait()
        wait_for_the_end_of(workers)
    assert start_command(said, *killed).wait(300) == 0, said.read_text()
    whole, found = (tmp_path / name / "segmented" for name in ("whole", "killed"))
    names = [sorted(path.relative_to(each) for path in each.rglob("*.*")) for each in (whole, found)]
    assert names[0] == names[1]
    failed = [name for name in names[0] if (whole / name).read_bytes() != (found / name).read_bytes()]
    tried("kill: `prepare`, or a process of it", KILLS, KILLS if failed else 0)
    assert not failed
