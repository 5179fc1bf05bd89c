"""Padding of whole epochs, counted in the plan of their batches: nothing is trained.

    python -m benchmarks.padding [--max-tokens N ...] [--pairs N]

Prints, for each size and limit of a batch's tokens, the batches of an epoch and the padded share of their cells: for
the corpus at hand, and for a given number of pairs with lengths drawn from it, as a larger corpus has more sentences
of equal lengths.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np

from benchmarks.lengths import sentence_lengths
from benchmarks.training import OVERHEAD_CELLS, SEED
from jointnmt.data.batches import Lengths, plan_epoch
from jointnmt.data.length_buckets import BatchConfig


@dataclass(frozen=True)
class Padding:
    """An epoch's batches and cells."""

    batches: int
    cells: int
    padded_cells: int
    """Cells and padding."""

    @property
    def share(self) -> float:
        """Share of padding in the computed cells."""
        return 1 - self.cells / self.padded_cells


def epoch_padding(source: Lengths, target: Lengths, max_tokens: int) -> Padding:
    """Count an epoch of pairs of these lengths, in batches of at most `max_tokens` on either side."""
    limits = BatchConfig(max_tokens=max_tokens, update_tokens=max_tokens, overhead_cells=OVERHEAD_CELLS["cpu"])
    source, target = source.astype(np.int64), target.astype(np.int64)
    batches = [batch for update in plan_epoch(source, target, limits, SEED, 0) for batch in update]
    padded = (len(batch) * source[batch].max() * target[batch].max() for batch in batches)
    return Padding(len(batches), int(source @ target), int(sum(padded)))


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--max-tokens", type=int, nargs="*", default=[1024, 2048, 4096], help="tokens of a batch")
    parser.add_argument("--pairs", type=int, default=160_000, help="pairs to draw; IWSLT14 has 160,000 for training")
    options = parser.parse_args()
    for size in ("IWSLT", "Multi30k"):
        lengths = sentence_lengths(size)
        in_order = np.lexsort((lengths.target, lengths.source))  # the same whether counted or recorded
        drawn = in_order[np.random.default_rng(SEED).integers(0, len(in_order), options.pairs)]
        for origin, rows in ((lengths.origin, slice(None)), ("drawn from these", drawn)):
            for max_tokens in options.max_tokens:
                source, target = lengths.source[rows], lengths.target[rows]
                found = epoch_padding(source, target, max_tokens)
                print(
                    f"{size:9} {origin:24} {len(source):>8,} pairs  {max_tokens:>6,} tokens  "
                    f"{found.batches:>7,} batches  padding {found.share:.2%}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
