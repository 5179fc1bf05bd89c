"""Checkpoint files: writing and reading, averaging, and selection of those that are kept."""

from __future__ import annotations

import errno
import fcntl
import math
import os
import resource
from pathlib import Path
from typing import Any

import pytest
import safetensors
import torch
from safetensors.torch import save_file

from jointnmt.errors import ConfigurationError, ModelError
from jointnmt.files import write_text
from jointnmt.runs import checkpoint
from jointnmt.runs.averaging import average_checkpoints, average_into, choose_checkpoints
from jointnmt.runs.provenance import TRAINING
from jointnmt.runs.selection import ScoredCheckpoint, Selection
from jointnmt.runs.weights import read_weights
from jointnmt.training.directory import TrainingDirectory
from support.tiny_run import experiment

TENSORS = {
    "weight": torch.arange(6.0).reshape(2, 3),
    "half": torch.ones(3, dtype=torch.bfloat16),
    "count": torch.tensor(5),
}
VALUES = {"step": 3, "list": [1, 2.5, None], "worst": -math.inf}


def test_reads_what_it_wrote(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    checkpoint.write(path, TENSORS, VALUES)
    tensors, values = checkpoint.read(path)
    assert values == checkpoint.read_values(path) == VALUES
    assert tensors.keys() == TENSORS.keys()
    assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.safetensors"]  # no temporary file is left


def test_equal_content_makes_equal_files(tmp_path: Path) -> None:
    for name in "ab":
        checkpoint.write(tmp_path / name, TENSORS, VALUES)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_tied_weights_are_both_there(tmp_path: Path) -> None:
    weight = torch.randn(3, 2)
    checkpoint.write(tmp_path / "a", {"one": weight, "other": weight, "part": weight[:1]}, {})
    tensors, _ = checkpoint.read(tmp_path / "a")
    assert torch.equal(tensors["one"], weight)
    assert torch.equal(tensors["other"], weight)
    assert torch.equal(tensors["part"], weight[:1])


def test_any_changed_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    checkpoint.write(path, TENSORS, VALUES)
    good = path.read_bytes()
    for place in range(0, len(good), 7):
        path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        with pytest.raises(ModelError, match=str(path)):
            checkpoint.read(path)


@pytest.mark.parametrize("length", [0, 5, 100, -1])
def test_a_cut_file_is_noticed(tmp_path: Path, length: int) -> None:
    path = tmp_path / "a"
    checkpoint.write(path, TENSORS, VALUES)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ModelError, match=str(path)):
        checkpoint.read(path)
    assert checkpoint.read_values(path) in ({}, VALUES)


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="missing"):
        checkpoint.read(tmp_path / "missing")
    save_file({"weight": torch.ones(2)}, tmp_path / "foreign")
    with pytest.raises(ModelError, match="not a checkpoint of jointnmt"):
        checkpoint.read(tmp_path / "foreign")


@pytest.mark.parametrize(
    "header",
    ["[" * 200_000, '{"values": ' + "[" * 200_000, "9" * 5000, "5", "[]", '{"version": 1, "sha256": "", "values": 5}'],
)
def test_a_hostile_header_is_a_model_error(tmp_path: Path, header: str) -> None:
    path = tmp_path / "a"
    save_file({"weight": torch.ones(2)}, path, {"jointnmt": header})
    for read in (checkpoint.read, checkpoint.read_outline):
        with pytest.raises(ModelError, match="is not a checkpoint of jointnmt") as caught:
            read(path)
        assert caught.value.exit_code == 4
    assert checkpoint.read_values(path) == {}


@pytest.mark.parametrize("brace", [b"[", b'{"a":'])
def test_a_nested_header_of_the_file_is_a_model_error(tmp_path: Path, brace: bytes) -> None:
    content = brace * 200_000
    (tmp_path / "a").write_bytes(len(content).to_bytes(8, "little") + content)
    for read in (checkpoint.read, checkpoint.read_outline):
        with pytest.raises(ModelError, match="cannot be read as a checkpoint"):
            read(tmp_path / "a")


