"""Which language a text is in, as its letters say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

from jointnmt.extras import extra

FEWEST_LETTERS = 20
"""A shorter text says too little: on the bundled corpus, no longer sentence is taken for another language with
`SURE`."""

FEWEST_LINES = 20
"""Lines that are long enough to tell: with fewer, the language of a text is told by short ones together."""

SURE = 0.95
"""Probability above which a text is taken to be in a language."""

ALIKE = ({"nb", "nn", "no", "da"}, {"bs", "hr", "sr"}, {"id", "ms", "jv"}, {"gl", "pt"}, {"xh", "zu"})
"""Languages that are not told apart by the sentence."""


class MajorityLanguage(NamedTuple):
    """The language of a text of many lines."""

    language: str
    share: float
    """Of the lines that are long enough to tell: those in this language. 0 if there are none."""


def ranked(text: str) -> list[tuple[str, float]]:
    """All languages that can be told, with their probabilities, likeliest first."""
    found: list[tuple[str, float]] = _identifier().rank(text)
    return found


def language_of(text: str) -> tuple[str, float] | None:
    """The likeliest language of a sentence and its probability; None if it has too few letters to tell."""
    if sum(map(str.isalpha, text)) < (FEWEST_LETTERS if text.isascii() else FEWEST_LETTERS // 2):
        return None
    language, probability = _identifier().classify(text)
    return str(language), float(probability)


def language_of_lines(lines: Iterable[str]) -> MajorityLanguage:
    """The language that most lines are in; if hardly any is long enough to tell, as many short ones as make a long one
    count as a line."""
    lines = list(lines)
    found = _votes(lines)
    if found.total() < FEWEST_LINES:
        found = _votes(_joined(lines))
    if not found:
        return MajorityLanguage("", 0.0)
    language, count = found.most_common(1)[0]
    return MajorityLanguage(language, count / found.total())


def _votes(lines: Iterable[str]) -> Counter[str]:
    return Counter(told[0] for line in lines if (told := language_of(line)) is not None)


def _joined(lines: Iterable[str]) -> Iterator[str]:
    """Neighbouring lines together, with three times the letters that one has to have."""
    together = ""
    for line in lines:
        together = f"{together} {line}"
        if sum(map(str.isalpha, together)) >= 3 * FEWEST_LETTERS:
            yield together
            together = ""
    yield together


def is_other_language(text: str, language: str) -> str | None:
    """The language that a sentence surely is in, if that is another than `language` and none that is much alike."""
    told = language_of(text)
    if told is None or told[0] == language or told[1] < SURE:
        return None
    return None if any({told[0], language} <= group for group in ALIKE) else told[0]


def are_exchanged(texts: tuple[str, str], languages: tuple[str, str]) -> bool:
    """Whether of two sentences each is surely in the language of the other, as both together say; neither is blank.

    Args:
        texts: of any length, such as a sentence and its translation.
        languages: those that they should be in, which can be told and told apart.
    """
    right, wrong = 1.0, 1.0
    for text, language, other in zip(texts, languages, languages[::-1], strict=True):
        found = dict(ranked(text))
        right, wrong = right * found[language], wrong * found[other]
    return wrong > SURE * (right + wrong)


def told_apart(languages: tuple[str, str]) -> bool:
    """Whether sentences of two languages can be told, and told apart."""
    return (
        languages[0] != languages[1]
        and identifiable().issuperset(languages)
        and not any(group.issuperset(languages) for group in ALIKE)
    )


@cache
def identifiable() -> frozenset[str]:
    """The codes of the languages that can be told."""
    return frozenset(map(str, _identifier().nb_classes))


@cache
def _identifier() -> Any:
    with extra("data"):
        from py3langid.langid import MODEL_FILE, LanguageIdentifier  # reading its table takes a moment

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
