"""Collect runs, and draw figures of the collected ones.

    python -m results collect RUN... results/CORPUS/SYSTEM   # the translations and logs of runs of several seeds
    python -m results train results/CORPUS --minutes 9 # the next missing trainings; call it again to continue
    python -m results trial RUN results/CORPUS/trials/SYSTEM/NAME   # the recipe and log of a short training
    python -m results figures                                # docs/figures/results-CORPUS-*.png, of every corpus

`python docs/generate.py` writes the tables; `make results` makes both.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from matplotlib.figure import Figure

from jointnmt.cli.progress import ProgressBars
from jointnmt.errors import JointNMTError
from jointnmt.report.curves import perplexity_figure, score_figure
from results.collect import collect
from results.costs import costs_figure
from results.layout import SETTINGS
from results.tables import learning_curves, read_corpus
from results.training import train_missing
from results.trials import collect_trial

RESULTS = Path(__file__).parent
FIGURES = RESULTS.parent / "docs/figures"


def draw(corpus: Path, figures: Path, root: Path = RESULTS.parent) -> list[Path]:
    """Draw the learning curves of a corpus, and quality against cost, where there are runs, or figures of cost."""
    found = read_corpus(corpus, root)
    drawn: dict[str, Figure] = {}
    if curves := learning_curves(found):
        drawn |= {"perplexity": perplexity_figure(curves), "bleu": score_figure(curves, "bleu")}
    if found.costs:
        drawn["costs"] = costs_figure(found.costs)
    paths = {name: figures / f"results-{corpus.name}-{name}.png" for name in drawn}
    for name, figure in drawn.items():
        figure.savefig(paths[name], dpi=120)
    return list(paths.values())


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m results", description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    collecting = commands.add_parser("collect", help="add training runs of one system to results/")
    collecting.add_argument("run", nargs="+", type=Path, help="RUN directories of several seeds")
    collecting.add_argument("system", type=Path, help="results/CORPUS/SYSTEM")
    collecting.add_argument("--device", default="auto", help="auto, cpu or cuda")
    training = commands.add_parser("train", help="train and collect missing runs, for some minutes")
    training.add_argument("corpus", type=Path, help="results/CORPUS")
    training.add_argument("--runs", type=Path, default=Path("runs"), help="folder of the RUN directories")
    training.add_argument("--minutes", type=float, required=True, help="until the current training is stopped")
    training.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change of all recipes")
    training.add_argument("--device", default="auto", help="device of translation: auto, cpu or cuda")
    trying = commands.add_parser("trial", help="keep the recipe, log and translations of a short training")
    trying.add_argument("run", type=Path, help="RUN directory")
    trying.add_argument("folder", type=Path, help="results/CORPUS/trials/SYSTEM/NAME")
    commands.add_parser("figures", help="draw the learning curves, and quality against cost")
    given = parser.parse_args(arguments)
    try:
        if given.command == "collect":
            with ProgressBars() as progress:
                for run in given.run:
                    print(collect(run, given.system, given.device, progress.update, RESULTS.parent))
            return 0
        if given.command == "train":
            runs, seconds = given.runs / given.corpus.resolve().name, 60 * given.minutes
            with ProgressBars() as progress:
                for folder in train_missing(
                    given.corpus, runs, seconds, given.set, given.device, progress.update, RESULTS.parent
                ):
                    print(folder, flush=True)
            return 0
        if given.command == "trial":
            print(collect_trial(given.run, given.folder))
            return 0
        for settings in sorted(RESULTS.glob(f"*/{SETTINGS}")):
            for path in draw(settings.parent, FIGURES):
                print(path)
        return 0
    except JointNMTError as error:
        sys.stderr.write(f"results: error: {error}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
