"""`jointnmt translate-corpus` on a Ray cluster of this machine: complete, interrupted, and its refusals."""

from __future__ import annotations

import gzip
import json
import os
import random
import secrets
import signal
import socket
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from jointnmt.cli.main import app
from jointnmt.translator import Translator
from support.ray_processes import descendants, start_command, start_head, wait_for_the_end_of, wait_until
from support.tiny_run import SOURCE_WORDS, write_run

pytestmark = pytest.mark.slow
ROWS = 120


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("cluster") / "run", model={"max_length": 30})


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A folder of JSON lines in two files, one of them compressed, and the texts."""
    folder, dice = tmp_path_factory.mktemp("corpus"), random.Random(0)
    texts = [" ".join(dice.choices(SOURCE_WORDS, k=dice.randint(1, 20))) for _ in range(ROWS)]
    lines = [json.dumps({"id": number, "german": text}) + "\n" for number, text in enumerate(texts)]
    (folder / "1.jsonl.gz").write_bytes(gzip.compress("".join(lines[:50]).encode()))
    (folder / "2.jsonl").write_text("".join(lines[50:]))
    return folder, texts


def refusal(*command: object) -> str:
    """Message on wrong usage, before a cluster is started."""
    result = CliRunner().invoke(app, [str(each) for each in command])
    assert result.exit_code == 2, result.stderr
    return " ".join(result.stderr.split())


def test_an_interrupted_corpus_is_finished_by_the_same_command(
    run: Path, rows: tuple[Path, list[str]], tmp_path: Path
) -> None:
    (folder, texts), out, said = rows, tmp_path / "out", tmp_path / "said"
    command = ["translate-corpus", run, folder, "--out", out, "--column", "german", "--into", "english"]
    command += ["--shard-rows", 3, "--workers", 2]
    process = start_command(said, *command)
    wait_until(lambda: bool(list(out.glob("part-*"))) or process.poll() is not None, "the first shard")
    cluster = descendants(process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143, said.read_text()
    wait_for_the_end_of(cluster)
    assert "jointnmt: interrupted by SIGTERM." in said.read_text()
    done = {path: path.stat().st_mtime_ns for path in out.glob("part-*")}
    assert 0 < len(done) < ROWS // 3

    cores = os.cpu_count() or 1
    assert start_command(said, *command, "--workers", cores + 1).wait(300) == 0, said.read_text()
    assert f"there is room for {cores} workers now" in said.read_text()
    assert {path: path.stat().st_mtime_ns for path in done} == done
    found = [json.loads(line) for path in sorted(out.glob("part-*")) for line in path.read_text().splitlines()]
    assert [row["id"] for row in found] == list(range(ROWS))
    assert [row["german"] for row in found] == texts
    assert [row["english"] for row in found] == Translator.load(run, "cpu").translate(texts)
    assert not (out / "_untranslated").exists()
    log = said.read_text()
    assert f"continuing after {3 * len(done)} of {ROWS} rows" in log
    assert f"translated: {ROWS} of {ROWS} rows, " in log and " a second" in log
    assert "Traceback" not in log and "Warning" not in log

    assert "was made with another input or other options: options.search.beam_size: 3 -> 2" in refusal(
        *command, "--beam", 2
    )
    (folder / "2.jsonl").write_text((folder / "2.jsonl").read_text().replace("Hund", "Katze", 1))
    assert "was made with another input or other options: input.sha256: " in refusal(*command)


def test_what_a_worker_cannot_do_is_told_as_an_error_of_the_command(
    run: Path, rows: tuple[Path, list[str]], tmp_path: Path
) -> None:
    said = tmp_path / "said"
    command = ["translate-corpus", run, rows[0] / "2.jsonl", "--out", tmp_path / "out", "--column", "german"]
    assert start_command(said, *command, "--device", "cuda").wait(300) == 2, said.read_text()
    assert "jointnmt: error: " in said.read_text() and "cuda" in said.read_text()
    assert "Traceback" not in said.read_text()


def test_a_folder_within_the_input_is_refused(run: Path, rows: tuple[Path, list[str]]) -> None:
    command = ["translate-corpus", run, rows[0], "--out", rows[0] / "out", "--column", "german"]
    assert "is within the input" in refusal(*command) and not (rows[0] / "out").exists()


def test_a_cluster_that_is_not_there_is_told(run: Path, rows: tuple[Path, list[str]], tmp_path: Path) -> None:
    said = tmp_path / "said"
    command = ["translate-corpus", run, rows[0] / "2.jsonl", "--out", tmp_path / "out", "--column", "german"]
    assert start_command(said, *command, "--address", "127.0.0.1:1").wait(300) == 2, said.read_text()
    assert "no Ray cluster can be reached" in said.read_text()


def test_a_worker_of_more_cores_than_there_are_is_refused(
    run: Path, rows: tuple[Path, list[str]], tmp_path: Path
) -> None:
    cores = os.cpu_count() or 1
    command = ["translate-corpus", run, rows[0] / "2.jsonl", "--out", tmp_path / "out", "--column", "german"]
    refused = refusal(*command, "--worker-cpus", cores + 1)
    assert f"This machine has fewer than the {cores + 1} cores of --worker-cpus." in refused


def test_a_cluster_that_runs_is_joined_by_its_address_and_token(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    said, address = tmp_path / "said", f"127.0.0.1:{port}"
    (tmp_path / "in.txt").write_text("der Hund\ndie Katze\n")
    command = ["translate-corpus", run, tmp_path / "in.txt", "--out", tmp_path / "out", "--address", address]
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(16))
    head = start_head(port, tmp_path / "head")
    try:
        wait_until(lambda: "Ray runtime started" in (tmp_path / "head").read_text(), "a cluster")
        assert start_command(said, *command).wait(300) == 0, said.read_text()
        assert head.poll() is None  # it continues without the command
    finally:
        for process in [*descendants(head), head]:  # on a signal to end, it waits for half a minute
            with suppress(psutil.NoSuchProcess):
                process.kill()
        head.wait(60)
    written = (tmp_path / "out" / "part-0000000.txt").read_text().splitlines()
    assert written == Translator.load(run, "cpu").translate(["der Hund", "die Katze"])
