"""The papers' equations in float64 NumPy, written independently of the models, for one sentence pair.

Sequences are `[L, E]`, the grid is `[S, T, E]`; `w` holds a model's weights by name.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from jointnmt.models import TranslationModel

Array = np.ndarray
Weights = dict[str, Array]
EMBED, HEADS, FFN = 8, 2, 12
SIZES = {"embed_dim": EMBED, "num_heads": HEADS, "ffn_dim": FFN, "dropout": 0.0}


@dataclass(frozen=True)
class Shortcuts:
    """Places and kind of lexical shortcuts."""

    places: tuple[str, ...] = ()
    fusion: bool = False
    two_below: bool = False
    emelin_compatible: bool = False


NONE = Shortcuts()


def norm(x: Array, w: Weights, name: str) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * w[f"{name}.weight"] + w[f"{name}.bias"]


def linear(x: Array, w: Weights, name: str) -> Array:
    return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0)


def softmax(x: Array, axis: int) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def attention(q: Array, k: Array, v: Array, causal: bool) -> tuple[Array, Array]:
    """Attention of Li et al. 2020, Eq. 2 for each head, scaled by the size of a head; weights [H, Lq, Lk]."""
    size, heads, weights = EMBED // HEADS, [], []
    for h in range(HEADS):
        part = slice(h * size, (h + 1) * size)
        scores = q[:, part] @ k[:, part].T / np.sqrt(size)
        if causal:
            scores = np.where(np.tri(len(q), dtype=bool), scores, -np.inf)
        weights.append(softmax(scores, 1))
        heads.append(weights[-1] @ v[:, part])
    return np.concatenate(heads, 1), np.stack(weights)


def mixed(projected: Array, lexical: Array, w: Weights, name: str, fusion: bool) -> tuple[Array, Array]:
    """Keys and values of Emelin et al. 2019, Eqs. 9-12.

    `projected` are hidden states (of Eqs. 5-8, or the hidden rows' share of Eqs. 13-14), `lexical` is the bare input.
    """
    of_lexical = [lexical @ block.T for block in np.split(w[f"{name}.lexical.weight"], 4 if fusion else 2)]
    of_hidden = np.split(projected, 4 if fusion else 2, axis=-1)
    if fusion:  # [K_sc; K_h] = [E; H] W^K, and the same for V: each half depends on both
        k_sc, v_sc, k_h, v_h = (a + b for a, b in zip(of_lexical, of_hidden, strict=True))
    else:
        (k_sc, v_sc), (k_h, v_h) = of_lexical, of_hidden
    results = []
    for sc, h, bias in ((k_sc, k_h, w[f"{name}.gate_bias"][0]), (v_sc, v_h, w[f"{name}.gate_bias"][1])):
        r = 1 / (1 + np.exp(-(sc + h + bias)))
        results.append(r * sc + (1 - r) * h)
    return results[0], results[1]


def self_attention(
    x: Array,
    w: Weights,
    name: str,
    causal: bool = False,
    lexical: Array | None = None,
    hidden: Array | None = None,
    fusion: bool = False,
) -> Array:
    """`lexical`: the shortcut's input, None without one; `hidden`: the input of keys and values, if not `x`."""
    q = linear(x, w, f"{name}.qkv")[:, :EMBED]
    of_hidden = linear(x if hidden is None else hidden, w, f"{name}.qkv")[:, EMBED:]
    if lexical is None:
        k, v = np.split(of_hidden, 2, axis=1)
    else:
        k, v = mixed(of_hidden, lexical, w, f"{name}.shortcut", fusion)
    return linear(attention(q, k, v, causal)[0], w, f"{name}.output")


def ffn(x: Array, w: Weights, name: str) -> Array:
    """Feed-forward block of Li et al. 2020, Eq. 3."""
    return linear(np.maximum(0, linear(x, w, f"{name}.hidden")), w, f"{name}.output")


def embed(ids: Array, w: Weights, name: str) -> Array:
    rates = 10_000.0 ** (-np.arange(EMBED // 2) / (EMBED // 2 - 1))
    angles = np.arange(len(ids))[:, None] * rates
    return np.sqrt(EMBED) * w[f"{name}.weight"][ids] + np.concatenate([np.sin(angles), np.cos(angles)], 1)


def residual(x: Array, w: Weights, name: str, pre: bool, f, adds_normed: bool = False) -> Array:
    normed = norm(x, w, f"{name}.norm") if pre else x
    if not pre:
        return norm(x + f(x), w, f"{name}.norm")
    return (normed if adds_normed else x) + f(normed)


def encoder(
    x: Array, w: Weights, name: str, layers: int, pre: bool, place: str = "encoder", shortcuts: Shortcuts = NONE
) -> Array:
    states, here = [x], place in shortcuts.places
    raw = here and shortcuts.emelin_compatible
    for i in range(layers):
        layer, x = f"{name}.layers.{i}", states[-1]
        lexical = (states[max(i - 1, 0)] if shortcuts.two_below else states[0]) if here else None

        def attend(y: Array, layer: str = layer, lexical: Array | None = lexical, x: Array = x) -> Array:
            hidden = x if raw else None
            return self_attention(y, w, f"{layer}.attention", False, lexical, hidden, shortcuts.fusion)

        x = residual(x, w, f"{layer}.attention_residual", pre, attend, raw)
        states.append(residual(x, w, f"{layer}.ffn_residual", pre, lambda y, n=layer: ffn(y, w, f"{n}.ffn")))
    return norm(states[-1], w, f"{name}.norm") if pre else states[-1]


def transformer(source: Array, target: Array, w: Weights, layers: int, pre: bool, shortcuts: Shortcuts = NONE) -> Array:
    embedded = embed(source, w, "source_embedding")
    memory = encoder(embedded, w, "encoder", layers, pre, "encoder", shortcuts)
    states, here, cross_here = (
        [embed(target, w, "target_embedding")],
        *(p in shortcuts.places for p in ("decoder", "cross")),
    )
    raw = here and shortcuts.emelin_compatible
    for i in range(layers):
        name, x = f"layers.{i}", states[-1]
        lexical = (states[max(i - 1, 0)] if shortcuts.two_below else states[0]) if here else None

        def own(y: Array, name: str = name, lexical: Array | None = lexical, x: Array = x) -> Array:
            hidden = x if raw else None
            return self_attention(y, w, f"{name}.self_attention", True, lexical, hidden, shortcuts.fusion)

        def cross(y: Array, name: str = f"{name}.cross_attention") -> Array:
            projected = linear(memory, w, f"{name}.key_value")
            if cross_here:
                k, v = mixed(projected, embedded, w, f"{name}.shortcut", shortcuts.fusion)
            else:
                k, v = np.split(projected, 2, axis=1)
            return linear(attention(linear(y, w, f"{name}.query"), k, v, False)[0], w, f"{name}.output")

        x = residual(x, w, f"{name}.self_residual", pre, own, raw)
        x = residual(x, w, f"{name}.cross_residual", pre, cross, cross_here and shortcuts.emelin_compatible)
        states.append(residual(x, w, f"{name}.ffn_residual", pre, lambda y, n=name: ffn(y, w, f"{n}.ffn")))
    return (norm(states[-1], w, "norm") if pre else states[-1]) @ w["output.weight"].T


def reformer(
    source: Array, target: Array, w: Weights, layers: int, prenet: int, kind: str, shortcuts: Shortcuts = NONE
) -> Array:
    side = embed(source, w, "source_embedding")
    if prenet:
        side = encoder(side, w, "prenet", prenet, True, "prenet", shortcuts)
    first = grid = side[:, None] + embed(target, w, "target_embedding")[None]  # Eq. 4
    of_target, of_source = (first if place in shortcuts.places else None for place in ("target", "source"))
    for i in range(layers):  # four sub-layers; Eq. 5 is the loop over the axis that attention does not aggregate
        name = f"layers.{i}"
        y = norm(grid, w, f"{name}.target_norm")
        rows = [
            self_attention(
                row,
                w,
                f"{name}.target_attention",
                True,
                None if of_target is None else of_target[s],
                None,
                shortcuts.fusion,
            )
            for s, row in enumerate(y)
        ]
        grid = grid + np.stack(rows)
        grid = grid + ffn(norm(grid, w, f"{name}.target_ffn_norm"), w, f"{name}.target_ffn")
        y = norm(grid, w, f"{name}.source_norm").swapaxes(0, 1)
        columns = [
            self_attention(
                column,
                w,
                f"{name}.source_attention",
                False,
                None if of_source is None else of_source[:, t],
                None,
                shortcuts.fusion,
            )
            for t, column in enumerate(y)
        ]
        grid = grid + np.stack(columns, axis=1)
        grid = grid + ffn(norm(grid, w, f"{name}.source_ffn_norm"), w, f"{name}.source_ffn")
    x = norm(grid, w, "reduction.input_norm")
    reductions = {
        "attention": lambda: (softmax(x @ w["reduction.scores.weight"].T, 0) * x).sum(0),  # Eq. 6
        "max": lambda: x.max(0),
        "mean": lambda: x.mean(0),
    }
    return norm(reductions[kind](), w, "reduction.output_norm") @ w["output.weight"].T


def away_from_initial_values(model: TranslationModel) -> tuple[TranslationModel, Weights]:
    generator = torch.Generator().manual_seed(11)
    model = model.double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return model, {name: tensor.numpy() for name, tensor in model.state_dict().items()}
