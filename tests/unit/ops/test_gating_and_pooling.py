"""Lexical shortcuts and the reduction: kernels against the plain forms, and those against the equations."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from jointnmt.ops import attention_pool, backend, gated_kv, grid_of_sides
from support.kernels import needs_kernels, number_of_threads


def inputs_of(shapes: list[tuple[int, ...]], fusion: bool, kind: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """A hidden input, which is part of a wider tensor; the gates' bias; and lexical parts."""
    torch.manual_seed(8)
    places, features = ((2, 7) if len(shapes[0]) == 2 else (2, 3, 5)), 64 if fusion else 32
    wide, bias = torch.randn(*places, 16 + features, dtype=kind), torch.randn(2, 16, dtype=kind)
    parts = [torch.randn(*shape, features, dtype=kind) for shape in shapes]
    return [tensor.requires_grad_() for tensor in (wide, bias, *parts)]


SHAPES = [[(2, 3, 1), (2, 1, 5)], [(2, 3, 5)], [(2, 7)]]


@needs_kernels
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("fusion", [False, True])
@pytest.mark.parametrize("shapes", SHAPES)
def test_gated_kv(shapes: list[tuple[int, ...]], fusion: bool, threads: int) -> None:
    inputs = inputs_of(shapes, fusion)
    results, gradients = [], []
    for name in ("native", "plain"):
        with backend(name), number_of_threads(threads):  # type: ignore[arg-type]
            wide, bias, *parts = inputs
            results.append(gated_kv(wide[..., 16:], parts, bias, fusion))
            torch.manual_seed(9)
            gradients.append(torch.autograd.grad(results[-1], inputs, torch.randn_like(results[-1])))
            with torch.no_grad():
                assert torch.equal(gated_kv(wide[..., 16:], parts, bias, fusion), results[-1])
    assert_close(*results, rtol=1e-5, atol=1e-6)
    assert_close(*gradients, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("fusion", [False, True])
def test_the_plain_gated_kv_is_the_equation(fusion: bool) -> None:
    """Emelin et al. 2019, Eqs. 9-14."""
    wide, bias, *parts = inputs_of([(2, 3, 1), (2, 1, 5)], fusion, torch.float64)
    hidden, gates = wide[..., 16:], []
    found = gated_kv(hidden, parts, bias, fusion, gates)
    lexical = parts[0] + parts[1]
    if fusion:
        lexical, hidden = (lexical + hidden).chunk(2, dim=-1)
    gate = 1 / (1 + torch.exp(-(lexical + hidden + bias.flatten())))
    assert_close(found, gate * lexical + (1 - gate) * hidden)
    assert_close(gates[0], gate.unflatten(-1, (2, 16)))


@needs_kernels
def test_attention_pool() -> None:
    torch.manual_seed(7)
    x, scores = (tensor.requires_grad_() for tensor in torch.randn(2, 3, 6, 4, 32).unbind())
    mask = torch.arange(6) < torch.tensor([[6], [1], [4]])
    expected = (scores.masked_fill(~mask[:, :, None, None], -torch.inf).softmax(1) * x).sum(1)
    gradient = torch.randn_like(expected)
    wanted = torch.autograd.grad(expected, (x, scores), gradient)
    for name in ("native", "plain"):
        with backend(name):  # type: ignore[arg-type]
            result = attention_pool(x, scores, mask)
            assert_close(result, expected, rtol=1e-5, atol=1e-6)
            assert_close(torch.autograd.grad(result, (x, scores), gradient), wanted, rtol=1e-5, atol=1e-6)


@needs_kernels
def test_pooling_broadcasts_as_its_plain_form_does() -> None:
    x, scores, mask = torch.randn(3, 6, 4, 32), torch.randn(3, 6, 1, 32), torch.ones(1, 6, dtype=torch.bool)
    unchecked = getattr(attention_pool, "__wrapped__", attention_pool)  # shapes are checked only in tests
    found = unchecked(x, scores, mask)
    assert_close(found, (scores.softmax(1) * x).sum(1))


@needs_kernels
def test_a_tensor_elsewhere_is_no_address() -> None:
    x = torch.randn(2, 3, 4, 32)
    for scores in (x.to("meta"), x):
        mask = torch.ones(2, 3, dtype=torch.bool)
        with pytest.raises(RuntimeError, match="runs on the CPU, but was given a tensor on meta"):
            attention_pool(
                x, scores, mask, lengths=None if scores is not x else torch.ones(2, dtype=torch.int32).to("meta")
            )


@needs_kernels
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_the_grid_is_the_sum_of_its_sides(kind: torch.dtype) -> None:
    source, target = torch.randn(3, 5, 1, 32, dtype=kind), torch.randn(3, 1, 4, 32, dtype=kind)
    with torch.no_grad():
        found = grid_of_sides(source, target)
        with backend("plain"):
            assert torch.equal(grid_of_sides(source, target), found)
    assert torch.equal(found, source + target)


@needs_kernels
def test_scores_in_another_type_are_converted() -> None:
    torch.manual_seed(10)
    x, scores, mask = torch.randn(2, 3, 5, 16), torch.randn(2, 3, 5, 16).bfloat16(), torch.ones(2, 3, dtype=torch.bool)
    assert_close(attention_pool(x, scores, mask), attention_pool(x, scores.float(), mask), rtol=1e-2, atol=1e-2)


@needs_kernels
@pytest.mark.parametrize(
    ("places", "shapes"),
    [((2, 3, 5), [(2, 3, 1), (2, 1, 5), (2, 3, 5)]), ((7,), [(7,)]), ((2, 3, 2, 5), [(2, 1, 2, 5)])],
)
def test_any_number_of_summands_and_of_axes(places: tuple[int, ...], shapes: list[tuple[int, ...]]) -> None:
    torch.manual_seed(11)
    hidden, bias = torch.randn(*places, 32, requires_grad=True), torch.randn(2, 16)
    parts = [torch.randn(*shape, 32) for shape in shapes]
    results = []
    for name in ("native", "plain"):
        with backend(name):  # type: ignore[arg-type]
            found = gated_kv(hidden, parts, bias, fusion=False)
            results.append((found, *torch.autograd.grad(found.sum(), hidden)))
    assert_close(*results)


@needs_kernels
@pytest.mark.parametrize("gradient", [True, False])
@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_lengths_may_be_given(kind: torch.dtype, gradient: bool) -> None:
    """No tokens have no mean; a length beyond the positions means all of them."""
    torch.manual_seed(12)
    x, scores = torch.randn(2, 3, 6, 4, 32).unbind()
    lengths = torch.tensor([6, 1, 4])
    mask = torch.arange(6) < lengths[:, None]
    with torch.set_grad_enabled(gradient):
        expected = attention_pool(x, scores, mask)
        assert torch.equal(attention_pool(x, scores, mask, lengths=lengths.to(kind)), expected)
        found = attention_pool(x, scores, mask, lengths=torch.tensor([600, 1, 0]).to(kind))
    assert torch.equal(found[:2], expected[:2]) and (found[2] == 0).all()


@needs_kernels
@pytest.mark.usefixtures("unchecked_shapes")
def test_gradients_of_a_part_that_sentences_share() -> None:
    """Also by several threads."""
    torch.manual_seed(13)
    hidden, part, bias = torch.randn(64, 40, 64), torch.randn(1, 40, 64, requires_grad=True), torch.zeros(2, 32)
    results = []
    for name in ("native", "plain"):
        with backend(name), number_of_threads(3):  # type: ignore[arg-type]
            found = gated_kv(hidden, [part], bias, fusion=False)
            results.append((found, *torch.autograd.grad(found.sum(), part)))
    assert_close(*results, rtol=1e-5, atol=1e-4)


@needs_kernels
def test_a_score_that_is_not_finite_stays_visible() -> None:
    scores = torch.zeros(1, 3, 2, 16)
    scores[0, 1, 0, 3] = torch.nan
    pooled = attention_pool(torch.ones(1, 3, 2, 16), scores, torch.ones(1, 3, dtype=torch.bool))
    assert pooled[0, 0, 3].isnan() and not pooled[0, 1].isnan().any()


@needs_kernels
@pytest.mark.usefixtures("unchecked_shapes")
def test_a_bias_of_other_features_is_an_error() -> None:
    with pytest.raises(RuntimeError):
        gated_kv(torch.randn(2, 3, 4, 32), [torch.randn(2, 3, 1, 32)], torch.randn(2, 32), fusion=False)
