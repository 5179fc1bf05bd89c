"""The training loop: logging, validation, checkpoints, and the end of training."""

from __future__ import annotations

import logging
import math
import signal
from dataclasses import replace
from typing import Any

from jointnmt.errors import JointNMTError
from jointnmt.experiment import ValidationConfig
from jointnmt.interruption import Interruption, StopSignals, exit_code
from jointnmt.models.gates import named_layers
from jointnmt.runs import checkpoint
from jointnmt.runs.averaging import average_checkpoints
from jointnmt.runs.log import RunLog
from jointnmt.runs.selection import ScoredCheckpoint
from jointnmt.training.directory import TrainingDirectory
from jointnmt.training.processes import (
    SavedState,
    gather,
    is_first,
    of_first,
    state_of_first,
    wait_for_all,
)
from jointnmt.training.progress import Display
from jointnmt.training.report import RunningStats, StepReport
from jointnmt.training.state import RunState
from jointnmt.training.trainer import Trainer
from jointnmt.training.validation import Validation, ValidationResult

logger = logging.getLogger(__name__)


class TrainingInterruptedError(JointNMTError):
    """A signal has stopped the training; the same command resumes it."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        """Exit code of the process: 128 plus the signal's number."""


class TrainingRun:
    """A training in a RUN directory, in one of its processes; all decide alike, and the first one reads and writes.

    Args:
        directory: the RUN directory, locked and used by the first process only.
        trainer: trainer of the model, before its state is restored.
        validation: measures the validation text; None: there is none.
        validating: when to validate, and which metric decides.
        display: shows progress.
        stop: signals that may stop it. An update is completed and saved; a validation is aborted, as the state is saved
            before it.

    Raises:
        DataError: if the training or validation data has changed since the run began.
        ModelError: if all saved states are damaged.
    """

    def __init__(
        self,
        directory: TrainingDirectory,
        trainer: Trainer,
        validation: Validation | None,
        validating: ValidationConfig,
        display: Display,
        stop: StopSignals,
    ) -> None:
        self.directory, self.trainer, self.display, self.stop = directory, trainer, display, stop
        self.validation, self.validating, self.config = validation, validating, trainer.config
        self.state = RunState()
        self.saved_step = 0
        self._restore()
        self.logs: RunLog | None = None
        if is_first():
            tensorboard = directory.tensorboard if self.config.tensorboard else None
            self.logs = RunLog(directory.log, tensorboard, self.step, self._unfinished_events())

    @property
    def step(self) -> int:
        """Number of updates done."""
        return self.trainer.position.step

    def _restore(self) -> None:
        saved = state_of_first(self._read_last, self.trainer.fabric.device, self.trainer.mine)
        if saved is None:
            return
        tensors, values = saved
        self.trainer.load_state(tensors, values["trainer"])
        self.state = RunState.from_plain(values["run"])
        self.saved_step = self.step
        logger.info("%s: resuming after update %d", self.directory.path, self.step)

    def _read_last(self) -> SavedState | None:
        saved = self.directory.states.read(remove_damaged=True)
        if saved is None:
            return None
        self.directory.check_checkpoint(saved.values, saved.path)
        self.directory.check_text("training", saved.values["data"], self.trainer.store.fingerprint)
        # None: no validation text, or a state from a version that did not save its fingerprint.
        self.directory.check_text("validation", saved.values.get("validation"), self._validation_fingerprint())
        return saved.tensors, saved.values

    def _unfinished_events(self) -> set[str]:
        """Events of the restored update to repeat: their records may be written, but not their final results.

        A validation ends with saving a state that includes it; the average, with writing its weights.
        """
        events = set() if self.state.validated_step == self.step else {"validation"}
        ends_here = self._reason_to_stop() is not None
        is_missing = ends_here and not self.directory.holds_result_of(self._final_steps())
        return events | {"average"} if is_missing else events

    def _final_steps(self) -> list[int]:
        """Updates whose weights are the result if the training ends now; several are averaged."""
        return list(self.state.selection.steps[: self.config.average_best]) or [self.step]

    def _is_finished(self) -> bool:
        """Whether the result and the record of its validation exist; for the first process only."""
        steps = self._final_steps()
        is_measured = self.validation is None or len(steps) == 1
        recorded = self.logs is not None and (is_measured or self.logs.has("average", self.step))
        return recorded and self.directory.holds_result_of(steps)

    def _validation_fingerprint(self) -> str | None:
        return None if self.validation is None else self.validation.store.fingerprint

    def close(self) -> None:
        """Close the logs."""
        if self.logs is not None:
            self.logs.close()

    def loop(self) -> None:
        """Train until a stopping criterion is met, with validations and saves in between and at the end.

        Raises:
            TrainingInterruptedError: after one of `STOP_SIGNALS` during an update, which is saved.
            Interruption: after one of them during a validation, or after a second Ctrl-C.
        """
        self.display.begin(self.step, self.config.planned_end())
        if self._validation_is_due():  # interrupted between an update and its validation
            self._validate(self._translation_is_due())
        steps = self.trainer.steps()
        while not (reason := self._reason_to_stop()):
            with self.stop.deferred(self.trainer.ask_to_stop):
                report = next(steps)
                self._record(report)
                interrupted, validating = bool(report.sums.interrupted), self._validation_is_due()
                if interrupted or validating or self.step % self.config.checkpoint_every == 0:
                    self._save()
                if interrupted:
                    numbers = [number for number in gather(self.stop.asked) if number]
                    raise self.interruption(exit_code(Interruption(max(numbers, default=signal.SIGINT))))
            if validating:
                self._validate(self._translation_is_due())
        if self.saved_step != self.step:
            self._save()  # before the final validation, which may be interrupted
        logger.info("training ends after update %d: %s", self.step, reason)

    def interruption(self, exit_code: int) -> BaseException:
        """The exception to raise after an interruption: with what is saved in the first process, silent in others."""
        if not is_first():
            return SystemExit(exit_code)
        saved = "saved" if self.saved_step == self.step else f"saved is the state after update {self.saved_step}"
        return TrainingInterruptedError(
            f"stopped after update {self.step}, {saved}. The same command resumes from here.", exit_code
        )

    def _reason_to_stop(self) -> str | None:
        config, patience = self.config, self.validating.patience
        if config.max_updates is not None and self.step >= config.max_updates:
            return f"training.max_updates is {config.max_updates}"
        if config.max_epochs is not None and self.trainer.position.epoch >= config.max_epochs:
            return f"training.max_epochs is {config.max_epochs}"
        zero_at = config.schedule.zero_at
        if zero_at is not None and self.step >= zero_at:
            return f"the learning rate has reached zero (training.schedule.zero_at is {zero_at})"
        if patience is not None and self.state.selection.stale >= patience:
            return f"no better {self.validating.metric} in {patience} validations"
        return None

    def _record(self, report: StepReport) -> None:
        state = self.state
        if report.sums.splits and not state.total.sums.splits:
            logger.warning(
                "update %d: a batch did not fit in memory and was split. If this happens often (splits in the log), "
                "lower batches.max_cells or batches.max_tokens.",
                self.step,
            )
        if report.skipped and not state.total.skipped:
            logger.warning(
                "update %d: skipped, because its loss or gradient is not finite; the log counts skipped updates.",
                self.step,
            )
        self.state = replace(state, window=state.window.add(report), total=state.total.add(report))
        of_epochs: int | None = None
        if self.config.max_epochs is not None:
            epochs = self.config.max_epochs - report.position.epoch
            of_epochs = self.step + epochs * report.epoch_updates - report.position.update
        self.display.step(report, self.config.planned_end(of_epochs))
        # Also before a validation, which may end the training, and at the end.
        if self.step % self.config.log_every == 0 or self._validation_is_due() or self._reason_to_stop():
            self._summarise(report)

    def _summarise(self, report: StepReport) -> None:
        """Write a record of the updates since the previous record; `report` is the latest of them."""
        record = self.state.window.record()
        if self.logs is not None:
            rates = {"learning_rate": report.learning_rate, "gradient_norm": report.gradient_norm}
            epoch = report.position.epoch - report.ends_epoch  # epoch of the update, from 0
            self.logs.write("train", self.step, epoch=epoch, **record, **rates)
        self.display.summary(self.step, record)
        self.state = replace(self.state, window=RunningStats())

    def _validation_is_due(self) -> bool:
        config, position = self.validating, self.trainer.position
        if self.validation is None or self.state.validated_step == self.step:
            return False
        if config.every_updates is not None:
            return self.step % config.every_updates == 0
        return position.update == 0 and position.epoch % config.every_epochs == 0

    def _translation_is_due(self) -> bool:
        """Whether the next validation translates: every `bleu_every`-th and the last one, as it may be the best.

        A validation after which patience ends the training is not known to be the last before its result.
        """
        every = self.validating.bleu_every
        return every > 0 and ((self.state.validations + 1) % every == 0 or self._reason_to_stop() is not None)

    def _validate(self, translate: bool) -> None:
        """Validate, keep the weights if they are among the best, and save; the state was saved before."""
        assert self.validation is not None
        self.stop.check()
        self.display.validating()
        model = self.trainer.whole_model()
        result = self.validation.measure(model, translate)
        selection, score = self.state.selection, result.score(self.validating.metric)
        if score is not None:
            score = score if math.isfinite(score) else -math.inf
            counts = self.step > self.config.schedule.warmup_steps  # before, the rate had not reached its peak
            selection = selection.add(ScoredCheckpoint(self.step, score), self.config.keep_best, counts)
        best = selection.best != self.state.selection.best and selection.best[0].step == self.step
        latest = (*self.state.latest, self.step)[-self.config.keep_last :]
        if is_first():
            weights = model.state_dict()
            self.directory.write_weights(self.directory.scored(self.step), weights, [self.step])
            if best:
                self.directory.write_weights(self.directory.model, weights, [self.step])
        self.state = replace(
            self.state,
            selection=selection,
            latest=latest,
            validations=self.state.validations + 1,
            validated_step=self.step,
        )
        self._report(result, "validation", best=best)
        with self.stop.deferred():
            self._save()

    def _report(self, result: ValidationResult, event: str, **values: Any) -> None:
        scores = "" if result.bleu is None else f", BLEU {result.bleu:.2f}"
        scores += "" if result.chrf is None else f", chrF2 {result.chrf:.2f}"
        logger.info("%s after update %d: perplexity %.3f%s", event, self.step, result.perplexity, scores)
        if self.logs is None:
            return
        if result.translations:
            self.directory.write_translations(self.step, event, result.translations)
        measured = {"perplexity": result.perplexity, "nll": result.nll, "bleu": result.bleu}
        values |= {"signature": result.signature, "seconds": result.seconds}
        if self.validating.metric == "chrf":
            measured |= {"chrf": result.chrf}
            values |= {"chrf_signature": result.chrf_signature}
        self.logs.write(event, self.step, **measured, **values)
        if result.gates:
            averaged = {"steps": values["steps"]} if "steps" in values else {}
            self.logs.write("gates", self.step, **named_layers(result.gates), **averaged)

    def _save(self) -> None:
        tensors, values = self.trainer.state()
        if self.logs is not None:
            self.logs.sync()  # the state determines which records must exist
            data = {"data": self.trainer.store.fingerprint, "validation": self._validation_fingerprint()}
            self.directory.save(tensors, {"trainer": values, "run": self.state.plain(), **data})
        self.saved_step = self.step

    def finish(self) -> None:
        """Validate and save the last state, and write the weights for translation.

        These are the average of the best checkpoints, or the best checkpoint if the average scores lower. Without
        validation text, they are the last weights.

        Raises:
            Interruption: after one of `STOP_SIGNALS`, also if it arrived while the last state was saved.
        """
        self.stop.check()
        if self.validation is not None and self.state.validated_step != self.step:
            self._validate(translate=self.validating.bleu_every > 0)
        steps = self._final_steps()
        if of_first(self._is_finished):
            if is_first():  # the call that wrote the result may not have reached the mirror
                self.directory.mirror_result()
            return
        if self.state.selection.best:
            self._load_average(steps)
        kept = steps
        if self.validation is not None and len(steps) > 1:
            self.stop.check()
            result = self.validation.measure(self.trainer.whole_model(), self.validating.bleu_every > 0)
            score, best = result.score(self.validating.metric), self.state.selection.best[0]
            if score is not None and score < best.score:
                logger.info("the average scores below the weights after update %d, which are kept", best.step)
                kept = [best.step]
                self._load_average(kept)
            self._report(result, "average", steps=steps)
        weights = self.trainer.whole_model().state_dict()
        if is_first():  # written last: it marks the training as finished
            self.directory.write_result(weights, kept, steps)
        wait_for_all(self.trainer.fabric.device)

    def _load_average(self, steps: list[int]) -> None:
        def average() -> SavedState:
            paths = [self.directory.scored(step) for step in steps]
            for path in paths:
                self.directory.check_checkpoint(checkpoint.read_outline(path).values, path)
            return average_checkpoints(paths), {}

        averaged = state_of_first(average, self.trainer.fabric.device, self.trainer.mine)
        assert averaged is not None
        self.trainer.load_weights(averaged[0])
