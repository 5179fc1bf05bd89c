"""Devices and processes of a training, as a Fabric."""

from __future__ import annotations

import atexit
import logging
import os
from datetime import timedelta

import torch
from torch import distributed

from jointnmt.errors import ConfigurationError
from jointnmt.experiment import TrainingConfig
from jointnmt.extras import extra
from jointnmt.training.processes import reaching_the_others

with extra("train"):
    from lightning_fabric import Fabric
    from lightning_fabric.strategies.ddp import DDPStrategy
    from lightning_fabric.utilities.exceptions import MisconfigurationException

TIMEOUT = timedelta(hours=12)
"""Timeout between processes: the others wait while the first one trains the segmentation of a large corpus."""

_rank_zero = logging.getLogger("lightning_fabric.utilities.rank_zero")


def launch_fabric(config: TrainingConfig) -> Fabric:
    """A launched Fabric: of one process, of torchrun's processes, or of `devices` processes started here.

    Raises:
        ConfigurationError: if the devices do not exist.
        LostProcessError: if another process cannot be reached.
    """
    devices, nodes = config.devices, config.nodes
    if "TORCHELASTIC_RUN_ID" in os.environ:  # started by torchrun, whose numbers take precedence
        _check_store_is_new()
        devices = int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = int(os.environ["WORLD_SIZE"]) // devices
    accelerator = config.accelerator
    if accelerator == "auto":
        accelerator = "gpu" if torch.cuda.is_available() else "cpu"
    if accelerator == "gpu" and not torch.cuda.is_available():
        raise ConfigurationError("training.accelerator is gpu, but torch finds no GPU. Set it to auto or cpu.")
    kind = "cuda" if accelerator == "gpu" else "cpu"
    several = (
        nodes > 1
        or devices not in (1, "auto")
        or (devices == "auto" and kind == "cuda" and torch.cuda.device_count() > 1)
    )
    try:
        fabric = Fabric(
            accelerator=kind,
            devices=devices,
            num_nodes=nodes,
            strategy=DDPStrategy(timeout=TIMEOUT) if several else "auto",
        )
    except (ValueError, TypeError, MisconfigurationException) as error:
        raise ConfigurationError(
            f"training.devices {devices} and training.nodes {nodes} are not available here "
            f"({' '.join(str(error).split())}). Use fewer, or set training.devices to auto."
        ) from error
    _rank_zero.setLevel(logging.WARNING)  # its messages are for programmers
    with reaching_the_others():
        fabric.launch()
    if distributed.is_available() and distributed.is_initialized():
        atexit.register(_leave)
    return fabric


def _check_store_is_new() -> None:
    """Refuse restarts by torchrun that reuse a store: in PyTorch 2.13 it has the addresses of workers that have ended.

    Raises:
        ConfigurationError: naming the setting that gives restarted workers a new store.
    """
    restarts = os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0"
    if restarts and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        raise ConfigurationError(
            "torchrun --max-restarts needs TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 in its environment: otherwise "
            "restarted workers use the addresses of those that have ended. Put it before torchrun."
        )


def _leave() -> None:
    """Stop the communication threads, which would otherwise abort the process at exit."""
    if distributed.is_initialized():
        distributed.destroy_process_group()


def hardware(fabric: Fabric) -> str:
    """Description of the hardware of all processes."""
    device = torch.cuda.get_device_name(fabric.device) if fabric.device.type == "cuda" else "CPU"
    return f"{fabric.world_size} x {device}"
