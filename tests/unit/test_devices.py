"""Impossible devices and seeds."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import distributed

from jointnmt.errors import ConfigurationError, DataError, LostProcessError
from jointnmt.experiment import TrainingConfig
from jointnmt.training import devices
from jointnmt.training.processes import of_first, sum_over_processes
from support.tiny_run import experiment


@pytest.mark.parametrize("number", [0, -1, "two"])
def test_a_wrong_number_of_devices_is_refused(number: object) -> None:
    with pytest.raises(ConfigurationError, match=r"training\.devices"):
        experiment(training={"devices": number})


@pytest.mark.parametrize("number", [1, 2, "auto"])
def test_a_number_of_devices_or_auto_is_accepted(number: object) -> None:
    assert experiment(training={"devices": number}).training.devices == number


def test_more_gpus_than_there_are_is_a_wrong_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr("lightning_fabric.accelerators.cuda.num_cuda_devices", lambda: 1)
    with pytest.raises(ConfigurationError, match=r"training\.devices 2 "):
        devices.launch_fabric(TrainingConfig(accelerator="gpu", devices=2))


@pytest.mark.parametrize("error", [ValueError, TypeError])
def test_what_fabric_refuses_is_a_wrong_configuration(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    def fail(**_: Any) -> None:
        raise error("not on\nthis machine")

    monkeypatch.setattr(devices, "Fabric", fail)
    with pytest.raises(ConfigurationError, match="not on this machine"):
        devices.launch_fabric(TrainingConfig(accelerator="cpu"))


def test_restarts_need_a_store_that_is_new_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchrun's environment shows its options."""
    told = {"TORCHELASTIC_RUN_ID": "one", "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_MAX_RESTARTS": "3"}
    for name, value in {**told, "LOCAL_WORLD_SIZE": "1", "WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match="TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"):
        devices.launch_fabric(TrainingConfig(accelerator="cpu"))


def test_a_seed_fits_into_63_bits() -> None:
    assert experiment(seed=2**63 - 1).seed == 2**63 - 1
    with pytest.raises(ConfigurationError, match="seed"):
        experiment(seed=2**63)


@pytest.fixture
def two_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is the first of two."""
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(distributed, "get_rank", lambda: 0)


@pytest.mark.usefixtures("two_processes")
def test_a_collective_that_fails_says_that_another_process_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("Connection closed by peer\nand much more")

    monkeypatch.setattr(distributed, "all_reduce", fail)
    with pytest.raises(LostProcessError, match=r"\(Connection closed by peer\)") as caught:
        sum_over_processes(torch.ones(1))
    assert caught.value.exit_code == 6


@pytest.mark.usefixtures("two_processes")
def test_a_collective_without_memory_blames_no_other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(distributed, "all_reduce", fail)
    with pytest.raises(torch.OutOfMemoryError):
        sum_over_processes(torch.ones(1))


@pytest.mark.usefixtures("two_processes")
@pytest.mark.parametrize(("error", "code"), [(DataError("none"), DataError.exit_code), (OSError("full"), 1)])
def test_other_processes_do_not_wait_for_one_that_failed(
    monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    sent = []
    monkeypatch.setattr(distributed, "broadcast_object_list", lambda values, **_: sent.append(values))

    def fail() -> None:
        raise error

    with pytest.raises(type(error)):
        of_first(fail)
    assert sent == [[(code, None)]]
