"""Packed layers, and models prepared for inference with them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Literal

import pytest
import torch
from torch.testing import assert_close

from jointnmt.models import build_model
from jointnmt.models.layers.dropout import SharedDropout
from jointnmt.models.quantize import Precision, prepare_for_inference
from jointnmt.ops import BFloat16Linear, Float32Linear, Int8Linear, backend, mlp_update
from jointnmt.ops.native import library
from jointnmt.ops.native.packed import PackedLinear, has_int8_gemm
from support.kernels import GEMM_SIZES, MODELS, VOCABULARY, needs_gemm, needs_kernels, number_of_threads

NO_DROPOUT = SharedDropout(0.0)


@needs_kernels
def test_an_int8_layer_in_bfloat16() -> None:
    torch.manual_seed(13)
    linear, x = torch.nn.Linear(32, 64), torch.randn(5, 32)
    expected, layer = linear(x).detach(), Int8Linear.of(linear).bfloat16()
    assert_close(layer(x.bfloat16()).float(), expected, rtol=0.05, atol=0.05)


@needs_gemm
@pytest.mark.parametrize("kind", [Float32Linear, BFloat16Linear, Int8Linear])
def test_weights_are_packed_before_their_first_use(kind: type[PackedLinear], monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that translate with one model only read its weights."""
    torch.manual_seed(14)
    linear, x = torch.nn.Linear(32, 64), torch.randn(5, 32)
    layer = kind.of(linear)
    monkeypatch.delattr(PackedLinear, "_pack")
    assert_close(layer(x).float(), linear(x), rtol=0.05, atol=0.05)


@needs_gemm
@pytest.mark.parametrize("kind", [Float32Linear, BFloat16Linear, Int8Linear])
def test_weights_of_the_cpu_are_packed_whatever_the_default_device(kind: type[PackedLinear]) -> None:
    torch.manual_seed(14)
    linear, x = torch.nn.Linear(32, 64), torch.randn(5, 32)
    with torch.device("meta"):
        assert kind.packs(linear.weight)
        layer = kind.of(linear)
    assert_close(layer(x).float(), linear(x), rtol=0.05, atol=0.05)


@needs_gemm
@pytest.mark.parametrize("features", [37, 40, 72, 91])
@pytest.mark.parametrize("kind", [Float32Linear, BFloat16Linear, Int8Linear])
def test_a_packed_layer_may_have_any_number_of_features(kind: type[PackedLinear], features: int) -> None:
    torch.manual_seed(19)
    linear, x = torch.nn.Linear(32, features), torch.randn(3, 32)
    assert_close(kind.of(linear)(x).float(), linear(x), rtol=0.05, atol=0.06)


@needs_gemm
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("inputs", [48, 64])
@pytest.mark.parametrize("kind", [Float32Linear, BFloat16Linear, Int8Linear])
def test_a_row_does_not_depend_on_the_number_of_rows(kind: type[PackedLinear], inputs: int, dtype: torch.dtype) -> None:
    torch.manual_seed(20)
    first, second = torch.nn.Linear(inputs, 128), torch.nn.Linear(128, inputs)
    for layer in (first, second):
        torch.nn.init.normal_(layer.bias)
    hidden, output = map(kind.of, (first, second))
    x = torch.randn(13, inputs, dtype=dtype)
    for rows in range(1, 13):
        assert torch.equal(hidden(x[:rows]), hidden(x)[:rows])
        own, of_all = (mlp_update(each, hidden, output, NO_DROPOUT).total for each in (x[:rows], x))
        assert torch.equal(own, of_all[:rows])


@needs_gemm
@pytest.mark.usefixtures("unchecked_shapes")
@pytest.mark.parametrize("kind", [Float32Linear, BFloat16Linear, Int8Linear])
def test_features_that_do_not_fit_are_refused(kind: type[PackedLinear]) -> None:
    """Kernels would read memory behind them."""
    hidden, output, narrow = map(kind.of, (torch.nn.Linear(32, 64), torch.nn.Linear(64, 32), torch.nn.Linear(48, 32)))
    for features in (16, 64):
        with pytest.raises(ValueError, match=f"{features} features for a layer of 32"):
            hidden(torch.ones(3, features))
        with pytest.raises(ValueError, match=f"{features} features for a layer of 32"):
            mlp_update(torch.ones(3, features), hidden, output, NO_DROPOUT)
    with pytest.raises(ValueError, match="64 features for a layer of 48"):
        mlp_update(torch.ones(3, 32), hidden, narrow, NO_DROPOUT)


@needs_gemm
@pytest.mark.parametrize("kind", [Float32Linear, BFloat16Linear, Int8Linear])
def test_a_packed_block_may_have_any_number_of_features(kind: type[PackedLinear]) -> None:
    torch.manual_seed(21)
    hidden, output, x = torch.nn.Linear(32, 64), torch.nn.Linear(64, 24), torch.randn(50, 32)
    own = mlp_update(x, kind.of(hidden), kind.of(output), NO_DROPOUT).total
    assert_close(own.float(), output(hidden(x).relu()), rtol=0.05, atol=0.06)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kernels", [False, pytest.param(True, marks=needs_kernels)])
