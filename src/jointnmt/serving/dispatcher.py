"""The bridge between requests, which wait on the event loop, and the worker's thread."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Any

from jointnmt.errors import ConfigurationError, DataError, JointNMTError
from jointnmt.serving.engine import Translation
from jointnmt.serving.errors import BusyError, RequestError
from jointnmt.serving.metrics import Metrics
from jointnmt.serving.queue import QueueFullError, Ticket, WorkQueue
from jointnmt.serving.settings import Limits
from jointnmt.serving.work import Sentence, Work
from jointnmt.serving.worker import Worker


class Mailbox:
    """Notifies requests, on the event loop, of results from the worker's thread.

    The loop is woken once for all results that have arrived by then, not once for each sentence of a batch.
    """

    def __init__(self) -> None:
        self._arrived: deque[asyncio.Event] = deque()
        self._is_called = False

    def put(self, loop: asyncio.AbstractEventLoop, arrived: asyncio.Event) -> None:
        """Set an event of the loop; called by the worker's thread."""
        self._arrived.append(arrived)
        if not self._is_called:
            self._is_called = True
            loop.call_soon_threadsafe(self._open)

    def _open(self) -> None:
        self._is_called = False  # before the events are read: later ones call again
        while self._arrived:
            self._arrived.popleft().set()


class Dispatcher:
    """Hands sentences to the worker and their results back, in order."""

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self._limits, self._metrics = limits, metrics
        self.queue = WorkQueue(limits.queued_sentences)
        self._worker = Worker(self.queue, metrics)
        self._mailbox = Mailbox()
        metrics.queued.set_function(lambda: self.queue.held)

    def start(self) -> None:
        """Start the worker."""
        self._worker.start()

    @property
    def is_alive(self) -> bool:
        """Whether the worker is running."""
        return self._worker.is_alive()

    async def stop(self, seconds: float) -> None:
        """Accept nothing more, and wait for the running work, at most so many seconds."""
        self.queue.close()
        await asyncio.to_thread(self._worker.join, seconds)

    async def outcomes(
        self, work: Work, sentences: Sequence[Sentence], even_if_full: bool = False
    ) -> AsyncIterator[Any]:
        """A result or an exception for each sentence, in order, each as soon as it is ready.

        The places of sentences that still wait are freed when the iteration ends early.

        Raises:
            BusyError: at once, if the queue is full.
        """
        if not sentences:
            return
        loop, arrived, ready = asyncio.get_running_loop(), asyncio.Event(), dict[int, Any]()

        def deliver(sentence: Sentence, outcome: Any) -> None:
            ready[sentence.number] = outcome
            self._mailbox.put(loop, arrived)

        ticket = Ticket(work, deque(sentences), deliver)
        self._put(ticket, even_if_full)
        try:
            for sentence in sentences:
                while sentence.number not in ready:
                    arrived.clear()
                    if sentence.number not in ready:
                        await arrived.wait()
                yield self._counted(ready.pop(sentence.number))
        finally:
            self.queue.cancel(ticket)

    async def results(self, work: Work, sentences: Sequence[Sentence], even_if_full: bool = False) -> list[Any]:
        """The results of all sentences.

        Raises:
            BusyError: if the queue is full.
            RequestError: for the first sentence that has no result.
        """
        found = []
        async for outcome in self.outcomes(work, sentences, even_if_full):
            if isinstance(outcome, Exception):
                raise refusal(outcome) from outcome
            found.append(outcome)
        return found

    def _put(self, ticket: Ticket, even_if_full: bool) -> None:
        most = self._limits.queued_sentences
        if len(ticket.waiting) > most and not even_if_full:
            raise RequestError(413, f"The request has {len(ticket.waiting)} sentences; at most {most} are taken.")
        try:
            self.queue.put(ticket, even_if_full)
        except QueueFullError:
            raise BusyError("The server is busy: too many sentences wait.", self._limits.retry_after_seconds) from None

    def _counted(self, outcome: Any) -> Any:
        if isinstance(outcome, Translation) and outcome.candidates:
            self._metrics.target_tokens.inc(len(outcome.candidates[0].tokens))
        return outcome


def refusal(error: Exception) -> RequestError:
    """The error that a client receives for an error of the computation."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, DataError | ConfigurationError):
        return RequestError(400, str(error))
    if isinstance(error, JointNMTError):
        return RequestError(500, str(error))
    return RequestError(500, "The server failed to compute this; see its log.")
