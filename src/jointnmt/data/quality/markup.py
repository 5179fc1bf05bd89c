"""Translation memories (TMX) and translated documents (XLIFF), read by translate-toolkit entirely into memory."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

from jointnmt.data.corpus import UNREADABLE, open_text, unreadable
from jointnmt.data.quality.records import PairFields
from jointnmt.errors import ConfigurationError, DataError
from jointnmt.extras import extra
from jointnmt.text.languages import base_language

MARKUP = (".tmx", ".xliff")
CODES = ("bpt", "ept", "ph", "it", "ut")
"""Elements within sentences that hold codes of another format."""

UNTRANSLATED = ("new", "needs-translation", "initial")
"""States of a document's unit whose target is not a translation yet, perhaps a copy of the source."""


@dataclass
class _Unit:
    """A sentence in several languages."""

    line: int
    """Line number; 0: unknown."""
    texts: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Texts by language code; a translation memory may have several in one language."""
    state: str = ""
    """State that marks the unit as untranslated; empty: none."""

    def code_of(self, language: str) -> str | None:
        """The code of a language, or of its variant of another region; None: there is no such text."""
        if language in self.texts:
            return language
        return next((code for code in self.texts if base_language(code) == base_language(language)), None)

    def others_than(self, language: str) -> Iterator[list[str]]:
        """The texts in other variants of a language than the one that is read."""
        read = self.code_of(language)
        for code, texts in self.texts.items():
            if code != read and base_language(code) == base_language(language):
                yield texts

    def of(self, language: str) -> list[str]:
        """The texts of a language, or of its variant of another region."""
        code = self.code_of(language)
        return [] if code is None else self.texts[code]


def markup_pairs(path: Path, kind: str, selection: PairFields) -> Iterator[tuple[int, str, str, str, str]]:
    """Line, source, target, problem and its explanation for each unit; line breaks within a sentence become spaces.

    The languages are those of `selection`.

    Raises:
        DataError: if the file is damaged, or not in the format of its name.
    """
    source, target = (language or "" for language in selection.languages)
    for number, unit in enumerate(_read(path, kind)[1], start=1):
        sides = [[" ".join(text.split()) for text in unit.of(language)] for language in (source, target)]
        problem, detail = ("untranslated", unit.state) if unit.state else ("", "")
        if not all(sides):
            problem, detail = "unreadable", f"no {target if sides[0] else source} side"
        for first, second in product(*(side or [""] for side in sides)):
            yield unit.line or number, first, second, problem, detail


def select_languages(
    path: Path, kind: str, columns: Sequence[str] | None, source: str | None = None, target: str | None = None
) -> PairFields:
    """The languages of source and target: as given, or else the one that the file states, and the most frequent other.

    They are called `source` and `target` if the file does not name them.

    Args:
        path: path of the file.
        kind: one of `MARKUP`.
        columns: codes of both languages as in the file, if given.
        source: code of the source language, to choose among more than two, or among regions; None: not given.
        target: code of the target language, for the same purpose.

    Raises:
        ConfigurationError: if the file lacks a given language.
        DataError: if there is no pair in it.
    """
    stated, units = _read(path, kind)
    counts = Counter(language for unit in units for language in unit.texts)
    if not counts:
        raise DataError(f"{path}: contains no pair.")
    common = [language for language, _ in counts.most_common()]
    if columns is not None:
        source, target = columns
    elif len(bases := set(map(base_language, common))) <= 2:
        # Codes stay as given, unless regions must be distinguished.
        source, target = (code if len(bases) < len(common) and code in common else None for code in (source, target))
    named = [None if code is None else _present(path, common, code) for code in (source, target)]
    likely = sorted(common, key=lambda each: stated is None or base_language(each) != base_language(stated))
    first = named[0] or _another(likely, named[1]) or "source"
    second = named[1] or _another(common, first) or "target"
    rest = [each for each in common if base_language(each) not in (base_language(first), base_language(second))]
    unread = rest and not all(named)
    notes = [f"{path}: the languages {first} and {second} are read, not {', '.join(rest)}"] if unread else []
    notes += [note for language in (first, second) if (note := _other_regions(path, units, language))]
    return PairFields(note="; ".join(notes), languages=(first, second))


def _other_regions(path: Path, units: Sequence[_Unit], language: str) -> str:
    """Note for units of which another regional variant of a language is read, or left unread."""
    taken = Counter(code for unit in units if (code := unit.code_of(language)) not in (None, language))
    where = " and ".join(f"{count:,} of {other}" for other, count in taken.items())
    note = f"{path}: {taken.total():,} of {len(units):,} units have no {language}; {where} are used" if taken else ""
    left = sum(len(texts) for unit in units for texts in unit.others_than(language))
    more = (
        f"{path}: {left:,} translations of the same units in other variants of {language} are not read" if left else ""
    )
    return "; ".join(filter(None, (note, more)))


def _present(path: Path, languages: Sequence[str], code: str) -> str:
    """The language of the file that a code means, with its region if there are several."""
    found = [each for each in languages if base_language(each) == base_language(code)]
    if not found:
        raise ConfigurationError(
            f"{path}: has the languages {', '.join(languages)}, but not {code}. Name two of them: --source, --target, "
            "or --columns as they stand in the file."
        )
    return code if code in found else found[0]


def _another(languages: Sequence[str], known: str | None) -> str | None:
    """The first language that differs from a known one, or else its first variant of another region."""
    others = [each for each in languages if each != known]
    return next(
        (each for each in others if known is None or base_language(each) != base_language(known)),
        others[0] if others else None,
    )


def _read(path: Path, kind: str) -> tuple[str | None, list[_Unit]]:
    """The source language that the file states, and its units; cached while the file does not change."""
    try:
        now = path.stat()
    except OSError as error:
        raise unreadable(path, error) from error
    return _read_once(path, kind, now.st_mtime_ns, now.st_size)


@lru_cache(4)
def _read_once(path: Path, kind: str, _changed: int, _size: int) -> tuple[str | None, list[_Unit]]:
    with extra("data"):
        from lxml.etree import LxmlError
    try:
        with open_text(path) as stream:
            content = stream.read()
        return _memory(content) if kind == ".tmx" else _document(content)
    except UNREADABLE as error:
        raise unreadable(path, error) from error
    except (LxmlError, ValueError, AssertionError, StopIteration) as error:  # the latter if parts are missing
        why = str(error) or "its parts are missing"
        raise DataError(f"{path}: is no {kind.removeprefix('.').upper()} file, or is damaged: {why}.") from error


def _memory(content: bytes) -> tuple[str | None, list[_Unit]]:
    from translate.misc.xml_helpers import getXMLlang
    from translate.storage.tmx import tmxfile

    memory = tmxfile.parsestring(content)
    _drop_codes(memory.document)
    units = []
    for given in memory.units:
        unit = _Unit(given.xmlelement.sourceline or 0)
        for node in given.getlanguageNodes():
            unit.texts[str(getXMLlang(node) or node.get("lang"))].append(given.getNodeText(node) or "")
        units.append(unit)
    return memory.sourcelanguage, units


def _drop_codes(tree: Any) -> None:
    """Remove the elements that hold codes of a format, such as `<br>`, not words; the text after them stays."""
    from lxml.etree import strip_elements

    strip_elements(tree, *(f"{{*}}{name}" for name in CODES), with_tail=False)


def _document(content: bytes) -> tuple[str | None, list[_Unit]]:
    from translate.storage.xliff import Xliff1File
    from translate.storage.xliff2 import Xliff2File

    document: Any = (Xliff2File if b"xliff:document:2" in content[:4096] else Xliff1File).parsestring(content)
    source, target = document.getsourcelanguage() or "source", document.gettargetlanguage() or "target"
    _drop_codes(document.document)
    units = []
    for given in document.units:
        if not given.isheader():
            file: Any = next(given.xmlelement.iterancestors("{*}file"), {})  # in version 1, each has its languages
            codes = file.get("source-language") or source, file.get("target-language") or target
            unit = _Unit(given.xmlelement.sourceline or 0, state=_untranslated(given.xmlelement))
            for code, text in zip(codes, (given.source, given.target), strict=True):
                unit.texts[code].append(str(text or ""))
            units.append(unit)
    return source, units


def _untranslated(unit: Any) -> str:
    """The state of a document's unit whose translation is still missing; otherwise empty.

    In version 1, its target states it; in version 2, the unit itself, a `segment`.
    """
    stated = [each.get("state") for each in (unit, *unit.findall("{*}target"))]
    return next((f"state {state}" for state in stated if state in UNTRANSLATED), "")
