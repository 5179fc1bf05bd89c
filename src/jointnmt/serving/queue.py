"""The queue of sentences, and the choice of the next batch.

Requests take turns: at each turn, the first sentence of the next request is computed, together with others that fit in
its batch. So a request of one sentence waits for at most one batch of each request before it, not for the end of a long
document.
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
"""Number of sentences among which a batch is chosen."""
ANSWER_SECONDS = 0.001
"""Most time to answer one request and to read the next."""
PAUSE_SECONDS = 0.003
"""Time without a new request after which the worker stops waiting for more."""
LONGEST_WAIT_SECONDS = 0.06


class QueueFullError(Exception):
    """There is no room for so many sentences."""


@dataclass(eq=False)
class Ticket:
    """A request's place in the queue."""

    work: Work
    waiting: deque[Sentence]
    deliver: Callable[[Sentence, Any], None]
    """Called by the worker's thread with a sentence and its result or exception."""
    put_at: float = field(default_factory=time.monotonic)


@dataclass(frozen=True)
class Chosen:
    """A batch to compute."""

    work: Work
    sentences: Sequence[Sentence]
    tickets: Sequence[Ticket]
    """Ticket of each sentence."""


class WorkQueue:
    """Waiting requests; many producers, one consumer."""

    def __init__(self, capacity: int) -> None:
        """Hold at most `capacity` sentences, including those that have been taken and are not done."""
        self.capacity = capacity
        self._tickets: OrderedDict[Ticket, None] = OrderedDict()
        self._held = 0
        self._closed = False
        self._arrived = 0
        """Number of requests that have arrived so far."""
        self._answered = self._arrived_before = 0
        """Number of requests that the last batch completed, and number that had arrived by then."""
        self._awaited = 0
        """Value of `_arrived` at which the worker is woken."""
        self._changed = threading.Condition()

    @property
    def held(self) -> int:
        """Number of sentences that wait or are being computed."""
        return self._held

    def put(self, ticket: Ticket, even_if_full: bool = False) -> None:
        """Add a request to the queue.

        A request of several sentences takes at most half of the free places, so that documents leave room for
        sentences; on an empty queue it may take all.

        Raises:
            QueueFullError: if there is no room for all of its sentences; then none is kept.
        """
        with self._changed:
            free, asked = self.capacity - self._held, len(ticket.waiting)
            fits = asked <= (free if asked == 1 or not self._held else free // 2)
            if self._closed or not (fits or even_if_full):
                raise QueueFullError
            self._held += len(ticket.waiting)
            self._arrived += 1
            self._tickets[ticket] = None
            if self._arrived >= self._awaited:  # else the worker gathers, and waking it would slow them
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
        """Free the places of a finished batch."""
        with self._changed:
            self._held -= len(chosen.sentences)
            self._arrived_before = self._arrived

    def close(self) -> None:
        """Accept nothing more; waiting sentences are still computed."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _gather(self) -> None:
        """After a batch that answered several requests, wait until as many have arrived, or while they keep arriving.

        The clients that it answered send their next sentences. If the next batch began at once, it would miss them, and
        clients would alternate for ever in batches of half the size, which take longer in total. After a single
        request, there is no wait.
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
        except Exception:  # it must not end the worker, which answers all requests
            logger.exception("no batch could be planned: the sentence is computed alone")
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
        """Candidates for a batch, beginning with the first sentence of `first`; equally many of each request."""
        alike = [ticket for ticket in islice(self._tickets, CANDIDATES) if ticket.work == first.work]
        share = max(1, CANDIDATES // len(alike))
        return [(ticket, sentence) for ticket in alike for sentence in islice(ticket.waiting, share)]
