"""Text in pieces for Joey NMT: the pieces are those of the run, and can be joined to its text."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import yaml
from results.joeynmt.__main__ import TEXTS, main

from jointnmt.text.segmentation import Segmentation

RUN = "pretrained/tatoeba-de-en-transformer"
LINES = {"de": "Ich habe meinen Schlüssel verloren.\nWo ist er?\n", "en": "I have lost my key.\nWhere is it?\n"}


def test_pieces_are_those_of_the_run_and_come_back(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in TEXTS:
        for language, lines in LINES.items():
            (tmp_path / f"{name}.{language}").write_text(lines, encoding="utf-8")
    out = tmp_path / "pieces"
    assert main(["pieces", str(repository / RUN), str(tmp_path), str(out)]) == 0
    target = Segmentation.load(repository / RUN / "segmentation").target
    pieces = (out / "train.en").read_text(encoding="utf-8")
    assert [line.split() for line in pieces.splitlines()] == [target.encode(each) for each in LINES["en"].splitlines()]
    vocabulary = (out / "vocabulary.txt").read_text(encoding="utf-8").splitlines()
    assert set(pieces.split()) <= set(vocabulary) and len(vocabulary) == len(set(vocabulary))
    monkeypatch.setattr("sys.stdin", io.StringIO(pieces))
    assert main(["text", str(repository / RUN)]) == 0
    assert capsys.readouterr().out == LINES["en"]


def test_the_transformer_is_that_of_the_recipe(repository: Path) -> None:
    names = "results/joeynmt/multi30k-en-de-transformer.yaml", "recipes/multi30k/_en-de.yaml"
    files = (repository / name for name in names)
    theirs, ours = (yaml.safe_load(file.read_text(encoding="utf-8"))["model"] for file in files)
    for stack in ("encoder", "decoder"):
        sizes = theirs[stack]
        assert (sizes["hidden_size"], sizes["num_heads"], sizes["ff_size"], sizes["num_layers"]) == (
            ours["embed_dim"], ours["num_heads"], ours["ffn_dim"], 4,
        )  # fmt: skip
