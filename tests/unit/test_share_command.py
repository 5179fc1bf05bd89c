"""`jointnmt share`: a small folder with a card."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from jointnmt import Translator
from jointnmt.cli.main import app
from jointnmt.text.config import SegmentationConfig
from jointnmt.text.segmentation import Segmentation
from support.tiny_run import write_run

SOURCES = ["der Hund sieht die Katze .", "die Katze hört !"]
REFERENCES = ["the dog sees the cat .", "the cat hears !"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JOINTNMT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "test.de").write_text("".join(f"{line}\n" for line in SOURCES))
    (tmp_path / "test.en").write_text("".join(f"{line}\n" for line in REFERENCES))
    return write_run(tmp_path / "run", seed=7)


def share(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["--quiet", "share", *map(str, arguments), "--device", "cpu"])


def test_a_shared_run_translates_and_states_what_it_scores(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    files = f"test={tmp_path / 'test.de'},{tmp_path / 'test.en'}"
    facts = ["--licence", "CC BY 2.0", "--data-licence", "Tatoeba", "--limits", "Only animals."]
    result = share(run, "--out", folder, "--test", files, *facts)
    assert result.exit_code == 0, result.output
    names = {path.name for path in folder.iterdir()}
    assert names == {"experiment.yaml", "model.safetensors", "segmentation", "config.json", "README.md"}
    card = (folder / "README.md").read_text()
    for stated in ("CC BY 2.0", "Tatoeba", "Only animals.", "with seed 7", "Stored in float16", "A word that the"):
        assert stated in card
    assert str(tmp_path) not in card
    assert json.loads((folder / "config.json").read_text())["jointnmt"]["family"] == "reformer-fast"

    translated = CliRunner().invoke(app, ["translate", str(folder), "--input", str(tmp_path / "test.de")]).stdout
    (tmp_path / "out.en").write_text(translated)
    scored = ["--hypothesis", tmp_path / "out.en", "--reference", tmp_path / "test.en", "--json"]
    values = json.loads(CliRunner().invoke(app, ["--quiet", "evaluate", *map(str, scored)]).stdout)
    for metric, title in (("bleu", "BLEU"), ("chrf", "chrF2"), ("ter", "TER")):
        assert f"| test | {title} | {values['systems'][0][metric]['value']:.2f} |" in card


def test_weights_are_those_of_the_run_rounded(run: Path, tmp_path: Path) -> None:
    trained = Translator.load(run, "cpu").model.state_dict()
    for precision in ("float16", "float32"):
        assert share(run, "--out", tmp_path / precision, "--weights", precision).exit_code == 0
        loaded = Translator.load(tmp_path / precision, "cpu").model.state_dict()
        for name, tensor in trained.items():
            assert torch.equal(loaded[name], tensor.to(getattr(torch, precision)).float()), name
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("float16", "float32")]
    assert sizes[0] < sizes[1]


def test_the_current_folder_is_one(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    result = share(run, "--out", ".")
    assert result.exit_code == 0, result.output
    assert "empty" in (tmp_path / "empty" / "README.md").read_text(encoding="utf-8")


def test_nothing_is_overwritten_or_left_half_done(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    assert share(run, "--out", folder).exit_code == 0
    again = share(run, "--out", folder)
    assert (again.exit_code, "not empty" in again.stderr) == (2, True)
    (tmp_path / "test.de").write_text(f"{SOURCES[0]}\n\n")  # the error appears when the folder is half done
    result = share(run, "--out", tmp_path / "other", "--test", f"t={tmp_path / 'test.de'},{tmp_path / 'test.en'}")
    assert result.exit_code == 3, result.stderr
    assert not [path for path in tmp_path.iterdir() if "other" in path.name]


@pytest.mark.parametrize("given", ["test.de,test.en", "t=test.de", "=a,b", "t=,b"])
def test_a_test_set_has_a_name_and_two_files(run: Path, tmp_path: Path, given: str) -> None:
    result = share(run, "--out", tmp_path / "shared", "--test", given)
    assert (result.exit_code, "NAME=SOURCE,REFERENCE" in result.stderr) == (2, True)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_compact_segmentation_is_the_same(tmp_path: Path, kind: str) -> None:
    config = SegmentationConfig.parse({"kind": kind, "vocabulary_size": 40, "min_frequency": 1}, origin="test")
    text = [*SOURCES, "Spaces\u2009 and\u00a0more \u3000 of them"]
    trained = Segmentation.train(config, text, REFERENCES, "de", "en")
    trained.save(tmp_path)
    loaded = Segmentation.load(tmp_path)
    assert loaded.fingerprint() == trained.fingerprint()
    assert [loaded.source.encode(each) for each in text] == [trained.source.encode(each) for each in text]
    stored = (tmp_path / "joint.json").read_text()
    assert len(stored) < 0.7 * len(trained.source.to_json())
