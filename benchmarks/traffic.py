"""Memory traffic and products of an update on a GPU, counted operation by operation without one.

    python -m benchmarks.traffic [--families FAMILY ...] [--size SIZE] [--tflops N] [--terabytes N]

The model's update runs as in eager PyTorch on a GPU, in bfloat16 with fused attention, on tensors with shapes but no
values. Each operation is assumed to read its inputs and write its outputs once, with nothing in the GPU's cache, and to
take as long as that or its matrix products at the GPU's rates, whichever is more. It is a prediction, not a bound:
launches, half-filled tiles and the optimiser add to it, and the cache takes off.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import flop_registry

from benchmarks.counting import training_operations
from benchmarks.profiling import group_of
from benchmarks.sizes import SIZES, model_config
from jointnmt.models import FAMILIES, ModelConfig, build_model
from jointnmt.ops import backend
from jointnmt.training.loss import cross_entropy_sums

aten = torch.ops.aten
FREE = (aten._unsafe_view, aten.empty_like, aten.empty, aten.empty_strided, aten.new_empty, aten.new_empty_strided)
"""Operations that move nothing, besides views."""
WRITING = (aten.fill_, aten.zero_, aten.bernoulli_)
"""Operations that do not read what they change."""
FINDING = (aten.gather, aten.index, aten.index_select, aten.embedding)
"""Operations that read as much of their first input as they return."""
PUTTING = (aten.index_put_, aten.index_put, aten.scatter_, aten.scatter_add_)
"""Operations that read and write as much of their first input as their last one has."""
OPERATIONS = {
    **flop_registry,
    aten._scaled_dot_product_flash_attention_for_cpu: flop_registry[aten._scaled_dot_product_flash_attention],
    aten._scaled_dot_product_flash_attention_for_cpu_backward: flop_registry[
        aten._scaled_dot_product_flash_attention_backward
    ],
}
"""Functions that count the operations of matrix products."""


class AutocastOfCuda(TorchFunctionMode):
    """Makes autocast for a CPU behave as for CUDA: norms, softmax and sums compute and return float32."""

    WIDENING = ("layer_norm", "softmax", "log_softmax", "sum", "cumsum", "prod", "norm", "exp", "log", "pow", "rsqrt")

    def __init__(self) -> None:
        super().__init__()
        self.widened: Counter[str] = Counter()
        """Number of inputs of each function that were narrower than float32."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        if name in self.WIDENING and torch.is_autocast_enabled("cpu"):
            with torch.autocast("cpu", enabled=False):
                return function(*tree_map_only(Tensor, lambda x: self._wide(x, name), args), **(kwargs or {}))
        return function(*args, **(kwargs or {}))

    def _wide(self, x: Tensor, name: str) -> Tensor:
        if not x.is_floating_point() or x.dtype == torch.float32:
            return x
        self.widened[name] += 1
        return x.float()


class Counting(TorchDispatchMode):
    """Context that counts the operations that run in it.

    Args:
        rate: operations a second of matrix products.
        bandwidth: bytes a second of memory.
    """

    def __init__(self, rate: float, bandwidth: float) -> None:
        super().__init__()
        self.moved: Counter[str] = Counter()
        """Bytes, by group of operations."""
        self.seconds: defaultdict[str, float] = defaultdict(float)
        """Seconds, by group of operations, if they run one after another."""
        self.launches = 0
        """Operations that move something."""
        self._rate, self._bandwidth = rate, bandwidth

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        kind, name = function.overloadpacket, function.name()
        if function.is_view or kind in FREE or name.startswith("prim::"):
            return result
        moved = _bytes_moved(kind, _tensors((args, kwargs)), _tensors(result))
        group = group_of(name)
        operations = OPERATIONS[kind](*args, **kwargs, out_val=result) if kind in OPERATIONS else 0
        self.launches += 1
        self.moved[group] += moved
        self.seconds[group] += max(moved / self._bandwidth, operations / self._rate)
        return result


def _tensors(tree: Any) -> list[Tensor]:
    """Tensors in a value, each once."""
    return list({id(each): each for each in tree_leaves(tree) if isinstance(each, Tensor)}.values())


def _bytes_moved(kind: Any, inputs: Sequence[Tensor], results: Sequence[Tensor]) -> int:
    first, *others = map(_bytes, inputs or results)
    written = sum(map(_bytes, results))
    if kind in WRITING or not inputs:
        return written
    if kind is aten.copy_:
        return sum(others) + written
    if kind in FINDING:
        return sum(others) + 2 * written
    if kind in PUTTING:
        return sum(others) + 2 * others[-1]
    return first + sum(others) + written


def _bytes(tensor: Tensor) -> int:
    """Bytes of a tensor's elements, repeated ones counted once."""
    lengths = (length for length, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
    return math.prod(lengths) * tensor.element_size()


def _dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Dropout as in CUDA: in one pass, with a mask of bytes."""
    return torch.native_dropout(x, p, training)[0]


def count_update(config: ModelConfig, vocabulary: int, sentences: int, length: int, counting: Counting) -> None:
    """Count the forward and backward pass of sentence pairs of one length on both sides."""
    with (
        FakeTensorMode(),
        backend("sdpa"),
        patch.object(functional, "dropout", _dropout),
    ):
        model = build_model(config, vocabulary, vocabulary)
        source, target_input, target_output = torch.ones(3, sentences, length, dtype=torch.long).unbind()
        with counting:
            with torch.autocast("cpu", torch.bfloat16), AutocastOfCuda():
                logits = model(source, target_input)
            cross_entropy_sums(logits, target_output, 0.1)[0].backward()


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES), metavar="FAMILY")
    parser.add_argument("--size", choices=SIZES, default="IWSLT")
    parser.add_argument("--tflops", type=float, default=650, help="rate of the GPU's matrix products, TFLOP/s")
    parser.add_argument("--terabytes", type=float, default=4.3, help="rate of the GPU's memory, TB/s")
    parser.add_argument("--tokens", type=int, default=4096, help="tokens of the batch, on either side")
    parser.add_argument("--length", type=int, default=23, help="tokens of a sentence")
    asked = parser.parse_args()
    if not (asked.tflops > 0 and asked.terabytes > 0):
        parser.error("a GPU's rates must be greater than 0")
    if not 1 <= asked.length <= asked.tokens:
        parser.error("a batch has one sentence at least: --length from 1 to --tokens")
    sentences, rate = asked.tokens // asked.length, 1e12 * asked.tflops
    vocabulary = SIZES[asked.size].vocabulary
    for family in asked.families:
        config, counting = model_config(family, asked.size), Counting(rate, 1e12 * asked.terabytes)
        count_update(config, vocabulary, sentences, asked.length, counting)
        useful = sentences * training_operations(config, vocabulary, asked.length, asked.length)
        moved, seconds = counting.moved.total(), sum(counting.seconds.values())
        print(
            f"{family}: {moved / 1e9:.1f} GB, {useful / moved:.0f} useful operations a byte; {1e3 * seconds:.1f} ms, "
            f"{useful / seconds / rate:.0%} of the GPU's rate"
        )
        for group, share in sorted(counting.seconds.items(), key=lambda item: -item[1]):
            print(f"    {group:22} {counting.moved[group] / 1e9:8.1f} GB {share / seconds:6.0%} of the time")


if __name__ == "__main__":
    main()
