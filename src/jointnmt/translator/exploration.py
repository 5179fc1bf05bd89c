"""Looking at search: the beam as a tree, and the words that could come next."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import torch

from jointnmt.data.batch import Batch, collate_sources
from jointnmt.errors import DataError
from jointnmt.search import Rescored, SearchConfig, SearchTrace, SearchTree, beam_search, rescore_with_next
from jointnmt.search.rules import target_limit
from jointnmt.text.languages import has_spaces
from jointnmt.text.pieces import SPACE
from jointnmt.text.segmenter import Segmenter
from jointnmt.text.special import bos_id, eos_id, pad_id, unk_id
from jointnmt.translator.admission import check_beginning
from jointnmt.translator.options import TranslationOptions
from jointnmt.translator.preprocessing import EncodedSentence, Line
from jointnmt.translator.results import Candidate, with_end_mark
from jointnmt.translator.translator import Translator

POOL = 64
"""Likeliest next pieces among which words are looked for."""


@dataclass(frozen=True)
class TracedSearch:
    """A beam search for the translation of one sentence, with everything that it kept and pruned."""

    source_tokens: tuple[str, ...]
    """Pieces and the end mark."""
    search: SearchConfig
    max_tokens: int
    """Most tokens of the translation, end mark counted."""
    tree: SearchTree
    pieces: tuple[str, ...]
    """Of each node of the tree."""
    translations: tuple[str, ...]
    """The finished hypotheses as text, best first."""

    def plain(self) -> dict[str, Any]:
        """As JSON-compatible values."""
        nodes = [
            {"id": node["number"], "piece": piece} | {key: node[key] for key in node if key not in ("number", "token")}
            for node, piece in zip(map(asdict, self.tree.nodes), self.pieces, strict=True)
        ]
        return {
            "source_tokens": list(self.source_tokens),
            "beam_size": self.search.beam_size,
            "length_penalty": self.search.length_penalty,
            "max_tokens": self.max_tokens,
            "num_positions": 1 + max(node.position for node in self.tree.nodes),
            "nodes": nodes,
            "finished": list(self.tree.finished),
            "translations": list(self.translations),
        }


class Continued(NamedTuple):
    """A word that might come next, and the best translation that goes on with it."""

    word: str
    """Empty: the translation ends here."""
    prefix: str
    """What was given, and the word."""
    log_probability: float
    """Of the word's first piece."""
    candidate: Candidate


@dataclass(frozen=True)
class NextWords:
    """The words that might come next, likeliest first."""

    source_tokens: tuple[str, ...]
    """Pieces and the end mark."""
    words: tuple[Continued, ...]


def encoded(translator: Translator, source: str, target: str = "", pieces: bool = False) -> EncodedSentence:
    """A sentence as pieces, with its translation or a prefix of it.

    Raises:
        DataError: if there is nothing to read, or the source is too long for the model.
    """
    sentences = translator.preprocessor(pieces=pieces).encode([Line(1, "source", source, target)])[0]
    if not sentences:
        raise DataError("The source is empty: there is nothing to look into.")
    return sentences[0]


@torch.no_grad()
def trace_search(
    translator: Translator,
    source: str,
    prefix: str = "",
    search: SearchConfig | None = None,
    most_pruned: int | None = None,
) -> TracedSearch:
    """Translate a sentence and record the search for it; the translations are those of `Translator.translate`.

    Args:
        translator: a trained model.
        source: a sentence.
        prefix: what the translation has to begin with.
        search: None: the search of the experiment.
        most_pruned: as of `SearchTrace`.

    Raises:
        DataError: if the source is empty or too long, or the prefix holds what the model has no piece for.
    """
    search = search or translator.experiment.search
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
"""Pieces that are no words, however likely a model finds them."""


@torch.no_grad()
def next_words(
    translator: Translator, source: str, prefix: str = "", count: int = 5, alignments: bool = False
) -> NextWords:
    """The likeliest next words after a prefix, each with the best translation that goes on with it.

    The last word of the prefix is taken as finished. Words differ; fewer than `count` are given if there are fewer
    among the 64 likeliest next pieces.

    Raises:
        DataError: as of `trace_search`.
    """
    search = translator.experiment.search
    sentence = _with_prefix(translator, source, prefix, search)
    segmenter, given = translator.segmentation.target, len(sentence.target)
    batch = Batch.collate([sentence.source], [sentence.target]).to(translator.device)
    with translator.autocast():
        model = translator.reading([sentence])
        [whole], [positions] = rescore_with_next(model, batch, POOL)
    likeliest = positions[-1]
    if target_limit(sentence.source_tokens, search) - given <= 1:
        likeliest = [(token, value) for token, value in likeliest if token == eos_id]
    begins = [
        (token, value)
        for token, value in likeliest
        if token == eos_id or (token not in NOT_WORDS and (not given or begins_word(segmenter, segmenter.piece(token))))
    ][: count + 2]  # some may lead to the same word
    longer = [replace(sentence, target=(*sentence.target, token)) for token, _ in begins if token != eos_id]
    translated = translator.translate_sentences(longer, TranslationOptions(search, alignments=alignments))
    found: dict[str, Continued] = {}
    for token, value in begins:
        candidate = _ended(sentence, whole, translator) if token == eos_id else next(translated)[0]
        end = next(
            (i for i in range(given + 1, len(candidate.tokens)) if begins_word(segmenter, candidate.tokens[i])),
            len(candidate.tokens) - 1,
        )
        pieces = candidate.tokens[:-1][:end]
        word = segmenter.decode(pieces[given:])
        found.setdefault(word, Continued(word, segmenter.decode(pieces), value, candidate))
    source_tokens = with_end_mark(translator.segmentation.source, sentence.source)
    return NextWords(source_tokens, tuple(found.values())[:count])


def begins_word(segmenter: Segmenter, piece: str) -> bool:
    """Whether a piece cannot be the inside of a word: it has a space before it, or is punctuation.

    In languages without spaces every piece counts as a word.
    """
    without_spaces = not has_spaces(segmenter.language)
    return segmenter.config.kind == "word" or without_spaces or piece.startswith(SPACE) or not piece[0].isalnum()


def _ended(sentence: EncodedSentence, whole: Rescored, translator: Translator) -> Candidate:
    """The prefix as the whole translation."""
    segmenter, values = translator.segmentation.target, whole.log_probabilities
    score = translator.experiment.search.penalty.score(sum(values), len(values))
    tokens = with_end_mark(segmenter, sentence.target)
    return Candidate(segmenter.decode_ids(list(sentence.target)), tokens, values, score, complete=True)


def _with_prefix(translator: Translator, source: str, prefix: str, search: SearchConfig) -> EncodedSentence:
    sentence = replace(encoded(translator, source, prefix), origin="The request")
    check_beginning(sentence, search)
    return sentence
