"""A training from beginning to end: RUN directory, segmentation, data, model, training loop."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Mapping
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

import torch

from jointnmt.config import Settings, in_words
from jointnmt.data.bpe_dropout import ResegmentedStore
from jointnmt.data.building import Which
from jointnmt.data.pool import Pool
from jointnmt.data.store import TokenStore, build_store, text_fingerprint
from jointnmt.errors import ConfigurationError, DataError
from jointnmt.experiment import Experiment
from jointnmt.interruption import StopSignals, exit_code
from jointnmt.models import check_model
from jointnmt.models.checking import LONG_ENOUGH
from jointnmt.models.families import is_of_another_package, packages_of
from jointnmt.models.quantize import Precision, warn_of_slow_products
from jointnmt.recipe import read_trained
from jointnmt.runs.code import TRAINING, code_digest
from jointnmt.runs.directory import RunDirectory
from jointnmt.runs.log import read_records
from jointnmt.runs.mirror import Mirror
from jointnmt.runs.provenance import changes
from jointnmt.runs.training_text import trained_fingerprint
from jointnmt.text.segmentation import Segmentation
from jointnmt.training.checks import check_before_work
from jointnmt.training.denormals import denormals_as_zero
from jointnmt.training.devices import hardware, launch_fabric
from jointnmt.training.directory import TrainingDirectory
from jointnmt.training.loop import TrainingInterruptedError, TrainingRun
from jointnmt.training.memory import bound_kernel_cache, keep_freed_memory, return_freed_memory
from jointnmt.training.model import load_start, new_model
from jointnmt.training.optimizer import OTHER_OPTIMIZERS
from jointnmt.training.outlook import Outlook
from jointnmt.training.processes import elect_first, expect_answers, is_first, of_first
from jointnmt.training.progress import Display, NoDisplay, shown
from jointnmt.training.schedule import OTHER_DECAYS
from jointnmt.training.segmentation import prepare_segmentation
from jointnmt.training.speed import choose_training_precision
from jointnmt.training.trainer import Trainer
from jointnmt.training.validation import Validation
from jointnmt.training.verdict import judge

if TYPE_CHECKING:
    from lightning_fabric import Fabric

logger = logging.getLogger(__name__)


def train(experiment: Experiment, out: Path, display: Display, mirror: str | None = None) -> None:
    """Train an experiment into the RUN directory `out`, or resume the training in it.

    Several processes may call this together, as torchrun does. On several machines, `out` may be on a shared file
    system, or a separate directory on each: only the first process reads and writes, and it is the one with the newest
    state. The data must be on all machines. Every state is copied to `mirror`, an fsspec address, if given, and fetched
    from there if it is newer.

    Raises:
        ConfigurationError: if `out` is not a run, or that of another recipe, or the training would never end.
        DataError: if the data cannot be used.
        LostProcessError: if another process, of this training or of the segmentation of its text, has ended.
        ModelError: if the loss is not finite, all checkpoints are damaged, or another package's family breaks the
            interface of models.
        TrainingInterruptedError: after one of `STOP_SIGNALS`, with the state saved.
    """
    check_before_work(experiment)
    directory = TrainingDirectory(out, None if mirror is None else Mirror(mirror))
    if experiment.training.sharded:
        return_freed_memory()
    else:
        keep_freed_memory()
    bound_kernel_cache()
    fabric = launch_fabric(experiment.training)
    elect_first(directory.states.newest_step())
    _check_same(experiment)
    if not is_first():
        logging.getLogger("jointnmt").setLevel(logging.WARNING)
        display = NoDisplay()
    run: TrainingRun | None = None
    with ExitStack() as held:
        stop = held.enter_context(StopSignals())
        held.enter_context(denormals_as_zero())
        held.enter_context(torch.random.fork_rng([fabric.device] if fabric.device.type == "cuda" else []))
        held.callback(display.end)
        try:
            precision = of_first(lambda: _open(experiment, directory, held, display))
            experiment = experiment.in_precision(precision)
            run = held.enter_context(closing(_prepare(experiment, fabric, directory, display, stop)))
            run.loop()
            run.finish()
            if is_first():
                _conclude(run)
        except KeyboardInterrupt as error:
            raise _interruption(run, exit_code(error)) from None


def prepare_data(experiment: Experiment, out: Path, display: Display, pool: Pool | None = None) -> None:
    """Learn the segmentation into the RUN directory `out` and store the segmented text, the first part of `train`.

    Args:
        experiment: experiment to train later.
        out: its RUN directory.
        display: shows progress.
        pool: workers that segment the text; None: processes of this machine.

    Raises:
        ConfigurationError: if `out` is not a run, or that of another recipe, or the training would never end.
        DataError: if the data cannot be used, or has changed since the training in `out` began.
        LostProcessError: if a process that segments text dies.
        TrainingInterruptedError: after one of `STOP_SIGNALS`.
    """
    check_before_work(experiment)
    directory = TrainingDirectory(out)
    with ExitStack() as held:
        held.enter_context(StopSignals())
        held.callback(display.end)
        try:
            _open(experiment, directory, held, display)
            segmentation = Segmentation.load(directory.segmentation)
            parts: tuple[Which, ...] = ("train", "validation") if experiment.data.validation else ("train",)
            names = {"train": "training", "validation": "validation"}
            for which in parts:
                if (old := trained_fingerprint(directory, which)) is not None:
                    directory.check_text(names[which], old, text_fingerprint(experiment.data, segmentation, which))
            for which in parts:
                store = build_store(experiment.data, segmentation, which, shown(display, "segmenting the text"), pool)
                _check_lengths(store, experiment.model.max_length, names[which])
        except KeyboardInterrupt as error:
            raise _interruption(None, exit_code(error)) from None
    logger.info("the text is prepared; train with the same recipe and --out %s", out)


def _interruption(run: TrainingRun | None, code: int) -> BaseException:
    if run is not None:
        return run.interruption(code)
    if not is_first():
        return SystemExit(code)
    return TrainingInterruptedError("stopped during preparation. The same command starts again.", code)


def _extensions(experiment: Experiment) -> list[str]:
    """Other packages that provide the optimiser or the decay of the rate."""
    training = experiment.training
    return OTHER_OPTIMIZERS.packages(training.optimizer.name) + OTHER_DECAYS.packages(training.schedule.decay)


def _check_same(experiment: Experiment) -> None:
    """Check that this process has the recipe of the first one; paths and sizes of machines may differ.

    Raises:
        ConfigurationError: in a process with another recipe.
    """
    if forbidden := changes(of_first(experiment.plain), experiment).forbidden:
        raise ConfigurationError(
            f"The recipe of this process differs from that of the first one: {in_words(forbidden.values())}. Give all "
            "processes of a training the same recipe and settings."
        )


def _open(experiment: Experiment, directory: TrainingDirectory, held: ExitStack, display: Display) -> str:
    """The first process's part: lock, fetch and open the directory, train the segmentation.

    Returns:
        The precision; if it is `auto` and the training resumes, the one chosen at its start.
    """
    held.enter_context(directory.lock())
    directory.fetch(experiment)
    if experiment.training.precision == "auto" and directory.is_trained():
        experiment = experiment.in_precision(directory.read_experiment().training.precision)
    if experiment.training.start is not None and not (directory.is_trained() or directory.states.exist()):
        read_trained(experiment.training.start)  # raises an error if it is none, before any work
    directory.open(experiment)
    prepare_segmentation(experiment, directory, display)
    return experiment.training.precision


def _prepare(
    experiment: Experiment, fabric: Fabric, directory: TrainingDirectory, display: Display, stop: StopSignals
) -> TrainingRun:
    """Prepare data and model, and restore the last state."""
    segmentation = _segmentation_of_first(directory)
    store = build_store(experiment.data, segmentation, progress=shown(display, "segmenting the text"))
    _check_same_text(store, "training")
    _check_lengths(store, experiment.model.max_length, "training")
    measured = experiment.training.precision == "auto"
    if measured:
        display.preparing("measuring precisions", 0, None)
        experiment = experiment.in_precision(choose_training_precision(experiment, fabric, segmentation, store))
        if is_first():
            directory.write_experiment(experiment)
    if is_first():
        directory.bind(experiment)
    model = new_model(experiment, segmentation)
    if is_first() and not measured and fabric.device.type == "cpu":
        warn_of_slow_products(model, cast(Precision, experiment.training.precision))
    if is_first() and experiment.training.start is not None and not directory.states.exist():
        load_start(model, experiment.training.start)  # the trainer broadcasts these weights
    if is_of_another_package(model) and (experiment.model.max_length or LONG_ENOUGH) >= LONG_ENOUGH:
        check_model(model, segmentation.source.vocabulary_size, segmentation.target.vocabulary_size)
    rate = experiment.training.bpe_dropout
    resegmented = ResegmentedStore(store, segmentation, rate, experiment.seed) if rate else None
    validation = _validation(experiment, fabric, segmentation)
    expect_answers(timedelta(seconds=experiment.training.process_timeout))
    trainer = Trainer(fabric, model, store, experiment.training, experiment.batches, experiment.seed, resegmented)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    if is_first():
        facts = {"seed": experiment.seed, "parameters": parameters, "hardware": hardware(fabric)}
        digest = code_digest(model, TRAINING, trainer.modules())
        directory.write_versions(facts, digest, packages_of(experiment.model.family), _extensions(experiment))
        logger.info("%s parameters, %s sentence pairs, %s", f"{parameters:,}", f"{len(store):,}", hardware(fabric))
    run = TrainingRun(directory, trainer, validation, experiment.validation, display, stop)
    if is_first() and not run.step:
        for warning in Outlook.of(experiment, store, parameters, segmentation.target.vocabulary_size).warnings():
            logger.warning("%s.", warning)
    return run


def _segmentation_of_first(directory: TrainingDirectory) -> Segmentation:
    """The segmentation in the first process's directory."""

    def read() -> dict[str, bytes]:
        Segmentation.load(directory.segmentation)  # raises an error if it is damaged
        return {path.name: path.read_bytes() for path in directory.segmentation.iterdir()}

    files = of_first(read)
    with TemporaryDirectory() as folder:
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)
        return Segmentation.load(Path(folder))


