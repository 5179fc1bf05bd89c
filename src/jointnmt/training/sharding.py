"""Weights, gradients and optimiser state sharded over the processes by PyTorch's FSDP2.

Each process keeps some rows of every parameter, its gradient and its moments. A layer's weights are gathered when it is
computed, forward and backward, and then freed; its gradients are summed over the processes as soon as they are
computed. All processes therefore have to compute the same number of batches.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from jointnmt.models.interface import TranslationModel
from jointnmt.training.gradients import norm_of
from jointnmt.training.processes import group, is_first, reaching_the_others, sum_over_processes


class ShardedModel:
    """A model with sharded parameters: each process keeps some of their rows.

    Args:
        model: model with the same weights in every process, which frees all but its rows; it computes as before if all
            processes call it together.
    """

    def __init__(self, model: TranslationModel) -> None:
        without_weights = {id(weight): nn.Parameter(weight.to("meta")) for weight in model.parameters()}
        self._model, self._outline = model, copy.deepcopy(model, without_weights)
        self._mesh = DeviceMesh.from_group(group(), next(model.parameters()).device.type)
        for layer in _layers(model):
            fully_shard(layer, mesh=self._mesh)
            for method in model.layer_methods:
                if hasattr(layer, method):
                    register_fsdp_forward_method(layer, method)
        fully_shard(model, mesh=self._mesh)
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_gradient_divide_factor(1.0)  # a sum: the loss is divided by the tokens of all processes
                module.set_force_sum_reduction_for_comms(True)

    def mine(self, whole: Tensor) -> Tensor:
        """This process's rows of a parameter, or of one of its moments."""
        return distribute_tensor(whole, self._mesh, [Shard(0)], src_data_rank=None).clone()

    def whole(self) -> TranslationModel:
        """A copy with all weights in this process; all processes must call this together."""
        weights = dict(self._model.named_parameters())
        gathered = {id(hollow): nn.Parameter(_full(weights[name])) for name, hollow in self._outline.named_parameters()}
        return copy.deepcopy(self._outline, gathered)

    def whole_in_first(self, rows: Tensor) -> Tensor:
        """A whole parameter, or one of its moments, on the first process's CPU; empty in the others.

        All processes must call this together.
        """
        whole = _full(rows)
        return whole.cpu() if is_first() else whole.new_empty(0)


class ShardedGradients:
    """Gradients of a sharded model; backward passes sum them over the processes."""

    def __init__(self, model: TranslationModel) -> None:
        self._model = model

    def zero(self) -> None:
        """See `Gradients`."""
        self._model.zero_grad()

    def sum(self) -> None:
        """See `Gradients`; no operation, as backward passes have summed them."""

    def norm(self) -> float:
        """See `Gradients`."""
        return float(sum_over_processes(norm_of(self._rows()).square()).sqrt())

    def scale(self, factor: float) -> None:
        """See `Gradients`."""
        for rows in self._rows():
            rows.mul_(factor)

    def _rows(self) -> Iterator[Tensor]:
        """This process's rows of every gradient."""
        for weight in self._model.parameters():
            if isinstance(weight.grad, DTensor):
                yield weight.grad.to_local()


def _full(tensor: Tensor) -> Tensor:
    tensor = tensor.detach()
    with reaching_the_others():
        return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _layers(model: nn.Module) -> list[nn.Module]:
    """Modules that are gathered separately: the layers of all stacks, each once."""
    layers = (layer for stack in model.modules() if isinstance(stack, nn.ModuleList) for layer in stack)
    return list(dict.fromkeys(layers))
