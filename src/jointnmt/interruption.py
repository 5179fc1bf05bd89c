"""Signals that ask a process to stop: one exception for all of them, immediate or deferred."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self, TypeVar

logger = logging.getLogger(__name__)

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
"""Ctrl-C; termination by a scheduler or the system; a closed terminal; a cluster's advance warning."""

SECOND_SIGNAL_SECONDS = 1.0
"""Signals closer together count as one: torchrun forwards signals that the terminal also sends to its processes."""

Result = TypeVar("Result")


class Interruption(KeyboardInterrupt):
    """A signal has asked this process to stop."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def exit_code(error: KeyboardInterrupt) -> int:
    """Exit code for an interruption: 128 plus the number of the signal, as in a shell."""
    return 128 + (error.number if isinstance(error, Interruption) else signal.SIGINT)


class StopSignals:
    """A context in which each of `STOP_SIGNALS` raises `Interruption`, or is recorded while `deferred`.

    Only the first signal counts, so that cleaning up is not interrupted itself, except by a later Ctrl-C. Ignored
    signals stay ignored: `nohup` ignores SIGHUP, and a shell SIGINT for background jobs. The context has no effect
    outside of the main thread, which receives all signals in Python.
    """

    def __init__(self) -> None:
        self.asked: int | None = None
        """Number of the first signal, if there was one."""
        self._since = 0.0
        self._notify: Callable[[], None] | None = None
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
    def deferred(self, notify: Callable[[], None] = lambda: None) -> Iterator[None]:
        """A context in which a signal is recorded and `notify` called, instead of raising; a later Ctrl-C raises."""
        self._notify = notify
        try:
            if self.asked is not None:
                notify()
            yield
        finally:
            self._notify = None

    def check(self) -> None:
        """Raise a recorded signal.

        Raises:
            Interruption: if there was a signal.
        """
        if self.asked is not None:
            raise Interruption(self.asked)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked is None:
            self.asked, self._since = number, time.monotonic()
            if self._notify is None:
                raise Interruption(number)
            at_once = "Ctrl-C again stops" if number == signal.SIGINT else "Ctrl-C stops"
            logger.warning(
                "%s: stopping after this update; %s now, without saving", signal.Signals(number).name, at_once
            )
            self._notify()
        elif number == signal.SIGINT and time.monotonic() - self._since > SECOND_SIGNAL_SECONDS:
            raise Interruption(number)


def heeding_signals(call: Callable[[], Result]) -> Result:
    """The result of a library call that blocks signals until it returns, perhaps for minutes.

    The call runs in another thread, while this one waits and can be interrupted. The library must release Python's
    global interpreter lock; an abandoned call ends with the process.
    """
    called: Future[Result] = Future()

    def work() -> None:
        try:
            called.set_result(call())
        except BaseException as error:
            called.set_exception(error)

    threading.Thread(target=work, daemon=True).start()  # an executor would wait for the call at the end
    return called.result()
