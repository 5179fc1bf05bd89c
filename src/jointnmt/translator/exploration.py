"""Exploring search: the beam as a tree, and the words that could come next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import torch

from jointnmt.data.batch import Batch, collate_sources
from jointnmt.errors import ConfigurationError
from jointnmt.search import Rescored, SearchConfig, SearchTrace, SearchTree, beam_search, rescore_with_next
from jointnmt.search.rules import target_limit
from jointnmt.text.languages import has_spaces
from jointnmt.text.segmenter import Segmenter
from jointnmt.text.special import bos_id, eos_id, pad_id, unk_id
from jointnmt.text.words import goes_on, word_starts
from jointnmt.translator.admission import check_prefix_fits
from jointnmt.translator.inference import Inference
from jointnmt.translator.options import TranslationOptions
from jointnmt.translator.pairs import encoded
from jointnmt.translator.preprocessing import EncodedSentence
from jointnmt.translator.results import Candidate, with_end_mark
from jointnmt.translator.searching import translate_sentences

POOL = 64
"""Number of likeliest next pieces among which words are looked for."""


@dataclass(frozen=True)
class TracedSearch:
    """A beam search for the translation of one sentence, with everything that it kept and pruned."""

    source_tokens: tuple[str, ...]
    """Source pieces and the end mark."""
    search: SearchConfig
    max_tokens: int
    """Most tokens of the translation, end mark included."""
    tree: SearchTree
    pieces: tuple[str, ...]
    """Piece of each node of the tree."""
    translations: tuple[str, ...]
    """The finished hypotheses as text, best first."""

    def plain(self) -> dict[str, Any]:
        """The fields as JSON-compatible values."""
        nodes = [
            {"id": node["number"], "piece": piece} | {key: node[key] for key in node if key not in ("number", "token")}
            for node, piece in zip(map(asdict, self.tree.nodes), self.pieces, strict=True)
        ]
        return {
            "source_tokens": list(self.source_tokens),
            "beam_size": self.search.beam_size,
            "length_penalty": self.search.length_penalty,
            "length_offset": self.search.length_offset,
            "max_tokens": self.max_tokens,
            "num_positions": 1 + max(node.position for node in self.tree.nodes),
            "nodes": nodes,
            "finished": list(self.tree.finished),
            "translations": list(self.translations),
        }


class Continued(NamedTuple):
    """A word that might come next, and the best translation that goes on with it."""

    word: str
    """The word; empty: the translation ends here."""
    prefix: str
    """The given prefix followed by the word."""
    log_probability: float
    """Log-probability of the word's first piece, in nats."""
    candidate: Candidate


@dataclass(frozen=True)
class NextWords:
    """The words that might come next, likeliest first."""

    source_tokens: tuple[str, ...]
    """Source pieces and the end mark."""
    words: tuple[Continued, ...]


@torch.no_grad()
def trace_search(
    translator: Inference,
    source: str,
    prefix: str = "",
    search: SearchConfig | None = None,
    most_pruned: int | None = None,
) -> TracedSearch:
    """Translate a sentence and record the search for it; the translations are those of `Translator.translate`.

    Args:
        translator: a trained model.
        source: a sentence.
        prefix: the beginning that the translation must have.
        search: settings of the beam search; None: the experiment's.
        most_pruned: as in `SearchTrace`.

    Raises:
        ConfigurationError: if the translator's own search is sampling.
        DataError: if the source is empty or too long, or the prefix holds a character or word without a piece.
    """
    search = search or translator.search
    if not isinstance(search, SearchConfig):
        raise ConfigurationError("Only beam search can be recorded: give it, or set it as the translator's search.")
    sentence = _with_prefix(translator, source, prefix, search)
    trace = SearchTrace(most_pruned)
    with translator.autocast():
        ids = collate_sources([sentence.source]).to(translator.device)
        [found] = beam_search(translator.reading([sentence]), ids, search, [sentence.target], search.beam_size, trace)
    segmentation, [tree] = translator.segmentation, trace.trees
    return TracedSearch(
        source_tokens=with_end_mark(segmentation.source, sentence.source),
        search=search,
        max_tokens=target_limit(sentence.source_tokens, search),
        tree=tree,
        pieces=tuple(segmentation.target.piece(node.token) for node in tree.nodes),
        translations=tuple(segmentation.target.decode_ids(list(each.ids)) for each in found),
    )


