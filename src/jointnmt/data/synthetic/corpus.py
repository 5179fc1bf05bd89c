"""The corpus as users get it: an unlimited stream of sentence pairs, split without overlap, and files of it."""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from random import Random
from typing import Literal

from jointnmt.data.synthetic import english, german
from jointnmt.data.synthetic.dice import Dice
from jointnmt.data.synthetic.lexicon import size
from jointnmt.data.synthetic.sampler import Sampler
from jointnmt.errors import ConfigurationError, DataError

Split = Literal["train", "validation", "test"]

_TRAIN: tuple[Split, ...] = ("train",)
_BUCKETS: tuple[Split, ...] = ("validation", "test", *_TRAIN * 8)
"""One sentence in ten is for validation, one in ten for testing; which ones, their own words tell."""


README_BEGINS = "This is a synthetic corpus"


@dataclass(frozen=True, slots=True)
class SyntheticPair:
    """A German sentence and its English translation, both made by the grammar."""

    source: str
    target: str


def generate(seed: int, split: Split) -> Iterator[SyntheticPair]:
    """Sentence pairs of one split without end, no German sentence twice.

    The same seed gives the same pairs on every machine and in every version of Python. A sentence belongs to one split
    whatever the seed: a test set of one seed shares no sentence with a training set of another. Memory grows by the
    sentences drawn, some 100 bytes each.

    Raises:
        ConfigurationError: if there is no such split.
    """
    if split not in _BUCKETS:
        raise ConfigurationError(f"split={split!r}: the synthetic corpus has train, validation and test.")
    return _pairs(seed, split)


def write_corpus(directory: Path, seed: int, train: int, validation: int, test: int) -> None:
    """Write the first sentence pairs of each split as line-parallel files `train.de`, `train.en` and so on.

    A README.txt beside them says that the text is synthetic, with its seed and sizes.

    Raises:
        ConfigurationError: if a size is negative.
        DataError: if the files cannot be written, or there are files of these names that are not of a synthetic corpus.
    """
    sizes: dict[Split, int] = {"train": train, "validation": validation, "test": test}
    for split, count in sizes.items():
        if count < 0:
            raise ConfigurationError(f"{split}={count}: a split cannot have fewer than 0 sentence pairs.")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _check_replaceable(directory, sizes)
        for split, count in sizes.items():
            _write_split(directory, split, islice(generate(seed, split), count))
        (directory / "README.txt").write_text(_readme(seed, sizes), encoding="utf-8")
    except OSError as error:
        message = f"{directory}: the synthetic corpus cannot be written: {error}. Choose another folder."
        raise DataError(message) from error


def _check_replaceable(directory: Path, sizes: dict[Split, int]) -> None:
    """Refuse to replace anything but a synthetic corpus: its README.txt tells one."""
    readme = directory / "README.txt"
    names = [readme.name, *(f"{split}.{language}" for split in sizes for language in ("de", "en"))]
    there = [name for name in names if (directory / name).exists()]
    is_ours = readme.is_file() and readme.read_text(encoding="utf-8", errors="replace").startswith(README_BEGINS)
    if there and not is_ours:
        raise DataError(
            f"{directory}: holds {', '.join(there)} already, and not from a synthetic corpus. Choose another "
            "folder, or move them away."
        )


def split_of(source: str) -> Split:
    """The split that a German sentence belongs to, by its words without case and punctuation."""
    return _BUCKETS[_key(source) % len(_BUCKETS)]


def _pairs(seed: int, split: Split) -> Iterator[SyntheticPair]:
    sampler = Sampler(Dice(Random(seed)))
    seen: set[int] = set()
    while True:
        tree = sampler.sentence()
        source = german.sentence(tree)
        key = _key(source)
        if _BUCKETS[key % len(_BUCKETS)] == split and key not in seen:
            seen.add(key)
            yield SyntheticPair(source, english.sentence(tree))


def _key(source: str) -> int:
    words = "".join(letter for letter in source.lower() if letter.isalpha() or letter == " ")
    return int.from_bytes(blake2b(words.encode(), digest_size=8).digest(), "big")


def _write_split(directory: Path, split: Split, pairs: Iterator[SyntheticPair]) -> None:
    with (
        (directory / f"{split}.de").open("w", encoding="utf-8", newline="\n") as source,
        (directory / f"{split}.en").open("w", encoding="utf-8", newline="\n") as target,
    ):
        for pair in pairs:
            source.write(f"{pair.source}\n")
            target.write(f"{pair.target}\n")


def _readme(seed: int, sizes: dict[Split, int]) -> str:
    lexicon = "\n".join(f"    {count} {part}" for part, count in size().items())
    pairs = "\n".join(f"    {split}: {count} sentence pairs" for split, count in sizes.items())
    return f"""\
{README_BEGINS}: German sentences and their English translations that no one has ever said.

A program drew them from a hand-written grammar and lexicon. They are good for trying things out: whether a model
learns word order, agreement, and words that depend on others far away. Scores on them say nothing about translating
real text.

Seed: {seed}
Sizes:
{pairs}
Lexicon:
{lexicon}

No German sentence is in two splits or twice in one; every German sentence has one English translation.
"""
