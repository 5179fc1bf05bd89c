"""How long threads spin while they wait for others: long on cores of their own, briefly where others want these.

At a barrier, a thread of the OpenMP runtime spins before it sleeps, as waking takes longer than most waits. Where other
processes want the cores, one that spins keeps from them the very thread it waits for. The runtime (libgomp) reads a
number of spins once, when it is loaded, 300,000 unless told; but while it manages more threads than there are cores, it
spins a hundred times only. So a second, idle team of threads, which exists while the cores are shared, changes the
setting at run time. What tells is how long the threads of this process have waited for a core, which Linux counts.
Measured by `benchmarks/beside.py`.
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
"""Of each second, for how long a thread has no core: from where on threads are not alone, and until where they may be
again. On two cores, two threads that spin have none for 0.01 to 0.04 alone, and for 0.4 to 0.5 beside busy processes;
if they spin briefly, 0.01 to 0.02 and 0.25 to 0.35."""
ENOUGH_THREADS = 4
"""Of more threads, not all need to be without a core, as there may be many cores for each busy process."""
QUIET_INTERVALS = 4
"""How many intervals in a row must look alone before threads spin long again."""

_lock = threading.Lock()
_watched: int | None = None
"""The process that is watched: a fork is another one, without the thread that watches."""


def adapt_waiting() -> None:
    """Have the threads of this process, from now on, be as many and spin as long as suits what else runs.

    PyTorch starts a thread a core; of a container that may use the time of fewer, most would wait. OMP_NUM_THREADS, if
    set, holds.

    Without libgomp, or where Linux counts no waiting, nothing happens; nor where the environment sets OMP_WAIT_POLICY
    or GOMP_SPINCOUNT, which then hold. May be called often.
    """
    global _watched
    with _lock:
        if "OMP_NUM_THREADS" not in os.environ and torch.get_num_threads() > (most := cores_allowed()):
            torch.set_num_threads(most)
        if _watched == os.getpid() or {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
            return
        _watched = os.getpid()
        if (runtime := _libgomp()) is not None and seconds_without_core():
            watch, threads = Waiting(runtime).watch, torch.get_num_threads()  # each thread has a number of its own
            threading.Thread(target=watch, args=(threads,), name="adapt-waiting", daemon=True).start()


class Waiting:
    """Decides, from how long threads have had no core, whether an idle team makes waiting threads spin briefly."""

    def __init__(self, runtime: ctypes.CDLL) -> None:
        self._runtime = runtime
        self._idle_team: threading.Event | None = None
        self._quiet = 0

    @property
    def brief(self) -> bool:
        """Whether waiting threads spin briefly now."""
        return self._idle_team is not None

    def watch(self, threads: int) -> None:
        """Decide anew after each interval, as long as the process lives, for teams of so many threads."""
        before, began = seconds_without_core(), time.monotonic()
        while True:
            time.sleep(INTERVAL_SECONDS)
            now, end = seconds_without_core(), time.monotonic()
            waited = sum(seconds - before.get(thread, 0.0) for thread, seconds in now.items())
            self.decide(waited / (end - began), threads)
            before, began = now, end

    def decide(self, waited: float, threads: int) -> None:
        """Take note of an interval in which so many threads together had no core for `waited` seconds a second."""
        share = waited / min(threads, ENOUGH_THREADS)
        self._quiet = self._quiet + 1 if share < ALONE else 0
        if not self.brief and share > CROWDED and threads > 1:
            self._idle_team = threading.Event()
            threading.Thread(target=self._be_idle, args=(self._idle_team,), name="idle-team", daemon=True).start()
        elif self._idle_team is not None and self._quiet >= QUIET_INTERVALS:
            self._idle_team.set()
            self._idle_team = None

    def _be_idle(self, end: threading.Event) -> None:
        """Form a team of as many threads as there are cores, which does nothing, and keep it until the end."""
        nothing = ctypes.cast(ctypes.CDLL(None).free, ctypes.c_void_p)  # free(NULL), in each thread
        self._runtime.GOMP_parallel(nothing, None, len(os.sched_getaffinity(0)), 0)
        end.wait()


def seconds_without_core() -> dict[str, float]:
    """How long each thread of this process, by its number, was ready to run and had no core; empty if it is unknown."""
    seconds = {}
    for path in Path("/proc/self/task").glob("*/schedstat"):
        try:
            seconds[path.parent.name] = int(path.read_text().split()[1]) / 1e9
        except (OSError, IndexError, ValueError):
            continue  # a thread that has just ended, or a system that counts nothing
    return seconds if any(seconds.values()) else {}


def _libgomp() -> ctypes.CDLL | None:
    """The OpenMP runtime of PyTorch, if it is libgomp."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
        path = next((line.split(maxsplit=5)[5] for line in lines if "libgomp" in line), None)
        return ctypes.CDLL(path) if path else None
    except OSError:
        return None
