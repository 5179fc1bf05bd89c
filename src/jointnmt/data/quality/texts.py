"""Users' parallel text: which files belong together, their formats, and their pairs, line by line.

The readers of `data.pairs` stop at the first bad line, as training must. These continue, and report the problem.
"""

from __future__ import annotations

import codecs
import io
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice, zip_longest
from pathlib import Path
from typing import Literal, NamedTuple

from jointnmt.compression import plain_name
from jointnmt.data.corpus import UNREADABLE, check_beginning, cut_lines, open_text, unreadable
from jointnmt.data.quality.csv_tables import delimiter_of, is_quoted, rows_of
from jointnmt.data.quality.kinds import HEAD_LINES, PairKind, head_of, kind_of, marked_encoding
from jointnmt.data.quality.markup import MARKUP, markup_pairs, select_languages
from jointnmt.data.quality.records import PairFields, select_columns, select_keys
from jointnmt.errors import ConfigurationError
from jointnmt.extras import extra

CorpusPart = Literal["train", "valid", "test"]

PART_NAMES: tuple[tuple[CorpusPart, tuple[str, ...]], ...] = (
    ("valid", ("valid", "validation", "val", "dev", "development")),
    ("test", ("test", "eval", "devtest")),
)
"""Words in file names for each part of a corpus; all other files are training text."""

NO_CODES = ("txt", "tok", "bpe", "src", "tgt", "trg", "raw", "my", "all", "new", "old", "out", "val", "dev")
"""Words in file names that look like language codes but are not."""


UNREAD = {
    ".json": "Write one JSON object a line, as .jsonl.",
    ".xlsx": "Save the table as .csv.",
}
"""Advice for files of formats that are not read."""


class GivenPair(NamedTuple):
    """A pair as in the files."""

    line: int
    """Line number, from 1."""
    source: str
    target: str
    problem: str = ""
    """Problem of a line without a pair, a name of `problems.PROBLEMS`; empty: the line is a pair."""
    detail: str = ""
    """Explanation of the problem."""


@dataclass(frozen=True)
class GivenText:
    """A parallel text in one file of pairs, or in two files of lines."""

    files: tuple[Path, ...]
    kind: Literal["lines"] | PairKind
    selection: PairFields = field(default_factory=PairFields)
    """Fields of source and target in a line."""
    encodings: tuple[str, ...] = ("utf-8",)
    """Encoding of each file."""
    delimiter: str = ""
    """Delimiter of cells of a table with quotes (.csv)."""
    notes: tuple[str, ...] = ()
    """Notes on unusual but harmless properties of the files, which reading takes care of."""

    @property
    def name(self) -> str:
        """Name of the text in reports."""
        return " + ".join(map(str, self.files))

    @property
    def part(self) -> CorpusPart:
        """The part of the corpus, by the name of the (first) file."""
        words = set(re.split(r"[^a-z]+", self.files[0].name.lower()))
        return next((part for part, names in PART_NAMES if words & set(names)), "train")

    @property
    def named_languages(self) -> tuple[str | None, str | None]:
        """Language codes in the names of two files, such as `train.de`, or stated in the file of pairs."""
        if self.kind != "lines":
            return self.selection.languages
        first, second = (_code(path) for path in self.files)
        return first, second

    def pairs(self) -> Iterator[GivenPair]:
        """All pairs, good or bad, in the order of the files.

        Raises:
            DataError: if a file cannot be read.
        """
        if self.kind in MARKUP:
            yield from (GivenPair(*pair) for pair in markup_pairs(self.files[0], self.kind, self.selection))
            return
        if self.kind == ".csv":
            for line, cells in self.csv_rows():
                yield self._pair(line, [cells])
            return
        columns = [decoded_lines(*each) for each in zip(self.files, self.encodings, strict=True)]
        for line, row in enumerate(zip_longest(*columns, fillvalue=MISSING), start=1):
            yield self._pair(line, row)

    def csv_rows(self) -> Iterator[tuple[int, str]]:
        """Line numbers and rows of a table with quotes; a row is a line with tabs, or a key of `UNUSABLE`."""
        lines = decoded_lines(self.files[0], self.encodings[0])
        for line, row in rows_of(lines, self.delimiter, QUOTES):
            yield line, row if "\0" not in row or row in UNUSABLE else UNDECODABLE

    def _pair(self, line: int, row: Sequence[str]) -> GivenPair:
        for text in row:
            if text in UNUSABLE:
                source, target = ("" if each in UNUSABLE else each for each in row) if len(row) == 2 else ("", "")
                return GivenPair(line, source, target, *UNUSABLE[text])
        if self.kind == "lines":
            return GivenPair(line, row[0], row[1])
        return GivenPair(line, *self.selection.pick(row[0]))


