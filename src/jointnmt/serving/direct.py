"""Direct calls of frequently used routes, without FastAPI's router, dependencies and checks.

These would cost as much as the whole request apart from the translation itself.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, cast

from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send

Endpoint = Callable[[Request], Coroutine[Any, Any, Response]]
ErrorAnswers = Mapping[Any, Callable[[Request, Any], Coroutine[Any, Any, Response]]]
"""Handlers by type of exception."""


class DirectRoute(APIRoute):
    """A route whose function reads the request and writes the answer itself."""

    def get_route_handler(self) -> Endpoint:
        """The function itself."""
        return cast(Endpoint, self.endpoint)


class ShortWay:
    """Calls the functions of direct routes; all other requests are passed on to the application."""

    def __init__(self, app: FastAPI, routes: Iterable[object], error_answers: ErrorAnswers) -> None:
        """Use the direct ones among `routes`, and these handlers of exceptions from their functions."""
        direct = [route for route in routes if isinstance(route, DirectRoute)]
        self._routes = {(method, route.path): route for route in direct for method in route.methods or ()}
        self._app, self._errors, self._error_answers = app, tuple(error_answers), error_answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request to a direct route."""
        route = self._routes.get((scope.get("method", ""), scope.get("path", "")))
        if route is None or scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["app"], scope["route"] = self._app, route
        response = await self._answer(cast(Endpoint, route.endpoint), Request(scope, receive))
        await response(scope, receive, send)

    async def _answer(self, endpoint: Endpoint, request: Request) -> Response:
        try:
            return await endpoint(request)
        except self._errors as error:
            known = next(kind for kind in type(error).__mro__ if kind in self._error_answers)
            return await self._error_answers[known](request, error)
