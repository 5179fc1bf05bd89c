"""Train a recipe from Python, stop, and continue: the weights are the same as without the stop.

    python examples/train.py RECIPE OUT

It writes two RUN directories, `OUT/at-once` and `OUT/continued`, of 20 updates each, and compares their weights. On a
CPU they are equal bit for bit.
"""

from __future__ import annotations

import sys
from pathlib import Path

from safetensors.torch import load_file

from jointnmt.experiment import Experiment
from jointnmt.training.progress import NoDisplay
from jointnmt.training.run import train


def main(recipe: Path, out: Path) -> None:
    length = {updates: Experiment.load(recipe, [f"training.max_updates={updates}"]) for updates in (10, 20)}
    train(length[20], out / "at-once", NoDisplay())
    train(length[10], out / "continued", NoDisplay())
    train(length[20], out / "continued", NoDisplay())  # max_updates may change when a run is resumed

    one, other = (load_file(out / name / "checkpoints/last.safetensors") for name in ("at-once", "continued"))
    unequal = [name for name in one if not one[name].equal(other[name])]
    print(f"{len(one)} tensors, {len(unequal)} differ: {', '.join(unequal) or 'none'}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
