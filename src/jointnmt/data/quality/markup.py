"""Translation memories (TMX) and translated documents (XLIFF), read by translate-toolkit, whole, into memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from jointnmt.data.corpus import UNREADABLE, open_text
from jointnmt.data.quality.records import PairFields
from jointnmt.errors import DataError, reason
from jointnmt.extras import extra

MARKUP = (".tmx", ".xliff")


def markup_pairs(path: Path, selection: PairFields) -> Iterator[tuple[int, str, str, str]]:
    """Line, source, target and problem of each unit; line breaks within a sentence become spaces.

    Read are the languages of `selection`.

    Raises:
        DataError: if the file is damaged, or has another format than its name says.
    """
    source, target = (language or "" for language in selection.languages)
    for number, (line, texts) in enumerate(_units(path), start=1):
        sides = [_of_language(texts, language) for language in (source, target)]
        if sides[0] is None or sides[1] is None:
            yield line or number, "", "", f"no {source if sides[0] is None else target} side"
        else:
            yield line or number, " ".join(sides[0].split()), " ".join(sides[1].split()), ""


def markup_languages(path: Path) -> tuple[str, str]:
    """The languages of source and target: the one that the file names as the source, and the most frequent other one.

    They are called `source` and `target` if the file has no names for them.

    Raises:
        DataError: if there is no pair in it.
    """
    counts = Counter(language for _, texts in _units(path) for language in texts)
    if not counts:
        raise DataError(f"{path}: is empty: there is no pair in it.")
    common = [language for language, _ in counts.most_common()]
    stated = _stated_source(path)
    source = next(
        (each for each in common if stated and _base(each) == _base(stated)), common[0] if common else "source"
    )
    target = next((each for each in common if each != source), "target")
    return source, target


def _of_language(texts: dict[str, str], language: str) -> str | None:
    if language in texts:
        return texts[language]
    return next((text for each, text in texts.items() if _base(each) == _base(language)), None)


def _base(code: str) -> str:
    return code.replace("_", "-").partition("-")[0].lower()


def _units(path: Path) -> list[tuple[int, dict[str, str]]]:
    return _read(path)[1]


def _stated_source(path: Path) -> str | None:
    return _read(path)[0]


@lru_cache(4)
def _read(path: Path) -> tuple[str | None, list[tuple[int, dict[str, str]]]]:
    """The source language that the file states, and its units: line, and text by language."""
    with extra("data"):
        from lxml.etree import LxmlError
    try:
        with open_text(path) as stream:
            content = stream.read()
        return _memory(content) if ".tmx" in path.suffixes else _document(content)
    except UNREADABLE as error:
        raise DataError(
            f"{path}: the file cannot be read: {reason(error)}. Check that it exists and is whole."
        ) from error
    except (LxmlError, ValueError) as error:
        raise DataError(
            f"{path}: is no {path.suffix.removeprefix('.').upper()} file, or is damaged: {error}."
        ) from error


def _memory(content: bytes) -> tuple[str | None, list[tuple[int, dict[str, str]]]]:
    from translate.misc.xml_helpers import getXMLlang
    from translate.storage.tmx import tmxfile

    memory = tmxfile.parsestring(content)
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


def _document(content: bytes) -> tuple[str | None, list[tuple[int, dict[str, str]]]]:
    from translate.storage.xliff import Xliff1File
    from translate.storage.xliff2 import Xliff2File

    document: Any = (Xliff2File if b"xliff:document:2" in content[:4096] else Xliff1File).parsestring(content)
    source, target = document.getsourcelanguage() or "source", document.gettargetlanguage() or "target"
    units = [
        (unit.xmlelement.sourceline or 0, {source: str(unit.source or ""), target: str(unit.target or "")})
        for unit in document.units
        if not unit.isheader()
    ]
    return source, units
