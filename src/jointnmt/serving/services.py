"""The parts that routes share, and how a request waits for its answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, cast

from fastapi import Depends, Request

from jointnmt.serving.connections import CLIENT_GONE
from jointnmt.serving.dispatcher import Dispatcher
from jointnmt.serving.errors import BusyError, ClientGoneError
from jointnmt.serving.keys import Access
from jointnmt.serving.metrics import Metrics
from jointnmt.serving.models import Models
from jointnmt.serving.settings import ServerConfig

Answer = TypeVar("Answer")

LAST_BATCH_SECONDS = 5.0
"""Longest time that the worker may still compute after the requests' time to finish is over."""


@dataclass
class Services:
    """The parts of a running server."""

    config: ServerConfig
    models: Models
    dispatcher: Dispatcher
    access: Access
    metrics: Metrics
    stops_at: float | None = None
    """Time, by `time.monotonic`, at which running requests must have finished; None: the server is not stopping."""

    @property
    def draining(self) -> bool:
        """Whether the server is stopping."""
        return self.stops_at is not None

    def stop(self) -> None:
        """Begin to stop: running requests get a limited time to finish."""
        if self.stops_at is None:
            self.stops_at = time.monotonic() + self.config.limits.drain_seconds

    def admit(self, request: Request, given: str | None = None) -> None:
        """Admit a request by its key, in the `Authorization` header or `given`.

        Raises:
            RequestError: if the key is missing or wrong, or has used up its requests.
        """
        kind, _, header = request.headers.get("authorization", "").partition(" ")
        request.state.key = self.access.admit(header.strip() if kind.lower() == "bearer" else given)

    def seconds_left(self, request: Request) -> float:
        """Seconds left of a request's time, which began when it arrived."""
        arrived: float = request.state.arrived
        return max(0.0, arrived + self.config.limits.request_seconds - time.monotonic())

    async def answer(self, request: Request, computed: Coroutine[Any, Any, Answer]) -> Answer:
        """The computed answer; the computation is cancelled if the client disconnects or the time is over.

        Raises:
            ClientGoneError: if the client has disconnected.
            BusyError: if the time is over.
        """
        task, gone = asyncio.current_task(), _gone(request)
        assert task is not None
        has_gone = has_ended = False

        def give_up(_: asyncio.Future[None]) -> None:
            nonlocal has_gone
            if not has_ended:  # it may have ended meanwhile
                has_gone = True
                task.cancel()

        gone.add_done_callback(give_up)
        try:
            async with asyncio.timeout(self.seconds_left(request)):
                return await computed
        except TimeoutError:
            limits = self.config.limits
            raise BusyError(
                f"The answer was not ready within {limits.request_seconds:g} seconds.", limits.retry_after_seconds
            ) from None
        except asyncio.CancelledError:
            if not has_gone:
                raise
            task.uncancel()
            raise ClientGoneError from None
        finally:
            has_ended = True
            gone.remove_done_callback(give_up)


def _gone(request: Request) -> asyncio.Future[None]:
    """A future that is done once the client's connection is lost; never done under a server without that extension."""
    return request.scope.get("extensions", {}).get(CLIENT_GONE) or asyncio.get_running_loop().create_future()


def services(request: Request) -> Services:
    """The server's parts."""
    return cast(Services, request.app.state.services)


async def _services(request: Request) -> Services:
    return services(request)  # a coroutine: FastAPI calls a plain function on another thread


Shared = Annotated[Services, Depends(_services)]


@asynccontextmanager
async def running(shared: Services) -> AsyncIterator[None]:
    """Context in which the worker is running."""
    shared.dispatcher.start()
    try:
        yield
    finally:
        shared.stop()
        assert shared.stops_at is not None
        await shared.dispatcher.stop(max(LAST_BATCH_SECONDS, shared.stops_at - time.monotonic()))