NOT_WORDS = (pad_id, bos_id, unk_id)
"""Ids of pieces that are not words, however likely they are."""


@torch.no_grad()
def next_words(
    translator: Inference, source: str, prefix: str = "", count: int = 5, alignments: bool = False
) -> NextWords:
    """The likeliest next words after a prefix, each with the best translation that goes on with it.

    The last word of the prefix is taken as complete. The words are distinct; there are fewer than `count` if two pieces
    lead to the same one, or if fewer of the 64 likeliest pieces begin a word.

    Raises:
        DataError: as in `trace_search`.
        ValueError: if `count` is below 1.
    """
    if count < 1:
        raise ValueError(f"count should be 1 or more (given: {count})")
    search = translator.search
    sentence = _with_prefix(translator, source, prefix, search)
    segmenter = translator.segmentation.target
    batch = Batch.collate([sentence.source], [sentence.target]).to(translator.device)
    with translator.autocast():
        model = translator.reading([sentence])
        [whole], [positions] = rescore_with_next(model, batch, POOL)
    likeliest, limit = positions[-1], target_limit(sentence.source_tokens, search)
    if limit - len(sentence.target) <= 1:  # only the end may follow, however unlikely it is
        likeliest = [(eos_id, whole.log_probabilities[-1])]
    first = [each for each in likeliest if _may_follow(segmenter, sentence.target, each[0])][:count]
    longer = [replace(sentence, target=(*sentence.target, token)) for token, _ in first if token != eos_id]
    translated = translate_sentences(translator, longer, TranslationOptions(search, alignments=alignments))
    found: dict[str, Continued] = {}
    for token, value in first:
        if token == eos_id:
            ended = _ended(sentence, whole, translator, limit, alignments)
            found[""] = Continued("", ended.text, value, ended)
        elif (next_word := _continued(segmenter, len(sentence.target), value, next(translated)[0])).word:
            found.setdefault(next_word.word, next_word)
    source_tokens = with_end_mark(translator.segmentation.source, sentence.source)
    return NextWords(source_tokens, tuple(found.values()))


def _may_follow(segmenter: Segmenter, given: Sequence[int], token: int) -> bool:
    """Whether a piece ends the translation, or begins a word after the given ones."""
    if token == eos_id or token in NOT_WORDS:
        return token == eos_id
    if not given or _whole_words(segmenter):
        return True
    return not goes_on(segmenter.piece(token), segmenter.piece(given[-1]))


def _whole_words(segmenter: Segmenter) -> bool:
    """Whether every piece is a word, as in languages without spaces."""
    return segmenter.config.kind == "word" or not has_spaces(segmenter.language)


def _continued(segmenter: Segmenter, given: int, log_probability: float, candidate: Candidate) -> Continued:
    """The word after the first `given` pieces of a translation, with that translation."""
    pieces = [piece for piece in candidate.tokens if piece != segmenter.piece(eos_id)]
    starts = word_starts(pieces[given:], _whole_words(segmenter))
    end = given + next((place for place, begins in enumerate(starts) if begins and place), len(starts))
    word, prefix = segmenter.decode(pieces[given:end]), segmenter.decode(pieces[:end])
    return Continued(word, prefix, log_probability, candidate)


def _ended(
    sentence: EncodedSentence, whole: Rescored, translator: Inference, limit: int, alignments: bool
) -> Candidate:
    """The prefix as the whole translation; as in search, it is not complete if it ends at the limit."""
    segmenter, values, ids = translator.segmentation.target, whole.log_probabilities, sentence.target
    score = translator.search.penalty.score(sum(values), len(values))
    alignment = None
    if alignments:
        with translator.autocast():
            alignment = translator.force_decode([(sentence, ids)])[0].alignment
    tokens, complete = with_end_mark(segmenter, ids), len(values) < limit
    return Candidate(segmenter.decode_ids(list(ids)), tokens, values, score, complete, alignment)


def _with_prefix(translator: Inference, source: str, prefix: str, search: SearchConfig) -> EncodedSentence:
    sentence = replace(encoded(translator, source, prefix), origin="The request")
    check_prefix_fits(sentence, search)
    return sentence
