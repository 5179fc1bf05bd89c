"""Translate sentences with a trained model, with scores and the probability of each piece.

    python examples/translate.py RUN < source.txt

RUN is the directory of a training, or of a shared model. A line of output is the score of the translation (its mean
log-probability a token, in nats; higher is better), a tab, and the translation. The least certain piece of each
translation goes to standard error.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

from jointnmt import Translator


def main(run: Path) -> None:
    translator = Translator.load(run)
    sources = (line.rstrip("\n") for line in sys.stdin)
    for translation in translator.translate_stream(sources):
        if not translation.candidates:  # an empty line stays empty
            print()
            continue
        best = translation.candidates[0]
        print(f"{best.score:.3f}\t{best.text}")
        least, token = min(zip(best.token_log_probabilities, best.tokens, strict=True))
        print(f"least certain: {token} ({math.exp(least):.1%})", file=sys.stderr)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