def test_an_outline_tells_what_is_there(tmp_path: Path) -> None:
    checkpoint.write(tmp_path / "a", TENSORS, VALUES)
    outline = checkpoint.read_outline(tmp_path / "a")
    assert outline.tensors == {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in TENSORS.items()}
    assert outline.values == VALUES


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    checkpoint.write(path, TENSORS, VALUES)

    def fail(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(checkpoint, "save_file", fail)
    with pytest.raises(OSError, match="no space"):
        checkpoint.write(path, {}, {"step": 4})
    assert checkpoint.read(path)[1] == VALUES


@pytest.mark.parametrize("other", ["writer", "start of a training"])
def test_what_others_do_meanwhile_disturbs_no_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    files = TrainingDirectory(tmp_path)
    files.open(experiment())

    def save(*given: Any) -> None:
        save_file(*given)
        monkeypatch.setattr(checkpoint, "save_file", save_file)
        if other == "writer":
            checkpoint.write(files.model, TENSORS, {"steps": [3]})
        else:
            files.open(experiment())

    monkeypatch.setattr(checkpoint, "save_file", save)
    checkpoint.write(files.model, TENSORS, {"steps": [4]})
    assert checkpoint.read(files.model)[1] == {"steps": [4]}
    assert not [*tmp_path.glob(".*.new")]


@pytest.mark.parametrize("later", ["writer", "start of a training"])
def test_what_a_killed_writer_has_left_is_deleted_later(tmp_path: Path, later: str) -> None:
    files, left = TrainingDirectory(tmp_path), tmp_path / ".model.safetensors.0123abcd.new"
    left.touch()
    if later == "writer":
        checkpoint.write(files.model, TENSORS, VALUES)
    else:
        files.open(experiment())
    assert not left.exists()


def test_a_full_disk_is_an_error_of_the_system_that_names_the_file(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))  # like a disk with so much space
    try:
        with pytest.raises(OSError, match="cannot be written") as caught:
            checkpoint.write(tmp_path / "a", {"weight": torch.ones(10_000)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (caught.value.filename, bool(caught.value.strerror)) == (str(tmp_path / "a"), True)
    assert not [*tmp_path.iterdir()]


def test_average_is_the_mean(tmp_path: Path) -> None:
    values = torch.randn(4, 3, 2)
    for number, value in enumerate(values):
        checkpoint.write(tmp_path / f"{number}", {"weight": value}, {"steps": [number]})
    paths = [tmp_path / f"{number}" for number in range(4)]
    torch.testing.assert_close(average_checkpoints(paths)["weight"], values.mean(0))
    average_into(tmp_path / "new" / "mean", paths)
    assert checkpoint.read(tmp_path / "new" / "mean")[1] == {"steps": [0, 1, 2, 3], "candidates": []}


def test_average_of_different_models_is_refused(tmp_path: Path) -> None:
    checkpoint.write(tmp_path / "a", {"weight": torch.ones(2)}, {})
    checkpoint.write(tmp_path / "b", {"weight": torch.ones(3)}, {})
    with pytest.raises(ModelError, match="b: its weights differ in name or shape"):
        average_checkpoints([tmp_path / "a", tmp_path / "b"])


def test_weights_of_a_whole_state_leave_the_optimiser_out(tmp_path: Path) -> None:
    tensors = {"model.weight": torch.ones(2), "adam.exp_avg.weight": torch.zeros(2)}
    checkpoint.write(tmp_path / "a", tensors, {"trainer": {}})
    assert read_weights(tmp_path / "a").keys() == {"weight"}


def test_selection_keeps_the_best_and_counts_stale_validations() -> None:
    selection = Selection()
    for step, score in enumerate([1.0, 3.0, 2.0, 3.0, 0.0, 4.0], start=1):
        selection = selection.add(ScoredCheckpoint(step, score), keep=3)
        if step == 5:
            assert selection.stale == 3
            assert selection.steps == (2, 4, 3)
    assert selection.steps == (6, 2, 4)
    assert selection.stale == 0
    assert Selection.from_plain(selection.plain()) == selection


def test_checkpoints_whose_score_is_no_number_are_averaged_with_none() -> None:
    selection = Selection().add(ScoredCheckpoint(1, -math.inf), keep=3)
    assert selection.steps == (1,), "there is no other"
    assert selection.add(ScoredCheckpoint(2, -5.0), keep=3).steps == (2,)


def run_state(directory: TrainingDirectory, best: list[int], latest: list[int]) -> None:
    run = {"selection": Selection(tuple(ScoredCheckpoint(step, 0.0) for step in best)).plain(), "latest": latest}
    directory.save({"model.weight": torch.ones(1)}, {"run": run, "trainer": {"position": {"step": max(best)}}})


@pytest.fixture
def directory(tmp_path: Path) -> TrainingDirectory:
    directory = TrainingDirectory(tmp_path)
    directory.checkpoints.mkdir()
    for step in (1, 2, 3, 4):
        directory.write_weights(directory.scored(step), {"weight": torch.full((1,), float(step))}, [step])
    return directory


def test_checkpoints_that_either_state_wants_are_kept(directory: TrainingDirectory) -> None:
    run_state(directory, best=[2, 1], latest=[2])
    assert not directory.scored(3).exists()
    directory.write_weights(directory.scored(3), {"weight": torch.ones(1)}, [3])
    run_state(directory, best=[3], latest=[3])
    assert [directory.scored(step).exists() for step in (1, 2, 3)] == [True, True, True]
    run_state(directory, best=[3], latest=[3])
    assert [directory.scored(step).exists() for step in (1, 2, 3)] == [False, False, True]


@pytest.mark.parametrize("name", ["last", "previous"])
def test_no_checkpoint_is_deleted_while_a_state_cannot_be_read(
    directory: TrainingDirectory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    opened = safetensors.safe_open

    def fail(path: str, **options: Any) -> Any:
        if Path(path).resolve() == directory.checkpoints / f"{name}.safetensors":
            raise OSError(errno.ESTALE, "Stale file handle")
        return opened(path, **options)

    run_state(directory, best=[2, 1], latest=[4])
    directory.write_weights(directory.scored(3), {"weight": torch.ones(1)}, [3])
    with monkeypatch.context() as patched:
        patched.setattr(safetensors, "safe_open", fail)
        run_state(directory, best=[3], latest=[4])
    assert [directory.scored(step).exists() for step in (1, 2, 3, 4)] == [True, True, True, True]
    assert "Stale file handle" in caplog.text
    run_state(directory, best=[4], latest=[4])
    assert [directory.scored(step).exists() for step in (1, 2, 3, 4)] == [False, False, True, True]


def test_a_damaged_last_state_gives_way_to_the_one_before(
    directory: TrainingDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    run_state(directory, best=[2], latest=[2])
    run_state(directory, best=[3], latest=[3])
    directory.states.last.write_bytes(directory.states.last.read_bytes()[:-1])
    state = directory.states.read()
    assert state is not None
    assert state.values["trainer"]["position"]["step"] == 2
    assert state.path == directory.states.previous
    assert "last.safetensors" in caplog.text
    assert directory.states.last.exists()  # reading deletes nothing
    directory.states.read(remove_damaged=True)
    assert not directory.states.last.exists()
    directory.states.previous.write_bytes(b"")
    with pytest.raises(ModelError, match="train again"):
        directory.states.read()


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), RuntimeError("out of mappings"), None])
def test_a_state_that_may_be_whole_is_not_removed(
    directory: TrainingDirectory, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    """A state that cannot be read now, for example over a network, or is of a later version."""
    run_state(directory, best=[2], latest=[2])
    run_state(directory, best=[3], latest=[3])
    opened = safetensors.safe_open

    def fail(path: str, **options: Any) -> Any:
        if error is not None and Path(path).resolve() == directory.states.last:
            raise error
        return opened(path, **options)

    with monkeypatch.context() as patched:
        patched.setattr(safetensors, "safe_open", fail)
        if error is None:
            patched.setattr(checkpoint, "VERSION", 0)
        with pytest.raises(ModelError, match=r"last\.safetensors.+may be intact: make the file readable, or delete"):
            directory.states.read(remove_damaged=True)
        if error is not None:
            with pytest.raises(ModelError, match="cannot be read"):
                directory.states.newest_step()
    state = directory.states.read(remove_damaged=True)
    assert state is not None and state.path == directory.states.last


@pytest.mark.parametrize("another", [False, True])
def test_a_state_that_is_renamed_while_it_is_opened_is_read_as_it_was(
    directory: TrainingDirectory, monkeypatch: pytest.MonkeyPatch, another: bool
) -> None:
    """Also if another one, of another size, takes its name before PyTorch opens the file too."""
    run_state(directory, best=[2], latest=[2])
    run_state(directory, best=[3], latest=[3])
    from_file = torch.UntypedStorage.from_file

    def rename(*given: Any, **options: Any) -> Any:
        if directory.states.last.exists():
            directory.states.last.replace(directory.states.previous)
            if another:
                directory.states.last.write_bytes(b"of another size")
        return from_file(*given, **options)

    monkeypatch.setattr(torch.UntypedStorage, "from_file", rename)
    assert directory.states.newest_step() == 3
    assert not directory.states.last.exists() or directory.states.last.read_bytes() == b"of another size"


def test_a_state_that_is_renamed_before_it_is_opened_is_read_under_its_other_name(
    directory: TrainingDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_state(directory, best=[2], latest=[2])
    opened = Path.open

    def rename(path: Path, *given: Any, **options: Any) -> Any:
        if path == directory.states.last and path.exists():
            path.replace(directory.states.previous)
        return opened(path, *given, **options)

    monkeypatch.setattr(Path, "open", rename)
    assert directory.states.newest_step() == 2
    directory.states.previous.replace(directory.states.last)
    state = directory.states.read(remove_damaged=True)
    assert state is not None and state.path == directory.states.previous


@pytest.mark.parametrize("trainer", [{"positiom": {"step": 3}}, {"position": 3}, {"position": {"step": "x"}}, [], 5])
def test_a_state_that_does_not_tell_its_update_does_not_count(directory: TrainingDirectory, trainer: Any) -> None:
    """For example after damage to one byte of its header, which is read before verification."""
    run_state(directory, best=[2], latest=[2])
    run_state(directory, best=[3], latest=[3])
    checkpoint.write(directory.states.last, TENSORS, {"trainer": trainer})
    assert directory.states.newest_step() == 2
    directory.states.previous.unlink()
    assert directory.states.newest_step() == -1


def test_average_chooses_the_best_or_the_latest(directory: TrainingDirectory) -> None:
    run_state(directory, best=[4, 1], latest=[2, 3])
    assert choose_checkpoints(directory.path, best=1) == [directory.scored(4)]
    assert choose_checkpoints(directory.path, best=2) == [directory.scored(4), directory.scored(1)]
    assert choose_checkpoints(directory.path, last=2) == [directory.scored(3), directory.scored(4)]
    with pytest.raises(ModelError, match="has fewer such checkpoints than 3: 2"):
        choose_checkpoints(directory.path, best=3)
    assert choose_checkpoints(directory.path, given=[directory.states.last]) == [directory.states.last]
    with pytest.raises(ModelError, match="there is no run here"):
        choose_checkpoints(directory.path / "nowhere", given=[directory.states.last])


def test_no_update_is_averaged_twice(directory: TrainingDirectory) -> None:
    """The last state is that of a validated update, too."""
    run_state(directory, best=[4, 3], latest=[4])
    last, *others = directory.states.last, directory.scored(3), directory.scored(4)
    assert choose_checkpoints(directory.path, given=others) == others
    assert choose_checkpoints(directory.path, given=[last, others[0]]) == [last, others[0]]
    with pytest.raises(ConfigurationError, match=r"step-0+4\.\w+: has the weights after update 4, as has .*last\."):
        choose_checkpoints(directory.path, given=[last, *others])


def test_the_same_update_of_two_trainings_is_another_error(directory: TrainingDirectory) -> None:
    run_state(directory, best=[4, 3], latest=[4])
    other = directory.path / "other.safetensors"
    tensors, values = checkpoint.read(directory.scored(4))
    checkpoint.write(other, tensors, {**values, TRAINING: {"seed": 2}})
    assert choose_checkpoints(directory.path, given=[directory.scored(4), other]) == [directory.scored(4), other]


def test_a_locked_folder_delays_a_writer_and_what_cannot_be_deleted_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jointnmt.files.LOCK_SECONDS", 0.001)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)  # as `flock FOLDER` does
    checkpoint.write(tmp_path / "a", TENSORS, VALUES)
    os.close(descriptor)
    left = tmp_path / ".a.0123abcd.new"
    left.touch()
    unlink = Path.unlink

    def refused(path: Path, missing_ok: bool = False) -> None:
        if path == left:
            raise PermissionError(path)
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", refused)
    checkpoint.write(tmp_path / "a", TENSORS, VALUES)
    assert left.exists() and checkpoint.read(tmp_path / "a")[1] == VALUES


def test_choosing_while_a_training_saves_deletes_nothing(
    directory: TrainingDirectory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Between the check and the read, the last state becomes the previous one, and a newer one appears."""
    run_state(directory, best=[2], latest=[2])
    run_state(directory, best=[3], latest=[3])
    read = checkpoint.read

    def read_late(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        monkeypatch.setattr(checkpoint, "read", read)
        directory.states.last.replace(directory.states.previous)
        try:
            return read(path)
        finally:
            run_state(directory, best=[4], latest=[4])

    monkeypatch.setattr(checkpoint, "read", read_late)
    choose_checkpoints(directory.path, best=1)
    assert checkpoint.read_values(directory.states.last)["trainer"]["position"]["step"] == 4
    assert not caplog.text


def test_a_text_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    write_text(tmp_path / "log", "old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match="large"):
            write_text(tmp_path / "log", "new" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in tmp_path.iterdir()] == ["log"]
    assert (tmp_path / "log").read_text() == "old"


def test_weights_in_the_place_of_a_state_give_way_to_the_state_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = TrainingDirectory(tmp_path)
    files.checkpoints.mkdir()
    checkpoint.write(files.states.previous, TENSORS, {"trainer": {}})
    checkpoint.write(files.states.last, TENSORS, {"steps": [3]})
    state = files.states.read()
    assert state is not None
    assert state[1] == {"trainer": {}}
    assert "holds no state of a training" in caplog.text


def test_a_training_that_resumes_in_other_code_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = TrainingDirectory(tmp_path)
    for code, told in (("a", False), ("a", False), ("b", True)):
        caplog.clear()
        files.write_versions({}, code)
        assert ("resumes with changed code" in caplog.text) == told
    (tmp_path / "versions.json").write_text('{"packages": {}}')  # from before there were such digests
    caplog.clear()
    files.write_versions({}, "c")
    assert "changed code" not in caplog.text
