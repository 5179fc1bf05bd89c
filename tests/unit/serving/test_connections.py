"""The server's packets, and the objects that its garbage collector traverses."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

from jointnmt.serving.connections import GATHERED_BYTES, Gathering
from jointnmt.serving.server import settle


class Sent:
    """A transport that records what is sent."""

    def __init__(self) -> None:
        self.packets: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        """Record data."""
        assert not self.closed
        self.packets.append(data)

    def close(self) -> None:
        """Close."""
        self.closed = True

    def is_closing(self) -> bool:
        """Whether it is closed."""
        return self.closed


def sent(*writes: bytes, then: str = "") -> list[bytes]:
    """Packets to a transport from writes in one turn of the loop; `then` is called in the same turn."""

    async def turn() -> list[bytes]:
        transport: Any = Sent()
        gathering = Gathering(transport)
        for data in writes:
            gathering.write(data)
        if then:
            getattr(gathering, then)()
        else:
            assert transport.packets == [] or sum(map(len, writes)) > GATHERED_BYTES
        await asyncio.sleep(0)
        return list(transport.packets)

    return asyncio.run(turn())


def test_what_is_written_in_one_turn_is_sent_together() -> None:
    assert sent(b"head", b"body") == [b"headbody"]
    assert sent() == []


def test_what_has_been_written_is_sent_before_the_connection_closes() -> None:
    assert sent(b"head", b"body", then="close") == [b"headbody"]


def test_much_is_sent_at_once() -> None:
    """The transport's request to pause counts only the data that it has."""
    part = bytes(GATHERED_BYTES // 2 + 1)
    assert sent(b"head", part, part, b"end") == [b"head" + part + part, b"end"]


def test_turns_are_sent_one_by_one() -> None:
    async def turns() -> list[bytes]:
        transport: Any = Sent()
        gathering = Gathering(transport)
        for data in (b"first", b"second"):
            gathering.write(data)
            await asyncio.sleep(0)
        return list(transport.packets)

    assert asyncio.run(turns()) == [b"first", b"second"]


class Model:
    """An object that is part of a cycle, like modules."""

    def __init__(self) -> None:
        self.itself = self


def test_what_is_no_longer_needed_is_freed_when_models_are_loaded_anew() -> None:
    model = Model()
    alive = weakref.ref(model)
    try:
        settle()
        assert gc.get_freeze_count() > 10_000, "all that is there is passed over"
        del model
        gc.collect()
        assert alive() is not None
        settle()
        assert alive() is None
    finally:
        gc.unfreeze()
