"""The Reformers against numbers computed by their authors' own code, in values, gradients and dropout.

`tests/data/authors` has what the code of Li et al. 2020, github.com/lyy1994/reformer at commit
370ef8358c01e7a655abf928074873c28a0f1d86, computes for two tiny models: the files `models/reformer.py`,
`modules/separable_attention.py`, `reduction.py`, `dropout1d.py` and `dropout2d.py`, unchanged, in fairseq 0.6.1 from
PyPI, whose encoder layers, batches and criterion they use. The code itself is not here, as it has a licence of its own.

To make the files again: build `reformer_base_iwslt_de_en` (seed 1) and `reformer_fast_iwslt_de_en` (seed 2) with E 16,
F 32, H 2, two layers, two of the PreNet, dropout 0.3, of attention 0.2, of ReLU 0.25, for dictionaries of 11 and 13
symbols, in float64. Draw each parameter in the order of `named_parameters` from NumPy's `default_rng(seed)`, as
`integers(-64, 65) / 128`, norms' weights as `(integers // 4 + 104) / 128`, and set padding rows of embeddings to zero.
Collate the three sentences of `source` and `target` with fairseq, then compute logits and criterion with label
smoothing 0.1, first in `eval()`, then in `train()` with a `torch.nn.functional.dropout` that keeps elements where
`default_rng(seed + 10).random(shape) >= p` and records where. Of the gradient of a matrix, the product with the vector
`cos(0), cos(1), ...` is kept. Today's PyTorch needs two changes around the code: `Tensor.chunk` returns copies, as a
view may not be scaled in place, and `Tensor.float` returns float64, as attention would otherwise be rounded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close

from jointnmt.models import TranslationModel, build_model
from jointnmt.models.layers.embedding import sinusoids
from jointnmt.models.reference import Reference
from jointnmt.models.reformer import ReformerBaseConfig, ReformerFastConfig
from jointnmt.ops.backend import backend
from jointnmt.text.special import bos_id, eos_id, pad_id
from jointnmt.training.loss import cross_entropy_sums
from support.authors import apply_masks
from support.kernels import needs_kernels

FOLDER = Path(__file__).parents[1] / "data" / "authors"
SMOOTHING = 0.1

THEIR_PAD, THEIR_END = 1, 2
"""The authors' special ids: a sentence begins with the end mark; symbol 0 is never used, 3 is unknown, as here."""
ROWS = {
    "source_embedding.weight": {pad_id: THEIR_PAD, bos_id: 0, eos_id: THEIR_END},
    "target_embedding.weight": {pad_id: THEIR_PAD, bos_id: THEIR_END, eos_id: 0},
    "output.weight": {pad_id: THEIR_PAD, bos_id: 0, eos_id: THEIR_END},
}
"""The authors' rows of our special pieces. Rows of symbols that cannot occur are exchanged, so that no row is left."""

NAMES = {
    r"encoder\.embed_tokens": "source_embedding",
    r"decoder\.embed_tokens": "target_embedding",
    r"decoder\.embed_out": "output.weight",
    r"encoder\.layers": "prenet.layers",
    r"encoder\.layer_norm\b": "prenet.norm",
    r"decoder\.layers": "layers",
    r"decoder\.output_layer\.reduction\.weights": "reduction.scores.weight",
    r"decoder\.output_layer\.reduction\.layer_norm": "reduction.input_norm",
    r"decoder\.layer_norm": "reduction.output_norm",
    r"sublayers\.0\.self_attn": "target_attention",
    r"sublayers\.0\.layer_norm": "target_norm",
    r"sublayers\.1\.layer_norm": "target_ffn_norm",
    r"sublayers\.1": "target_ffn",
    r"sublayers\.2\.self_attn": "source_attention",
    r"sublayers\.2\.layer_norm": "source_norm",
    r"sublayers\.3\.layer_norm": "source_ffn_norm",
    r"sublayers\.3": "source_ffn",
    r"layer_norms\.0": "attention_residual.norm",
    r"layer_norms\.1": "ffn_residual.norm",
    r"self_attn": "attention",
    r"(prenet.layers.\d+)\.fc": r"\1.ffn.fc",
    r"in_proj_": "qkv.",
    r"out_proj": "output",
    r"fc1": "hidden",
    r"fc2": "output",
}
"""Parts of the authors' names of weights, and ours; applied in this order."""


