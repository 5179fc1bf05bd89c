"""The optimiser of a training: AdamW, or one of another package or a script, and what of it is saved.

Another package provides an optimiser by an entry point, which refers to a function or a class, such as one of
`torch.optim`:

    [project.entry-points."jointnmt.optimizers"]
    lion = "my_package:Lion"

A recipe names it as `training.optimizer.name`; a script may add it to `OPTIMIZERS` before it trains. It is called with
pairs of name and parameter, and with the other keys of `training.optimizer` as keywords, and returns a
`torch.optim.Optimizer`:

- `step` takes no closure. Before it, gradients are summed over all batches and processes and clipped, and the rate of
  the schedule is the `lr` of each group, times its `rate_scale` if the group has one.
- It writes to parameters in place, and leaves gradients where they are in memory.
- Its `state_dict` consists of tensors and plain values. A resumed training passes it to `load_state_dict`.
- Random numbers come from torch's global generator, which is the same in all processes.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from jointnmt.errors import ConfigurationError
from jointnmt.experiment import AdamConfig, OptimizerConfig
from jointnmt.extensions import ExtensionPoint
from jointnmt.recipe import ADAMW
from jointnmt.runs.checkpoint import TYPES

logger = logging.getLogger(__name__)

OTHER_OPTIMIZERS = ExtensionPoint("jointnmt.optimizers", "optimiser")

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {}
"""Optimisers that a script has added, by name."""

Whole = Callable[[Tensor], Tensor]
"""Gathers a tensor that is divided over the processes."""


def find_optimizer(config: AdamConfig | OptimizerConfig) -> Callable[..., torch.optim.Optimizer]:
    """What makes the optimiser of this name.

    Raises:
        MissingPackageError: if there is none, or it cannot be loaded.
    """
    if isinstance(config, AdamConfig):
        return torch.optim.AdamW
    return OTHER_OPTIMIZERS.find_callable(config.name, {ADAMW: torch.optim.AdamW, **OPTIMIZERS})


def make_optimizer(
    config: AdamConfig | OptimizerConfig, model: nn.Module, rate: float, device: torch.device
) -> torch.optim.Optimizer:
    """The optimiser of a model's parameters, with this learning rate.

    Raises:
        ConfigurationError: if another package's optimiser does not take its settings, or cannot be used here.
        MissingPackageError: as in `find_optimizer`.
    """
    if isinstance(config, AdamConfig):
        return torch.optim.AdamW(
            model.parameters(),
            lr=rate,
            betas=config.betas,
            eps=config.epsilon,
            weight_decay=config.weight_decay,
            fused=device.type in ("cpu", "cuda"),
        )
    make, named = find_optimizer(config), dict(model.named_parameters())
    try:
        optimizer = make([(name, each) for name, each in named.items() if each.requires_grad], **config.settings)
    except (TypeError, ValueError) as error:
        raise _unusable(config, f"{error}. Check its settings; --debug shows the traceback") from error
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise _unusable(config, f"should make a torch.optim.Optimizer, but makes a {type(optimizer).__name__}")
    try:
        inspect.signature(optimizer.step).bind()
    except TypeError as error:
        raise _unusable(config, "needs a closure, but an update here has a single gradient") from error
    updated = {id(each) for group in optimizer.param_groups for each in group["params"]}
    if strange := updated - {id(each) for each in named.values()}:
        raise _unusable(config, f"has {len(strange)} parameters that are not the model's")
    if left := [name for name, each in named.items() if each.requires_grad and id(each) not in updated]:
        logger.info("training.optimizer %s leaves %d weights as they are: %s", config.name, len(left), ", ".join(left))
    return optimizer


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of the next update."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("rate_scale", 1.0)


def places(model: nn.Module) -> dict[str, tuple[int, int]]:
    """Where each weight and its gradient are in memory, by name."""
    return {
        name: (each.data_ptr(), 0 if each.grad is None else each.grad.data_ptr())
        for name, each in model.named_parameters()
    }


def check_places(config: OptimizerConfig, model: nn.Module, before: Mapping[str, tuple[int, int]]) -> None:
    """Check that an update has left weights and gradients where they were: graphs and sums over processes need that.

    Raises:
        ConfigurationError: naming the first weight that has moved.
    """
    if moved := [name for name, place in places(model).items() if place != before[name]]:
        raise _unusable(
            config,
            f"has replaced the weight {moved[0]} or its gradient by another tensor. It should write to weights in "
            "place, as in weight.copy_(new), and not touch .grad",
        )


def state_of_optimizer(
    config: AdamConfig | OptimizerConfig, optimizer: torch.optim.Optimizer, model: nn.Module, whole: Whole
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Everything that the next update depends on besides weights and gradients: tensors by name, and plain values.

    Raises:
        ConfigurationError: if the state of another package's optimiser has something else.
    """
    tensors: dict[str, Tensor] = {}
    if isinstance(config, OptimizerConfig):
        packed = _packed(config, optimizer.state_dict(), "optimizer", tensors)
        return tensors, {"optimizer": packed}
    count = 0.0
    for name, parameter in model.named_parameters():
        if moments := optimizer.state.get(parameter):
            count = float(moments["step"])
            tensors |= {f"adam.{key}.{name}": whole(moments[key]) for key in ("exp_avg", "exp_avg_sq")}
    return tensors, {"adam_updates": count}


def load_optimizer_state(
    config: AdamConfig | OptimizerConfig,
    optimizer: torch.optim.Optimizer,
    model: nn.Module,
    tensors: Mapping[str, Tensor],
    values: Mapping[str, Any],
) -> None:
    """The inverse of `state_of_optimizer`."""
    if isinstance(config, OptimizerConfig):
        optimizer.load_state_dict(_unpacked(values["optimizer"], tensors))
        return
    for name, parameter in model.named_parameters():
        if f"adam.exp_avg.{name}" in tensors:
            moments = {key: tensors[f"adam.{key}.{name}"].to(parameter.device) for key in ("exp_avg", "exp_avg_sq")}
            count = torch.tensor(values["adam_updates"], device=parameter.device)
            optimizer.state[parameter] = {"step": count, **moments}


def _packed(config: OptimizerConfig, value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """A state as JSON-compatible values: its tensors are collected by name, and containers say what they are."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Tensor) and value.dtype in TYPES.values():
        tensors[name] = value.detach()
        return {"tensor": name, "on_cpu": value.device.type == "cpu"}
    if isinstance(value, Mapping):
        items = [[key, _packed(config, each, f"{name}.{key}", tensors)] for key, each in value.items()]
        if all(isinstance(key, str | int) for key in value):
            return {"dict": items}
    elif isinstance(value, list | tuple):
        items = [_packed(config, each, f"{name}.{number}", tensors) for number, each in enumerate(value)]
        return {"tuple" if isinstance(value, tuple) else "list": items}
    kind = str(value.dtype) if isinstance(value, Tensor) else type(value).__name__
    raise _unusable(config, f"has a state that cannot be saved: {name} is a {kind}")


def _unpacked(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        tensor = tensors[value["tensor"]]
        return tensor.cpu() if value["on_cpu"] else tensor
    if "dict" in value:
        return {key: _unpacked(each, tensors) for key, each in value["dict"]}
    [(kind, items)] = value.items()
    made = [_unpacked(each, tensors) for each in items]
    return tuple(made) if kind == "tuple" else made


def _unusable(config: OptimizerConfig, how: str) -> ConfigurationError:
    return ConfigurationError(f"training.optimizer {config.name}: {how}.")
