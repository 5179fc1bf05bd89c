"""The single thread that computes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Any

from jointnmt.errors import JointNMTError
from jointnmt.serving.metrics import Metrics
from jointnmt.serving.queue import Chosen, WorkQueue
from jointnmt.serving.work import Loading, Sentence, Work

logger = logging.getLogger(__name__)


class Worker(threading.Thread):
    """Takes batches from the queue and delivers their results until the queue is closed and empty."""

    def __init__(self, queue: WorkQueue, metrics: Metrics) -> None:
        super().__init__(name="worker", daemon=True)
        self._queue, self._metrics = queue, metrics

    def run(self) -> None:
        """Compute batches until the queue is closed and empty."""
        while (chosen := self._queue.take()) is not None:
            began = time.monotonic()
            results = outcomes(chosen.work, chosen.sentences)
            self._queue.done(chosen)
            self._observe(chosen, began)
            for sentence, ticket, result in zip(chosen.sentences, chosen.tickets, results, strict=True):
                ticket.deliver(sentence, result)

    def _observe(self, chosen: Chosen, began: float) -> None:
        if isinstance(chosen.work, Loading):  # not of a request
            return
        self._metrics.compute_seconds.observe(time.monotonic() - began)
        self._metrics.batch_sentences.observe(len(chosen.sentences))
        self._metrics.source_tokens.inc(sum(each.source_tokens for each in chosen.sentences))
        for ticket in chosen.tickets:
            self._metrics.queue_seconds.observe(began - ticket.put_at)


def outcomes(work: Work, sentences: Sequence[Sentence]) -> list[Any]:
    """The results of a batch, with an exception in place of a missing one.

    If a batch cannot be computed, each sentence is computed alone, so that one does not affect the others.
    """
    try:
        return list(work.compute(sentences))
    except Exception as error:
        if len(sentences) == 1:
            if not isinstance(error, JointNMTError):
                logger.exception("a sentence could not be computed")
            return [error]
    return [outcome for sentence in sentences for outcome in outcomes(work, [sentence])]
