"""A position of beam search, and the tokens that may come next."""

from __future__ import annotations

import pytest
import torch

from jointnmt.ops import BeamStep, Hypotheses, advance_beams, backend, log_softmax, restrict
from jointnmt.ops.backend import Name

END = 2


def beams_of(totals: torch.Tensor, length: int = 3) -> Hypotheses:
    """Hypotheses of random tokens with these log-probabilities."""
    ids = torch.randint(4, 40, (*totals.shape, length + 1))
    return Hypotheses(ids, torch.randn(*totals.shape, length), totals)


def check_survivors(step: BeamStep, before: Hypotheses) -> None:
    """Check that they are the best candidates that do not end, one token longer than those that they continue."""
    size = before.ids.shape[1]
    for sentence, ids in enumerate(step.candidates.ids.tolist()):
        ranks = [rank for rank, token in enumerate(ids) if token != END][:size]
        assert step.ranks[sentence].tolist() == ranks
    rows, ids, tokens = (values.gather(1, step.ranks).flatten() for values in step.candidates)
    assert torch.equal(step.rows.flatten(), rows)
    for longer, shorter, newest in zip(step.survivors[:2], before[:2], (ids, tokens), strict=True):
        assert torch.equal(longer.flatten(0, 1)[:, :-1], shorter.flatten(0, 1)[rows])
        assert torch.equal(longer.flatten(0, 1)[:, -1], newest)
    assert torch.equal(step.survivors.log_probabilities.flatten(), before.log_probabilities.flatten()[rows] + tokens)


@pytest.mark.parametrize("kernels", ["native", "plain"])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vocabulary", [5, 16, 43])
def test_candidates_are_the_best_of_all_continuations(vocabulary: int, kind: torch.dtype, kernels: Name) -> None:
    """Compared with a sort of all of them; rounded logits have many ties."""
    torch.manual_seed(9)
    logits = torch.randn(12, vocabulary + 3).mul(3).round().to(kind)[:, :vocabulary]
    totals = torch.randn(4, 3).double().round()
    totals[2, 1:] = -torch.inf  # empty beams
    required, banned = [None, 2, None, 1], (0, 2)
    before = beams_of(totals)
    with backend(kernels):
        log_probabilities = log_softmax(logits).view(4, 3, vocabulary)
        step = advance_beams(logits, before, required, banned, END)
    restrict(log_probabilities, required, banned)
    every = (totals.unsqueeze(-1) + log_probabilities).flatten(1)
    order = every.argsort(dim=1, descending=True, stable=True)[:, :6]
    possible = every.gather(1, order) > -torch.inf  # others are ordered by the best of their beams
    assert not step.has_nan
    for own, wanted in zip(
        step.candidates,
        (
            torch.arange(0, 12, 3)[:, None] + order // vocabulary,
            order % vocabulary,
            log_probabilities.flatten(1).gather(1, order),
        ),
        strict=True,
    ):
        assert torch.equal(own[possible], wanted[possible])
    check_survivors(step, before)


@pytest.mark.parametrize("kernels", ["native", "plain"])
def test_beams_are_on_the_cpu_whatever_the_default_device(kernels: Name) -> None:
    before, logits = beams_of(torch.zeros(2, 3).double()), torch.randn(6, 20)
    with backend(kernels), torch.device("meta"):
        step = advance_beams(logits, before, [None] * 2, (0,), END)
    assert {each.device.type for each in (*step.candidates, step.ranks, step.rows, *step.survivors)} == {"cpu"}


@pytest.mark.parametrize("kernels", ["native", "plain"])
@pytest.mark.parametrize("length", [0, 4])
def test_survivors_are_one_token_longer(length: int, kernels: Name) -> None:
    torch.manual_seed(4)
    before = beams_of(torch.randn(5, 4).double(), length)
    logits = torch.randn(20, 30)
    logits[::3, END] = 9.0  # many end
    with backend(kernels):
        step = advance_beams(logits, before, [None] * 5, (0,), END)
    check_survivors(step, before)
    assert step.any_settled


@pytest.mark.parametrize("kernels", ["native", "plain"])
def test_search_is_told_when_a_sentence_may_be_done(kernels: Name) -> None:
    """If one of the K best ends, or none continues; not if the end mark is among the others, or impossible."""

    def settled(logits: torch.Tensor, totals: torch.Tensor, required: int | None = None) -> bool:
        with backend(kernels):
            return advance_beams(logits, beams_of(totals), [None, required], (0,), END).any_settled

    logits, totals = torch.zeros(4, 10), torch.zeros(2, 2).double()
    logits[:, 5:7] = 4.0
    assert not settled(logits, totals)
    ends = logits.clone()
    ends[3, END] = 9.0
    assert settled(ends, totals)
    third = logits.clone()
    third[2:, END] = 3.0  # among the four best of a sentence, after two others
    third[2:, 6] = 0.0
    assert not settled(third, totals)
    nearly_empty = totals.clone()
    nearly_empty[1, 1] = -torch.inf
    assert not settled(logits, nearly_empty)
    assert settled(logits, nearly_empty.fill_(-torch.inf))
    wide = torch.zeros(8, 10)
    wide[:, 5:7] = 4.0
    one = torch.zeros(2, 4).double()
    one[1, 1:] = -torch.inf
    assert not settled(wide, one, required=7), "of its other three candidates, all impossible, one is the end mark"
    assert settled(logits, totals, required=END)
    assert not settled(logits, totals, required=7)


@pytest.mark.parametrize("kernels", ["native", "plain"])
def test_a_continuation_that_is_not_a_number_is_told(kernels: Name) -> None:
    logits = torch.zeros(2, 40)
    logits[1, 17] = torch.nan
    with backend(kernels):
        assert advance_beams(logits, beams_of(torch.zeros(1, 2).double()), [None], (), END).has_nan


def test_only_what_is_required_or_not_banned_is_left() -> None:
    values = torch.arange(12.0).view(2, 2, 3)
    restrict(values, [None, 0], (0, 1))
    none = -torch.inf
    assert values.tolist() == [[[none, none, 2.0], [none, none, 5.0]], [[6.0, none, none], [9.0, none, none]]]


@pytest.mark.parametrize("kernels", ["native", "plain"])
@pytest.mark.parametrize("token", [-7, 50, 10**6])
def test_what_is_not_a_token_can_be_neither_required_nor_banned(token: int, kernels: Name) -> None:
    logits, before = torch.randn(2, 50), beams_of(torch.zeros(1, 2, dtype=torch.float64))
    with backend(kernels):
        with pytest.raises(ValueError, match=f"{token} is not a token of a vocabulary of 50 pieces"):
            advance_beams(logits, before, [token], [], END)
        with pytest.raises(ValueError, match=f"{token} is not a token"):
            advance_beams(logits, before, [None], [token], END)


@pytest.mark.parametrize("kernels", ["native", "plain"])
@pytest.mark.parametrize(("rows", "sentences"), [(4, 2), (6, 1), (6, 3)])
def test_there_are_logits_for_every_beam_and_restrictions_for_every_sentence(
    rows: int, sentences: int, kernels: Name
) -> None:
    before = beams_of(torch.zeros(2, 3).double())
    with backend(kernels), pytest.raises(ValueError, match="2 sentences of 3 beams"):
        advance_beams(torch.randn(rows, 9), before, [None] * sentences, [], END)
