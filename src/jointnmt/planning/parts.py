"""The parts of a user's corpus: training, validation and test text, as files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from jointnmt.data.quality.check import CheckedText
from jointnmt.data.quality.clean import check_not_read, new_files, write_pairs
from jointnmt.data.quality.problems import comparable
from jointnmt.data.quality.texts import CorpusPart
from jointnmt.errors import DataError
from jointnmt.planning.copies import COPY_KINDS, Copies, CopyKind, make_copies
from jointnmt.planning.holdout import LEFT_OUT, TEST, TRAIN, VALID, hold_out, num_held_out

PARTS: dict[int, CorpusPart] = {TRAIN: "train", VALID: "valid", TEST: "test"}


@dataclass(frozen=True)
class CorpusParts:
    """The assignment of pairs to parts, and the files of the parts."""

    directory: Path
    languages: tuple[str, str]
    pairs: dict[CorpusPart, int]
    words: int
    """Words of the training text's target side."""
    left_out: int
    """Good pairs left out, as they share a sentence with held-out text."""
    given: tuple[CorpusPart, ...]
    """Parts that were given, by the names of their files; the others are held out from the training text."""
    assigned: Mapping[int, npt.NDArray[np.uint8]] = field(default_factory=dict, repr=False, compare=False)
    """Parts of the good pairs of each text."""
    copies: tuple[Copies, ...] = ()
    """Copies of training pairs, in files of their own."""

    def paths(self, part: CorpusPart | CopyKind) -> tuple[Path, Path]:
        """The files of a part, or of copies, source and target."""
        return self.directory / f"{part}.{self.languages[0]}", self.directory / f"{part}.{self.languages[1]}"

    def pairs_with_parts(self, checked: Sequence[CheckedText]) -> Iterator[tuple[int, tuple[str, str]]]:
        """The good pairs of the texts with their parts, in the order of the files; a space for any white space."""
        for number, text in enumerate(checked):
            for part, pair in zip(self.assigned[number].tolist(), text.good_pairs(), strict=True):
                yield part, (" ".join(pair.source.split()), " ".join(pair.target.split()))

    def train_pairs(self, checked: Sequence[CheckedText]) -> Iterator[tuple[str, str]]:
        """The pairs of the training text, without copies."""
        return (pair for part, pair in self.pairs_with_parts(checked) if part == TRAIN)


def divide(
    checked: Sequence[CheckedText],
    directory: Path,
    languages: tuple[str, str],
    seed: int,
    fewest_pairs: int,
    advice: str,
) -> CorpusParts:
    """Divide the pairs without a problem into parts, for `write_parts` to write into a folder.

    Raises:
        DataError: if there are fewer than `fewest_pairs` to train on; `advice` says what to do.
        ConfigurationError: if one of the files would overwrite a checked one.
    """
    assigned = _assigned(checked, seed)
    numbers = np.concatenate(list(assigned.values()))
    pairs: dict[CorpusPart, int] = {name: int((numbers == part).sum()) for part, name in PARTS.items()}
    if pairs["train"] < fewest_pairs:
        raise DataError(_too_few(pairs, checked, fewest_pairs, advice))
    if empty := [text for text in checked if text.text.part != "train" and not pairs[text.text.part]]:
        raise DataError(_none_left(empty[0]))
    words = sum(int(text.words[text.good][assigned[number] == TRAIN, 1].sum()) for number, text in enumerate(checked))
    given = tuple(dict.fromkeys(text.text.part for text in checked if text.text.part != "train"))
    parts = CorpusParts(directory, languages, pairs, words, int((numbers == LEFT_OUT).sum()), given, assigned)
    check_not_read([path for name in (*PARTS.values(), *COPY_KINDS) for path in parts.paths(name)], checked)
    return replace(parts, copies=copies_of(parts, checked))


def write_parts(parts: CorpusParts, checked: Sequence[CheckedText]) -> None:
    """Write the parts as `PART.LANGUAGE`; good pairs that are in none of them get the problem `overlap`."""
    paths = [path for name in PARTS.values() for path in parts.paths(name)]
    parts.directory.mkdir(parents=True, exist_ok=True)
    with new_files(paths) as streams:
        files = {part: streams[2 * place : 2 * place + 2] for place, part in enumerate(PARTS)}
        for part, pair in parts.pairs_with_parts(checked):
            if part in files:
                for stream, sentence in zip(files[part], pair, strict=True):
                    stream.write(sentence + "\n")
    for copies in parts.copies:
        write_pairs(copies.pairs, parts.paths(copies.kind))
    for number, text in enumerate(checked):
        good, left_out = np.flatnonzero(text.good), np.zeros(len(text), bool)
        left_out[good] = parts.assigned[number] == LEFT_OUT
        text.mark(left_out, "overlap")


def copies_of(parts: CorpusParts, checked: Sequence[CheckedText]) -> tuple[Copies, ...]:
    """Copies of the training text, except those that share a sentence with held-out text."""
    held_out = {
        (side, comparable(each[side]))
        for part, each in parts.pairs_with_parts(checked)
        if part != TRAIN
        for side in (0, 1)
    }
    return make_copies(
        lambda: parts.train_pairs(checked), lambda pair: held_out.isdisjoint(enumerate(map(comparable, pair)))
    )


def _too_few(pairs: Mapping[CorpusPart, int], checked: Sequence[CheckedText], fewest: int, advice: str) -> str:
    """Message for too few pairs."""
    read, good = sum(map(len, checked)), sum(int(text.good.sum()) for text in checked)
    bad = f"; {read - good:,} have a problem (`jointnmt data check` says which)" if good < read else ""
    return (
        f"There are {pairs['train']:,} sentence pairs to learn from, of {read:,} read{bad}; the other "
        f"{good - pairs['train']:,} are held out for validation and testing, or share a sentence with those. At least "
        f"{fewest:,} are needed, and some thousand for translations that are of use. {advice}"
        f"{_taken_by_name(checked)}"
    )


def _taken_by_name(checked: Sequence[CheckedText]) -> str:
    """Note on files that are held out because of their names, if there are any."""
    names = [f"{each.text.name} ({each.text.part})" for each in checked if each.text.part != "train"]
    return (
        f" Taken for held-out text, by their names: {', '.join(names)}; rename what is to be learnt." if names else ""
    )


def _none_left(text: CheckedText) -> str:
    """Message for a given part without a usable pair."""
    found = ", ".join(f"{problem}: {count:,}" for problem, count in text.counts().items()) or "there is none in it"
    return (
        f"{text.text.name}: no pair is left to use as {text.text.part} ({found}). Give another file, or none: then "
        "pairs of the training text are held out."
    )


def _assigned(checked: Sequence[CheckedText], seed: int) -> dict[int, npt.NDArray[np.uint8]]:
    """The part of each good pair of each text."""
    given = {text.text.part for text in checked}
    train = [number for number, text in enumerate(checked) if text.text.part == "train"]
    sides = [checked[number].sides[checked[number].good] for number in train]
    held = num_held_out(sum(map(len, sides)))
    drawn = hold_out(
        np.concatenate([np.zeros((0, 2), np.uint64), *sides]),
        0 if "valid" in given else held,
        0 if "test" in given else held,
        seed,
    )
    divided = np.split(drawn, np.cumsum([len(each) for each in sides])[:-1]) if train else []
    assigned = dict(zip(train, divided, strict=True))
    for number, text in enumerate(checked):
        if number not in assigned:
            part = VALID if text.text.part == "valid" else TEST
            assigned[number] = np.full(int(text.good.sum()), part, np.uint8)
    return assigned
