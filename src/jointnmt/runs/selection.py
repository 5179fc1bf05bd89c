"""Selection of the best checkpoints, and the count for early stopping, as plain values."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class ScoredCheckpoint:
    """A validated checkpoint; a higher score is better."""

    step: int
    score: float


@dataclass(frozen=True)
class Selection:
    """The best checkpoints so far, best first, and the number of validations since the last improvement."""

    best: tuple[ScoredCheckpoint, ...] = ()
    stale: int = 0

    def add(self, scored: ScoredCheckpoint, keep: int, counts: bool = True) -> Selection:
        """The selection after one more validation; with equal scores the earlier step wins.

        Unless it `counts`, `stale` is 0 after it.
        """
        improved = not self.best or scored.score > self.best[0].score
        ranked = sorted([*self.best, scored], key=lambda one: (-one.score, one.step))
        return Selection(tuple(ranked[:keep]), 0 if improved or not counts else self.stale + 1)

    @property
    def steps(self) -> tuple[int, ...]:
        """The steps of the best checkpoints, best first; only those with a finite score, if there are any."""
        finite = [scored for scored in self.best if math.isfinite(scored.score)]
        return tuple(scored.step for scored in finite or self.best)

    def plain(self) -> dict[str, object]:
        """The fields as JSON-compatible values."""
        return {"best": [[scored.step, scored.score] for scored in self.best], "stale": self.stale}

    @classmethod
    def from_plain(cls, values: dict[str, object]) -> Selection:
        """The inverse of `plain`."""
        best, stale = values["best"], values["stale"]
        assert isinstance(best, list) and isinstance(stale, int)
        return cls(tuple(ScoredCheckpoint(step, score) for step, score in best), stale)
