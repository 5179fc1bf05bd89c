"""Lexical shortcuts as in their authors' own code (`model.emelin_compatible`), in values, gradients and dropout.

`tests/data/authors/shortcuts-*.npz` have what the code of Emelin et al. 2019, commit
638dc6b6ea73fe900bd25e5cfaf4030f680ad8b4 of github.com/demelin/transformer_lexical_shortcuts, computes with TensorFlow
1.8.0 from PyPI for two tiny models, in float32, the only type that it knows. Of its folder `codebase`, these files are
used, unchanged: `layers.py`, `blocks.py`, `attention_modules.py`, and in `lexical_shortcuts` the encoder, the decoder
in training, the block and the attention of both kinds. The code itself is not here.

To make the files again: with one `EmbeddingLayer` of 13 symbols for both sides and the output, build the encoder and
the decoder with E 16, F 32, H 2, two layers, dropout of embeddings 0.15, residual 0.3, of attention 0.2, of ReLU 0.25,
`shortcut_type` `lexical` (seed 3) or `lexical_plus_feature_fusion` (seed 4). Draw each of `tf.trainable_variables()` in
turn from NumPy's `RandomState(seed)`, as `randint(-64, 65) / 128`, norms' scales as `(randint // 4 + 104) / 128`. Then
compute the logits of the three sentences of `source` and `target_input`, and the loss of `MaskedCrossEntropy` without
label smoothing, with training off and on; `tf.layers.dropout` is replaced by one that keeps elements where
`RandomState(seed + 10).random_sample(shape) >= rate` and records where. Of the gradient of a matrix, the product with
the vector `cos(0), cos(1), ...` is kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from jointnmt.models import TranslationModel, build_model
from jointnmt.models.common import ShortcutConfig
from jointnmt.models.reference import Reference
from jointnmt.models.transformer import TransformerConfig
from jointnmt.ops.backend import backend
from jointnmt.text.special import bos_id, eos_id, pad_id
from jointnmt.training.loss import cross_entropy_sums
from support.authors import apply_masks
from support.kernels import needs_kernels

FOLDER = Path(__file__).parents[1] / "data" / "authors"
TOLERANCE = 1e-5
"""Relative difference of logits. Float32 of the same model differs as much from float64 in one of the cases."""

THEIR_END, THEIR_BEGIN, THEIR_UNKNOWN = 0, 1, 2
"""The authors' special ids. Padding is the end mark; here it gets the row of the unknown word, which does not occur."""
SPECIAL = {pad_id: THEIR_UNKNOWN, bos_id: THEIR_BEGIN, eos_id: THEIR_END}


class Piece(NamedTuple):
    """A part of a weight of the authors, `[inputs, outputs]` or `[outputs]`, and the rows of ours, its transpose."""

    name: str
    rows: slice
    inputs: slice = slice(None)
    outputs: slice = slice(None)

    def of(self, theirs: Tensor) -> Tensor:
        """The part, in our layout."""
        return theirs[self.outputs] if theirs.ndim == 1 else theirs[self.inputs, self.outputs].T


