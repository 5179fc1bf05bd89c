"""The training loss: label-smoothed cross entropy, summed over target tokens."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from jointnmt.ops import cross_entropy
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
    rows, real = logits.flatten(0, 1), (target_output != pad_id).float()  # [B, T, V] -> [B*T, V]
    weights = real / real.sum(dim=1, keepdim=True).clamp(min=1) if sentence_means else real
    loss, nll = cross_entropy(rows, target_output.flatten(), weights.flatten(), label_smoothing)
    return loss, nll.dot(real.flatten())
