"""The web application: routes, errors and middleware."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.routing import Route
from starlette.types import ASGIApp

import jointnmt
from jointnmt.config import expected
from jointnmt.errors import ConfigurationError, DataError
from jointnmt.serving import libretranslate, v1, v1_exploration
from jointnmt.serving.direct import ErrorAnswers, ShortWay
from jointnmt.serving.errors import NO_JSON, RequestError, is_json
from jointnmt.serving.page import page
from jointnmt.serving.protection import HeadAsGet, KnownHosts, RequestRecord, WholeBodies, error_response
from jointnmt.serving.services import Services, running

logger = logging.getLogger(__name__)

ROUTERS = (libretranslate.router, v1.router, v1_exploration.router)

STATIC = Path(__file__).parent / "static"


def create_app(services: Services) -> ASGIApp:
    """The application of a server with its middleware."""
    return _protected(_routes(services), services)


def _routes(services: Services) -> FastAPI:
    """The routes of the application."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with running(services):
            yield

    app = FastAPI(
        title="jointnmt",
        description="Neural machine translation: LibreTranslate's API, and a typed one under /v1.",
        version=jointnmt.__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        exception_handlers={**ERROR_ANSWERS, Exception: _fault},
    )
    app.state.services = services
    for router in ROUTERS:
        app.include_router(router)
    _add_operations(app, services)
    _add_pages(app)
    _describe_own_errors(app)
    return app


def _describe_own_errors(app: FastAPI) -> None:
    """Leave out FastAPI's answer to an invalid body, 422, from the description: `_invalid` answers 400."""
    describe = app.openapi

    def openapi() -> dict[str, Any]:
        found = describe()
        for operations in found["paths"].values():
            for operation in operations.values():
                operation["responses"].pop("422", None)
        for name in ("HTTPValidationError", "ValidationError"):
            found["components"]["schemas"].pop(name, None)
        return found

    app.openapi = openapi  # type: ignore[method-assign]


def _add_operations(app: FastAPI, services: Services) -> None:
    """Liveness, readiness, metrics."""

    @app.get("/livez", tags=["operation"])
    async def livez() -> dict[str, str]:
        """Whether the process answers."""
        return {"status": "ok"}

    @app.get("/readyz", tags=["operation"])
    async def readyz() -> dict[str, str]:
        """Whether requests should be sent here: 503 while the server stops."""
        if services.draining or not services.dispatcher.is_alive:
            raise RequestError(503, "The server is stopping.", {"Retry-After": "10"})
        return {"status": "ok"}

    @app.get("/metrics", tags=["operation"], response_class=Response)
    async def metrics() -> Response:
        """Counters for Prometheus."""
        return Response(services.metrics.text(), media_type=CONTENT_TYPE_LATEST)


def _add_pages(app: FastAPI) -> None:
    """Add the page to translate with, and the description of the API; neither needs a network."""
    app.mount("/static", StaticFiles(directory=STATIC), name="static")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        ui = "static/swagger-ui"  # relative addresses, so that a proxy may serve the application under any path
        return get_swagger_ui_html(
            openapi_url="openapi.json",
            title="jointnmt: API",
            swagger_js_url=f"{ui}/swagger-ui-bundle.js",
            swagger_css_url=f"{ui}/swagger-ui.css",
            swagger_favicon_url=f"{ui}/favicon-32x32.png",
            swagger_ui_parameters={"validatorUrl": None},  # else it sends the description to a web validator
        )

    shown = page()

    @app.get("/", include_in_schema=False)
    async def root() -> HTMLResponse:
        return HTMLResponse(shown)


async def _refused(_: Request, error: RequestError) -> Response:
    return error_response(error.status, error.message, error.headers)


async def _invalid(request: Request, error: RequestValidationError) -> Response:
    found = error.errors()
    if any(each["loc"] == ("body",) for each in found) and not is_json(request):
        return error_response(400, NO_JSON)
    return error_response(400, "Invalid request: " + "; ".join(map(_described, found)))


async def _http(_: Request, error: HTTPException) -> Response:
    return error_response(error.status_code, f"{error.detail.rstrip('.')}.", dict(error.headers or {}))


async def _bad_request(_: Request, error: Exception) -> Response:
    return error_response(400, str(error))


async def _fault(_: Request, error: Exception) -> Response:
    return error_response(500, "Internal error of the server; see its log.")


ERROR_ANSWERS: ErrorAnswers = {
    RequestError: _refused,
    RequestValidationError: _invalid,
    HTTPException: _http,
    DataError: _bad_request,
    ConfigurationError: _bad_request,
}
"""Handlers of exceptions; every error has the form {"error": message}."""


def _described(error: dict[str, object]) -> str:
    place = error["loc"]
    assert isinstance(place, tuple)
    where = ".".join(str(part) for part in place if part != "body")
    if error["type"] == "missing":
        return f"{where or 'the body'} is missing"
    what = "is not a known key" if error["type"] == "extra_forbidden" else expected(error)
    return f"{where}: {what}" if where else what


def _protected(app: FastAPI, services: Services) -> ASGIApp:
    """The application with the shortcut of direct routes and the middleware, from the inside out.

    The middleware is not FastAPI's, whose layers cost more than all of these together.
    """
    config = services.config
    found: ASGIApp = ShortWay(app, libretranslate.router.routes, ERROR_ANSWERS)
    found = WholeBodies(HeadAsGet(found), config.limits)
    if config.allow_origins:
        found = CORSMiddleware(found, allow_origins=config.allow_origins, allow_methods=["*"], allow_headers=["*"])
    if names := config.local_names:
        found = KnownHosts(found, names, config.allow_origins)
    routes = [each for part in (app, *ROUTERS) for each in part.routes]
    paths = [route.path for route in routes if isinstance(route, Route)]
    return ServerErrorMiddleware(RequestRecord(found, services.metrics, config.log_text, paths), _fault)
