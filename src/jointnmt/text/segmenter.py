"""Segmenting text of one language into pieces, and joining them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jointnmt.errors import DataError
from jointnmt.text.config import SegmentationConfig
from jointnmt.text.invisible import has_surrogate
from jointnmt.text.pieces import SPACE, BytePairs, Merges, OwnPieces, Vocabulary
from jointnmt.text.preprocessing import TextPreprocessor, divided
from jointnmt.text.special import SPECIAL_PIECES, UNK, unk_id
from jointnmt.text.tags import split_tag

_UNSEEN = frozenset(range(len(SPECIAL_PIECES))) - {unk_id}
MOST_REMEMBERED, LONGEST_REMEMBERED = 2**16, 64
"""Most words in a segmenter's cache of pieces, and most characters of such a word, to bound its memory."""


class Segmenter:
    """Segments and joins the text of one side; a text may begin with one of `tags`, each a single piece."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        config: SegmentationConfig,
        language: str,
        tags: Sequence[str] = (),
        preprocessor: TextPreprocessor | None = None,
        counts: Mapping[str, int] | None = None,
    ) -> None:
        """A segmenter with these pieces.

        Args:
            vocabulary: vocabulary of this side, or of both.
            config: configuration with which it was learnt.
            language: language of the text.
            tags: tags that a text may begin with.
            preprocessor: preprocessing before segmentation; None: as configured, for this language.
            counts: counts of the pieces in the side's training text, if the configuration needs them.
        """
        self.config = config
        self.tags = tuple(tags)
        self.language = language
        self.counts = counts
        vocabulary = vocabulary if counts is None else _own_pieces(vocabulary, config, counts)
        self._vocabulary = vocabulary
        self._remembered: dict[str, list[int]] = {}
        self._preprocessor = TextPreprocessor.of(config, language) if preprocessor is None else preprocessor
        self.truecaser, self.rules = self._preprocessor.truecaser, self._preprocessor.language
        marked = {vocabulary.stored(tag): tag for tag in config.tags}
        self._spelt_alike = {vocabulary.stored(piece): piece for piece in (*SPECIAL_PIECES, *config.tags)}
        names = {piece: name for name, piece in self._spelt_alike.items()} | marked
        if vocabulary.ends_words:  # an unknown piece is read as the end of a word, as by others
            self._spelt_alike[UNK] = UNK + SPACE
        ordinary = vocabulary.pieces[len(SPECIAL_PIECES) :]
        self._pieces = (*SPECIAL_PIECES, *(names.get(piece, piece) for piece in ordinary))
        self._ids_of_tags = {tag: self._pieces.index(tag) for tag in self.tags}
        marks = range(len(SPECIAL_PIECES), min(len(SPECIAL_PIECES) + len(marked), len(self._pieces)))
        self._unwritten = _UNSEEN | {i for i in marks if self._pieces[i] in config.tags}

    @property
    def vocabulary_size(self) -> int:
        """Number of pieces, special ones included; fewer than configured if the text has no more."""
        return len(self._pieces)

    @property
    def tag_ids(self) -> tuple[int, ...]:
        """The ids of the tags that a text of this side may begin with."""
        return tuple(self._ids_of_tags.values())

    def piece(self, piece_id: int) -> str:
        """The piece of an id; text that is spelt like a special piece or a tag is a piece that ends in `▁`.

        Raises:
            IndexError: if there is no such id.
        """
        if not 0 <= piece_id < len(self._pieces):
            raise IndexError(f"no piece has the id {piece_id}: there are {len(self._pieces)}")
        return self._pieces[piece_id]

    def encode(self, text: str) -> list[str]:
        """The pieces of a text; unknown ones are `<unk>`."""
        return [self.piece(piece_id) for piece_id in self.encode_ids(text)]

    def encode_ids(self, text: str) -> list[int]:
        """The ids of a text's pieces, without begin and end marks."""
        return self.encode_ids_batch([text])[0]

    def encode_ids_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of many texts, as by `encode_ids`.

        Raises:
            DataError: if one of them is not valid Unicode.
        """
        return [self._encode_ids(text) for text in texts]

    def _encode_ids(self, text: str) -> list[int]:
        tag, text = split_tag(text, self.tags) if self.tags else ("", text)
        if has_surrogate(text):
            raise DataError(f"{text[:80]!r}: holds an unpaired surrogate, so it is not text. Fix it.")
        ids: list[int] = []
        for word in self._preprocessor.apply(text).split():
            known = self._remembered.get(word)
            ids += self._divide(word) if known is None else known
        return [self._ids_of_tags[tag], *ids] if tag and ids else ids

    def _divide(self, word: str) -> list[int]:
        """The ids of a word, which are cached, as most words recur."""
        parts = divided(word, self.config, self._vocabulary.ends_words)
        ids = [piece for part in parts for piece in self._vocabulary.divide(part)]
        # Text can hold a special piece if the vocabulary was saved without their marks' endings.
        ids = ids if _UNSEEN.isdisjoint(ids) else [unk_id if i in _UNSEEN else i for i in ids]
        if len(word) <= LONGEST_REMEMBERED:
            if len(self._remembered) >= MOST_REMEMBERED:
                self._remembered.clear()  # frequent words soon return
            self._remembered[word] = ids
        return ids

    @property
    def ends_words(self) -> bool:
        """Whether a space mark is the end of a word, not its beginning."""
        return self._vocabulary.ends_words

    def bounds_word(self, piece_id: int) -> bool:
        """Whether a BPE piece is the first one of a word, or with `ends_words` the last; merges do not cross words."""
        piece = self._pieces[piece_id]
        return piece.endswith(SPACE) if self.ends_words else piece.startswith(SPACE)

    def letters(self, piece_id: int) -> tuple[int, ...]:
        """The single-character pieces from which BPE builds a piece; a special piece or a tag is returned itself."""
        if piece_id < len(SPECIAL_PIECES) or self._pieces[piece_id] in self.config.tags:
            return (piece_id,)
        return tuple(map(self._vocabulary.ids.__getitem__, self._vocabulary.letters(self._vocabulary.pieces[piece_id])))

    @property
    def merges(self) -> Merges:
        """The merges of BPE; empty for other kinds."""
        return self._vocabulary.merges if isinstance(self._vocabulary, BytePairs) else {}

    def decode(self, pieces: Sequence[str]) -> str:
        """The text of pieces."""
        spelt = [self._spelt_alike.get(piece, piece) for piece in pieces]
        words = spelt if self.config.kind == "word" else "".join(spelt).replace(SPACE, " ").split()
        return self._preprocessor.undo(words)

    def decode_ids(self, ids: Sequence[int]) -> str:
        """The text of ids; special ids and tags are dropped, unknown pieces are written as `<unk>`."""
        return self.decode([self.piece(i) for i in ids if i not in self._unwritten])

    def to_json(self) -> str:
        """The vocabulary, in the format of `tokenizers`."""
        return self._vocabulary.to_json()


def _own_pieces(vocabulary: Vocabulary, config: SegmentationConfig, counts: Mapping[str, int]) -> OwnPieces:
    """A joint BPE restricted to one side's frequent pieces, its characters, and tags."""
    assert isinstance(vocabulary, BytePairs)
    least = max(1, config.vocabulary_threshold)
    frequent = {piece for piece, count in counts.items() if count >= least or len(vocabulary.letters(piece)) == 1}
    return OwnPieces(vocabulary, frequent | {*map(vocabulary.stored, config.tags)}, renumbered=not config.shared)
