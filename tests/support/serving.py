"""Servers for tests: small models of several pairs, and a server's process."""

from __future__ import annotations

import base64
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import uvicorn
from starlette.testclient import TestClient

from jointnmt.models import build_model
from jointnmt.serving.app import create_app
from jointnmt.serving.dispatcher import Dispatcher
from jointnmt.serving.engine import Engine
from jointnmt.serving.keys import Access, Key
from jointnmt.serving.metrics import Metrics
from jointnmt.serving.models import Models
from jointnmt.serving.queue import Ticket
from jointnmt.serving.server import http_config
from jointnmt.serving.services import Services
from jointnmt.serving.settings import ServerConfig
from jointnmt.serving.work import Sentence
from jointnmt.text.config import SegmentationConfig
from jointnmt.text.segmentation import Segmentation
from jointnmt.training.directory import TrainingDirectory
from support.tiny_run import SOURCE_WORDS, TARGET_WORDS, experiment, sizes, word_segmentation


def write_model(run: Path, source: str = "de", target: str = "en", seed: int = 0, **changes: Any) -> Path:
    """Write a RUN directory with a random model of this language pair; `changes` as in `experiment`."""
    data = {"source_language": source, "target_language": target, "train": [{"source": source, "target": target}]}
    configuration = experiment(data=data, **changes)
    kind, moses, languages = configuration.segmentation.kind, configuration.segmentation.moses, (source, target)
    segmentation = word_segmentation(languages=languages, moses=moses) if kind == "word" else _letters(*languages)
    torch.manual_seed(seed)
    run.mkdir(exist_ok=True)
    files = TrainingDirectory(run)
    files.write_experiment(configuration)
    segmentation.save(files.segmentation)
    files.bind(configuration)
    files.write_weights(files.model, build_model(configuration.model, *sizes(segmentation)).state_dict(), [1])
    return run


def _letters(source: str, target: str) -> Segmentation:
    config = SegmentationConfig(kind="bpe", joint=False, vocabulary_size=60, min_frequency=1)
    return Segmentation.train(config, [" ".join(SOURCE_WORDS)], [" ".join(TARGET_WORDS)], source, target)


def write_models(folder: Path, **main: Any) -> dict[str, Path]:
    """Write two models of one language pair, segmented differently, and one of the reverse; `main`: of the first."""
    return {
        "main": write_model(folder / "main", **main),
        "letters": write_model(folder / "letters", seed=1, segmentation={"kind": "bpe", "joint": False}),
        "back": write_model(folder / "back", "en", "de", seed=2),
    }


def services(paths: dict[str, Path], keys: tuple[Key, ...] | None = None, **settings: Any) -> Services:
    """The parts of a server of these models, in this process."""
    config = ServerConfig.parse({"allow_hosts": ["testserver"], **settings}, "test")
    metrics = Metrics()
    load = partial(Engine.load, device="cpu", precision="float32", search=config.search)
    return Services(
        config, Models.load(paths, load, metrics), Dispatcher(config.limits, metrics), Access(keys), metrics
    )


def application(paths: dict[str, Path], keys: tuple[Key, ...] | None = None, **settings: Any) -> Any:
    """The application of such a server."""
    return create_app(services(paths, keys, **settings))


def post(client: TestClient, path: str, status: int = 200, **values: Any) -> Any:
    """A route's answer to JSON, which must have the expected status."""
    response = client.post(path, json=values)
    assert response.status_code == status, response.text
    return response.json()


@dataclass
class ServerProcess:
    """A server in a process of its own."""

    process: subprocess.Popen[bytes]
    url: str
    port: int
    log_file: Path

    @property
    def log(self) -> str:
        """The log so far."""
        return self.log_file.read_text(encoding="utf-8")

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def resident_bytes(self) -> int:
        """Resident memory of the process."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) * 1024

    def wait_for(self, text: str, seconds: float = 60) -> None:
        """Wait until the log has a text."""
        for _ in range(int(seconds / 0.05)):
            if text in self.log:
                return
            assert self.process.poll() is None, self.log
            time.sleep(0.05)
        raise AssertionError(f"{text!r} is not in the log:\n{self.log}")


@contextmanager
def server_process(folder: Path, models: Sequence[Path | str], *options: str, port: int = 0) -> Iterator[ServerProcess]:
    """A running server that computes in float32; it is killed at the end if it still runs."""
    log_file = folder / "server.log"
    command = [sys.executable, "-m", "jointnmt", "serve", *map(str, models), "--port", str(port)]
    command += ["--precision", "float32", *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with log_file.open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
    server = ServerProcess(process, "", 0, log_file)
    try:
        server.wait_for("listening on")
        server.port = int(re.findall(r"listening on http://127\.0\.0\.1:(\d+)", server.log)[0])
        server.url = f"http://127.0.0.1:{server.port}"
        yield server
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(timeout=30)


@contextmanager
def live(shared: Services) -> Iterator[int]:
    """A server of these parts on a loopback port, in a thread of this process; yields the port."""
    server = uvicorn.Server(http_config(shared))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = int(listening.getsockname()[1])
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            wait_until(lambda: server.started)
            yield port
        finally:
            server.should_exit = True
            thread.join(timeout=30)
            assert not thread.is_alive()


def wait_until(condition: Callable[[], object], seconds: float = 20) -> None:
    """Wait for something to become true."""
    for _ in range(int(seconds / 0.02)):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it did not come true")


@dataclass(frozen=True)
class Blocking:
    """Work that lasts until it is released."""

    end: threading.Event

    def plan(self, sentences: Sequence[Sentence]) -> list[int]:
        """One at a time."""
        return [0]

    def compute(self, sentences: Sequence[Sentence]) -> list[None]:
        """Wait."""
        assert self.end.wait(60)
        return [None]


@contextmanager
def busy_worker(shared: Services) -> Iterator[threading.Event]:
    """Context that keeps the worker busy until the event is set, or the context ends."""
    end = threading.Event()
    shared.dispatcher.queue.put(Ticket(Blocking(end), deque([Sentence(0, "")]), lambda *_: None))
    try:
        yield end
    finally:
        end.set()


def http_request(path: str, body: bytes, length: int | None = None) -> bytes:
    """Bytes of a POST request; `length`: its Content-Length, right or wrong."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body) if length is None else length}\r\n\r\n".encode() + body


def exchange(port: int, *parts: bytes, pause: float = 0.0, seconds: float = 20) -> bytes:
    """The server's answer to bytes that are sent in parts, until it closes the connection or is silent."""
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        try:
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
            while data := connection.recv(65536):
                received += data
        except (TimeoutError, ConnectionError):
            pass
    return received


def unpacked(values: dict[str, Any]) -> np.ndarray:
    """The array of packed values, as docs/serving.md describes them."""
    data = base64.b64decode(values["data"])
    if values["dtype"] == "float32":
        return np.frombuffer(data, "<f4").reshape(values["shape"])
    return np.frombuffer(data, "<u2").reshape(values["shape"]).astype(np.float32) / np.float32(65535)
