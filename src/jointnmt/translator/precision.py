"""`precision: auto` of translations: the fastest precision without loss of quality, measured once and cached.

It chooses between float32 and bfloat16, whose translations are equally good; never int8, whose rounding has a
measurable effect. On a CPU it takes bfloat16 only if the custom kernels multiply it, as otherwise a translation would
depend on the rest of its batch.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from jointnmt.cache import default_cache
from jointnmt.files import write_text
from jointnmt.models import TranslationModel
from jointnmt.models.ensemble import Ensemble
from jointnmt.models.families import packages_of
from jointnmt.models.quantize import Precision, kernels_multiply, prepare_for_inference
from jointnmt.ops.autocast import autocast_to
from jointnmt.ops.backend import implementation
from jointnmt.ops.native import library, processor
from jointnmt.text.special import bos_id, eos_id, unk_id

logger = logging.getLogger(__name__)

PrecisionChoice = Precision | Literal["auto"]
Rates = Mapping[str, tuple[float, float]]
"""Positions per second in each candidate precision: with several sentences at once, and with one."""

CANDIDATES: tuple[Precision, ...] = ("float32", "bfloat16")
LEAST_WEIGHTS = 1_000_000
"""Models with fewer weights are fast in any precision and not measured."""
WORTH, NO_LOSS = 1.1, 0.95
"""Least speed of bfloat16, which rounds more, relative to float32: with several sentences at once, and with one."""
SEVERAL, BEAM, LENGTH, POSITIONS = 4, 5, 16, 6
ROUNDS, SECONDS = 3, 2.0
"""Rounds of each precision, and seconds after which none is begun. The fastest counts: other work slows the others."""


def choose_translation_precision(model: TranslationModel, max_length: int | None) -> Precision:
    """The precision that `auto` means for this model on its device; the reason is logged.

    Args:
        model: in evaluation mode.
        max_length: most tokens that it can read; None: no limit.
    """
    device = next(model.parameters()).device
    if sum(each.numel() for each in model.parameters()) < LEAST_WEIGHTS:
        logger.debug("precision: float32, as a model of this size is fast in any")
        return "float32"
    if device.type == "cpu" and not kernels_multiply(model, "bfloat16"):
        logger.debug("precision: float32, as translations in bfloat16 would depend on the rest of the batch here")
        return "float32"
    rates, level = _kept_rates(model, device), logging.DEBUG
    if rates is None:
        rates, level = _measure_once(model, device, min(LENGTH, max_length or LENGTH)), logging.INFO
    several, one = (half / single for half, single in zip(rates["bfloat16"], rates["float32"], strict=True))
    chosen: Precision = "bfloat16" if several >= WORTH and one >= NO_LOSS else "float32"
    logger.log(
        level,
        "precision: %s: in bfloat16 several sentences at once are %.2f times as fast as in float32 (%g is required), "
        "and one is %.2f times as fast (%g)",
        *(chosen, several, WORTH, one, NO_LOSS),
    )
    return chosen


def _kept_rates(model: TranslationModel, device: torch.device) -> Rates | None:
    """The cached rates of models of these shapes on this machine; None: not measured yet."""
    try:
        kept = json.loads(_file(model, device).read_text(encoding="utf-8"))
        return {name: (float(kept[name][0]), float(kept[name][1])) for name in CANDIDATES}
    except (OSError, ValueError, LookupError, TypeError):  # not measured yet, or damaged
        return None


def _measure_once(model: TranslationModel, device: torch.device, length: int) -> Rates:
    """The rates of models of these shapes on this machine, measured and cached."""
    logger.info("measuring in which precision models of these shapes translate fastest here, once")
    rates, file = measure_rates(model, device, length), _file(model, device)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, json.dumps(rates) + "\n")
    except OSError as error:
        logger.warning("%s: cannot be written (%s), so the next command measures again.", file, error.strerror or error)
    return rates


def _file(model: TranslationModel, device: torch.device) -> Path:
    """The cache file of the rates, named by a hash of everything that they depend on."""
    card = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    kernels, models = library(), model.members if isinstance(model, Ensemble) else [model]
    families = sorted({each.config.family for each in models if each.config})
    packages = [package for family in families for package in packages_of(family)]
    facts: list[Any] = [
        [type(model).__name__, [[name, list(each.shape)] for name, each in model.named_parameters()]],
        [card, processor.description(), str(implementation()), kernels and kernels._name],
        [version(name) for name in ("torch", "jointnmt", *packages)],
    ]
    return default_cache() / "precision" / f"{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]}.json"


@torch.no_grad()
def measure_rates(model: TranslationModel, device: torch.device, length: int) -> Rates:
    """Positions per second in each precision, measured in turn on whole decoding steps.

    On a CPU with one thread and in CPU time, so that other work on the machine, which disturbs several threads most,
    does not change the result.
    """
    prepared = {name: prepare_for_inference(model, name) for name in CANDIDATES}
    threads = torch.get_num_threads()
    if device.type == "cpu":
        torch.set_num_threads(1)
    try:
        several, one = (_rates_of(prepared, sentences, length, device) for sentences in (SEVERAL, 1))
    finally:
        torch.set_num_threads(threads)
    return {name: (several[name], one[name]) for name in CANDIDATES}


def _rates_of(
    prepared: Mapping[Precision, TranslationModel], sentences: int, length: int, device: torch.device
) -> dict[str, float]:
    """The rate of each model with so many sentences at once."""
    source = torch.full((sentences, length), unk_id, device=device)
    source[:, -1] = eos_id
    for name, each in prepared.items():  # not counted: the first run packs weights and fills caches
        _seconds(each, name, source)
    seconds: dict[str, float] = dict.fromkeys(CANDIDATES, torch.inf)
    began = time.perf_counter()
    for turn in range(ROUNDS):
        if turn and time.perf_counter() - began > SECONDS:
            break
        for name, each in prepared.items():
            seconds[name] = min(seconds[name], _seconds(each, name, source))
    return {name: POSITIONS / took for name, took in seconds.items()}


def _seconds(model: TranslationModel, precision: Precision, source: Tensor) -> float:
    """Seconds for the first positions of a beam search without reordering."""
    rows = torch.arange(len(source), device="cpu").repeat_interleave(BEAM)
    clock = time.thread_time if source.is_cpu else time.perf_counter
    began = clock()
    with autocast_to(precision, source.device):
        state = model.start(source).select(rows)
        last = source.new_full((len(rows),), bos_id)
        for _ in range(POSITIONS):
            logits, state = model.step(last, state)
            last = torch.full_like(last, unk_id)
    logits[0, 0].item()  # waits for the GPU
    return clock() - began
