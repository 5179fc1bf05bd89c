"""Middleware: limits on size and time of bodies, checks of hosts and origins, and a log of every request."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import Collection, Sequence
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jointnmt.serving.metrics import Metrics
from jointnmt.serving.settings import Limits

logger = logging.getLogger(__name__)

CLOSE = {"Connection": "close"}
"""Header that closes the connection, so that the rest of a body is not read."""


def error_response(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """An error answer of the server, as ASCII, so that it may quote any characters that a client sent."""
    return _Ascii({"error": message}, status, headers)


class _Ascii(JSONResponse):
    def render(self, content: Any) -> bytes:
        return json.dumps(content).encode("ascii")


class WholeBodies:
    """Reads each body before anything else, within limits of size and time."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app, self._limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with its whole body, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            await error_response(415, "Send the body as it is, without Content-Encoding.", CLOSE)(scope, receive, send)
            return
        if int(headers.get(b"content-length", b"0")) > self._limits.body_bytes:
            await self._too_long(scope, receive, send)
            return
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return
                    body += message.get("body", b"")
                    if len(body) > self._limits.body_bytes:
                        await self._too_long(scope, receive, send)
                        return
                    if not message.get("more_body", False):
                        break
        except TimeoutError:
            late = f"The body did not arrive within {self._limits.body_seconds:g} seconds."
            await error_response(408, late, CLOSE)(scope, receive, send)
            return
        whole: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def replay() -> Message:
            return whole.pop() if whole else await receive()

        await self._app(scope, replay, send)

    async def _too_long(self, scope: Scope, receive: Receive, send: Send) -> None:
        message = f"The body has more than {self._limits.body_bytes} bytes."
        await error_response(413, message, CLOSE)(scope, receive, send)


class KnownHosts:
    """Refuses requests under another host name than the server's own, and from web pages of other origins.

    This stops a web page whose host name has been made to point to this machine (DNS rebinding), and one that sends a
    form, whose answer it could not read but which would be computed.
    """

    def __init__(self, app: ASGIApp, names: Sequence[str], origins: Sequence[str]) -> None:
        """Accept these host names of the server, with or without a port, and these origins (`*`: all)."""
        self._app, self._origins = app, frozenset(origins)
        self._names = frozenset(map(_name_of, names))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request with a name of this server that is not from a page of another origin."""
        headers = dict(scope.get("headers", ()))
        host, origin = (headers.get(name, b"").decode("latin-1") for name in (b"host", b"origin"))
        name, of_page = _name_of(host), origin.partition("://")[2]
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif name not in self._names:
            message = f"The server is not known as {name!r} here: allow_hosts of its settings adds names."
            await error_response(400, message, CLOSE)(scope, receive, send)
        elif origin and of_page.lower() != host.lower() and not self._origins & {origin, "*"}:
            message = f"Pages of {origin!r} may not call this server: allow_origins of its settings adds origins."
            await error_response(403, message, CLOSE)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def _name_of(host: str) -> str:
    """The name of a host without its port; an IPv6 address without brackets has none."""
    bare = host if host.count(":") > 1 and not host.startswith("[") else re.sub(r":\d*$", "", host)
    return bare.strip("[]").lower()


class HeadAsGet:
    """Answers HEAD like GET; the HTTP protocol class leaves out the body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        asked = {**scope, "method": "GET"}
        await self._app(asked, receive, send)
        scope["route"] = asked.get("route")  # for the log


class RequestRecord:
    """Counts and logs every request: method, route, status, time and key, and texts only if configured."""

    def __init__(self, app: ASGIApp, metrics: Metrics, log_text: bool, paths: Collection[str]) -> None:
        """Use the paths of all routes to name requests that are refused before they reach one."""
        self._app, self._metrics, self._log_text, self._paths = app, metrics, log_text, frozenset(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request and record its outcome."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status: int | None = None
        began = time.monotonic()

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        scope.setdefault("state", {})["arrived"] = began
        try:
            await self._app(scope, receive, noting)
        except Exception:
            status = status or 500  # answered outside of this
            raise
        finally:
            self._note(scope, status or 499, time.monotonic() - began)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        asked = scope["path"] if scope["path"] in self._paths else "other"
        route = getattr(scope.get("route"), "path", None) or asked
        self._metrics.requests.labels(route, str(status)).inc()
        self._metrics.request_seconds.labels(route).observe(seconds)
        key = scope["state"].get("key")
        logger.info("%s %s %d %.0f ms%s", scope["method"], route, status, 1000 * seconds, f" key={key}" if key else "")
        if self._log_text and "texts" in scope["state"]:
            for source, translation in zip(*scope["state"]["texts"], strict=False):
                logger.info("text %r -> %r", source, translation)
