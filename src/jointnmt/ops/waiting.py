"""Adaptive spinning of OpenMP threads at barriers: long on idle cores, briefly while other processes use them.

At a barrier, a thread of the OpenMP runtime spins before it sleeps, as waking takes longer than most waits. If other
processes need the cores, a spinning thread keeps the very thread that it waits for from running. The runtime (libgomp)
reads the number of spins once, when it is loaded, by default 300,000; but while it manages more threads than there are
cores, it spins only a hundred times. A second, idle team of threads, which exists while the cores are shared, therefore
changes the setting at run time. The criterion is how long the threads of this process have waited for a core, which
Linux counts. Measured by `benchmarks/beside.py`.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from pathlib import Path

import torch

from jointnmt.cores import cores_allowed

INTERVAL_SECONDS = 0.5
CROWDED, ALONE = 0.15, 0.05
"""Share of time that a thread waits for a core: above the first, cores are taken to be shared; below the second, to be
free again. On two cores, two threads that spin long wait 0.01 to 0.04 alone, and 0.4 to 0.5 beside busy processes; if
they spin briefly, 0.01 to 0.02 and 0.25 to 0.35."""
ENOUGH_THREADS = 4
"""Most threads that the waiting is divided by: where there are many cores, only some threads may have to wait."""
QUIET_INTERVALS = 4
"""Number of consecutive intervals below `ALONE` before threads spin long again."""

_lock = threading.Lock()
_watched: int | None = None
"""Id of the process that is watched: a fork does not inherit the watching thread."""


def adapt_waiting() -> None:
    """Adapt the number of threads of this process, and from now on how long they spin, to the cores available.

    PyTorch starts a thread per core; in a container limited to fewer, most of them would wait. OMP_NUM_THREADS, if set,
    takes precedence.

    Spinning is not adapted without libgomp, if Linux counts no waiting, or if the environment sets OMP_WAIT_POLICY or
    GOMP_SPINCOUNT. May be called repeatedly.
    """
    global _watched
    with _lock:
        if "OMP_NUM_THREADS" not in os.environ and torch.get_num_threads() > (most := cores_allowed()):
            torch.set_num_threads(most)
        if _watched == os.getpid() or {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
            return
        _watched = os.getpid()
        if (runtime := _libgomp()) is not None and seconds_without_core():
            watch, threads = Waiting(runtime).watch, torch.get_num_threads()  # the number is thread-local
            threading.Thread(target=watch, args=(threads,), name="adapt-waiting", daemon=True).start()


class Waiting:
    """Starts and ends the idle team that makes threads spin briefly, by how long threads wait for a core."""

    def __init__(self, runtime: ctypes.CDLL) -> None:
        self._runtime = runtime
        self._idle_team: threading.Event | None = None
        self._quiet = 0

    @property
    def brief(self) -> bool:
        """Whether waiting threads spin briefly now."""
        return self._idle_team is not None

    def watch(self, threads: int) -> None:
        """Decide again after each interval, as long as the process lives, for teams of so many threads."""
        before, began = seconds_without_core(), time.monotonic()
        while True:
            time.sleep(INTERVAL_SECONDS)
            now, end = seconds_without_core(), time.monotonic()
            waited = sum(seconds - before.get(thread, 0.0) for thread, seconds in now.items())
            self.decide(waited / (end - began), threads)
            before, began = now, end

    def decide(self, waited: float, threads: int) -> None:
        """Process an interval in which these threads together waited for a core for `waited` seconds per second."""
        share = waited / min(threads, ENOUGH_THREADS)
        self._quiet = self._quiet + 1 if share < ALONE else 0
        if not self.brief and share > CROWDED and threads > 1:
            self._idle_team = threading.Event()
            threading.Thread(target=self._be_idle, args=(self._idle_team,), name="idle-team", daemon=True).start()
        elif self._idle_team is not None and self._quiet >= QUIET_INTERVALS:
            self._idle_team.set()
            self._idle_team = None

    def _be_idle(self, end: threading.Event) -> None:
        """Form an idle team of as many threads as there are cores, and keep it until `end` is set."""
        nothing = ctypes.cast(ctypes.CDLL(None).free, ctypes.c_void_p)  # free(NULL), in each thread
        self._runtime.GOMP_parallel(nothing, None, len(os.sched_getaffinity(0)), 0)
        end.wait()


def seconds_without_core() -> dict[str, float]:
    """Seconds that each thread of this process, by its id, was ready to run without a core; empty if unknown."""
    seconds = {}
    for path in Path("/proc/self/task").glob("*/schedstat"):
        try:
            seconds[path.parent.name] = int(path.read_text().split()[1]) / 1e9
        except (OSError, IndexError, ValueError):
            continue  # a thread that has just ended, or a system without these counts
    return seconds if any(seconds.values()) else {}


def _libgomp() -> ctypes.CDLL | None:
    """The OpenMP runtime of PyTorch, if it is libgomp."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
        path = next((line.split(maxsplit=5)[5] for line in lines if "libgomp" in line), None)
        return ctypes.CDLL(path) if path else None
    except OSError:
        return None
