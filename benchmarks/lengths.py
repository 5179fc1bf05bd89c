"""Real sentence lengths: counted in the corpora where they are, else as recorded in `lengths.json`.

    python -m benchmarks.lengths    # record anew

The record has, for each corpus, how often each pair of lengths occurs, so that both ways give the same pairs, in
another order. Lengths count the end mark. Pairs with more than `LONGEST` tokens on a side are left out and counted.
"""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from jointnmt.data.batches import Lengths
from jointnmt.text.segmentation import Segmentation, SegmentationConfig

RECORD = Path(__file__).with_name("lengths.json")
LONGEST = 100
CORPORA = {"IWSLT": "iwslt14-de-en", "Multi30k": "multi30k", "tiny": "multi30k"}
"""Of each size, the folder of its corpus."""


@dataclass(frozen=True)
class SentenceLengths:
    """Tokens of each sentence pair of a corpus, end marks counted."""

    source: Lengths
    target: Lengths
    origin: str
    """Where they come from, for people."""
    left_out: int
    """Pairs that are longer than `LONGEST` on a side."""


@cache
def sentence_lengths(size: str) -> SentenceLengths:
    """The lengths of the corpus that goes with a size."""
    corpus = CORPORA[size]
    folder = corpora() / corpus
    if folder.is_dir():
        return _kept(np.array(count(corpus, folder)), f"counted in {corpus}")
    return recorded(size)


def recorded(size: str) -> SentenceLengths:
    """The recorded lengths of the corpus that goes with a size, in the order of the record."""
    rows = np.array(json.loads(RECORD.read_text(encoding="utf-8"))[CORPORA[size]])
    return _kept(np.repeat(rows[:, :2], rows[:, 2], axis=0), f"recorded of {CORPORA[size]}")


def corpora() -> Path:
    """The folder of real corpora: JOINTNMT_DATA, or `../shared/data` beside the checkout."""
    given = os.environ.get("JOINTNMT_DATA")
    return Path(given) if given else Path(__file__).parents[2] / "shared" / "data"


def count(corpus: str, folder: Path) -> list[tuple[int, int]]:
    """Source and target length of each pair: German-English pieces of IWSLT, English-German ones of Multi30k."""
    if corpus == "iwslt14-de-en":
        sides = [[line.split() for line in _lines(folder / f"bpe10k.valid.{language}.gz")] for language in ("de", "en")]
        return [(len(source) + 1, len(target) + 1) for source, target in zip(*sides, strict=True)]
    english, german = (_lines(folder / f"train.{language}.gz") for language in ("en", "de"))
    segmentation = Segmentation.train(SegmentationConfig(vocabulary_size=8_000), english, german, "en", "de")
    ids = [segmentation.source.encode_ids_batch(english), segmentation.target.encode_ids_batch(german)]
    return [(len(source) + 1, len(target) + 1) for source, target in zip(*ids, strict=True)]


def record() -> None:
    """Write `lengths.json`: for each corpus rows of source length, target length, pairs."""
    histograms = {}
    for corpus in dict.fromkeys(CORPORA.values()):
        counts = Counter(count(corpus, corpora() / corpus))
        histograms[corpus] = [[*lengths, pairs] for lengths, pairs in sorted(counts.items())]
    text = ",\n".join(f"{json.dumps(corpus)}: {json.dumps(rows)}" for corpus, rows in histograms.items())
    RECORD.write_text(f"{{{text}}}\n", encoding="utf-8")


def _lines(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return file.read().splitlines()


def _kept(pairs: Lengths, origin: str) -> SentenceLengths:
    fits = pairs.max(axis=1) <= LONGEST
    source, target = pairs[fits].astype(np.int32).T
    return SentenceLengths(source, target, origin, int((~fits).sum()))


if __name__ == "__main__":
    record()
