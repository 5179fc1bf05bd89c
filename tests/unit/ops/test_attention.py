"""Attention by the kernels, against the plain form in float64: values, gradients, masks and dropout."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from jointnmt.models.layers.attention import CrossAttention, SelfAttention
from jointnmt.models.layers.dropout import SharedDropout
from jointnmt.ops import AttentionMask, OwnSlots, append_to_cache, attention, axial_attention, backend, cached_attention
from support.kernels import needs_kernels

NO_DROPOUT = SharedDropout(0.0)


class FixedDropout(SharedDropout):
    """Dropout with a given mask."""

    def __init__(self, fixed: Tensor) -> None:
        super().__init__(0.5)
        self.fixed = fixed

    def mask(self, *_: object) -> Tensor:
        return self.fixed


@needs_kernels
@pytest.mark.parametrize("drops", [None, "alike", "by line"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("shape", "axis"), [((2, 5, 7), 1), ((2, 5, 7), 2), ((2, 37), 1), ((1, 3, 16), 2)])
def test_axial_attention(shape: tuple[int, ...], axis: int, causal: bool, drops: str | None) -> None:
    """Along either axis, with padding and dropped weights; also of parts of a wider tensor."""
    torch.manual_seed(3)
    heads, size = 3, 16
    embed_dim, length = heads * size, shape[axis]
    projected, bias = torch.randn(*shape, 3 * embed_dim), torch.randn(3 * embed_dim)
    lengths = torch.randint(1, length + 1, shape[:1])
    kept = [place for number, place in enumerate(shape) if number != axis]
    lines = kept[1:] if drops == "by line" else [1] * (len(kept) - 1)
    dropout_mask = torch.rand(shape[0], *lines, heads, length, length) if drops else None
    real, single = torch.arange(length) < lengths[:, None], torch.zeros(())
    mask, mask64 = (
        AttentionMask.causal(length, like) if causal else AttentionMask.padding(real, like, axes=len(kept) + 1)
        for like in (single, single.double())
    )

    def plain(projected: Tensor) -> Tensor:
        query, key, value = (part.unflatten(-1, (heads, size)).movedim(axis, -2) for part in projected.chunk(3, dim=-1))
        if dropout_mask is None:
            result = attention(query, key, value, mask64)
        else:
            weights = (query @ key.transpose(-2, -1) / size**0.5 + mask64.bias).softmax(-1) * dropout_mask
            result = weights @ value
        return result.movedim(-2, axis).flatten(-2)

    inputs = (projected.double() + bias).requires_grad_()
    expected = plain(inputs)
    gradient = torch.randn_like(expected)
    (expected_gradient,) = torch.autograd.grad(expected, inputs, gradient)
    dropout = NO_DROPOUT if dropout_mask is None else FixedDropout(dropout_mask)
    bias, leaf, whole = (each.requires_grad_() for each in (bias, projected, projected + bias))
    parts = whole.split([embed_dim, 2 * embed_dim], dim=-1)
    for given, own_bias, inputs in (((leaf,), bias, (leaf, bias)), (parts, None, (whole,))):
        result = axial_attention(given, heads, axis, mask, dropout, own_bias)
        assert_close(result.double(), expected, rtol=1e-5, atol=1e-5)
        own, *of_bias = torch.autograd.grad(result, inputs, gradient.float(), retain_graph=True)
        assert_close(own.double(), expected_gradient, rtol=1e-5, atol=1e-5)
        for each in of_bias:
            assert_close(each.double(), expected_gradient.flatten(0, -2).sum(0), rtol=1e-5, atol=1e-4)
        with torch.no_grad():
            assert torch.equal(axial_attention(given, heads, axis, mask, dropout, own_bias), result)


@needs_kernels
def test_a_mask_of_dropout_may_be_shared_by_queries_or_keys() -> None:
    torch.manual_seed(12)
    projected = torch.randn(2, 5, 7, 48)
    mask = AttentionMask.causal(7, projected)
    for shape in ((2, 1, 1, 1, 7), (2, 1, 1, 7, 1)):
        shared = torch.rand(shape)
        whole = shared.expand(2, 5, 1, 7, 7).contiguous()
        own, wanted = (axial_attention([projected], 1, 2, mask, FixedDropout(each)) for each in (shared, whole))
        assert torch.equal(own, wanted)


def slots_mask(rows: Tensor, capacity: int, lines: int) -> AttentionMask:
    visible = torch.zeros(rows.shape[0], capacity, dtype=torch.bool).scatter_(1, rows, True)
    own = OwnSlots()
    own.update(rows, newest=0)
    return AttentionMask.cached(lambda: visible.view(2, -1, capacity), own, torch.zeros(()), axes=lines)


@needs_kernels
@torch.no_grad()
def test_padding_does_not_change_a_bit() -> None:
    """Tiles of every size, which depends on the numbers of rows and of vectors of columns, round alike."""
    dropout = SharedDropout(0.0, ())
    for length in range(2, 24):
        padded = torch.randn(1, 40, 3 * 32)
        expected = axial_attention([padded[:, :length]], 2, 1, of_length(length, padded[:, :length]), dropout)
        for width in range(length + 1, 40):
            x = padded[:, :width]
            attended = axial_attention([x], 2, 1, of_length(length, x), dropout)
            assert torch.equal(attended[:, :length], expected), (length, width)


def of_length(length: int, x: Tensor) -> AttentionMask:
    return AttentionMask.padding(torch.arange(x.shape[1])[None] < length, x, 2)


@needs_kernels
@pytest.mark.parametrize("lines", [(), (3,)])
@pytest.mark.parametrize("padded", [True, False])
def test_cached_attention(padded: bool, lines: tuple[int, ...]) -> None:
    """Attention over the first keys of a sentence, or over each row's own slots."""
    torch.manual_seed(6)
    query, cache = torch.randn(2, *lines, 2, 32), torch.randn(2, *lines, 6, 64)
    if padded:
        mask = AttentionMask.padding(torch.arange(6) < torch.tensor([[6], [2]]), query, axes=1 + len(lines) + 1)
    else:
        slots = torch.stack([torch.randperm(6)[:3] for _ in range(4)])
        mask = slots_mask(slots, 6, 1 + len(lines))
    with torch.no_grad():
        own = cached_attention(query, cache, 2, mask)
        with backend("plain"):
            assert_close(own, cached_attention(query, cache, 2, mask), rtol=1e-5, atol=1e-5)


