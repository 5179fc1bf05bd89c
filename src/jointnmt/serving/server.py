"""The server process: sockets, signals, and shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import uvicorn

from jointnmt.errors import ConfigurationError, reason
from jointnmt.serving.app import create_app
from jointnmt.serving.connections import protocol
from jointnmt.serving.dispatcher import Dispatcher
from jointnmt.serving.engine import Engine, PrecisionChoice
from jointnmt.serving.keys import Access, read_keys
from jointnmt.serving.metrics import Metrics
from jointnmt.serving.models import Models
from jointnmt.serving.names import named_paths
from jointnmt.serving.services import Services
from jointnmt.serving.settings import ServerConfig
from jointnmt.serving.work import Loading, Sentence

logger = logging.getLogger(__name__)

BACKLOG = 256
IDLE_SECONDS = 10
"""Longest time that a connection stays open between two requests."""


def serve(
    models: Sequence[str], config: ServerConfig, device: str = "auto", precision: PrecisionChoice = "float32"
) -> None:
    """Serve models (`RUN` or `NAME=RUN`) until SIGTERM or Ctrl-C; on SIGHUP, reload models that have changed on disk.

    Raises:
        ConfigurationError: if the address cannot be listened on, or the configuration is wrong.
        KeyboardInterrupt: after Ctrl-C, once the running requests have finished.
        ModelError: if a model cannot be loaded.
    """
    with held_back(signal.SIGHUP) as came, _bound(config) as listening:  # bound first: a used port fails early
        server = Server(load_services(models, config, device, precision), device, precision, came)
        if not config.local_names and config.keys is None:
            logger.warning("anyone who can reach this machine may translate; use --keys to require API keys")
        with _named(config):
            listening.listen(BACKLOG)
        settle()
        logger.info("listening on %s", _address(listening))
        server.run(sockets=[listening])
    if server.interrupted:
        raise KeyboardInterrupt


def load_services(models: Sequence[str], config: ServerConfig, device: str, precision: PrecisionChoice) -> Services:
    """The parts of a server of these models (`RUN` or `NAME=RUN`), not yet started.

    Raises:
        ConfigurationError: if the file of keys is wrong, a name occurs twice, or there is no such device.
        ModelError: if a model cannot be loaded.
    """
    keys = None if config.keys is None else read_keys(config.keys)
    paths, metrics = named_paths(models), Metrics()
    dispatcher = Dispatcher(config.limits, metrics)
    load = partial(Engine.load, device=device, precision=precision, search=config.search)
    # In a thread that ends together with its OpenMP team: an idle team would make the threads outnumber the cores, so
    # that the worker's would not spin while they wait, and a translation would take up to three times as long.
    with ThreadPoolExecutor(1) as loading:
        loaded = loading.submit(Models.load, paths, load, metrics).result()
    return Services(config, loaded, dispatcher, Access(keys), metrics)


class Server(uvicorn.Server):
    """uvicorn with this server's signals: SIGTERM, SIGUSR1 and SIGINT end it, without an error; SIGHUP reloads."""

    def __init__(
        self, services: Services, device: str, precision: PrecisionChoice, held_back: Sequence[signal.Signals] = ()
    ) -> None:
        """Serve with these parts; `held_back` are the signals that arrived while they were loaded."""
        super().__init__(http_config(services))
        self.interrupted = False
        self._held_back = held_back
        self._services, self._device, self._precision = services, device, precision
        self._reloading: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals while the server runs."""
        loop = asyncio.get_running_loop()
        handlers = {signal.SIGTERM: self._stop, signal.SIGINT: self._interrupt, signal.SIGHUP: self._reload}
        handlers[signal.SIGUSR1] = self._stop
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        if signal.SIGHUP in self._held_back:
            self._reload()
        try:
            yield
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)

    def _stop(self) -> None:
        logger.info("stopping: no new requests are accepted, running ones finish")
        self._services.stop()
        self.should_exit = True

    def _interrupt(self) -> None:
        self.force_exit = self.interrupted  # a second Ctrl-C does not wait
        self.interrupted = True
        self._stop()

    def _reload(self) -> None:
        self._read_keys()
        self._reloading = asyncio.create_task(self._reload_after(self._reloading))

    async def _reload_after(self, running: asyncio.Task[None] | None) -> None:
        """Reload models; one that changes again while it is loaded is loaded again."""
        if running is not None:
            await asyncio.wait([running])
        await self._services.models.reload(self._load)
        settle()

    def _read_keys(self) -> None:
        keys = self._services.config.keys
        if keys is None:
            return
        try:
            known = read_keys(keys)
            self._services.access = self._services.access.renewed(known)
            logger.info("reloaded %d API keys from %s", len(known), keys)
        except ConfigurationError as error:
            logger.error("the keys stay unchanged: %s", error)

    async def _load(self, path: Path) -> Engine:
        work = Loading(path, self._device, self._precision, self._services.config.search)
        found: list[Engine] = await self._services.dispatcher.results(work, [Sentence(0, "")], even_if_full=True)
        return found[0]


def http_config(services: Services) -> uvicorn.Config:
    """uvicorn's configuration for a server of these parts."""
    limits = services.config.limits
    return uvicorn.Config(
        create_app(services),
        http=protocol(limits),
        ws="none",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=limits.drain_seconds,
    )


def settle() -> None:
    """Exclude all present objects, which live as long as the server, from garbage collection.

    Each collection would traverse some hundred thousand objects of loaded modules for 0.1 s, in which no request is
    answered. Objects excluded before that are no longer needed are freed.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


@contextlib.contextmanager
def held_back(number: signal.Signals) -> Iterator[list[signal.Signals]]:
    """Context in which a signal is only recorded, in the list that it yields."""
    came: list[signal.Signals] = []
    before = signal.signal(number, lambda *_: came.append(number))
    try:
        yield came
    finally:
        signal.signal(number, before)


def _bound(config: ServerConfig) -> socket.socket:
    """A socket bound to the configured address, not yet listening.

    Raises:
        ConfigurationError: if the address cannot be used.
    """
    with _named(config):
        family, address = config.address()
        found = socket.socket(family)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            found.bind(address)
            found.setblocking(False)
        except BaseException:
            found.close()
            raise
    return found


@contextlib.contextmanager
def _named(config: ServerConfig) -> Iterator[None]:
    """Context that turns errors of the configured address into `ConfigurationError`."""
    try:
        yield
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(
            f"{config.host} port {config.port} cannot be listened on ({reason(error)}). Choose another one by --host "
            "and --port, or stop the process that listens there."
        ) from error


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
