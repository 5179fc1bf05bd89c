"""Serve models on Ray Serve: the application of `jointnmt serve`, in as many replicas as the load needs.

    PYTHONPATH=examples serve run examples/serve_on_ray.yaml

The YAML file beside this one sets the models and the number of replicas. docs/cluster.md says more.
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
    """The `args` of the configuration file."""

    models: tuple[str, ...]
    """RUN or NAME=RUN, at a path that every machine of the cluster has; or package:NAME."""
    device: str = "auto"
    precision: Precision = "float32"
    server: ServerConfig = ServerConfig()
    """The keys of `jointnmt serve --config`, except that Ray Serve's own settings say where to listen."""


def application(arguments: dict[str, Any]) -> serve.Application:
    """The target of `import_path`: a deployment, each of whose replicas has the models, a queue and batches."""
    given = Arguments.parse(arguments, "args")

    def build() -> FastAPI:  # called in every replica
        return create_app(load_services(given.models, given.server, given.device, given.precision))

    return serve.deployment(name="translation")(serve.ingress(build)()).bind()
