"""Building, storing and loading the custom CPU kernels.

`csrc/kernels.cpp` needs only standard headers, and any C++ compiler of the machine compiles it in seconds (the command
in `CXX`, or `c++`, `g++` or `clang++`). The library is stored in `$XDG_CACHE_HOME/jointnmt/kernels`, by default
`~/.cache/jointnmt/kernels`, as

    kernels-KEY-SHA256.so

KEY is a hash of sources, compiler, flags and processor. SHA256 is the checksum of the file itself, so that one rename
publishes both, and processes that build at the same time never see one without the other.

A loaded library can do all that this user can. It is loaded only from a directory that belongs to this user and that
no other user can write to, and only if it is this user's own file with the checksum in its name. Any other file is
deleted and built again; any other directory is refused.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import hashlib
import logging
import os
import shlex
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from jointnmt.errors import ConfigurationError
from jointnmt.ops.native import prebuilt, processor

logger = logging.getLogger(__name__)

FLAGS = (*prebuilt.FLAGS, "-march=native")
ABANDONED_AFTER = 3600
"""Seconds. No compilation takes as long: older folders were left by killed processes."""
UNUSED_AFTER = 90 * 24 * 3600
"""Seconds since a library was last read, after which it is deleted when another is built."""
OTHERS_CAN_WRITE = stat.S_IWGRP | stat.S_IWOTH


@functools.cache
def library() -> ctypes.CDLL | None:
    """The kernels: shipped for this processor, or compiled on first use; None if turned off, or unavailable, which is
    logged."""
    if turned_off():
        return None
    try:
        return load(shipped() or build())
    except ConfigurationError as error:
        logger.warning(
            "No custom CPU kernels, so computing on the CPU is slower. %s (JOINTNMT_NATIVE=0 turns kernels off and "
            "silences this.)",
            error,
        )
        return None


def shipped() -> Path | None:
    """The library that came with the package for this processor; None if there is none, or it cannot be loaded."""
    path = prebuilt.find(processor.description())
    try:
        if path is not None:
            load(path)
    except ConfigurationError as error:
        logger.warning("%s Kernels compiled on this machine are used instead.", error)
        return None
    return path


def turned_off() -> bool:
    """Whether the environment turns the kernels off."""
    return os.environ.get("JOINTNMT_NATIVE", "1") == "0"


def load(path: Path) -> ctypes.CDLL:
    """Load a library returned by `find` or `build`.

    Raises:
        ConfigurationError: if the system cannot load it.
    """
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise ConfigurationError(f"The kernels {path} cannot be loaded ({error}). {_advice(path)}") from error


def _advice(path: Path) -> str:
    if path.parent == prebuilt.FOLDER:
        return "They came with the package: reinstall it if it is damaged, and install the system's libgomp."
    return (
        "If that file system forbids execution, name another directory in XDG_CACHE_HOME; otherwise run jointnmt "
        "kernels build --force."
    )


def build(force: bool = False) -> Path:
    """The verified library for this source, compiler and processor; compiled if there is none yet, or with `force`.

    If several processes build at the same time, one compiles and the others wait for it. On a file system without
    locks each compiles, and each result is complete.

    Raises:
        ConfigurationError: if there is no compiler, it fails, or the library cannot be stored safely.
    """
    toolchain, directory = Toolchain.here(), cache_directory()
    path, _ = (None, {}) if force else find(directory, toolchain)
    if path is not None:
        return path
    with _only_one(directory):
        path, damaged = find(directory, toolchain)
        if path is not None and not force:
            return path  # another process has built it meanwhile
        for spoiled, fault in damaged.items():
            logger.warning("%s %s: it is deleted, and the kernels are built again.", spoiled, fault)
        try:
            for spoiled in damaged:
                spoiled.unlink()
            built = _compile(toolchain, directory)
            if path is not None and path != built:
                path.unlink()
            with suppress(OSError):  # another process has deleted it meanwhile
                _tidy(directory, built)
        except OSError as error:
            raise _cannot_be_kept(directory, error) from error
        return built


@dataclass(frozen=True)
class Toolchain:
    """The compiler and flags that build a library."""

    compiler: str
    version: str
    """First line of the compiler's `--version`."""
    flags: tuple[str, ...]
    """Flags; those that follow the compiler in `CXX` come first."""
    key: str
    """Hash of compiler, version, flags, sources and processor."""

    @classmethod
    def here(cls) -> Toolchain:
        """The toolchain of this machine.

        Raises:
            ConfigurationError: if there is none.
        """
        if os.name != "posix":
            raise ConfigurationError("The kernels can be built on Linux and macOS only.")
        compiler, *options = _compiler()
        command = [compiler, *options, "--version"]
        try:
            version = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
        except (OSError, subprocess.SubprocessError) as error:
            raise ConfigurationError(
                f"The C++ compiler {compiler} does not run ({error}). Name another in CXX."
            ) from error
        flags = (*options, *FLAGS, *(["-DFAST_BF16_DOT"] if processor.has_fast_bf16_dot() else []))
        if processor.is_denied_amx():
            flags = (*flags, *(f"-mno-{feature.replace('_', '-')}" for feature in processor.AMX))
        key = prebuilt.source_hash(
            compiler.encode(), version, " ".join(flags).encode(), processor.description().encode()
        )
        return cls(compiler, version.decode(errors="replace").partition("\n")[0], flags, key)


