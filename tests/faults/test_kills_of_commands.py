"""Commands that are killed, or whose disk is full or read-only: called again, they end as if undisturbed."""

from __future__ import annotations

import errno
import random
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.commands import Commands, Fault, Outcome
from support.tried import SCALE, Tried
from support.works import WORKS, Undisturbed, Work

EXPENSIVE = {"report", "probe", "scale"}
"""Works that take seconds of a core each."""

DISKS = {"full disk": errno.ENOSPC, "read-only disk": errno.EROFS}

_MEASURED: dict[str, Undisturbed] = {}


def undisturbed(name: str, commands: Commands, trained: Path, folder: Path) -> Undisturbed:
    """Result of a command without faults, by the first of two calls, so that only results are compared."""
    if name not in _MEASURED:
        place = folder / "undisturbed"
        WORKS[name].begin(trained, place)
        began = time.monotonic()
        outcome = WORKS[name].run(commands, trained, place)
        seconds = time.monotonic() - began
        assert outcome.complaint is None, outcome.complaint
        assert outcome.code == 0 or name == "scale", outcome.said
        result = WORKS[name].result(place)
        assert result
        assert outcome.operations > 0
        largest = max(path.stat().st_size for path in place.rglob("*") if path.is_file())
        _MEASURED[name] = Undisturbed(outcome, result, largest, seconds)
        shutil.rmtree(place)
    return _MEASURED[name]


def disturb(
    name: str, fault: Fault, commands: Commands, trained: Path, place: Path, expected: Undisturbed
) -> tuple[Outcome, str | None]:
    """Run a command with a fault, and call it again; returns what is wrong in the end."""
    work = WORKS[name]
    work.begin(trained, place)
    disturbed = work.run(commands, trained, place, fault)
    complaint = None
    if disturbed.code != -signal.SIGKILL:
        complaint = disturbed.complaint
        if disturbed.code == 0 and not _is_same(work, place, expected):
            complaint = f"ended with another result: {disturbed.said}"
        if complaint is None and fault.error != errno.EROFS and (left := _unfinished(place)):
            complaint = f"has left {left}: {disturbed.said}"
    if complaint is None and work.once and _is_same(work, place, expected):  # the fault came after the end
        shutil.rmtree(place)
        return disturbed, None
    again = work.run(commands, trained, place)
    if complaint is None and again.code != expected.outcome.code:
        complaint = f"then: exit code {again.code}: {again.said[-3000:]}"
    if complaint is None and not _is_same(work, place, expected):
        complaint = f"then another result: {again.said[-3000:]}"
    shutil.rmtree(place)
    return disturbed, complaint and f"{fault}: {complaint}"


def _is_same(work: Work, place: Path, expected: Undisturbed) -> bool:
    return work.result(place) == expected.result


def _unfinished(place: Path) -> list[Path]:
    """Temporary files, for which a full disk has no room."""
    return [path for path in place.rglob(".*") if path.match(".*.new*") or path.match(".tmp*")]


def moments(name: str, count: int, fault: str) -> Iterator[float]:
    """Moments as fractions of the whole, by seed; fewer for expensive commands."""
    dice = random.Random(f"{name} {fault}")
    for _ in range(max(1, count // 2) if name in EXPENSIVE else count):
        yield dice.random()


def conclude(tried: Tried, fault: str, count: int, failures: list[str]) -> None:
    tried(fault, count, len(failures))
    assert not failures, "\n\n".join(failures)


@pytest.mark.parametrize("name", [name for name in WORKS if name != "train"])
def test_a_killed_command_is_called_again(
    commands: Commands, trained: Path, tmp_path: Path, tried: Tried, name: str
) -> None:
    """Kills before a file operation, and at a moment that may be after the command's end."""
    expected = undisturbed(name, commands, trained, tmp_path)
    operations = [int(part * expected.outcome.operations) for part in moments(name, 2 * SCALE, "operation")]
    faults = [Fault(before=number) for number in sorted(set(operations))]
    faults += [Fault(seconds=part * expected.seconds) for part in moments(name, 2 * SCALE, "moment")]
    failures, kills = list[str](), 0
    for fault in faults:
        disturbed, complaint = disturb(name, fault, commands, trained, tmp_path / "place", expected)
        if fault.before >= 0 and disturbed.code != -signal.SIGKILL:
            complaint = f"{fault}: not killed: {disturbed.said}"
        kills += disturbed.code == -signal.SIGKILL
        failures += [complaint] if complaint else []
    conclude(tried, f"kill: {name}", kills, failures)


@pytest.mark.parametrize("name", [name for name in WORKS if name not in ("scale", "building a store")])
def test_a_disk_that_fails_ends_a_command_with_a_message(
    commands: Commands, trained: Path, tmp_path: Path, tried: Tried, name: str
) -> None:
    """Failures from a file operation on; and a limit of file size, for any library that writes."""
    expected = undisturbed(name, commands, trained, tmp_path)
    cheap = name not in EXPENSIVE or SCALE > 1
    for disk, number in DISKS.items() if cheap else [("full disk", errno.ENOSPC)]:
        parts = [0.0, *moments(name, SCALE, disk)][0 if cheap else 1 :]
        faults = [Fault(before=int(part * expected.outcome.operations), error=number) for part in parts]
        failures = [disturb(name, fault, commands, trained, tmp_path / "place", expected)[1] for fault in faults]
        conclude(tried, f"{disk}: {name}", len(faults), [each for each in failures if each])
    sizes = [4096 + int(part * (expected.largest - 4097)) for part in moments(name, SCALE, "size")]
    faults = [Fault(file_bytes=size) for size in sizes if cheap]
    failures = [disturb(name, fault, commands, trained, tmp_path / "place", expected)[1] for fault in faults]
    conclude(tried, f"no room in a file: {name}", len(faults), [each for each in failures if each])
