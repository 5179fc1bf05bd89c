"""Whether a store of segmented text is what was written: its hashes, and the ranges of what it holds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jointnmt.extras import extra

if TYPE_CHECKING:
    from jointnmt.text.segmentation import Segmentation

FILES = {"pairs.arrow", "lengths.bin"}


def hash_file(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def checksum(facts: Mapping[str, Any]) -> str:
    """SHA-256 of what `store.json` says, but for this."""
    said = {key: value for key, value in facts.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def fault(directory: Path, fingerprint: str, segmentation: Segmentation) -> str | None:
    """What is wrong with the store in a folder; empty: there is none; None: nothing is wrong.

    Reads all of it, once: about as much as hashing the text that it was made of, which its name costs.
    """
    if not directory.exists():
        return ""
    try:
        facts = json.loads((directory / "store.json").read_text(encoding="utf-8"))
        if "checksum" not in facts:
            return "this store is of a version that kept no hashes"
        whole = facts["checksum"] == checksum(facts) and facts["fingerprint"] == fingerprint
        if not whole or facts["hashes"].keys() != FILES:
            return "this store is damaged: its store.json is not as it was written"
        for name, expected in facts["hashes"].items():
            if hash_file(directory / name) != expected:
                return f"this store is damaged: {name} is not as it was written"
        return _out_of_range(directory, segmentation)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return f"this store is damaged ({error})"


def _out_of_range(directory: Path, segmentation: Segmentation) -> str | None:
    """What of the ids and lengths cannot be; None: nothing."""
    with extra("train"):
        import pyarrow as pa
        import pyarrow.compute as pc
    lengths = np.memmap(directory / "lengths.bin", dtype=np.int32, mode="r").reshape(-1, 2)
    sides = {"source": segmentation.source, "target": segmentation.target}
    rows = 0
    with pa.memory_map(str(directory / "pairs.arrow")) as stream:
        for batch in pa.ipc.open_stream(stream):
            for column, (name, side) in enumerate(sides.items()):
                lists = batch.column(name)
                ids = pc.min_max(lists.flatten()).as_py()
                if ids["min"] is not None and not 0 <= ids["min"] <= ids["max"] < side.vocabulary_size:
                    return f"this store is damaged: ids of the {name} reach from {ids['min']} to {ids['max']}"
                stored = lengths[rows : rows + batch.num_rows, column]
                if not np.array_equal(pc.list_value_length(lists).to_numpy() + 1, stored):
                    return f"this store is damaged: lengths of the {name} are not those of its pairs"
            rows += batch.num_rows
    return None if rows == len(lengths) else f"this store is damaged: {rows} pairs have {len(lengths)} lengths"
