"""`training.compile`: the compiled model trains like the model itself.

`test_in_own_processes.py` runs this in a process of its own: the shape checker cannot be compiled.
"""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from jointnmt.models import build_model
from jointnmt.models.common import ShortcutConfig
from jointnmt.models.reformer import ReformerFastConfig
from jointnmt.models.transformer import TransformerConfig
from jointnmt.ops import backend
from support.tiny import VOCABULARY, tiny_trainer


def test_a_compiled_model_trains_as_the_model_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the front end of torch.compile alone: the code generator takes minutes and is PyTorch's business.

    For the family that compiles fastest, with fused attention, as on a GPU.
    """
    compile_, compiled = partial(torch.compile, backend="eager"), []

    def compile_model(model: torch.nn.Module, **settings: object) -> torch.nn.Module:
        compiled.append(settings)
        return compile_(model, **settings)

    monkeypatch.setattr("jointnmt.training.trainer.torch.compile", compile_model)
    config = TransformerConfig(embed_dim=8, num_heads=2, ffn_dim=16, dropout=0.0, encoder_layers=1, decoder_layers=1)
    trainers = []
    for compiles in (False, True):
        torch.manual_seed(3)
        trainers.append(tiny_trainer(model=build_model(config, VOCABULARY, VOCABULARY), compile=compiles))
    with backend("sdpa"):
        plain, other = (next(trainer.steps()) for trainer in trainers)
    assert compiled == [{"dynamic": True}]
    assert other.sums.loss == pytest.approx(plain.sums.loss, rel=1e-5)
    assert other.gradient_norm == pytest.approx(plain.gradient_norm, rel=1e-4)


def test_a_model_is_one_graph_compiled_once_for_all_lengths() -> None:
    """Also with shortcuts, and with a grid, whose tensors have both lengths."""
    shortcuts = ShortcutConfig(input="embedding")
    config = ReformerFastConfig(
        embed_dim=8, num_heads=2, ffn_dim=16, num_layers=1, prenet_layers=1, shortcuts=shortcuts
    )
    model = build_model(config, VOCABULARY, VOCABULARY)
    counter = CompileCounter()
    compiled = torch.compile(model, backend=counter, dynamic=True, fullgraph=True)
    frames = []
    for sentences, source, target in ((3, 7, 9), (4, 5, 6), (2, 12, 8)):
        with backend("sdpa"):
            compiled(torch.full((sentences, source), 4), torch.full((sentences, target), 4))
        frames.append(counter.frame_count)
    assert frames == [frames[0]] * 3