def _compiler() -> list[str]:
    """The command in `CXX`, or the first compiler found.

    Raises:
        ConfigurationError: if there is none, or the one in `CXX` does not exist.
    """
    named = os.environ.get("CXX", "")
    try:
        words = shlex.split(named)
    except ValueError as error:
        raise ConfigurationError(
            f"CXX is {named!r}, which is not a valid command ({error}). Name a C++ compiler in it."
        ) from error
    found = next(filter(None, map(shutil.which, words[:1] or ("c++", "g++", "clang++"))), None)
    if found is not None:
        return [found, *words[1:]]
    if words:
        raise ConfigurationError(f"CXX is {named!r}, but {words[0]} was not found. Name another in CXX, or unset it.")
    raise ConfigurationError("No C++ compiler was found: install g++ or clang++, or name one in CXX.")


def cache_directory() -> Path:
    """The directory of the libraries; it need not exist.

    Raises:
        ConfigurationError: if the user has no home directory.
    """
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        # A relative path is ignored (XDG Base Directory Specification): what is loaded must not depend on the
        # working directory.
        cache = given if given.is_absolute() else Path.home() / ".cache"
    except RuntimeError as error:
        raise ConfigurationError(
            "There is no home directory to store kernels in: name a directory of your own in XDG_CACHE_HOME."
        ) from error
    return cache / "jointnmt" / "kernels"


def find(directory: Path, toolchain: Toolchain) -> tuple[Path | None, dict[Path, str]]:
    """The verified library, if there is one; and those that must not be loaded, each with its fault.

    Raises:
        ConfigurationError: if the directory is not this user's own.
    """
    if not os.path.lexists(directory):
        return None, {}
    try:
        _check_directory(directory)
    except OSError as error:
        raise _cannot_be_kept(directory, error) from error
    damaged: dict[Path, str] = {}
    for path in sorted(directory.glob(f"kernels-{toolchain.key}-*.so")):
        fault = _fault(path)
        if fault is None:
            return path, damaged
        damaged[path] = fault
    return None, damaged


def checksum_in_name(path: Path) -> str:
    """The SHA-256 in the name of a library, which is that of the file if it is verified."""
    return path.stem.rpartition("-")[2]


