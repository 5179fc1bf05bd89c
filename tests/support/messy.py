"""Realistic parallel text: made-up sentences with every kind of error."""

from __future__ import annotations

import random
from pathlib import Path

NOUNS = [
    ("Hund", "dog"), ("Katze", "cat"), ("Garten", "garden"), ("Lehrer", "teacher"), ("Zug", "train"),
    ("Brief", "letter"), ("Fenster", "window"), ("Schlüssel", "key"), ("Bruder", "brother"), ("Straße", "street"),
]  # fmt: skip
PLACES = [
    ("hinter dem großen Haus", "behind the big house"), ("in der alten Stadt", "in the old town"),
    ("neben der kleinen Kirche", "next to the small church"), ("am Ende der Woche", "at the end of the week"),
    ("heute Morgen um sieben Uhr", "this morning at seven o'clock"), ("", ""),
]  # fmt: skip
VERBS = [
    ("gesehen", "seen"), ("gesucht", "looked for"), ("gefunden", "found"), ("vergessen", "forgotten"),
    ("gezeichnet", "drawn"), ("beschrieben", "described"),
]  # fmt: skip


def sentence_pairs(count: int, seed: int = 1) -> list[tuple[str, str]]:
    """Different German sentences and their English translations."""
    generator = random.Random(seed)
    found: dict[tuple[str, str], None] = {}
    while len(found) < count:
        (noun, dog), (other, cat) = generator.sample(NOUNS, 2)
        (place, where), (verb, seen) = generator.choice(PLACES), generator.choice(VERBS)
        number = generator.randrange(2, 400)
        if generator.random() < 0.3:
            pair = (
                f"Haben Sie {number} Mal {place} etwas von {noun} {verb}?",
                f"Have you {seen} anything of {dog} {number} times {where}?",
            )
        else:
            pair = (
                f"Wir haben {noun} und {other} {place} {number} Mal {verb}.",
                f"We have {seen} {dog} and {cat} {number} times {where}.",
            )
        source, target = (" ".join(side.split()).replace(" ?", "?").replace(" .", ".") for side in pair)
        found[source, target] = None
    return list(found)


def messy_table(path: Path, pairs: list[tuple[str, str]], shifted: slice) -> dict[str, int]:
    """Write a table with a header, three columns, CRLF, a byte order mark, bad rows, and a block shifted by a line.

    Returns:
        The number of pairs with each problem.
    """
    sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
    block = targets[shifted]
    targets[shifted] = [*block[1:], block[0]]
    sources[3] = ""
    sources[5] = targets[5]
    sources[7] = "Ceci est une phrase en langue française, tout simplement."
    sources[9], targets[9] = sources[0], targets[0]
    sources[11] = "GrÃ¼ÃŸe aus dem schÃ¶nen MÃ¼nchen"
    targets[13] = "No, no. " * 100
    targets[15] = "No."
    rows = ["German\tEnglish\tLicence", *(f"{a}\t{b}\tCC BY 2.0" for a, b in zip(sources, targets, strict=True))]
    rows[18] = "one column"
    path.write_bytes(b"\xef\xbb\xbf" + "".join(f"{row}\r\n" for row in rows).encode())
    problems = ("header", "empty", "copy", "language", "duplicate", "garbled", "long", "ratio", "columns")
    return {**dict.fromkeys(problems, 1), "shifted": len(block)}
