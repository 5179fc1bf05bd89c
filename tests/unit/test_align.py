"""Word alignments: compared with those by hand, and those of a run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from jointnmt.analysis.alignment import align_words, pharaoh, word_numbers
from jointnmt.cli.main import app
from jointnmt.translator import Translator
from support.tiny_run import write_run


def test_words_begin_where_a_space_precedes() -> None:
    assert word_numbers(["▁un", "der", "▁a", "s"], whole_words=False) == [0, 0, 1, 1]
    assert word_numbers(["x", "▁a"], whole_words=False) == [0, 1]
    assert word_numbers(["un", "der"], whole_words=True) == [0, 1]
    assert word_numbers([], whole_words=False) == []


def test_a_target_word_is_linked_with_the_heaviest_source_word() -> None:
    weights = torch.tensor(
        [  # ▁a    ▁b    c    end mark
            [0.40, 0.25, 0.30, 0.05],  # ▁x: the word of two pieces is heavier than the heaviest piece
            [0.10, 0.10, 0.10, 0.70],  # ▁y: the end mark
            [0.90, 0.00, 0.00, 0.10],  # ▁z, first piece
            [0.10, 0.30, 0.30, 0.30],  # ▁z, second piece: over both, the first word is heavier
            [0.00, 0.00, 0.00, 1.00],  # end mark
        ]
    )
    links = align_words(weights, [0, 1, 1], [0, 1, 2, 2])
    assert links == [(1, 0), (0, 2)]
    assert pharaoh(links) == "0-2 1-0"
    assert align_words(weights[:1], [0, 1, 1], []) == []


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("run"))


SOURCES = ["der Hund sieht die Katze .", "", "die Katze hört"]
TARGETS = ["the dog sees the cat .", "", "the cat hears"]


def test_the_command_writes_a_line_for_each_pair(run: Path, tmp_path: Path) -> None:
    for name, lines in (("de", SOURCES), ("en", TARGETS)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    texts = ["--source", str(tmp_path / "de"), "--target", str(tmp_path / "en")]
    result = CliRunner().invoke(app, ["align", str(run), *texts])
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.split("\n")
    assert len(lines) == 4 and lines[1] == ""
    translator = Translator.load(run)
    for line, aligned in zip(lines, translator.align_stream(SOURCES, TARGETS), strict=False):
        if aligned.alignment is None:
            continue
        best = aligned.alignment[:-1].argmax(1).tolist()  # every piece is a word here
        assert aligned.alignment.shape == (len(aligned.target_tokens), len(aligned.source_tokens))
        expected = {(s, t) for t, s in enumerate(best) if s < len(aligned.source_tokens) - 1}
        assert {tuple(map(int, link.split("-"))) for link in line.split()} == expected


@pytest.mark.parametrize("command", ["align", "score"])
def test_texts_of_unequal_length_are_refused(run: Path, tmp_path: Path, command: str) -> None:
    (tmp_path / "de").write_text("der Hund\ndie Katze\n")
    (tmp_path / "en").write_text("the dog\n")
    arguments = [command, str(run), "--source", str(tmp_path / "de"), "--target", str(tmp_path / "en")]
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, arguments)
    assert (result.exit_code, result.stdout) == (3, "")
    assert "are not parallel: 2 and 1 lines" in " ".join(result.stderr.split())
