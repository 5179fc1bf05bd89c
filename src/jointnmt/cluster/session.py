"""Connection to Ray: to a running cluster, or to a temporary one on this machine."""

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
    "RAY_USAGE_STATS_ENABLED": "0",  # no usage statistics are sent
    "RAY_worker_niceness": "0",  # Ray's own is 15: workers would wait for whatever else this machine does
    "RAY_BACKEND_LOG_LEVEL": "fatal",
}
"""Environment variables for a temporary cluster, unless they are set already."""

REACHED_SECONDS = 20
STARTS = 4
"""Attempts to start a temporary cluster that does not answer in time."""


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Context with a connection to the cluster at an address, or to a temporary one on this machine's processors.

    Signals stay with the command, as Ray would handle SIGTERM itself.

    Raises:
        ConfigurationError: if there is no cluster at the address.
        LostProcessError: if Ray cannot be started.
    """
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    own = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM) if own else None
    for name in ("ray", "ray.data"):
        logging.getLogger(name).setLevel(logging.ERROR)  # the rest is in Ray's own log files
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
    """Connect; a temporary cluster that does not start in time is started again, several times.

    Raises:
        ConfigurationError: if there is no cluster at the address.
        LostProcessError: if Ray cannot be started.
    """
    for more in reversed(range(STARTS)):
        try:
            # "local" starts a temporary cluster even if the environment names one.
            ray.init(
                address or "local",
                include_dashboard=False if address is None else None,
                _node_ip_address="127.0.0.1" if address is None else None,  # other machines need not reach it
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
                f"Ray cannot be started here: {failed} Its log is in /tmp/ray/session_latest/logs. If the machine is "
                "only busy, run the same command again."
            ) from failed
        logger.warning("Ray has not started (%s); trying again", failed)


def _check_reachable(address: str) -> None:
    """Check that something listens at the address, as Ray itself would retry for minutes.

    Raises:
        ConfigurationError: if nothing does, or it is not HOST:PORT.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigurationError(f"{address}: is not an address of a cluster. Give HOST:PORT, or auto.")
    try:
        socket.create_connection((host, int(port)), timeout=REACHED_SECONDS).close()
    except OSError as error:
        raise _no_cluster(address, error) from error


def _no_cluster(address: str, error: Exception) -> ConfigurationError:
    return ConfigurationError(
        f"{address}: no Ray cluster can be reached ({error}). Start one by `ray start --head`, or leave out --address "
        "to use this machine alone. If the cluster requires a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN to "
        "that of the cluster."
    )


def room_for_workers(device: str, cpus: int) -> tuple[int, int]:
    """Number of workers with so many cores that fit in a cluster, and GPUs of each: one if it has any, else none.

    An autoscaling cluster may not have room for any yet.
    """
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    rooms = [int(each.get("CPU", 0)) // cpus for each in machines]
    gpus = [int(each.get("GPU", 0)) for each in machines] if device != "cpu" else []
    return (sum(map(min, rooms, gpus)), 1) if any(gpus) else (sum(rooms), 0)
