"""Problems that a sentence pair can have by itself."""

from __future__ import annotations

import codecs
import re
import unicodedata

import numpy as np
import numpy.typing as npt

from jointnmt.data.quality.records import is_heading
from jointnmt.data.quality.texts import GivenPair
from jointnmt.text.invisible import is_blank

PROBLEMS = {
    "unreadable": "lines without a readable pair: wrong encoding, control characters, not JSON, a missing key or side",
    "columns": "lines with another number of columns than the others",
    "no-counterpart": "lines at the end of one file that are missing in the other",
    "untranslated": "units of a document that are marked as untranslated",
    "header": "a first line with names of columns",
    "empty": "a side is empty",
    "long": "a side is too long for a sentence",
    "shifted": "blocks of lines whose translations are some lines away",
    "garbled": "letters that were read in a wrong encoding, such as Ã¼ for ü",
    "exchanged": "the sides are exchanged: each is in the language of the other",
    "language": "a side is in another language",
    "copy": "both sides are the same sentence",
    "ratio": "one side is much longer than the other, for these languages",
    "duplicate": "the same pair occurs before",
    "overlap": "a sentence of the pair is also in the validation or test text",
}
"""Problems by name, in the order in which they are checked: a pair counts under its first one."""

NUMBERS = {name: number for number, name in enumerate(PROBLEMS, start=1)}
"""Numbers by which problems are stored; 0: none."""

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]")

_HTML = re.compile(
    r"</?(?:a|b|br|center|div|em|font|h[1-6]|hr|i|img|li|ol|p|small|span|strong|sub|sup|table|td|th|tr|u|ul)(?:\s[^<>]*)?/?>"
    r"|&(?:amp|apos|gt|lt|nbsp|quot|#[0-9]{1,7}|#x[0-9a-f]{1,6});",
    re.IGNORECASE,
)
"""Tags within text, and entities that stand for letters."""

UNDEFINED = frozenset("\x81\x8d\x8f\x90\x9d")
"""Characters of the bytes that Windows-1252 does not define, as browsers and other readers decode them."""

SMOOTHING = 10.0
"""Characters added to both sides before their ratio is taken, as it varies much for short sentences."""


MOST_WORDS = 100
"""Most words of a side, or twelfths of its characters; a longer side is not a sentence."""

MOST_RATIO = 2.5
"""Largest factor between a pair's length ratio and the median of the text."""


def problem_of(pair: GivenPair) -> str:
    """The first problem that a pair's own text shows, by name; empty: none."""
    if pair.problem:
        return pair.problem
    if pair.line == 1 and is_heading(pair.source) and is_heading(pair.target):
        return "header"
    if is_blank(pair.source) or is_blank(pair.target):
        return "empty"
    garbled = is_garbled(pair.source) or is_garbled(pair.target)
    if not garbled and (_CONTROL.search(pair.source) or _CONTROL.search(pair.target)):
        return "unreadable"
    if max(_words(pair.source), _words(pair.target)) > MOST_WORDS:
        return "long"
    if garbled:
        return "garbled"
    if is_copy(pair.source, pair.target):
        return "copy"
    return ""


def _words(text: str) -> float:
    return max(len(text.split()), len(text) / 12)


def is_copy(source: str, target: str) -> bool:
    """Whether both sides are the same sentence of more than two words (names and numbers are often alike)."""
    return len(source.split()) > 2 and source.casefold().split() == target.casefold().split()


def html_in(text: str) -> str:
    """The first HTML tag or entity in a text; empty: there is none."""
    found = _HTML.search(text) if "<" in text or "&" in text else None
    return found.group() if found else ""


def is_quoted_cell(text: str) -> bool:
    """Whether text is quoted as spreadsheets write cells with quotes inside: `"He said ""yes""."`."""
    return text.startswith('"') and '""' in text[1:]


def is_garbled(text: str) -> bool:
    """Whether text was UTF-8 but decoded as Windows-1252 (encoding it again gives UTF-8), or letters were lost."""
    if text.isascii():
        return False
    if "\ufffd" in text:
        return True
    try:
        return text.encode("cp1252", "jointnmt.undefined_bytes").decode("utf-8") != text
    except UnicodeError:
        return False


def _same_byte(error: UnicodeError) -> tuple[bytes, int]:
    assert isinstance(error, UnicodeEncodeError)
    letters = error.object[error.start : error.end]
    if not UNDEFINED.issuperset(letters):
        raise error
    return letters.encode("latin-1"), error.end


codecs.register_error("jointnmt.undefined_bytes", _same_byte)


def odd_ratios(lengths: npt.NDArray[np.integer], usable: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """True for pairs with a length ratio far from the median of the text.

    Args:
        lengths: characters of source and target, `[pairs, 2]`.
        usable: pairs that have both sides, from which the median is taken.
    """
    logs = np.log(lengths[:, 1] + SMOOTHING) - np.log(lengths[:, 0] + SMOOTHING)
    if not usable.any():
        return np.zeros(len(logs), bool)
    return usable & (np.abs(logs - np.median(logs[usable])) > np.log(MOST_RATIO))


def comparable(text: str) -> str:
    """A sentence normalised for comparison: without case, punctuation and spaces, and with composed letters.

    Combining marks stay, as they are the vowels and tones of many scripts.
    """
    text = unicodedata.normalize("NFC", text)
    kept = (letter for letter in text.casefold() if letter.isalnum() or unicodedata.category(letter).startswith("M"))
    return "".join(kept) or text.strip()
