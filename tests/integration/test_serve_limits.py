"""The server with clients that are too many, too slow, broken or gone, over the loopback."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx2 as httpx
import pytest

from jointnmt.serving.connections import protocol
from jointnmt.serving.services import Services
from jointnmt.serving.settings import Limits
from support.serving import busy_worker, exchange, http_request, live, services, wait_until, write_model

Make = Callable[..., Services]
BODY = json.dumps({"q": ["der Hund"] * 4, "source": "de", "target": "en"}).encode()


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Makes the parts of a server with given limits."""
    run = write_model(tmp_path_factory.mktemp("runs") / "main")
    return lambda **limits: services({"main": run}, limits=limits)


def translate(port: int, q: Any = "der Hund", timeout: float = 20) -> httpx.Response:
    values = {"q": q, "source": "de", "target": "en"}
    return httpx.post(f"http://127.0.0.1:{port}/translate", json=values, timeout=timeout)


def test_a_full_queue_answers_at_once_when_to_come_again(make: Make) -> None:
    shared = make(queued_sentences=4)
    with live(shared) as port, busy_worker(shared):
        began = time.monotonic()
        response = translate(port, ["der Hund"] * 4)
        assert time.monotonic() - began < 15
        assert (response.status_code, response.headers["Retry-After"]) == (503, "2")
        assert "busy" in response.json()["error"]
        stream = httpx.post(f"http://127.0.0.1:{port}/v1/translate/stream", json={"texts": ["der Hund"] * 4})
        assert (stream.status_code, stream.headers["Retry-After"]) == (503, "2")
        for path in ("livez", "readyz", "metrics", "languages"):
            assert httpx.get(f"http://127.0.0.1:{port}/{path}").status_code == 200


@pytest.mark.parametrize("path", ["/translate", "/v1/translate", "/v1/translate/stream"])
def test_a_client_that_goes_away_frees_its_places(make: Make, path: str) -> None:
    shared = make()
    values = {"q": ["der Hund"] * 4, "source": "de", "target": "en"} if path == "/translate" else {"texts": ["x"] * 4}
    with live(shared) as port, busy_worker(shared):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(http_request(path, json.dumps(values).encode()))
            wait_until(lambda: shared.dispatcher.queue.held == 5)
        wait_until(lambda: shared.dispatcher.queue.held == 1)


def test_a_client_that_goes_away_amid_a_stream_frees_its_places(make: Make) -> None:
    shared = make()
    with live(shared) as port:
        with httpx.stream("POST", f"http://127.0.0.1:{port}/v1/translate/stream", json={"texts": ["der"] * 2000}) as it:
            next(it.iter_lines())
        wait_until(lambda: shared.dispatcher.queue.held == 0)
        assert translate(port).status_code == 200


def test_a_sentence_does_not_wait_for_the_end_of_a_document(make: Make) -> None:
    shared = make(request_seconds=1000.0)  # however busy the machine is
    document = {"texts": [" ".join(["der Hund"] * (1 + number % 12)) for number in range(300)], "num_best": 2}
    with (
        live(shared) as port,
        httpx.stream("POST", f"http://127.0.0.1:{port}/v1/translate/stream", json=document, timeout=300) as response,
    ):
        lines = response.iter_lines()
        next(lines)
        assert translate(port, timeout=300).status_code == 200
        assert shared.dispatcher.queue.held > 75, "the document should not be done yet"
        assert sum(1 for _ in lines) == 299


def test_a_request_that_takes_too_long_is_given_up(make: Make) -> None:
    shared = make(request_seconds=0.5)
    with live(shared) as port, busy_worker(shared):
        response = translate(port, ["der Hund"] * 3)
        assert (response.status_code, response.headers["Retry-After"]) == (503, "2")
        wait_until(lambda: shared.dispatcher.queue.held == 1)


