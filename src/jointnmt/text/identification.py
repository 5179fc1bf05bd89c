"""Language identification by characters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

from jointnmt.extras import extra

FEWEST_LETTERS = 20
"""Fewest letters of a text that is identified."""

FEWEST_LINES = 20
"""Fewest identifiable lines of a text; with fewer, short lines are joined to identify its language."""

SURE = 0.95
"""Probability above which a text is taken to be in a language."""

FOREIGN = 0.99
"""Probability above which a sentence is not in the language that it should be in: of 60,000 sentences of the bundled
corpus one, which is Spanish."""

ALIKE = ({"nb", "nn", "no", "da"}, {"bs", "hr", "sr"}, {"id", "ms", "jv"}, {"gl", "pt"}, {"xh", "zu"})
"""Groups of languages that cannot be distinguished by a sentence."""


class MajorityLanguage(NamedTuple):
    """The language of a text of many lines."""

    language: str
    share: float
    """Share of the identifiable lines that are in this language; 0 if there are none."""


def ranked(text: str) -> list[tuple[str, float]]:
    """All identifiable languages with their probabilities, likeliest first."""
    return _identifier().rank(text)


def language_of(text: str) -> tuple[str, float] | None:
    """The likeliest language of a sentence and its probability; None if it has too few letters."""
    if not _is_identifiable(text):
        return None
    language, probability = _identifier().classify(text)
    return str(language), float(probability)


def _is_identifiable(text: str) -> bool:
    """Whether a text has enough letters."""
    return sum(map(str.isalpha, text)) >= (FEWEST_LETTERS if text.isascii() else FEWEST_LETTERS // 2)


def language_of_lines(lines: Iterable[str]) -> MajorityLanguage:
    """The language of most lines; if hardly any is long enough, neighbouring short lines are joined into one."""
    lines = list(lines)
    found = _votes(lines)
    if found.total() < FEWEST_LINES:
        found = _votes(_joined(lines))
    if not found:
        return MajorityLanguage("", 0.0)
    language, count = found.most_common(1)[0]
    return MajorityLanguage(language, count / found.total())


def _votes(lines: Iterable[str]) -> Counter[str]:
    return Counter(found[0] for line in lines if (found := language_of(line)) is not None)


def _joined(lines: Iterable[str]) -> Iterator[str]:
    """Neighbouring lines joined to three times the fewest letters of a line."""
    together = ""
    for line in lines:
        together = f"{together} {line}"
        if sum(map(str.isalpha, together)) >= 3 * FEWEST_LETTERS:
            yield together
            together = ""
    yield together


def is_other_language(text: str, language: str) -> bool:
    """Whether a sentence is surely neither in `language`, an identifiable one, nor in one that is alike."""
    if not _is_identifiable(text):
        return False
    alike = {language}.union(*(group for group in ALIKE if language in group))
    return 1 - sum(probability for found, probability in ranked(text) if found in alike) > FOREIGN


def are_exchanged(texts: tuple[str, str], languages: tuple[str, str]) -> bool:
    """Whether each of two sentences is surely in the language of the other, judged together; neither is blank.

    Args:
        texts: texts of any length, such as a sentence and its translation.
        languages: the languages that they should be in, which satisfy `distinguishable`.
    """
    right, wrong = 1.0, 1.0
    for text, language, other in zip(texts, languages, languages[::-1], strict=True):
        found = dict(ranked(text))
        right, wrong = right * found[language], wrong * found[other]
    return wrong > SURE * (right + wrong)


def distinguishable(languages: tuple[str, str]) -> bool:
    """Whether sentences of two languages can be identified and distinguished."""
    return (
        languages[0] != languages[1]
        and identifiable().issuperset(languages)
        and not any(group.issuperset(languages) for group in ALIKE)
    )


@cache
def identifiable() -> frozenset[str]:
    """The codes of identifiable languages."""
    return frozenset(map(str, _identifier().nb_classes))


@cache
def _identifier() -> Any:
    with extra("data"):
        from py3langid.langid import MODEL_FILE, LanguageIdentifier  # reading its table takes a moment

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