def test_int8_layers_are_linear_layers_but_for_rounding(kernels: bool, kind: torch.dtype) -> None:
    torch.manual_seed(11)
    linear, x = torch.nn.Linear(64, 48), torch.randn(3, 20, 64)
    torch.nn.init.normal_(linear.bias)
    x[0, 0] = 0
    expected = linear(x).detach()
    layer = Int8Linear.of(linear)
    assert layer.weight.abs().max() == 127
    with nullcontext() if kernels else backend("plain"):
        result = layer(x.to(kind))
    assert result.dtype == kind
    assert_close(result[0, 0].float(), linear.bias, rtol=1e-2, atol=1e-2)
    fewer_bits = kernels and library().largest_int8() < 127
    assert (result - expected).norm() < (0.02 if fewer_bits else 0.015) * expected.norm()


@needs_kernels
@pytest.mark.skipif(not has_int8_gemm(), reason="needs a processor with AVX2")
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("rows", [1, 5, 6, 97])
@pytest.mark.parametrize("sizes", GEMM_SIZES)
def test_products_of_integers_are_exact(sizes: tuple[int, int], rows: int, threads: int) -> None:
    """Equal to float64 products, for rows and weights that are already integers, including the largest ones."""
    torch.manual_seed(17)
    layers = torch.nn.Linear(*sizes), torch.nn.Linear(*reversed(sizes))
    for layer in layers:
        torch.nn.init.uniform_(layer.weight, -127, 127).data.round_()[:, :2] = 127  # the largest sums of pairs
        torch.nn.init.normal_(layer.bias)
    largest = library().largest_int8()
    x = torch.randint(-largest, largest + 1, (rows, sizes[0])).float()
    x[:, 0], x[:, 1] = largest, -largest
    expected = x.double() @ layers[0].weight.double().t() + layers[0].bias.double()
    hidden = expected.relu()
    scales = hidden.amax(dim=1, keepdim=True).clamp(min=1) / 127
    expected_block = (hidden / scales).round() * scales @ layers[1].weight.double().t() + layers[1].bias.double()
    first, second = map(Int8Linear.of, layers)
    with number_of_threads(threads):
        own, own_block = first(x), mlp_update(x, first, second, NO_DROPOUT).total
    assert_close(own.double(), expected, rtol=1e-5, atol=1e-2)
    assert (own_block - expected_block).norm() < 1e-3 * expected_block.norm()  # values between two integers


def test_without_kernels_integers_are_multiplied_in_float32() -> None:
    """Also under autocast, where only the result is rounded to bfloat16."""
    torch.manual_seed(17)
    layer, x = torch.nn.Linear(512, 512), torch.randn(64, 512)
    with backend("plain"), torch.autocast("cpu", torch.bfloat16):
        int8 = Int8Linear.of(layer)
        own = int8(x)
    rows = x.bfloat16().float()
    scales = rows.abs().amax(dim=1, keepdim=True) / 127
    sums = (rows / scales).round().double() @ int8.weight.double().t()
    expected = sums * scales.double() * int8.scales.double() + layer.bias.double()
    assert own.dtype == torch.bfloat16
    assert_close(own.double(), expected, rtol=1.01 * 2**-8, atol=1e-5)


@needs_gemm
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("kind", [BFloat16Linear.of, Float32Linear.of, Int8Linear.of])
def test_packed_layers_do_not_hide_a_value_that_is_not_finite(
    kind: Callable[[torch.nn.Linear], torch.nn.Module], value: float
) -> None:
    x = torch.ones(3, 16, dtype=torch.bfloat16)
    x[1, 3] = value
    layer = kind(torch.nn.Linear(16, 32))
    for result in (
        layer(x),
        mlp_update(x, layer, kind(torch.nn.Linear(32, 16)), NO_DROPOUT).total,
    ):
        assert result.isfinite().all(dim=1).tolist() == [True, False, True]


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
@pytest.mark.parametrize("name", MODELS)
def test_prepared_models_translate_nearly_alike(name: str, precision: Literal["bfloat16", "int8"]) -> None:
    torch.manual_seed(12)
    model = build_model(MODELS[name], VOCABULARY, VOCABULARY - 3).eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    source, target = torch.randint(4, VOCABULARY - 3, (2, 3, 7)).unbind()
    own_model = prepare_for_inference(model, precision)
    with torch.no_grad():
        expected = model(source, target).log_softmax(-1)
        with torch.autocast("cpu", torch.bfloat16):
            own = own_model(source, target).float().log_softmax(-1)
    assert own.shape == expected.shape
    assert (own - expected).abs().mean() < 0.03
    assert not torch.equal(own, expected)
    projection = Int8Linear if precision == "int8" and has_int8_gemm() else BFloat16Linear
    assert isinstance(own_model.output, projection) == projection.packs(model.output.weight)
    tables = (own_model.source_embedding.weight, model.source_embedding.weight)
    assert tables[0] is tables[1]  # not copied
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize(("precision", "warned"), [("float32", False), ("bfloat16", True), ("int8", True)])
def test_linear_layers_of_pytorch_are_left_with_a_warning(
    precision: Precision, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    model = build_model(MODELS["transformer"], VOCABULARY, VOCABULARY).eval()
    prepare_for_inference(model, precision)
    assert not caplog.messages
    model.extra = torch.nn.Linear(16, 16)
    assert prepare_for_inference(model, precision).extra.weight is model.extra.weight
    assert [message.endswith(f"prepared for {precision}: extra") for message in caplog.messages] == [True] * warned
