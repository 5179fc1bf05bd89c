"""A RUN directory that is lost with its machine: the training continues in another one, from the mirror."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from jointnmt.errors import ConfigurationError, JointNMTError, ModelError
from jointnmt.experiment import Experiment
from jointnmt.runs import checkpoint, storage
from jointnmt.runs.mirror import LIST, Mirror
from jointnmt.runs.storage import Folder
from jointnmt.training.directory import TrainingDirectory
from jointnmt.training.loop import TrainingInterruptedError
from jointnmt.training.progress import NoDisplay
from jointnmt.training.run import train
from support.runs import At, assert_same_runs
from support.tiny import tiny_recipe, write_corpus


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    write_corpus(tmp_path)
    return Experiment.parse(tiny_recipe(tmp_path), origin="test")


def interrupted(experiment: Experiment, run: Path, mirror: str, step: int) -> None:
    """Train up to this update."""
    with pytest.raises(TrainingInterruptedError):
        train(experiment, run, At(step, lambda: os.kill(os.getpid(), signal.SIGINT)), mirror)


def contents(run: Path) -> dict[str, bytes]:
    paths = (path for path in run.rglob("*") if path.is_file() and path.name != ".lock")
    return {path.relative_to(run).as_posix(): path.read_bytes() for path in paths}


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_a_training_goes_on_without_its_directory(experiment: Experiment, tmp_path: Path, kind: str) -> None:
    mirror = f"file://{tmp_path}/mirror" if kind == "file" else f"memory://{tmp_path.name}/mirror"
    whole, first, second, third = (tmp_path / name for name in ("whole", "first", "second", "third"))
    train(experiment, whole, NoDisplay())
    interrupted(experiment, first, mirror, 5)
    saved = contents(first)
    shutil.rmtree(first)
    interrupted(experiment, second, mirror, 8)
    train(experiment, first, NoDisplay(), mirror)
    assert_same_runs(first, whole)
    train(experiment, second, NoDisplay(), mirror)  # its own state is older, so it fetches the finished one
    assert contents(second) == contents(first) != saved
    Mirror(mirror).pull(third)
    assert contents(third) == contents(first)


def test_what_is_newer_here_is_not_replaced(experiment: Experiment, tmp_path: Path) -> None:
    mirror, ahead, behind = f"{tmp_path}/mirror", tmp_path / "ahead", tmp_path / "behind"
    interrupted(experiment, behind, mirror, 4)
    shutil.copytree(behind, ahead)
    interrupted(experiment, ahead, f"{tmp_path}/elsewhere", 9)
    before = contents(ahead)
    TrainingDirectory(ahead, Mirror(mirror)).fetch(experiment)
    assert contents(ahead) == before


def test_only_a_copy_that_is_whole_counts(
    experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error at each written object: the mirror is unchanged, and the next state is complete again."""
    mirror, run, copy = f"{tmp_path}/mirror", tmp_path / "run", tmp_path / "copy"
    interrupted(experiment, run, mirror, 4)
    before = contents(run)
    interrupted(experiment, run, f"{tmp_path}/elsewhere", 7)
    write: Any = Folder.write
    for working in range(20):
        left = iter(range(working))

        def write_some(folder: Folder, name: str, data: bytes, left: Any = left) -> None:
            if next(left, None) is None:
                raise ConfigurationError("no room")
            write(folder, name, data)

        with monkeypatch.context() as patched:
            patched.setattr(Folder, "write", write_some)
            try:
                Mirror(mirror).push(run, 7)
            except ConfigurationError:
                Mirror(mirror).pull(copy)
                assert contents(copy) == before
                shutil.rmtree(copy)
                continue
        break
    assert working >= 3  # each attempt leaves contents there, which the next one need not send again
    Mirror(mirror).pull(copy)
    assert contents(copy) == contents(run)


def test_what_a_killed_process_has_left_unfinished_is_deleted(experiment: Experiment, tmp_path: Path) -> None:
    mirror, run = tmp_path / "mirror", tmp_path / "run"
    interrupted(experiment, run, f"{tmp_path}/elsewhere", 4)
    with pytest.MonkeyPatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(storage, "publish", Mock(side_effect=KeyboardInterrupt))
        patched.setattr(Path, "unlink", lambda *_, **__: None)  # a process that has ended deletes nothing
        Mirror(str(mirror)).push(run, 4)
    assert {path.name[0] for path in mirror.iterdir()} == {".", "c"}
    Mirror(str(mirror)).push(run, 4)
    assert {path.name for path in mirror.iterdir()} == {"contents", LIST}


