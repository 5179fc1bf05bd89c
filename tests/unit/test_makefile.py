"""What make would do."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


def commands(repository: Path, *arguments: str) -> list[str]:
    """The lines that make would run, the environment's made anew."""
    command = ["make", "--dry-run", "--always-make", *arguments]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_a_wheel_has_nothing_of_an_earlier_build(repository: Path) -> None:
    lines = commands(repository, "wheel")
    (built,) = (number for number, line in enumerate(lines) if "pip wheel" in line)
    assert "rm -rf build" in lines[:built]
