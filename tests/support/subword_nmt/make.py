"""Writes the files of this folder by subword-nmt 0.3.8, which need not be installed for tests.

`codes` are 300 merges learnt from both sides of the training text; `vocabulary.*` the pieces of that text with their
counts; `plain.*` the pieces of the test text, and `threshold.*` those with `--vocabulary-threshold 10`.

    python -m venv /tmp/venv && /tmp/venv/bin/pip install subword-nmt==0.3.8
    python tests/support/subword_nmt/make.py /tmp/venv/bin/subword-nmt
"""

from __future__ import annotations

import lzma
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).parent
CORPUS = HERE.parents[2] / "corpora" / "tatoeba-de-en" / "valid.tsv.xz"
ODD = ["aaaaaaa banana Bananananas", "x Ж日 2019 201 9", "der Hund</w> @@ un@@ <unk>", "essessess nnnn"]
"""Repetitions, unknown characters, digits, and text that looks like marks of subword-nmt."""


def texts(side: int) -> tuple[list[str], list[str]]:
    """Training and test text of a side, in tokens."""
    with lzma.open(CORPUS, "rt", encoding="utf-8") as file:
        lines = [line.rstrip("\n").split("\t")[side] for line in file][:440]
    tokens = [" ".join(re.findall(r"\w+|[^\w\s]", line)) for line in lines]
    return tokens[:400], [*tokens[400:], *ODD]


def main(program: str) -> None:
    with TemporaryDirectory() as name:
        folder, codes = Path(name), HERE / "codes"

        def run(*arguments: str | Path, of: str, to: Path) -> None:
            with (folder / of).open("rb") as given, to.open("wb") as found:
                subprocess.run([program, *map(str, arguments)], stdin=given, stdout=found, check=True)

        sides = [(side, *texts(number)) for number, side in enumerate(("de", "en"))]
        (folder / "both").write_text("".join(f"{line}\n" for _, train, _ in sides for line in train), encoding="utf-8")
        run("learn-bpe", "-s", "300", of="both", to=codes)
        for side, train, test in sides:
            for text, lines in (("train", train), ("test", test)):
                (folder / text).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            run("apply-bpe", "-c", codes, of="train", to=folder / "segmented")
            run("get-vocab", of="segmented", to=HERE / f"vocabulary.{side}")
            run("apply-bpe", "-c", codes, of="test", to=HERE / f"plain.{side}")
            limit = ("--vocabulary", HERE / f"vocabulary.{side}", "--vocabulary-threshold", "10")
            run("apply-bpe", "-c", codes, *limit, of="test", to=HERE / f"threshold.{side}")


if __name__ == "__main__":
    main(sys.argv[1])
