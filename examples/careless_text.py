"""How much translations change when the source is written carelessly.

    python examples/careless_text.py MODEL... --source FILE --reference FILE [--precision PRECISION]

Each kind of carelessness changes some of the lines, at a place drawn for the line: a word is written twice; two words
or two letters of a word are swapped; commas, the final mark or capitals are missing. The output is a line for each
model and kind: how many lines are changed, their BLEU before and after, the difference, how many words are written
after, relative to before, and how many translations stay the same. Where final marks are missing, those of references
and translations do not count, either.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from random import Random

import sacrebleu

from jointnmt import Translator

FINAL_MARK = re.compile(r"[.!?]+$")
NO_FINAL_MARK = "no final mark"


def doubled(line: str, random: Random) -> str:
    """A word twice."""
    words = line.split(" ")
    place = random.randrange(max(1, len(words) - 1))
    return " ".join([*words[: place + 1], *words[place:]])


def swapped(line: str, random: Random) -> str:
    """Two neighbours swapped, neither the first nor the last word."""
    words = line.split(" ")
    if len(words) > 3:
        place = random.randrange(1, len(words) - 2)
        words[place : place + 2] = reversed(words[place : place + 2])
    return " ".join(words)


def mistyped(line: str, random: Random) -> str:
    """Two neighbouring letters of a word of five or more swapped, neither the first nor the last."""
    words = line.split(" ")
    long = [place for place, word in enumerate(words) if len(word) >= 5]
    if long:
        place = random.choice(long)
        word = words[place]
        at = random.randrange(1, len(word) - 2)
        words[place] = f"{word[:at]}{word[at + 1]}{word[at]}{word[at + 2 :]}"
    return " ".join(words)


KINDS: dict[str, Callable[[str, Random], str]] = {
    NO_FINAL_MARK: lambda line, random: FINAL_MARK.sub("", line),
    "no commas": lambda line, random: line.replace(",", ""),
    "a word twice": doubled,
    "two words swapped": swapped,
    "two letters swapped": mistyped,
    "small first letter": lambda line, random: line[:1].lower() + line[1:],
    "lower case": lambda line, random: line.lower(),
}


def row(kind: str, translations: list[str], changed: list[str], references: list[str]) -> str:
    """The figures of the lines that a kind has changed: translations before and after, and references."""
    if kind == NO_FINAL_MARK:
        translations, changed, references = (
            [FINAL_MARK.sub("", line) for line in each] for each in (translations, changed, references)
        )
    before, after = (sacrebleu.corpus_bleu(each, [references]).score for each in (translations, changed))
    words = [sum(len(line.split()) for line in each) for each in (translations, changed)]
    same = sum(one == other for one, other in zip(translations, changed, strict=True)) / len(changed)
    return f"{len(changed)}\t{before:.2f}\t{after:.2f}\t{after - before:+.2f}\t{words[1] / words[0]:.3f}\t{same:.1%}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="RUN directories, shared folders or package:NAME")
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--reference", type=Path, required=True)
    parser.add_argument("--precision", default="float32")
    given = parser.parse_args()
    sources, references = (path.read_text(encoding="utf-8").splitlines() for path in (given.source, given.reference))
    print("model", "change", "lines", "BLEU before", "after", "difference", "words", "same", sep="\t")
    for model in given.models:
        translator = Translator.load(model, precision=given.precision)
        translations = translator.translate(sources)
        for kind, change in KINDS.items():
            lines = [change(line, Random(place)) for place, line in enumerate(sources)]
            places = [place for place, line in enumerate(lines) if line != sources[place]]
            if places:
                changed = translator.translate([lines[place] for place in places])
                before, expected = ([each[place] for place in places] for each in (translations, references))
                print(model, kind, row(kind, before, changed, expected), sep="\t", flush=True)


if __name__ == "__main__":
    main()
