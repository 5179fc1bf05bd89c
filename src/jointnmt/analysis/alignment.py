"""Word alignments from a model's alignment weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from jointnmt.text.pieces import SPACE


def word_numbers(pieces: Sequence[str], whole_words: bool) -> list[int]:
    """The number, from 0, of each piece's word. A word begins with the first piece and after each space.

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
    """Links between source and target words, by the weights of their pieces.

    Weights are summed over the pieces of a source word and averaged over those of a target word. Each target word is
    linked to the source word of the greatest weight, or to none if the end mark's weight is greater.

    Args:
        weights: of target pieces over source pieces, end marks last on both sides; rows sum to 1.
        source_words: the word of each source piece, without the end mark (`word_numbers`).
        target_words: the same for the target.
    """
    if not len(source_words) or not len(target_words):
        return []
    columns = np.zeros((len(weights), source_words[-1] + 2))
    np.add.at(columns.T, [*source_words, source_words[-1] + 1], weights.T)  # the end mark is the last column
    rows = np.zeros((target_words[-1] + 1, columns.shape[1]))
    np.add.at(rows, list(target_words), columns[:-1])  # the sum has the same argmax as the mean
    best = rows.argmax(axis=1)
    return [(int(source), target) for target, source in enumerate(best) if source <= source_words[-1]]


def pharaoh(links: Sequence[tuple[int, int]]) -> str:
    """Links in the Pharaoh format: `0-0 1-2`, source word first, both 0-based, sorted."""
    return " ".join(f"{source}-{target}" for source, target in sorted(links))
