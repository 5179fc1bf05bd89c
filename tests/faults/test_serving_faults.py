"""The server under hostile requests: random ones, broken ones, clients that are killed.

A short tier by default, which is part of the test suite; JOINTNMT_FAULTS=20 (`make faults`) has 20 times as many
requests. All of them are on the loopback.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import httpx2 as httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from jointnmt import Translator
from support.serving import ServerProcess, exchange, http_request, server_process, write_model
from support.tiny_run import SOURCE_WORDS

SCALE = int(os.environ.get("JOINTNMT_FAULTS", "1"))
EXAMPLES = 15 * SCALE
"""Random requests for each route."""
BROKEN = 850 * SCALE if SCALE > 1 else 50
"""Broken requests; with JOINTNMT_FAULTS=100, 100,000 in all."""
LOAD_SECONDS = min(600, 6 * SCALE)
GROWTH = 100 * 2**20
"""Largest growth of the server's memory in a tier after the warm-up, in bytes."""

STEADY = 16 * 2**20
"""Largest growth in the second half of the load, in bytes."""

bounded = settings(
    deadline=None,
    derandomize=SCALE == 1,
    phases=[Phase.generate],
    database=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("runs") / "main")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, run: Path) -> Iterator[ServerProcess]:
    """A server with short time limits, which must be healthy at the end."""
    options = ["--set", "limits.header_seconds=1", "--set", "limits.body_seconds=1", "--set", "limits.lines=200"]
    with server_process(tmp_path_factory.mktemp("server"), [run], *options) as server:
        warm_up(server)
        before = server.resident_bytes()
        yield server
        check_health(server)
        assert "Traceback" not in server.log
        assert server.resident_bytes() - before < GROWTH
        found = by_status(httpx.get(f"{server.url}/metrics").text)
        assert not [status for status in found if status >= 500 and status != 503]
        growth = (server.resident_bytes() - before) / 2**20
        print(f"{sum(found.values())} requests answered, by status: {found}; {growth:.0f} MiB")


def by_status(metrics: str) -> dict[int, int]:
    """Number of requests by status; 499: the client has gone."""
    found: dict[int, int] = {}
    for status, count in re.findall(r'^jointnmt_requests_total\{.*status="(\d+)".*\} (\S+)$', metrics, re.MULTILINE):
        found[int(status)] = found.get(int(status), 0) + int(float(count))
    return dict(sorted(found.items()))


def warm_up(server: ServerProcess) -> None:
    """Use everything once, so that all lazy parts are loaded."""
    for path, values in (
        ("/detect", {"q": "der Hund"}),
        ("/v1/attention", {"source": "der Hund", "by": "head"}),
        ("/v1/score", {"sources": ["der Hund"], "targets": ["the dog"]}),
        ("/v1/translate", {"texts": ["der Hund sieht"] * 200, "num_best": 3, "alignments": True}),
    ):
        assert httpx.post(f"{server.url}{path}", json=values, timeout=60).status_code == 200
    check_health(server)


def check_health(server: ServerProcess) -> None:
    """Check that the server translates, and nothing waits."""
    values = {"q": "der Hund", "source": "de", "target": "en"}
    assert httpx.post(f"{server.url}/translate", json=values, timeout=30).status_code == 200
    for _ in range(200):
        if "jointnmt_queued_sentences 0.0" in httpx.get(f"{server.url}/metrics").text:
            return
        time.sleep(0.05)
    raise AssertionError("sentences are still in the queue")


def test_made_up_requests_are_answered_as_described(server: ServerProcess) -> None:
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) > 10
    for operation in operations:
        given(case=operation.as_strategy())(check_answer)()


@settings(bounded, max_examples=EXAMPLES)
def check_answer(case: schemathesis.Case) -> None:
    response = case.call(timeout=60)
    assert response.status_code < 500 or response.status_code == 503, response.text
    assert "Traceback" not in response.text
    if response.status_code not in (404, 405):  # for undescribed paths and methods
        checks = [status_code_conformance, content_type_conformance, response_schema_conformance]
        case.validate_response(response, checks=checks)


PAIR = {"source": "de", "target": "en"}


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("/translate", {"q": "\ud800", **PAIR}),
        ("/translate", {"q": "<code>\ud800</code>", "format": "html", **PAIR}),
        ("/translate", {"q": ["ja", "<p title='\ud800'>ja</p><!-- \udfff -->"], "format": "html", **PAIR}),
        ("/v1/translate", {"texts": ["ja"], "prefixes": ["\ud800"]}),
        ("/v1/score", {"sources": ["ja"], "targets": ["\ud800"]}),
        ("/v1/attention", {"source": "ja", "target": "\ud800"}),
        ("/v1/inspect", {"source": "ja", "target": "\ud800"}),
        ("/v1/search", {"source": "ja", "prefix": "\ud800"}),
        ("/v1/alternatives", {"source": "ja", "prefix": "\ud800"}),
        ("/v1/compare", {"source": "ja", "targets": ["\ud800"]}),
    ],
)
def test_half_a_surrogate_pair_is_no_text_wherever_it_stands(
    server: ServerProcess, path: str, values: dict[str, object]
) -> None:
    kind = {"Content-Type": "application/json"}
    answer = httpx.post(f"{server.url}{path}", content=json.dumps(values), headers=kind, timeout=30)
    assert (answer.status_code, "unpaired surrogate" in answer.json()["error"]) == (400, True), answer.text
    assert "source" not in answer.json()["error"]


