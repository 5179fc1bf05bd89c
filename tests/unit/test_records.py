"""Kept records: the same after an interruption as without one."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from jointnmt.errors import ConfigurationError
from jointnmt.testset.records import CachedTask, Record, cached_records
from jointnmt.translator import Translator
from support.tiny_run import write_run


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JOINTNMT_CACHE", str(tmp_path / "cache"))
    return write_run(tmp_path / "run")


def counting(started: list[int], total: int = 8, stop: int | None = None, fact: str = "fact") -> CachedTask:
    """CachedTask whose records are numbers; it records where it starts, and may be interrupted."""

    def compute(start: int) -> Iterator[Record]:
        started.append(start)
        for number in range(start, total):
            if number == stop:
                raise KeyboardInterrupt
            yield {"number": number, "start": start}

    return CachedTask("counting", {"fact": fact}, total, compute)


def test_only_records_that_are_not_there_are_computed(run: Path) -> None:
    translator, started = Translator.load(run, "cpu"), list[int]()
    told: list[tuple[str, int, int]] = []

    def keep(work: CachedTask) -> list[Record]:
        return cached_records(translator, run, work, lambda *each: told.append(each))

    with pytest.raises(KeyboardInterrupt):
        keep(counting(started, stop=7))
    assert told[-1] == ("run: counting", 7, 8)
    (file,) = (run.parent / "cache" / "measured").glob("*.jsonl")
    with file.open("a") as stream:
        stream.write('{"number": 7, "sta')  # as left by a killed process
    told.clear()
    records = keep(counting(started))
    assert [record["number"] for record in records] == [*range(8)]
    assert [record["start"] for record in records] == [0] * 7 + [7]
    assert started == [0, 7]
    assert [done for _, done, _ in told] == [7, 8]  # at its start, so that the first one is timed
    assert keep(counting(started)) == records
    assert started == [0, 7]
    keep(counting(started, fact="another"))
    assert started == [0, 7, 0]


def test_another_process_is_waited_for(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    translator, started = Translator.load(run, "cpu"), list[int]()
    first = cached_records(translator, run, counting(started), lambda *each: None)
    (file,) = (run.parent / "cache" / "measured").glob("*.jsonl")
    held = threading.Event()

    def hold() -> None:
        with FileLock(file.with_suffix(".lock")):
            held.set()
            time.sleep(0.3)

    threading.Thread(target=hold).start()
    held.wait()
    with caplog.at_level("INFO"):
        assert cached_records(translator, run, counting(started), lambda *each: None) == first
    assert "another process computes it" in caplog.text


def test_a_cache_that_cannot_be_written_is_named(run: Path) -> None:
    (run.parent / "cache").write_text("no folder")
    with pytest.raises(ConfigurationError, match=r"measured.*JOINTNMT_CACHE"):
        cached_records(Translator.load(run, "cpu"), run, counting([]), lambda *each: None)


def test_an_error_of_the_computation_is_its_own(run: Path) -> None:
    """The error does not concern the cache, so it is not named."""

    def compute(start: int) -> Iterator[Record]:
        yield {"number": start}
        raise OSError("broken pipe")

    with pytest.raises(OSError, match=r"^broken pipe$"):
        cached_records(Translator.load(run, "cpu"), run, CachedTask("failing", {}, 2, compute), lambda *each: None)


@pytest.mark.parametrize("change", [(b'"number": 4', b'"number": 5'), (b"[", b"", 1), (b"", b"[" * 100_000, 1)])
def test_changed_records_are_computed_anew(
    run: Path, change: tuple[bytes, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    translator, started = Translator.load(run, "cpu"), list[int]()
    first = cached_records(translator, run, counting(started), lambda *each: None)
    (file,) = (run.parent / "cache" / "measured").glob("*.jsonl")
    content = file.read_bytes()
    file.write_bytes(content.replace(*change))
    assert [one["number"] for one in cached_records(translator, run, counting(started), lambda *each: None)] == [
        *range(8)
    ]
    assert "damaged from line" in caplog.text
    lines = content.splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:3], lines[4], lines[3], *lines[5:]]))
    assert cached_records(translator, run, counting(started), lambda *each: None)[:3] == first[:3]
    assert started[-1] == 3