class Authors:
    """A model of the authors: settings, weights and inputs, and what their code computed with them."""

    def __init__(self, family: str) -> None:
        with np.load(FOLDER / f"{family}.npz") as arrays:
            self.arrays = {name: torch.from_numpy(array) for name, array in arrays.items() if array.ndim}
            settings = json.loads(str(arrays["settings"]))
        self.arguments: dict[str, Any] = settings["arguments"]
        self.shapes: dict[str, list[int]] = settings["weights"]
        self.masks: list[tuple[list[int], float]] = settings["masks"]
        flat = self.arrays["weights"].double() / 128
        self.weights = dict(zip(self.shapes, self._parts(flat, list(self.shapes.values())), strict=True))
        self.lengths = (self.arrays["source"] != THEIR_PAD).sum(dim=1).tolist()

    @staticmethod
    def _parts(flat: Tensor, shapes: Sequence[Sequence[int]]) -> Iterator[Tensor]:
        sizes = [int(np.prod(shape)) for shape in shapes]
        assert sum(sizes) == len(flat)
        return (part.view(*shape) for part, shape in zip(flat.split(sizes), shapes, strict=True))

    @property
    def config(self) -> ReformerBaseConfig | ReformerFastConfig:
        """Our settings for the authors' arguments."""
        given = self.arguments
        assert given["decoder_normalize_before"]
        assert (given["decoder_input_layer"], given["decoder_output_layer"]) == ("add", "attn")
        settings = {
            "embed_dim": given["encoder_embed_dim"],
            "num_heads": given["decoder_attention_heads"],
            "ffn_dim": given["decoder_ffn_embed_dim"],
            "num_layers": given["decoder_layers"],
            "dropout": given["dropout"],
            "attention_dropout": given["attention_dropout"],
            "hidden_dropout": given["relu_dropout"],
        }
        if not given["encoder_layers"]:
            return ReformerBaseConfig(**settings)
        assert given["encoder_normalize_before"]
        return ReformerFastConfig(**settings, prenet_layers=given["encoder_layers"])

    def model(self, changes: Mapping[str, Any] = MappingProxyType({})) -> TranslationModel:
        """Our model with the authors' weights and their positional encodings, whose first is number 2."""
        weights = {}
        for name, weight in self.weights.items():
            ours = our_name(name)
            weights[ours] = weight[our_rows(ours, len(weight))] if ours in ROWS else weight
        sizes = len(weights["source_embedding.weight"]), len(weights["output.weight"])
        model = build_model(self.config.model_copy(update=changes), *sizes).double()
        model.load_state_dict({name: weights[name] for name in model.state_dict()})
        for embedding in (model.source_embedding, model.target_embedding):
            embedding.positions = self.arrays["positions"][2:].double()
        return model

    @property
    def source(self) -> Tensor:
        """Sources, padded on the right instead of the left."""
        padded = our_ids(self.arrays["source"])
        return torch.stack([row.roll(length) for row, length in zip(padded, self.lengths, strict=True)])

    @property
    def target_input(self) -> Tensor:
        """Target inputs, with a begin mark for the authors' first end mark."""
        ids = our_ids(self.arrays["target_input"])
        assert (ids[:, 0] == eos_id).all()
        return torch.cat([torch.full_like(ids[:, :1], bos_id), ids[:, 1:]], dim=1)

    @property
    def target_output(self) -> Tensor:
        """Pieces to predict, and the end mark."""
        return our_ids(self.arrays["target"])

    def logits(self, mode: str) -> Tensor:
        """Logits, with columns in our order."""
        return self.arrays[f"{mode}_logits"][..., our_rows("output.weight", self.arrays[f"{mode}_logits"].shape[-1])]

    def gradients(self, mode: str) -> dict[str, Tensor]:
        """Gradients by our names: of vectors whole, of matrices their product with `probe`."""
        parts = self._parts(self.arrays[f"{mode}_gradients"], [shape[:1] for shape in self.shapes.values()])
        gradients = {our_name(name): part for name, part in zip(self.shapes, parts, strict=True)}
        return {name: part[our_rows(name, len(part))] if name in ROWS else part for name, part in gradients.items()}

    def dropout_masks(self) -> Iterator[tuple[float, Tensor]]:
        """Rate and mask of each dropout in training, in the order of computation, for our layouts.

        The authors' are [T, S, B, E], [1, B, H, L, L] for attention on the grid; [S, B, E], [B * H, S, S] in the
        PreNet; [B, L, E] for embeddings. Axes along which a mask is shared have size 1.
        """
        bits = torch.from_numpy(np.unpackbits(self.arrays["train_kept"].numpy()))
        sizes = [int(np.prod(shape)) for shape, _ in self.masks]
        (batch, source), heads = self.source.shape, self.config.num_heads
        flat = bits[: sum(sizes)].bool().split(sizes)
        for (shape, rate), kept in zip(self.masks, flat, strict=True):
            mask = kept.view(*shape).double() / (1 - rate)
            if len(shape) == 4:
                mask = mask.permute(2, 1, 0, 3)
            elif len(shape) == 5:
                mask = mask.transpose(0, 1)
            elif shape[0] == batch * heads:
                mask = mask.view(batch, heads, *shape[1:])
            elif shape[0] == source:
                mask = mask.transpose(0, 1)
            along_source = [axis for axis in range(1, mask.ndim) if mask.shape[axis] == source]
            if along_source:
                rows = zip(mask, self.lengths, strict=True)
                mask = torch.stack(
                    [
                        row.roll([length] * len(along_source), [axis - 1 for axis in along_source])
                        for row, length in rows
                    ]
                )
            yield rate, mask


