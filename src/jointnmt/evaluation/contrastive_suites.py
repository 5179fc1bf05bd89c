"""Contrastive suites: a correct translation with wrong ones that differ from it in one respect.

The common model of ContraWSD (Rios et al., 2017), MuCoW (Raganato et al., 2019), LingEval97 (Sennrich, 2017) and
line-parallel minimal pairs (as in DistilLingEval; Vamvas and Sennrich, 2021), and how they are parsed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from jointnmt.errors import DataError
from jointnmt.text.invisible import has_surrogate

JsonKind = Literal["contrawsd", "mucow", "lingeval97"]
SuiteKind = Literal["contrawsd", "mucow", "lingeval97", "lines"]

NEEDED: Mapping[str, tuple[str, ...]] = {
    "contrawsd": ("source", "reference", "ambig word", "sense", "errors"),
    "mucow": ("source", "reference", "ambig word", "sense", "origin", "errors"),
    "lingeval97": ("source", "reference", "errors"),
}
"""Required keys of an item."""
NEEDED_OF_ERROR: Mapping[str, tuple[str, ...]] = {
    "contrawsd": ("contrastive",),
    "mucow": ("contrastive",),
    "lingeval97": ("contrastive", "type"),
}
SENSE_FREQUENCY = "frequency of sense/ambig word in "
"""Prefix of ContraWSD's frequency keys; the corpus follows."""
PREFERRED_CORPORA = ("wmt16", "europarl-v7 and nc11")
"""Corpora whose frequencies ContraWSD's own evaluation uses, for German-English and German-French."""


@dataclass(frozen=True)
class SenseFrequency:
    """Counts of a sense of an ambiguous word, and of the word, in a training corpus."""

    sense: int
    word: int

    @property
    def relative(self) -> float | None:
        """The sense's share of the word's occurrences; None if the word does not occur."""
        return self.sense / self.word if self.word else None


@dataclass(frozen=True)
class Contrast:
    """A wrong translation."""

    text: str
    type: str | None = None
    """The type of the error."""
    distance: int | None = None
    """Words between the two that violate agreement."""
    frequency: int | None = None
    """Frequency of the content word in training data."""


@dataclass(frozen=True)
class SuiteItem:
    """A source with its correct translation and wrong ones."""

    number: int
    """Number within its file, from 1."""
    place: str
    """File and number, for messages."""
    source: str
    reference: str
    contrasts: tuple[Contrast, ...]
    word: str | None = None
    """The ambiguous word, if the item is about one."""
    sense: str | None = None
    """The word's sense here."""
    origin: str | None = None
    """The corpus or document of the item."""
    frequency: SenseFrequency | None = None


@dataclass(frozen=True)
class Suite:
    """Items of one kind."""

    name: str
    kind: SuiteKind
    items: tuple[SuiteItem, ...]
    frequency_corpus: str | None = None
    """The corpus in which senses were counted, if any."""

    @property
    def by_item(self) -> bool:
        """Whether an item is decided as a whole; otherwise each pair of reference and contrast is."""
        return self.kind in ("contrawsd", "mucow")


def parse_suite(text: str, name: str, kind: JsonKind | None = None) -> Suite:
    """Parse a suite from JSON; kind None detects it from the first item.

    With an ambiguous word, it is ContraWSD if any item has a frequency, else MuCoW; without one, LingEval97.

    Raises:
        DataError: naming item and key, if the text is not a JSON list of items, or an item lacks a required key.
    """
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise DataError(
            f"{name}{line}: is not valid JSON ({error}). A suite in one file is a JSON list of items; line-parallel "
            "texts are given as --source, --right and --wrong, or as a folder."
        ) from error
    if not isinstance(values, list):
        raise DataError(f"{name}: holds {_kind_of(values)}, but a suite is a list of items. Check the file.")
    if not values:
        raise DataError(f"{name}: there are no items to evaluate. Check that the file is complete.")
    for number, value in enumerate(values, start=1):
        if not isinstance(value, dict):
            raise DataError(
                f"{name}: item {number}: is {_kind_of(value)}, but must be an object. Correct or remove it."
            )
    corpora = sorted({key.removeprefix(SENSE_FREQUENCY) for value in values for key in value if _is_frequency(key)})
    found = kind or _recognise(values[0], corpora)
    corpus = next((each for each in (*PREFERRED_CORPORA, *corpora) if each in corpora), None)
    corpus = corpus if found == "contrawsd" else None
    items = (_parse_item(value, n, f"{name}: item {n}", found, corpus) for n, value in enumerate(values, start=1))
    return Suite(name, found, tuple(items), corpus)


def _is_frequency(key: str) -> bool:
    return key.startswith(SENSE_FREQUENCY)


def _recognise(item: Mapping[str, Any], corpora: Sequence[str]) -> JsonKind:
    if "ambig word" not in item:
        return "lingeval97"
    return "contrawsd" if corpora else "mucow"


