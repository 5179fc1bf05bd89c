"""The parts of a trained model are bound to each other: changed or swapped parts are refused by name."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from jointnmt import Translator
from jointnmt.errors import ConfigurationError, ModelError
from jointnmt.experiment import Experiment
from jointnmt.models import build_model
from jointnmt.models.common import MAX_LAYERS
from jointnmt.runs import checkpoint
from jointnmt.runs.averaging import average_checkpoints, average_into, choose_checkpoints
from jointnmt.runs.loading import load_run
from jointnmt.text.config import SegmentationConfig
from jointnmt.text.segmentation import Segmentation
from jointnmt.training.directory import TrainingDirectory
from support.tiny_run import experiment, sizes, unbind, write_run, write_run_of

Change = Callable[[dict[str, Any]], Any]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run")


def edit(path: Path, change: Change) -> None:
    """Change values of a YAML or JSON file, and keep its format."""
    values = yaml.safe_load(path.read_text())
    change(values)
    if path.suffix == ".json":
        path.write_text(json.dumps(values, indent=2))
    else:
        path.write_text(yaml.safe_dump(values, sort_keys=False, explicit_end=True))


CONFIGURATION: dict[str, tuple[str, Any]] = {
    "heads": ("model.num_heads", 4),
    "reduction": ("model.reduction", "max"),
    "dropout": ("model.dropout", 0.3),
    "longest sentence": ("model.max_length", 4),
    "beam": ("search.beam_size", 1),
    "length penalty": ("search.length_penalty", 0.0),
    "longest translation": ("search.max_length_offset", 1),
    "unknown words": ("search.allow_unknown", False),
    "Moses": ("segmentation.moses", True),
    "lower case": ("segmentation.lowercase", True),
    "language": ("data.target_language", "fr"),
}


@pytest.mark.parametrize(("key", "value"), CONFIGURATION.values(), ids=CONFIGURATION)
def test_a_changed_configuration_is_refused_by_its_key(run: Path, key: str, value: Any) -> None:
    section, name = key.split(".")
    edit(run / "experiment.yaml", lambda values: values[section].update({name: value}))
    with pytest.raises(ModelError, match=rf"experiment\.yaml is not the configuration .*{name}: ") as caught:
        Translator.load(run, device="cpu")
    assert caught.value.exit_code == 4


@pytest.mark.parametrize("name", ["num_heads", "ffn_dim", "beam_size"])
def test_a_removed_line_does_not_become_a_default(run: Path, name: str) -> None:
    lines = (run / "experiment.yaml").read_text().splitlines(keepends=True)
    (run / "experiment.yaml").write_text("".join(line for line in lines if line.strip().partition(":")[0] != name))
    with pytest.raises(ModelError, match=name):
        load_run(run, "cpu")


def test_what_decides_nothing_may_be_changed(run: Path) -> None:
    def change(values: dict[str, Any]) -> None:
        values["data"]["root"] = "/elsewhere"
        values["training"]["keep_last"] = 3
        values["name"] = "another"

    edit(run / "experiment.yaml", change)
    assert load_run(run, "cpu")[2].name == "another"


def swap_words(values: dict[str, Any]) -> None:
    vocabulary = values["model"]["vocab"]
    one, other = list(vocabulary)[-2:]
    vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]


SEGMENTATION: dict[str, tuple[str, Change]] = {
    "permuted vocabulary": ("target.json", swap_words),
    "normaliser": ("source.json", lambda values: values.update(normalizer={"type": "Lowercase"})),
    "Moses": ("segmentation.json", lambda values: values["config"].update(moses=True)),
    "language": ("segmentation.json", lambda values: values.update(languages=["de", "fr"])),
}


@pytest.mark.parametrize(("name", "change"), SEGMENTATION.values(), ids=SEGMENTATION)
def test_a_changed_segmentation_is_refused(run: Path, name: str, change: Change) -> None:
    edit(run / "segmentation" / name, change)
    with pytest.raises(ModelError, match=r"segmentation/ is not the segmentation"):
        load_run(run, "cpu")


def write_bpe_run(run: Path, text: str) -> TrainingDirectory:
    """A run with a vocabulary of byte-pair encoding, learnt from some text."""
    config = SegmentationConfig(vocabulary_size=20, min_frequency=1)
    trained = experiment(segmentation=config.plain())
    write_run(run, segmentation=config.plain())
    files = TrainingDirectory(run)
    for path in files.segmentation.iterdir():
        path.unlink()
    Segmentation.train(config, [text], [text], "de", "en").save(files.segmentation)
    files.bind(trained)
    return files


def test_dropped_merges_and_the_segmentation_of_another_training_are_refused(tmp_path: Path) -> None:
    files = write_bpe_run(tmp_path / "run", "abab abab cdcd")
    other = write_bpe_run(tmp_path / "other", "acac acac bdbd")
    assert files.parts is not None
    assert other.parts is not None
    values = {"parts": files.parts.plain()}
    files.parts.check(values, files.model)
    with pytest.raises(ModelError, match="segmentation"):
        other.parts.check(values, files.model)
    edit(files.segmentation / "joint.json", lambda joint: joint["model"]["merges"].pop())
    files.bind(experiment(segmentation={"vocabulary_size": 20, "min_frequency": 1}))
    with pytest.raises(ModelError, match="segmentation"):
        files.parts.check(values, files.model)


def test_a_configuration_that_was_cut_is_refused_wherever_it_was_cut(run: Path) -> None:
    text = (run / "experiment.yaml").read_text()
    assert text.endswith("\n...\n")
    lines = text.splitlines(keepends=True)
    for count in (*range(0, len(lines) - 10, 9), *range(len(lines) - 10, len(lines))):
        (run / "experiment.yaml").write_text("".join(lines[:count]))
        with pytest.raises(ModelError, match=r"experiment\.yaml"):
            load_run(run, "cpu")
    (run / "experiment.yaml").write_text("".join(lines).rstrip())  # as editors do
    load_run(run, "cpu")


def test_a_configuration_that_was_cut_is_not_resumed_with(run: Path) -> None:
    text = (run / "experiment.yaml").read_text()
    (run / "checkpoints").mkdir()
    (run / "experiment.yaml").write_text(text[: text.index("\nvalidation:") + 1])
    with pytest.raises(ConfigurationError, match="is truncated"):
        TrainingDirectory(run).open(experiment())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int32])
def test_tensors_of_another_type_than_was_written_are_refused(run: Path, dtype: torch.dtype) -> None:
    weights, values = checkpoint.read(run / "model.safetensors")
    name = next(iter(weights))
    checkpoint.write(run / "model.safetensors", {**weights, name: weights[name].to(dtype)}, values)
    with pytest.raises(ModelError, match=rf"another type than it states: {name} is {dtype} instead of torch\.float32"):
        load_run(run, "cpu")


def test_a_type_that_the_values_tell_is_the_one_that_was_written(run: Path) -> None:
    weights, values = checkpoint.read(run / "model.safetensors")
    half = {name: tensor.half() for name, tensor in weights.items()}
    checkpoint.write(run / "model.safetensors", half, {**values, "weights": "float16"})
    model, _, _ = load_run(run, "cpu")
    assert all(torch.equal(tensor, half[name].float()) for name, tensor in model.state_dict().items())
    checkpoint.write(run / "model.safetensors", half, {**values, "weights": "bfloat16"})
    with pytest.raises(ModelError, match="another type"):
        load_run(run, "cpu")


@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize("embeddings", ["target", "all"])
def test_tied_weights_that_are_stored_once_are_loaded(tmp_path: Path, embeddings: str, precision: Any) -> None:
    config = SegmentationConfig(kind="word", vocabulary_size=20, min_frequency=1)
    segmentation = Segmentation.train(config, ["der Hund"], ["the dog"], "de", "en")
    model = {**experiment().model.plain(), "embeddings": embeddings}
    trained = Experiment.parse({**experiment().plain(), "model": model, "segmentation": config.plain()}, "test")
    translator = Translator(build_model(trained.model, *sizes(segmentation)), segmentation, trained)
    translator.save_pretrained(tmp_path, weights=precision)
    outline = checkpoint.read_outline(tmp_path / "model.safetensors")
    loaded, _, _ = load_run(tmp_path, "cpu")
    assert len(outline.tensors) < len(loaded.state_dict())
    for name, tensor in translator.trained.state_dict().items():
        torch.testing.assert_close(loaded.state_dict()[name], tensor, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("tied", [5, [], {"output.weight": 5}, {"output.weight": ["a"]}, {"output.weight": "gone"}])
def test_weights_that_are_tied_to_nothing_are_a_model_error(run: Path, tied: Any) -> None:
    weights, values = checkpoint.read(run / "model.safetensors")
    checkpoint.write(run / "model.safetensors", weights, {**values, "tied": tied})
    with pytest.raises(ModelError, match="tied"):
        load_run(run, "cpu")


def test_a_model_of_before_is_loaded_and_warned_of_once(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    unbind(run)
    text = (run / "experiment.yaml").read_text()
    (run / "experiment.yaml").write_text(text.replace("  split_punctuation: false\n", "").removesuffix("...\n"))
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            load_run(run, "cpu")
    assert caplog.text.count("does not state its configuration") == 1


def test_the_old_name_of_a_key_still_loads(tmp_path: Path) -> None:
    model = {"family": "transformer", "encoder_layers": 1, "decoder_layers": 1, "emelin_compatible": True}
    values = experiment().plain() | {"model": model | {"embed_dim": 8, "num_heads": 2, "ffn_dim": 8}}
    run = write_run_of(tmp_path / "run", Experiment.parse(values, "test"))
    recipe = run / "experiment.yaml"
    recipe.write_text(recipe.read_text().replace("emelin_compatible", "faithful"))
    assert load_run(run, "cpu")[2].model.plain()["emelin_compatible"]
    weights, stored = checkpoint.read(run / "model.safetensors")
    of_model = stored["parts"]["configuration"]["model"]
    of_model["faithful"] = of_model.pop("emelin_compatible")
    checkpoint.write(run / "model.safetensors", weights, stored)
    load_run(run, "cpu")


def test_a_key_that_is_newer_than_the_weights_has_its_default(run: Path) -> None:
    weights, stored = checkpoint.read(run / "model.safetensors")
    del stored["parts"]["configuration"]["search"]["length_offset"]
    checkpoint.write(run / "model.safetensors", weights, stored)
    load_run(run, "cpu")
    edit(run / "experiment.yaml", lambda values: values["search"].update(length_offset=5.0))
    with pytest.raises(ModelError, match=r"search\.length_offset: 0\.0 -> 5\.0"):
        load_run(run, "cpu")


@pytest.mark.parametrize("stored", [5, {}, {"configuration": 5, "segmentation": ""}, {"configuration": {"new": 1}}])
def test_parts_that_are_not_understood_are_a_model_error(run: Path, stored: Any) -> None:
    weights, values = checkpoint.read(run / "model.safetensors")
    checkpoint.write(run / "model.safetensors", weights, {**values, "parts": stored})
    with pytest.raises(ModelError, match="states its configuration in a form that this version"):
        load_run(run, "cpu")


def test_an_average_belongs_to_what_its_checkpoints_belong_to(run: Path, tmp_path: Path) -> None:
    other = write_run(tmp_path / "other", search={"beam_size": 1})
    one, two = run / "model.safetensors", other / "model.safetensors"
    average_into(tmp_path / "mean.safetensors", [one, one])
    assert checkpoint.read_values(tmp_path / "mean.safetensors")["parts"] == checkpoint.read_values(one)["parts"]
    with pytest.raises(ModelError, match="another configuration or segmentation"):
        average_into(tmp_path / "mean.safetensors", [one, two])
    checkpoint.write(two, checkpoint.read(two)[0], {"steps": [2]})
    average_into(tmp_path / "mean.safetensors", [one, two])
    assert "parts" not in checkpoint.read_values(tmp_path / "mean.safetensors")


def test_given_checkpoints_are_of_the_run_and_each_given_once(run: Path, tmp_path: Path) -> None:
    other = write_run(tmp_path / "other", search={"beam_size": 1})
    mine, its = run / "model.safetensors", other / "model.safetensors"
    (run / "checkpoints").mkdir(exist_ok=True)
    assert choose_checkpoints(run, given=[mine]) == [mine]
    with pytest.raises(ModelError, match=rf"{its}: belongs to another configuration or segmentation than {run}\."):
        choose_checkpoints(run, given=[its])
    with pytest.raises(ConfigurationError, match="given twice"):
        choose_checkpoints(run, given=[mine, mine.parent / "checkpoints" / ".." / mine.name])


def test_an_average_made_by_hand_is_not_what_a_training_has_chosen(run: Path) -> None:
    """The training makes its own again, even from the same checkpoints."""
    model, directory = run / "model.safetensors", TrainingDirectory(run)
    average_into(model, [model, model])
    assert not directory.holds_result_of(checkpoint.read_values(model)["steps"])


def test_a_checkpoint_with_the_name_of_another_is_not_averaged(tmp_path: Path) -> None:
    for step in (1, 2):
        checkpoint.write(tmp_path / f"step-0000000{step}.safetensors", {"a": torch.ones(1)}, {"steps": [step]})
    average_checkpoints([tmp_path / "step-00000001.safetensors"])
    (tmp_path / "step-00000001.safetensors").replace(tmp_path / "step-00000002.safetensors")
    with pytest.raises(ModelError, match=r"after update \[1\]: it has another checkpoint's name"):
        average_checkpoints([tmp_path / "step-00000002.safetensors"])


UNTRUSTED: dict[str, tuple[Change, str]] = {
    "extends a device": (lambda values: values.update(extends="/dev/zero"), "may not extend"),
    "extends a folder above": (lambda values: values.update(extends="../.."), "may not extend"),
    "extends a recipe": (lambda values: values.update(extends="experiment.yaml"), "may not extend"),
    "layers": (lambda values: values["model"].update(num_layers=10_000_000), f"at most {MAX_LAYERS}"),
    "width": (lambda values: values["model"].update(ffn_dim=10**12), "at most 1000000"),
    "longest translation": (lambda values: values["search"].update(max_length_offset=1e30), "max_length_offset: "),
    "length factor": (lambda values: values["search"].update(max_length_factor=1e300), "at most"),
    "beam": (lambda values: values["search"].update(beam_size=10**9), "at most"),
}


@pytest.mark.parametrize(("change", "message"), UNTRUSTED.values(), ids=UNTRUSTED)
@pytest.mark.parametrize("bound", [True, False])
def test_a_model_from_elsewhere_is_not_trusted(run: Path, change: Change, message: str, bound: bool) -> None:
    if not bound:
        unbind(run)
    edit(run / "experiment.yaml", change)
    with pytest.raises(ModelError, match=message):
        Translator.from_pretrained(run, device="cpu")


def test_nothing_is_allocated_for_a_model_that_its_weights_are_not_of(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sizes within the bounds may still be thousands of gigabytes."""
    unbind(run)
    edit(run / "experiment.yaml", lambda values: values["model"].update(embed_dim=65_536, ffn_dim=1_000_000))
    monkeypatch.setattr(checkpoint, "read", lambda path: pytest.fail("the weights were read"))
    with pytest.raises(ModelError, match=r"is \(8,\) instead of \(65536,\)"):
        load_run(run, "cpu")


