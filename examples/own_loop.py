"""A training loop of one's own, here with RAdam and a cosine schedule; pieces, batches and loss are the package's.

    python examples/own_loop.py RECIPE RUN OUT [UPDATES]

RUN has the pieces of RECIPE, learnt by `jointnmt prepare RECIPE --out RUN`. OUT is a folder that all commands take, as
in `jointnmt translate OUT`. Unlike `jointnmt train`, this loop neither resumes nor validates.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from jointnmt import Translator
from jointnmt.data.batch import Batch
from jointnmt.data.batches import EpochPlan, load
from jointnmt.data.store import TokenStore, build_store
from jointnmt.experiment import Experiment
from jointnmt.models import build_model
from jointnmt.text.segmentation import Segmentation
from jointnmt.training.loss import cross_entropy_sums


def updates_of(store: TokenStore, experiment: Experiment) -> Iterator[list[Batch]]:
    """The batches of each update, epoch after epoch: as large and as little padded as in `jointnmt train`."""
    for epoch in itertools.count():
        for update in EpochPlan(store.lengths, experiment.batches, experiment.seed, epoch):
            yield [load(store, numbers) for numbers in update]


def main(recipe: Path, run: Path, out: Path, updates: int = 100) -> None:
    experiment = Experiment.load(recipe)
    segmentation = Segmentation.load(run / "segmentation")
    store = build_store(experiment.data, segmentation)
    torch.manual_seed(experiment.seed)
    sizes = segmentation.source.vocabulary_size, segmentation.target.vocabulary_size
    model = build_model(experiment.model, *sizes).train()  # `Translator` puts a model in evaluation mode
    optimizer = torch.optim.RAdam(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)

    for step, batches in enumerate(itertools.islice(updates_of(store, experiment), updates), start=1):
        tokens = sum(batch.num_target_tokens for batch in batches)
        nll = 0.0
        optimizer.zero_grad()
        for batch in batches:
            logits = model(batch.source, batch.target_input)
            loss, batch_nll = cross_entropy_sums(logits, batch.target_output, experiment.training.label_smoothing)
            (loss / tokens).backward()
            nll += batch_nll.item()
        optimizer.step()
        schedule.step()
        if step % 10 == 0:
            print(f"update {step}: perplexity {math.exp(nll / tokens):.2f}")

    Translator(model, segmentation, experiment).save_pretrained(out)


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    main(*map(Path, sys.argv[1:4]), *map(int, sys.argv[4:]))