def _fault(path: Path) -> str | None:
    """Why a library must not be loaded; None if it is this user's own file, unchanged since it was built."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # a pipe must not block
    except OSError as error:
        link = error.errno == errno.ELOOP
        return "is a symbolic link" if link else f"cannot be read ({error.strerror})"
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            return "is not a regular file"
        if facts.st_uid != os.geteuid():
            return f"belongs to another user ({facts.st_uid})"
        if facts.st_mode & OTHERS_CAN_WRITE:
            return "can be written to by other users"
        found = hashlib.sha256(file.read()).hexdigest()
    return None if found == checksum_in_name(path) else "is damaged or altered (its SHA-256 is not the one in its name)"


def _check_directory(directory: Path) -> None:
    """Refuse a directory in which others can put or exchange files.

    Raises:
        ConfigurationError: with the fault, and what to do.
    """
    facts, fault = os.lstat(directory), ""
    if not stat.S_ISDIR(facts.st_mode):
        fault = f"{directory} is a symbolic link or not a directory"
    elif facts.st_uid != os.geteuid():
        fault = f"{directory} belongs to another user ({facts.st_uid})"
    elif facts.st_mode & OTHERS_CAN_WRITE:
        fault = f"other users can write to {directory} (chmod go-w {directory} forbids it)"
    else:
        for parent in (*directory.parents, *directory.resolve().parents):
            mode = parent.stat().st_mode
            if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
                fault = f"every user can replace files in {parent} (chmod o-w {parent} forbids it)"
    if fault:
        raise ConfigurationError(
            f"Kernels are not loaded from a directory that others could write to: {fault}. Delete it, or name a "
            "directory of your own in XDG_CACHE_HOME."
        )


@contextmanager
def _only_one(directory: Path) -> Iterator[None]:
    """Create the directory, and lock it so that one process builds at a time.

    Raises:
        ConfigurationError: if it cannot be created, or is not safe.
    """
    import fcntl  # not on every system

    try:
        for folder in (*reversed(directory.parents), directory):
            if not folder.exists():
                with suppress(FileExistsError):  # another process has created it meanwhile
                    folder.mkdir(0o700)  # whatever the umask (XDG Base Directory Specification)
        _check_directory(directory)
        descriptor = os.open(directory, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
    except OSError as error:
        raise _cannot_be_kept(directory, error) from error
    try:
        with suppress(OSError):  # without locks, on some network file systems, both compile
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _compile(toolchain: Toolchain, directory: Path) -> Path:
    """Compile the library into the directory, atomically.

    Raises:
        OSError: if it cannot be written.
        ConfigurationError: if the compiler fails.
    """
    logger.info("Compiling the CPU kernels with %s, once for this machine.", toolchain.compiler)
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        built = Path(folder) / "kernels.so"
        for threads in ([prebuilt.THREADS], []):  # some compilers lack OpenMP: the kernels then use one thread
            command = [toolchain.compiler, *toolchain.flags, *threads, str(prebuilt.SOURCE), "-o", str(built)]
            try:
                done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=600)
            except subprocess.TimeoutExpired as error:
                raise ConfigurationError(f"{error}. Name another C++ compiler in CXX.") from error
            if done.returncode == 0:
                if not threads:
                    logger.warning(
                        "The C++ compiler %s has no OpenMP (%s), so the kernels use one thread. With it installed, run "
                        "jointnmt kernels build --force.",
                        toolchain.compiler,
                        prebuilt.THREADS,
                    )
                built.chmod(0o700)  # whatever the umask
                digest = hashlib.sha256(built.read_bytes()).hexdigest()
                return built.replace(directory / f"kernels-{toolchain.key}-{digest}.so")
    lines = [line for line in done.stderr.splitlines() if line]
    message = next((line for line in lines if "error" in line), (lines or [f"exit status {done.returncode}"])[0])
    raise ConfigurationError(
        f"The C++ compiler {toolchain.compiler} failed: {message}. Install a recent g++ or clang++, or name one in CXX."
    )


def _tidy(directory: Path, built: Path) -> None:
    """Delete folders of killed compilations, and other libraries that have not been used for long."""
    now = time.time()
    for folder in directory.glob("tmp*"):
        if now - folder.lstat().st_mtime > ABANDONED_AFTER:
            shutil.rmtree(folder, ignore_errors=True)
    for path in directory.glob("kernels-*.so"):
        facts = path.lstat()
        if path != built and now - max(facts.st_atime, facts.st_mtime) > UNUSED_AFTER:
            path.unlink(missing_ok=True)


def _cannot_be_kept(directory: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(
        f"Kernels cannot be stored in {directory} ({error.strerror or error}). Make room and check the permissions, or "
        "name a directory of your own in XDG_CACHE_HOME."
    )
