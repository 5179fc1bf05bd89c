"""Connections: how many there may be, and how long one may take to say what it wants."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from jointnmt.serving.settings import Limits


class GuardedProtocol(H11Protocol):
    """HTTP/1.1 that closes connections whose requests do not come, and refuses those that are too many.

    uvicorn's own time limit begins after a first answer; a client that sends nothing, or its headers letter by letter,
    would keep its connection for ever.
    """

    limits: Limits

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        # An answer is written in two parts, and Nagle's algorithm would hold the second back until the client has
        # acknowledged the first, some 40 ms. asyncio sees to this for sockets that it opens itself, not for given ones.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)
        self._deadline: asyncio.TimerHandle | None = None
        if len(self.connections) > self.limits.connections:
            transport.write(_too_many(self.limits.retry_after_seconds))
            transport.close()
        else:
            self._wait()

    def data_received(self, data: bytes) -> None:
        """Take bytes in; from the first one of a request on, its headers have so much time."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self._wait()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.limits.header_seconds, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def protocol(limits: Limits) -> type[GuardedProtocol]:
    """The protocol with these limits."""
    return type("Protocol", (GuardedProtocol,), {"limits": limits})


def _too_many(retry_after: int) -> bytes:
    body = json.dumps({"error": "The server is busy: there are too many connections."}).encode()
    head: dict[str, Any] = {
        "Content-Type": "application/json",
        "Content-Length": len(body),
        "Retry-After": retry_after,
        "Connection": "close",
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    return f"HTTP/1.1 503 Service Unavailable\r\n{lines}\r\n".encode() + body
