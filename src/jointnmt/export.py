"""Export of trained models to CTranslate2, an inference engine for Transformers on CPUs and GPUs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from torch import nn

from jointnmt.errors import ModelError
from jointnmt.extras import extra
from jointnmt.models.layers.attention import CrossAttention, SelfAttention
from jointnmt.models.layers.embedding import sinusoids
from jointnmt.models.layers.feed_forward import FeedForward
from jointnmt.models.transformer import DecoderLayer, EncoderLayer, Transformer
from jointnmt.runs.directory import RunDirectory
from jointnmt.runs.folder import new_folder
from jointnmt.runs.loading import load_run
from jointnmt.text.segmentation import Segmentation
from jointnmt.text.segmenter import Segmenter
from jointnmt.text.special import BOS, EOS, UNK

if TYPE_CHECKING:
    from ctranslate2.specs import TransformerSpec

ExportPrecision = Literal["float32", "float16", "bfloat16", "int16", "int8"]

POSITIONS = 1024
"""Number of positions of an exported model, or twice `model.max_length` if larger; no sentence can be longer."""


def export_ctranslate2(run: Path, folder: Path, weights: ExportPrecision = "float32") -> None:
    """Write a trained Transformer as a folder that `ctranslate2.Translator` loads, with its `segmentation/`.

    The folder is written atomically. Log-probabilities equal those of the run up to rounding.

    Args:
        run: a RUN directory, a shared folder, or `package:NAME`.
        folder: output folder, which must not exist or be empty.
        weights: precision of the stored weights; CTranslate2 computes in its `compute_type`.

    Raises:
        ConfigurationError: if the folder is not empty.
        MissingPackageError: without the extra `export`.
        ModelError: if the run is incomplete, or the model is one that CTranslate2 cannot express.
    """
    with new_folder(folder) as unfinished:
        with extra("export"):
            import ctranslate2  # noqa: F401  (here, to fail before a model is loaded)

        model, segmentation, _ = load_run(run, "cpu")
        spec = transformer_spec(_transformer(model, run), segmentation)
        spec.validate()
        spec.optimize(quantization=weights)
        spec.save(str(unfinished))
        shutil.copytree(RunDirectory(run).segmentation, unfinished / "segmentation")


def _transformer(model: nn.Module, run: Path) -> Transformer:
    if type(model) is not Transformer:  # a subclass may compute something else
        raise ModelError(
            f"{run}: is a {type(model).__name__}, not a Transformer. CTranslate2 does not support other models, such "
            "as the Reformers. Translate with `jointnmt translate` or `jointnmt serve`."
        )
    if model.has_shortcuts:
        raise ModelError(
            f"{run}: has lexical shortcuts, which CTranslate2 does not support. Translate with `jointnmt translate` or "
            "`jointnmt serve`."
        )
    return model


def transformer_spec(model: Transformer, segmentation: Segmentation) -> TransformerSpec:
    """The CTranslate2 specification of a Transformer: its weights and vocabularies.

    Raises:
        ModelError: if a vocabulary has duplicate pieces.
    """
    from ctranslate2.specs import TransformerSpec

    config = model.config
    layers = config.encoder_layers, config.decoder_layers
    spec = TransformerSpec.from_config(layers, config.num_heads, pre_norm=config.norm == "pre")
    positions = sinusoids(max(POSITIONS, 2 * (config.max_length or 0)), config.embed_dim)
    for side in (spec.encoder, spec.decoder):
        side.position_encodings.encodings = positions.numpy()
    spec.encoder.embeddings[0].weight = _plain(model.source_embedding.weight)
    spec.decoder.embeddings.weight = _plain(model.target_embedding.weight)
    spec.decoder.projection.weight = _plain(model.output.weight)
    if config.norm == "pre":
        _set_norm(spec.encoder.layer_norm, model.encoder.norm)
        _set_norm(spec.decoder.layer_norm, model.norm)
    for of_encoder, target in zip(model.encoder.layers, spec.encoder.layer, strict=True):
        _set_encoder_layer(target, cast(EncoderLayer, of_encoder))
    for of_decoder, target in zip(model.layers, spec.decoder.layer, strict=True):
        _set_decoder_layer(target, cast(DecoderLayer, of_decoder))
    spec.register_source_vocabulary(_pieces(segmentation.source))
    spec.register_target_vocabulary(_pieces(segmentation.target))
    settings = spec.config
    settings.bos_token, settings.eos_token, settings.unk_token, settings.decoder_start_token = BOS, EOS, UNK, BOS
    settings.add_source_eos = True
    return spec


def _set_encoder_layer(spec: Any, layer: EncoderLayer) -> None:
    _set_self_attention(spec.self_attention, layer.attention, layer.attention_residual.norm)
    _set_feed_forward(spec.ffn, layer.ffn, layer.ffn_residual.norm)


def _set_decoder_layer(spec: Any, layer: DecoderLayer) -> None:
    _set_self_attention(spec.self_attention, layer.self_attention, layer.self_residual.norm)
    _set_cross_attention(spec.attention, layer.cross_attention, layer.cross_residual.norm)
    _set_feed_forward(spec.ffn, layer.ffn, layer.ffn_residual.norm)


def _set_self_attention(spec: Any, attention: SelfAttention, norm: nn.Module) -> None:
    _set_norm(spec.layer_norm, norm)
    for target, linear in zip(spec.linear, (attention.qkv, attention.output), strict=True):
        _set_linear(target, linear)


def _set_cross_attention(spec: Any, attention: CrossAttention, norm: nn.Module) -> None:
    _set_norm(spec.layer_norm, norm)
    for target, linear in zip(spec.linear, (attention.query, attention.key_value, attention.output), strict=True):
        _set_linear(target, linear)


def _set_feed_forward(spec: Any, ffn: FeedForward, norm: nn.Module) -> None:
    _set_norm(spec.layer_norm, norm)
    _set_linear(spec.linear_0, ffn.hidden)
    _set_linear(spec.linear_1, ffn.output)


def _set_linear(spec: Any, linear: nn.Linear) -> None:
    spec.weight = _plain(linear.weight)
    if linear.bias is not None:
        spec.bias = _plain(linear.bias)


def _set_norm(spec: Any, norm: nn.Module) -> None:
    spec.gamma, spec.beta = _plain(norm.weight), _plain(norm.bias)


def _plain(tensor: Any) -> Any:
    return tensor.detach().numpy()


def _pieces(segmenter: Segmenter) -> list[str]:
    """The pieces of the vocabulary, by id.

    Raises:
        ModelError: if two ids have the same piece.
    """
    pieces = [segmenter.piece(number) for number in range(segmenter.vocabulary_size)]
    if len(set(pieces)) < len(pieces):
        raise ModelError("The vocabulary has a duplicate piece, so ids cannot be looked up by piece.")
    return pieces
