"""Signals that ask a process to stop: one exception for all of them, at once or when it suits the work."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self, TypeVar

logger = logging.getLogger(__name__)

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
"""Ctrl-C; a scheduler's or the system's end; a closed terminal; a cluster's warning before the end."""

SECOND_SIGNAL_SECONDS = 1.0
"""Signals closer together count as one: torchrun forwards what the terminal has sent to its processes too."""

Result = TypeVar("Result")


class Interruption(KeyboardInterrupt):
    """A signal has asked this process to stop."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def exit_code(error: KeyboardInterrupt) -> int:
    """128 plus the number of the signal, as a shell has it."""
    return 128 + (error.number if isinstance(error, Interruption) else signal.SIGINT)


class StopSignals:
    """A context in which each of `STOP_SIGNALS` raises `Interruption`, or is noted where it is `deferred`.

    Of several signals the first one counts, so that what ends the work is not interrupted itself; only a later Ctrl-C
    interrupts that, too. A signal that is ignored stays so: `nohup` ignores SIGHUP, and a shell that starts something
    in the background SIGINT. Outside of the main thread, to which Python gives all signals, the context does nothing.
    """

    def __init__(self) -> None:
        self.asked: int | None = None
        """The first signal, if there was one."""
        self._since = 0.0
        self._tell: Callable[[], None] | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in STOP_SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def deferred(self, tell: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Within it a signal is noted, and `tell` called, instead of raising; a later Ctrl-C raises."""
        self._tell = tell
        try:
            if self.asked is not None:
                tell()
            yield
        finally:
            self._tell = None

    def check(self) -> None:
        """Raise what has been noted.

        Raises:
            Interruption: if there was a signal.
        """
        if self.asked is not None:
            raise Interruption(self.asked)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked is None:
            self.asked, self._since = number, time.monotonic()
            if self._tell is None:
                raise Interruption(number)
            at_once = "Ctrl-C once more stops" if number == signal.SIGINT else "Ctrl-C stops"
            logger.warning(
                "%s: stopping after this update; %s at once, without saving", signal.Signals(number).name, at_once
            )
            self._tell()
        elif number == signal.SIGINT and time.monotonic() - self._since > SECOND_SIGNAL_SECONDS:
            raise Interruption(number)


def heeding_signals(call: Callable[[], Result]) -> Result:
    """The result of a call into a library that lets no signal through before it returns, which may be after minutes.

    It runs in a thread of its own, while this one waits and may be interrupted. The library must release Python's
    global lock; an abandoned call ends with the process.
    """
    results: list[Result] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
