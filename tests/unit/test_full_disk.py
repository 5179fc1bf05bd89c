"""A full disk: files that should be replaced stay unchanged, complete and with their permissions."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jointnmt.analysis.study import write_studies
from jointnmt.cli.resumption import resumable_output
from jointnmt.files import write_text
from jointnmt.report.analyses import write_analyses
from jointnmt.serving.keys import add_key
from jointnmt.serving.page import write_page
from jointnmt.training.directory import TrainingDirectory

REPLACED: dict[str, Callable[[Path], object]] = {
    "a.json": lambda path: write_text(path, "new " * 100),
    "versions.json": lambda path: TrainingDirectory(path.parent).write_versions({"threads": 1}, "0"),
    "probe.json": lambda path: write_studies({}, path.parent),
    "analysis.json": lambda path: write_analyses([], path.parent),
    "explore.html": lambda path: write_page({"format": 1}, path),
}
"""Files of the library and functions that write them."""


@contextmanager
def no_room() -> Iterator[None]:
    """Context in which no byte can be written to any file, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("name", REPLACED)
def test_what_cannot_be_replaced_stays(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("old")
    path.chmod(0o640)
    with pytest.raises(OSError), no_room():
        REPLACED[name](path)
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {name: "old"}
    REPLACED[name](path)
    assert path.read_text() != "old"
    assert path.stat().st_mode & 0o777 == 0o640


def test_api_keys_stay(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    add_key(path, "weblate", None)
    before = path.read_text()
    with pytest.raises(OSError), no_room():
        add_key(path, "omegat", None)
    assert path.read_text() == before
    add_key(path, "omegat", None)
    assert path.stat().st_mode & 0o777 == 0o600, "others may not read the file"


def test_finished_lines_can_be_resumed_after_it(tmp_path: Path) -> None:
    path, facts = tmp_path / "translations", {"model": "0" * 64}
    with (
        pytest.raises(KeyboardInterrupt),
        resumable_output(path, facts, rows_have_numbers=False, resume=False) as (write, _),
    ):
        write("one")
        raise KeyboardInterrupt
    with (
        pytest.raises(OSError),
        no_room(),
        resumable_output(path, facts, rows_have_numbers=False, resume=True) as (write, done),
    ):
        write("two" * done)
    with resumable_output(path, facts, rows_have_numbers=False, resume=True) as (write, done):
        write("two" * done)
    assert path.read_text() == "one\ntwo\n"


def test_a_link_is_written_through_and_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    write_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    write_text(Path("/dev/null"), "new")
    assert Path("/dev/null").is_char_device()
