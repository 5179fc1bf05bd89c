"""Check of a model against its interface, for families of other packages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import torch
from jaxtyping import Int
from torch import Tensor

from jointnmt.errors import ModelError
from jointnmt.models.interface import AttentionMaps, TranslationModel
from jointnmt.text.special import SPECIAL_PIECES, bos_id, eos_id, pad_id

ROUNDING = 1e-3
"""Largest difference between equal logits, as a share of the largest logit: the order of sums may differ."""
SOURCE_LENGTHS, TARGET_LENGTHS = (5, 3), (4, 6)
"""Tokens of the two sentence pairs, marks included."""
LONG_ENOUGH = max(*SOURCE_LENGTHS, *TARGET_LENGTHS)
"""The smallest maximum length of a model that can be checked."""


@torch.no_grad()
def check_model(model: TranslationModel, source_vocabulary: int, target_vocabulary: int) -> None:
    """Check that a model does what search, training and analyses rely on, with two made-up sentence pairs.

    Logits must depend neither on padding nor on the other sentence nor on later target tokens. `step` must compute
    those of `forward`, whatever rows `select` repeats, reorders and drops. An alignment must be shares of the real
    source tokens. Each layer must be called as often as `stacks` lists it. The model is called in evaluation mode, and
    is in its former mode afterwards.

    Args:
        model: a model of any family, in float32 or float64, for lines of `LONG_ENOUGH` tokens or more; small sizes are
            enough.
        source_vocabulary: number of source tokens.
        target_vocabulary: number of target tokens.

    Raises:
        ModelError: naming all that does not hold.
    """
    training = {module: module.training for module in model.modules()}
    try:
        wrong = list(_Check(model.eval(), source_vocabulary, target_vocabulary).failures())
    finally:
        for module, before in training.items():
            module.training = before
    if wrong:
        raise ModelError(f"{type(model).__name__} breaks the interface of models: {'; '.join(wrong)}.")


class _Check:
    def __init__(self, model: TranslationModel, source_vocabulary: int, target_vocabulary: int) -> None:
        device = next(model.parameters()).device
        self.model, self.vocabulary = model, target_vocabulary
        self.source = _sentences(SOURCE_LENGTHS, source_vocabulary, end=eos_id).to(device)
        self.target = _sentences(TARGET_LENGTHS, target_vocabulary, start=bos_id).to(device)

    def failures(self) -> Iterator[str]:
        """What does not hold."""
        shape = (*self.target.shape, self.vocabulary)
        logits = self.model(self.source, self.target)
        if tuple(logits.shape) != shape:
            yield f"`forward` returns logits {list(logits.shape)} instead of {list(shape)}"
            return
        if not _real(logits).isfinite().all():
            yield "`forward` returns logits that are not finite"
            return
        if not _close(_real(self.model(self.source, self.target)), _real(logits)):
            yield "`forward` returns other logits at each call in evaluation mode"
            return
        yield from self._independence(logits)
        yield from self._steps(logits)
        yield from self._calls()
        yield from self._attention(logits)

    def _independence(self, logits: Tensor) -> Iterator[str]:
        first, second = TARGET_LENGTHS
        alone = self.model(self.source[:1], self.target[:1, :first])
        if not _close(alone[0], logits[0, :first]):
            yield "`forward` depends on the padding of the target, or on the other sentence"
        alone = self.model(self.source[1:, : SOURCE_LENGTHS[1]], self.target[1:])
        if not _close(alone[0], logits[1]):
            yield "`forward` depends on the padding of the source"
        changed = self.target.clone()
        changed[1, -1] = changed[1, -2]
        if not _close(self.model(self.source, changed)[1, : second - 1], logits[1, : second - 1]):
            yield "`forward` depends on later tokens of the target"

    def _steps(self, logits: Tensor) -> Iterator[str]:
        """Rows are reordered and repeated before the third position, and dropped before the fourth."""
        selections = {2: [1, 0, 1], 3: [2, 1]}
        state, rows = self.model.start(self.source), torch.tensor([0, 1])
        for position in range(max(TARGET_LENGTHS)):
            if position in selections:
                selected = torch.tensor(selections[position])
                state, rows = state.select(selected), rows[selected]
            found, state = self.model.step(self.target[rows, position], state)
            real = [each for each, row in enumerate(rows.tolist()) if position < TARGET_LENGTHS[row]]
            expected = logits[rows, position]
            if found.shape != expected.shape or not _close(found[real], expected[real]):
                after = " after `select`" if position >= min(selections) else ""
                yield f"`step` computes other logits than `forward` at position {position}{after}"
                return

    def _calls(self) -> Iterator[str]:
        """Whether each layer is called as often as the stacks list it."""
        listed = Counter(layer for stack in self.model.stacks().values() for layer in stack.layers)
        called: Counter[torch.nn.Module] = Counter()
        with ExitStack() as hooks:
            for layer in listed:
                hooks.callback(layer.register_forward_hook(lambda module, *_: called.update([module])).remove)
            self.model(self.source, self.target)
        for layer, times in listed.items():
            if called[layer] != times:
                yield f"`stacks` lists a {type(layer).__name__} {times} times, but it is called {called[layer]} times"
                return

    def _attention(self, logits: Tensor) -> Iterator[str]:
        attn_weights = AttentionMaps()
        if not _close(_real(self.model(self.source, self.target, attn_weights)), _real(logits)):
            yield "`forward` returns other logits if attention weights are wanted"
        if attn_weights.alignment is None:
            return
        shape = (*self.target.shape, self.source.shape[1])
        if tuple(attn_weights.alignment.shape) != shape:
            yield f"the alignment is {list(attn_weights.alignment.shape)} instead of {list(shape)}"
            return
        shares = torch.where(self.source[:, None] != pad_id, attn_weights.alignment, 0)
        sums = _real(shares).sum(-1)
        if not _close(sums, torch.ones_like(sums)) or bool((_real(shares) < 0).any()):
            yield "the alignment does not sum to 1 over the real source tokens"


def _real(values: Tensor) -> Tensor:
    """The values of the real target positions, sentence after sentence."""
    return torch.cat([values[row, :length] for row, length in enumerate(TARGET_LENGTHS)])


def _close(found: Tensor, expected: Tensor) -> bool:
    largest = expected.abs().max() if expected.numel() else expected.new_zeros(())
    return found.shape == expected.shape and bool(((found - expected).abs() <= ROUNDING * largest).all())


def _sentences(
    lengths: tuple[int, int], vocabulary: int, start: int | None = None, end: int | None = None
) -> Int[Tensor, "2 L"]:
    """Two sentences of different tokens, padded on the right."""
    special = len(SPECIAL_PIECES)
    ids = torch.arange(2 * max(lengths)).view(2, -1) % max(1, vocabulary - special) + min(special, vocabulary - 1)
    return marked(ids, lengths, start, end)


def marked(
    ids: Int[Tensor, "B L"], lengths: Sequence[int], start: int | None = None, end: int | None = None
) -> Int[Tensor, "B L"]:
    """`ids`, in place, with padding from these lengths on and marks within them: the first id, the last, or neither."""
    for row, length in zip(ids, lengths, strict=True):
        row[length:] = pad_id
        if start is not None:
            row[0] = start
        if end is not None:
            row[length - 1] = end
    return ids