WHOLE = http_request("/translate", json.dumps({"q": "der Hund", "source": "de", "target": "en"}).encode())


@given(
    st.one_of(
        st.binary(max_size=300),
        st.integers(0, len(WHOLE) - 1).map(lambda end: WHOLE[:end]),
        st.tuples(st.integers(0, len(WHOLE) - 1), st.binary(max_size=3)).map(
            lambda change: WHOLE[: change[0]] + change[1] + WHOLE[change[0] + len(change[1]) :]
        ),
    )
)
@settings(bounded, max_examples=BROKEN)
def test_broken_http_is_refused_or_answered(server: ServerProcess, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        try:
            answer = connection.recv(100)
        except ConnectionError:
            return
    assert answer == b"" or answer[:10] in (b"HTTP/1.1 2", b"HTTP/1.1 3", b"HTTP/1.1 4")


def test_slow_senders_keep_nobody_from_being_answered(server: ServerProcess) -> None:
    slow = [
        threading.Thread(
            target=exchange, args=(server.port, *(bytes([byte]) for byte in WHOLE)), kwargs={"pause": 0.05}
        )
        for _ in range(30)
    ]
    for thread in slow:
        thread.start()
    for _ in range(10):
        check_health(server)
    for thread in slow:
        thread.join(timeout=60)


class Load:
    """Clients that send requests, compare answers, and are sometimes killed before their answer."""

    def __init__(self, server: ServerProcess, expected: dict[str, str]) -> None:
        self.server, self.expected = server, expected
        self.end = time.monotonic() + LOAD_SECONDS
        self.answered = self.refused = self.killed = 0
        self.wrong: list[str] = []
        self.resident: list[int] = []
        """Bytes of the server's memory, measured ten times during the load."""

    def run(self, clients: int) -> None:
        threads = [threading.Thread(target=self._client, args=(number,)) for number in range(clients)]
        for thread in threads:
            thread.start()
        for _ in range(10):
            time.sleep(LOAD_SECONDS / 10)
            self.resident.append(self.server.resident_bytes())
        for thread in threads:
            thread.join(timeout=LOAD_SECONDS + 60)
            assert not thread.is_alive()

    def _client(self, number: int) -> None:
        """Send requests on one connection throughout: a surplus answer would pass as that of the next request."""
        dice, sentences = random.Random(number), list(self.expected)
        with closing(HTTPConnection("127.0.0.1", self.server.port, timeout=60)) as connection:
            while time.monotonic() < self.end:
                texts = dice.sample(sentences, dice.choice([1, 1, 1, 2, 30]))
                if dice.random() < 0.3:
                    self._kill(texts, dice.random() * 0.03)
                else:
                    self._ask(connection, texts)
            connection.request("GET", "/livez")
            if json.load(connection.getresponse()) != {"status": "ok"}:
                self.wrong.append("the last answer came twice")

    def _ask(self, connection: HTTPConnection, texts: list[str]) -> None:
        body = json.dumps({"q": texts, "source": "de", "target": "en"})
        try:
            connection.request("POST", "/translate", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            found = json.load(response)
        except (OSError, HTTPException) as error:
            self.wrong.append(f"lost: {texts}: {error!r}")
            connection.close()
            return
        if response.status == 503 and response.headers["Retry-After"]:
            self.refused += 1
            return
        if found.get("translatedText") != [self.expected[text] for text in texts]:
            self.wrong.append(f"{response.status}: {texts} -> {found}")
        self.answered += 1

    def _kill(self, texts: list[str], seconds: float) -> None:
        body = json.dumps({"q": texts, "source": "de", "target": "en"}).encode()
        with socket.create_connection(("127.0.0.1", self.server.port)) as connection:
            connection.sendall(http_request("/translate", body))
            time.sleep(seconds)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # reset, not closed
        self.killed += 1


def test_nobody_gets_the_text_of_another(server: ServerProcess, run: Path) -> None:
    dice = random.Random(0)
    sentences = sorted({" ".join(dice.choices(SOURCE_WORDS[:-2], k=dice.randint(1, 12))) for _ in range(300)})
    expected = dict(zip(sentences, Translator.load(run, "cpu").translate(sentences), strict=True))
    load = Load(server, expected)
    load.run(clients=16)
    counts = f"{load.answered} answers compared, {load.refused} refused, {load.killed} clients killed"
    print(f"{counts} in {LOAD_SECONDS} seconds; {[each >> 20 for each in load.resident]} MiB meanwhile")
    assert load.wrong == []
    assert load.resident[-1] - load.resident[4] < STEADY
    assert load.answered > LOAD_SECONDS
    assert load.killed > LOAD_SECONDS / 2
    check_health(server)


def test_killed_under_load_it_serves_again(tmp_path: Path, run: Path) -> None:
    values = {"texts": ["der Hund sieht die Katze"] * 1000}
    with server_process(tmp_path, [run]) as server:
        try:
            with httpx.stream("POST", f"{server.url}/v1/translate/stream", json=values) as response:
                for line in response.iter_lines():
                    first = json.loads(line)
                    server.signal(signal.SIGKILL)
        except httpx.TransportError:
            pass
        server.process.wait(timeout=30)
    with server_process(tmp_path, [run], port=server.port) as again:
        answer = httpx.post(f"{again.url}/v1/translate", json={"texts": values["texts"][:1]}, timeout=30).json()
        assert answer["translations"][0]["translation"] == first["translation"]
