"""Several runs as one model: loading them, and what they must have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jointnmt.errors import ConfigurationError
from jointnmt.experiment import Experiment
from jointnmt.models.ensemble import Ensemble
from jointnmt.runs.directory import RunDirectory
from jointnmt.runs.loading import load_run
from jointnmt.text.languages import base_language
from jointnmt.text.segmentation import Segmentation
from jointnmt.text.segmenter import Segmenter
from jointnmt.translator.preprocessing import SourceReader


@dataclass(frozen=True)
class Member:
    """A run of an ensemble."""

    run: Path
    segmentation: Segmentation
    experiment: Experiment

    def facts(self) -> dict[str, Any]:
        """Everything that determines the model's output, as JSON-compatible values."""
        return {
            "weights": RunDirectory(self.run).model_digest(),
            "model": self.experiment.model.plain(),
            "segmentation": self.segmentation.fingerprint(),
        }


def load_members(runs: Sequence[Path], device: str) -> tuple[Ensemble, list[Member]]:
    """The models of several runs as one, and the segmentation and experiment of each.

    Raises:
        ConfigurationError: if a run is given twice, or their languages or target vocabularies differ.
        ModelError: as in `load_run`.
    """
    places = [run.resolve() for run in runs]
    if twice := sorted({str(run) for run, place in zip(runs, places, strict=True) if places.count(place) > 1}):
        raise ConfigurationError(f"{', '.join(twice)}: given twice in an ensemble. Give each run once.")
    models, members = [], []
    for run in runs:
        model, segmentation, experiment = load_run(run, device)
        members.append(Member(run, segmentation, experiment))
        _check_target(members[0], members[-1])
        models.append(model)
    return Ensemble(models), members


def source_readers(
    segmentation: Segmentation, experiment: Experiment, members: Sequence[Member]
) -> tuple[SourceReader, ...]:
    """How sources are read: one reader with the strictest length limit if all members segment alike, else one each."""
    if not members:
        return (SourceReader(segmentation.source, experiment.model.max_length),)
    readers = tuple(SourceReader(each.segmentation.source, each.experiment.model.max_length) for each in members)
    if not all(_read_alike(readers[0].segmenter, reader.segmenter) for reader in readers):
        return readers
    lengths = [reader.max_length for reader in readers if reader.max_length is not None]
    return (SourceReader(segmentation.source, min(lengths, default=None)),)


def _read_alike(one: Segmenter, other: Segmenter) -> bool:
    """Whether both divide every text into the same pieces with the same ids."""
    settings = ((*_settings(each), *_reading(each), each.tags) for each in (one, other))
    learnt = ([each.to_json(), each.counts, each.truecaser and each.truecaser.model] for each in (one, other))
    return len(set(settings)) == 1 and next(learnt) == next(learnt)


def _settings(side: Segmenter) -> tuple[object, ...]:
    """The settings that determine how text is read and written, besides the vocabulary."""
    return side.rules, side.config.kind, side.config.moses, side.config.lowercase, side.config.truecase


def _reading(side: Segmenter) -> tuple[object, ...]:
    """Further settings that determine how text becomes pieces, and their ids."""
    config = side.config
    divided = config.split_punctuation, config.split_digits
    return config.normalize_punctuation, divided, config.vocabulary_threshold, config.shared


def _check_target(first: Member, other: Member) -> None:
    """Refuse a member whose target vocabulary or segmentation differs from the first one's.

    Raises:
        ConfigurationError: naming both, and the first difference.
    """
    one, two = first.segmentation, other.segmentation
    if [*map(base_language, one.languages)] != [*map(base_language, two.languages)]:
        difference = f"one translates {'-'.join(one.languages)}, the other {'-'.join(two.languages)}"
    elif _settings(one.target) != _settings(two.target):
        names = ("the rules of Moses", "kind", "moses", "lowercase", "truecase")
        each = zip(names, _settings(one.target), _settings(two.target), strict=True)
        difference = f"their segmentations differ in {', '.join(name for name, a, b in each if a != b)}"
    elif one.target.vocabulary_size != two.target.vocabulary_size:
        difference = f"one has {one.target.vocabulary_size:,} pieces, the other {two.target.vocabulary_size:,}"
    else:
        pieces = ((i, one.target.piece(i), two.target.piece(i)) for i in range(one.target.vocabulary_size))
        different = next((each for each in pieces if each[1] != each[2]), None)
        if different is None:
            return
        difference = f"piece {different[0]} is {different[1]!r} in one and {different[2]!r} in the other"
    raise ConfigurationError(
        f"{first.run} and {other.run} cannot be one ensemble, which needs the same target vocabulary: {difference}. "
        "Train both on the same text with the same segmentation."
    )