class Authors:
    """A model of the authors: settings, weights and inputs, and what their code computed with them."""

    def __init__(self, kind: str) -> None:
        with np.load(FOLDER / f"shortcuts-{kind}.npz") as arrays:
            self.arrays = {name: torch.from_numpy(array) for name, array in arrays.items() if array.ndim}
            settings = json.loads(str(arrays["settings"]))
        self.arguments: dict[str, Any] = settings["arguments"]
        self.shapes: dict[str, list[int]] = settings["weights"]
        self.masks: list[tuple[list[int], float]] = settings["masks"]
        self.fusion = self.arguments["shortcut_type"] == "lexical_plus_feature_fusion"
        self.symbols, self.size = self.shapes["model/embedding_table"]
        self.rows = [SPECIAL.get(row, row) for row in range(self.symbols)]

    @property
    def config(self) -> TransformerConfig:
        """Our settings for the authors' arguments."""
        given = self.arguments
        return TransformerConfig(
            embed_dim=given["hidden_size"],
            num_heads=given["num_heads"],
            ffn_dim=given["ffn_hidden_size"],
            encoder_layers=given["num_encoder_layers"],
            decoder_layers=given["num_decoder_layers"],
            dropout=given["dropout_residual"],
            embedding_dropout=given["dropout_embeddings"],
            attention_dropout=given["dropout_attn"],
            hidden_dropout=given["dropout_relu"],
            embeddings="all",
            attention_bias=False,
            emelin_compatible=True,
            shortcuts=ShortcutConfig(kind="fusion" if self.fusion else "plain"),
        )

    def model(self) -> TranslationModel:
        """Our model with the authors' weights."""
        model = build_model(self.config, self.symbols, self.symbols).double()
        ours = dict(model.named_parameters())
        filled = {name: torch.zeros_like(weight) for name, weight in ours.items()}
        flat = (self.arrays["weights"].double() / 128).split([int(np.prod(shape)) for shape in self.shapes.values()])
        with torch.no_grad():
            for (name, shape), part in zip(self.shapes.items(), flat, strict=True):
                for piece in self.pieces(name):
                    ours[piece.name][piece.rows] = piece.of(self.arranged(name, part.view(*shape)))
                    filled[piece.name][piece.rows] += 1
        assert all((count == 1).all() for count in filled.values())
        return model

    def arranged(self, name: str, theirs: Tensor) -> Tensor:
        """A weight of the authors, `[inputs, outputs]`; symbols, the inputs of the table, in our order."""
        return theirs[self.rows].T if name == TABLE else theirs

    def pieces(self, name: str) -> list[Piece]:
        """Where the parts of a weight of the authors are."""
        if name == TABLE:
            return [Piece("source_embedding.weight", slice(None))]
        side, _, layer, part, *rest = name.split("/")
        encoder, number = side == "encoder", int(layer.removeprefix("layer_")) - 1
        prefix = f"encoder.layers.{number}." if encoder else f"layers.{number}."
        if part == "final_transform":
            return [Piece(f"encoder.norm.{WEIGHTS[rest[-1]]}" if encoder else f"norm.{WEIGHTS[rest[-1]]}", slice(None))]
        if part in BLOCKS:
            return [Piece(f"{prefix}{BLOCKS[part]}.{WEIGHTS[rest[-1]]}", slice(None))]
        if part.startswith("pre_"):
            kind = {"pre_self_attn_sublayer": "attention" if encoder else "self", "pre_ffn_sublayer": "ffn"}
            return [Piece(f"{prefix}{kind.get(part, 'cross')}_residual.norm.{WEIGHTS[rest[-1]]}", slice(None))]
        own = part == "self_attn_sublayer"
        attention = prefix + (("attention" if encoder else "self_attention") if own else "cross_attention")
        if rest[0] == "context_projection":
            return [Piece(f"{attention}.output.weight", slice(None))]
        if rest[0] == "queries_projection":
            return [
                Piece(f"{attention}.qkv.weight", self.part(0))
                if own
                else Piece(f"{attention}.query.weight", self.part(0))
            ]
        second = int("value" in rest[0])
        if "gate" in rest[0]:
            return [Piece(f"{attention}.shortcut.gate_bias", slice(second, second + 1))]
        if not own:
            return [Piece(f"{attention}.key_value.weight", self.part(second))]
        if not self.fusion:
            if rest[0].startswith("sc_"):
                return [Piece(f"{attention}.shortcut.lexical.weight", self.part(second))]
            return [Piece(f"{attention}.qkv.weight", self.part(1 + second))]
        # [embedding; hidden] to [lexical; hidden]. Ours: lexical keys and values, then hidden ones, after queries.
        return [
            Piece(
                f"{attention}.{name}.weight", self.part(first + 2 * half + second), self.part(inputs), self.part(half)
            )
            for inputs, (name, first) in enumerate([("shortcut.lexical", 0), ("qkv", 1)])
            for half in range(2)
        ]

    def part(self, number: int) -> slice:
        """Features of the part of this number."""
        return slice(number * self.size, (number + 1) * self.size)

    def gradients(self, mode: str) -> dict[str, Tensor]:
        """Gradients by the authors' names: of vectors whole, of matrices their product with a vector."""
        parts = self.arrays[f"{mode}_gradients"].split([shape[0] for shape in self.shapes.values()])
        return dict(zip(self.shapes, parts, strict=True))

    def probed(self, gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Our gradients in the form of `gradients`."""
        result = {}
        for name, shape in self.shapes.items():
            theirs = torch.zeros(shape, dtype=torch.float64)
            for piece in self.pieces(name):
                given = gradients[piece.name][piece.rows]
                if name == TABLE:
                    theirs[self.rows] = given
                elif theirs.ndim == 1:
                    theirs[piece.outputs] = given.flatten()
                else:
                    theirs[piece.inputs, piece.outputs] = given.T
            result[name] = theirs if theirs.ndim == 1 else theirs @ torch.arange(shape[1]).double().cos()
        return result

    def ids(self, name: str, lengths: Tensor) -> Tensor:
        """Our ids of the symbols in `source`, `target_input` or `target`."""
        ids = torch.argsort(torch.tensor(self.rows))[self.arrays[name].long()]
        return ids.masked_fill(torch.arange(ids.shape[1]) >= lengths[:, None], pad_id)

    def dropout_masks(self) -> Iterator[tuple[float, Tensor]]:
        """Rate and mask of each dropout in training, in the order of computation."""
        bits = torch.from_numpy(np.unpackbits(self.arrays["train_kept"].numpy())).double()
        sizes = [int(np.prod(shape)) for shape, _ in self.masks]
        for (shape, rate), kept in zip(self.masks, bits[: sum(sizes)].split(sizes), strict=True):
            yield rate, kept.view(*shape) / (1 - rate)


TABLE = "model/embedding_table"
WEIGHTS = {
    "offset": "bias",
    "scale": "weight",
    "dense_layer_weights": "weight",
    "dense_layer_biases": "bias",
}
BLOCKS = {"ff_layer_1": "ffn.hidden", "ff_layer_2": "ffn.output"}


def check(model: TranslationModel, authors: Authors, mode: str) -> None:
    """Compare logits, the loss and its gradients with those of the authors."""
    source_lengths, target_lengths = authors.arrays["lengths"].long()
    target = authors.ids("target", target_lengths)
    logits = model(authors.ids("source", source_lengths), authors.ids("target_input", target_lengths))
    expected, real = authors.arrays[f"{mode}_logits"][..., authors.rows].double(), target != pad_id
    error = (logits[real] - expected[real]).abs().max()
    assert error <= TOLERANCE * expected[real].abs().max()
    loss, _ = cross_entropy_sums(logits, target, 0.0, sentence_means=True)
    loss = loss / len(target)
    assert loss.item() == pytest.approx(authors.arrays[f"{mode}_losses"].item(), rel=TOLERANCE)
    loss.backward()
    gradients = {name: weight.grad.double() for name, weight in model.named_parameters() if weight.grad is not None}
    found = authors.probed(gradients)
    for name, wanted in authors.gradients(mode).items():
        error = (found[name] - wanted).abs().max()
        assert error <= 10 * TOLERANCE * wanted.abs().max() + 1e-8, f"{name}: {error}"


kinds = pytest.mark.parametrize("kind", ["plain", "fusion"])
implementations = pytest.mark.parametrize(
    "implementation", ["float64", "reference", pytest.param("kernels", marks=needs_kernels)]
)


def build(authors: Authors, implementation: str) -> TranslationModel:
    """The model, computed in one of three ways."""
    model = authors.model()
    if implementation == "reference":
        return Reference(model.config, model.state_dict())
    return model.float() if implementation == "kernels" else model


@kinds
@implementations
def test_shortcuts_compute_what_the_authors_code_computes(kind: str, implementation: str) -> None:
    authors = Authors(kind)
    with backend("native" if implementation == "kernels" else "plain"):
        check(build(authors, implementation).eval(), authors, "eval")


@kinds
@implementations
def test_dropout_of_shortcuts_is_where_the_authors_code_has_it(
    kind: str, implementation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In training, with the masks that the authors' code drew: the same number, rates, shapes and results."""
    authors = Authors(kind)
    masks = apply_masks(monkeypatch, authors.dropout_masks())
    model = build(authors, implementation)
    with backend("native" if implementation == "kernels" else "plain"):
        check(model.train(), authors, "train")
    assert not masks