@needs_kernels
@torch.no_grad()
def test_rows_are_read_where_they_lie() -> None:
    """A single row may have any stride; rows with unequal strides are refused."""
    torch.manual_seed(14)
    cache = torch.randn(2, 3, 5, 64)
    query = torch.randn(2, 3, 1, 32)
    mask = AttentionMask.padding(torch.arange(5) < torch.tensor([[5], [2]]), query, axes=3)
    expected = cached_attention(query, cache, 2, mask)
    odd = query.as_strided(query.shape, (96, 32, 7, 1))
    assert torch.equal(cached_attention(odd, cache, 2, mask), expected)
    with pytest.raises(RuntimeError, match="view"):
        cached_attention(torch.randn(3, 2, 1, 32).transpose(0, 1), cache, 2, mask)


@pytest.mark.parametrize("name", ["native", "plain"])
@pytest.mark.parametrize("gradient", [True, False])
def test_a_model_in_training_drops_weights_of_attention_to_its_source(name: str, gradient: bool) -> None:
    """With and without gradient, by either implementation."""
    torch.manual_seed(7)
    layer, x, memory = CrossAttention(32, 2, SharedDropout(0.5)), torch.randn(2, 4, 32), torch.randn(2, 6, 32)
    mask = AttentionMask.padding(torch.ones(2, 6, dtype=torch.bool), x, axes=2)
    with backend(name), torch.set_grad_enabled(gradient):  # type: ignore[arg-type]
        projected = layer.project(memory)
        first, second = (layer(x, projected, mask).total for _ in range(2))
        assert not torch.allclose(first, second)
        layer.eval()
        exact = layer(x, projected, mask).total
        assert torch.equal(layer(x, projected, mask).total, exact)
        layer.train()
        mean = torch.stack([layer(x, projected, mask).total for _ in range(600)]).mean(0)
    assert (mean - exact).norm() < 0.1 * (first - exact).norm()


@pytest.mark.parametrize("name", ["native", "plain"])
@pytest.mark.parametrize("gradient", [True, False])
def test_a_model_in_training_drops_weights_of_its_own_attention(name: str, gradient: bool) -> None:
    torch.manual_seed(7)
    layer, x = SelfAttention(32, 2, SharedDropout(0.5)), torch.randn(2, 5, 32)
    with backend(name), torch.set_grad_enabled(gradient):  # type: ignore[arg-type]
        mask = AttentionMask.causal(5, x)
        assert not torch.allclose(layer(x, mask).total, layer(x, mask).total)
        layer.eval()
        assert torch.equal(layer(x, mask).total, layer(x, mask).total)


@needs_kernels
@pytest.mark.parametrize("role", range(3), ids=["query", "key", "value"])
def test_a_value_that_is_not_finite_stays_visible(role: int) -> None:
    x = torch.zeros(1, 2, 48)
    x[0, 0, role * 16 + 3] = torch.nan
    for each in (x, x.bfloat16()):
        attended = axial_attention([each], 1, 1, AttentionMask.causal(2, each), NO_DROPOUT)
        assert attended[0, 0].isnan().any()