def test_a_request_has_one_time_from_its_arrival_on(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = make(request_seconds=10.0)
    request = Mock()
    request.state.arrived = time.monotonic() - 8
    assert 0 < shared.seconds_left(request) < 2.1
    left = iter([5.0, 5.0, 0.0])
    monkeypatch.setattr(type(shared), "seconds_left", lambda *_: next(left))
    with live(shared) as port, busy_worker(shared) as end:
        threading.Timer(0.3, end.set).start()
        answer = httpx.post(f"http://127.0.0.1:{port}/v1/translate/stream", json={"texts": ["der"]}, timeout=20)
    assert answer.status_code == 200
    assert list(left) == [], "the stream has asked for what the answer has left"


def test_an_upgrade_that_is_not_offered_is_no_warning(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    head = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    with live(make()) as port:
        assert exchange(port, head, seconds=2).startswith(b"HTTP/1.1 200")
    assert "websockets" not in caplog.text


def test_a_slow_answer_is_not_taken_for_a_slow_client(make: Make) -> None:
    shared = make(header_seconds=0.3)
    with live(shared) as port, busy_worker(shared) as end, httpx.Client() as client:
        url, values = f"http://127.0.0.1:{port}/v1/translate", {"texts": ["der Hund"]}
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(http_request("/translate", BODY))
            time.sleep(0.1)
            connection.sendall(b"\r\n")  # not yet the next request
            time.sleep(1.0)
            end.set()
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
        for _ in range(5):
            assert client.post(url, json=values).status_code == 200
            time.sleep(0.1)


@pytest.mark.parametrize(
    "parts", [(), (b"POST /translate HTTP/1.1\r\n",), (b"POST /tr", b"anslate HTTP", b"/1.1\r\nA: b")]
)
def test_a_request_that_does_not_come_is_not_waited_for(make: Make, parts: tuple[bytes, ...]) -> None:
    with live(make(header_seconds=0.3)) as port:
        began = time.monotonic()
        assert exchange(port, *parts, pause=0.05) == b""
        assert time.monotonic() - began < 10
        assert translate(port).status_code == 200


def test_a_body_that_does_not_come_is_not_waited_for(make: Make) -> None:
    with live(make(body_seconds=0.3)) as port:
        assert exchange(port, http_request("/translate", b'{"q"', 100)).startswith(b"HTTP/1.1 408")
        drip = [http_request("/translate", b"", 100), *(b"x" for _ in range(20))]
        assert exchange(port, *drip, pause=0.05)[:12] in (b"HTTP/1.1 408", b"")
        assert translate(port).status_code == 200


def test_half_a_body_is_nothing(make: Make) -> None:
    shared = make()
    with live(shared) as port:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(http_request("/translate", BODY[:20], len(BODY)))
        assert translate(port).status_code == 200
        assert shared.dispatcher.queue.held == 0


def test_large_bodies_are_refused_before_they_have_come(make: Make) -> None:
    with live(make(body_bytes=1000)) as port:
        assert exchange(port, http_request("/translate", b"", 10**9)).startswith(b"HTTP/1.1 413")
        head = b"POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
        chunk = b"%x\r\n%s\r\n" % (800, b"x" * 800)
        assert exchange(port, head, chunk, chunk, chunk).startswith(b"HTTP/1.1 413")
        assert translate(port).status_code == 200


@pytest.mark.parametrize(
    "parts",
    [
        (b"A: " + b"x" * 5000,),
        (b"A: " + b"x" * 5000 + b"\r\n\r\n",),
        (*(b"A: b\r\n" for _ in range(20)), b"B: " + b"x" * 100, *(b"x" * 500 for _ in range(5))),
    ],
)
def test_large_headers_are_refused(make: Make, parts: tuple[bytes, ...]) -> None:
    with live(make(header_bytes=2000)) as port:
        began = time.monotonic()
        answer = exchange(port, b"GET /languages HTTP/1.1\r\nHost: 127.0.0.1\r\n", *parts, pause=0.02)
        assert answer.startswith(b"HTTP/1.1 431")
        assert time.monotonic() - began < 8, "refused for their size, not for their time"
        assert translate(port, ["der Hund"] * 250).status_code == 200, "a body may be larger than headers"


@pytest.mark.parametrize(
    "head",
    [
        b"GET /languages?" + b"x" * 3000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET /languages HTTP/1.1\r\nHost: 127.0.0.1\r\nA: " + b"x" * 3000 + b"\r\n\r\n",
        b"GET /languages HTTP/1.1\r\nHost: 127.0.0.1\r\n" + 300 * b"Aa: bb\r\n" + b"\r\n",
    ],
)
def test_large_headers_that_come_at_once_are_refused(make: Make, head: bytes) -> None:
    with live(make(header_bytes=2000)) as port:
        assert exchange(port, head).startswith(b"HTTP/1.1 431")
        small = http_request("/translate", BODY)
        answer = exchange(port, small + head)
        assert answer.startswith(b"HTTP/1.1 431") or answer.count(b"HTTP/1.1 431") == 1
        assert exchange(port, small * 5, seconds=2).count(b"HTTP/1.1 200") == 5, "each head counts by itself"


def test_trailers_are_bounded_and_no_headers(make: Make) -> None:
    with live(make(header_bytes=2000, body_seconds=5.0)) as port:
        head = b"POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n"
        chunk = b"%x\r\n%s\r\n0\r\n" % (len(BODY), BODY)
        json_head = head + b"Content-Type: application/json\r\n\r\n"
        assert b"HTTP/1.1 200" in exchange(port, json_head + chunk + b"A: b\r\n\r\n", seconds=2)
        late = head + b"\r\n" + chunk + b"Content-Type: application/json\r\n\r\n"
        assert exchange(port, late, seconds=2).startswith(b"HTTP/1.1 400"), "a trailer says nothing of the body"
        assert b"HTTP/1.1 431" in exchange(
            port, json_head + chunk + b"A: ", *(b"x" * 900 for _ in range(4)), pause=0.05
        )


def test_a_second_request_letter_by_letter_is_not_waited_for(make: Make) -> None:
    with live(make(header_seconds=0.3)) as port:
        began = time.monotonic()
        answer = exchange(port, http_request("/translate", BODY), b"P", b"O", b"S", pause=0.05)
        assert answer.count(b"HTTP/1.1") == answer.count(b"HTTP/1.1 200") == 1
        assert time.monotonic() - began < 8


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        b"POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /%ff%00 HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_broken_http_is_refused(make: Make, sent: bytes) -> None:
    with live(make(header_seconds=0.5, body_seconds=0.5)) as port:
        assert exchange(port, sent)[:10] in (b"HTTP/1.1 4", b"")
        assert translate(port).status_code == 200


def test_too_many_connections_are_told_so(make: Make) -> None:
    with live(make(connections=3)) as port:
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(3)]
        time.sleep(0.2)
        answer = exchange(port, http_request("/translate", BODY))
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"Retry-After: 2" in answer
        for connection in idle:
            connection.close()
        wait_until(lambda: exchange(port, http_request("/translate", BODY), seconds=1).startswith(b"HTTP/1.1 200"))


def test_alignments_of_too_many_texts_are_for_a_stream(make: Make) -> None:
    with live(make(alignment_weights=300)) as port:
        url = f"http://127.0.0.1:{port}/v1/translate"
        few, many = {"texts": ["der Hund"], "alignments": True}, {"texts": ["der Hund"] * 20, "alignments": True}
        assert httpx.post(url, json=few).status_code == 200
        refused = httpx.post(url, json=many)
        assert refused.status_code == 400 and "ask for a stream" in refused.json()["error"]
        assert httpx.post(url, json=many | {"alignments": False}).status_code == 200
        assert len(httpx.post(f"{url}/stream", json=many).text.splitlines()) == 20


def test_alternatives_of_scores_are_limited_together(make: Make) -> None:
    with live(make(score_alternatives=30)) as port:
        url = f"http://127.0.0.1:{port}/v1/score"
        asked = {"sources": ["der Hund"] * 4, "targets": ["the dog"] * 4}  # 12 tokens
        assert httpx.post(url, json=asked | {"alternatives": 2}).status_code == 200
        refused = httpx.post(url, json=asked | {"alternatives": 3})
        assert refused.status_code == 400 and "36 alternative pieces; at most 30" in refused.json()["error"]


def test_a_text_that_is_split_is_no_longer_than_a_line_may_be(tmp_path: Path) -> None:
    run = write_model(tmp_path / "main", model={"max_length": 16})
    with live(services({"main": run}, limits={"line_characters": 80})) as port:
        url = f"http://127.0.0.1:{port}/v1/translate"
        for sentences, status in ((4, 200), (40, 400)):
            answer = httpx.post(url, json={"texts": ["der Hund sieht. " * sentences], "split": "long"})
            assert answer.status_code == status, answer.text


def test_a_client_that_does_not_read_loses_its_connection() -> None:
    async def written(resumes: bool) -> Mock:
        made = object.__new__(protocol(Limits(request_seconds=0.05)))
        made.loop, made.transport, made.flow, made._unread = asyncio.get_running_loop(), Mock(), Mock(), None
        made.pause_writing()
        if resumes:
            made.resume_writing()
        await asyncio.sleep(0.3)
        return made.transport

    assert asyncio.run(written(resumes=False)).abort.called
    assert not asyncio.run(written(resumes=True)).abort.called
