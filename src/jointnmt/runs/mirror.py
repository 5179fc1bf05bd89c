"""A copy of a RUN directory at an fsspec address, for machines that start without its files."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator
from pathlib import Path

from jointnmt.errors import ConfigurationError, ModelError, reason
from jointnmt.files import hash_file, replaced
from jointnmt.runs.storage import HIDDEN, Folder
from jointnmt.shipped import CONFIGURATION_FILE

logger = logging.getLogger(__name__)

LIST = "mirror.json"
CONTENTS = "contents"
LAST = "checkpoints/last.safetensors"


class Mirror:
    """A copy of the last state that was pushed, complete at any moment.

    Contents are stored under their hashes. A list of names and hashes, written last, states the files of the RUN
    directory; contents that it does not name are deleted afterwards.
    """

    def __init__(self, address: str) -> None:
        """Open a mirror, which may be empty.

        Raises:
            ConfigurationError: if the address is empty, or there is no such kind of address.
            MissingPackageError: if the package for it is not installed.
        """
        if not address.strip():
            raise ConfigurationError(
                "The address of the mirror is empty. Name a local path, or an address such as s3://BUCKET/PATH, or "
                "leave --mirror out."
            )
        self.address, self._folder = address, Folder(address)
        self._hashes: dict[tuple[int, int, int], str] = {}

    def lies_in(self, run: Path) -> bool:
        """Whether this is a folder in a RUN directory, or that directory."""
        return self._folder.lies_in(run)

    def newest_step(self) -> int:
        """The update of the stored state; -1 if there is none."""
        return self._list()[0]

    def experiment(self) -> str:
        """The configuration of the stored training.

        Raises:
            ModelError: if it is missing or damaged.
        """
        return self._content(self._list()[1].get(CONFIGURATION_FILE, ""), CONFIGURATION_FILE).decode()

    def push(self, run: Path, step: int) -> None:
        """Copy a RUN directory with a newest state of this update; contents already stored are not sent again.

        Raises:
            ConfigurationError: if either cannot be read, or the mirror cannot be written, whatever the error.
        """
        try:
            self._push(run, step)
        except OSError as error:
            raise ConfigurationError(
                f"{error.filename or run}: cannot be copied to {self.address}: {reason(error)}. Check that it can be "
                "read; the same command then continues."
            ) from error

    def _push(self, run: Path, step: int) -> None:
        self._folder.tidy()
        files = {path.relative_to(run).as_posix(): path for path in _files(run)}
        present = self._folder.names(CONTENTS)
        named = {}
        for name, path in files.items():
            named[name] = digest = self._hash(path)
            if digest not in present:
                content = path.read_bytes()
                named[name] = digest = hashlib.sha256(content).hexdigest()
                self._folder.write(f"{CONTENTS}/{digest}", content)
                present.add(digest)
        self._folder.write(LIST, json.dumps({"step": step, "files": named}, indent=1).encode())
        for digest in present - set(named.values()):
            self._folder.delete(f"{CONTENTS}/{digest}")

    def pull(self, run: Path) -> None:
        """Restore a RUN directory as it was pushed.

        The files that make it a RUN are written first, and its newest state, which implies the rest, last.

        Raises:
            ModelError: if a part of the mirror is missing or damaged.
        """
        step, named = self._list()
        for name in sorted(named, key=lambda name: (name == LAST, name != CONFIGURATION_FILE)):
            path = run / name
            if not (path.is_file() and self._hash(path) == named[name]):
                content = self._content(named[name], name)
                path.parent.mkdir(parents=True, exist_ok=True)
                with replaced(path) as unfinished:
                    unfinished.write_bytes(content)
        for path in (run / "checkpoints").glob("*.safetensors"):
            if path.relative_to(run).as_posix() not in named:
                path.unlink()
        logger.info("%s: the state after update %d is from %s", run, step, self.address)

    def _list(self) -> tuple[int, dict[str, str]]:
        content = self._folder.read(LIST)
        if content is None:
            return -1, {}
        try:
            values = json.loads(content)
            named = {str(name): str(digest) for name, digest in values["files"].items()}
            if outside := [name for name in named if name.startswith("/") or ".." in name.split("/")]:
                raise ValueError(f"{outside[0]!r} is not a file of a RUN")
            return int(values["step"]), named
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise ModelError(f"{self.address}: {LIST} is damaged ({error}). Choose another address.") from error

    def _content(self, digest: str, name: str) -> bytes:
        content = self._folder.read(f"{CONTENTS}/{digest}")
        if content is None or hashlib.sha256(content).hexdigest() != digest:
            raise ModelError(f"{self.address}: {name} is missing or damaged. Choose another address.")
        return content

    def _hash(self, path: Path) -> str:
        """SHA-256 of a file; computed once while the file does not change."""
        facts = path.stat()
        key = facts.st_ino, facts.st_mtime_ns, facts.st_size
        if key not in self._hashes:
            self._hashes[key] = hash_file(path)
        return self._hashes[key]


def _files(run: Path) -> Iterator[Path]:
    """All files except hidden ones: locks, and incomplete files."""
    for path in run.rglob("*"):
        if path.is_file() and not any(part.startswith(HIDDEN) for part in path.relative_to(run).parts):
            yield path