@pytest.mark.slow
@pytest.mark.parametrize("family", ["transformer", "reformer-fast"])
def test_comparing_with_the_configuration_costs_no_imports(tmp_path: Path, family: str) -> None:
    """Random values on the meta device would make torch import sympy, which takes a second."""
    shortcuts = {"kind": "fusion"}
    model = {"family": family, "embed_dim": 8, "num_heads": 2, "ffn_dim": 8, "shortcuts": shortcuts}
    run = write_run_of(tmp_path / "run", Experiment.parse({**experiment().plain(), "model": model}, "test"))
    code = f"import sys; from jointnmt import Translator; Translator.load({str(run)!r}, 'cpu'); print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert "sympy" not in result.stdout.split()


def test_checkpoints_of_another_training_are_not_averaged(tmp_path: Path) -> None:
    """Checkpoints of the same model and segmentation fit, but their average would belong to no training."""
    runs = [write_run(tmp_path / str(seed), seed=seed) for seed in (1, 2)]
    one, two = (run / "model.safetensors" for run in runs)
    with pytest.raises(ModelError, match=r"a checkpoint of another training: seed: 2 -> 1"):
        average_into(tmp_path / "mean.safetensors", [one, two])
    assert not (tmp_path / "mean.safetensors").exists()
    average_into(tmp_path / "mean.safetensors", [one, one])
    assert checkpoint.read_values(tmp_path / "mean.safetensors")["training"]["seed"] == 1


