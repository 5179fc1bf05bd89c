"""Devices, precision and processes: a Fabric as a training is configured."""

from __future__ import annotations

import atexit
import os
from datetime import timedelta

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins import MixedPrecision
from lightning_fabric.strategies.ddp import DDPStrategy
from lightning_fabric.utilities.exceptions import MisconfigurationException
from torch import distributed

from jointnmt.errors import ConfigurationError
from jointnmt.experiment import TrainingConfig

PATIENCE = timedelta(hours=12)
"""How long processes wait for each other: for one to train the segmentation of a large corpus, say."""


def launch_fabric(config: TrainingConfig) -> Fabric:
    """A launched Fabric: one process, those that torchrun has started, or `devices` of them started here.

    float16 and bfloat16 are mixed precision: weights, gradients and the loss stay in float32.

    Raises:
        ConfigurationError: if the devices asked for are not there.
    """
    devices, nodes = config.devices, config.nodes
    if "TORCHELASTIC_RUN_ID" in os.environ:  # started by torchrun, which knows best
        devices = int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = int(os.environ["WORLD_SIZE"]) // devices
    accelerator = config.accelerator
    if accelerator == "auto":
        accelerator = "gpu" if torch.cuda.is_available() else "cpu"
    if accelerator == "gpu" and not torch.cuda.is_available():
        raise ConfigurationError("training.accelerator is gpu, but torch finds no GPU here. Set it to auto or cpu.")
    kind = "cuda" if accelerator == "gpu" else "cpu"
    mixed = {"bfloat16": "bf16-mixed", "float16": "16-mixed"}.get(config.precision)
    several = nodes > 1 or devices not in (1, "auto") or (devices == "auto" and kind == "cuda" and _num_gpus() > 1)
    try:
        fabric = Fabric(
            accelerator="cuda" if kind == "cuda" else "cpu",
            devices=devices,
            num_nodes=nodes,
            strategy=DDPStrategy(timeout=PATIENCE) if several else "auto",
            plugins=[MixedPrecision(mixed, kind)] if mixed else [],  # type: ignore[arg-type]
        )
    except (ValueError, TypeError, MisconfigurationException) as error:
        raise ConfigurationError(
            f"training.devices {devices} and training.nodes {nodes} cannot be had here ({' '.join(str(error).split())})"
            ". Ask for no more than there are, or set training.devices to auto."
        ) from error
    fabric.launch()
    if distributed.is_available() and distributed.is_initialized():
        atexit.register(_leave)
    return fabric


def _leave() -> None:
    """End the threads that connect this process with the others: at the interpreter's end they would abort it."""
    if distributed.is_initialized():
        distributed.destroy_process_group()


def _num_gpus() -> int:
    return torch.cuda.device_count()


def hardware(fabric: Fabric) -> str:
    """What the processes run on, for people."""
    device = torch.cuda.get_device_name(fabric.device) if fabric.device.type == "cuda" else "CPU"
    return f"{fabric.world_size} x {device}"
