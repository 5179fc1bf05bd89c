"""The folder where reproducible data is cached between commands."""

from __future__ import annotations

import os
from pathlib import Path


def default_cache() -> Path:
    """The folder in the environment variable JOINTNMT_CACHE, else `~/.cache/jointnmt`; it need not exist."""
    return Path(os.environ.get("JOINTNMT_CACHE") or "~/.cache/jointnmt").expanduser()
