"""Whole models on the kernels: losses, gradients and translations are those of the plain forms."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from jointnmt.models import ModelConfig, build_model
from jointnmt.ops import backend
from jointnmt.search.beam import SearchConfig, beam_search
from jointnmt.training.loss import cross_entropy_sums
from support.kernels import MODELS, VOCABULARY, needs_kernels
from support.tiers import mostly_slow

FAST_TESTS = ("transformer", "reformer-fast-fusion")


def losses_and_gradients(
    config: ModelConfig, kind: torch.dtype, seed: int = 2
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    torch.manual_seed(seed)
    model = build_model(config, VOCABULARY, VOCABULARY)
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    source, target = torch.randint(4, VOCABULARY, (2, 4, 19)).unbind()
    source[1, 3:] = source[2, 17:] = target[3, 9:] = 0
    with torch.autocast("cpu", torch.bfloat16, enabled=kind == torch.bfloat16):
        logits = model(source, target)
    loss, _ = cross_entropy_sums(logits, target, 0.1)
    loss.backward()
    return loss.detach(), {name: parameter.grad for name, parameter in model.named_parameters()}


@needs_kernels
@pytest.mark.parametrize("name", mostly_slow(MODELS, FAST_TESTS))
def test_losses_and_gradients_are_those_of_the_plain_forms(name: str) -> None:
    """Equal in float32 to 1e-5; in bfloat16 they are hardly further from those of float32 than the plain forms'.

    At most one draw may differ, where rounding decides whether ReLU passes a number near 0.
    """
    seeds = range(2, 8)  # for a single draw, errors in bfloat16 differ by up to a factor of two, either way
    found = {}
    for each in ("plain", "native"):
        with backend(each):  # type: ignore[arg-type]
            found[each] = {
                kind: [losses_and_gradients(MODELS[name], kind, seed) for seed in seeds]
                for kind in (torch.float32, torch.bfloat16)
            }
    plain, own = found["plain"], found["native"]
    errors = torch.zeros(2)
    largest = []
    for i in range(len(seeds)):
        exact_loss, exact = plain[torch.float32][i]
        length = torch.cat([gradient.flatten() for gradient in exact.values()]).norm()
        assert_close(own[torch.float32][i][0], exact_loss, rtol=1e-5, atol=0)
        assert_close(own[torch.bfloat16][i][0], exact_loss, rtol=4e-3, atol=0)
        gradients = own[torch.float32][i][1]
        differences = {name: (gradients[name] - gradient).norm() for name, gradient in exact.items()}
        relative = {name: float(differences[name] / (exact[name].norm() + 0.01 * length)) for name in exact}
        largest.append(max((error, name, seeds[i]) for name, error in relative.items()))
        errors += torch.stack(
            [
                torch.cat([(gradients[name] - gradient).flatten() for name, gradient in exact.items()]).norm() / length
                for _, gradients in (own[torch.bfloat16][i], plain[torch.bfloat16][i])
            ]
        )
    *others, last = sorted(largest)
    assert others[-1][0] <= 1e-5 and last[0] <= 1e-2, largest
    assert errors[0] <= 1.3 * errors[1]


@needs_kernels
@pytest.mark.parametrize("name", mostly_slow(MODELS, FAST_TESTS))
def test_translations_are_those_of_the_plain_forms(name: str) -> None:
    """With sentences of several lengths, which end at different positions, and a beam that reorders its rows."""
    torch.manual_seed(9)
    model = build_model(MODELS[name], VOCABULARY, VOCABULARY).eval()
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    source = torch.randint(4, VOCABULARY, (5, 18))
    source[1, 3:] = source[3, 17:] = source[4, 1:] = 0
    with backend("plain"):
        expected = beam_search(model, source, SearchConfig(beam_size=4), num_best=4)
    found = beam_search(model, source, SearchConfig(beam_size=4), num_best=4)
    for own, plain in zip(found, expected, strict=True):
        assert [hypothesis.ids for hypothesis in own] == [hypothesis.ids for hypothesis in plain]
        scores = [[hypothesis.score for hypothesis in each] for each in (own, plain)]
        assert scores[0] == pytest.approx(scores[1], rel=1e-5)


@needs_kernels
def test_weights_in_bfloat16() -> None:
    """Gradients have the parameters' type, and are those of float32 as far as bfloat16 can tell."""
    gradients = []
    for kind in (torch.float32, torch.bfloat16):
        torch.manual_seed(10)
        model = build_model(MODELS["reformer-fast-fusion"], VOCABULARY, VOCABULARY).to(kind)
        source, target = torch.randint(4, VOCABULARY, (2, 4, 19)).unbind()
        cross_entropy_sums(model(source, target), target, 0.1)[0].backward()
        assert all(parameter.grad.dtype == kind for parameter in model.parameters())
        gradients.append(torch.cat([parameter.grad.flatten().float() for parameter in model.parameters()]))
    assert (gradients[0] - gradients[1]).norm() < 0.1 * gradients[0].norm()


@needs_kernels
@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16])
def test_pytorch_may_have_another_default_type(kind: torch.dtype) -> None:
    torch.manual_seed(11)
    model = build_model(MODELS["reformer-fast-fusion"], VOCABULARY, VOCABULARY)
    source, target = torch.randint(4, VOCABULARY, (2, 4, 19)).unbind()

    def gradients() -> list[torch.Tensor]:
        loss = cross_entropy_sums(model(source, target), target, 0.1)[0]
        return list(torch.autograd.grad(loss, list(model.parameters())))

    model.eval()
    expected = gradients()
    torch.set_default_dtype(kind)
    try:
        assert all(map(torch.equal, gradients(), expected))
    finally:
        torch.set_default_dtype(torch.float32)
