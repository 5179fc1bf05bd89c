"""Attention of a source word along the source under each target word: the joint representation at work.

    python examples/look_into_a_grid.py package:tatoeba-de-en-reformer-fast "Der Hund schläft." "The dog sleeps." Hund

The run is one of a Reformer. The word is one piece of the source, with or without the mark of its beginning, ▁. In an
encoder, it has one row of attention weights; in the grid, it has one for each target word. This prints the source piece
with the largest weight in each, as a mean over layers and heads.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from jointnmt import Translator
from jointnmt.translator import attend


def main(run: Path, source: str, target: str, piece: str) -> None:
    attn_weights, source_pieces, target_pieces, _ = attend(Translator.load(run), source, target)
    if not attn_weights.source:
        sys.exit(f"{run} is of a family without a grid.")
    position = next((at for at, each in enumerate(source_pieces) if piece in (each, each.removeprefix("▁"))), None)
    if position is None:
        sys.exit(f"{piece} is not a piece of the source, which has: {' '.join(source_pieces)}")
    piece = source_pieces[position]
    mean = torch.stack(attn_weights.source).mean((0, 2))[0]  # layers of [1, H, T, S, S] -> [T, S, S]
    columns = [*source_pieces, "</s>"]
    for read, row in zip(["<s>", *target_pieces], mean[:, position], strict=True):
        weight, at = row.max(0)
        print(f"under {read}: {piece} attends to {columns[int(at)]} ({weight:.0%})")


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), *sys.argv[2:])
