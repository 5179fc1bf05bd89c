"""The training loss: label-smoothed cross entropy, summed over target tokens, and R-Drop's divergence."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from jointnmt.ops import cross_entropy, divergence
from jointnmt.text.special import pad_id


def cross_entropy_sums(
    logits: Float[Tensor, "B T V"],
    target_output: Int[Tensor, "B T"],
    label_smoothing: float,
    sentence_means: bool = False,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """The label-smoothed loss and the negative log-likelihood, both in nats, summed over real target tokens.

    The loss of a token is `(1 - e)` times the gold token's negative log-likelihood plus `e / V` times the sum of
    every vocabulary entry's (as the joint-representation authors' code has it). Padding counts nothing. Computed in
    float32, whatever the logits are. Only the loss carries a gradient. With `sentence_means`, the loss (not the
    negative log-likelihood) is the sum over sentences of each one's mean, as in the lexical shortcuts' authors' code.
    """
    rows, weights = logits.flatten(0, 1), _weights(target_output, sentence_means)  # [B, T, V] -> [B*T, V]
    loss, nll = cross_entropy(rows, target_output.flatten(), weights, label_smoothing)
    return loss, nll.dot(_weights(target_output, sentence_means=False))


def divergence_sum(
    first: Float[Tensor, "B T V"],
    second: Float[Tensor, "B T V"],
    target_output: Int[Tensor, "B T"],
    sentence_means: bool = False,
) -> Float[Tensor, ""]:
    """How far two predictions of the same tokens are apart, in nats, summed as the loss of `cross_entropy_sums`.

    Args:
        first: logits of a pass through the model.
        second: those of another one, with dropout of its own.
        target_output: the true tokens; padding counts nothing.
        sentence_means: whether the sum is over sentences of each one's mean.
    """
    return divergence(first.flatten(0, 1), second.flatten(0, 1), _weights(target_output, sentence_means))


def _weights(target_output: Int[Tensor, "B T"], sentence_means: bool) -> Float[Tensor, " BT"]:
    """What each token counts."""
    real = (target_output != pad_id).float()
    return (real / real.sum(dim=1, keepdim=True).clamp(min=1) if sentence_means else real).flatten()
