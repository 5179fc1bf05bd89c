"""Exported Transformers compute the same in CTranslate2; models that it cannot express are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ctranslate2
import pytest
from typer.testing import CliRunner

from jointnmt.cli.main import app
from jointnmt.errors import ConfigurationError, ModelError
from jointnmt.experiment import Experiment
from jointnmt.export import export_ctranslate2
from jointnmt.runs.loading import load_run
from jointnmt.text.segmentation import Segmentation
from jointnmt.training.progress import NoDisplay
from jointnmt.training.run import train
from jointnmt.translator import Translator
from support.tiny import tiny_recipe, write_corpus
from support.tiny_run import write_run

SOURCES = ["wort1 wort2 wort3", "wort7", "wort11 neu wort2 wort2 wort5 wort19"]
TARGETS = ["word3 word2 word1", "word7 word7", "neu word5"]

VARIANTS: dict[str, dict[str, Any]] = {
    "pre-norm": {},
    "post-norm": {"norm": "post"},
    "one table": {"embeddings": "all"},
    "two tables": {"embeddings": "target"},
    "no biases": {"attention_bias": False},
    "deep encoder": {"encoder_layers": 3, "decoder_layers": 1},
    "emelin": {"emelin_compatible": True},
}


def trained(folder: Path, segmentation: dict[str, Any] | None = None, **model: Any) -> Path:
    write_corpus(folder)
    values = tiny_recipe(folder, training__max_updates=3)
    sizes = {"embed_dim": 16, "num_heads": 2, "ffn_dim": 24}
    values["model"] = {"family": "transformer", "encoder_layers": 2, "decoder_layers": 2, **sizes, **model}
    if model.get("embeddings") == "all":
        values["segmentation"] = {"kind": "bpe", "joint": True, "vocabulary_size": 80, "min_frequency": 1}
    values["segmentation"] |= segmentation or {}
    train(Experiment.parse(values, origin="test"), folder / "run", NoDisplay())
    return folder / "run"


def log_probabilities(folder: Path) -> list[float]:
    segmentation = Segmentation.load(folder / "segmentation")
    engine = ctranslate2.Translator(str(folder), device="cpu", compute_type="float32", intra_threads=1)
    pieces = ([segmentation.source.encode(text) for text in SOURCES], [segmentation.target.encode(t) for t in TARGETS])
    return [sum(each.log_probs) for each in engine.score_batch(*pieces)]


@pytest.mark.parametrize("variant", VARIANTS)
def test_log_probabilities_are_equal(variant: str, tmp_path: Path) -> None:
    """The translations include an end mark, an unknown word, and different lengths."""
    run = trained(tmp_path, **VARIANTS[variant])
    export_ctranslate2(run, tmp_path / "exported")
    expected = [each.log_probability for each in Translator.load(run).score(SOURCES, TARGETS)]
    assert log_probabilities(tmp_path / "exported") == pytest.approx(expected, 1e-5)


def test_the_exported_segmentation_divides_as_that_of_the_run(tmp_path: Path) -> None:
    run = trained(tmp_path, {"split_digits": True}, embeddings="all")
    export_ctranslate2(run, tmp_path / "exported")
    pieces = Segmentation.load(tmp_path / "exported" / "segmentation").source.encode(SOURCES[2])
    assert pieces == Translator.load(run).segmentation.source.encode(SOURCES[2]) and pieces[:3] == ["▁wort", "1", "1"]
    expected = [each.log_probability for each in Translator.load(run).score(SOURCES, TARGETS)]
    assert log_probabilities(tmp_path / "exported") == pytest.approx(expected, 1e-5)


def test_translations_of_a_shipped_model_are_equal(tmp_path: Path) -> None:
    """For sentences whose second best translation is far behind, as int8 moves scores by 0.06 without VNNI."""
    run = Path("package:tatoeba-de-en-transformer")
    texts = ["Ich hatte keine Ahnung, wo ich war.", "Tom ist mein Bruder.", "Maria trinkt keinen Kaffee."]
    expected = [translation.candidates[0] for translation in Translator.load(run).translate_stream(texts)]
    for precision in ("float32", "int8"):
        folder = str(tmp_path / precision)
        command = ["export", str(run), "--to", "ctranslate2", "--out", folder, "--weights", precision]
        assert CliRunner().invoke(app, command).exit_code == 0
        segmentation = Segmentation.load(Path(folder) / "segmentation")
        pieces = [segmentation.source.encode(text) for text in texts]
        engine = ctranslate2.Translator(folder, device="cpu", compute_type=precision, intra_threads=1)
        found = engine.translate_batch(pieces, beam_size=5, return_scores=True)
        assert [segmentation.target.decode(each.hypotheses[0]) for each in found] == [each.text for each in expected]
        tolerance = 1e-3 if precision == "float32" else 0.05
        assert [each.scores[0] for each in found] == pytest.approx([each.score for each in expected], abs=tolerance)
    sizes = [(tmp_path / precision / "model.bin").stat().st_size for precision in ("float32", "int8")]
    assert sizes[1] < 0.4 * sizes[0]


@pytest.mark.parametrize(
    ("run", "message"),
    [
        ("package:tatoeba-de-en-reformer-fast", "not a Transformer"),
        ("shortcuts", "has lexical shortcuts"),
        ("subclass", "is a Doubled, not a Transformer"),
    ],
)
def test_what_it_cannot_express_is_refused(
    run: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if run == "shortcuts":
        run = str(trained(tmp_path, shortcuts={"kind": "plain"}))
    if run == "subclass":
        run = str(trained(tmp_path))
        model, *rest = load_run(Path(run), "cpu")
        model.__class__ = type("Doubled", (type(model),), {})
        monkeypatch.setattr("jointnmt.export.load_run", lambda *_: (model, *rest))
    with pytest.raises(ModelError, match=message):
        export_ctranslate2(Path(run), tmp_path / "exported")
    assert not list(tmp_path.glob("*exported*"))


def test_the_current_folder_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path / "run", model={"family": "transformer"})
    (tmp_path / "exported").mkdir()
    monkeypatch.chdir(tmp_path / "exported")
    export_ctranslate2(run, Path())
    assert {path.name for path in tmp_path.iterdir()} == {"run", "exported"}
    assert (tmp_path / "exported" / "model.bin").exists()


def test_the_folder_is_new_and_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = trained(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    with pytest.raises(ConfigurationError, match="not empty"):
        export_ctranslate2(run, tmp_path / "full")
    (tmp_path / "empty").mkdir()
    monkeypatch.setattr("jointnmt.export.shutil.copytree", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        export_ctranslate2(run, tmp_path / "empty")
    assert not list((tmp_path / "empty").iterdir()) and not list(tmp_path.glob(".empty*"))
