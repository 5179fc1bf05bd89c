"""What all faults are tried on: a small parallel text, and commands in processes of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.commands import Commands
from support.tiny import write_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with training and validation text."""
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder)
    return folder


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    return Commands(tmp_path_factory.mktemp("printed"))
