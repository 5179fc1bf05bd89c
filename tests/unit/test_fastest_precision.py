"""`precision: auto` of translations: measuring, choice, and that it is measured once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from jointnmt.cache import default_cache
from jointnmt.errors import ConfigurationError
from jointnmt.models import TranslationModel, build_model
from jointnmt.models.reformer import ReformerFastConfig
from jointnmt.models.transformer import TransformerConfig
from jointnmt.ops import backend
from jointnmt.ops.native import library
from jointnmt.translator import Translator, precision
from jointnmt.translator.precision import choose_translation_precision, measure_rates
from support.tiny_run import write_run

needs_kernels = pytest.mark.skipif(library() is None, reason="needs a C++ compiler")


def model_of(config: Any = TransformerConfig, **changes: Any) -> TranslationModel:
    values = {"embed_dim": 32, "ffn_dim": 48, "num_heads": 2, **changes}
    return build_model(config.parse(values, "test"), 40, 40).eval()


@pytest.fixture(autouse=True)
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "LEAST_WEIGHTS", 0)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Replace measuring by `RATES`, and record each call."""
    calls: list[int] = []

    def measure(model: TranslationModel, device: torch.device, length: int) -> Any:
        calls.append(length)
        return {"float32": (10.0, 10.0), "bfloat16": (15.0, 10.0)}

    monkeypatch.setattr(precision, "measure_rates", measure)
    return calls


@needs_kernels
@pytest.mark.parametrize(
    ("several", "one", "chosen"),
    [(11.0, 9.5, "bfloat16"), (10.9, 20.0, "float32"), (20.0, 9.4, "float32"), (1.0, 1.0, "float32")],
)
def test_bfloat16_is_taken_where_it_is_worth_it(
    several: float, one: float, chosen: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    rates = {"float32": (10.0, 10.0), "bfloat16": (several, one)}
    monkeypatch.setattr(precision, "measure_rates", lambda *_: rates)
    assert choose_translation_precision(model_of(), None) == chosen
    assert f"precision: {chosen}: in bfloat16 several sentences at once are {several / 10:.2f} times" in caplog.text


@needs_kernels
def test_shapes_are_measured_once(measured: list[int], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    assert [choose_translation_precision(model_of(), 128) for _ in range(2)] == ["bfloat16", "bfloat16"]
    assert measured == [precision.LENGTH]
    assert [each.levelname for each in caplog.records if "several sentences" in each.message] == ["INFO", "DEBUG"]
    choose_translation_precision(model_of(ffn_dim=64), 9)  # another shape, for a model with short inputs
    with backend("native", "custom"):  # other products
        choose_translation_precision(model_of(), 128)
    assert measured == [precision.LENGTH, 9, precision.LENGTH]


@needs_kernels
def test_another_version_of_the_package_that_brings_the_family_is_measured_anew(
    measured: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "packages_of", {"transformer": ["its-package"]}.get)
    for number in ("1.0", "1.1", "1.1"):
        monkeypatch.setattr(precision, "version", {"its-package": number, "torch": "2", "jointnmt": "0"}.get)
        choose_translation_precision(model_of(), None)
    assert len(measured) == 2


@needs_kernels
@pytest.mark.parametrize("damage", ["", "{", "{}", "[1]", '{"float32": [1], "bfloat16": [2]}', '{"float32": 1}'])
def test_what_is_kept_damaged_is_measured_again(damage: str, measured: list[int]) -> None:
    choose_translation_precision(model_of(), None)
    (file,) = (default_cache() / "precision").iterdir()
    kept = json.loads(file.read_text())
    file.write_text(damage)
    assert choose_translation_precision(model_of(), None) == "bfloat16"
    assert len(measured) == 2
    assert json.loads(file.read_text()) == kept


@needs_kernels
def test_where_nothing_can_be_kept_each_command_measures(
    measured: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("JOINTNMT_CACHE", str(tmp_path / "file"))
    assert [choose_translation_precision(model_of(), None) for _ in range(2)] == ["bfloat16", "bfloat16"]
    assert len(measured) == 2
    assert "cannot be written" in caplog.text


def test_without_kernels_for_bfloat16_a_translation_would_depend_on_its_batch(measured: list[int]) -> None:
    with backend("plain"):
        assert choose_translation_precision(model_of(), None) == "float32"
    assert choose_translation_precision(model_of(embed_dim=30), None) == "float32"  # which kernels cannot use
    assert not measured


def test_small_models_are_not_measured(measured: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "LEAST_WEIGHTS", 10**6)
    assert choose_translation_precision(model_of(), None) == "float32"
    assert not measured


@needs_kernels
@pytest.mark.parametrize("config", [TransformerConfig, ReformerFastConfig])
@pytest.mark.parametrize("shortcuts", [None, {"kind": "fusion"}])
def test_every_precision_is_measured_by_turns(config: Any, shortcuts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, seen = model_of(config, shortcuts=shortcuts), []
    measure = precision._seconds
    monkeypatch.setattr(
        precision, "_seconds", lambda model, name, source: seen.append(name) or measure(model, name, source)
    )
    monkeypatch.setattr(precision, "SECONDS", float("inf"))
    torch.set_num_threads(2)
    rates = measure_rates(model, torch.device("cpu"), 5)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    assert rates.keys() == {"float32", "bfloat16"} and min(min(each) for each in rates.values()) > 0
    assert seen == ["float32", "bfloat16"] * (1 + precision.ROUNDS) * 2


@needs_kernels
def test_a_translator_computes_in_what_was_chosen(tmp_path: Path, measured: list[int]) -> None:
    run = write_run(tmp_path / "run", model={"embed_dim": 32, "ffn_dim": 48})
    chosen, named = Translator.load(run, precision="auto"), Translator.load(run, precision="bfloat16")
    assert chosen.precision == "bfloat16"
    assert chosen.translations(["Hund", "Katze sieht"]) == named.translations(["Hund", "Katze sieht"])
    with pytest.raises(ConfigurationError, match="one of auto, float32"):
        Translator.load(run, precision="half")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("precision", "embed_dim", "kernels", "warned"),
    [
        ("bfloat16", 32, "native", False),
        ("int8", 32, "native", False),
        ("bfloat16", 30, "native", True),
        ("bfloat16", 32, "plain", True),
        ("int8", 32, "plain", True),
        ("float16", 32, "native", True),
        ("float32", 32, "plain", False),
        ("auto", 32, "plain", False),
    ],
)
@needs_kernels
def test_a_named_precision_without_kernels_is_taken_with_a_warning(
    precision: Any,
    embed_dim: int,
    kernels: Any,
    warned: bool,
    tmp_path: Path,
    measured: list[int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """PyTorch multiplies bfloat16 a hundred times more slowly than float32 on processors with AVX2 alone."""
    run = write_run(tmp_path / "run", model={"embed_dim": embed_dim, "ffn_dim": 48})
    with backend(kernels):
        translator = Translator.load(run, precision=precision)
    assert translator.precision == (precision if precision != "auto" else "float32")
    assert (f"precision {precision}: the CPU kernels do not compute" in caplog.text) is warned
