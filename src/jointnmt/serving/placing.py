"""HTML into sentences, and back with all of its tags: writing.

An inline tag encloses the translations of the words that it enclosed: each word of a translation takes the tags of the
source word that it is aligned with, by the model's own weights. An element with separated words is written twice; one
without any word gets the word with the largest weight for it, or stays, empty, at the end of the sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
from jaxtyping import Float

from jointnmt.serving.markup import Atom, Marked, Stack, escaped
from jointnmt.text.pieces import SPACE

WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class Chunk:
    """A fragment of output and the elements around it."""

    markup: str
    stack: Stack
    space_before: bool = False
    """Whether white space must precede it, and (below) follow it."""
    space_after: bool = False

    @classmethod
    def of(cls, atom: Atom) -> Chunk:
        """The chunk of an atom."""
        return cls(atom.raw, atom.stack, atom.space_before, atom.space_after)


def place_tags(
    sentence: Marked,
    text: str,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    alignment: Float[np.ndarray, "T S"],
) -> list[Chunk]:
    """The translation of a sentence with the sentence's tags.

    Args:
        sentence: the source.
        text: its translation.
        source_tokens: source pieces and the end mark.
        target_tokens: target pieces and the end mark.
        alignment: weight of each source token for each target token.
    """
    sources, targets = _source_words(sentence), [match.span() for match in WORD.finditer(text)]
    if not targets:
        atoms = map(Chunk.of, sentence.atoms)
        return [Chunk(escaped(text), ()), *(Chunk("", stack) for stack in _elements(sentence)), *atoms]
    weights = (
        _shares(targets, _piece_spans(target_tokens[:-1], text), text)
        @ alignment[:-1, :-1]
        @ _shares(sources, _piece_spans(source_tokens[:-1], sentence.text), sentence.text).T
    )
    _prefer_copies(weights, [sentence.text[slice(*span)] for span in sources], [text[slice(*span)] for span in targets])
    best = weights.argmax(axis=1)
    stacks = [sentence.stacks[sources[source][0]] for source in best]
    lost = _restore(stacks, weights, sentence, sources)
    before: dict[int, list[Atom]] = {}
    earliest = 0
    for atom in sentence.atoms:
        place = _place_of(atom, sources, best.tolist())
        if atom.is_single:  # its counterpart is in another segment, so these stay in order
            place = earliest = max(place, earliest)
        before.setdefault(place, []).append(atom)
    chunks: list[Chunk] = []
    end, last = 0, stacks[0]
    for number, ((begin, stop), stack) in enumerate(zip(targets, stacks, strict=True)):
        here = before.get(number, ())
        chunks += [Chunk.of(atom) for atom in here if atom.is_end]
        chunks.append(Chunk(escaped(text[end:begin]), _common(last, stack)))
        chunks += [Chunk.of(atom) for atom in here if not atom.is_end]
        chunks.append(Chunk(escaped(text[begin:stop]), stack))
        end, last = stop, stack
    chunks.append(Chunk(escaped(text[end:]), last))
    chunks += map(Chunk.of, before.get(len(targets), ()))
    return [*chunks, *(Chunk("", stack) for stack in lost)]


def joined(sentences: Sequence[Sequence[Chunk]], space: str) -> str:
    """The sentences of a segment as well-nested HTML; elements that span sentences are not interrupted."""
    chunks: list[Chunk] = []
    for sentence in filter(None, sentences):
        if chunks:
            chunks.append(Chunk(space, _common(chunks[-1].stack, sentence[0].stack)))
        chunks += sentence
    written: list[str] = []
    stack: Stack = ()
    for chunk in _spaced(chunks):
        if chunk.markup or chunk.stack:
            written += [*_move(stack, chunk.stack), chunk.markup]
            stack = chunk.stack
    return "".join([*written, *_move(stack, ())])


def _spaced(chunks: Sequence[Chunk]) -> Iterator[Chunk]:
    """The chunks, with missing white space added where it is required."""
    last = Chunk("", ())
    for chunk in chunks:
        if chunk.markup:
            is_apart = last.markup[-1:].isspace() or chunk.markup[0].isspace()
            if last.markup and not is_apart and (last.space_after or chunk.space_before):
                yield Chunk(" ", _common(last.stack, chunk.stack))
            last = chunk
        yield chunk


def _move(old: Stack, new: Stack) -> list[str]:
    """The tags that lead from one stack to another."""
    kept = len(_common(old, new))
    return [*(element.closing for element in reversed(old[kept:])), *(element.opening for element in new[kept:])]


def _common(one: Stack, other: Stack) -> Stack:
    """The elements that are common to two stacks."""
    return tuple(a for a, _ in takewhile(lambda pair: pair[0] is pair[1], zip(one, other, strict=False)))


def _source_words(sentence: Marked) -> list[tuple[int, int]]:
    """Begin and end of words, and of parts of words that a tag divides."""
    spans = []
    for match in WORD.finditer(sentence.text):
        begin = match.start()
        for place in range(match.start() + 1, match.end()):
            if sentence.stacks[place] != sentence.stacks[place - 1]:
                spans.append((begin, place))
                begin = place
        spans.append((begin, match.end()))
    return spans or [(0, len(sentence.text))]


def _prefer_copies(weights: Float[np.ndarray, "T S"], sources: Sequence[str], targets: Sequence[str]) -> None:
    """Align a word that also occurs in the source, such as a full stop or a name, with its copy alone, in place.

    One piece may hold a word and the full stop after it, which its weights cannot distinguish.
    """
    copied = np.array([[source == target for source in sources] for target in targets])
    weights[copied.any(axis=1, keepdims=True) & ~copied] = 0
    weights[copied] += 1e-9


def _piece_spans(pieces: Sequence[str], text: str) -> list[tuple[float, float]]:
    """The span of characters of a text, white space not counted, of each piece.

    If the pieces differ from the text in length (unknown characters, Moses tokenisation), spans are scaled to it.
    """
    lengths = [len(piece.replace(SPACE, "")) for piece in pieces]
    total = sum(map(len, text.split()))
    stretch = total / max(1, sum(lengths))
    ends = np.cumsum(lengths) * stretch
    return [(end - length * stretch, end) for end, length in zip(ends.tolist(), lengths, strict=True)]


def _shares(
    words: Sequence[tuple[int, int]], pieces: Sequence[tuple[float, float]], text: str
) -> Float[np.ndarray, "W P"]:
    """The share of each piece that is in each word, `[W, P]`."""
    places = np.cumsum([0, *(not character.isspace() for character in text)])
    begins, ends = places[np.array(words).T][:, :, None]
    firsts, lasts = np.array(pieces).reshape(-1, 2).T
    overlaps = np.minimum(ends, lasts) - np.maximum(begins, firsts)
    return np.maximum(overlaps, 0.0) / np.maximum(lasts - firsts, 1e-9)


def _elements(sentence: Marked) -> list[Stack]:
    """The innermost stack of every element that encloses text, outer ones first."""
    found = {stack[: depth + 1]: None for stack in sentence.stacks for depth in range(len(stack))}
    return sorted(found, key=len)


def _restore(
    stacks: list[Stack], weights: Float[np.ndarray, "T S"], sentence: Marked, sources: Sequence[tuple[int, int]]
) -> list[Stack]:
    """Give elements without a word one, in place; returns those that get none."""
    lost = []
    for element in _elements(sentence):
        if any(stack[: len(element)] == element for stack in stacks):
            continue
        columns = [n for n, (begin, _) in enumerate(sources) if sentence.stacks[begin][: len(element)] == element]
        word = int(weights[:, columns].sum(axis=1).argmax()) if columns else 0
        if columns and element[: len(stacks[word])] == stacks[word]:
            stacks[word] = element
        else:
            lost.append(element)
    return lost


def _place_of(atom: Atom, sources: Sequence[tuple[int, int]], best: Sequence[int]) -> int:
    """The index of the target word before which an atom is placed: the first aligned with the source word after it."""
    following = next((number for number, (begin, _) in enumerate(sources) if begin >= atom.position), None)
    return best.index(following) if following in best else len(best)