def _parse_item(value: Mapping[str, Any], number: int, place: str, kind: JsonKind, corpus: str | None) -> SuiteItem:
    _require(value, NEEDED[kind], place, kind)
    errors = value["errors"]
    if not isinstance(errors, list):
        raise DataError(f"{place}: 'errors' is {_kind_of(errors)}, but must be a list. Correct or remove the item.")
    if not errors:
        raise DataError(
            f"{place}: 'errors' is empty, so there is nothing to compare the reference with. Add a contrastive "
            "translation, or remove the item."
        )
    item = SuiteItem(
        number=number,
        place=place,
        source=_text(value, "source", place),
        reference=_text(value, "reference", place),
        contrasts=tuple(_parse_error(each, f"{place}, error {n}", kind) for n, each in enumerate(errors, start=1)),
        origin=_text(value, "origin", place) if value.get("origin") is not None else None,
    )
    if kind == "lingeval97":
        return item
    return replace(
        item,
        word=_text(value, "ambig word", place),
        sense=_text(value, "sense", place),
        frequency=_sense_frequency(value, f"{SENSE_FREQUENCY}{corpus}", place),
    )


def _parse_error(value: Any, place: str, kind: JsonKind) -> Contrast:
    if not isinstance(value, dict):
        raise DataError(f"{place}: is {_kind_of(value)}, but must be an object. Correct or remove it.")
    _require(value, NEEDED_OF_ERROR[kind], place, kind)
    return Contrast(
        text=_text(value, "contrastive", place),
        type=_text(value, "type", place) if value.get("type") is not None else None,
        distance=_count(value, "distance", place) if kind == "lingeval97" else None,
        frequency=_count(value, "frequency", place) if kind == "lingeval97" else None,
    )


def _require(value: Mapping[str, Any], keys: Sequence[str], place: str, kind: JsonKind) -> None:
    missing = [key for key in keys if key not in value]
    if missing:
        raise DataError(
            f"{place}: has no {missing[0]!r}; in a {kind} suite there must be {', '.join(map(repr, keys))}. "
            "Add it, remove the item, or give the kind of the suite (--kind) if it is another one."
        )


def _text(value: Mapping[str, Any], key: str, place: str) -> str:
    text = value[key]
    if not isinstance(text, str) or not text.strip():
        what = "is empty" if isinstance(text, str) else f"is {_kind_of(text)}"
        raise DataError(f"{place}: {key!r} {what}, but must be text. Correct or remove the item.")
    if "\0" in text or has_surrogate(text):
        raise DataError(
            f"{place}: {key!r} holds an unpaired surrogate or NUL, so it is not text. Correct or remove the item."
        )
    if "\n" in text.rstrip("\r\n"):
        raise DataError(f"{place}: {key!r} has several lines, but must be one sentence. Correct or remove the item.")
    return text


def _count(value: Mapping[str, Any], key: str, place: str) -> int | None:
    count = value.get(key)
    if count is None:
        return None
    if isinstance(count, bool) or not re.fullmatch(r"[0-9]{1,18}", str(count)):
        raise DataError(
            f"{place}: {key!r} is {count!r}, but must be a whole number, 0 or more. Correct or remove the item."
        )
    return int(count)


def _sense_frequency(value: Mapping[str, Any], key: str, place: str) -> SenseFrequency | None:
    counts = value.get(key)
    if counts is None:
        return None
    match = re.fullmatch(r"\s*([0-9]{1,18})\s*/\s*([0-9]{1,18})\s*", str(counts))
    if match is None:
        raise DataError(
            f"{place}: {key!r} is {counts!r}, but must be two whole numbers as in '12/345': the counts of the sense "
            "and of the word. Correct or remove the item."
        )
    return SenseFrequency(int(match[1]), int(match[2]))


def _kind_of(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def pair_items(
    sources: Iterable[str], rights: Iterable[str], wrongs: Iterable[str], names: Sequence[str], type: str | None = None
) -> list[SuiteItem]:
    """Items of line-parallel minimal pairs: line i of the texts is a source, its correct and its wrong translation.

    `names` are the names of the three texts; `type` is the type of error, if known.

    Raises:
        DataError: naming the line, if the texts are not equally long, or a line is empty.
    """
    texts = [list(lines) for lines in (sources, rights, wrongs)]
    if len(set(map(len, texts))) > 1:
        lengths = ", ".join(f"{name}: {len(lines)}" for name, lines in zip(names, texts, strict=True))
        raise DataError(
            f"The texts are not parallel: their numbers of lines differ ({lengths}). Line i of each must go with "
            "line i of the others: check that all are complete."
        )
    if not texts[0]:
        raise DataError(f"{names[0]}: there are no lines to evaluate. Check that the file is complete.")
    items = []
    for number, row in enumerate(zip(*texts, strict=True), start=1):
        empty = [name for name, line in zip(names, row, strict=True) if not line.strip()]
        if empty:
            raise DataError(f"{empty[0]}:{number}: this line is empty. Remove line {number} of all three texts.")
        source, right, wrong = row
        items.append(SuiteItem(number, f"{names[0]}:{number}", source, right, (Contrast(wrong, type),)))
    return items
