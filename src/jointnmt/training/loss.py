"""The training loss: label-smoothed cross-entropy, summed over target tokens, and R-Drop's divergence."""

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

    The loss of a token is `(1 - e)` times the gold token's negative log-likelihood plus `e / V` times the sum over all
    vocabulary entries, as in the code of Li et al. 2020. Padding is ignored. Computed in float32, whatever the dtype of
    the logits. Only the loss carries a gradient. With `sentence_means`, the loss (not the negative log-likelihood) is
    the sum over sentences of each one's mean over tokens, as in the code of Emelin et al. 2019.
    """
    weights = token_weights(target_output, sentence_means).flatten()
    loss, nll = cross_entropy(logits.flatten(0, 1), target_output.flatten(), weights, label_smoothing)
    return loss, nll.dot(token_weights(target_output, sentence_means=False).flatten())


def divergence_sum(
    first: Float[Tensor, "B T V"],
    second: Float[Tensor, "B T V"],
    target_output: Int[Tensor, "B T"],
    sentence_means: bool = False,
) -> Float[Tensor, ""]:
    """Symmetric KL divergence between two predictions of the same tokens, in nats, summed like `cross_entropy_sums`.

    Args:
        first: logits of one dropout pass through the model.
        second: logits of another dropout pass.
        target_output: gold tokens; padding is ignored.
        sentence_means: whether to sum each sentence's mean instead of tokens.
    """
    weights = token_weights(target_output, sentence_means).flatten()
    return divergence(first.flatten(0, 1), second.flatten(0, 1), weights)


def token_weights(target_output: Int[Tensor, "B T"], sentence_means: bool) -> Float[Tensor, "B T"]:
    """Weight of each token in the sum: 0 for padding, else 1, or 1 / tokens of its sentence."""
    real = (target_output != pad_id).float()
    return real / real.sum(dim=1, keepdim=True).clamp(min=1) if sentence_means else real
