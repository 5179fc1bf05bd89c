"""A trace of beam search: a tree of hypotheses for each sentence, kept, finished or pruned, and by what margin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch

from jointnmt.search.hypothesis import Hypothesis
from jointnmt.search.scoring import LengthPenalty
from jointnmt.text.special import bos_id, eos_id

if TYPE_CHECKING:
    from jointnmt.ops import BeamStep
    from jointnmt.search.beam_state import BeamState

Fate = Literal["kept", "finished", "pruned", "abandoned"]
"""`kept`: was in the beam and extended. `finished`: ended, and is a translation. `pruned`: was among the 2K best
continuations of its position, but not taken. `abandoned`: was in the beam when the sentence was done."""


@dataclass(frozen=True)
class SearchNode:
    """A hypothesis of the search: its parent's tokens and one more."""

    number: int
    """Index among the nodes of its tree; a parent comes before its children."""
    parent: int | None
    """Number of the parent; None for the root, the begin mark alone."""
    position: int
    """Position of its newest token, from 0; -1 for the root."""
    token: int
    """Id of its newest token."""
    fate: Fate
    rank: int
    """Rank by log-probability among the continuations of its position, from 0."""
    token_log_probability: float
    log_probability: float
    """Sum of log-probabilities so far, in nats, by which search prunes."""
    score: float
    """Log-probability over the length penalty, by which finished hypotheses are ranked."""
    behind: float = 0.0
    """Distance of a pruned hypothesis's log-probability to that of the last one taken instead, in nats; else 0."""


@dataclass
class SearchTree:
    """The search for the translation of one sentence."""

    nodes: list[SearchNode]
    finished: list[int] = field(default_factory=list)
    """Numbers of the finished nodes, best score first, as search returns translations."""
    beam: list[int] = field(default_factory=lambda: [0])
    """Numbers of the nodes in the current beam, best first."""

    @classmethod
    def begin(cls) -> SearchTree:
        """The tree before the first position."""
        return cls([SearchNode(0, None, -1, bos_id, "abandoned", 0, 0.0, 0.0, 0.0)])

    def tokens(self, number: int) -> tuple[int, ...]:
        """Ids of a hypothesis, without begin and end marks."""
        ids: list[int] = []
        node = self.nodes[number]
        while node.parent is not None:
            ids.append(node.token)
            node = self.nodes[node.parent]
        return tuple(ids[:0:-1] if ids and ids[0] == eos_id else ids[::-1])


class _Continuation(NamedTuple):
    """One of the best continuations of a sentence's hypotheses."""

    rank: int
    beam: int
    token: int
    token_log_probability: float
    log_probability: float


class _Position(NamedTuple):
    """Continuations at one position of a sentence, best first, and the ranks of those that end or survive."""

    possible: Sequence[_Continuation]
    ends: Sequence[int]
    survivors: Sequence[int]
    beam_size: int

    def behind(self, pruned: _Continuation) -> float:
        """Distance of a pruned continuation's log-probability to that of the last one taken instead, in nats."""
        if pruned.token != eos_id:
            last = self.survivors[-1]
        else:  # only the K best may end, and no more of them than are needed
            last = self.beam_size - 1 if pruned.rank >= self.beam_size else self.ends[-1]
        return self.possible[last].log_probability - pruned.log_probability


class SearchTrace:
    """Records the beam search of a batch; passed to `beam_search`.

    Args:
        most_pruned: number of pruned hypotheses to keep for each position, best first; None: all among the 2K best.
    """

    def __init__(self, most_pruned: int | None = None) -> None:
        self.trees: list[SearchTree] = []
        """Search trees of the sentences, in the order of the batch."""
        self._most_pruned = most_pruned

    def begin(self, num_sentences: int, penalty: LengthPenalty) -> None:
        """Start recording a search."""
        self.trees = [SearchTree.begin() for _ in range(num_sentences)]
        self._penalty = penalty

    def extend(
        self,
        beams: BeamState,
        step: BeamStep,
        found: Sequence[Sequence[Hypothesis]],
    ) -> None:
        """Record the candidates of a position and their fates.

        Args:
            beams: hypotheses that the candidates continue.
            step: result of the position.
            found: finished hypotheses of every sentence of the batch, those of this position included.
        """
        candidates, size = step.candidates, step.ranks.shape[1]
        totals = beams.hypotheses.extended(candidates).log_probabilities
        numbers = candidates.rows % size, *candidates[1:], totals, step.ranks
        for sentence, *row, surviving in zip(beams.sentences, *(each.tolist() for each in numbers), strict=True):
            continuations = [_Continuation(rank, *each) for rank, each in enumerate(zip(*row, strict=True))]
            possible = [each for each in continuations if each.log_probability > -torch.inf]
            tree = self.trees[sentence]
            new = len(found[sentence]) - len(tree.finished)
            ends = [each.rank for each in possible if each.token == eos_id][:new]
            going_on = [rank for rank in surviving if rank < len(possible)]
            self._grow(tree, _Position(possible, ends, going_on, size))

    def _grow(self, tree: SearchTree, position: _Position) -> None:
        fates: dict[int, Fate] = dict.fromkeys(position.survivors, "abandoned")
        fates |= dict.fromkeys(position.ends, "finished")
        pruned = [each.rank for each in position.possible if each.rank not in fates][: self._most_pruned]
        fates |= dict.fromkeys(pruned, "pruned")
        parents, tree.beam = tree.beam, []
        for number in parents:
            tree.nodes[number] = replace(tree.nodes[number], fate="kept")
        for each in position.possible:
            if each.rank in fates:
                behind = position.behind(each) if fates[each.rank] == "pruned" else 0.0
                node = self._node(tree, tree.nodes[parents[each.beam]], each, fates[each.rank], behind)
                tree.nodes.append(node)
                if node.fate == "abandoned":
                    tree.beam.append(node.number)
                elif node.fate == "finished":
                    tree.finished.append(node.number)
        tree.finished.sort(key=lambda number: -tree.nodes[number].score)

    def _node(
        self, tree: SearchTree, parent: SearchNode, continuation: _Continuation, fate: Fate, behind: float
    ) -> SearchNode:
        position, total = parent.position + 1, continuation.log_probability
        return SearchNode(
            number=len(tree.nodes),
            parent=parent.number,
            position=position,
            token=continuation.token,
            fate=fate,
            rank=continuation.rank,
            token_log_probability=continuation.token_log_probability,
            log_probability=total,
            score=self._penalty.score(total, position + 1),
            behind=behind,
        )
