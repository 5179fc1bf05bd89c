"""Copies of training pairs that teach a model what the text alone does not; docs/own-text.md says what they bring.

Ordinary text has few numbers, and the same few names again and again, so that unseen ones are not copied. It is written
with care, unlike what people type.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import compress
from random import Random
from typing import ClassVar, Literal, Protocol, Self, get_args

SentencePair = tuple[str, str]
CopyKind = Literal["numbers", "names", "typed"]
COPY_KINDS: tuple[CopyKind, ...] = get_args(CopyKind)

MOST_OF_TEXT, MOST_OF_LITTLE_TEXT = 0.05, 0.25
"""Most copies of a kind, as a share of the training pairs: the latter as long as they are not `ENOUGH`."""
ENOUGH = 8000
"""Copies of a kind from which a model learns it: hundreds among 10,000 pairs are too few."""


class Change(Protocol):
    """A way to change pairs so that both sides still mean the same."""

    description: ClassVar[str]
    """What the copies are: words to follow `copies of training pairs`."""
    most_of_pair: ClassVar[int]
    """Most copies of a pair."""

    def fits(self, pair: SentencePair) -> bool:
        """Whether there is something to change, and the rest of the pair would stay right."""

    def changed(self, pair: SentencePair, random: Random) -> SentencePair:
        """The changed pair."""


@dataclass(frozen=True)
class Copies:
    """Copies of training pairs that a change fits."""

    kind: CopyKind
    description: str
    pairs: Sequence[SentencePair] = field(repr=False)


def make_copies(
    train_pairs: Callable[[], Iterable[SentencePair]], may_be_learnt: Callable[[SentencePair], bool]
) -> tuple[Copies, ...]:
    """All copies of a training text that may be learnt; a kind of which there are none is left out.

    They depend on nothing but the text: each has a generator that is seeded with its pair.
    """
    changes: dict[CopyKind, Change] = {
        "numbers": OtherNumbers(),
        "names": OtherNames.of(train_pairs()),
        "typed": Typed(),
    }
    found = (
        Copies(kind, change.description, [*filter(may_be_learnt, _copies(change, train_pairs))])
        for kind, change in changes.items()
    )
    return tuple(copies for copies in found if copies.pairs)


def _copies(change: Change, train_pairs: Callable[[], Iterable[SentencePair]]) -> Iterator[SentencePair]:
    """Copies of the pairs that the change fits, evenly many of each, in their order."""
    fits = [change.fits(pair) for pair in train_pairs()]
    fitting = sum(fits)
    of_text = max(int(MOST_OF_TEXT * len(fits)), min(ENOUGH, int(MOST_OF_LITTLE_TEXT * len(fits))))
    number = min(change.most_of_pair * fitting, of_text)
    for place, pair in enumerate(compress(train_pairs(), fits)):
        random = Random("\t".join(pair))
        for _ in range((place + 1) * number // fitting - place * number // fitting):
            yield change.changed(pair, random)


class OtherNumbers:
    """Replaces numbers by others of as many digits."""

    description: ClassVar = "with other numbers"
    most_of_pair: ClassVar = 50

    _NUMBER = re.compile(r"[0-9]+")
    _WITH_LETTERS = re.compile(r"[0-9][^\W\d_]|[^\W\d_][0-9]")
    """A digit beside a letter, as in `2nd` or `80s`: other digits might need other letters."""
    _KEPT = ("0", "1")
    """Numbers that words agree with."""

    def fits(self, pair: SentencePair) -> bool:
        """Whether both sides have the same numbers, and others would fit as well."""
        source, target = (sorted(self._NUMBER.findall(side)) for side in pair)
        changes = any(number not in self._KEPT for number in source)
        return changes and source == target and not any(map(self._WITH_LETTERS.search, pair))

    def changed(self, pair: SentencePair, random: Random) -> SentencePair:
        """The pair with other numbers."""
        drawn: dict[str, str] = {}

        def other(found: re.Match[str]) -> str:
            return drawn.setdefault(found[0], self._other(found[0], random))

        return self._NUMBER.sub(other, pair[0]), self._NUMBER.sub(other, pair[1])

    def _other(self, number: str, random: Random) -> str:
        if number in self._KEPT:
            return number
        first = "0" if number[0] == "0" else random.choice("23456789" if len(number) == 1 else "123456789")
        return first + "".join(random.choices("0123456789", k=len(number) - 1))


@dataclass(frozen=True)
class OtherNames:
    """Replaces names by made-up ones, which begin as one word of the text does and end as another."""

    names: frozenset[str]
    """Capitalised words that are on both sides of a pair, and nowhere in lower case."""
    words: tuple[str, ...]
    """Words in lower case, in the scripts of the names."""

    description: ClassVar = "with made-up names"
    most_of_pair: ClassVar = 50

    _WORD = re.compile(r"[^\W\d_]+")
    _SHORTEST = 3
    """Letters of the shortest name: shorter ones are more often something else."""
    _LETTERS = range(4, 11)
    """Letters of a made-up name."""

    @classmethod
    def of(cls, train_pairs: Iterable[SentencePair]) -> Self:
        """The names of a text."""
        found, words = set[str](), set[str]()
        for pair in train_pairs:
            source, target = (set(cls._WORD.findall(side)) for side in pair)
            found |= {word for word in source & target if word.istitle() and len(word) >= cls._SHORTEST}
            words |= {word for word in source | target if word.islower()}
        names = {name for name in found if name.lower() not in words}
        scripts = set(map(_script, "".join(names)))
        parts = (word for word in words if len(word) > cls._SHORTEST and scripts.issuperset(map(_script, word)))
        return cls(frozenset(names), tuple(sorted(parts)))

    def fits(self, pair: SentencePair) -> bool:
        """Whether both sides have the same names."""
        source, target = (sorted(word for word in self._WORD.findall(side) if word in self.names) for side in pair)
        return bool(self.words) and source == target != []

    def changed(self, pair: SentencePair, random: Random) -> SentencePair:
        """The pair with made-up names."""
        drawn: dict[str, str] = {}

        def other(found: re.Match[str]) -> str:
            name = found[0]
            return drawn.setdefault(name, self._made_up(random)) if name in self.names else name

        return self._WORD.sub(other, pair[0]), self._WORD.sub(other, pair[1])

    def _made_up(self, random: Random) -> str:
        while True:
            first, last = random.choices(self.words, k=2)
            made = first[: random.randrange(2, len(first))] + last[-random.randrange(2, len(last)) :]
            if len(made) in self._LETTERS:
                return made.title()


class Typed:
    """Writes sentences as people type them: without a final mark, without a capital, or in lower case.

    The final mark is left out on both sides; the case is that of the source.
    """

    description: ClassVar = "as people type, without a final mark or capitals"
    most_of_pair: ClassVar = 1

    _FINAL_MARK = re.compile(r"[.!?。！？]+$")

    def fits(self, pair: SentencePair) -> bool:
        """Whether both sides have a final mark, and more."""
        return all(side != self._unmarked(side) != "" for side in pair)

    def changed(self, pair: SentencePair, random: Random) -> SentencePair:
        """The pair with a case drawn for the source, and with final marks or without; without if its case is kept."""
        source, target = pair
        kept = source
        source = random.choice((source, source[0].lower() + source[1:], source.lower()))
        if source == kept or random.random() < 0.5:
            return self._unmarked(source), self._unmarked(target)
        return source, target

    def _unmarked(self, side: str) -> str:
        return self._FINAL_MARK.sub("", side)


@cache
def _script(letter: str) -> str:
    """The script of a letter, such as `LATIN`."""
    return unicodedata.name(letter, "").partition(" ")[0]
