"""The example of Ray Serve: two replicas of the server, one of which is killed while requests arrive."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from jointnmt.translator import Translator
from support.ray_processes import descendants, named, wait_for_the_end_of, wait_until
from support.tiny_run import write_run

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).parents[2] / "examples"
CLIENTS = 4
REPLICA = "ServeReplica:translation"


@dataclass
class Serving:
    """A Ray cluster that serves the example."""

    process: subprocess.Popen[bytes]
    url: str
    said: Path

    def translate(self, text: str) -> str:
        """The answer to a request."""
        body = json.dumps({"q": text, "source": "de", "target": "en"}).encode()
        asked = urllib.request.Request(f"{self.url}/translate", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=60) as answer:
            found: str = json.load(answer)["translatedText"]
        return found

    def is_ready(self) -> bool:
        """Whether the server answers."""
        assert self.process.poll() is None, self.said.read_text()
        try:
            return bool(self.translate("der Hund") is not None)
        except OSError:
            return False

    def replicas(self) -> int:
        """Number of running replicas."""
        return len(named(descendants(self.process), REPLICA))


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    """The example with two replicas of a small model."""
    run = write_run(tmp_path / "run")
    config = yaml.safe_load((EXAMPLES / "serve_on_ray.yaml").read_text())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        config["http_options"]["port"] = free.getsockname()[1]
    (app,) = config["applications"]
    app["args"]["models"], app["args"]["device"] = [f"small={run}"], "cpu"
    (deployment,) = app["deployments"]
    deployment.pop("autoscaling_config")
    deployment |= {"num_replicas": 2, "ray_actor_options": {"num_cpus": 0.5}}
    (tmp_path / "serve.yaml").write_text(yaml.safe_dump(config))
    environment = {**os.environ, "PYTHONPATH": f"{EXAMPLES}:{os.environ.get('PYTHONPATH', '')}"}
    environment |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0", "OMP_NUM_THREADS": "1"}
    environment["RAY_ADDRESS"] = "local"  # not a cluster of another test, nor the rest of a killed one
    with (tmp_path / "said").open("wb") as said:
        command = [Path(sys.executable).with_name("serve"), "run", tmp_path / "serve.yaml"]
        process = subprocess.Popen(command, env=environment, stdout=said, stderr=said)
    found = Serving(process, f"http://127.0.0.1:{config['http_options']['port']}", tmp_path / "said")
    try:
        yield found
    finally:
        cluster = descendants(process)
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        finally:
            process.kill()
            wait_for_the_end_of(cluster)


@dataclass
class Client(threading.Thread):
    """Requests one translation after another, and repeats failed requests."""

    serving: Serving
    texts: list[str]
    found: list[str] = field(default_factory=list)
    failures: list[tuple[float, float, str]] = field(default_factory=list)
    """Failed requests: time of sending, time of failure, and error."""

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        """Send requests until every text has its translation."""
        for text in self.texts:
            while len(self.failures) < 20:
                began = time.monotonic()
                try:
                    self.found.append(self.serving.translate(text))
                    break
                except (OSError, urllib.error.HTTPError) as error:
                    self.failures.append((began, time.monotonic(), str(error)))
                    time.sleep(0.2)


def test_a_replica_that_dies_loses_only_what_is_in_its_hands(serving: Serving, tmp_path: Path) -> None:
    wait_until(serving.is_ready, "ready")
    wait_until(lambda: serving.replicas() == 2, "two replicas")
    words = ["der", "Hund", "sieht", "die", "Katze", "nicht", "hört", "und"]
    texts = [[f"{words[i % 8]} {words[(i + j) % 8]} {words[j]} ." for i in range(60)] for j in range(CLIENTS)]
    clients = [Client(serving, each) for each in texts]
    for client in clients:
        client.start()
    wait_until(lambda: all(len(client.found) > 10 for client in clients), "some answers")
    killed, victim = time.monotonic(), named(descendants(serving.process), REPLICA)[0]
    assert min(len(client.found) for client in clients) < 60, "the load has ended before"
    victim.kill()
    for client in clients:
        client.join(300)
    model = Translator.load(tmp_path / "run", "cpu")
    for client in clients:
        assert client.found == model.translate(client.texts)
        # Failed requests were pending when the replica died: at most one for each client.
        assert [began < killed + 0.5 for began, _, _ in client.failures] == [True] * len(client.failures)
        assert len(client.failures) <= 1, client.failures
    wait_until(lambda: serving.replicas() == 2, "another replica in its place")
