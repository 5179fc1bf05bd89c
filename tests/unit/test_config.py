"""Configurations as YAML."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from jointnmt.bounded_yaml import YAMLError, parse_yaml
from jointnmt.config import differences, in_words, override, read_yaml
from jointnmt.errors import ConfigurationError
from jointnmt.experiment import Experiment
from jointnmt.models import FAMILIES, FamilyConfig
from support.tiny import tiny_recipe


def test_a_key_given_twice_is_an_error(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("seed: 1\ntraining: {max_epochs: 1}\nmodel:\n  family: x\ntraining: {precision: float32}\n")
    with pytest.raises(ConfigurationError, match=r"(?s)'training' is given twice.*line 5"):
        read_yaml(recipe)
    recipe.write_text("seed: 1\nmodel: {a: 1}\ndata: {a: 1}\n")
    assert read_yaml(recipe) == {"seed": 1, "model": {"a": 1}, "data": {"a": 1}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data: {root: {{ROOT}}}\n", "unhashable key"),
        ("name: 2024-13-01\n", "month must be in 1..12"),
        ("a: [1\n", "expected ',' or ']'"),
    ],
)
def test_what_is_no_yaml_is_told_with_its_file(tmp_path: Path, text: str, message: str) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(text)
    with pytest.raises(ConfigurationError, match=r"recipe\.yaml: is not valid YAML: ") as caught:
        read_yaml(recipe)
    assert message in str(caught.value)
    with pytest.raises(ConfigurationError, match=r"--set name=.*: the value is not valid YAML"):
        override({}, [f"name={text.partition(':')[2].strip()}"])


def test_a_missing_space_before_a_syntax_error_is_told() -> None:
    for text, hint in (
        ("model:\n  dropout:0.1\n\n  embed_dim: 64\n", " (line 2: did you mean dropout: 0.1, with a space"),
        ("seed:1  # the first\n# model\nmodel: {dropout: 0.1}\n", " (line 1: did you mean seed: 1, with a space"),
    ):
        with pytest.raises(YAMLError) as caught:
            parse_yaml(text)
        assert hint in str(caught.value)
    with pytest.raises(YAMLError) as caught:
        parse_yaml("source: C:/data\n  x: 1\n")
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model__famly": 1}, "model.famly: is not a known key (did you mean family?)"),
        ({"model__encoder_layer": 1}, "model.encoder_layer: is not a known key (did you mean encoder_layers?)"),
        ({"model__num_layers": 1}, "model.num_layers: is not a known key (did you mean encoder_layers?)"),  # Reformers'
        ({"training__schedule": {"warmup": 1}}, "schedule.warmup: is not a known key (did you mean warmup_steps?)"),
        (
            {"training__schedule": {"warmup_steps:9": None}},
            "(did you mean warmup_steps: 9, with a space after the colon?)",
        ),
        ({"validation": {"every": 9}}, "every: is not a known key (did you mean every_epochs or every_updates?)"),
        ({"model__shortcuts": {"kin": 1}}, "model.shortcuts.kin: is not a known key (did you mean kind?)"),
        ({"data__train": [{"sorce": "a", "target": "b"}]}, "train.0.sorce: is not a known key (did you mean source?)"),
        (
            {"model__family": "nothing"},
            "model: family should be one of 'transformer', 'reformer-base', 'reformer-fast'",
        ),
        (
            {"model__family": "nothing"},
            "; families of other packages need these installed (given: 'nothing')",
        ),
        ({"model__family": None}, "model: family is missing"),
        (
            {"model__family": 3},
            "(given: '3')",
        ),
        ({"model__dropout": 2}, "model.dropout: should be less than 1 (given: 2)"),
        ({"model__embed_dim": 15}, "model: embed_dim 15 is not a multiple of num_heads 2"),
        ({"model__embeddings": "all", "segmentation__joint": False}, "model.embeddings 'all' needs segmentation.joint"),
        ({"training__devices": "many"}, "training.devices: should be a whole number or 'auto' (given: 'many')"),
        ({"seed": True}, "not valid. seed should be a number (given: True)"),
        ({"model__dropout": False}, "model: dropout should be a number (given: False)"),
        ({"training__optimizer": {"betas": [False, 0.9]}}, "betas should be a number (given: [False, 0.9])"),
        ({"data__source_language": False}, "data.source_language: should be text (given: False), as"),
        ({"data__train": [{"source": "a", "target": "b", "x": 1}]}, "data.train.0.x: is not a known key"),
        ({"data__train": []}, "data.train: should not be empty (given: [])"),
    ],
)
def test_a_wrong_value_is_named_by_its_key_and_nothing_else_is(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Experiment.parse(tiny_recipe(Path("corpus"), **changes), origin="recipe.yaml")
    text = str(caught.value)
    assert text.startswith("recipe.yaml: the configuration is not valid. ")
    assert message in text
    assert "transformer." not in text and "{" not in text
    for hint in ("at least", "did you mean"):
        assert (hint in text) == (hint in message)


def bounded(config: Any, path: str = "") -> Iterator[tuple[str, bool]]:
    """All numbers of a configuration, nested ones included, and whether they have an upper bound."""
    for name, field in config.model_fields.items():
        text = repr(field)
        for part in {*field_parts(field.annotation)}:
            if part is FamilyConfig:
                for family in FAMILIES.values():
                    yield from bounded(family.config, f"{path}{name}.")
            yield from bounded(part, f"{path}{name}.")
        kinds = {*field_kinds(field.annotation)}
        if kinds & {int, float} and str not in kinds:
            yield f"{path}{name}", "Le(" in text or "Lt(" in text or "le=" in text


def field_kinds(annotation: Any) -> Iterator[type]:
    if isinstance(annotation, type) and not get_args(annotation):
        yield annotation
    for argument in get_args(annotation):
        yield from field_kinds(argument)


def field_parts(annotation: Any) -> Iterator[type[BaseModel]]:
    return (kind for kind in field_kinds(annotation) if issubclass(kind, BaseModel))


def test_every_number_has_an_upper_bound() -> None:
    found = dict(bounded(Experiment))
    assert {"model.embed_dim", "model.encoder_layers", "search.beam_size", "training.devices"} <= found.keys()
    assert [name for name, has in found.items() if not has] == ["training.optimizer.betas"]  # which are below 1


def test_what_a_wrong_setting_is_told_to_be_is_a_setting() -> None:
    with pytest.raises(ConfigurationError, match=r"such as (\S+=\S+)\.$") as caught:
        override({}, ["model"])
    example = str(caught.value).rpartition(" ")[2].removesuffix(".")
    Experiment.parse(override(tiny_recipe(Path("corpus")), [example]), origin="test")


def test_r_drop_needs_dropout(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"training\.r_drop needs dropout"):
        Experiment.model_validate(tiny_recipe(tmp_path, training__r_drop=5.0, model__dropout=0.0))
    for key in ("dropout", "attention_dropout", "embedding_dropout"):
        recipe = tiny_recipe(tmp_path, training__r_drop=5.0, **{"model__dropout": 0.0, f"model__{key}": 0.1})
        assert Experiment.model_validate(recipe).training.r_drop == 5
    none = dict.fromkeys(("dropout", "attention_dropout", "hidden_dropout"), 0.0)
    grid = {"family": "reformer-fast", "embed_dim": 16, "num_heads": 2, "shared_dropout": True, **none}
    with pytest.raises(ValueError, match=r"training\.r_drop needs dropout"):
        Experiment.model_validate({**tiny_recipe(tmp_path, training__r_drop=5.0), "model": grid})


def test_only_some_of_many_differences_are_told() -> None:
    changed = differences({"a": 1, "b": {"c": 2}}, {f"{name}": 0 for name in range(6)})
    assert len(changed) == 8
    assert (
        in_words(changed)
        == "0: (absent) -> 0; 1: (absent) -> 0; 2: (absent) -> 0; 3: (absent) -> 0; 4: (absent) -> 0; and 3 more"
    )
    assert in_words(changed[-2:]) == "a: 1 -> (absent); b.c: 2 -> (absent)"
