"""The models in the repository: small, complete, with a card, and usable at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from jointnmt import Translator

FOLDERS = sorted(path for path in (Path(__file__).parents[2] / "pretrained").glob("*") if path.is_dir())
MOST_BYTES = 6_000_000


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_pretrained_model_translates(folder: Path) -> None:
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) <= MOST_BYTES
    translations = Translator.load(folder, "cpu").translate(["Der Hund schläft.", ""])
    assert translations[0].lower().startswith("the dog")
    assert translations[1] == ""


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_its_card_says_what_a_user_needs_to_know(folder: Path) -> None:
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "not stated" not in card and "Nothing more is stated" not in card
    for part in (
        "## Data",
        "## Scores",
        "## What it cannot do",
        "## Licence",
        "| test |",
        "| valid |",
        f"{folder.name}",
    ):
        assert part in card, part
