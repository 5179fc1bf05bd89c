"""Byte offsets of lines of a text, found in one pass over its bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jointnmt.data.corpus import BYTE_ORDER_MARK, check_beginning


class LineIndex:
    """Counts the lines of a text given in chunks of bytes, and records where every n-th line begins.

    Lines are those of `lines_of_stream`: the last one may lack its end, and a byte order mark alone is not a line.
    """

    def __init__(self, name: Path | str, every: int) -> None:
        """Begin with nothing read; `name` is the text's name in errors."""
        self._name, self._every = name, every
        self._starts, self._ends = [0], 0
        self._last, self._is_mark = b"\n", False
        self.size = 0
        """Number of bytes so far."""

    def add(self, chunk: bytes) -> None:
        """Read the next bytes, at least one.

        Raises:
            DataError: if the beginning of the text shows another encoding, or that it is not text.
        """
        check_beginning(self._name, chunk if not self.size else b"")
        ends = np.flatnonzero(np.frombuffer(chunk, np.uint8) == ord("\n"))
        wanted = np.arange(self._every - 1 - self._ends % self._every, len(ends), self._every)
        self._starts += (self.size + 1 + ends[wanted]).tolist()
        self._is_mark = not self.size and chunk == BYTE_ORDER_MARK
        self._ends, self.size, self._last = self._ends + len(ends), self.size + len(chunk), chunk[-1:]

    @property
    def lines(self) -> int:
        """Number of lines so far."""
        return self._ends + (self._last != b"\n" and not self._is_mark)

    @property
    def starts(self) -> tuple[int, ...]:
        """Byte offsets of lines 0, n, 2n, ..."""
        return tuple(self._starts[: -(-self.lines // self._every)])
