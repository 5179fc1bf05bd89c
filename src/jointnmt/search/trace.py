"""What beam search did with a sentence, as a tree of hypotheses: kept, finished, pruned, and by how much."""

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
"""`kept`: was in the beam and was extended. `finished`: ended, and is a translation. `pruned`: was among the 2K best
continuations of its position, but fell out. `abandoned`: was in the beam when the sentence was done."""


@dataclass(frozen=True)
class SearchNode:
    """A hypothesis that search has seen: that of its parent and one token more."""

    number: int
    """Its place among the nodes of its tree; a parent comes before its children."""
    parent: int | None
    """None: the root, which is the begin mark alone."""
    position: int
    """Of its newest token, from 0; -1 of the root."""
    token: int
    """The id of its newest token."""
    fate: Fate
    rank: int
    """Its place by log-probability among the continuations of its position, from 0."""
    token_log_probability: float
    log_probability: float
    """The sum up to here, by which search prunes."""
    score: float
    """The same over the length penalty, by which finished hypotheses are ranked."""
    behind: float = 0.0
    """Of a pruned one: how far its log-probability is below that of the last one taken in its place."""


@dataclass
class SearchTree:
    """The search for the translation of one sentence."""

    nodes: list[SearchNode]
    finished: list[int] = field(default_factory=list)
    """Numbers of the finished nodes, best score first: the order of the translations that search returns."""
    beam: list[int] = field(default_factory=lambda: [0])
    """Numbers of the nodes that are in the beam now, best first."""

    @classmethod
    def begin(cls) -> SearchTree:
        """The tree before the first position."""
        return cls([SearchNode(0, None, -1, bos_id, "abandoned", 0, 0.0, 0.0, 0.0)])

    def tokens(self, number: int) -> tuple[int, ...]:
        """The ids of a hypothesis, without begin and end marks."""
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
    """The continuations of one position of a sentence, best first, and the ranks of those that end or go on."""

    possible: Sequence[_Continuation]
    ends: Sequence[int]
    survivors: Sequence[int]
    beam_size: int

    def behind(self, pruned: _Continuation) -> float:
        """How far a pruned one is below the last one that was taken in its place."""
        if pruned.token != eos_id:
            last = self.survivors[-1]
        else:  # only the K best may end; of these, no more than are still wanted
            last = self.beam_size - 1 if pruned.rank >= self.beam_size else self.ends[-1]
        return self.possible[last].log_probability - pruned.log_probability


class SearchTrace:
    """Records the beam search of a batch, if `beam_search` is given one.

    Args:
        most_pruned: pruned hypotheses to keep of each position, the best ones; None: all among the 2K best.
    """

    def __init__(self, most_pruned: int | None = None) -> None:
        self.trees: list[SearchTree] = []
        """Of the sentences, in the order of the batch."""
        self._most_pruned = most_pruned

    def begin(self, num_sentences: int, penalty: LengthPenalty) -> None:
        """Take note that a search begins."""
        self.trees = [SearchTree.begin() for _ in range(num_sentences)]
        self._penalty = penalty

    def extend(
        self,
        beams: BeamState,
        step: BeamStep,
        found: Sequence[Sequence[Hypothesis]],
    ) -> None:
        """Take note of what became of a position's candidates.

        Args:
            beams: the hypotheses that they continue.
            step: the position.
            found: the finished hypotheses of every sentence of the batch, those of this position included.
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
