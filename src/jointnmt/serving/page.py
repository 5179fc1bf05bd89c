"""The page for translating and exploring models: as served, and as a file that contains its answers.

Both are one file, `static/page.html`, built from `web/` by `make web`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jointnmt.files import write_text

PAGE = Path(__file__).parent / "static" / "page.html"

_DOCUMENT = '<script type="application/json" id="document">{}</script>'


def page() -> str:
    """The page as a server sends it; it sends its requests to that server."""
    return PAGE.read_text(encoding="utf-8")


def write_page(document: dict[str, Any], path: Path) -> None:
    """Write the page with a document in it, as one HTML file that needs neither a server nor a network.

    Args:
        document: the answers that the page shows, for a few sentences, as JSON-compatible values (docs/explore.md).
        path: the file; a missing directory is created.

    Raises:
        ValueError: if the document holds a number that JSON does not have (nan, inf).
    """
    # No text of the document may end the element around it, or begin a comment.
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", r"\u003c")
    before, empty, after = page().partition(_DOCUMENT.format("null"))
    assert empty, "the page has a place for a document"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, before + _DOCUMENT.format(text) + after)
