"""The held-out text of a lexical study: read, checked, and grouped by frequency and word class."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from jaxtyping import Int

from jointnmt.analysis.lexical import HeldOutText
from jointnmt.analysis.pieces import FrequencyBins, side_text
from jointnmt.analysis.states import SIDES, Side
from jointnmt.data.lines import text_lines
from jointnmt.data.store import TokenStore
from jointnmt.errors import DataError
from jointnmt.evaluation.scores import check_parallel
from jointnmt.text.languages import check_sides
from jointnmt.text.segmentation import Segmentation
from jointnmt.translator import Translator
from jointnmt.translator.preprocessing import pair_lines

logger = logging.getLogger(__name__)

BLOCK = 10_000
"""Pairs of a store read at once."""

IdPair = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class TaggedText:
    """Line-parallel text, with optional part-of-speech tags."""

    files: Mapping[Side, Path]
    lines: Mapping[Side, Sequence[str]]
    tag_files: Mapping[Side, Path]
    tags: Mapping[Side, Sequence[Sequence[str]]]
    """The tags of each line, for the sides that have tags."""


@dataclass(frozen=True)
class HeldOutSelection:
    """The part of a text that is held out from one run."""

    text: HeldOutText
    empty: int
    """Pairs left out because both sides are empty."""
    known: int
    """Pairs left out because they occur in the run's training or validation text."""


def read_text(files: Mapping[Side, Path], tag_files: Mapping[Side, Path]) -> TaggedText:
    """Read the text and its tags.

    Raises:
        DataError: if the files differ in their number of lines, or are empty.
    """
    lines = {side: list(text_lines(path)) for side, path in files.items()}
    check_parallel(lines["source"], lines["target"], str(files["source"]), str(files["target"]))
    tag_lines = {side: list(text_lines(path)) for side, path in tag_files.items()}
    for side, path in tag_files.items():
        check_parallel(tag_lines[side], lines[side], str(path), str(files[side]))
    tags = {side: [line.split() for line in each] for side, each in tag_lines.items()}
    return TaggedText(files, lines, tag_files, tags)


def select_text(text: TaggedText, translator: Translator, stores: Sequence[TokenStore]) -> HeldOutSelection:
    """The pairs of a text that occur in none of the stores, their pieces grouped by counts in the first store.

    Raises:
        DataError: naming the line, if it is too long for the model, or empty on the source side only, or has not one
            tag a word; if the file names say that the sides are swapped; if no pair is left.
    """
    segmentation = translator.segmentation
    check_sides(str(text.files["source"]), str(text.files["target"]), segmentation.languages)
    lines = list(pair_lines(text.lines["source"], text.lines["target"], str(text.files["source"]), "targets"))
    sentences = translator.preprocessor().encode(lines)
    pairs: list[IdPair | None] = [(each[0].source, each[0].target) if each else None for each in sentences]
    known = _known([pair for pair in pairs if pair is not None], stores)
    rows = [row for row, pair in enumerate(pairs) if pair is not None and pair not in known]
    kept = [pair for pair in pairs if pair is not None and pair not in known]
    empty = pairs.count(None)
    left_out = len(pairs) - len(kept) - empty
    name = f"{text.files['source']} and {text.files['target']}"
    if not kept:
        raise DataError(
            f"{name}: no sentence pair is left to measure on: {empty} of {len(pairs)} are empty, and {left_out} occur "
            "in the text that the run was trained or validated on. Give text that is held out from it."
        )
    if left_out or empty:
        logger.warning(
            "%s: %d of %d pairs are left out because the run was trained or validated on them, and %d empty ones",
            *(name, left_out, len(pairs), empty),
        )
    counts = _counts(stores[0], segmentation)
    sides = {}
    for number, side in enumerate(SIDES):
        tags = [text.tags[side][row] for row in rows] if side in text.tags else None
        places = [f"{text.tag_files[side]}:{row + 1}" for row in rows] if side in text.tags else None
        segmenter = (segmentation.source, segmentation.target)[number]
        ids = [pair[number] for pair in kept]
        sides[side] = side_text(ids, segmenter, FrequencyBins.of(counts[side]), tags, places)
    return HeldOutSelection(HeldOutText(kept, sides), empty, left_out)


def _known(pairs: Iterable[IdPair], stores: Iterable[TokenStore]) -> set[IdPair]:
    """The pairs that occur in a store."""
    wanted, found = set(pairs), set()
    for store in stores:
        for block in _blocks(store):
            found |= wanted.intersection((tuple(source), tuple(target)) for source, target in block)
    return found


def _counts(store: TokenStore, segmentation: Segmentation) -> dict[Side, Int[np.ndarray, " V"]]:
    """Counts of each piece of both sides."""
    source = np.zeros(segmentation.source.vocabulary_size, dtype=np.int64)
    target = np.zeros(segmentation.target.vocabulary_size, dtype=np.int64)
    for block in _blocks(store):
        for counts, rows in zip((source, target), zip(*block, strict=True), strict=True):
            counts += np.bincount([*chain.from_iterable(rows)], minlength=len(counts))
    return {"source": source, "target": target}


def _blocks(store: TokenStore) -> Iterable[list[tuple[list[int], list[int]]]]:
    for start in range(0, len(store), BLOCK):
        yield store.pairs(range(start, min(start + BLOCK, len(store))))
