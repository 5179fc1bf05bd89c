"""The sentences that wait, and which of them are computed next.

Requests take turns: at each turn, the next request's first sentence is computed, together with whatever else goes well
with it. So a request of one sentence waits for the requests before it, one batch each at most, and not for the end of a
long document.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from jointnmt.serving.work import Sentence, Work

logger = logging.getLogger(__name__)

CANDIDATES = 512
"""Sentences among which a batch is chosen."""
ANSWER_SECONDS = 0.001
"""What it takes to answer one request and to read the next, at most."""
PAUSE_SECONDS = 0.003
"""When nothing has come for so long, nothing more is waited for."""
LONGEST_WAIT_SECONDS = 0.06


class QueueFullError(Exception):
    """There is no room for so many sentences."""


@dataclass(eq=False)
class Ticket:
    """A request's place in the queue."""

    work: Work
    waiting: deque[Sentence]
    deliver: Callable[[Sentence, Any], None]
    """Takes a sentence's result, or the exception in its place; called by the worker's thread."""
    put_at: float = field(default_factory=time.monotonic)


@dataclass(frozen=True)
class Chosen:
    """What is computed at once."""

    work: Work
    sentences: Sequence[Sentence]
    tickets: Sequence[Ticket]
    """Of each sentence."""


class WorkQueue:
    """Requests that wait; filled by many, emptied by one."""

    def __init__(self, capacity: int) -> None:
        """Hold at most `capacity` sentences, those counted that have been taken and are not done."""
        self.capacity = capacity
        self._tickets: OrderedDict[Ticket, None] = OrderedDict()
        self._held = 0
        self._closed = False
        self._arrived = 0
        """How many requests have come so far."""
        self._answered = self._arrived_before = 0
        """How many requests the last batch has answered to the end, and how many had come by then."""
        self._awaited = 0
        """What `_arrived` has to be for the worker to be woken."""
        self._changed = threading.Condition()

    @property
    def held(self) -> int:
        """Sentences that wait or are being computed."""
        return self._held

    def put(self, ticket: Ticket, even_if_full: bool = False) -> None:
        """Let a request wait for its turn.

        A request of several sentences takes at most half of the places that are free, so that documents leave room for
        sentences; one that comes first may take all.

        Raises:
            QueueFullError: if not all of its sentences find room; then none is kept.
        """
        with self._changed:
            free, asked = self.capacity - self._held, len(ticket.waiting)
            fits = asked <= (free if asked == 1 or not self._held else free // 2)
            if self._closed or not (fits or even_if_full):
                raise QueueFullError
            self._held += len(ticket.waiting)
            self._arrived += 1
            self._tickets[ticket] = None
            if self._arrived >= self._awaited:  # else the worker gathers: woken by each, it would take their time
                self._changed.notify()

    def cancel(self, ticket: Ticket) -> None:
        """Free the places of a request's sentences that still wait."""
        with self._changed:
            self._held -= len(ticket.waiting)
            ticket.waiting.clear()
            self._tickets.pop(ticket, None)

    def take(self) -> Chosen | None:
        """The next batch, as soon as there is one; None when the queue is closed and empty."""
        with self._changed:
            self._gather()
            while not self._tickets:
                if self._closed:
                    return None
                self._changed.wait()
            return self._choose()

    def done(self, chosen: Chosen) -> None:
        """Free the places of what was taken."""
        with self._changed:
            self._held -= len(chosen.sentences)
            self._arrived_before = self._arrived

    def close(self) -> None:
        """Take nothing more in; what waits is still given out."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _gather(self) -> None:
        """After a batch that answered several requests, wait until as many have come, or while they keep coming.

        The clients that it has answered send their next sentences. Begun at once, the next batch would be without
        them, and so they would for ever take turns in batches of half the size, which take longer in all. After a
        single request, nothing is waited for.
        """
        if self._answered < 2 or self._held >= CANDIDATES:
            return
        end = time.monotonic() + LONGEST_WAIT_SECONDS
        pause = min(ANSWER_SECONDS * self._answered, LONGEST_WAIT_SECONDS / 2)
        self._awaited = self._arrived_before + self._answered
        before = -1
        while before != self._arrived < self._awaited and not self._closed and time.monotonic() + pause < end:
            before = self._arrived
            self._changed.wait(pause)
            pause = PAUSE_SECONDS
        self._awaited = 0

    def _choose(self) -> Chosen:
        first = next(iter(self._tickets))
        candidates = self._candidates(first)
        try:
            numbers = first.work.plan([sentence for _, sentence in candidates])
        except Exception:  # the worker must not end by it, or nobody would be answered any more
            logger.exception("no batch could be planned: the sentence is computed by itself")
            numbers = [0]
        chosen = [candidates[number] for number in numbers]
        taken = {id(sentence) for _, sentence in chosen}
        self._answered = 0
        for ticket in dict.fromkeys(ticket for ticket, _ in chosen):
            ticket.waiting = deque(each for each in ticket.waiting if id(each) not in taken)
            if ticket.waiting:
                self._tickets.move_to_end(ticket)
            else:
                del self._tickets[ticket]
                self._answered += 1
        return Chosen(first.work, [sentence for _, sentence in chosen], [ticket for ticket, _ in chosen])

    def _candidates(self, first: Ticket) -> list[tuple[Ticket, Sentence]]:
        """Sentences that may be computed with the first one of `first`, which comes first, an equal share of each."""
        alike = [ticket for ticket in islice(self._tickets, CANDIDATES) if ticket.work == first.work]
        share = max(1, CANDIDATES // len(alike))
        return [(ticket, sentence) for ticket in alike for sentence in islice(ticket.waiting, share)]
