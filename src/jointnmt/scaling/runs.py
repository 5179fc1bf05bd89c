"""The three runs of a scaling: the model unchanged, deeper, and wider."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jointnmt.bounded_yaml import shorten
from jointnmt.config import Config, in_words
from jointnmt.errors import ConfigurationError, DataError, ModelError
from jointnmt.experiment import Experiment, TrainingConfig
from jointnmt.files import write_text
from jointnmt.runs import checkpoint
from jointnmt.runs.contents import position_of
from jointnmt.runs.directory import RunDirectory
from jointnmt.runs.log import read_records
from jointnmt.runs.provenance import changes
from jointnmt.scaling.sizes import resized
from jointnmt.text.segmentation import Segmentation
from jointnmt.training.processes import is_first
from jointnmt.training.state import RunState

if TYPE_CHECKING:
    from jointnmt.data.building import Which

logger = logging.getLogger(__name__)

RUNS = ("base", "depth", "width")
"""Names of the three runs and their directories."""

ENDS = ("training.max_epochs", "training.max_updates", "validation.patience")
"""Keys that set the length of a run; cross-entropies are comparable only if they are equal."""

SCHEDULE_END = "training.schedule.zero_at"


def three_runs(experiment: Experiment, epsilon: int, updates: int | None = None) -> dict[str, Experiment]:
    """The three experiments of Eq. 10: (l, w), (l + epsilon, w) and (l, w + epsilon).

    Args:
        experiment: experiment to scale.
        epsilon: number of added layers, and added width in units of E.
        updates: replaces `training.max_updates` and `training.max_epochs`; a schedule's `zero_at` and warm-up are
            scaled with it.

    Raises:
        ConfigurationError: if there is no validation text, the family has no depth, or the training starts from a
            trained model.
    """
    if not experiment.data.validation:
        raise ConfigurationError(
            "data.validation names no text, but scaling compares cross-entropies on validation text. Name one."
        )
    if experiment.training.start is not None:
        raise ConfigurationError("training.from names a model, whose size is fixed: leave it out to scale a recipe.")
    if updates is not None:
        experiment = experiment.model_copy(update={"training": _of_length(experiment.training, updates)})
    name, ffn_dim = experiment.name, experiment.model.ffn_dim
    wider = ffn_dim + epsilon * experiment.model.embed_dim
    return {
        "base": resized(experiment, name, 0, ffn_dim),
        "depth": resized(experiment, f"{name}-depth", epsilon, ffn_dim),
        "width": resized(experiment, f"{name}-width", 0, wider),
    }


def _of_length(training: TrainingConfig, updates: int) -> TrainingConfig:
    """A training of so many updates; a schedule with `zero_at` is scaled in time."""
    schedule = training.schedule
    if schedule.zero_at is not None:
        share = updates / (training.planned_end() or updates)
        zero_at = max(1, round(share * schedule.zero_at))
        warmup = schedule.warmup_steps and min(zero_at - 1, max(1, round(share * schedule.warmup_steps)))
        schedule = schedule.model_copy(update={"warmup_steps": warmup, "zero_at": zero_at})
    return training.model_copy(update={"max_updates": updates, "max_epochs": None, "schedule": schedule})


class RunOutcome(Config):
    """The outcome of a finished run, saved beside it as JSON."""

    nll: float
    """Lowest validation cross-entropy, in nats per target token, without label smoothing."""
    step: int
    """Step of that validation."""
    updates: int
    """Number of updates of the whole run."""
    seconds: float
    """Total time of the updates."""
    data: str
    """Fingerprint of the training data, segmentation included."""
    validation: str | None = None
    """Fingerprint of the validation text; None in files from versions that did not store it."""
    vocabularies: tuple[int, int]
    """Number of source and target pieces."""
    experiment: dict[str, Any]
    """The resolved configuration, with the precision chosen for `auto`."""

    @property
    def precision(self) -> str:
        """Precision of the training; `auto` if the file does not give the one chosen."""
        training = self.experiment.get("training")
        return str(training.get("precision", "auto")) if isinstance(training, dict) else "auto"


def read_outcome(run: RunDirectory) -> RunOutcome:
    """Read the outcome of a finished run.

    Raises:
        ModelError: if no validation has a finite cross-entropy, or the run has no saved state.
    """
    records = read_records(run.log)
    validated = [one for one in records if one["event"] == "validation" and one.get("nll") is not None]
    values = checkpoint.read_values(run.states.last)
    if not validated or not values:
        raise ModelError(f"{run.path}: has no finite validation cross-entropy to compare. See {run.log}.")
    best = min(validated, key=lambda one: (one["nll"], one["step"]))
    segmentation = Segmentation.load(run.segmentation)
    return RunOutcome(
        nll=best["nll"],
        step=best["step"],
        updates=position_of(values)["step"],
        seconds=RunState.from_plain(values["run"]).total.seconds,
        data=values["data"],
        validation=values.get("validation"),
        vocabularies=(segmentation.source.vocabulary_size, segmentation.target.vocabulary_size),
        experiment=run.read_experiment().plain(),
    )


def trained_outcomes(
    wanted: Mapping[str, Experiment], out: Path, train: Callable[[Experiment, Path], None]
) -> dict[str, RunOutcome]:
    """The outcomes of runs, by name; see `trained_outcome`.

    With precision `auto`, all runs use the one chosen for `base`, once that is finished: otherwise each would measure
    by itself which is faster, and differences in rounding would affect the gradient.
    """
    base, outcomes = out / "base.json", dict[str, RunOutcome]()
    precision = _read_measured(base).precision if base.exists() else "auto"
    for name, experiment in wanted.items():
        outcomes[name] = trained_outcome(name, experiment, out, train, precision)
        if name == "base":
            precision = outcomes[name].precision
    return outcomes


def trained_outcome(
    name: str, experiment: Experiment, out: Path, train: Callable[[Experiment, Path], None], precision: str
) -> RunOutcome:
    """The outcome of the run `out/name`: read from `out/name.json` if it is finished, else trained or resumed.

    Args:
        name: name of the run.
        experiment: experiment of the run.
        out: directory of the scaling.
        train: trains an experiment in a RUN directory, or resumes it; see `jointnmt.training.run.train`.
        precision: precision to train in if the experiment's is `auto`.

    Raises:
        ConfigurationError: if the run has another configuration, or was trained for longer than requested.
        DataError: if it is finished, and its training or validation text has changed since.
    """
    run, file = RunDirectory(out / name), out / f"{name}.json"
    if file.exists():
        measured = _read_measured(file)
        same = _in_known_precision(experiment, measured.precision)
        of_run = Experiment.parse(measured.experiment, origin=f"{file}: experiment").plain()  # keys of today
        allowed, forbidden = changes(of_run, same)
        if forbidden:
            ended = " The schedule ends with the run, so a longer run cannot resume from a shorter one."
            raise ConfigurationError(
                f"{file}: was measured with another configuration: {in_words(forbidden.values())}."
                f"{ended if SCHEDULE_END in forbidden else ''} Choose another directory for --out, or restore the old "
                "configuration."
            )
        if not allowed.keys() & set(ENDS):
            _check_texts(measured, experiment, run, file)
            logger.info("%s: is finished, cross-entropy %.5f after update %d", file, measured.nll, measured.step)
            return measured
    _check_not_beyond(run, experiment)
    logger.info("%s: training", run.path)
    train(_in_known_precision(experiment, precision), run.path)
    measured = read_outcome(run)
    if is_first():
        write_text(file, json.dumps(measured.plain(), indent=2, ensure_ascii=False) + "\n")
    return measured


def _in_known_precision(experiment: Experiment, precision: str) -> Experiment:
    """The experiment, in this precision if its own is `auto`."""
    return experiment.in_precision(precision) if experiment.training.precision == "auto" else experiment


def _read_measured(file: Path) -> RunOutcome:
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(values, dict):
            raise TypeError("no JSON object")
        return RunOutcome.parse(values, origin="its values")
    except (ConfigurationError, ValueError, TypeError, RecursionError) as error:
        raise ConfigurationError(
            f"{file}: is damaged, or is no outcome of a run ({shorten(str(error))}). Delete it: the run beside it is "
            "then read again."
        ) from error


def _check_texts(measured: RunOutcome, experiment: Experiment, run: RunDirectory, file: Path) -> None:
    """Check that the texts of a finished run are unchanged; skipped if its segmentation or the files are missing."""
    from jointnmt.data.store import text_fingerprint  # needs NumPy

    if not run.segmentation.is_dir():
        return
    segmentation = Segmentation.load(run.segmentation)
    texts: tuple[tuple[Which, str | None], ...] = (("train", measured.data), ("validation", measured.validation))
    for which, known in texts:
        try:
            same = known is None or text_fingerprint(experiment.data, segmentation, which) == known
        except DataError:
            continue
        if not same:
            raise DataError(
                f"{file}: the text of data.{which} has changed since it was measured: cross-entropies would not be "
                "comparable. Restore the old files, or choose another directory for --out."
            )


def _check_not_beyond(run: RunDirectory, experiment: Experiment) -> None:
    """Check that a run was not trained for longer than requested: the others would be trained less."""
    if not (values := checkpoint.read_values(run.states.last)):
        return
    position, config = position_of(values), experiment.training
    done = {"updates": position["step"], "epochs": position["epoch"] + (position["update"] > 0)}
    for unit, most in (("updates", config.max_updates), ("epochs", config.max_epochs)):
        if most is not None and done[unit] > most:
            raise ConfigurationError(
                f"{run.path}: has been trained for {done[unit]} {unit}, but {most} are requested now. Cross-entropies "
                f"are comparable only after equal training: request at least {done[unit]}, or choose another directory "
                "for --out."
            )
