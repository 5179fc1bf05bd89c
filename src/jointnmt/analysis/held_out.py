"""The held-out text of a lexical study: read, checked, and grouped by frequency and word class."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
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
"""Number of pairs of a store that are read at once."""

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
    half_known: int
    """Pairs left out because one side occurs there, or both sides in different pairs."""


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
    """The pairs with neither side in a store, with their pieces grouped by counts in the first store.

    Tags before sources are ignored, and are in no group.

    Raises:
        DataError: naming the line, if it is too long for the model, or empty on the source side only, or its numbers of
            tags and words differ; if the file names indicate that the sides are swapped; if no pair is left.
    """
    segmentation = translator.segmentation
    check_sides(str(text.files["source"]), str(text.files["target"]), segmentation.languages)
    lines = list(pair_lines(text.lines["source"], text.lines["target"], str(text.files["source"]), "targets"))
    sentences = translator.preprocessor().encode(lines)
    tags = segmentation.source.tag_ids
    pairs: list[IdPair | None] = [(each[0].source, each[0].target) if each else None for each in sentences]
    untagged = [None if pair is None else _untagged(*pair, tags) for pair in pairs]
    known = _known([pair for pair in untagged if pair is not None], stores, tags)
    rows = [row for row, pair in enumerate(untagged) if pair is not None and not known.has_side_of(pair)]
    kept = [pair for row in rows if (pair := pairs[row]) is not None]
    empty = pairs.count(None)
    left_out = len(pairs) - len(kept) - empty
    both = sum(pair in known.pairs for pair in untagged)
    name = f"{text.files['source']} and {text.files['target']}"
    if not kept:
        raise DataError(
            f"{name}: no sentence pair is left to measure on: {empty} of {len(pairs)} are empty, and {left_out} occur "
            "in the text that the run was trained or validated on, as pairs or one side of them. Give text that is "
            "held out from it."
        )
    if left_out or empty:
        logger.warning(
            "%s: %d of %d pairs are left out because the run was trained or validated on them (%d) or on one of their "
            "sides (%d), and %d empty ones",
            *(name, left_out, len(pairs), both, left_out - both, empty),
        )
    counts = _counts(stores[0], segmentation)
    sides = {}
    for number, side in enumerate(SIDES):
        classes = [text.tags[side][row] for row in rows] if side in text.tags else None
        places = [f"{text.tag_files[side]}:{row + 1}" for row in rows] if side in text.tags else None
        segmenter = (segmentation.source, segmentation.target)[number]
        ids = [pair[number] for row in rows if (pair := untagged[row]) is not None]
        sides[side] = side_text(ids, segmenter, FrequencyBins.of(counts[side]), classes, places)
    return HeldOutSelection(HeldOutText(kept, sides, tags), empty, both, left_out - both)


@dataclass(frozen=True)
class _Known:
    """Pairs and sides that occur in the stores."""

    pairs: set[IdPair]
    sources: set[tuple[int, ...]]
    targets: set[tuple[int, ...]]

    def has_side_of(self, pair: IdPair) -> bool:
        return pair[0] in self.sources or pair[1] in self.targets


def _untagged(source: Sequence[int], target: Sequence[int], tags: Sequence[int]) -> IdPair:
    """A pair without the tag that its source may begin with."""
    return tuple(source[1:] if source and source[0] in tags else source), tuple(target)


def _known(pairs: Sequence[IdPair], stores: Iterable[TokenStore], tags: Sequence[int]) -> _Known:
    """The pairs, and the sides of pairs, that occur in a store."""
    sources, targets = (set(side) for side in zip(*pairs, strict=True)) if pairs else (set(), set())
    wanted, found = _Known(set(pairs), sources, targets), _Known(set(), set(), set())
    for store in stores:
        for start in range(0, len(store), BLOCK):
            block = store.pairs(range(start, min(start + BLOCK, len(store))))
            seen = [_untagged(source, target, tags) for source, target in block]
            found.pairs.update(wanted.pairs.intersection(seen))
            found.sources.update(wanted.sources.intersection(source for source, _ in seen))
            found.targets.update(wanted.targets.intersection(target for _, target in seen))
    return found


def _counts(store: TokenStore, segmentation: Segmentation) -> dict[Side, Int[np.ndarray, " V"]]:
    """Counts of each piece of both sides; those of tags are 0."""
    source = store.piece_counts("source", segmentation.source.vocabulary_size)
    target = store.piece_counts("target", segmentation.target.vocabulary_size)
    source[list(segmentation.source.tag_ids)] = 0
    return {"source": source, "target": target}
