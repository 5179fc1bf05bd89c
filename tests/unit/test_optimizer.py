"""Optimisers and decays of other packages: named in recipes, resumed exactly, and checked before they do harm."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from jointnmt.errors import ConfigurationError, JointNMTError, MissingPackageError
from jointnmt.experiment import Experiment, ScheduleConfig
from jointnmt.runs import checkpoint
from jointnmt.runs.code import TRAINING, code_digest
from jointnmt.training.optimizer import OPTIMIZERS
from jointnmt.training.progress import NoDisplay
from jointnmt.training.run import train
from jointnmt.training.schedule import DECAYS, learning_rate
from jointnmt.training.trainer import Trainer
from support.tiny import TinyModel, tiny_recipe, tiny_trainer


@pytest.fixture(autouse=True)
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    """Optimisers of `torch.optim` and wrong ones, by name."""
    for name, make in {"radam": torch.optim.RAdam, "plain": torch.optim.AdamW, "noisy": Noisy, **WRONG}.items():
        monkeypatch.setitem(OPTIMIZERS, name, make)
    monkeypatch.setitem(DECAYS, "steps", lambda step, schedule: schedule.peak_rate / (1 + step // 10))
    monkeypatch.setitem(DECAYS, "wrong", lambda step, schedule: 1 - step)


class Noisy(torch.optim.SGD):
    """SGD with noise on the weights, counted in Python, and with another rate for matrices."""

    def __init__(self, named: list[tuple[str, Tensor]]) -> None:
        matrices, others = ([each for _, each in named if (each.ndim > 1) == wide] for wide in (True, False))
        super().__init__([{"params": matrices, "rate_scale": 0.5, "steps": (0, [])}, {"params": others}], momentum=0.9)

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        super().step()
        group = self.param_groups[0]
        group["steps"] = (group["steps"][0] + 1, [None, True, "text", 0.5])
        with torch.no_grad():
            for weight in group["params"]:
                weight += 0.01 * group["steps"][0] * torch.randn_like(weight)


class Replacing(torch.optim.SGD):
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for weight in self.param_groups[0]["params"]:
            weight.data = weight.data - weight.grad


class Unsavable(torch.optim.SGD):
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        super().step()
        self.param_groups[0]["history"] = [object()]


WRONG: dict[str, Callable[..., Any]] = {
    "replacing": Replacing,
    "unsavable": Unsavable,
    "lbfgs": torch.optim.LBFGS,
    "none": lambda _: None,
    "strange": lambda _: torch.optim.SGD([torch.zeros(1, requires_grad=True)]),
}


def trained(updates: int, trainer: Trainer) -> Trainer:
    for _ in itertools.islice(trainer.steps(), updates):
        pass
    return trainer


def test_an_optimiser_by_name_makes_the_same_updates() -> None:
    settings = {"betas": [0.8, 0.95], "weight_decay": 0.1}
    own = trained(6, tiny_trainer(optimizer={"name": "plain", "eps": 1e-6, **settings}, clip_norm=0.5))
    usual = trained(6, tiny_trainer(optimizer={"epsilon": 1e-6, **settings}, clip_norm=0.5))
    for name, weight in usual.model.state_dict().items():
        torch.testing.assert_close(own.model.state_dict()[name], weight, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize("name", ["radam", "noisy"])
def test_resuming_is_exact(name: str, precision: str, tmp_path: Path) -> None:
    """Through a file: the state of the optimiser, its groups, and what it draws."""
    settings: dict[str, Any] = {"optimizer": {"name": name}, "precision": precision, "clip_norm": 0.5}
    whole, first, second = (tiny_trainer(**settings) for _ in range(3))
    trained(9, whole)
    checkpoint.write(tmp_path / "state", *trained(4, first).state())
    second.load_state(*checkpoint.read(tmp_path / "state"))
    torch.manual_seed(1234)
    trained(5, second)
    for weight, tensor in whole.model.state_dict().items():
        assert torch.equal(second.model.state_dict()[weight], tensor), weight
    assert second.optimizer.state_dict()["param_groups"] == whole.optimizer.state_dict()["param_groups"]


def test_a_group_may_have_a_rate_of_its_own() -> None:
    trainer = trained(3, tiny_trainer(optimizer={"name": "noisy"}))
    rate = learning_rate(trainer.config.schedule, 3)
    assert [group["lr"] for group in trainer.optimizer.param_groups] == [0.5 * rate, rate]


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        ({"name": "radam", "beta": 1}, "unexpected keyword argument 'beta'. Check its settings"),
        ({"name": "radam", "betas": [2, 0]}, "Invalid beta parameter"),
        ({"name": "replacing"}, r"has replaced the weight embedding\.weight or its gradient"),
        ({"name": "unsavable"}, r"optimizer\.param_groups\.0\.history\.0 is a object"),
        ({"name": "lbfgs"}, "needs a closure"),
        ({"name": "none"}, r"should make a torch\.optim\.Optimizer, but makes a NoneType"),
        ({"name": "strange"}, "has 1 parameters that are not the model's"),
    ],
)
def test_what_cannot_be_used_is_told_with_the_reason(optimizer: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"training.optimizer {optimizer['name']}: .*{message}"):
        trained(1, tiny_trainer(optimizer=optimizer))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"training__optimizer": {"name": "lion"}},
            "no optimiser 'lion' here, but 'adamw', 'radam', .*jointnmt.optimizers",
        ),
        (
            {"training__schedule": {"decay": "root"}},
            "no decay of the learning rate 'root' here, but 'linear', 'cosine'",
        ),
    ],
)
def test_what_is_not_installed_is_told_before_any_work(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    experiment = Experiment.parse(tiny_recipe(tmp_path, **changes), origin="test")  # enough to translate
    assert Experiment.parse(experiment.plain(), origin="test") == experiment
    with pytest.raises(MissingPackageError, match=message):
        train(experiment, tmp_path / "run", NoDisplay())
    assert not (tmp_path / "run").exists()


def test_an_optimiser_of_another_package_is_an_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about = tmp_path / "other-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n", encoding="utf-8")
    entries = "rprop = torch.optim:Rprop\nnothing = torch.optim:Nothing\nnumber = math:pi\n"
    (about / "entry_points.txt").write_text(f"[jointnmt.optimizers]\n{entries}", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    trainer = trained(2, tiny_trainer(optimizer={"name": "rprop", "etas": [0.4, 1.3]}))
    assert isinstance(trainer.optimizer, torch.optim.Rprop)
    for name, message in (("nothing", "of other, torch.optim:Nothing, cannot be imported"), ("number", "is a float")):
        with pytest.raises(MissingPackageError, match=message):
            tiny_trainer(optimizer={"name": name})


def test_it_is_not_combined_with_sharding() -> None:
    with pytest.raises(ValueError, match=r"sharded true needs optimizer\.name adamw"):
        tiny_trainer(optimizer={"name": "radam"}, sharded=True)


def test_settings_of_another_optimiser_are_not_inherited(tmp_path: Path) -> None:
    base, own = tmp_path / "base.yaml", tmp_path / "own.yaml"
    base.write_text(Experiment.parse(tiny_recipe(tmp_path), origin="test").to_yaml(), encoding="utf-8")
    own.write_text("extends: base.yaml\ntraining: {optimizer: {name: radam, eps: 0.001}}\n", encoding="utf-8")
    by_setting = Experiment.load(base, ["training.optimizer.eps=0.001", "training.optimizer.name=radam"])
    for given in (Experiment.load(own), by_setting):
        assert given.plain()["training"]["optimizer"] == {"name": "radam", "eps": 1e-3}
    again = Experiment.load(own, ["training.optimizer.betas=[0.5, 0.6]"]).plain()["training"]["optimizer"]
    assert again == {"name": "radam", "eps": 1e-3, "betas": [0.5, 0.6]}
    usual = Experiment.load(base).training.optimizer
    assert Experiment.load(base, ["training.optimizer.name=adamw"]).training.optimizer == usual


def test_a_wrong_key_of_adamw_is_still_an_error(tmp_path: Path) -> None:
    with pytest.raises(JointNMTError, match=r"training\.optimizer\.beta: is not a known key \(did you mean betas\?\)"):
        Experiment.parse(tiny_recipe(tmp_path, training__optimizer={"beta": 1}), origin="test")


def test_a_decay_begins_after_the_warm_up() -> None:
    config = ScheduleConfig(peak_rate=0.6, initial_rate=0.0, warmup_steps=10, decay="steps")
    assert [learning_rate(config, step) for step in (5, 10, 25)] == pytest.approx([0.3, 0.3, 0.2])
    with pytest.raises(ConfigurationError, match=r"the rate of update 12 should be a finite number, .* but is -11"):
        learning_rate(config.model_copy(update={"decay": "wrong"}), 12)


def test_their_code_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_update.py").write_text("import torch\nclass Own(torch.optim.SGD): pass\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(OPTIMIZERS, "own", __import__("own_update").Own)
    trainer = tiny_trainer(optimizer={"name": "own"}, schedule={"decay": "steps", "warmup_steps": 5})
    assert {"own_update", __name__} <= trainer.modules()
    before = code_digest(TinyModel(), TRAINING, trainer.modules())
    (tmp_path / "own_update.py").write_text("import torch\nclass Own(torch.optim.SGD): ...\n", encoding="utf-8")
    assert code_digest(TinyModel(), TRAINING, trainer.modules()) != before
