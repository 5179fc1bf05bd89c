"""What an update moves and computes on a GPU, counted operation by operation where there is none.

    python -m benchmarks.traffic [--families FAMILY ...] [--size SIZE] [--tflops N] [--terabytes N]

The model's update runs as eager PyTorch runs it on a GPU, in bfloat16 with fused attention, on tensors that have shapes
and no values. Each operation is taken to read its inputs and to write its outputs once, and to last as long as that or
its matrix products take at the card's rates, whichever is more. That is a prediction, and the best case without
compilation: launches, half-filled tiles, the optimiser and what else falls short of the card's rates are left out.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter, defaultdict
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from benchmarks.counting import training_operations
from benchmarks.profiling import group_of
from benchmarks.sizes import SIZES, model_config
from jointnmt.models import FAMILIES, ModelConfig, build_model
from jointnmt.models.layers import attention
from jointnmt.training.loss import cross_entropy_sums

FREE = {"aten::_unsafe_view", "aten::empty_like", "aten::empty.memory_format", "aten::new_empty", "prim::device"}
"""Operations that move nothing, besides views."""


class Counting(TorchDispatchMode):
    """Counts what runs inside of it.

    Args:
        rate: of matrix products, in operations a second.
        bandwidth: of memory, in bytes a second.
    """

    def __init__(self, rate: float, bandwidth: float) -> None:
        super().__init__()
        self.moved: Counter[str] = Counter()
        """Bytes, by group of operations."""
        self.seconds: defaultdict[str, float] = defaultdict(float)
        """Likewise: the least that they take, if one operation begins when the other has ended."""
        self._rate, self._bandwidth = rate, bandwidth

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        name = function.name()
        if function.is_view or name in FREE:
            return result
        tensors = [each for each in tree_leaves((args, kwargs, result)) if isinstance(each, Tensor)]
        moved, count = sum(map(_bytes, tensors)), flop_registry.get(function.overloadpacket)
        operations = 0 if count is None else count(*args, **kwargs, out_val=result)
        group = group_of(name)
        self.moved[group] += moved
        self.seconds[group] += max(moved / self._bandwidth, operations / self._rate)
        return result


def _bytes(tensor: Tensor) -> int:
    """Of its elements, those that are repeated counted once."""
    lengths = (length for length, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
    return math.prod(lengths) * tensor.element_size()


def count_update(config: ModelConfig, vocabulary: int, sentences: int, length: int, counting: Counting) -> None:
    """Count the forward and the backward pass of pairs of sentences, all of the same length on both sides."""
    with (
        FakeTensorMode(),
        patch.object(attention, "_has_fused_kernels", lambda _: True),
        patch.object(attention, "_prefers_batched_products", lambda *_: False),
    ):
        model = build_model(config, vocabulary, vocabulary)
        source, target_input, target_output = torch.ones(3, sentences, length, dtype=torch.long).unbind()
        with counting:
            with torch.autocast("cpu", torch.bfloat16):
                logits = model(source, target_input)
            cross_entropy_sums(logits, target_output, 0.1)[0].backward()


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES), metavar="FAMILY")
    parser.add_argument("--size", choices=SIZES, default="IWSLT")
    parser.add_argument("--tflops", type=float, default=650, help="that the card multiplies in a second")
    parser.add_argument("--terabytes", type=float, default=4.3, help="that it reads and writes in a second")
    parser.add_argument("--tokens", type=int, default=4096, help="of the batch, on either side")
    parser.add_argument("--length", type=int, default=23, help="of a sentence")
    asked = parser.parse_args()
    sentences, rate = asked.tokens // asked.length, 1e12 * asked.tflops
    vocabulary = SIZES[asked.size].vocabulary
    for family in asked.families:
        config, counting = model_config(family, asked.size), Counting(rate, 1e12 * asked.terabytes)
        count_update(config, vocabulary, sentences, asked.length, counting)
        useful = sentences * training_operations(config, vocabulary, asked.length, asked.length)
        moved, seconds = counting.moved.total(), sum(counting.seconds.values())
        print(
            f"{family}: {moved / 1e9:.1f} GB, {useful / moved:.0f} useful operations a byte; at least "
            f"{1e3 * seconds:.1f} ms, at most {useful / seconds / rate:.0%} of the card's rate"
        )
        for group, share in sorted(counting.seconds.items(), key=lambda item: -item[1]):
            print(f"    {group:22} {counting.moved[group] / 1e9:8.1f} GB {share / seconds:6.0%} of the time")


if __name__ == "__main__":
    main()
