"""Translate with a constraint of your own: no three pieces in a row occur twice in a translation.

    python examples/no_repeats.py RUN < source.txt

At each position, search calls the constraint with the ids of its hypotheses so far and the log-probabilities of their
next pieces. This one bans every piece that would complete a repetition. Scores remain the model's, those of rescoring.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor

from jointnmt import Translator
from jointnmt.translator import TranslationOptions

LENGTH = 3


def no_repeats(ids: Tensor, log_probabilities: Tensor) -> Tensor:
    """A constraint with which no `LENGTH` pieces in a row occur twice within a translation."""
    for row, tokens in enumerate(ids.tolist()):
        runs = [tokens[begin : begin + LENGTH] for begin in range(len(tokens) - LENGTH + 1)]
        log_probabilities[row, [last for *first, last in runs if first == tokens[1 - LENGTH :]]] = -torch.inf
    return log_probabilities


def main(run: Path) -> None:
    lines = (line.rstrip("\n") for line in sys.stdin)
    for translation in Translator.load(run).translate_stream(lines, TranslationOptions(constraint=no_repeats)):
        print(translation.text)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
