"""Lexical probes: classifiers that predict the piece from a hidden state of a frozen model.

Emelin, Titov, Sennrich 2019, section 4.1. Their accuracy measures how much lexical information a layer keeps.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from jointnmt.analysis.states import SIDES, Side, State, hidden_states, pieces
from jointnmt.config import Config, differences, in_words
from jointnmt.data.batch import Batch
from jointnmt.data.length_buckets import BatchConfig, plan_batches
from jointnmt.errors import ConfigurationError
from jointnmt.models import TranslationModel
from jointnmt.runs import checkpoint
from jointnmt.text.special import num_tokens
from jointnmt.translator.batching import default_cells

CHUNK = 1000
"""Number of sentences whose states are kept and shuffled together."""
MAX_TOKENS = 4096
"""Most tokens of a batch of the frozen model, padding included."""


class ProbeConfig(Config):
    """Settings of probes; defaults as in Emelin et al., except for rounds, which are 4000 batches there."""

    hidden_dim: int | None = Field(None, ge=1, description="features of the hidden layer; null: as many as the states")
    dropout: float = Field(0.5, ge=0, lt=1, description="dropout of the hidden layer")
    norm: bool = Field(
        False, description="layer norm without weights before the probe, so that all layers have one scale"
    )
    batch_size: int = Field(512, ge=1, description="states per update")
    rate: float = Field(2e-4, gt=0, description="learning rate of Adam, constant")
    round_sentences: int = Field(
        75_000, ge=1, description="training sentences per round (or all); validation on the stopping text ends it"
    )
    patience: int = Field(5, ge=1, description="stop after so many rounds without better accuracy")
    max_rounds: int = Field(100, ge=0, description="most rounds; 0: no probes, only similarities and gates")
    seed: int = Field(1, ge=0, description="seed of initial weights, data order and dropout")


class Sentences(Protocol):
    """Sentence pairs by number, the interface of `TokenStore`."""

    def __len__(self) -> int: ...

    def pairs(self, indices: Any) -> list[Any]:
        """Source and target ids, without marks, of the pairs with these numbers."""
        ...


class Probe(nn.Module):
    """Classifier of pieces: linear, ReLU, dropout, linear without bias. Xavier uniform initialisation, zero biases."""

    def __init__(self, embed_dim: int, vocabulary: int, config: ProbeConfig, generator: torch.Generator) -> None:
        super().__init__()
        hidden_dim = config.hidden_dim or embed_dim
        self.norm, self.keep = config.norm, 1 - config.dropout
        self.hidden = nn.Linear(embed_dim, hidden_dim)
        self.output = nn.Linear(hidden_dim, vocabulary, bias=False)
        for layer in (self.hidden, self.output):
            nn.init.xavier_uniform_(layer.weight, generator=generator)
        nn.init.zeros_(self.hidden.bias)

    def forward(self, states: Float[Tensor, "N E"], generator: torch.Generator | None = None) -> Float[Tensor, "N V"]:
        """Logits; dropout only with a `generator` to draw it from."""
        if self.norm:
            states = functional.layer_norm(states, states.shape[-1:])
        hidden = torch.relu(self.hidden(states))
        if generator is not None:
            kept = torch.rand(hidden.shape, generator=generator, device=hidden.device) < self.keep
            hidden = hidden * kept / self.keep
        return self.output(hidden)

    @torch.no_grad()
    def hits(self, states: Float[Tensor, "N E"], ids: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
        """1 where the most probable piece is the correct one, else 0."""
        parts = zip(states.split(512), ids.split(512), strict=True)
        return torch.cat([(self(some).argmax(-1) == right).float() for some, right in parts])


class ProbeTraining:
    """A probe with its optimiser, best weights and progress, as stored in its file.

    A round is a pure function of the state before it, the hidden states of the round and the seed. It does not depend
    on the probes that are trained with it, nor on interruptions.
    """

    def __init__(self, state: State, sizes: tuple[int, int], config: ProbeConfig, device: torch.device) -> None:
        self.state, self.config, self.device = state, config, device
        self._seed = zlib.crc32(str(state).encode())
        generator = torch.Generator().manual_seed(self._number(0))
        self.probe = Probe(*sizes, config, generator).to(device)
        self.optimizer = torch.optim.Adam(self.probe.parameters(), lr=config.rate, betas=(0.9, 0.98), eps=1e-9)
        self.best = {name: tensor.clone() for name, tensor in self.probe.state_dict().items()}
        self.accuracies: list[float] = []
        """Accuracy on the stopping text after each round."""
        self.generator = torch.Generator(device)

    @property
    def rounds(self) -> int:
        """Number of completed rounds."""
        return len(self.accuracies)

    @property
    def best_round(self) -> int:
        """Number of the best round, from 1; 0 before the first one."""
        return int(np.argmax(self.accuracies)) + 1 if self.accuracies else 0

    @property
    def finished(self) -> bool:
        """Whether training has stopped."""
        return self.rounds >= self.config.max_rounds or self.rounds - self.best_round >= self.config.patience

    def begin_round(self) -> None:
        """Seed the dropout of a round."""
        self.generator.manual_seed(self._number(1 + self.rounds))

    def update(self, states: Float[Tensor, "N E"], ids: Int[Tensor, " N"]) -> None:
        """Train on one batch."""
        loss = functional.cross_entropy(self.probe(states, self.generator), ids)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def end_round(self, accuracy: float) -> None:
        """Record the accuracy on the stopping text after a round."""
        self.accuracies.append(accuracy)
        if self.best_round == self.rounds:
            self.best = {name: tensor.clone() for name, tensor in self.probe.state_dict().items()}

    def best_probe(self) -> Probe:
        """The probe with its best weights."""
        self.probe.load_state_dict(self.best)
        return self.probe

    def save(self, path: Path, facts: dict[str, Any]) -> None:
        """Write the file; that of a finished probe holds its best weights only."""
        tensors = {f"best.{name}": tensor for name, tensor in self.best.items()}
        if not self.finished:
            tensors |= {f"probe.{name}": tensor for name, tensor in self.probe.state_dict().items()}
            for index, values in self.optimizer.state_dict()["state"].items():
                tensors |= {f"adam.{index}.{name}": torch.as_tensor(value) for name, value in values.items()}
        checkpoint.write(path, tensors, {"facts": facts, "accuracies": self.accuracies})

    def load(self, path: Path, facts: dict[str, Any]) -> None:
        """Resume from a file.

        Raises:
            ConfigurationError: if its model, text or configuration differ from `facts`.
            ModelError: if it is damaged.
        """
        tensors, values = checkpoint.read(path)
        if changed := differences(values["facts"], facts):
            raise ConfigurationError(
                f"{path}: this probe was trained with other settings ({in_words(changed)}). Choose another --out, or "
                "delete this folder to train again."
            )
        self.accuracies = values["accuracies"]
        self.best = _under("best.", tensors, self.device)
        self.probe.load_state_dict(_under("probe.", tensors, self.device) or self.best)
        state = self.optimizer.state_dict()
        for name, tensor in _under("adam.", tensors).items():
            index, key = name.split(".")
            state["state"].setdefault(int(index), {})[key] = tensor
        self.optimizer.load_state_dict(state)

    def _number(self, part: int) -> int:
        return int(np.random.SeedSequence([self.config.seed, self._seed, part]).generate_state(1)[0])


@dataclass(frozen=True)
class Collected:
    """Hidden states of sentences, in the same order for all states of a side."""

    states: dict[State, Float[Tensor, "_ E"]]
    ids: dict[Side, Int[Tensor, " _"]]
    """Ids of the pieces of the states, by side."""


def collect(
    model: TranslationModel, pairs: Sequence[Any], wanted: Sequence[State], tags: tuple[int, ...] = ()
) -> Collected:
    """The wanted states of sentence pairs, in the order of length-bucketed batches; `tags` are those of `Batch`."""
    device = next(model.parameters()).device
    lengths = np.array([[num_tokens(source), num_tokens(target)] for source, target in pairs])
    limits = BatchConfig(max_tokens=MAX_TOKENS, max_cells=default_cells(device.type, is_grid=True))
    states: dict[State, list[Tensor]] = {state: [] for state in wanted}
    ids: dict[Side, list[Tensor]] = {side: [] for side in SIDES}
    for rows in plan_batches(lengths[:, 0], lengths[:, 1], limits):
        sources, targets = zip(*(pairs[row] for row in rows), strict=True)
        batch = Batch.collate(sources, targets, tags=tags).to(device)
        found = hidden_states(model, batch)
        for state in wanted:
            states[state].append(found[state])
        for side in SIDES:
            ids[side].append(pieces(batch, side))
    return Collected(
        {state: torch.cat(parts) for state, parts in states.items()},
        {side: torch.cat(parts) for side, parts in ids.items()},
    )


def train_round(
    trainings: Sequence[ProbeTraining],
    model: TranslationModel,
    train: Sentences,
    stop: Sentences,
    progress: Callable[[int], None] = lambda _: None,
    tags: tuple[int, ...] = (),
) -> None:
    """Train probes that are at the same round for one round, and validate them on the stopping text.

    Each pass over the training text has a new order. `progress` is called with the number of further sentences trained
    on; `tags` are those of `Batch`.
    """
    config, number = trainings[0].config, trainings[0].rounds
    for training in trainings:
        training.begin_round()
    for part, chunk in enumerate(_chunks(round_order(train, config, number))):
        found = collect(model, train.pairs(chunk), [training.state for training in trainings], tags)
        generator = np.random.default_rng([config.seed, number, part])
        orders = {side: torch.from_numpy(generator.permutation(len(found.ids[side]))) for side in SIDES}
        for training in trainings:
            states, ids = found.states[training.state], found.ids[training.state.side]
            order = orders[training.state.side].to(ids.device)
            for rows in order.chunk(max(1, math.ceil(len(order) / config.batch_size))):
                training.update(states[rows], ids[rows])
        progress(len(chunk))
    for training, accuracy in zip(trainings, _accuracies(trainings, model, stop, tags), strict=True):
        training.end_round(accuracy)


def _accuracies(
    trainings: Sequence[ProbeTraining], model: TranslationModel, text: Sentences, tags: tuple[int, ...]
) -> list[float]:
    """The share of pieces that each probe recovers."""
    hits, sizes = [0.0] * len(trainings), [0] * len(trainings)
    for chunk in _chunks(np.arange(len(text))):
        found = collect(model, text.pairs(chunk), [training.state for training in trainings], tags)
        for number, training in enumerate(trainings):
            ids = found.ids[training.state.side]
            hits[number] += float(training.probe.hits(found.states[training.state], ids).sum())
            sizes[number] += len(ids)
    return [hit / max(size, 1) for hit, size in zip(hits, sizes, strict=True)]


def round_size(train: Sentences, config: ProbeConfig) -> int:
    """Number of sentences of a round."""
    return min(config.round_sentences, len(train))


def round_order(train: Sentences, config: ProbeConfig, number: int) -> npt.NDArray[np.int_]:
    """The sentences of a round: the next ones of an endless sequence of shuffled passes over the text."""
    size, total = round_size(train, config), len(train)
    places = np.arange(number * size, (number + 1) * size)
    passes = places // total
    return np.concatenate(
        [
            np.random.default_rng([config.seed, which]).permutation(total)[places[passes == which] % total]
            for which in np.unique(passes)
        ]
    )


def _chunks(numbers: npt.NDArray[np.int_]) -> Iterator[list[int]]:
    for start in range(0, len(numbers), CHUNK):
        yield numbers[start : start + CHUNK].tolist()


def _under(prefix: str, tensors: Mapping[str, Tensor], device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """The tensors under `prefix`, which is removed from their names."""
    return {name.removeprefix(prefix): each.to(device) for name, each in tensors.items() if name.startswith(prefix)}
