"""`jointnmt serve` as a process: its signals, its end, its errors."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from typer.testing import CliRunner

from jointnmt import Translator
from jointnmt.cli.main import app
from jointnmt.serving.engine import Engine
from jointnmt.serving.models import fingerprint
from jointnmt.serving.server import Server, held_back, load_services
from jointnmt.serving.services import running
from jointnmt.serving.settings import ServerConfig
from support.serving import busy_worker, server_process, services, wait_until, write_model

VALUES = {"q": "die Katze sieht", "source": "de", "target": "en"}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_model(tmp_path / "main")


def translate(url: str) -> str:
    response = httpx.post(f"{url}/translate", json=VALUES, timeout=30)
    assert response.status_code == 200, response.text
    return str(response.json()["translatedText"])


def expected(run: Path) -> str:
    return Translator.load(run, "cpu").translate([VALUES["q"]])[0]


def test_sigterm_lets_running_requests_end(tmp_path: Path, run: Path) -> None:
    texts = ["der Hund sieht die Katze und die Katze hört der Hund nicht ."] * 600
    with server_process(tmp_path, [run]) as server:
        with httpx.stream("POST", f"{server.url}/v1/translate/stream", json={"texts": texts}, timeout=60) as response:
            lines = response.iter_lines()
            found = [next(lines)]
            server.signal(signal.SIGTERM)
            server.wait_for("stopping")
            found += lines
        assert [json.loads(line)["line"] for line in found] == list(range(1, len(texts) + 1))
        assert server.process.wait(timeout=30) == 0, server.log
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port))
    assert "Traceback" not in server.log


def test_ctrl_c_ends_with_its_own_code(tmp_path: Path, run: Path) -> None:
    with server_process(tmp_path, [run]) as server:
        server.signal(signal.SIGINT)
        assert server.process.wait(timeout=30) == 130, server.log


def test_sighup_loads_what_has_changed_and_drops_no_request(tmp_path: Path, run: Path) -> None:
    old, other = expected(run), write_model(tmp_path / "other", seed=5)
    new = expected(other)
    assert old != new
    found: list[str] = []
    stop = threading.Event()

    def ask(url: str) -> None:
        while not stop.is_set():
            found.append(translate(url))

    with server_process(tmp_path, [run]) as server:
        threads = [threading.Thread(target=ask, args=(server.url,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            shutil.copy(other / "model.safetensors", run / "model.safetensors")
            server.signal(signal.SIGHUP)
            server.wait_for("reloaded main")
        finally:
            stop.set()
            for thread in threads:
                thread.join(timeout=60)
        assert set(found) <= {old, new}
        assert translate(server.url) == new
        (run / "model.safetensors").write_bytes(b"damaged")
        server.signal(signal.SIGHUP)
        server.wait_for("main cannot be reloaded and stays unchanged")
        assert translate(server.url) == new
        metrics = httpx.get(f"{server.url}/metrics").text
        assert 'jointnmt_reloads_total{outcome="loaded"} 1.0' in metrics
        assert 'jointnmt_reloads_total{outcome="failed"} 1.0' in metrics


def test_a_model_that_changes_while_it_is_reloaded_is_reloaded_again(tmp_path: Path) -> None:
    run = write_model(tmp_path / "main")
    shared = services({"main": run})
    server = Server(shared, "cpu", "float32")

    async def twice() -> None:
        async with running(shared):
            with busy_worker(shared) as end, server.capture_signals():
                for _ in range(2):
                    weights = run / "model.safetensors"
                    os.utime(weights, ns=(0, weights.stat().st_mtime_ns + 10**9))
                    os.kill(os.getpid(), signal.SIGHUP)
                    await asyncio.sleep(0.2)
                end.set()
                while next(iter(shared.models)).fingerprint != fingerprint(run):
                    await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(twice(), 60))


def test_sighup_while_models_load_is_kept_until_they_are(tmp_path: Path) -> None:
    run = write_model(tmp_path / "main")
    shared = services({"main": run})
    os.utime(run / "model.safetensors", ns=(0, 10**18))

    async def reloaded(server: Server) -> None:
        async with running(shared):
            with server.capture_signals():
                while next(iter(shared.models)).fingerprint != fingerprint(run):
                    await asyncio.sleep(0.01)

    with held_back(signal.SIGHUP) as came:
        os.kill(os.getpid(), signal.SIGHUP)
        wait_until(lambda: came)
        asyncio.run(asyncio.wait_for(reloaded(Server(shared, "cpu", "float32", came)), 60))
    assert "jointnmt_batch_sentences_count 0.0" in shared.metrics.text().decode(), "it is no request's batch"


def test_a_model_that_cannot_be_looked_at_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shared = services({"main": write_model(tmp_path / "main")})
    server = Server(shared, "cpu", "float32")
    monkeypatch.setattr("jointnmt.serving.models.fingerprint", lambda _: (tmp_path / "gone").stat())
    asyncio.run(shared.models.reload(server._load))
    assert "main cannot be reloaded and stays unchanged" in caplog.text


def test_the_time_to_drain_is_given_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("jointnmt.serving.services.time.monotonic", lambda: now)
    shared = services({"main": write_model(tmp_path / "main")}, limits={"drain_seconds": 60})
    assert not shared.draining
    shared.stop()
    now += 50
    shared.stop()
    assert (shared.draining, shared.stops_at) == (True, 1060.0)


def test_after_sigkill_it_serves_again_on_the_same_port(tmp_path: Path, run: Path) -> None:
    with server_process(tmp_path, [run]) as server:
        first = translate(server.url)
        server.signal(signal.SIGKILL)
        server.process.wait(timeout=30)
    with server_process(tmp_path, [run], port=server.port) as again:
        assert translate(again.url) == first


def test_models_are_loaded_by_a_thread_that_ends(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise its team of OpenMP threads would remain besides the worker's, and slow it down."""
    loaded, load = list[threading.Thread](), Engine.load

    def noted(path: Path, **options: Any) -> Engine:
        loaded.append(threading.current_thread())
        return load(path, **options)

    monkeypatch.setattr(Engine, "load", noted)
    found = load_services([str(run)], ServerConfig(), "cpu", "float32")
    assert [each.name for each in found.models] == [run.name]
    assert not any(thread.is_alive() for thread in loaded)
    assert loaded


