"""Errors with which requests are refused."""

from __future__ import annotations

from starlette.requests import Request

NO_JSON = "Send a JSON object, with Content-Type: application/json."


def is_json(request: Request) -> bool:
    """Whether a request declares its body as JSON."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")


class RequestError(Exception):
    """A refused request, with an HTTP status and a message for the client."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers or {}


class BusyError(RequestError):
    """The server has no room or no time for a request now; the client may retry."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(503, message, {"Retry-After": str(retry_after)})


class ClientGoneError(RequestError):
    """The client has closed its connection, so no answer can be sent."""

    def __init__(self) -> None:
        super().__init__(499, "The client has gone.")
