"""Where data that can be made again is kept between commands."""

from __future__ import annotations

import os
from pathlib import Path


def default_cache() -> Path:
    """The folder of the environment variable JOINTNMT_CACHE, or else one in the home folder; it need not exist."""
    return Path(os.environ.get("JOINTNMT_CACHE") or "~/.cache/jointnmt").expanduser()