def test_several_models_have_names(tmp_path: Path, run: Path) -> None:
    back = write_model(tmp_path / "back", "en", "de")
    with server_process(tmp_path, [run, f"other={run}", back]) as server:
        models = httpx.get(f"{server.url}/v1/models").json()["models"]
        assert [each["name"] for each in models] == ["main", "other", "back"]


def test_keys_and_settings_are_taken(tmp_path: Path, run: Path) -> None:
    keys, config = tmp_path / "keys.yaml", tmp_path / "serve.yaml"
    made = CliRunner().invoke(app, ["serve", "--keys", str(keys), "--add-key", "me", "--per-minute", "2"])
    key = made.stdout.strip()
    config.write_text("limits: {lines: 5}\n")
    options = ["--keys", str(keys), "--config", str(config), "--set", "limits.line_characters=20"]
    with server_process(tmp_path, [run], *options) as server:
        assert httpx.post(f"{server.url}/translate", json=VALUES).status_code == 403
        assert httpx.post(f"{server.url}/translate", json={**VALUES, "api_key": key}).status_code == 200
        response = httpx.post(f"{server.url}/translate", json={**VALUES, "q": "a" * 21, "api_key": key})
        assert "at most 20" in response.json()["error"]
        assert httpx.post(f"{server.url}/translate", json={**VALUES, "api_key": key}).status_code == 429
        keys.write_text("keys: []\n")
        server.signal(signal.SIGHUP)
        wait_until(lambda: httpx.post(f"{server.url}/detect", data={"q": "x", "api_key": key}).status_code == 403)
        assert key not in server.log
        assert "key=me" in server.log


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "no model"),
        (["RUN", "RUN"], 2, "NAME="),
        (["nowhere"], 4, "no trained model"),
        (["RUN", "--set", "limits.linse=3"], 2, "did you mean lines"),
        (["RUN", "--set", "limits.lines=0"], 2, "limits.lines"),
        (["RUN", "--host", "256.1.1.1"], 2, "cannot be listened on"),
        (["RUN", "--host", "a..b"], 2, "cannot be listened on"),
        (["RUN", "--set", "allow_origins=[https://example.org/]"], 2, "should be * or an origin"),
        (["--keys", "new.yaml", "--add-key", ""], 2, "name"),
        (["RUN", "--keys", "nowhere.yaml"], 2, "nowhere.yaml"),
        (["--add-key", "me"], 2, "--keys FILE"),
        (["RUN", "--per-minute", "3"], 2, "--add-key"),
    ],
)
def test_wrong_usage_says_what_to_do(
    tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    given = [str(run) if each == "RUN" else each for each in arguments]
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["serve", "--port", "0", *given])
    assert result.exit_code == code, result.output
    assert message in result.output


def test_a_missing_package_is_named_with_its_extra(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "language_data", None)
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["serve", str(run)])
    assert result.exit_code == 5
    assert "jointnmt[serve]" in result.output


def test_a_port_that_is_taken_is_named(run: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = CliRunner().invoke(app, ["serve", str(run), "--port", str(port)])
    assert result.exit_code == 2
    assert f"port {port}" in result.output
    assert "(Address already in use)" in " ".join(result.output.split())
