"""How often a model copies numbers that it has not seen.

    python examples/copied_numbers.py MODEL... --source FILE --reference FILE [--times N]

In each pair of lines with a single number, the same on both sides, its digits are drawn anew, several times. A number
is copied if the translation has it and no other. The output is the share of copied numbers by their digits, and how
many there were.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from pathlib import Path
from random import Random

from jointnmt import Translator

NUMBER = re.compile("[0-9]+")


def made_up(sources: list[str], references: list[str], times: int) -> list[tuple[str, str]]:
    """Lines with a new number each, and that number."""
    random, found = Random(1), []
    for source, reference in zip(sources, references, strict=True):
        numbers = NUMBER.findall(source)
        if len(numbers) == 1 and numbers == NUMBER.findall(reference):
            for _ in range(times):
                number = random.choice("123456789") + "".join(random.choices("0123456789", k=len(numbers[0]) - 1))
                found.append((NUMBER.sub(number, source), number))
    return found


def main() -> None:
    """Print a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="RUN directories, shared folders or package:NAME")
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--reference", type=Path, required=True)
    parser.add_argument("--times", type=int, default=10, help="new numbers for each line")
    given = parser.parse_args()
    texts = (path.read_text(encoding="utf-8").splitlines() for path in (given.source, given.reference))
    lines = made_up(*texts, given.times)
    for model in given.models:
        copied = defaultdict[int, list[bool]](list)
        translations = Translator.load(model).translate([source for source, _ in lines])
        for (_, number), translation in zip(lines, translations, strict=True):
            copied[len(number)].append(NUMBER.findall(translation) == [number])
        shares = [f"{digits}: {sum(each) / len(each):.0%} of {len(each)}" for digits, each in sorted(copied.items())]
        total = sum(map(sum, copied.values())) / max(len(lines), 1)
        print(f"{model}: {total:.0%} of {len(lines)}; by digits {', '.join(shares)}")


if __name__ == "__main__":
    main()
