"""How often a model copies numbers and names that it has not seen.

    python examples/copied_words.py MODEL... --source FILE --reference FILE [--name NAME] [--times N]

In each pair of lines with a single number, the same on both sides, its digits are drawn anew, several times. In each
that has NAME once on both sides, another one takes its place, of people from many countries. A number is copied if the
translation has it and no other, a name if the translation has it. The output is how many are copied; numbers by their
digits, too.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import NamedTuple

from jointnmt import Translator

NUMBER = re.compile("[0-9]+")
NAMES = re.findall(
    r"\w+",
    """
Adalbert Aisling Anneliese Anselm Ayşe Benedikt Björn Bogdan Bronwyn Caoimhe Chloé Dagmar Dmitri Esmeralda Evgenia
Farouk Gertrud Giuseppe Gulnara Hedwig Heike Horatio Ignatius Ingeborg Jaroslav Jürgen Katarzyna Kunigunde Kwame Leopold
Ljubica Lubomir Marlies Mehmet Miroslav Ngozi Nikolai Oluwaseun Ottokar Oyelaran Pavlina Priya Quentin Rosalinde
Roswitha Sabine Siegmund Svetlana Tadeusz Thorvald Torsten Uwe Wolfram Xaver Yannick Zdenka
""",
)


class Line(NamedTuple):
    """A source sentence, and what has to be copied from it."""

    source: str
    word: str


def with_numbers(sources: list[str], references: list[str], times: int) -> list[Line]:
    """Lines with a number drawn anew."""
    random, found = Random(1), []
    for source, reference in zip(sources, references, strict=True):
        numbers = NUMBER.findall(source)
        if len(numbers) == 1 and numbers == NUMBER.findall(reference):
            for _ in range(times):
                number = random.choice("123456789") + "".join(random.choices("0123456789", k=len(numbers[0]) - 1))
                found.append(Line(NUMBER.sub(number, source), number))
    return found


def with_names(sources: list[str], references: list[str], name: str) -> list[Line]:
    """Lines with another name."""
    random, named = Random(1), re.compile(rf"\b{re.escape(name)}\b")
    suitable = [
        pair[0] for pair in zip(sources, references, strict=True) if all(len(named.findall(x)) == 1 for x in pair)
    ]
    return [Line(named.sub(other, source), other) for source in suitable for other in [random.choice(NAMES)]]


def share(copied: list[bool]) -> str:
    """How many, in words."""
    return f"{sum(copied) / len(copied):.0%} of {len(copied):,}" if copied else "none to copy"


def main() -> None:
    """Print two lines for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="RUN directories, shared folders or package:NAME")
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--reference", type=Path, required=True)
    parser.add_argument("--name", default="Tom", help="the name that others replace")
    parser.add_argument("--times", type=int, default=10, help="new numbers for each line")
    given = parser.parse_args()
    texts = [path.read_text(encoding="utf-8").splitlines() for path in (given.source, given.reference)]
    numbers, names = with_numbers(*texts, given.times), with_names(*texts, given.name)
    for model in given.models:
        translator = Translator.load(model)
        copied = defaultdict[int, list[bool]](list)
        for line, translation in zip(numbers, translator.translate([line.source for line in numbers]), strict=True):
            copied[len(line.word)].append(NUMBER.findall(translation) == [line.word])
        by_digits = ", ".join(f"{digits}: {share(each)}" for digits, each in sorted(copied.items()))
        print(f"{model}: numbers {share([one for each in copied.values() for one in each])}; by digits {by_digits}")
        translations = translator.translate([line.source for line in names])
        found = [line.word in re.findall(r"\w+", each) for line, each in zip(names, translations, strict=True)]
        print(f"{model}: names {share(found)}")


if __name__ == "__main__":
    main()
