"""Serve models on Ray Serve: the application of `jointnmt serve`, in as many replicas as its requests need.

    PYTHONPATH=examples serve run examples/serve_on_ray.yaml

The file beside this one names the models and says how many replicas there are. docs/cluster.md says more.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from ray import serve

from jointnmt.config import Config
from jointnmt.models.quantize import Precision
from jointnmt.serving.app import create_app
from jointnmt.serving.server import load_services
from jointnmt.serving.settings import ServerConfig


class Arguments(Config):
    """What the configuration file says under `args`."""

    models: tuple[str, ...]
    """RUN or NAME=RUN, at a place that every machine of the cluster has; or package:NAME."""
    device: str = "auto"
    precision: Precision = "float32"
    server: ServerConfig = ServerConfig()
    """As of `jointnmt serve --config`; where to listen is in Ray Serve's own settings, though."""


def application(arguments: dict[str, Any]) -> serve.Application:
    """What `import_path` names: a deployment whose replicas have the models, a queue and batches each."""
    given = Arguments.parse(arguments, "args")

    def build() -> FastAPI:  # called in each replica
        return create_app(load_services(given.models, given.server, given.device, given.precision))

    return serve.deployment(name="translation")(serve.ingress(build)()).bind()