MISSING, UNDECODABLE, NUL, QUOTES = "\0missing", "\0undecodable", "\0nul", "\0quotes"
UNUSABLE = {
    MISSING: ("no-counterpart", "no counterpart"),
    UNDECODABLE: ("unreadable", "wrong encoding"),
    NUL: ("unreadable", "NUL byte"),
    QUOTES: ("unreadable", "quotes that are not closed, or do not enclose a cell"),
}
"""Replacements of unusable lines (text has no NUL byte), with the problem and its explanation."""

NOT_UTF8 = "is not UTF-8 throughout"
"""Part of the note on a file whose bad lines are left out."""

CRLF = {"utf-16": b"\r\0\n", "utf-32": b"\r\0\0\0\n"}
WIDE = tuple(CRLF)
"""Encodings in which a line feed is not a single byte: they are decoded as a whole, not line by line."""

ESCAPING = ("iso2022", "hz", "utf-7")
"""Encodings whose bytes are ASCII, and so valid UTF-8: they are used if named, without a check."""

BAD_BYTES = "\udc80"
"""Replacement of undecodable bytes in such a text: half a surrogate pair, which no decoded text has."""

codecs.register_error("jointnmt.bad_bytes", lambda error: (BAD_BYTES, error.end))  # type: ignore[attr-defined]


def decoded_lines(path: Path, encoding: str = "utf-8") -> Iterator[str]:
    """The lines of a file, perhaps compressed, as text; in place of a bad one, a key of `UNUSABLE`.

    Raises:
        DataError: if the file cannot be read.
    """
    if encoding.startswith(WIDE):
        try:
            with io.TextIOWrapper(
                open_text(path), encoding=encoding, errors="jointnmt.bad_bytes", newline="\n"
            ) as stream:
                for line in stream:
                    unusable = UNDECODABLE if BAD_BYTES in line else NUL if "\0" in line else ""
                    yield unusable or line.removesuffix("\n").removesuffix("\r")
        except UNREADABLE as error:
            raise unreadable(path, error) from error
        return
    for raw in cut_lines(path):
        if b"\0" in raw:
            yield NUL
            continue
        try:
            yield raw.decode(encoding)
        except UnicodeDecodeError:
            yield UNDECODABLE


def gather_texts(
    files: Sequence[Path],
    columns: Sequence[str] | None = None,
    encoding: str | None = None,
    source: str | None = None,
    target: str | None = None,
) -> list[GivenText]:
    """The texts of files: one for each file of pairs, and one for two files of lines, matched by name.

    Args:
        files: files in any order; two files of lines belong together if their names differ in a language code alone, or
            if there are only two.
        columns: columns of source and target in files of pairs: numbers from 0, keys or language codes; None: found by
            content.
        encoding: encoding of files that are not UTF-8 without NUL bytes (nor UTF-16 or UTF-32 with its mark); None:
            their bad lines are problems.
        source: code of the source language, to choose among the languages of a translation memory; None: not given.
        target: code of the target language, for the same purpose.

    Raises:
        DataError: if a file cannot be read.
        ConfigurationError: if it is not clear which files belong together, or which columns are meant; if a file or a
            column is named twice.
    """
    texts: list[GivenText] = []
    singles: list[Path] = []
    if columns is not None and len(set(columns)) < len(columns):
        raise ConfigurationError(f"--columns {','.join(columns)}: source and target are the same.")
    for number, path in enumerate(files):
        if path.resolve() in [each.resolve() for each in files[:number]]:
            raise ConfigurationError(f"{path}: is named twice. Name each file once.")
        head = head_of(path)
        kind = kind_of(path, head)
        if kind is None:
            singles.append(path)
            continue
        text = _described(GivenText((path,), kind), [head], encoding)
        if kind == ".tsv" and is_quoted(_sample(text)):
            note = f"{path}: cells are in quotes, which are removed"
            kind, text = ".csv", replace(text, kind=".csv", delimiter="\t", notes=(*text.notes, note))
        if kind == ".csv":
            text = replace(text, delimiter=text.delimiter or delimiter_of(_sample(text)))
            rows = [row for _, row in islice(text.csv_rows(), HEAD_LINES) if row not in UNUSABLE]
            text = replace(text, selection=select_columns(path, rows, columns))
        elif kind == ".tsv":
            text = replace(text, selection=select_columns(path, _sample(text), columns))
        elif kind == ".jsonl":
            text = replace(text, selection=select_keys(path, _sample(text), columns))
        else:
            text = replace(text, selection=select_languages(path, kind, columns, source, target))
        texts.append(_with_extra_columns(text))
    for pair in _two_by_two(singles):
        texts.append(_described(GivenText(pair, "lines"), [head_of(path) for path in pair], encoding))
    return texts


def _sample(text: GivenText) -> list[str]:
    lines = decoded_lines(text.files[0], text.encodings[0])
    return [line for line in islice(lines, HEAD_LINES) if line not in UNUSABLE]


def _with_extra_columns(text: GivenText) -> GivenText:
    note = text.selection.note
    return replace(text, notes=(*text.notes, note)) if note else text