def _check_same_text(store: TokenStore, which: str) -> None:
    """Check that this process has the text of the first one.

    Raises:
        DataError: in a process with another text.
    """
    if store.fingerprint != of_first(lambda: store.fingerprint):
        raise DataError(
            f"The {which} text of this process differs from that of the first one. Copy the same files to all "
            "machines, with the same file extensions."
        )


def _conclude(run: TrainingRun) -> None:
    """Report where the model is, or that it is useless, why, and what to try."""
    out = run.directory.path
    if run.validation is not None:
        vocabulary = run.validation.segmentation.target.vocabulary_size
        verdict = judge(run.directory, run.trainer.store, run.validation.store, vocabulary)
        if verdict.reasons:
            logger.warning(
                "%s: this model has learnt next to nothing: %s. It is saved, but its translations are useless. Try, in "
                "another directory: %s.",
                out,
                "; ".join(verdict.reasons),
                verdict.advice,
            )
            return
    logger.info("the model is in %s; translate with: jointnmt translate %s < source.txt", out, shlex.quote(str(out)))


def _validation(experiment: Experiment, fabric: Fabric, segmentation: Segmentation) -> Validation | None:
    if not experiment.data.validation:
        return None
    store = build_store(experiment.data, segmentation, "validation")
    _check_same_text(store, "validation")
    _check_lengths(store, experiment.model.max_length, "validation")
    return Validation(
        fabric,
        store,
        segmentation,
        experiment.validation,
        experiment.batches,
        experiment.search,
        experiment.training.precision,
    )


