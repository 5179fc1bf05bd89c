"""One sentence with its translation, as pieces: what attention, inspection and exploration read."""

from __future__ import annotations

from jointnmt.errors import DataError
from jointnmt.translator.inference import Inference
from jointnmt.translator.options import TranslationOptions
from jointnmt.translator.preprocessing import EncodedSentence, Line
from jointnmt.translator.searching import translate_sentences


def encoded(
    inference: Inference, source: str, target: str = "", pieces: bool = False, origin: str = "source"
) -> EncodedSentence:
    """A sentence as pieces, with its translation or a prefix of it.

    Args:
        inference: a trained model.
        source: the sentence.
        target: its translation or a prefix of it; empty: none.
        pieces: whether the target is pieces, separated by spaces.
        origin: name of the source in error messages.

    Raises:
        DataError: if the source is empty, or too long for the model.
    """
    sentences = inference.preprocessor(pieces=pieces).encode([Line(1, origin, source, target)])[0]
    if not sentences:
        raise DataError(f"The {origin} is empty: there is nothing to look into.")
    return sentences[0]


def encoded_pair(
    inference: Inference,
    source: str,
    target: str | None,
    most_tokens: int | None = None,
    origin: str = "source",
) -> tuple[EncodedSentence, str]:
    """A sentence with its translation as pieces, and the translation as text.

    Args:
        inference: a trained model.
        source: the sentence.
        target: its translation; None: the model's own, in the pieces that search found.
        most_tokens: most tokens of the source, end mark included; None: no limit.
        origin: name of the source in error messages.

    Raises:
        DataError: if the source is empty, too long for the model, or has more than `most_tokens` tokens.
    """
    sentence = encoded(inference, source, target or "", origin=origin)
    check_tokens("sentence", sentence.source_tokens, most_tokens)
    if target is not None:
        return sentence, target
    [[candidate]] = translate_sentences(inference, [sentence], TranslationOptions())
    found = " ".join(candidate.tokens[:-1])  # without the end mark
    return encoded(inference, source, found, pieces=True, origin=origin), candidate.text


def check_tokens(text: str, tokens: int, most: int | None) -> None:
    """Refuse a text of more than `most` tokens.

    Raises:
        DataError: naming the `text`, if it has more.
    """
    if most is not None and tokens > most:
        raise DataError(f"The {text} has more than {most} tokens ({tokens}): take a shorter one.")
