"""Building and loading the CPU kernels: cached libraries, and refusal of files that others could have written."""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from jointnmt.cli.main import app
from jointnmt.errors import ConfigurationError
from jointnmt.ops import Float32Linear
from jointnmt.ops.backend import uses_kernels
from jointnmt.ops.native import build, library, prebuilt, processor
from jointnmt.ops.native.status import kernel_status

pytestmark = pytest.mark.slow
needs_compiler = pytest.mark.skipif(library() is None, reason="needs a C++ compiler")

COMPILER = """#!/bin/sh
case "$*" in
    *--version) echo "quick compiler 1.0"; exit;;
    *-dM*) echo "#define __AVX2__ 1"; exit;;
esac
for last; do :; done
echo compiled >> "$(dirname "$0")/log"
sleep 0.2
exec c++ -shared -fPIC -x c++ /dev/null -o "$last"
"""
"""Makes an empty library at once, and records it."""


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The cache of a machine that has compiled nothing yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JOINTNMT_NATIVE", raising=False)
    library.cache_clear()
    yield tmp_path / "cache" / "jointnmt" / "kernels"
    library.cache_clear()


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch, fresh: Path, tmp_path: Path) -> Callable[[], int]:
    """Number of runs of the quick compiler, which replaces the real one."""
    compiler = tmp_path / "compiler" / "c++"
    compiler.parent.mkdir()
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    log = compiler.with_name("log")
    return lambda: len(log.read_text().splitlines()) if log.exists() else 0


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every library that is loaded, with its bytes at that moment."""
    paths: list[str] = []

    class Watched(ctypes.CDLL):
        def __init__(self, name: str, *arguments: object) -> None:
            paths.append(name)
            super().__init__(name, *arguments)

    monkeypatch.setattr(ctypes, "CDLL", Watched)
    return paths


def invoke(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "300", "TERM": "dumb", "NO_COLOR": "1"}).invoke(app, ["kernels", *arguments])


@needs_compiler
def test_the_kernels_are_compiled_once(fresh: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "jointnmt"):
        assert hasattr(library(), "pack_weights_float32") or not hasattr(library(), "linear_forward_float32")
    (built,) = fresh.iterdir()
    assert "Compiling the CPU kernels" in caplog.text
    time = built.stat().st_mtime_ns
    library.cache_clear()
    assert library() is not None
    assert [path.stat().st_mtime_ns for path in fresh.iterdir()] == [time]


@needs_compiler
def test_a_compiler_may_be_named_with_options(
    fresh: Path, compilations: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Options are part of a library's inputs; a program before the compiler is the first word."""
    plain, compiler = build.build(), os.environ["CXX"]
    monkeypatch.setenv("CXX", f"{compiler} '-DA=1 2' -m64")
    toolchain = build.Toolchain.here()
    assert toolchain.compiler == compiler and toolchain.flags[:2] == ("-DA=1 2", "-m64")
    assert build.build() != plain and compilations() == 2


def test_a_compiler_without_openmp_is_told(
    fresh: Path, compilations: Callable[[], int], caplog: pytest.LogCaptureFixture
) -> None:
    """Its kernels use one thread, as long as they are kept; so the status reports it, too."""
    compiler = Path(os.environ["CXX"])
    compiler.write_text(COMPILER.replace("for last;", 'case "$*" in *-fopenmp*) exit 1;; esac\nfor last;'))
    build.build()
    assert compilations() == 1
    assert "has no OpenMP (-fopenmp), so the kernels use one thread" in caplog.text
    assert "threads             one" in invoke("status").output


def test_another_compiler_has_kernels_of_its_own(fresh: Path, compilations: Callable[[], int]) -> None:
    """Also a compiler that reports the same version."""
    first, compiler = build.build(), Path(os.environ["CXX"])
    other = compiler.with_name("other")
    other.write_text(compiler.read_text())
    other.chmod(0o755)
    os.environ["CXX"] = str(other)
    assert build.build() != first
    assert compilations() == 2


def test_of_what_a_compiler_says_the_error_is_told(fresh: Path, compilations: Callable[[], int]) -> None:
    Path(os.environ["CXX"]).write_text(
        COMPILER.replace(
            "for last;", "printf 'In file included from a.h\\nb.h:1: error: no such thing\\n' >&2; exit 1\nfor last;"
        )
    )
    with pytest.raises(ConfigurationError, match=r"failed: b\.h:1: error: no such thing\."):
        build.build()


