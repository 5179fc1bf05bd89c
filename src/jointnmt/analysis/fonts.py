"""Fonts of figures for text in any script, as matplotlib's own font has no Chinese, Japanese or Korean."""

from __future__ import annotations

import io
import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jointnmt.extras import extra
from jointnmt.files import write_text

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

CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff]")
"""Control characters and non-characters, most of which XML, and so SVG, forbids."""


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


def save_figure(figure: Figure, out: Path, dpi: float) -> None:
    """Save a figure in the format of the file's suffix; SVG as in `svg_text`.

    In other formats one warning names the letters without a font.
    """
    if out.suffix == ".svg":
        write_text(out, svg_text(figure))
        return
    if missing := missing_letters("".join(each.get_text() for each in figure.findobj(Text))):
        logger.warning(
            "%s: no font is installed for %s%s, drawn as boxes: install one, such as Noto Sans CJK, or write .svg",
            *(out, " ".join(missing[:MOST_LISTED]), " ..." if len(missing) > MOST_LISTED else ""),
        )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+", UserWarning)  # matplotlib warns once a letter
        figure.savefig(out, dpi=dpi)


def svg_text(figure: Figure) -> str:
    """A figure as SVG, without a date; text stays text, drawn with the viewer's fonts.

    Control characters, which XML forbids, are replaced by their symbols, such as U+2401.
    """
    svg = io.StringIO()
    with warnings.catch_warnings(), matplotlib.rc_context({"svg.fonttype": "none"}):
        warnings.filterwarnings("ignore", r"Glyph \d+", UserWarning)
        figure.savefig(svg, format="svg", metadata={"Date": None})
    return CONTROL.sub(_symbol, svg.getvalue())


def _symbol(control: re.Match[str]) -> str:
    """The symbol of a control character; the replacement character for any other."""
    code = ord(control[0])
    return chr(0x2400 + code) if code < 0x20 else {0x7F: "\u2421"}.get(code, "\ufffd")
