"""Single-shot gradient-based scaling: the paper's numbers, and Eq. 11 against the roots that NumPy finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from jointnmt.analysis.parameters import count_parameters
from jointnmt.errors import ConfigurationError, DataError
from jointnmt.experiment import Experiment
from jointnmt.models import FAMILIES, ModelConfig
from jointnmt.models.common import ShortcutConfig
from jointnmt.models.reformer import ReformerBaseConfig, ReformerFastConfig
from jointnmt.models.transformer import TransformerConfig
from jointnmt.scaling.runs import RunOutcome, three_runs
from jointnmt.scaling.sizes import StackSize, depths, parameter_ratio, width_ratio
from jointnmt.scaling.step import Gradient, ScalingError, Step, cost, rounded, scale, step_size
from support.tiny import TinyModel, tiny_recipe

PAPER = Gradient(0.01063, 0.01069)  # Li et al. 2020, section "Results", the paragraph on scaling
REPOSITORY = Path(__file__).parents[2]


def paper_recipe() -> Experiment:
    return Experiment.load(REPOSITORY / "recipes/iwslt14/de-en-reformer-fast.yaml")


def measured(**losses: float) -> dict[str, RunOutcome]:
    """Three runs with these cross-entropies; the default is 1.6."""
    values = {"base": 1.6, "depth": 1.6, "width": 1.6, **losses}
    rest: dict[str, Any] = {"step": 5, "updates": 6, "seconds": 2.0, "data": "x", "vocabularies": (9, 9)}
    return {name: RunOutcome(nll=nll, experiment={}, **rest) for name, nll in values.items()}


def reformer(num_layers: int, width: float, embed_dim: int = 256) -> ReformerBaseConfig:
    return ReformerBaseConfig(num_layers=num_layers, embed_dim=embed_dim, ffn_dim=round(width * embed_dim))


def experiment(model: ModelConfig) -> Experiment:
    return Experiment.parse(tiny_recipe(Path("x"), model=model.plain()), origin="test")


def smallest_positive_root(layers: int, width: float, gradient: Gradient, ratio: float) -> float | None:
    """Root of 2 l (4 + 2w) along the gradient minus ratio times its value (Eqs. 8 and 11), written independently."""
    along = 2 * np.poly1d([gradient.depth, layers]) * np.poly1d([2 * gradient.width, 4 + 2 * width])
    roots = np.atleast_1d((along - ratio * along(0)).roots)
    real = [root.real for root in roots if abs(root.imag) < 1e-9 * max(1.0, abs(root)) and root.real > 0]
    return min(real, default=None)


def test_the_papers_numbers() -> None:
    """Eq. 11 at (l, w) = (5, 4), beta = 2: "adding 2 layers and 1/2 hidden size" (Li et al. 2020)."""
    base = paper_recipe()
    result = scale(base, measured(depth=1.6 - PAPER.depth, width=1.6 - PAPER.width), 2.0, 1)
    assert result.gradient == pytest.approx(PAPER)
    assert result.step is not None and result.experiment is not None
    assert result.step.alpha == pytest.approx(212.24, abs=0.005)
    assert result.step.layers == pytest.approx(2.26, abs=0.005)
    assert result.step.width == pytest.approx(2.27, abs=0.005)
    published = Experiment.load(REPOSITORY / "recipes/iwslt14/de-en-reformer-fast-scaled.yaml")
    assert result.experiment.model == published.model
    assert depths(published.model) == {"num_layers": 7, "prenet_layers": 7}
    assert published.model.ffn_dim == 6 * published.model.embed_dim
    assert parameter_ratio(base.model, published.model) == pytest.approx(7 * 16 / (5 * 12))
    spent = cost(base.model, published.model, measured(), 1)
    assert (spent.trainings, spent.grid_trainings, spent.seconds) == (3, 9, 6.0)
    assert spent.relative == pytest.approx(1 + 6 / 5 + 14 / 12)
    assert spent.grid_relative == pytest.approx((5 + 6 + 7) * (12 + 14 + 16) / (5 * 12))


def test_the_nist_model_scales_as_in_the_paper() -> None:
    base = Experiment.load(REPOSITORY / "recipes/nist12/zh-en-reformer-fast.yaml")
    result = scale(base, measured(depth=1.6 - PAPER.depth, width=1.6 - PAPER.width), 2.0, 1)
    published = Experiment.load(REPOSITORY / "recipes/nist12/zh-en-reformer-fast-scaled.yaml")
    assert result.experiment is not None
    assert depths(result.experiment.model) == depths(published.model)
    assert result.experiment.model.ffn_dim == published.model.ffn_dim == 3072


def test_the_closed_form_is_the_root_that_numpy_finds() -> None:
    """Random sizes, ratios and gradients of any sign: the same root, or none in both."""
    generator = np.random.default_rng(0)
    met = refused = 0
    for _ in range(2000):
        layers, width = int(generator.integers(1, 13)), int(generator.integers(64, 2049)) / 256
        signs, sizes = generator.choice([-1, 1], 2, p=[0.25, 0.75]), 10 ** generator.uniform(-6, 0, 2)
        gradient, ratio = Gradient(*(signs * sizes)), float(generator.uniform(1.01, 4))
        size, expected = StackSize.of(reformer(layers, width)), smallest_positive_root(layers, width, gradient, ratio)
        # Two negative sides meet at another root, where depth and width are both negative.
        if expected is None or max(gradient) < 0:
            refused += 1
            with pytest.raises(ScalingError):
                step_size(size, width, gradient, ratio)
            continue
        met += 1
        alpha = step_size(size, width, gradient, ratio)
        assert alpha == pytest.approx(expected, rel=1e-6)
        reached = size.parameters(alpha * gradient.depth, width + alpha * gradient.width)
        assert reached / size.parameters(0, width) == pytest.approx(ratio, rel=1e-9)
        assert layers + alpha * gradient.depth > 0  # the first root: depth and 4 + 2w have not changed sign
        assert 4 + 2 * (width + alpha * gradient.width) > 0
    assert met > 500 and refused > 100


def test_a_gradient_along_one_axis_only() -> None:
    size = StackSize.of(reformer(5, 4.0))
    assert step_size(size, 4.0, Gradient(0.5, 0.0), 2) == pytest.approx(10.0)  # 5 layers more
    assert step_size(size, 4.0, Gradient(0.0, 0.5), 2) == pytest.approx(12.0)  # 4 + 2w: 12 -> 24
    tiny = Gradient(0.5, 1e-18)  # nearly linear: nothing may cancel
    assert step_size(size, 4.0, tiny, 2) == pytest.approx(10.0)


def test_where_one_side_is_worse_the_message_tells_how_far_the_other_one_alone_goes() -> None:
    size = StackSize.of(reformer(5, 4.0))
    with pytest.raises(ScalingError, match=r"scale one side only: 6\.00 widths of E more, at its depth"):
        step_size(size, 4.0, Gradient(-0.5, 0.01), 2)
    with pytest.raises(ScalingError, match=r"scale one side only: 5\.00 layers more, at its width"):
        step_size(size, 4.0, Gradient(0.01, -0.5), 2)


def test_zero_discriminant() -> None:
    """2 (2 + a)(8 - 2a) has its maximum, 36, at a = 1; at a = 0 it is 32. The ratio 9/8 is just reached."""
    size, gradient = StackSize.of(reformer(2, 2.0)), Gradient(1.0, -1.0)
    assert step_size(size, 2.0, gradient, 1.125) == 1.0
    with pytest.raises(ScalingError, match=r"at most 1\.125 times"):
        step_size(size, 2.0, gradient, 1.126)


@pytest.mark.parametrize("gradient", [(-0.01, -0.02), (0.0, -0.02), (-0.01, 0.0), (0.0, 0.0)])
def test_larger_is_worse(gradient: tuple[float, float]) -> None:
    with pytest.raises(ScalingError, match="Larger is worse here"):
        step_size(StackSize.of(reformer(5, 4.0)), 4.0, Gradient(*gradient), 2)


def test_parameters_that_only_shrink_along_the_gradient() -> None:
    with pytest.raises(ScalingError, match=r"at most 1\.000 times"):
        step_size(StackSize.of(reformer(1, 1.0)), 1.0, Gradient(-1.0, 0.001), 2)


SIZES: dict[str, Any] = {"embed_dim": 512, "num_heads": 2, "attention_bias": False}
MODELS: dict[str, ModelConfig] = {
    "transformer": TransformerConfig(**SIZES, ffn_dim=2048, encoder_layers=3, decoder_layers=2),
    "transformer-shortcuts": TransformerConfig(
        **SIZES, ffn_dim=1024, encoder_layers=2, decoder_layers=2, shortcuts=ShortcutConfig(kind="fusion")
    ),
    "reformer-base": ReformerBaseConfig(**SIZES, ffn_dim=1536, num_layers=2),
    "reformer-fast": ReformerFastConfig(**SIZES, ffn_dim=1024, num_layers=1, prenet_layers=2),
    "reformer-fast-shortcuts": ReformerFastConfig(
        **SIZES, ffn_dim=1024, num_layers=1, prenet_layers=1, shortcuts=ShortcutConfig(places=("source", "prenet"))
    ),
}


@pytest.mark.parametrize("config", MODELS.values(), ids=MODELS)
def test_predicted_parameters_are_those_of_the_layers(config: ModelConfig) -> None:
    """Eq. 8 leaves out biases, norms and the reduction: one more layer is counted exactly except for 1 in E."""
    larger = {key: depth + 2 for key, depth in depths(config).items()}
    deeper = config.model_copy(update={**larger, "ffn_dim": config.ffn_dim + 512})
    counts = [count_parameters(model, 10, 10).plain()["rest"] / 512**2 for model in (config, deeper)]
    size = StackSize.of(config)
    predicted = [size.parameters(0, width_ratio(config)), size.parameters(2, width_ratio(deeper))]
    assert counts[1] - counts[0] == pytest.approx(predicted[1] - predicted[0], rel=5e-3)
    assert parameter_ratio(config, deeper) == pytest.approx(predicted[1] / predicted[0])
    assert parameter_ratio(config, deeper) == pytest.approx(counts[1] / counts[0], rel=0.04)


def test_every_family_has_a_depth_and_a_width() -> None:
    for config, _ in FAMILIES.values():
        wanted = three_runs(experiment(config(embed_dim=16, num_heads=2, ffn_dim=40)), epsilon=2, updates=7)
        base, deeper, wider = (wanted[name].model for name in ("base", "depth", "width"))
        assert depths(deeper) == {key: depth + 2 for key, depth in depths(base).items()}
        assert depths(wider) == depths(base) and deeper.ffn_dim == base.ffn_dim == 40
        assert wider.ffn_dim == 40 + 2 * 16
        assert {one.training.max_updates for one in wanted.values()} == {7}


def test_a_schedule_that_ends_keeps_its_shape() -> None:
    """Otherwise the trainings would be compared at a rate that has not fallen."""
    whole = experiment(FAMILIES["transformer"][0](embed_dim=16, num_heads=2, ffn_dim=40))
    schedule = whole.training.schedule.model_copy(update={"warmup_steps": 40, "zero_at": 1000})
    training = whole.training.model_copy(update={"max_updates": 1000, "max_epochs": 3, "schedule": schedule})
    base = three_runs(whole.model_copy(update={"training": training}), epsilon=1, updates=100)["base"].training
    assert (base.max_updates, base.schedule.zero_at, base.schedule.warmup_steps) == (100, 100, 4)
    assert base.max_epochs is None, "epochs would end it sooner"
    sooner = schedule.model_copy(update={"warmup_steps": 0, "zero_at": 500})  # the training ends there
    training = training.model_copy(update={"schedule": sooner})
    base = three_runs(whole.model_copy(update={"training": training}), epsilon=1, updates=100)["base"].training
    assert (base.max_updates, base.schedule.zero_at, base.schedule.warmup_steps) == (100, 100, 0)
    schedule = whole.training.schedule.model_copy(update={"warmup_steps": 990, "zero_at": 1000})
    training = whole.training.model_copy(update={"max_updates": 1000, "schedule": schedule})
    base = three_runs(whole.model_copy(update={"training": training}), epsilon=1, updates=10)["base"].training
    assert (base.schedule.zero_at, base.schedule.warmup_steps) == (10, 9), "a warm-up ends before the rate is 0"


def test_epsilon_divides_the_differences() -> None:
    result = scale(paper_recipe(), measured(depth=1.6 - 2 * PAPER.depth, width=1.6 - 2 * PAPER.width), 2.0, 2)
    assert result.gradient == pytest.approx(PAPER)


@pytest.mark.parametrize(
    ("embed_dim", "width", "step", "ffn_dim"),
    [
        (256, 4, 2.27, 6 * 256),  # from E = 256 on: a multiple of E
        (512, 4, 2.5, 7 * 512),  # halves are rounded up
        (320, 2, 0.6, 3 * 320),
        (300, 4, 1.0, 1472),  # 1500, but E is no multiple of 64
        (128, 2, 0.8, 384),  # 358.4: below, a multiple of 64
        (128, 2, 0.6, 320),  # 332.8
        (16, 2, 0.8, 48),  # 44.8: below E = 64, of 8
        (16, 2, -0.3, 24),  # 27.2
    ],
)
def test_the_width_is_rounded(embed_dim: int, width: float, step: float, ffn_dim: int) -> None:
    found = rounded(experiment(reformer(3, width, embed_dim)), Step(1.0, 1.4, step)).model
    assert (depths(found), found.ffn_dim) == ({"num_layers": 4}, ffn_dim)


def test_a_width_that_does_not_change_stays_as_it_is() -> None:
    model = reformer(3, 2.0, 128).model_copy(update={"ffn_dim": 300})
    assert rounded(experiment(model), Step(1.0, 3.0, 0.1)).model.ffn_dim == 300


def test_a_step_that_rounds_to_nothing_or_leaves_nothing_is_refused() -> None:
    base = experiment(reformer(3, 4.0))
    with pytest.raises(ScalingError, match="the model is not larger"):
        rounded(base, Step(1.0, 0.4, 0.4))
    with pytest.raises(ScalingError, match="leaves no layers or no width"):
        rounded(base, Step(1.0, -3.0, 40.0))
    with pytest.raises(ScalingError, match="leaves no layers or no width"):
        rounded(base, Step(1.0, 40.0, -4.4))
    with pytest.raises(ScalingError, match=r"should be at most 500.*\. Request a smaller ratio"):
        rounded(base, Step(1.0, 900.0, 0.1))
    result = scale(base, measured(depth=1.5), 400.0, 1)
    assert result.experiment is None and result.step is not None and "smaller ratio" in str(result.refused)
    result = scale(base, measured(depth=1.7), 2.0, 1)
    assert result.experiment is None and result.step is None and "Larger is worse" in str(result.refused)


def test_runs_on_different_data_do_not_compare() -> None:
    runs = measured(depth=1.5)
    runs["width"] = runs["width"].model_copy(update={"data": "y"})
    with pytest.raises(DataError, match="not trained on the same data"):
        scale(paper_recipe(), runs, 2.0, 1)


def test_runs_validated_on_different_texts_do_not_compare() -> None:
    runs = measured(depth=1.5)
    runs["base"] = runs["base"].model_copy(update={"validation": "x"})
    assert scale(paper_recipe(), runs, 2.0, 1)  # the others are from a version that did not keep it
    runs["width"] = runs["width"].model_copy(update={"validation": "y"})
    with pytest.raises(DataError, match="not validated on the same text"):
        scale(paper_recipe(), runs, 2.0, 1)


def test_runs_in_different_precisions_do_not_compare() -> None:
    runs = {
        name: one.model_copy(update={"experiment": {"training": {"precision": precision}}})
        for (name, one), precision in zip(measured(depth=1.5).items(), ("bfloat16", "bfloat16", "float32"), strict=True)
    }
    with pytest.raises(ConfigurationError, match=r"width in float32\).* Delete the folder and the .json of width:"):
        scale(paper_recipe(), runs, 2.0, 1)


def test_a_recipe_without_validation_text_is_refused() -> None:
    base = experiment(reformer(1, 1.0))
    without = base.model_copy(update={"data": base.data.model_copy(update={"validation": ()})})
    with pytest.raises(ConfigurationError, match=r"data\.validation names no text"):
        three_runs(without, 1)


def test_parameters_outside_any_module_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of another package's family may be."""
    model = TinyModel()
    model.bias = nn.Parameter(torch.zeros(7))
    monkeypatch.setattr("jointnmt.analysis.parameters.outline_model", lambda *_: model)
    counted = count_parameters(TransformerConfig(), 10, 10)
    assert counted.rest["bias"] == 7
    assert counted.total == sum(parameter.numel() for parameter in model.parameters())