@needs_kernels
@pytest.mark.parametrize("lines", [(), (3,)])
def test_the_newest_keys_and_values_are_written_into_their_slots(lines: tuple[int, ...]) -> None:
    stored, projected = torch.randn(2, *lines, 9, 64), torch.randn(2, *lines, 4, 96)
    own, expected = OwnSlots(), stored.clone()
    own.update(torch.zeros(8, 1, dtype=torch.long), newest=5)
    with torch.no_grad():
        append_to_cache(stored, projected[..., 32:], own)
        with backend("plain"):
            append_to_cache(expected, projected[..., 32:], own)
    assert torch.equal(stored, expected)
    assert torch.equal(stored[..., 5:, :], projected[..., 32:])


@needs_kernels
@pytest.mark.parametrize(("shape", "axis"), [((5,), 0), ((2, 3, 4, 5), 3), ((2, 3, 4, 5), 1)])
def test_attention_of_other_than_sequences_and_grids_is_the_plain_one(shape: tuple[int, ...], axis: int) -> None:
    torch.manual_seed(15)
    projected, bias = torch.randn(*shape, 96), torch.randn(96)
    mask = AttentionMask.causal(shape[axis], projected)
    found = axial_attention([projected], 2, axis, mask, NO_DROPOUT, bias)
    with backend("plain"):
        assert_close(found, axial_attention([projected], 2, axis, mask, NO_DROPOUT, bias))


def test_a_mask_is_merged_for_the_axes_that_it_is_asked_for() -> None:
    """The same mask may serve attention with other leading axes."""
    mask = AttentionMask.padding(torch.tensor([[True, False]]), torch.zeros(()), axes=3)
    assert [mask.merged((1, count)).shape[0] for count in (2, 3, 2)] == [2, 3, 2]
    assert mask.merged((1, 3)) is mask.merged((1, 3))


@pytest.mark.parametrize("gradient", [True, False])
def test_keys_and_values_may_be_of_another_input(gradient: bool) -> None:
    """Also without a shortcut, as if their weights were a layer of their own."""
    torch.manual_seed(16)
    layer, x, other = SelfAttention(32, 2, SharedDropout(0.0)), torch.randn(2, 5, 32), torch.randn(2, 5, 32)
    mask = AttentionMask.causal(5, x)
    with torch.set_grad_enabled(gradient):
        found = layer(x, mask, key_value_input=other).total
        parts = layer.qkv(x)[..., :32], layer.qkv(other)[..., 32:]
        assert_close(found, layer.output(axial_attention(parts, 2, 1, mask, SharedDropout(0.0))))
    assert not torch.allclose(found, layer(x, mask).total)


@needs_kernels
@torch.no_grad()
def test_more_real_keys_than_there_are_keys() -> None:
    """Then all keys are real."""
    torch.manual_seed(19)
    x, cache, lengths = torch.randn(2, 5, 96), torch.randn(2, 5, 64), torch.tensor([50, 70], dtype=torch.int32)
    every, too_many = (
        AttentionMask.padding(torch.ones(2, 5, dtype=torch.bool), x, axes=2, lengths=each) for each in (None, lengths)
    )
    own, expected = (axial_attention([x], 2, 1, mask, NO_DROPOUT) for mask in (too_many, every))
    assert torch.equal(own, expected)
    own, expected = (cached_attention(x[..., :32], cache, 2, mask) for mask in (too_many, every))
    assert torch.equal(own, expected)


@needs_kernels
@torch.no_grad()
def test_a_sentence_of_no_tokens_has_no_values() -> None:
    torch.manual_seed(20)
    x, cache, real = torch.randn(2, 5, 96), torch.full((2, 5, 64), torch.nan), torch.zeros(2, 5, dtype=torch.bool)
    mask = AttentionMask.padding(real, x, axes=2)
    assert (axial_attention([x], 2, 1, mask, NO_DROPOUT) == 0).all()
    assert (cached_attention(x[..., :32], cache, 2, mask) == 0).all()


@needs_kernels
@pytest.mark.parametrize("gradient", [True, False])
def test_queries_and_keys_of_different_types_are_an_error(gradient: bool) -> None:
    query, key_value = torch.ones(2, 3, 32), torch.ones(2, 3, 64, dtype=torch.bfloat16)
    with torch.set_grad_enabled(gradient), pytest.raises(RuntimeError, match=r"BFloat16|dtype"):
        axial_attention([query, key_value], 2, 1, AttentionMask.causal(3, query), NO_DROPOUT)


@needs_kernels
@pytest.mark.usefixtures("unchecked_shapes")
@torch.no_grad()
def test_what_does_not_fit_is_an_error() -> None:
    """Kernels must not read beyond its end."""
    x = torch.randn(2, 4, 96)
    with pytest.raises(RuntimeError):
        axial_attention([x], 2, 1, AttentionMask.causal(4, x), NO_DROPOUT, torch.ones(8))
    mask = AttentionMask.padding(torch.ones(2, 5, dtype=torch.bool), x, 2)
    with pytest.raises(RuntimeError):
        cached_attention(x[..., :32], torch.randn(2, 5, 48), 2, mask)
