"""A family of another package, `examples/own_family`: commands know it once it is installed."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from jointnmt.models import check_model
from jointnmt.models.families import known_families
from jointnmt.models.quantize import kernels_multiply
from support.families import VOCABULARY
from support.own_family import PACKAGE, install
from support.tiny import tiny_recipe, write_corpus

SOURCES = "der Hund sieht die Katze .\ndie Katze hört\nein Mann schläft .\n"


def jointnmt(site: Path, *arguments: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """The command with the packages in `site` installed."""
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "jointnmt", *map(str, arguments)],
        input=stdin,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    install(folder)
    return folder


@pytest.fixture(scope="module")
def run(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A RUN of the family."""
    folder = tmp_path_factory.mktemp("rnn")
    write_corpus(folder)
    recipe = folder / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(tiny_recipe(folder)), encoding="utf-8")
    trained = jointnmt(
        site, "train", recipe, "--out", folder / "run", "--set", "model.family=rnn", "--set", "training.max_updates=10"
    )
    assert trained.returncode == 0, trained.stderr
    assert "ignores inherited settings of the transformer: model.decoder_layers, model.encoder_layers" in trained.stderr
    return folder / "run"


def test_it_is_trained_and_translates(site: Path, run: Path) -> None:
    assert yaml.safe_load((run / "experiment.yaml").read_text(encoding="utf-8"))["model"]["family"] == "rnn"
    assert json.loads((run / "versions.json").read_text(encoding="utf-8"))["packages"]["jointnmt-rnn"] == "1.0"
    together = jointnmt(site, "translate", run, stdin=SOURCES)
    assert together.returncode == 0, together.stderr
    alone = [jointnmt(site, "translate", run, stdin=f"{line}\n").stdout for line in SOURCES.splitlines()]
    assert together.stdout == "".join(alone) and all(together.stdout.splitlines())


def test_it_keeps_the_promises_of_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PACKAGE)
    config, make = importlib.import_module("jointnmt_rnn").FAMILY
    torch.manual_seed(3)
    check_model(make(config(embed_dim=8, num_heads=1), VOCABULARY, VOCABULARY).double(), VOCABULARY, VOCABULARY)


@pytest.mark.parametrize(
    ("old", "new", "code", "message"),
    [
        (
            "state.position + 1)",
            "state.position)",
            4,
            "RNN breaks the interface of models: `step` computes",
        ),
        (
            "state = self.start(source)",
            "state = self.begin(source)",
            1,
            ", in forward: AttributeError: 'RNN' object",
        ),
    ],
)
def test_a_family_with_an_error_is_named_before_it_is_trained(
    tmp_path: Path, old: str, new: str, code: int, message: str
) -> None:
    install(tmp_path)
    module = tmp_path / "jointnmt_rnn.py"
    text = module.read_text(encoding="utf-8")
    module.write_text(text.replace(old, new), encoding="utf-8")
    assert module.read_text(encoding="utf-8") != text
    write_corpus(tmp_path)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(tiny_recipe(tmp_path)), encoding="utf-8")
    trained = jointnmt(tmp_path, "train", recipe, "--out", tmp_path / "run", "--set", "model.family=rnn")
    said = " ".join(trained.stderr.split())
    assert trained.returncode == code and message in said, trained.stderr
    if code == 1:
        assert f"error: {module}:" in said and "This is in a family of another package" in said
        assert "error in jointnmt" not in said


def test_its_attention_can_be_looked_at_and_its_layers_cannot(site: Path, run: Path, tmp_path: Path) -> None:
    page = tmp_path / "numbers.json"
    explored = jointnmt(site, "explore", run, "--text", "der Hund sieht die Katze .", "--out", page)
    assert explored.returncode == 0, explored.stderr
    [sentence] = json.loads(page.read_text(encoding="utf-8"))["sentences"]
    inspection = sentence["by_model"]["run"]["inspection"]
    assert list(inspection["attention"]) == ["cross"] and not inspection["states"]
    (tmp_path / "text").write_text("der Hund\n", encoding="utf-8")
    probed = jointnmt(
        site, "probe", run, "--source", tmp_path / "text", "--reference", tmp_path / "text", "--out", tmp_path / "out"
    )
    assert probed.returncode == 4 and "The hidden states of a RNN are not defined" in probed.stderr


