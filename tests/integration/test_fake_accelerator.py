"""Training, search and analysis on a device that is not the CPU: nothing is left behind there, or brought along."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from torch.utils import backend_registration

CHECKS = Path(__file__).parents[1] / "support" / "fake_accelerator_checks.py"


@pytest.mark.skipif(
    not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"), reason="needs torch 2.10 or later"
)
def test_everything_computes_on_another_device(repository: Path) -> None:
    """In a process of its own, which is told of a device that PyTorch does not have."""
    options = ["-x", "--jaxtyping-packages=", "-p", "no:cacheprovider", "-n", "0"]
    options += ["-o", "pythonpath=tests tests/unit tests/properties ."]
    command = [sys.executable, "-m", "pytest", *options, str(CHECKS)]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
