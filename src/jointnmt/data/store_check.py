"""Verification of a store of segmented text: its hashes, and the ranges of its ids and lengths."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from jointnmt.data.segmenting import pyarrow
from jointnmt.files import hash_file

if TYPE_CHECKING:
    from jointnmt.text.segmentation import Segmentation

LENGTHS = "lengths.bin"
"""File of a store with the lengths of all its pairs."""

SHARDS = "pairs-{:06d}.arrow"
"""Names of the files with the pairs. Older stores have one, `pairs.arrow`."""


def shards(names: Iterable[str]) -> list[str]:
    """The files with pairs among those of a store, in order."""
    return sorted(name for name in names if name.startswith("pairs"))


def checksum(facts: Mapping[str, Any]) -> str:
    """SHA-256 of the content of `store.json`, without the checksum itself."""
    said = {key: value for key, value in facts.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def fault(directory: Path, fingerprint: str, segmentation: Segmentation) -> str | None:
    """The fault of the store in a folder; empty: there is no store; None: the store is intact.

    Reads all of it once, which takes about as long as hashing its text for the fingerprint.
    """
    if not directory.exists():
        return ""
    try:
        facts = json.loads((directory / "store.json").read_text(encoding="utf-8"))
        if "checksum" not in facts:
            return "this store was written by a version that stored no hashes"
        whole = facts["checksum"] == checksum(facts) and facts["fingerprint"] == fingerprint
        if not whole or LENGTHS not in facts["hashes"] or not shards(facts["hashes"]):
            return "this store is damaged: its store.json is not as it was written"
        for name, expected in facts["hashes"].items():
            if hash_file(directory / name) != expected:
                return f"this store is damaged: {name} is not as it was written"
        return _out_of_range(directory, shards(facts["hashes"]), segmentation)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return f"this store is damaged ({error})"


def _out_of_range(directory: Path, names: Sequence[str], segmentation: Segmentation) -> str | None:
    """The fault of ids or lengths that are out of range; None: there is none."""
    lengths = np.memmap(directory / LENGTHS, dtype=np.int32, mode="r").reshape(-1, 2)
    rows = 0
    for batch in _batches(directory, names):
        if found := _wrong(batch, lengths[rows : rows + batch.num_rows], segmentation):
            return f"this store is damaged: {found}"
        rows += batch.num_rows
    return None if rows == len(lengths) else f"this store is damaged: {rows} pairs have {len(lengths)} lengths"


def _batches(directory: Path, names: Sequence[str]) -> Iterator[Any]:
    pa = pyarrow()
    for name in names:
        with pa.memory_map(str(directory / name)) as stream:
            yield from pa.ipc.open_stream(stream)


def _wrong(batch: Any, lengths: npt.NDArray[np.int32], segmentation: Segmentation) -> str | None:
    pc = pyarrow().compute
    sides = {"source": segmentation.source, "target": segmentation.target}
    for column, (name, side) in enumerate(sides.items()):
        lists = batch.column(name)
        ids = pc.min_max(lists.flatten()).as_py()
        if ids["min"] is not None and not 0 <= ids["min"] <= ids["max"] < side.vocabulary_size:
            return f"ids of the {name} reach from {ids['min']} to {ids['max']}"
        if not np.array_equal(pc.list_value_length(lists).to_numpy() + 1, lengths[:, column]):
            return f"lengths of the {name} are not those of its pairs"
    return None