def our_name(name: str) -> str:
    """Our name of a weight of the authors."""
    for theirs, ours in NAMES.items():
        name = re.sub(theirs, ours, name)
    return name


def our_rows(name: str, count: int) -> list[int]:
    """The authors' row for each of our ids."""
    return [ROWS[name].get(row, row) for row in range(count)]


def our_ids(ids: Tensor) -> Tensor:
    """Our ids for the authors' ids."""
    ids = ids.long()
    return torch.where(ids == THEIR_PAD, torch.full_like(ids, pad_id), ids)


def probe(gradient: Tensor) -> Tensor:
    """What the files keep of a gradient."""
    return gradient if gradient.ndim == 1 else gradient.double() @ torch.arange(gradient.shape[1]).double().cos()


class FromTwo(Reference):
    """The reference with positions that count from 2."""

    def embed(self, name: str, ids: Tensor) -> Tensor:
        rate, self.embedding_dropout = self.embedding_dropout, 0.0
        shifted = super().embed(name, functional.pad(ids, (2, 0), value=bos_id))[:, 2:]
        self.embedding_dropout = rate
        return self.drop(shifted, rate)


def check(model: TranslationModel, authors: Authors, mode: str, tolerance: float) -> None:
    """Compare logits, losses and gradients of the loss with those of the authors."""
    logits = model(authors.source, authors.target_input)
    output, expected = authors.target_output, authors.logits(mode)
    real = output != pad_id
    scale = expected[real].abs().max()
    assert_close(logits[real].double(), expected[real], rtol=0, atol=float(tolerance * scale))
    loss = functional.cross_entropy(logits[real], output[real], label_smoothing=SMOOTHING, reduction="sum")
    expected_loss, expected_nll = authors.arrays[f"{mode}_losses"]
    assert loss.item() == pytest.approx(expected_loss.item(), rel=tolerance)
    own_loss, nll = cross_entropy_sums(logits, output, SMOOTHING)
    assert own_loss.item() == pytest.approx(expected_loss.item(), rel=max(tolerance, 1e-6))
    assert nll.item() == pytest.approx(expected_nll.item(), rel=max(tolerance, 1e-6))
    loss.backward()
    gradients = {name: probe(weight.grad) for name, weight in model.named_parameters() if weight.grad is not None}
    wanted = authors.gradients(mode)
    assert gradients.keys() == wanted.keys()
    for name, gradient in wanted.items():
        error = (gradients[name].double() - gradient).abs().max()
        assert error <= 10 * tolerance * gradient.abs().max(), f"{name}: {error}"


families = pytest.mark.parametrize("family", ["reformer-base", "reformer-fast"])
implementations = pytest.mark.parametrize(
    "implementation", ["float64", "reference", pytest.param("kernels", marks=needs_kernels), "plain float32"]
)
TOLERANCES = {"float64": 1e-13, "reference": 1e-6, "kernels": 1e-6, "plain float32": 1e-6}
"""Relative differences of logits. The reference computes positional encodings in float64, the others in float32."""


@families
@implementations
def test_the_models_compute_what_the_authors_code_computes(family: str, implementation: str) -> None:
    authors = Authors(family)
    model = authors.model()
    if implementation == "reference":
        model = FromTwo(model.config, model.state_dict())
    elif implementation != "float64":
        model = model.float()
    with backend("native" if implementation == "kernels" else "plain"):
        check(model.eval(), authors, "eval", TOLERANCES[implementation])


@families
@implementations
def test_dropout_is_where_the_authors_code_has_it(
    family: str, implementation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In training, with the masks that the authors' code drew: the same number, rates, shapes and results."""
    authors = Authors(family)
    model = authors.model()
    masks = apply_masks(monkeypatch, authors.dropout_masks())
    if implementation == "reference":
        model = FromTwo(model.config, model.state_dict())
    elif implementation != "float64":
        model = model.float()
    with backend("native" if implementation == "kernels" else "plain"):
        check(model.train(), authors, "train", TOLERANCES[implementation])
    assert not masks


def test_the_maximum_is_that_of_the_authors_code() -> None:
    authors = Authors("reformer-base")
    model = authors.model({"reduction": "max"}).eval()
    logits, expected = model(authors.source, authors.target_input), authors.logits("max")
    real = authors.target_output != pad_id
    assert_close(logits[real], expected[real], rtol=1e-12, atol=1e-12)


@families
def test_positions_are_those_of_the_authors_from_two(family: str) -> None:
    positions = Authors(family).arrays["positions"][2:]
    assert_close(sinusoids(len(positions) + 2, positions.shape[1])[2:], positions, rtol=0, atol=1e-6)


def test_every_weight_of_the_authors_has_one_of_ours() -> None:
    for family in ("reformer-base", "reformer-fast"):
        authors = Authors(family)
        ours = {our_name(name): shape for name, shape in authors.shapes.items()}
        assert ours == {name: list(weight.shape) for name, weight in authors.model().named_parameters()}
