"""Rescoring: teacher-forced log-probabilities of given translations."""

from __future__ import annotations

import pytest
import torch

from jointnmt.data.batch import Batch
from jointnmt.ops import log_softmax
from jointnmt.search import LengthPenalty, rescore
from jointnmt.text.special import bos_id, eos_id
from support.table_model import TableModel


def test_each_token_has_its_log_probability_given_all_before_it() -> None:
    model = TableModel(vocabulary=9, seed=1)
    sources, targets = [[5, 4], [6], [4, 4, 4]], [[7, 8, 4], [], [5]]
    found = rescore(model, Batch.collate(sources, targets))
    for source, target, (tokens, first) in zip(sources, targets, found, strict=True):
        expected, best = [], []
        for position, token in enumerate([*target, eos_id]):
            logits = model.logits((*source, eos_id), (bos_id, *target[:position])).double()
            expected.append(float(logits[token] - logits.exp().sum().log()))
            best.append(int(logits.argmax()) == token)
        assert tokens == pytest.approx(expected, abs=1e-6)
        assert first == tuple(best)


def test_log_probabilities_have_float32_precision_at_least() -> None:
    logits = torch.randn(3, 50)
    assert log_softmax(logits.bfloat16()).dtype == torch.float32
    assert log_softmax(logits.double()).dtype == torch.float64
    assert torch.equal(log_softmax(logits.half()), logits.half().float().log_softmax(-1))


def test_scores_are_normalised_by_a_power_of_the_length() -> None:
    assert LengthPenalty(0.0).score(-6.0, 4) == -6.0
    assert LengthPenalty(0.5).score(-6.0, 4) == -3.0
    assert LengthPenalty(1.0).score(-6.0, 4) == -1.5


def test_an_offset_of_five_is_the_length_penalty_of_gnmt() -> None:
    """Length penalty of Wu et al. 2016, Eq. 14: lp(Y) = (5 + |Y|)^a / (5 + 1)^a."""
    assert LengthPenalty(0.6, offset=5).score(-6.0, 7) == pytest.approx(-6.0 / ((5 + 7) ** 0.6 / 6**0.6))
