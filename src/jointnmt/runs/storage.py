"""Folders of results on a disk, in an object store, or at any other fsspec address."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import fsspec

from jointnmt.errors import ConfigurationError, JointNMTError, MissingPackageError, reason
from jointnmt.files import publish

PUT_WHOLE = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "oci", "memory"}
"""Object stores, where a file appears only when it is complete; elsewhere, such as by SFTP, it grows."""
HIDDEN = "."
"""First character of the name of an incomplete file."""


def file_system(address: str) -> tuple[Any, str]:
    """The file system of an address, and the path in it.

    Raises:
        ConfigurationError: if there is no such kind of address.
        MissingPackageError: if the package for it is not installed.
    """
    try:
        fs, path = fsspec.core.url_to_fs(address)
    except ImportError as error:
        raise MissingPackageError(f"{address}: {error}. It is a package of fsspec: install it by pip.") from error
    except ValueError as error:
        raise ConfigurationError(
            f"{address}: is not an fsspec address ({error}). Name a local path, or one such as s3://BUCKET/PATH."
        ) from error
    return fs, path


class Folder:
    """A folder with complete files at any moment: each is written under another name, or put as one object.

    Two processes that `create` the same file at once may both succeed if there are neither links nor object stores.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._fs, self._path = file_system(address)
        protocols = {self._fs.protocol} if isinstance(self._fs.protocol, str) else {*self._fs.protocol}
        self._local, self._puts_whole = "file" in protocols, bool(protocols & PUT_WHOLE)

    def lies_in(self, path: Path) -> bool:
        """Whether this is a local folder itself, or within it."""
        return self._local and Path(self._path).resolve().is_relative_to(path.resolve())

    def names(self, under: str = "") -> set[str]:
        """Names of the files, or of those in a subfolder; empty if there is no such folder."""
        folder = self._at(under)
        with _naming(self, under or "the folder", "listed"):
            self._fs.invalidate_cache()
            if not self._fs.isdir(folder):
                if self._fs.isfile(folder):
                    raise ConfigurationError(f"{self.address}: is a file, not a folder. Choose another name.")
                return set()
            return {found.rpartition("/")[2] for found in self._fs.ls(folder, detail=False)}

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if there is no such file."""
        with _naming(self, name, "read"), suppress(FileNotFoundError):
            return bytes(self._fs.cat_file(self._at(name)))
        return None

    def exists(self, name: str) -> bool:
        """Whether there is such a file, which is then complete."""
        with _naming(self, name, "read"):
            return bool(self._fs.exists(self._at(name)))

    def write(self, name: str, data: bytes) -> None:
        """Write a file, replacing one of this name."""
        with _naming(self, name):
            if not self._local:
                self._put(name, data)
                return
            with self._unfinished(name, data) as temporary:
                publish(temporary, Path(self._at(name)))

    def create(self, name: str, data: bytes) -> bool:
        """Write a file unless there is one of this name; returns whether it was written."""
        with _naming(self, name), suppress(FileExistsError):
            if self._puts_whole:
                self._fs.pipe_file(self._at(name), data, mode="create")
                return True
            if not self._local:
                if self.exists(name):
                    return False
                self._put(name, data)
                return True
            with self._unfinished(name, data) as temporary:
                return self._link(temporary, Path(self._at(name)))
        return False

    def _link(self, temporary: Path, path: Path) -> bool:
        """Give a finished file its name, unless it is taken; returns whether it got it."""
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError:  # a file system without links
            if path.exists():
                return False
            publish(temporary, path)
        return True

    def delete(self, name: str) -> None:
        """Delete a file, if it exists and may be deleted."""
        with suppress(Exception):  # of each file system its own
            self._fs.rm_file(self._at(name))

    def tidy(self) -> None:
        """Delete the unfinished files of killed writers."""
        for name in () if self._puts_whole else self.names():
            if name.startswith(HIDDEN):
                self.delete(name)

    def _at(self, name: str) -> str:
        return f"{self._path.rstrip('/')}/{name}".rstrip("/")

    def _put(self, name: str, data: bytes) -> None:
        """Write a file to a file system other than a local disk."""
        if self._puts_whole:
            self._fs.pipe_file(self._at(name), data)
            return
        path = self._at(name)
        temporary = self._at(f"{HIDDEN}{path.rpartition('/')[2]}.{secrets.token_hex(4)}")
        self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        self._fs.pipe_file(temporary, data)
        if self._fs.exists(path):  # not every system renames onto a file
            self._fs.rm_file(path)
        self._fs.mv(temporary, path)

    @contextmanager
    def _unfinished(self, name: str, data: bytes) -> Iterator[Path]:
        """A temporary file with this content, which is deleted at the end."""
        path = Path(self._at(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(self._path, f"{HIDDEN}{path.name}.{secrets.token_hex(4)}")
        try:
            temporary.write_bytes(data)
            yield temporary
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def _naming(folder: Folder, name: str, what: str = "written") -> Iterator[None]:
    """Name the file that could not be read or written; object stores raise more than `OSError`.

    Raises:
        ConfigurationError: instead of the system's error.
    """
    try:
        yield
    except (FileExistsError, JointNMTError):
        raise
    except Exception as error:
        raise ConfigurationError(
            f"{folder.address}: {name} cannot be {what}: {reason(error) or type(error).__name__}. Check the address, "
            "the permissions and the free space; the same command then continues."
        ) from error