def test_where_a_family_writes_no_alignment_who_asks_for_it_is_told(tmp_path: Path, run: Path) -> None:
    install(tmp_path)
    module = tmp_path / "jointnmt_rnn.py"
    text = module.read_text(encoding="utf-8")
    module.write_text(text.replace("if attn_weights is not None:", "if False:"), encoding="utf-8")
    assert module.read_text(encoding="utf-8") != text
    assert jointnmt(tmp_path, "translate", run, "--json", stdin=SOURCES).returncode == 0
    refused = jointnmt(tmp_path, "translate", run, "--json", "--alignments", stdin=SOURCES)
    assert refused.returncode == 4 and "This model does not provide an alignment" in refused.stderr


def test_without_its_package_a_model_is_refused_with_the_families_there_are(run: Path) -> None:
    if "rnn" in known_families():
        pytest.skip("the package of the example is installed here")
    refused = jointnmt(Path("nowhere"), "translate", run, stdin=SOURCES)
    assert refused.returncode == 5 and refused.stdout == ""
    assert "'rnn', is not installed. It was defined by jointnmt-rnn 1.0: install that" in " ".join(
        refused.stderr.split()
    )
    assert "Traceback" not in refused.stderr
    (run / "versions.json").rename(run / "elsewhere")
    refused = jointnmt(Path("nowhere"), "translate", run, stdin=SOURCES)
    (run / "elsewhere").rename(run / "versions.json")
    assert refused.returncode == 4
    assert "families of other packages need these installed (given: 'rnn')" in refused.stderr


def test_a_shared_model_names_the_package_of_its_family(site: Path, run: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    written = jointnmt(site, "share", run, "--out", shared)
    assert written.returncode == 0, written.stderr
    assert "The family is defined by jointnmt-rnn 1.0" in (shared / "README.md").read_text(encoding="utf-8")
    assert jointnmt(site, "translate", shared, stdin=SOURCES).stdout
    if "rnn" not in known_families():
        refused = jointnmt(Path("nowhere"), "info", shared)
        assert refused.returncode == 5 and "jointnmt-rnn 1.0" in " ".join(refused.stderr.split())


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            "jointnmt_rnn:RNN",
            "The family 'rnn' of jointnmt-rnn, jointnmt_rnn:RNN, should be a jointnmt.models.Family, but is a",
        ),
        ("jointnmt_rnn:NONE", "cannot be imported: AttributeError: module 'jointnmt_rnn' has no attribute 'NONE'"),
        ("nothing_there:FAMILY", "cannot be imported: ModuleNotFoundError: No module named"),
    ],
)
def test_what_is_no_family_is_told_with_its_package(tmp_path: Path, run: Path, entry: str, message: str) -> None:
    install(tmp_path, entry)
    refused = jointnmt(tmp_path, "translate", run, stdin=SOURCES)
    assert refused.returncode == 5 and message in refused.stderr
    assert "Traceback" not in refused.stderr


def test_an_entry_point_has_the_name_of_its_family(tmp_path: Path, run: Path) -> None:
    install(tmp_path)
    entries = next(tmp_path.glob("*.dist-info")) / "entry_points.txt"
    entries.write_text("[jointnmt.families]\nother = jointnmt_rnn:FAMILY\n", encoding="utf-8")
    refused = jointnmt(tmp_path, "info", run / "experiment.yaml", "--set", "model.family=other")
    assert refused.returncode == 5 and "the field family: Literal['other']" in refused.stderr


def test_a_family_of_two_packages_is_refused(tmp_path: Path, run: Path) -> None:
    install(tmp_path)
    other = tmp_path / "another-1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: another\nVersion: 1.0\n", encoding="utf-8")
    (other / "entry_points.txt").write_text("[jointnmt.families]\nrnn = another:FAMILY\n", encoding="utf-8")
    refused = jointnmt(tmp_path, "translate", run, stdin=SOURCES)
    assert refused.returncode == 5 and "is provided by another and jointnmt-rnn" in refused.stderr


def test_its_own_products_are_not_taken_for_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Translations in bfloat16 may then depend on their batch, so that `--precision auto` does not choose it."""
    monkeypatch.syspath_prepend(PACKAGE)
    config, make = importlib.import_module("jointnmt_rnn").FAMILY
    assert not kernels_multiply(make(config(embed_dim=64), VOCABULARY, VOCABULARY), "bfloat16")


def test_a_key_is_suggested_that_its_settings_have(site: Path, run: Path) -> None:
    wrong = jointnmt(site, "info", run / "experiment.yaml", "--set", "model.embed_dims=8")
    assert wrong.returncode == 2 and "(did you mean embed_dim?)" in wrong.stderr, wrong.stderr