@needs_compiler
def test_what_nobody_needs_any_more_is_deleted(fresh: Path, compilations: Callable[[], int]) -> None:
    """Files of killed compilations, or for other sources and processors, when another library is built."""
    fresh.mkdir(parents=True, mode=0o700)
    for name, days in (("old", 100), ("new", 10), ("read", 100)):
        library = fresh / f"kernels-{name}-0.so"
        library.touch()
        used = time.time() - 24 * 3600 * days
        os.utime(library, (time.time() if name == "read" else used, used))
    for name, hours in (("tmpold", 2), ("tmpnew", 0)):
        (fresh / name).mkdir()
        (fresh / name / "kernels.so").touch()
        os.utime(fresh / name, (time.time() - 3600 * hours,) * 2)
    built = build.build()
    left = {"kernels-new-0.so", "kernels-read-0.so", "tmpnew", built.name}
    assert {path.name for path in fresh.iterdir()} == left


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_the_cache_is_this_users_alone_whatever_the_umask(
    umask: int, fresh: Path, compilations: Callable[[], int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = os.umask(umask)
    try:
        path = build.build()
    finally:
        os.umask(before)
    assert [each.stat().st_mode & 0o077 for each in (path, fresh, fresh.parent)] == [0, 0, 0]
    assert build.build() == path
    assert compilations() == 1


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def append(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def empty(path: Path) -> None:
    path.write_bytes(b"")


def exchange(path: Path) -> None:
    """Replace the file by another library, which would load."""
    subprocess.run(["c++", "-shared", "-fPIC", "-x", "c++", "-", "-o", path], input=b"int evil;", check=True)


def open_to_the_group(path: Path) -> None:
    path.chmod(0o770)


def open_to_all(path: Path) -> None:
    path.chmod(0o702)


def link(path: Path) -> None:
    path.rename(path.with_name("elsewhere.so"))
    path.symlink_to("elsewhere.so")


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def give_away(path: Path) -> None:
    os.chown(path, 12345, -1)


only_root_gives_away = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
FAULTS = [
    (truncate, "is damaged or altered"),
    (flip_a_bit, "is damaged or altered"),
    (append, "is damaged or altered"),
    (empty, "is damaged or altered"),
    (exchange, "is damaged or altered"),
    (open_to_the_group, "can be written to by other users"),
    (open_to_all, "can be written to by other users"),
    (link, "is a symbolic link"),
    (pipe, "is not a regular file"),
    pytest.param(give_away, "belongs to another user (12345)", marks=only_root_gives_away),
]


@needs_compiler
@pytest.mark.parametrize(("spoil", "fault"), FAULTS)
def test_a_library_that_is_not_as_it_was_built_is_built_anew(
    spoil: Callable[[Path], None],
    fault: str,
    fresh: Path,
    compilations: Callable[[], int],
    loaded: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = build.build()
    content = path.read_bytes()
    spoil(path)
    status = kernel_status()
    assert (status.state, status.library, status.products) == ("damaged", None, {})
    assert f"{path} {fault}" in str(status.problem)
    assert loaded == []
    assert library() is not None
    assert loaded == [str(path)]
    assert compilations() == 2
    assert path.read_bytes() == content and not path.is_symlink()
    assert f"{path} {fault}" in caplog.text
    assert kernel_status().state == "verified"


def directory_open_to_the_group(directory: Path) -> None:
    directory.chmod(0o770)


def directory_open_to_all(directory: Path) -> None:
    directory.chmod(0o1777)


def directory_under_one_open_to_all(directory: Path) -> None:
    directory.parent.chmod(0o777)


def directory_by_a_link(directory: Path) -> None:
    directory.rename(directory.with_name("elsewhere"))
    directory.symlink_to("elsewhere")


def directory_of_another_user(directory: Path) -> None:
    os.chown(directory, 12345, -1)


@needs_compiler
@pytest.mark.parametrize("built", [True, False], ids=["built", "not built"])
@pytest.mark.parametrize(
    ("open_up", "reason"),
    [
        (directory_open_to_the_group, "other users can write to .*kernels .chmod go-w"),
        (directory_open_to_all, "other users can write to .*kernels .chmod go-w"),
        (directory_under_one_open_to_all, "every user can replace files in .*jointnmt .chmod o-w"),
        (directory_by_a_link, "is a symbolic link or not a directory"),
        pytest.param(directory_of_another_user, "belongs to another user .12345.", marks=only_root_gives_away),
    ],
)
def test_a_directory_that_others_can_write_to_is_refused(
    open_up: Callable[[Path], None],
    reason: str,
    built: bool,
    fresh: Path,
    compilations: Callable[[], int],
    loaded: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    if built:
        build.build()
    else:
        fresh.mkdir(parents=True, mode=0o700)
    before = compilations()
    open_up(fresh)
    for force in (False, True):
        with pytest.raises(ConfigurationError, match=f"{reason}.*XDG_CACHE_HOME"):
            build.build(force)
    assert library() is None
    assert "No custom CPU kernels" in caplog.text and "XDG_CACHE_HOME" in caplog.text
    assert not uses_kernels(torch.empty(2, 32))
    status = kernel_status()
    assert (status.state, status.library) == ("unavailable", None)
    assert set(status.products.values()) <= {"PyTorch", "PyTorch (MKL)"}
    assert loaded == [] and compilations() == before
    result = invoke("build")
    assert result.exit_code == 2 and not result.stdout
    assert "XDG_CACHE_HOME" in result.stderr


def test_nothing_of_another_user_is_loaded(
    fresh: Path, compilations: Callable[[], int], loaded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same files, seen by another user."""
    build.build()
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    with pytest.raises(ConfigurationError, match=f"belongs to another user .{user}."):
        build.build()
    assert library() is None and loaded == []


@needs_compiler
def test_processes_that_build_at_the_same_time_compile_once(fresh: Path, compilations: Callable[[], int]) -> None:
    def run(results: multiprocessing.Queue[str]) -> None:
        results.put(str(build.build()))

    context = multiprocessing.get_context("fork")
    results = context.Queue()
    processes = [context.Process(target=run, args=(results,)) for _ in range(5)]
    for process in processes:
        process.start()
    paths = {results.get(timeout=60) for _ in processes}
    for process in processes:
        process.join(60)
    assert paths == {str(path) for path in fresh.iterdir()}
    assert compilations() == 1


@needs_compiler
def test_without_locks_each_process_compiles_and_all_results_are_whole(
    fresh: Path, compilations: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    def no_locks(*_: object) -> None:
        raise OSError("no locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    processes = [multiprocessing.get_context("fork").Process(target=build.build) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert compilations() > 1
    assert kernel_status().state == "verified"
    assert all(path.suffix == ".so" for path in fresh.iterdir())


@needs_compiler
def test_a_cache_that_cannot_be_written_to_is_used_as_it_is(
    fresh: Path, compilations: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = build.build()

    def read_only(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", read_only)
    monkeypatch.setattr(Path, "unlink", read_only)
    assert build.build() == path
    truncate(path)
    with pytest.raises(ConfigurationError, match=r"cannot be stored in .* \(Read-only file system\)"):
        build.build()


@needs_compiler
def test_what_cannot_be_loaded_is_told(fresh: Path, tmp_path: Path) -> None:
    """For example on a file system that forbids execution."""
    broken = tmp_path / "kernels-0-0.so"
    broken.write_bytes(b"no library")
    with pytest.raises(ConfigurationError, match=r"cannot be loaded .*XDG_CACHE_HOME.*jointnmt kernels build --force"):
        build.load(broken)


@pytest.mark.parametrize(
    ("trouble", "advice"),
    [
        ("no compiler", "install g\\+\\+ or clang\\+\\+, or name one in CXX"),
        ("a compiler that fails", "failed: out of .order. Install a recent"),
        ("a compiler that does not start", "does not run .* Name another in CXX"),
        ("a compiler that is not there", "CXX is '/nowhere/g.. -m64', but /nowhere/g.. was not found. Name another"),
        ("a command that is none", "which is not a valid command .* Name a C.. compiler"),
        ("nowhere to write", "XDG_CACHE_HOME"),
        ("no home", "no home directory .* XDG_CACHE_HOME"),
    ],
)
def test_without_kernels_there_is_a_warning_and_no_more(
    trouble: str,
    advice: str,
    fresh: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = tmp_path / "c++"
    if trouble == "no compiler":
        monkeypatch.setenv("PATH", "")
    elif trouble.startswith("a command"):
        monkeypatch.setenv("CXX", "'g++")
    elif trouble.endswith("not there"):
        monkeypatch.setenv("CXX", "/nowhere/g++ -m64")
    elif trouble.startswith("a compiler"):
        script = '[ "$1" = --version ] && exit 0\nprintf "out of \\377order" >&2; exit 1\n'
        broken.write_text(f"#!/bin/sh\n{'exit 1' if 'start' in trouble else script}\n")
        broken.chmod(0o755)
        monkeypatch.setenv("CXX", str(broken))
    elif trouble == "no home":
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.delenv("HOME", raising=False)
        monkeypatch.setattr("os.path.expanduser", lambda path: path)  # as for a user that the system does not know
    else:
        (tmp_path / "file").touch()
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert library() is None
    (record,) = (each for each in caplog.records if each.levelname == "WARNING")
    assert "No custom CPU kernels" in record.getMessage()
    assert not uses_kernels(torch.empty(2, 32))
    with pytest.raises(ConfigurationError, match=advice):
        build.build()
    assert invoke("build").exit_code == 2
    assert invoke("status").exit_code == 0


def test_a_relative_cache_directory_is_none(fresh: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Otherwise the loaded file would depend on the working directory."""
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert build.cache_directory() == tmp_path / ".cache" / "jointnmt" / "kernels"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert build.cache_directory() == tmp_path / ".cache" / "jointnmt" / "kernels"


def test_kernels_can_be_turned_off(
    fresh: Path, loaded: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("JOINTNMT_NATIVE", "0")
    assert library() is None
    assert not caplog.text and loaded == [] and not fresh.exists()
    status = json.loads(invoke("status", "--json").stdout)
    assert status["turned_off"] and set(status["products"].values()) <= {"PyTorch", "PyTorch (MKL)"}
    assert "turned off by JOINTNMT_NATIVE=0" in invoke().stdout


@needs_compiler
def test_the_command_builds_and_tells(fresh: Path, compilations: Callable[[], int]) -> None:
    before = json.loads(invoke("status", "--json").stdout)
    assert (before["state"], before["library"], before["products"]) == ("not built", None, {})
    assert (compilations(), fresh.exists()) == (0, False)
    built = invoke("build")
    assert built.exit_code == 0, built.output
    (path,) = fresh.iterdir()
    assert built.stdout == f"{path}\n"
    status = json.loads(invoke("--json").stdout)
    assert (status["state"], status["library"], status["problem"]) == ("verified", str(path), None)
    assert status["compiler_version"] == "quick compiler 1.0"
    assert status["features"] == ["AVX2"]
    assert status["sha256"] in path.name and len(status["sha256"]) == 64
    assert set(status["products"]) == {"float32", "bfloat16", "int8"}
    told = invoke("status").stdout
    for each in ("verified", "quick compiler 1.0", status["processor"], status["sha256"], str(path)):
        assert each in told
    assert invoke("build").stdout == f"{path}\n" and compilations() == 1
    assert invoke("build", "--force").stdout == f"{path}\n" and compilations() == 2
    assert list(fresh.iterdir()) == [path]


@pytest.mark.parametrize("arguments", [("status", "--force"), ("build", "--json"), ("clean",)])
def test_options_of_the_other_action_are_refused(arguments: tuple[str, ...]) -> None:
    assert invoke(*arguments).exit_code == 2


@needs_compiler
def test_the_status_tells_what_multiplies_in_each_precision() -> None:
    """It agrees with the choice of the products themselves."""
    code = (
        "import torch; from jointnmt.ops.native.status import kernel_status;"
        "from jointnmt.ops.native.calls import DTYPES;"
        "from jointnmt.ops.backend import uses_own_gemm;"
        "from jointnmt.ops.native.packed import has_int8_gemm;"
        "status = kernel_status().products;"
        "own = {name: uses_own_gemm(torch.empty(1, dtype=kind)) for kind, name in DTYPES.items()};"
        "own['int8'] = has_int8_gemm();"
        "assert {name: used == 'kernels' for name, used in status.items()} == own, (status, own)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


@needs_compiler
def test_where_training_multiplies_by_mkl_inference_still_uses_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "pytorch_is_faster_in_float32", lambda: True)
    assert kernel_status().products["float32"] == "kernels; in training PyTorch (MKL)"
    assert isinstance(Float32Linear.of(torch.nn.Linear(32, 32)), Float32Linear)


@needs_compiler
@pytest.mark.parametrize("allowed", [True, False])
def test_amx_is_used_only_if_the_system_lets_it(monkeypatch: pytest.MonkeyPatch, allowed: bool) -> None:
    described = f"vendor_id : GenuineIntel\nflags : {' '.join(prebuilt.KINDS[0].needs)} amx_tile amx_int8 ssse3"
    monkeypatch.setattr(processor, "_described", lambda: described)
    monkeypatch.setattr(processor, "may_use_amx", lambda: allowed)
    flags, kind = build.Toolchain.here().flags, prebuilt.kind_of(processor.description())
    assert kind is not None
    assert kind.name == ("amx" if allowed else "avx512-vnni")
    assert ("-mno-amx-bf16" in flags, "-mno-amx-tile" in flags) == (not allowed, not allowed)
    assert ("amx" in processor.description()) == allowed
