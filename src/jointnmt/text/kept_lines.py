"""Lines of a stream that are read more than once, and may not fit in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from tempfile import TemporaryFile


class KeptLines:
    """Lines without line breaks, stored in a temporary file, which is deleted with the object."""

    def __init__(self, lines: Iterable[str]) -> None:
        """Read all lines."""
        self._file = TemporaryFile("w+", encoding="utf-8", newline="\n")  # noqa: SIM115
        self._file.writelines(f"{line}\n" for line in lines)

    def __iter__(self) -> Iterator[str]:
        """The lines from the first; one iteration at a time."""
        self._file.seek(0)
        return (line.removesuffix("\n") for line in self._file)
