"""CTranslate2 as a subject: the same Transformer, exported, with the same sentences, beam and lengths.

It accepts one length for a whole batch, so in this benchmark every translation of a batch has the mean length of the
batch's reference translations, end mark included: for CTranslate2 by `min_decoding_length` and `max_decoding_length`,
for the product as in `benchmarks.decoding`. Both then compute the same positions for the same number of hypotheses, and
neither stops early. The product reads and writes text, CTranslate2 pieces.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from benchmarks.decoding import Decoding, DecodingCase, word_segmentation
from jointnmt.data.batches import Lengths

if TYPE_CHECKING:
    from jointnmt.models.transformer import Transformer

ENGINE = "ctranslate2"


def of_one_length(targets: Sequence[Lengths]) -> tuple[Lengths, ...]:
    """The lengths of each batch, replaced by their mean."""
    return tuple(np.full_like(lengths, round(float(lengths.mean()))) for lengths in targets)


def refusal(case: DecodingCase) -> str | None:
    """Reason why CTranslate2 cannot be measured in this case; None: it can."""
    if importlib.util.find_spec(ENGINE) is None:
        return "CTranslate2 is not installed (the extra `export`)"
    if case.family != "transformer" or case.device != "cpu":
        return "CTranslate2 is compared with Transformers on a CPU"
    import ctranslate2

    if case.precision not in ctranslate2.get_supported_compute_types("cpu"):
        return f"CTranslate2 does not compute in {case.precision} on this processor"
    return None


class CTranslate2Decoding(Decoding):
    """Translates the same sentences as `Decoding`, with CTranslate2."""

    model: Transformer

    def __init__(self, case: DecodingCase) -> None:
        import ctranslate2

        from jointnmt.export import transformer_spec

        super().__init__(replace(case, implementation="product", precision="float32"))
        self.case = case
        spec = transformer_spec(self.model, word_segmentation(self.vocabulary))
        spec.validate()
        spec.optimize(quantization=case.precision)
        with tempfile.TemporaryDirectory() as folder:
            spec.save(folder)
            threads = torch.get_num_threads()
            self.engine = ctranslate2.Translator(
                folder, compute_type=case.precision, inter_threads=1, intra_threads=threads
            )
        self.pieces = [[text.split() for text in batch] for batch in self.texts]

    def run(self) -> None:
        """Translate all batches."""
        pairs = zip(self.pieces, self.case.target, strict=True)
        self.translated = [self._translate(batch, int(lengths[0])) for batch, lengths in pairs]

    def _translate(self, batch: Sequence[Sequence[str]], length: int) -> list[list[str]]:
        limits = {"min_decoding_length": length, "max_decoding_length": length}
        found = self.engine.translate_batch(batch, beam_size=self.case.beam_size, max_batch_size=0, **limits)
        return [each.hypotheses[0] for each in found]
