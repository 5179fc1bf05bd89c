"""What a source word attends to along the source, under each target word: the joint representation at work.

    python examples/look_into_a_grid.py RUN "Ein Hund rennt durch den Schnee ." "A dog runs through the snow ." Hund

RUN is that of a Reformer. In an encoder, a word has one row of attention weights. In the grid it has one for each
target word: this prints the source piece that gets most of each, as a mean over layers and heads.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from jointnmt import Translator
from jointnmt.translator import attend


def main(run: Path, source: str, target: str, piece: str) -> None:
    attn_weights, source_pieces, target_pieces = attend(Translator.load(run), source, target)
    if not attn_weights.source:
        sys.exit(f"{run} is of a family without a grid.")
    position = source_pieces.index(piece)
    mean = torch.stack(attn_weights.source).mean((0, 2))[0]  # layers of [1, H, T, S, S] -> [T, S, S]
    columns = [*source_pieces, "</s>"]
    for read, row in zip(["<s>", *target_pieces], mean[:, position], strict=True):
        weight, at = row.max(0)
        print(f"under {read}: {piece} attends to {columns[int(at)]} ({weight:.0%})")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:5])
