"""The training and validation texts of a run, if they are unchanged on this machine."""

from __future__ import annotations

from pathlib import Path

from jointnmt.data.building import Which
from jointnmt.data.catalogue import BUNDLED
from jointnmt.data.corpus import DataConfig
from jointnmt.data.store import TokenStore, build_store, text_fingerprint
from jointnmt.errors import DataError
from jointnmt.runs import checkpoint
from jointnmt.runs.directory import RunDirectory
from jointnmt.shipped import MODELS
from jointnmt.text.segmentation import Segmentation


def open_text_of_run(run: Path, data: DataConfig, segmentation: Segmentation, which: Which = "train") -> TokenStore:
    """The store of a run's training or validation text.

    A state of the training has the fingerprints of both; without a state, files are not checked. Models of the package
    use the bundled corpus; the text of another shared model, which does not state its place, is not found.

    Args:
        run: the RUN directory.
        data: data section of its configuration.
        segmentation: the run's segmentation.
        which: training or validation text.

    Raises:
        ConfigurationError: if the run has no such text.
        DataError: if its files do not exist, or differ from those of the training.
    """
    directory = RunDirectory(run)
    corpus = _bundled_corpus(directory.path)
    known = trained_fingerprint(directory, which)
    if corpus is not None:
        data = data.model_copy(update={"root": corpus})
    elif known is None and data.root == Path() and getattr(data, which):
        names = ", ".join(str(path) for text in getattr(data, which) for path in text.files)
        raise DataError(
            f"{run}: does not state where its data.{which} ({names}) is, like all shared models. If you have these "
            f"files, enter their folder as data.root in {directory.experiment}."
        )
    if known is not None and text_fingerprint(data, segmentation, which) != known:
        raise DataError(
            f"{run}: the files of its data.{which}, in {data.root}, are not those of its training: they have changed "
            "since. Restore the old ones."
        )
    return build_store(data, segmentation, which)


def _bundled_corpus(run: Path) -> Path | None:
    """The folder of the corpus that a model of the package was trained on; None for other runs."""
    if run.resolve().parent != MODELS.resolve():
        return None
    named = [each for each in BUNDLED.iterdir() if run.resolve().name.startswith(f"{each.name}-")]
    return max(named, key=lambda each: len(each.name), default=None)


def trained_fingerprint(directory: RunDirectory, which: Which) -> str | None:
    """The fingerprint of a text in the last state of the training, which is not verified; None: there is none."""
    key = {"train": "data", "validation": "validation"}[which]
    states = (checkpoint.read_values(path).get(key) for path in (directory.states.last, directory.states.previous))
    return next((each for each in states if isinstance(each, str)), None)
