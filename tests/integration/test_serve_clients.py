"""Third-party clients from PyPI and npm against a running server."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from libretranslatepy import LibreTranslateAPI

from jointnmt import Translator
from jointnmt.serving.keys import add_key
from support.serving import ServerProcess, server_process, write_model

PACKAGES = Path(__file__).parents[1] / "support" / "npm"
SCRIPT = """
const { libreTranslate } = require("libretranslate-ts");
const [url, key] = process.argv.slice(1);
libreTranslate.setApiEndpoint(url);
(async () => {
  const refused = await libreTranslate.translate("der Hund", "de", "en");
  libreTranslate.setApiKey(key);
  console.log(JSON.stringify({
    refused,
    languages: await libreTranslate.listLanguages(),
    translated: await libreTranslate.translate("der Hund", "de", "en"),
    several: await libreTranslate.translate("der Hund", "de", "en", 2),
    automatic: await libreTranslate.translate("der Hund", "auto", "en"),
    unsupported: await libreTranslate.translate("der Hund", "fr", "en"),
    detected: await libreTranslate.detect("Das ist ein deutscher Satz."),
  }));
})();
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clients")


@pytest.fixture(scope="module")
def key(folder: Path) -> str:
    return add_key(folder / "keys.yaml", "client", None)


@pytest.fixture(scope="module")
def server(folder: Path, key: str) -> Iterator[ServerProcess]:
    with server_process(folder, [write_model(folder / "main")], "--keys", str(folder / "keys.yaml")) as server:
        yield server


@pytest.fixture(scope="module")
def expected(server: ServerProcess, folder: Path) -> str:
    return Translator.load(folder / "main", "cpu").translate(["der Hund"])[0]


def test_libretranslatepy(server: ServerProcess, key: str, expected: str) -> None:
    client = LibreTranslateAPI(server.url, key)
    assert client.translate("der Hund", "de", "en") == expected
    assert client.translate("der Hund\n\nder Hund", "de", "en") == f"{expected}\n\n{expected}"
    assert client.translate("der Hund", "auto", "en") == expected
    assert client.languages() == [
        {"code": "de", "name": "German", "targets": ["en"]},
        {"code": "en", "name": "English", "targets": []},
    ]
    assert client.detect("Das ist ein deutscher Satz.")[0]["language"] == "de"


def test_libretranslatepy_is_refused(server: ServerProcess, key: str) -> None:
    for client, source, status in (
        (LibreTranslateAPI(server.url), "de", 403),
        (LibreTranslateAPI(server.url, "wrong"), "de", 403),
        (LibreTranslateAPI(server.url, key), "fr", 400),
    ):
        with pytest.raises(urllib.error.HTTPError) as refused:
            client.translate("der Hund", source, "en")
        assert refused.value.code == status
        assert list(json.loads(refused.value.read())) == ["error"]


@pytest.fixture(scope="module")
def node(folder: Path) -> Path:
    """A folder with the client from npm; skips if there is no npm, or it cannot reach its registry."""
    if not shutil.which("npm"):
        pytest.skip("no npm: its client is not tried")
    target = folder / "npm"
    shutil.copytree(PACKAGES, target)
    command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    result = subprocess.run(command, cwd=target, capture_output=True, text=True, timeout=300)
    if result.returncode:
        pytest.skip(f"npm cannot install its client: {result.stderr[-300:]}")
    return target


def test_libretranslate_ts(server: ServerProcess, key: str, expected: str, node: Path) -> None:
    command = ["node", "-e", SCRIPT, server.url, key]
    result = subprocess.run(command, cwd=node, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    assert "key is needed" in found["refused"]["error"]
    assert found["languages"][0]["targets"] == ["en"]
    assert found["translated"]["translatedText"] == found["automatic"]["translatedText"] == expected
    assert len(found["several"]["alternatives"]) > 0
    assert "'fr' is not supported" in found["unsupported"]["error"]
    assert found["detected"]["language"] == "de"
