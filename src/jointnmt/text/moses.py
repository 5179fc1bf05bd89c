"""Moses tokenisation and truecasing, their inverses, and normalisation of punctuation, by `sacremoses`."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from tempfile import NamedTemporaryFile
from typing import Self

LONG_ELLIPSIS = re.compile(r"(\.{64,})")
"""Runs of full stops that bypass the normaliser, whose time is quadratic in their length."""

MTAVRULI = frozenset(map(chr, range(0x1C90, 0x1CC0)))
"""Georgian capitals, for words and titles all in capitals."""


class Moses:
    """Tokenises and detokenises text of one language, by the rules of the Moses scripts and without their escapes.

    Languages without rules use English abbreviations, with apostrophes as separate tokens. Detokenisation restores most
    texts, but not, for example, `4' long` or a space before an ellipsis.
    """

    def __init__(self, language: str) -> None:
        from sacremoses import MosesDetokenizer, MosesTokenizer

        self._tokenizer = MosesTokenizer(lang=language)
        self._detokenizer = MosesDetokenizer(lang=language)

    def tokenize(self, text: str) -> str:
        """Tokens with single spaces between them."""
        return str(self._tokenizer.tokenize(text, escape=False, return_str=True))

    def detokenize(self, tokens: Sequence[str]) -> str:
        """Running text."""
        return str(self._detokenizer.detokenize(list(tokens), unescape=False, return_str=True))


class PunctuationNormalizer:
    """One form of each quotation mark, dash, ellipsis and space, by the rules of the Moses script for a language."""

    def __init__(self, language: str) -> None:
        from sacremoses import MosesPunctNormalizer

        self._normalizer = MosesPunctNormalizer(lang=language)

    def normalize(self, text: str) -> str:
        """The text with its punctuation normalised, without white space around it."""
        parts = LONG_ELLIPSIS.split(text)
        parts[::2] = map(self._normalized, parts[::2])
        return "".join(parts).strip()

    def replace_unicode(self, text: str) -> str:
        """The text with full-width punctuation and curved quotation marks replaced, of any language."""
        return str(self._normalizer.replace_unicode_punct(text))

    def _normalized(self, part: str) -> str:
        """A normalised part of a text that keeps a space at either end, which separates it from its neighbours."""
        before, after = (" " if end.isspace() else "" for end in (part[:1], part[-1:]))
        return f"{before}{self._normalizer.normalize(part)}{after}"


class Truecaser:
    """Gives words the case that they have within sentences, by a model of the Moses scripts, and undoes it.

    A word at the beginning of a sentence takes its most frequent form; other words keep a known form. On output, the
    first word of a sentence is capitalised.
    """

    def __init__(self, model: str) -> None:
        """A truecaser from the content of a model file.

        Raises:
            ValueError: if it is not a model.
        """
        from sacremoses import MosesDetruecaser, MosesTruecaser

        self.model = model
        with NamedTemporaryFile("w", encoding="utf-8", suffix=".truecase") as file:
            file.write(model)
            file.flush()
            truecaser = MosesTruecaser(load_from=file.name)
        self._frequent, self._known = truecaser.model["best"], truecaser.model["known"]
        self._ends, self._before_begin = truecaser.SENT_END, truecaser.DELAYED_SENT_START
        self._detruecaser = MosesDetruecaser()

    @classmethod
    def learn(cls, lines: Iterable[str]) -> Self:
        """Learn from tokenised text, read as a stream: from all words but the first ones of sentences."""
        from sacremoses import MosesTruecaser

        learner, forms = MosesTruecaser(), defaultdict[str, Counter[str]](Counter)
        for line in lines:
            for word, form, weight in learner.learn_truecase_weights(line.split()):
                forms[word][form] += weight
        return cls("".join(f"{_with_shares(counts)}\n" for _, counts in sorted(forms.items())))

    def truecase(self, text: str) -> str:
        """Tokens with single spaces between them, in their true case.

        By the rule of the Moses script without its exceptions: markup is text here, whereas `sacremoses` would put
        spaces around each `<`.
        """
        found, begins = [], True
        for token in text.split(" "):
            frequent = self._frequent.get(token.lower(), token)
            found.append(token if token in self._known and not begins else frequent)
            begins = token in self._ends or (begins and token in self._before_begin)
        return " ".join(found)

    def detruecase(self, tokens: Sequence[str]) -> list[str]:
        """Tokens with a capital letter at the beginning of each sentence, except in Georgian."""
        words = " ".join(tokens).split()
        found = self._detruecaser.detruecase(" ".join(words))
        return [word if cased[:1] in MTAVRULI else cased for word, cased in zip(words, found, strict=True)]


def _with_shares(counts: Counter[str]) -> str:
    """A line of a truecasing model: the forms of a word with their shares, the most frequent first, and of equally
    frequent ones the one with lower-case letters, as undoing gives a sentence its capital letter."""
    total = counts.total()
    ordered = sorted(counts.items(), key=lambda each: (-each[1], each[0].swapcase()))
    return " ".join(
        f"{form} ({count}/{total})" if n == 0 else f"{form} ({count})" for n, (form, count) in enumerate(ordered)
    )
