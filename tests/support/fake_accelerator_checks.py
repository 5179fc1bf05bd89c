"""Everything computes on a device other than the CPU, and search rarely waits for it.

`test_in_own_processes.py` runs this in a process of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.decoding import Decoding, DecodingCase
from benchmarks.training import Implementation
from torch.testing import assert_close

from jointnmt import Translator
from jointnmt.data.length_buckets import BatchConfig
from jointnmt.experiment import TrainingConfig
from jointnmt.models import FAMILIES, TranslationModel
from jointnmt.ops import backend
from jointnmt.search.beam import SearchConfig, beam_search
from jointnmt.search.sampling import SamplingConfig, sample, sentence_generator
from jointnmt.search.scoring import best
from jointnmt.training.trainer import Trainer
from jointnmt.translator import TranslationOptions, attend
from support.fake_accelerator import FAKE, FakeAccelerator, FakeTensor, waits
from support.families import sources, tiny_model
from support.tiny import ListStore
from support.tiny_run import SOURCE_WORDS, TARGET_WORDS, write_run

TRAINED = ("transformer-post", "transformer-fusion", "reformer-base-mean", "reformer-fast-shortcuts")
"""Variants without tied weights, as moving to the stand-in unties them."""

SEARCHED = ("transformer-pre", "transformer-emelin", "reformer-base", "reformer-fast-shortcuts")


@pytest.fixture(autouse=True)
def accelerator() -> Iterator[None]:
    """Context with the fake accelerator and the attention that a GPU uses."""
    with backend("sdpa"), FakeAccelerator():
        yield


def model_on(device: torch.device | str, variant: str) -> TranslationModel:
    return tiny_model(variant).float().to(device)


def test_the_devices_do_not_mix() -> None:
    fake, host = torch.ones(3, device=FAKE), torch.ones(3)
    with pytest.raises(RuntimeError, match="two devices"):
        fake + host
    with pytest.raises(RuntimeError, match="two devices"):
        host[fake.long()]
    with pytest.raises(RuntimeError, match="two devices"):
        host.index_put_((host.long(),), fake[0])
    with pytest.raises(RuntimeError, match="two devices"):
        fake[fake.long()] = host
    with pytest.raises(TypeError):
        fake.numpy()
    assert isinstance(fake + 1, FakeTensor)
    assert (fake.cpu() + host).tolist() == [2, 2, 2]


def test_waits_are_counted() -> None:
    fake, host = torch.ones(3, device=FAKE), torch.ones(3)
    for act, expected in (
        (lambda: fake.cpu(), {"to the CPU": 1}),
        (lambda: host.copy_(fake), {"to the CPU": 1}),
        (lambda: float(fake.sum()), {"aten::_local_scalar_dense": 1}),
        (lambda: fake.tolist(), {"tolist": 1}),
        (lambda: host.to(FAKE), {"to the device": 1}),
        (lambda: fake.copy_(host), {"to the device": 1}),
        (lambda: torch.tensor([1, 2], device=FAKE), {"to the device": 1}),
        (lambda: fake[[0, 1]], {"to the device": 1}),
        (lambda: fake[fake > 0], {"index": 1}),
        (lambda: host.to(FAKE, non_blocking=True), {}),
        (lambda: fake[fake.long()] + 1, {}),
        (lambda: fake.fill_(2.0), {}),
    ):
        waits.clear()
        act()
        assert +waits == expected, expected


@pytest.mark.parametrize("variant", TRAINED)
def test_training(variant: str) -> None:
    found = []
    for device in ("cpu", FAKE):
        settings = {"accelerator": "cpu", "schedule": {"warmup_steps": 5, "peak_rate": 0.01}, "label_smoothing": 0.1}
        fabric: Any = SimpleNamespace(device=torch.device(device), autocast=nullcontext, global_rank=0, world_size=1)
        config = TrainingConfig.model_validate(settings)
        batches = BatchConfig.model_validate({"max_tokens": 32, "update_tokens": 64})
        model = model_on("cpu", variant)
        store: Any = ListStore()
        trainer = Trainer(fabric, model, store, config, batches, seed=7)
        steps = trainer.steps()
        reports = [next(steps) for _ in range(2)]
        tensors, values = trainer.state()
        trainer.load_state({name: tensor.cpu() for name, tensor in tensors.items()}, values)
        reports.append(next(trainer.steps()))
        found.append([(each.sums.loss, each.gradient_norm) for each in reports])
    for fake, host in zip(*found, strict=True):
        assert fake == pytest.approx(host, rel=1e-4)


@pytest.mark.parametrize("variant", SEARCHED)
def test_search_waits_once_in_each_position(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    positions, found = [], []
    for device in ("cpu", FAKE):
        model, source = model_on(device, variant), sources((9, 3, 8, 9)).to(device)
        step = model.step
        monkeypatch.setattr(model, "step", lambda *args, step=step, **kwargs: positions.append(0) or step(*args))
        positions.clear()
        waits.clear()
        found.append(beam_search(model, source, SearchConfig(beam_size=3), num_best=3))
    for fake, host in zip(*found, strict=True):
        assert [each.ids for each in fake] == [each.ids for each in host]
    assert positions
    assert +waits == {"tolist": 1, "to the CPU": 2 * len(positions)}, "lengths first, then values and places at once"


@pytest.mark.parametrize("distinct", [3, 40, 10_000])
def test_best_takes_the_first_of_equal_values(distinct: int) -> None:
    values = torch.randint(0, distinct, (50, 300)).float()
    expected = values.sort(dim=-1, descending=True, stable=True)
    for count in (10, 300):
        ordered, places = best(values.to(FAKE), count)
        assert torch.equal(ordered, expected.values[:, :count])
        assert torch.equal(places, expected.indices[:, :count])


@pytest.mark.parametrize("settings", [{}, {"top_k": 2}])
def test_samples(settings: dict[str, Any]) -> None:
    found = []
    for device in ("cpu", FAKE):
        model, source = model_on(device, "reformer-fast-shortcuts"), sources((9, 3, 8)).to(device)
        waits.clear()
        generators = [sentence_generator(1, number) for number in range(3)]
        found.append(sample(model, source, SamplingConfig(**settings), generators, num_samples=2))
    assert (+waits).keys() == {"tolist", "to the CPU"}
    for fake, host in zip(*found, strict=True):
        assert [each.ids for each in fake] == [each.ids for each in host]


@pytest.mark.parametrize("implementation", ["product", "plain"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_benchmarks(family: str, implementation: Implementation) -> None:
    """The parts that are timed on a GPU."""
    lengths = (np.array([5, 3, 9]),)
    found = []
    for device in ("fake", "cpu"):
        subject = Decoding(DecodingCase(family, "tiny", "float32", implementation, lengths, lengths, 3, device))
        subject.run()
        found.append(subject.found)
        model = subject.translator.model
        logits = model(*(torch.randint(4, 40, (2, 7)).to(device) for _ in range(2)))
        assert logits.device.type == device
    assert found[0] == found[1]


def test_the_translator(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", model={"shortcuts": {"kind": "plain"}})
    texts = [" ".join(SOURCE_WORDS[:length]) for length in (1, 4, 9)]
    options = TranslationOptions(num_best=2, alignments=True, gates=True)
    fake, host = (Translator.load(run, device) for device in ("fake", "cpu"))
    assert fake.device.type == "fake"
    for each, alike in zip(fake.translate_stream(texts, options), host.translate_stream(texts, options), strict=True):
        assert each.text == alike.text
        assert each.candidates[1].alignment == pytest.approx(alike.candidates[1].alignment, abs=1e-5)
    targets = [" ".join(TARGET_WORDS[:length]) for length in (2, 3, 5)]
    for each, alike in zip(fake.score(texts, targets), host.score(texts, targets), strict=True):
        assert each.log_probability == pytest.approx(alike.log_probability, rel=1e-4)
    attended, other = (attend(each, texts[1], targets[1]) for each in (fake, host))
    assert_close(attended.attn_weights.alignment.cpu(), other.attn_weights.alignment)
