"""Real sentence lengths: counted in the corpora if present, else as recorded in `lengths.json`.

    python -m benchmarks.lengths    # record again

The record has, for each corpus, how often each pair of lengths occurs, so that both ways give the same pairs, in
different order. Lengths include the end mark. Pairs with more than `LONGEST` tokens on a side are left out and counted.
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
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import WhitespaceSplit

from jointnmt.data.batches import Lengths
from jointnmt.text.config import SegmentationConfig
from jointnmt.text.segmentation import Segmentation

RECORD = Path(__file__).with_name("lengths.json")
LONGEST = 100
CORPORA = {"IWSLT": "iwslt14-de-en", "Multi30k": "multi30k", "tiny": "multi30k"}
"""Folder of the corpus of each size."""
TEXTS = ("valid", "test", "train-sample")
"""The available texts of IWSLT14, with a part of its training text."""
FILES = {
    "iwslt14-de-en": ["bpe.codes.gz", *(f"{text}.{language}.gz" for text in TEXTS for language in ("de", "en"))],
    "multi30k": ["train.en.gz", "train.de.gz"],
}
"""Files that are read of a corpus, which counts as present if all of them are."""
END = "</w>"
"""Mark of the end of a word."""


@dataclass(frozen=True)
class SentenceLengths:
    """Tokens of each sentence pair of a corpus, end marks included."""

    source: Lengths
    target: Lengths
    origin: str
    """Description of where the lengths come from."""
    left_out: int
    """Number of pairs that are longer than `LONGEST` on a side."""


@cache
def sentence_lengths(size: str) -> SentenceLengths:
    """The lengths of the corpus that goes with a size."""
    corpus = CORPORA[size]
    folder = corpora() / corpus
    if all((folder / name).is_file() for name in FILES[corpus]):
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
        texts = [[line for text in TEXTS for line in _lines(folder / f"{text}.{side}.gz")] for side in ("de", "en")]
        segmenter = _with_merges(_lines(folder / "bpe.codes.gz"), set("".join(texts[0] + texts[1])))
        sides = [[encoding.ids for encoding in segmenter.encode_batch(text)] for text in texts]
    else:
        english, german = (_lines(folder / f"train.{language}.gz") for language in ("en", "de"))
        segmentation = Segmentation.train(SegmentationConfig(vocabulary_size=8_000), english, german, "en", "de")
        sides = [segmentation.source.encode_ids_batch(english), segmentation.target.encode_ids_batch(german)]
    return [(len(source) + 1, len(target) + 1) for source, target in zip(*sides, strict=True)]


def _with_merges(codes: list[str], characters: set[str]) -> Tokenizer:
    """Byte-pair encoding of tokenised text, with merges as subword-nmt writes them: best first, below a line of its
    version."""
    merges = [(left, right) for left, right in map(str.split, codes[1:])]
    pieces = [character + end for character in sorted(characters) for end in ("", END)]
    pieces += [piece for left, right in merges for piece in (left, right, left + right)]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    segmenter = Tokenizer(BPE(vocabulary, merges, end_of_word_suffix=END))
    segmenter.pre_tokenizer = WhitespaceSplit()
    return segmenter


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
