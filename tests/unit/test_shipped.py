"""Models in the package."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from jointnmt.cli.main import app
from jointnmt.cluster.shards import packed
from jointnmt.errors import ConfigurationError, ModelError
from jointnmt.runs.directory import RunDirectory
from jointnmt.runs.members import members_of
from jointnmt.serving.names import named_paths
from jointnmt.shipped import MODELS, locate_run, shipped_models
from jointnmt.translator import Translator

NAME = "tatoeba-de-en-transformer"
MODEL = f"package:{NAME}"


def test_a_model_of_the_package_is_found_by_its_name() -> None:
    assert locate_run(Path(MODEL)) == MODELS / NAME
    assert RunDirectory(Path(MODEL)).model.is_file()
    assert named_paths([MODEL, f"other={MODEL}"]) == {NAME: MODELS / NAME, "other": MODELS / NAME}
    assert members_of(Path(f"{MODEL}+runs/mine")) == [MODELS / NAME, Path("runs/mine")]
    assert locate_run(Path(f"runs/{NAME}")) == Path(f"runs/{NAME}")


@pytest.mark.parametrize("name", ["package:", "package:..", "package:tatoeba", f"package:./{NAME}"])
def test_others_are_refused(name: str) -> None:
    with pytest.raises(ModelError, match=f"no such model in the package. It has: .*{NAME}"):
        locate_run(Path(name))


@pytest.mark.slow
def test_its_folder_is_that_of_the_translator() -> None:
    translator = Translator.load(MODEL, "cpu")
    assert translator.run == MODELS / NAME
    assert "model.safetensors" in packed([translator.run])[0]
    with pytest.raises(ConfigurationError, match="given twice"):
        Translator.load([MODEL, MODELS / NAME], "cpu")


@pytest.mark.slow
@pytest.mark.parametrize("name", shipped_models())
def test_every_model_of_the_package_translates(name: str) -> None:
    assert "dog" in Translator.load(f"package:{name}", "cpu").translate(["Der Hund schläft."])[0]


@pytest.mark.slow
def test_info_takes_models_and_recipes_of_the_package() -> None:
    result = CliRunner().invoke(app, ["info", MODEL, "package:tatoeba/de-en-transformer", "--json"])
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == 2
