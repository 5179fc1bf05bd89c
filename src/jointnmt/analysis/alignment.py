"""Word alignments from a model's alignment weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from jointnmt.text.words import follows_space


def word_numbers(pieces: Sequence[str], whole_words: bool) -> list[int]:
    """The number, from 0, of each piece's word. A word begins with the first piece and after each space.

    With `whole_words`, every piece is a word.
    """
    numbers, word = [], -1
    for place, piece in enumerate(pieces):
        word += whole_words or place == 0 or follows_space(piece, pieces[place - 1])
        numbers.append(word)
    return numbers


def align_words(
    weights: Float[Tensor, "T S"], source_words: Sequence[int], target_words: Sequence[int]
) -> list[tuple[int, int]]:
    """Links between source and target words, by the weights of their pieces.

    Weights are summed over the pieces of a source word and averaged over those of a target word. Each target word is
    linked to the source word of the greatest weight, or to none if the end mark's weight is greater.

    Args:
        weights: weights of source pieces for target pieces, end marks last on both sides; rows sum to 1.
        source_words: the word of each source piece, without the end mark (`word_numbers`).
        target_words: the same for the target.
    """
    if not len(source_words) or not len(target_words):
        return []
    end_mark = source_words[-1] + 1  # the last column
    columns = torch.zeros(len(weights), end_mark + 1, dtype=torch.float64, device="cpu")
    columns.index_add_(1, _indices([*source_words, end_mark]), weights.double())
    rows = torch.zeros(target_words[-1] + 1, end_mark + 1, dtype=torch.float64, device="cpu")
    rows.index_add_(0, _indices(target_words), columns[:-1])  # the sum has the same argmax as the mean
    return [(source, target) for target, source in enumerate(rows.argmax(1).tolist()) if source < end_mark]


def pharaoh(links: Sequence[tuple[int, int]]) -> str:
    """Links in the Pharaoh format: `0-0 1-2`, source word first, both 0-based, sorted."""
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


def _indices(words: Sequence[int]) -> Tensor:
    return torch.tensor(words, device="cpu")
