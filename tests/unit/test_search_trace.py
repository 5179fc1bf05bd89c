"""The record of beam search: the same search, as a tree."""

from __future__ import annotations

import pytest

from jointnmt.data.batch import Batch, pad_rows
from jointnmt.search import SearchConfig, SearchTrace, SearchTree, beam_search, rescore, rescore_with_next
from jointnmt.text.special import bos_id, eos_id, pad_id
from support.table_model import TableModel

SOURCES = [[5, 4, eos_id], [4, eos_id], [5, 5, 4, 6, eos_id], [6, 4, 5, eos_id]]


def traced(size: int, seed: int = 0, prefixes: list[list[int]] | None = None) -> tuple[TableModel, list[SearchTree]]:
    """The trees of a search, whose result is the same as without a trace."""
    model, trace = TableModel(vocabulary=9, seed=seed), SearchTrace()
    config = SearchConfig(beam_size=size, max_length_factor=1.5, max_length_offset=2)
    found = beam_search(model, pad_rows(SOURCES), config, prefixes, size, trace)
    assert found == beam_search(model, pad_rows(SOURCES), config, prefixes, size)
    for tree, hypotheses in zip(trace.trees, found, strict=True):
        assert [tree.tokens(number) for number in tree.finished] == [each.ids for each in hypotheses]
        assert [tree.nodes[number].score for number in tree.finished] == [each.score for each in hypotheses]
    return model, trace.trees


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("seed", range(3))
def test_every_position_has_the_best_continuations_of_the_beam(size: int, seed: int) -> None:
    model, trees = traced(size, seed)
    for source, tree in zip(SOURCES, trees, strict=True):
        for position in range(max(node.position for node in tree.nodes) + 1):
            nodes = [node for node in tree.nodes if node.position == position]
            totals = [node.log_probability for node in nodes]
            assert totals == sorted(totals, reverse=True)
            assert [node.rank for node in nodes] == list(range(len(nodes)))
            parents = [node for node in tree.nodes if node.position == position - 1 and node.fate == "kept"]
            assert {node.parent for node in nodes} <= {node.number for node in parents}
            # Enumerated from the model: the 2K best continuations of all hypotheses that were kept.
            every = [
                parent.log_probability + value
                for parent in parents
                for token, value in enumerate(
                    model.logits(tuple(source), (bos_id, *tree.tokens(parent.number))).log_softmax(-1).tolist()
                )
                if token not in (pad_id, bos_id)
            ]
            if len(nodes) == 2 * size:  # not where the limit leaves only the end mark
                assert totals == pytest.approx(sorted(every, reverse=True)[: 2 * size], abs=1e-5)
            assert sum(node.fate in ("kept", "abandoned") for node in nodes) <= size


@pytest.mark.parametrize("size", [1, 2, 5])
def test_fates_and_margins(size: int) -> None:
    fates = set()
    for seed in range(4):
        for tree in traced(size, seed)[1]:
            last = max(node.position for node in tree.nodes)
            for node in tree.nodes:
                fates.add(node.fate)
                same = [each for each in tree.nodes if each.position == node.position]
                children = [each for each in tree.nodes if each.parent == node.number]
                assert not children or node.fate == "kept"
                assert node.fate != "kept" or node.position < last
                assert node.fate != "abandoned" or node.position == last
                assert (node.fate == "finished") == (node.number in tree.finished)
                assert node.fate != "finished" or (node.token == eos_id and node.rank < size)
                if node.fate == "pruned":
                    taken = [each for each in same if each.fate in ("kept", "abandoned")]
                    if node.token != eos_id:
                        assert len(taken) == size
                    elif node.rank >= size:  # only the best `size` continuations may end
                        taken = [each for each in same if each.rank == size - 1]
                    else:
                        taken = [each for each in same if each.fate == "finished"]
                    assert node.behind == min(each.log_probability for each in taken) - node.log_probability >= 0
                else:
                    assert node.behind == 0
                if node.parent is not None:
                    parent = tree.nodes[node.parent]
                    total = parent.log_probability + node.token_log_probability
                    assert node.log_probability == pytest.approx(total, abs=1e-6)
                    assert node.score == pytest.approx(total / (node.position + 1), abs=1e-6)
    assert fates == {"kept", "finished", "pruned", "abandoned"}


def test_a_prefix_is_a_single_branch() -> None:
    _, trees = traced(3, prefixes=[[5, 6], [], [4, 4], [6]])
    assert [(node.token, node.fate) for node in trees[0].nodes[:3]] == [(bos_id, "kept"), (5, "kept"), (6, "kept")]
    assert all(
        tree.tokens(tree.finished[0])[: len(prefix)] == prefix
        for tree, prefix in zip(trees, [(5, 6), (), (4, 4), (6,)], strict=True)
    )


def test_pruned_hypotheses_can_be_left_out() -> None:
    trace, full = SearchTrace(most_pruned=1), SearchTrace()
    for each in (trace, full):
        beam_search(TableModel(vocabulary=9), pad_rows(SOURCES), SearchConfig(beam_size=3), trace=each)
    for short, tree in zip(trace.trees, full.trees, strict=True):
        pruned = [node for node in short.nodes if node.fate == "pruned"]
        assert len({node.position for node in pruned}) == len(pruned) > 0
        kept = [(node.position, node.rank, node.score) for node in tree.nodes if node.fate != "pruned"]
        assert [(node.position, node.rank, node.score) for node in short.nodes if node.fate != "pruned"] == kept


def test_next_tokens_are_the_likeliest_ones() -> None:
    model = TableModel(vocabulary=10, seed=2)
    pairs = [([5, 4], [6, 7, 4]), ([4], [5])]
    batch, passes = Batch.collate(*zip(*pairs, strict=True)), list[bool]()
    model.register_forward_hook(lambda *_: passes.append(True))
    rescored, found = rescore_with_next(model, batch, 3)
    assert len(passes) == 1
    assert rescored == rescore(model, batch)
    assert [len(each) for each in found] == [4, 2]
    for (source, target), positions in zip(pairs, found, strict=True):
        for position, choices in enumerate(positions):
            values = model.logits((*source, eos_id), (bos_id, *target[:position])).log_softmax(-1)
            values[[pad_id, bos_id]] = -float("inf")
            assert [token for token, _ in choices] == values.argsort(descending=True)[:3].tolist()
            assert [value for _, value in choices] == pytest.approx(values.sort(descending=True).values[:3].tolist())


def test_next_tokens_are_no_more_than_are_possible() -> None:
    """They exclude padding and begin marks, however many are requested."""
    for count in (9, 12):
        _, [[first, _]] = rescore_with_next(TableModel(vocabulary=9), Batch.collate([[4]], [[5]]), count)
        assert sorted(token for token, _ in first) == [each for each in range(9) if each not in (pad_id, bos_id)]
        assert all(value > -float("inf") for _, value in first)
