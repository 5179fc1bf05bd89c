"""Checks that need a process of their own, in which nothing wraps the package's functions to check shapes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from torch.utils import backend_registration

SUPPORT = Path(__file__).parents[1] / "support"


def check(repository: Path, checks: str) -> None:
    """Run a file of checks in `tests/support`."""
    options = ["-x", "--jaxtyping-packages=", "-p", "no:cacheprovider", "-n", "0"]
    options += ["-o", "pythonpath=tests tests/unit tests/properties ."]
    command = [sys.executable, "-m", "pytest", *options, str(SUPPORT / checks)]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.skipif(
    not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"), reason="needs torch 2.10 or later"
)
def test_everything_computes_on_another_device(repository: Path) -> None:
    """Training, search and analysis leave nothing on the CPU, nor copy anything back to it."""
    check(repository, "fake_accelerator_checks.py")


def test_a_compiled_model_trains_as_the_model_itself_does(repository: Path) -> None:
    check(repository, "compile_checks.py")
