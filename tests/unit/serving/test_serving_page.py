"""docs/serving.md is correct about settings and routes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from fastapi.testclient import TestClient
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from jointnmt.serving.metrics import Metrics
from jointnmt.serving.settings import ServerConfig
from support.serving import application, write_model


def described(config: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Every key with its default and description."""
    for name, field in config.model_fields.items():
        if isinstance(field.default, BaseModel):
            yield from described(type(field.default), f"{prefix}{name}.")
            continue
        assert field.default is not PydanticUndefined
        default = field.default if isinstance(field.default, str) else json.dumps(field.default)
        yield f"`{prefix}{name}`", f"`{default}`", field.description or ""


def test_every_setting_is_described_with_its_default(repository: Path) -> None:
    page = (repository / "docs/serving.md").read_text(encoding="utf-8")
    rows = [tuple(cell.strip() for cell in line[1:-1].split("|")) for line in page.splitlines() if line[:3] == "| `"]
    settings = [row for row in rows if len(row) == 3]
    assert settings == list(described(ServerConfig))


def test_every_route_and_metric_that_is_named_is_there(repository: Path, tmp_path: Path) -> None:
    page = (repository / "docs/serving.md").read_text(encoding="utf-8")
    with TestClient(application({"main": write_model(tmp_path / "main")})) as client:
        paths = client.get("/openapi.json").json()["paths"]
    routes = {(method.upper(), path) for path, item in paths.items() for method in item}
    named = set(re.findall(r"^\| `(GET|POST) (/[\w/]+)`", page, re.M))
    operation = {("GET", path) for path in ("/livez", "/readyz", "/metrics")}
    assert routes == named | operation
    counters = Metrics().text().decode()
    for name in re.findall(r"`(jointnmt_\w+)`", page):
        assert f"# TYPE {name} " in counters, name