def _check_lengths(store: TokenStore, max_length: int | None, which: str) -> None:
    source, target = (int(lengths.max()) for lengths in store.lengths)
    if max_length is not None and max(source, target) > max_length:
        raise DataError(
            f"The longest {which} sentences have {source} source and {target} target tokens, end mark included, but "
            f"model.max_length is {max_length}. Raise it, or set data.filters.max_length to {max_length}."
        )


def train_recipe(
    recipe: Path | str | Mapping[str, Any] | Experiment,
    out: Path | str,
    settings: Settings = (),
    display: Display | None = None,
    mirror: str | None = None,
) -> list[dict[str, Any]]:
    """Train a recipe into the RUN directory `out`, or resume the training in it; available as `jointnmt.train`.

    Args:
        recipe: a recipe file, the values of a recipe file in the working directory, or an experiment.
        out: RUN directory; `Translator.load(out)` loads the result.
        settings: values of the recipe to replace, as `{"training.max_updates": 100}` or, like on the command line,
            `["training.max_updates=100"]`. An experiment has all that its recipe inherits, so that a new
            `training.from` has to be given to the recipe instead.
        display: shows progress; None: no progress is shown, and messages go to the logger `jointnmt`.
        mirror: fsspec address of a copy of `out`.

    Returns:
        The records of `log.jsonl`, suitable for `pandas.DataFrame`: means over updates, validations, the average at the
        end, gates of shortcuts.

    Raises:
        ConfigurationError, DataError, LostProcessError, ModelError, TrainingInterruptedError: as in `train`.
    """
    if isinstance(settings, str):
        raise TypeError(f'settings must be a list or a mapping: pass ["{settings}"]')
    values = recipe.given() if isinstance(recipe, Experiment) else recipe
    experiment = Experiment.load(values if isinstance(values, Mapping) else Path(values), settings)
    train(experiment, Path(out), display or NoDisplay(), mirror)
    return read_records(RunDirectory(Path(out)).log)
