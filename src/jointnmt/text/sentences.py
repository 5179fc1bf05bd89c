"""Sentence splitting."""

import re

CLOSING = "\"'”’»›“‘«‹)\\]}"
CJK_CLOSING = "”’）」』》"
OPENING = "\"'“‘„«‹([{¿¡—–-"

# One or more full stops with closing quotes and brackets, then white space unless it is a CJK stop. No stop stands
# before it, and no part gives back what it has taken (`++`): else a long run of stops would be scanned from each.
_END = re.compile(rf"(?<![.!?…])(?P<stop>[.!?…]++[{CLOSING}]*+)\s++|[。！？｡]++[{CJK_CLOSING}]*+\s*+")
_OPENING = re.compile(rf"[{OPENING}]*+")
# No sentence end after a single letter (z. B.) or a number of one or two digits (am 3. Mai).
_ABBREVIATED = re.compile(r"(?<!\w)(?:[^\W\d_]|\d{1,2})\.$")
_ABBREVIATION_LENGTH = 4
"""Characters that tell whether a text ends in such a one: a character before it, two digits, the full stop."""


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, without the white space between them, in time that is linear in its length.

    A sentence ends at `.`, `!`, `?` or `…` before white space, or at a Chinese or Japanese full stop; not before a word
    in lower case, and not after a single letter or a short number. Other abbreviations (`Dr. Smith`) cannot be told
    from sentence ends without a lexicon.
    """
    text = text.strip()
    sentences = []
    begin = 0
    for end in _END.finditer(text):
        if end["stop"] and _goes_on(text, begin, end):
            continue
        sentences.append(text[begin : end.end()].strip())
        begin = end.end()
    sentences.append(text[begin:])
    return [sentence for sentence in sentences if sentence]


def _goes_on(text: str, begin: int, end: re.Match[str]) -> bool:
    """Whether a sentence that begins at `begin` goes on after a full stop: it is an abbreviation's, or a word in lower
    case follows."""
    stop = end.end("stop")
    if _ABBREVIATED.search(text[max(begin, stop - _ABBREVIATION_LENGTH) : stop]):
        return True
    opened = _OPENING.match(text, end.end())
    return opened is not None and text[opened.end() : opened.end() + 1].islower()
