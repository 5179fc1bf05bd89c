"""Fonts of figures for text in any script, as matplotlib's own font has no Chinese, Japanese or Korean."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from jointnmt.extras import extra

with extra("report"):
    import matplotlib
    from matplotlib import font_manager
    from matplotlib.figure import Figure
    from matplotlib.text import Text

logger = logging.getLogger(__name__)

FALLBACKS = (
    "DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans CJK TC", "Noto Sans CJK KR", "Noto Sans SC",
    "Noto Sans JP", "Noto Sans KR", "Source Han Sans SC", "WenQuanYi Zen Hei", "WenQuanYi Micro Hei", "IPAexGothic",
    "PingFang SC", "Hiragino Sans", "Apple SD Gothic Neo", "Microsoft YaHei", "Yu Gothic", "Malgun Gothic",
    "Arial Unicode MS", "Noto Sans Thai", "Noto Sans Khmer", "Noto Sans Lao", "Noto Sans Myanmar",
    "Noto Sans Devanagari",
)  # fmt: skip
"""Font families that are tried for a letter, in order."""

MOST_LISTED = 10


def font_families() -> list[str]:
    """Font families of matplotlib's settings, followed by the installed ones of `FALLBACKS`."""
    installed = {font.name for font in font_manager.fontManager.ttflist}
    return [*matplotlib.rcParams["font.family"], *(family for family in FALLBACKS if family in installed)]


@contextmanager
def any_script() -> Iterator[None]:
    """Context in which text of figures is drawn with the first of `font_families` that has its letters."""
    with matplotlib.rc_context({"font.family": font_families()}):
        yield


def missing_letters(text: str) -> list[str]:
    """The letters that are in none of `font_families` and would be drawn as boxes."""
    paths = [font_manager.findfont(font_manager.FontProperties(family=[family])) for family in font_families()]
    fonts = [font_manager.get_font(path) for path in dict.fromkeys(paths)]
    letters = sorted(set("".join(text.split())))
    return [letter for letter in letters if not any(font.get_char_index(ord(letter)) for font in fonts)]


def save_figure(figure: Figure, out: Path | BinaryIO | TextIO, **options: Any) -> None:
    """Save a figure as `Figure.savefig` does.

    In SVG, text stays text, drawn with the viewer's fonts. Otherwise one warning names the letters without a font.
    """
    form = options.get("format") or (out.suffix.removeprefix(".") if isinstance(out, Path) else "")
    if form != "svg" and (missing := missing_letters("".join(each.get_text() for each in figure.findobj(Text)))):
        logger.warning(
            "%s: no font is installed for %s%s, drawn as boxes: install one, such as Noto Sans CJK, or write .svg",
            *(out, " ".join(missing[:MOST_LISTED]), " ..." if len(missing) > MOST_LISTED else ""),
        )
    with warnings.catch_warnings(), matplotlib.rc_context({"svg.fonttype": "none"}):
        warnings.filterwarnings("ignore", r"Glyph \d+", UserWarning)  # matplotlib warns once a letter
        figure.savefig(out, **options)
