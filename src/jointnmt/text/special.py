"""The special pieces: their ids, and the positions of begin and end marks.

Piece ids are stored and passed without marks; these functions are the one place that adds them. A source is its pieces
and the end mark; a decoder reads the begin mark and the pieces, and predicts the pieces and the end mark.
"""

from collections.abc import Sequence

PAD, BOS, EOS, UNK = "<pad>", "<s>", "</s>", "<unk>"
SPECIAL_PIECES = (PAD, BOS, EOS, UNK)
"""First pieces of every vocabulary."""

pad_id = SPECIAL_PIECES.index(PAD)
bos_id = SPECIAL_PIECES.index(BOS)
eos_id = SPECIAL_PIECES.index(EOS)
unk_id = SPECIAL_PIECES.index(UNK)


def with_end(ids: Sequence[int]) -> list[int]:
    """Piece ids and the end mark."""
    return [*ids, eos_id]


def with_begin(ids: Sequence[int]) -> list[int]:
    """The begin mark and piece ids."""
    return [bos_id, *ids]


def num_tokens(ids: Sequence[int]) -> int:
    """The length of a sentence in tokens, as limited and counted everywhere: its pieces and one mark."""
    return len(ids) + 1
