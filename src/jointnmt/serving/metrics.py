"""Metrics for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120)
SENTENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The server's counters; none of them holds text."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = self._counter("requests", "Requests answered", ("route", "status"))
        self.request_seconds = Histogram(
            "jointnmt_request_seconds",
            "Time from a request's headers to the end of its answer",
            ("route",),
            buckets=SECONDS,
            registry=self.registry,
        )
        self.queued = Gauge("jointnmt_queued_sentences", "Sentences waiting or being computed", registry=self.registry)
        self.queue_seconds = self._histogram("queue_seconds", "Time that a sentence waited", SECONDS)
        self.compute_seconds = self._histogram("compute_seconds", "Time that a batch took", SECONDS)
        self.batch_sentences = self._histogram("batch_sentences", "Sentences of a batch", SENTENCES)
        self.source_tokens = self._counter("source_tokens", "Source tokens computed, end marks included")
        self.target_tokens = self._counter("target_tokens", "Target tokens of best translations, end marks included")
        self.reloads = self._counter("reloads", "Models reloaded", ("outcome",))

    def text(self) -> bytes:
        """All metrics in the Prometheus text format."""
        return generate_latest(self.registry)

    def _counter(self, name: str, what: str, labels: tuple[str, ...] = ()) -> Counter:
        return Counter(f"jointnmt_{name}", what, labels, registry=self.registry)

    def _histogram(self, name: str, what: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"jointnmt_{name}", what, buckets=buckets, registry=self.registry)
