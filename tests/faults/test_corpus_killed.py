"""Workers and the command that translate a corpus are killed at random: every row is there once, and correct."""

from __future__ import annotations

import json
import random
import time
from functools import partial
from pathlib import Path

import psutil
import pytest

from jointnmt.translator import TranslationOptions, Translator
from support.ray_processes import descendants, named, start_command, wait_for_the_end_of, wait_until
from support.tiny_run import SOURCE_WORDS, write_run
from support.tried import SCALE, Tried, long_tier

ROWS, KILLS, SHARD_ROWS = 2000 * SCALE, 2 * SCALE, 250
WRONG = (17, ROWS // 2)
"""Rows that are longer than the model's limit."""


@pytest.mark.slow
@long_tier
def test_a_corpus_survives_the_death_of_workers_and_of_the_command(tmp_path: Path, tried: Tried) -> None:
    dice = random.Random(SCALE)
    run = write_run(tmp_path / "run", model={"max_length": 30})
    texts = [" ".join(dice.choices(SOURCE_WORDS, k=dice.randint(1, 25))) for _ in range(ROWS)]
    for number in WRONG:
        texts[number] = "der " * 40
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in texts))
    out, said = tmp_path / "out", tmp_path / "said"
    command = ["translate-corpus", run, tmp_path / "in.txt", "--out", out, "--shard-rows", SHARD_ROWS, "--workers", 2]

    def has_come_to(shards: int) -> bool:
        return len(list(out.glob("part-*"))) >= shards or process.poll() is not None

    def works() -> bool:
        return bool(named(descendants(process), "ray::MapWorker")) or process.poll() is not None

    process = start_command(said, *command)
    victims = ["worker", "command"] * (KILLS // 2)
    dice.shuffle(victims)
    for number, victim in enumerate(victims):
        due = number * (ROWS // SHARD_ROWS) // (KILLS + 1)
        wait_until(partial(has_come_to, due), f"shard {due}")
        wait_until(works, "a worker")
        time.sleep(dice.uniform(0, 2))
        assert process.poll() is None, said.read_text()
        cluster = descendants(process)
        if victim == "command":
            agents = named(cluster, "Agent")  # they notice only after a minute or two that the cluster has gone
            process.kill()
            process.wait()
            wait_for_the_end_of([each for each in cluster if each not in agents])
            process = start_command(said, *command)
        elif workers := named(cluster, "ray::MapWorker"):
            try:
                dice.choice(workers).kill()
            except psutil.NoSuchProcess:
                victims[number] = "nobody"
    code = process.wait(600)
    assert code == 0, said.read_text()
    options = TranslationOptions(on_invalid="skip")
    expected = [each.text for each in Translator.load(run, "cpu").translate_stream(texts, options)]
    found = [line for path in sorted(out.glob("part-*")) for line in path.read_text().splitlines()]
    told = [json.loads(line)["row"] for path in sorted((out / "_untranslated").iterdir()) for line in path.open()]
    failed = found != expected or told != [number + 1 for number in WRONG]
    left = [path.name for path in out.iterdir() if path.name.startswith(".")]
    for victim in ("worker", "command"):
        tried(f"kill: a {victim} of `translate-corpus`", victims.count(victim), failed * victims.count(victim))
    assert len(found) == ROWS
    assert found == expected
    assert told == [number + 1 for number in WRONG]
    assert not left