def test_contents_are_sent_once_and_deleted_when_nobody_names_them(
    experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror, run = tmp_path / "mirror", tmp_path / "run"
    train(experiment, run, NoDisplay(), str(mirror))
    kept = {path.name for path in (mirror / "contents").iterdir()}
    assert len(kept) == len(set(contents(run).values()))
    sent, write = [], Folder.write
    monkeypatch.setattr(Folder, "write", lambda self, name, content: sent.append(name) or write(self, name, content))
    Mirror(str(tmp_path / "other")).push(run, 4)
    assert sorted(sent) == [*sorted(f"contents/{name}" for name in kept), LIST], "also of two files that are alike"


def test_a_training_goes_on_though_its_mirror_fails(
    experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Only the result is required."""

    def fail(mirror: Mirror, run: Path, step: int) -> None:
        raise ConfigurationError(f"no room for update {step}.")

    monkeypatch.setattr(Mirror, "push", fail)
    run = tmp_path / "run"
    with pytest.raises(ConfigurationError, match="no room for update 12"):
        train(experiment, run, NoDisplay(), f"{tmp_path}/mirror")
    assert "no room for update 5. The training continues" in caplog.text
    assert TrainingDirectory(run).states.newest_step() == 12


@pytest.mark.parametrize("operation", ["ls", "pipe_file", "rm_file"])
def test_a_training_goes_on_though_the_store_is_out_of_reach(
    experiment: Experiment,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    operation: str,
) -> None:
    """Packages of object stores have errors of their own; an object that cannot be deleted is not an error."""
    run, mirror = tmp_path / "run", f"memory://{tmp_path.name}-{operation}/mirror"
    interrupted(experiment, run, mirror, 3)

    def fail(*_: Any, **__: Any) -> None:
        raise EndpointError

    with monkeypatch.context() as patched:
        patched.setattr(MemoryFileSystem, operation, fail)
        interrupted(experiment, run, mirror, 6)
        if operation != "rm_file":
            assert "EndpointError. Check the address" in caplog.text
            with pytest.raises(ConfigurationError, match="EndpointError"):
                train(experiment, run, NoDisplay(), mirror)
    train(experiment, run, NoDisplay(), mirror)
    Mirror(mirror).pull(tmp_path / "copy")
    assert contents(tmp_path / "copy") == contents(run)


@pytest.mark.parametrize("operation", ["stat", "open", "read_bytes"])
def test_a_training_goes_on_though_its_own_files_cannot_be_read(
    experiment: Experiment,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    operation: str,
) -> None:
    run, mirror = tmp_path / "run", f"{tmp_path}/mirror"
    read = getattr(Path, operation)
    push: Any = Mirror.push

    def fail(path: Path, *arguments: Any, **options: Any) -> Any:
        if path == run / "log.jsonl":
            raise OSError(errno.EIO, "Input/output error", str(path))
        return read(path, *arguments, **options)

    def push_failing(*arguments: Any) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(Path, operation, fail)
            push(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Mirror, "push", push_failing)
        interrupted(experiment, run, mirror, 6)
        assert "log.jsonl: cannot be copied to" in caplog.text and "The training continues" in caplog.text
    train(experiment, run, NoDisplay(), mirror)
    Mirror(mirror).pull(tmp_path / "copy")
    assert contents(tmp_path / "copy") == contents(run)


class EndpointError(Exception):
    """An error like botocore's: not an `OSError`, and here without a message."""


def test_the_same_command_brings_a_result_to_its_mirror_that_did_not_arrive(
    experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, mirror, push = tmp_path / "run", f"{tmp_path}/mirror", Mirror.push

    def fail_at_the_result(mirror: Mirror, run: Path, step: int) -> None:
        if "candidates" in checkpoint.read_values(TrainingDirectory(run).model):
            raise ConfigurationError("no room.")
        push(mirror, run, step)

    with monkeypatch.context() as patched:
        patched.setattr(Mirror, "push", fail_at_the_result)
        with pytest.raises(ConfigurationError, match="no room"):
            train(experiment, run, NoDisplay(), mirror)
    train(experiment, run, NoDisplay(), mirror)
    Mirror(mirror).pull(tmp_path / "copy")
    assert contents(tmp_path / "copy") == contents(run)


@pytest.mark.parametrize("address", ["", " ", "RUN", "RUN/mirror", "file://RUN/mirror"])
def test_a_mirror_that_would_be_none_is_refused(experiment: Experiment, tmp_path: Path, address: str) -> None:
    with pytest.raises(ConfigurationError, match="is inside" if address.strip() else "mirror is empty"):
        train(experiment, tmp_path / "run", NoDisplay(), address.replace("RUN", str(tmp_path / "run")))


def test_a_precision_that_was_chosen_by_measuring_is_no_other_configuration(
    experiment: Experiment, tmp_path: Path
) -> None:
    training = experiment.training.model_copy(update={"precision": "auto"})
    experiment = experiment.model_copy(update={"training": training})
    interrupted(experiment, tmp_path / "run", f"{tmp_path}/mirror", 4)
    interrupted(experiment, tmp_path / "new", f"{tmp_path}/mirror", 7)
    assert TrainingDirectory(tmp_path / "new").states.newest_step() == 8


def test_another_training_and_damage_are_refused(experiment: Experiment, tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    interrupted(experiment, tmp_path / "run", str(mirror), 4)
    other = experiment.model_copy(update={"seed": 5})
    interrupted(other, tmp_path / "other", f"{tmp_path}/elsewhere", 2)
    refusals: list[JointNMTError] = []
    for run in ("other", "new"):  # with a state of its own, and without one
        with pytest.raises(ConfigurationError, match="seed") as refused:
            train(other, tmp_path / run, NoDisplay(), str(mirror))
        refusals.append(refused.value)
    assert all(f"{mirror}: is the mirror of a training with another" in str(refusal) for refusal in refusals)
    assert [path.name for path in (tmp_path / "new").iterdir()] == [".lock"]  # nothing of it was fetched
    for path in (mirror / "contents").iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ModelError, match=r"experiment\.yaml is missing or damaged"):
        Mirror(str(mirror)).pull(tmp_path / "copy")
    listed = json.loads((mirror / LIST).read_text())
    for name in ("../beside", "/elsewhere", "checkpoints/../../beside"):
        (mirror / LIST).write_text(json.dumps({**listed, "files": {name: "0" * 64}}))
        with pytest.raises(ModelError, match=f"'{name}' is not a file of a RUN"):
            Mirror(str(mirror)).pull(tmp_path / "copy")
    (mirror / LIST).write_text('{"step": 4}')
    with pytest.raises(ModelError, match=LIST):
        Mirror(str(mirror)).newest_step()
