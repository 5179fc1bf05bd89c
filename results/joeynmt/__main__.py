"""A run's text as pieces, for a toolkit that splits at spaces, and its translations back to text.

    python -m results.joeynmt pieces RUN data/multi30k OUT   # train, valid and test2016 in pieces, and vocabulary.txt
    python -m results.joeynmt text RUN < pieces.de > text.de

RUN needs only its segmentation, as written by `jointnmt prepare`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from jointnmt.text.segmentation import Segmentation
from jointnmt.text.special import SPECIAL_PIECES

TEXTS = ("train", "valid", "test2016")


def write_pieces(segmentation: Segmentation, text: Path, out: Path) -> None:
    """Write each text's lines as pieces separated by spaces, and the vocabulary, one piece a line."""
    out.mkdir(parents=True, exist_ok=True)
    for name in TEXTS:
        for segmenter in (segmentation.source, segmentation.target):
            file = f"{name}.{segmenter.language}"
            lines = (text / file).read_text(encoding="utf-8").removesuffix("\n").split("\n")
            _write_lines(out / file, [" ".join(segmenter.encode(line)) for line in lines])
    target = segmentation.target
    _write_lines(out / "vocabulary.txt", map(target.piece, range(len(SPECIAL_PIECES), target.vocabulary_size)))


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m results.joeynmt", description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    dividing = commands.add_parser("pieces", help="write text in pieces")
    dividing.add_argument("run", type=Path)
    dividing.add_argument("text", type=Path, help="folder of the corpus")
    dividing.add_argument("out", type=Path)
    joining = commands.add_parser("text", help="join the pieces of standard input")
    joining.add_argument("run", type=Path)
    options = parser.parse_args(arguments)
    segmentation = Segmentation.load(options.run / "segmentation")
    if options.command == "pieces":
        write_pieces(segmentation, options.text, options.out)
    else:
        sys.stdout.writelines(segmentation.target.decode(line.split()) + "\n" for line in sys.stdin)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
