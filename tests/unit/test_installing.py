"""Installation: the Makefile, and the image for Docker."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


def commands(repository: Path, *arguments: str) -> list[str]:
    """The lines that make would run, including those that make the environment again."""
    command = ["make", "--dry-run", "--always-make", *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "TORCH_INDEX"}
    done = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@needs_make
def test_a_wheel_has_nothing_of_an_earlier_build(repository: Path) -> None:
    lines = commands(repository, "wheel")
    (built,) = (number for number, line in enumerate(lines) if "pip wheel" in line)
    assert "rm -rf build" in lines[:built]


@needs_make
def test_torch_is_taken_from_where_one_says(repository: Path) -> None:
    install = ".venv/bin/pip install --quiet --constraint constraints.txt"
    assert f"{install} torch" in commands(repository, "venv")
    elsewhere = commands(repository, "venv", "TORCH_INDEX=https://host/cpu")
    assert f"{install} --extra-index-url https://host/cpu torch" in elsewhere
