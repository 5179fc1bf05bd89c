"""Word alignments out of a model's weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from jointnmt.text.segmentation import SPACE


def word_numbers(pieces: Sequence[str], whole_words: bool) -> list[int]:
    """The number of the word, from 0, that each piece is of: the first piece and each that a space precedes begin one.

    With `whole_words`, every piece is a word.
    """
    numbers, word = [], -1
    for place, piece in enumerate(pieces):
        word += whole_words or place == 0 or piece.startswith(SPACE)
        numbers.append(word)
    return numbers


def align_words(
    weights: Float[np.ndarray, "T S"], source_words: Sequence[int], target_words: Sequence[int]
) -> list[tuple[int, int]]:
    """Links of a source and a target word, by the weights of their pieces.

    A source word's weight is the sum over its pieces, and a target word's row the mean over its own. Each target word
    is linked with the source word of the greatest weight, unless the end mark's is greater still: then with none.

    Args:
        weights: of target pieces over source pieces, end marks last on both sides; rows sum to 1.
        source_words: the word of each source piece, without the end mark (`word_numbers`).
        target_words: likewise of the target.
    """
    if not len(source_words) or not len(target_words):
        return []
    columns = np.zeros((len(weights), source_words[-1] + 2))
    np.add.at(columns.T, [*source_words, source_words[-1] + 1], weights.T)  # the end mark is the last column
    rows = np.zeros((target_words[-1] + 1, columns.shape[1]))
    np.add.at(rows, list(target_words), columns[:-1])  # a sum has its maximum where the mean has it
    best = rows.argmax(axis=1)
    return [(int(source), target) for target, source in enumerate(best) if source <= source_words[-1]]


def pharaoh(links: Sequence[tuple[int, int]]) -> str:
    """Links in the Pharaoh format: `0-0 1-2`, source word first, both counted from 0, sorted."""
    return " ".join(f"{source}-{target}" for source, target in sorted(links))
