"""The residual stream, which the sub-layers of a model read through layer norms and add to."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from jointnmt.models.layers.dropout import SharedDropout
from jointnmt.ops.native import operations as native


class Update(NamedTuple):
    """What a sub-layer adds to the stream, as its last projection leaves it."""

    value: Float[Tensor, "B *places E"]
    bias: Float[Tensor, " E"] | None = None
    """Still to be added to `value`."""


class Stream:
    """The residual stream of a stack of layers.

    What was added last waits for the next reader, so that where there is a kernel for it, the sum and the layer norm of
    that reader are one pass.
    """

    def __init__(self, x: Float[Tensor, "B *places E"]) -> None:
        self._x = x
        self._waiting: tuple[Update, SharedDropout] | None = None

    def add(self, update: Update, dropout: SharedDropout) -> None:
        """Add `dropout(update)`."""
        self._x, self._waiting = self.value, (update, dropout)

    @property
    def value(self) -> Float[Tensor, "B *places E"]:
        """What the stream holds."""
        if self._waiting is not None:
            self._settle(None)
        return self._x

    def normed(self, norm: nn.LayerNorm) -> Float[Tensor, "B *places E"]:
        """The layer norm of what the stream holds."""
        normed = self._settle(norm)
        assert normed is not None
        return normed

    def _settle(self, norm: nn.LayerNorm | None) -> Float[Tensor, "B *places E"] | None:
        """Add what waits; and take the layer norm of the sum, if there is a `norm`."""
        waiting, self._waiting = self._waiting, None
        if native.usable(self._x, self._x.shape[-1]):
            value = bias = noise = None
            if waiting is not None:
                (value, bias), dropout = waiting
                noise = dropout.noise(value.shape, value)
            self._x, normed = native.residual_norm(self._x, value, bias, noise, norm)
            return normed
        if waiting is not None:
            (value, bias), dropout = waiting
            self._x = dropout.add(self._x, value if bias is None else value + bias)
        return None if norm is None else norm(self._x)


def project_update(linear: nn.Linear, x: Float[Tensor, "B *places E"]) -> Update:
    """The last projection of a sub-layer; its bias is left for the stream to add where that saves a pass."""
    if native.usable(x, linear.out_features):
        return Update(native.project(x, linear), linear.bias)
    return Update(linear(x))
