"""Connections with limits on their number, and on time and bytes of a request's headers."""

from __future__ import annotations

import asyncio
import json
import socket
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from jointnmt.serving.settings import Limits

GATHERED_BYTES = 2**16
"""Bytes above which data is sent at once, so that the transport notices a client that does not read."""
CLIENT_GONE = "jointnmt.client_gone"
"""Key in the extensions of a request's scope of a future that is done once its connection is lost."""


class LargeHeadersError(Exception):
    """A request's line and headers have too many bytes."""


class Gathering:
    """A connection's transport that sends everything written in one turn of the event loop together.

    The head of an answer and its body are two writes. Each would be a separate packet, and wake the client.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport, self._written, self._size = transport, list[bytes](), 0
        self._loop = asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send `data` at the end of this turn, or at once if much has been written in it."""
        if not self._written:
            self._loop.call_soon(self.flush)
        self._written.append(data)
        self._size += len(data)
        if self._size > GATHERED_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send what has been written."""
        written, self._written, self._size = self._written, [], 0
        if written and not self._transport.is_closing():
            self._transport.write(b"".join(written))

    def close(self) -> None:
        """Send everything that has been written, then close the connection."""
        self.flush()
        self._transport.close()


class GuardedProtocol(HttpToolsProtocol):
    """HTTP/1.1 that closes idle connections, and refuses too many connections and too large headers.

    uvicorn's own time limit begins after a first answer; a client that sends nothing, or its headers letter by letter,
    would keep its connection for ever. The parser accepts headers of any size.
    """

    limits: Limits

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        # An answer is written in two parts, and Nagle's algorithm would hold the second back until the client has
        # acknowledged the first, about 40 ms. asyncio does this for sockets that it opens itself, not for given ones.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(Gathering(transport))  # type: ignore[arg-type]
        self._gone = self.loop.create_future()
        self._deadline: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        """Bytes of the request's line and headers so far."""
        self._unparsed_bytes = 0
        """Bytes received since the last complete head, body part or trailer, as the parser keeps parts of headers."""
        self._in_head = False
        self._unread: asyncio.TimerHandle | None = None
        if len(self.connections) > self.limits.connections:
            busy = "The server is busy: there are too many connections."
            transport.write(_refusal(503, busy, f"Retry-After: {self.limits.retry_after_seconds}\r\n"))
            transport.close()
        else:
            self._wait()

    def data_received(self, data: bytes) -> None:
        """Receive bytes; the time for a request's headers is limited."""
        self._unparsed_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            self._stop_waiting()
        elif self._unparsed_bytes > self.limits.header_bytes:
            self.send_400_response("")
        elif self.cycle is None or self.cycle.response_complete:
            self._wait()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        self._stop_waiting_to_write()
        super().connection_lost(exc)
        self._gone.set_result(None)

    def pause_writing(self) -> None:
        """Wait for the client to read, for a limited time."""
        super().pause_writing()
        self._unread = self._unread or self.loop.call_later(self.limits.request_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Continue to write."""
        self._stop_waiting_to_write()
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, even if its client has not read the last answer."""
        super().timeout_keep_alive_handler()
        self.loop.call_later(self.limits.header_seconds, self.transport.abort)

    def on_message_begin(self) -> None:
        """Begin with a request."""
        self._in_head, self._head_bytes = True, 0
        super().on_message_begin()
        self.scope["extensions"] = {CLIENT_GONE: self._gone}  # type: ignore[dict-item]

    def on_url(self, url: bytes) -> None:
        """Receive a part of the request's line."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Receive a header; a trailer, which comes after a body, is ignored."""
        if not self._in_head:
            self._unparsed_bytes = 0
            return
        self._count(len(name) + len(value) + len(": \r\n"))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin to answer."""
        self._in_head, self._unparsed_bytes = False, 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Receive a part of a body."""
        self._unparsed_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request."""
        self._unparsed_bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Continue with the next request, which may have begun to arrive."""
        super().on_response_complete()
        if self._in_head and not self.transport.is_closing():
            self._wait()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, or has too large a head, and close the connection."""
        most = self.limits.header_bytes
        if max(self._head_bytes, self._unparsed_bytes) > most:
            answer = _refusal(431, f"The request's line and headers have more than {most} bytes.")
        else:
            answer = _refusal(400, msg)
        self.transport.write(answer)
        self.transport.close()

    def _unsupported_upgrade_warning(self) -> None:
        """Suppress the warning: the request is answered over plain HTTP, and no package is missing."""

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self.limits.header_bytes:
            raise LargeHeadersError  # the parser stops, and `send_400_response` is called

    def _stop_waiting_to_write(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

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


def _refusal(status: int, message: str, headers: str = "") -> bytes:
    """An answer after which the connection is closed; `headers` are lines."""
    body = json.dumps({"error": message}).encode()
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n{headers}Connection: close\r\n\r\n".encode() + body