def _described(text: GivenText, heads: Iterable[bytes], encoding: str | None) -> GivenText:
    """The text with the encodings of its files, and notes on them."""
    encodings, notes = [], []
    for path, head in zip(text.files, heads, strict=True):
        found = marked_encoding(head) or "utf-8"
        if found != "utf-8":
            notes.append(f"{path}: is {found.upper()}, not UTF-8")
        elif head.startswith(b"\xef\xbb\xbf"):
            notes.append(f"{path}: begins with a byte order mark")
        named = codecs.lookup(encoding).name if encoding else ""
        is_open = found == "utf-8" and text.kind not in MARKUP
        if is_open and (named.startswith(ESCAPING) or not _is_utf8(path, nul=encoding is None)):
            if named:
                found = named
                notes.append(f"{path}: is read as {encoding}")
            else:
                guess = _guessed(path)
                notes.append(f"{path}: {NOT_UTF8}" + (f"; perhaps {guess} (--encoding)" if guess else ""))
        if text.kind not in MARKUP:
            check_beginning(path, head)
        if CRLF.get(found[:6], b"\r\n") in head:
            notes.append(f"{path}: lines end in CRLF, as on Windows")
        encodings.append(found)
    return replace(text, encodings=tuple(encodings), notes=tuple(notes))


def _is_utf8(path: Path, nul: bool) -> bool:
    """Whether all lines are UTF-8; NUL bytes, which UTF-16 text is full of, are allowed if `nul`."""
    for raw in cut_lines(path):
        try:
            raw.decode("utf-8")
        except UnicodeDecodeError:
            return False
        if not nul and b"\0" in raw:
            return False
    return True


def _guessed(path: Path) -> str:
    """The most probable encoding of the lines that are not UTF-8."""
    with extra("data"):
        from charset_normalizer import from_bytes

    head = head_of(path)
    for encoding, nul in (("utf-16-le", 1), ("utf-16-be", 0)):  # single-byte letters: every other byte is NUL
        if head[nul::2].count(0) > len(head) / 4 and not head[1 - nul :: 2].count(0):
            return encoding
    bad = []
    for raw in cut_lines(path):
        try:
            raw.decode("utf-8")
        except UnicodeDecodeError:
            bad.append(raw)
        if len(bad) == HEAD_LINES:
            break
    text = b"\n".join(bad)
    best = from_bytes(text).best()
    if best is None:
        return ""
    with suppress(UnicodeDecodeError):
        western = text.decode("cp1252")
        words = zip(western.split(), str(best).split(), strict=False)
        differing = next(((one, other) for one, other in words if one != other), None)
        if differing is None:  # these letters have the same bytes in both encodings
            return "cp1252"
        return f"cp1252 ({differing[0]}) or {best.encoding} ({differing[1]})"
    return best.encoding


def _code(path: Path) -> str | None:
    """The language code in a file name: its extension, or else a word of its stem."""
    found = _code_in(path.name.lower())
    return found.group() if found else None


def _code_in(name: str) -> re.Match[str] | None:
    """The match of the language code in a lower-case file name; two letters are preferred to three."""
    stem, *endings = re.finditer(r"[^.]*", plain_name(Path(name)))
    words = [*reversed(endings), *re.finditer(r"[^-_]+", stem.group())]
    codes = re.compile(r"[a-z]{2,3}([-_][a-z]{2,4})?")
    found = [word for word in words if codes.fullmatch(word.group()) and word.group() not in NO_CODES]
    return min(found, key=lambda word: len(re.split("[-_]", word.group())[0]), default=None)


def _two_by_two(files: Sequence[Path]) -> list[tuple[Path, Path]]:
    """Files of lines in pairs: those with names that differ in the language alone, or the only two."""
    if len(files) == 2:
        return [(files[0], files[1])]
    groups: dict[str, list[Path]] = defaultdict(list)
    for path in files:
        name = path.name.lower()
        code = _code_in(name)
        stem = f"{name[: code.start()]}*{name[code.end() :]}" if code else path.name
        groups[str(path.with_name(stem))].append(path)
    odd = [path for group in groups.values() if len(group) != 2 for path in group]
    if len(files) == 1 and (advice := UNREAD.get(files[0].suffix.lower())):
        raise ConfigurationError(f"{files[0]}: this format is not read. {advice}")
    if len(files) == 1:
        raise ConfigurationError(
            f"{files[0]}: holds one side of the pairs, line by line; the file of the translations is missing. Give "
            "both, such as train.de train.en; a single file of pairs ends in .tsv, .csv, .jsonl, .tmx or .xliff "
            "(perhaps compressed), or has a tab in each line."
        )
    if odd:
        raise ConfigurationError(
            f"{', '.join(map(str, odd))}: it is not clear which two of these files belong together. Two files of "
            "lines need names that differ in the language alone, such as train.de and train.en; a single file of pairs "
            "ends in .tsv, .csv, .jsonl, .tmx or .xliff (perhaps compressed)."
        )
    return [(group[0], group[1]) for group in groups.values()]
