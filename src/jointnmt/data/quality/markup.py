"""Translation memories (TMX) and translated documents (XLIFF), read by translate-toolkit, whole, into memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from jointnmt.data.corpus import UNREADABLE, open_text, unreadable
from jointnmt.data.quality.records import PairFields
from jointnmt.errors import ConfigurationError, DataError
from jointnmt.extras import extra
from jointnmt.text.languages import base_language

MARKUP = (".tmx", ".xliff")
CODES = ("bpt", "ept", "ph", "it", "ut")
"""Elements within sentences whose content is code of another format."""


def markup_pairs(path: Path, kind: str, selection: PairFields) -> Iterator[tuple[int, str, str, str, str]]:
    """Line, source, target, problem and why in words of each unit; line breaks within a sentence become spaces.

    Read are the languages of `selection`.

    Raises:
        DataError: if the file is damaged, or has another format than its name says.
    """
    source, target = (language or "" for language in selection.languages)
    for number, (line, texts) in enumerate(_read(path, kind)[1], start=1):
        sides = [_of_language(texts, language) for language in (source, target)]
        if sides[0] is None or sides[1] is None:
            yield line or number, "", "", "unreadable", f"no {source if sides[0] is None else target} side"
        else:
            yield line or number, " ".join(sides[0].split()), " ".join(sides[1].split()), "", ""


def select_languages(
    path: Path, kind: str, columns: Sequence[str] | None, source: str | None = None, target: str | None = None
) -> PairFields:
    """The languages of source and target: as named, or else the one that the file states, and the most frequent other.

    They are called `source` and `target` if the file has no names for them.

    Args:
        path: of the file.
        kind: one of `MARKUP`.
        columns: codes of both languages as they stand in the file, if they are named.
        source: code of the source language, which chooses among more than two, or among regions; None: not said.
        target: likewise.

    Raises:
        ConfigurationError: if the file lacks a language that is named.
        DataError: if there is no pair in it.
    """
    stated, units = _read(path, kind)
    counts = Counter(language for _, texts in units for language in texts)
    if not counts:
        raise DataError(f"{path}: is empty: there is no pair in it.")
    common = [language for language, _ in counts.most_common()]
    if columns is not None:
        source, target = columns
    elif len(bases := set(map(base_language, common))) <= 2:
        # Codes are as one writes them, unless they have to tell regions apart.
        source, target = (code if len(bases) < len(common) and code in common else None for code in (source, target))
    named = [None if code is None else _present(path, common, code) for code in (source, target)]
    likely = sorted(common, key=lambda each: stated is None or base_language(each) != base_language(stated))
    first = named[0] or _another(likely, named[1]) or "source"
    second = named[1] or _another(common, first) or "target"
    rest = [each for each in common if base_language(each) not in (base_language(first), base_language(second))]
    told = rest and not all(named)
    notes = [f"{path}: read are the languages {first} and {second}, not {', '.join(rest)}"] if told else []
    notes += [note for language in (first, second) if (note := _other_regions(path, units, language))]
    return PairFields(note="; ".join(notes), languages=(first, second))


def _other_regions(path: Path, units: Sequence[tuple[int, dict[str, str]]], language: str) -> str:
    """What to say if units lack a language, and the same one of another region is taken in its place."""
    taken = Counter(
        next(each for each in texts if base_language(each) == base_language(language))
        for _, texts in units
        if language not in texts and _of_language(texts, language) is not None
    )
    where = " and ".join(f"{count:,} of {other}" for other, count in taken.items())
    return f"{path}: {taken.total():,} of {len(units):,} units have no {language}; taken are {where}" if taken else ""


def _present(path: Path, languages: Sequence[str], code: str) -> str:
    """The one of a file's languages that a code means, with its region if there are several."""
    found = [each for each in languages if base_language(each) == base_language(code)]
    if not found:
        raise ConfigurationError(
            f"{path}: has the languages {', '.join(languages)}, but not {code}. Name two of them: --source, --target, "
            "or --columns as they stand in the file."
        )
    return code if code in found else found[0]


def _another(languages: Sequence[str], known: str | None) -> str | None:
    """The first language that is another one than a known one, or at least of another region."""
    others = [each for each in languages if each != known]
    return next(
        (each for each in others if known is None or base_language(each) != base_language(known)),
        others[0] if others else None,
    )


def _of_language(texts: dict[str, str], language: str) -> str | None:
    if language in texts:
        return texts[language]
    return next((text for each, text in texts.items() if base_language(each) == base_language(language)), None)


@lru_cache(4)
def _read(path: Path, kind: str) -> tuple[str | None, list[tuple[int, dict[str, str]]]]:
    """The source language that the file states, and its units: line, and text by language."""
    with extra("data"):
        from lxml.etree import LxmlError
    try:
        with open_text(path) as stream:
            content = stream.read()
        return _memory(content) if kind == ".tmx" else _document(content)
    except UNREADABLE as error:
        raise unreadable(path, error) from error
    except (LxmlError, ValueError, AssertionError, StopIteration) as error:  # of the latter, where parts are missing
        why = str(error) or "its parts are missing"
        raise DataError(f"{path}: is no {kind.removeprefix('.').upper()} file, or is damaged: {why}.") from error


def _memory(content: bytes) -> tuple[str | None, list[tuple[int, dict[str, str]]]]:
    from translate.misc.xml_helpers import getXMLlang
    from translate.storage.tmx import tmxfile

    memory = tmxfile.parsestring(content)
    _drop_codes(memory.document)
    units = [
        (
            unit.xmlelement.sourceline or 0,
            {
                str(getXMLlang(node) or node.get("lang")): unit.getNodeText(node) or ""
                for node in unit.getlanguageNodes()
            },
        )
        for unit in memory.units
    ]
    return memory.sourcelanguage, units


def _drop_codes(tree: Any) -> None:
    """Remove the elements that hold codes of a format, such as `<br>`, and not words; the text after them stays."""
    from lxml.etree import strip_elements

    strip_elements(tree, *(f"{{*}}{name}" for name in CODES), with_tail=False)


def _document(content: bytes) -> tuple[str | None, list[tuple[int, dict[str, str]]]]:
    from translate.storage.xliff import Xliff1File
    from translate.storage.xliff2 import Xliff2File

    document: Any = (Xliff2File if b"xliff:document:2" in content[:4096] else Xliff1File).parsestring(content)
    source, target = document.getsourcelanguage() or "source", document.gettargetlanguage() or "target"
    _drop_codes(document.document)
    units = [
        (unit.xmlelement.sourceline or 0, {source: str(unit.source or ""), target: str(unit.target or "")})
        for unit in document.units
        if not unit.isheader()
    ]
    return source, units
