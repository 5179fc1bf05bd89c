"""Sentence splitting."""

import re

CLOSING = "\"'”’»›“‘«‹)\\]}"
CJK_CLOSING = "”’）」』》"
OPENING = "\"'“‘„«‹([{¿¡—–-"

# One or more full stops with closing quotes and brackets, then white space unless it is a CJK stop.
# No stop stands before it: else a long run of stops would be scanned from each of them.
_END = re.compile(rf"(?P<stop>(?<![.!?…])[.!?…]+[{CLOSING}]*)\s+|[。！？｡]+[{CJK_CLOSING}]*\s*")
# No sentence end after a single letter (z. B.) or a number of one or two digits (am 3. Mai).
_ABBREVIATED = re.compile(r"(?<!\w)(?:[^\W\d_]|\d{1,2})\.$")


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, without the white space between them.

    A sentence ends at `.`, `!`, `?` or `…` before white space, or at a Chinese or Japanese full stop; not before a word
    in lower case, and not after a single letter or a short number. Other abbreviations (`Dr. Smith`) cannot be told
    from sentence ends without a lexicon.
    """
    sentences = []
    begin = 0
    for end in _END.finditer(text):
        sentence = text[begin : end.end()].strip()
        if end["stop"] and (_ABBREVIATED.search(sentence[-4:]) or text[end.end() :].lstrip(OPENING)[:1].islower()):
            continue
        sentences.append(sentence)
        begin = end.end()
    sentences.append(text[begin:].strip())
    return [sentence for sentence in sentences if sentence]
