"""A connection to Ray: to a cluster that runs, or to one of this machine for as long as it is needed."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import ray
import ray.data

from jointnmt.errors import ConfigurationError, LostProcessError
from jointnmt.interruption import Interruption

logger = logging.getLogger(__name__)

SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent to anybody
    "RAY_worker_niceness": "0",  # Ray's own is 15: workers would wait for whatever else this machine does
    "RAY_BACKEND_LOG_LEVEL": "fatal",
}
"""Of a cluster of one's own; the environment may have others."""

REACHED_SECONDS = 20
STARTS = 4
"""How often a Ray of one's own is started, if it does not answer in time."""


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Within it Ray works: on the cluster at an address, or on this machine's processors, which is ended after it.

    Signals stay with the command: Ray would take SIGTERM for itself.

    Raises:
        ConfigurationError: if there is no cluster at the address.
        LostProcessError: if Ray cannot be started.
    """
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    own = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM) if own else None
    for name in ("ray", "ray.data"):
        logging.getLogger(name).setLevel(logging.ERROR)  # of what Ray logs, the rest is in files of its own
    if address is not None and address != "auto":
        _check_reachable(address)
    try:
        _start(address)
    except SystemExit as error:  # Ray's own answer to SIGTERM, before it has finished to start
        raise Interruption(signal.SIGTERM) from error
    finally:
        if own:
            signal.signal(signal.SIGTERM, before)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    try:
        yield
    finally:
        ray.shutdown()


def _start(address: str | None) -> None:
    """Connect; a Ray of one's own that does not start in time is started once more, and again.

    Raises:
        ConfigurationError: if there is no cluster at the address.
        LostProcessError: if Ray cannot be started.
    """
    for more in reversed(range(STARTS)):
        try:
            # "local" is one of our own even where the environment names a cluster: what is named here is what is used.
            ray.init(
                address or "local",
                include_dashboard=False if address is None else None,
                _node_ip_address="127.0.0.1" if address is None else None,  # no other machine has to reach it
                configure_logging=False,
                log_to_driver=False,
            )
            return
        except ConnectionError as error:
            if address is not None:
                raise _no_cluster(address, error) from error
            failed: Exception = error
        except Exception as error:  # Ray raises it as such, if it has waited for 30 seconds on a busy machine
            failed = error
        ray.shutdown()
        if not more or address is not None:
            raise LostProcessError(
                f"Ray cannot be started here: {failed} Its log is in /tmp/ray/session_latest/logs. Where the machine "
                "is only busy, the same command goes on."
            ) from failed
        logger.warning("Ray has not started (%s); once more", failed)


def _check_reachable(address: str) -> None:
    """See whether something listens there: Ray itself would try again for minutes.

    Raises:
        ConfigurationError: if nothing does, or it is no HOST:PORT.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigurationError(f"{address}: is no address of a cluster. Give HOST:PORT, or auto.")
    try:
        socket.create_connection((host, int(port)), timeout=REACHED_SECONDS).close()
    except OSError as error:
        raise _no_cluster(address, error) from error


def _no_cluster(address: str, error: Exception) -> ConfigurationError:
    return ConfigurationError(
        f"{address}: there is no cluster of Ray to be reached ({error}). Start one by `ray start --head`, or leave "
        "--address out to use this machine alone. If the cluster asks for a token, set RAY_AUTH_MODE=token and "
        "RAY_AUTH_TOKEN to that of the cluster."
    )


def room_for_workers(device: str, cpus: int) -> tuple[int, int]:
    """How many workers of so many cores a cluster has room for, and how many GPUs each takes: one where there are some.

    A cluster that grows when it is asked for more may have room for none yet.
    """
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    gpus = int(sum(each.get("GPU", 0) for each in machines)) if device != "cpu" else 0
    return gpus or sum(int(each.get("CPU", 0)) // cpus for each in machines), min(gpus, 1)
