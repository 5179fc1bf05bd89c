"""Configurations as YAML."""

from __future__ import annotations

from pathlib import Path

import pytest

from jointnmt.config import read_yaml
from jointnmt.errors import ConfigurationError


def test_a_key_given_twice_is_an_error(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("seed: 1\ntraining: {max_epochs: 1}\nmodel:\n  family: x\ntraining: {precision: float32}\n")
    with pytest.raises(ConfigurationError, match=r"(?s)'training' is given twice.*line 5"):
        read_yaml(recipe)
    recipe.write_text("seed: 1\nmodel: {a: 1}\ndata: {a: 1}\n")
    assert read_yaml(recipe) == {"seed": 1, "model": {"a": 1}, "data": {"a": 1}}