TOLD: dict[str, tuple[Any, Any, bool]] = {
    "nothing": (None, {"seed": 1}, True),
    "less": ({"seed": 1}, {"seed": 1, "from": ""}, True),
    "no section": ({"seed": 1, "validation": None}, {"seed": 1, "validation": {"every_epochs": 1}}, False),
    "no weights of texts": ({"seed": 1}, {"seed": 1, "weights": [2.0, 1.0]}, False),
    "the same weights of texts": ({"weights": [2.0, 1.0]}, {"weights": [2.0, 1.0]}, True),
}
"""Records of their training in two checkpoints, and whether it may be the same one."""


@pytest.mark.parametrize(("one", "other", "same"), TOLD.values(), ids=TOLD)
def test_the_order_of_what_is_averaged_makes_no_difference(tmp_path: Path, one: Any, other: Any, same: bool) -> None:
    for name, told in {"one": one, "other": other}.items():
        values = {"steps": [1]} if told is None else {"steps": [1], "training": told}
        checkpoint.write(tmp_path / name, {"a": torch.ones(1)}, values)
    for names in (["one", "other"], ["other", "one"]):
        with nullcontext() if same else pytest.raises(ModelError, match="another training"):
            average_into(tmp_path / "mean", [tmp_path / name for name in names])


def test_what_tells_nothing_of_its_training_does_not_hide_that_others_differ(tmp_path: Path) -> None:
    for seed in (0, 1, 2):
        values = {"steps": [1], **({"training": {"seed": seed}} if seed else {})}
        checkpoint.write(tmp_path / str(seed), {"a": torch.ones(1)}, values)
    with pytest.raises(ModelError, match="another training: seed"):
        average_into(tmp_path / "mean", [tmp_path / str(seed) for seed in (0, 1, 2)])
