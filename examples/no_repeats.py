"""Translate with a rule of your own in search: no three pieces in a row occur twice in a translation.

    python examples/no_repeats.py RUN < source.txt

Search knows a model by `start` and `step` alone, so a rule is a model around a model. This one bans every piece that
would complete a repetition; search then normalises the probabilities of the others. It keeps the tokens of each
hypothesis beside the model's own state, and follows search, which reorders hypotheses by `select`. A forced prefix must
not repeat itself. A rule on attention needs the model's layers, as a family of your own has them.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from jointnmt import Translator
from jointnmt.models import AttentionMaps, DecoderState, TranslationModel

LENGTH = 3


@dataclass(frozen=True)
class Past:
    """The model's state, and the tokens of each of its N rows so far, `[N, t]`."""

    state: DecoderState
    ids: Tensor

    def select(self, rows: Tensor) -> Past:
        """See `DecoderState`."""
        return Past(self.state.select(rows), self.ids[rows.to(self.ids.device)])


class WithoutRepeats(TranslationModel):
    """A model with which search never repeats `LENGTH` pieces in a row within a translation."""

    def __init__(self, model: TranslationModel) -> None:
        super().__init__()
        self.model, self.config = model, model.config

    def forward(self, source: Tensor, target_input: Tensor, attn_weights: AttentionMaps | None = None) -> Tensor:
        return self.model(source, target_input, attn_weights)  # type: ignore[no-any-return]

    def start(self, source: Tensor) -> Past:
        return Past(self.model.start(source), source.new_empty(len(source), 0))

    def step(self, last_ids: Tensor, state: DecoderState) -> tuple[Tensor, Past]:
        assert isinstance(state, Past)
        logits, after = self.model.step(last_ids, state.state)
        logits, ids = logits.clone(), torch.cat([state.ids, last_ids[:, None]], dim=1)
        for row, tokens in enumerate(ids.tolist()):
            runs = [tokens[begin : begin + LENGTH] for begin in range(len(tokens) - LENGTH + 1)]
            logits[row, [last for *first, last in runs if first == tokens[1 - LENGTH :]]] = -torch.inf
        return logits, Past(after, ids)


def main(run: Path) -> None:
    translator = Translator.load(run)
    model = WithoutRepeats(translator.trained)
    changed = Translator(model, translator.segmentation, translator.experiment)
    for translation in changed.translate_stream(line.rstrip("\n") for line in sys.stdin):
        print(translation.text)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
