"""Saving and loading models as folders, and sharing them on the Hugging Face Hub, with a model card."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import torch

from jointnmt.data.corpus import ParallelText
from jointnmt.errors import ConfigurationError, ModelError
from jointnmt.evaluation.scores import Scores
from jointnmt.experiment import Experiment
from jointnmt.extras import extra
from jointnmt.files import write_text
from jointnmt.model_card import CARD, NOT_STATED, facts_of_experiment, hub_licence, score_rows, validation_sentence
from jointnmt.models import TranslationModel
from jointnmt.models.families import packages_of
from jointnmt.runs import checkpoint
from jointnmt.runs.contents import steps_of
from jointnmt.runs.directory import FAMILY_PACKAGES, RunDirectory
from jointnmt.runs.folder import replacing
from jointnmt.runs.log import validations
from jointnmt.runs.parts import PARTS, Parts
from jointnmt.runs.weights import StoredPrecision, check_precision, read_weights, write_compact
from jointnmt.shipped import CONFIGURATION_FILE, OF_PACKAGE, WEIGHTS_FILE
from jointnmt.text.segmentation import Segmentation

with extra("hub"):
    import jinja2  # noqa: F401 (huggingface_hub renders the card with it)
    import numpy  # noqa: F401 (safetensors writes with it)
    from huggingface_hub import ModelCard, ModelCardData, ModelHubMixin, snapshot_download
    from huggingface_hub.errors import HFValidationError, HTTPError  # type: ignore[attr-defined]  # of its client

ENTRIES = (CONFIGURATION_FILE, WEIGHTS_FILE, "segmentation", "config.json")
"""Files and folders that `save_pretrained` always writes, besides a model card if there is none."""

FILES = (CONFIGURATION_FILE, WEIGHTS_FILE, "segmentation/*", "config.json", "README.md")

UNREACHABLE = (HFValidationError, HTTPError, OSError)
"""Exceptions of huggingface_hub if a repository is unavailable."""

OPTIONS_OF_HUB = ("revision", "cache_dir", "local_files_only", "force_download", "token")
"""Options of `from_pretrained` that apply to downloads."""

SCORES = ("perplexity", "bleu", "signature")
"""Keys of a validation's record that are kept."""
CHRF = ("chrf", "chrf_signature")
"""Further keys that are kept, where chrF was measured."""


class Savable(Protocol):
    """What is saved of a translator."""

    trained: TranslationModel
    segmentation: Segmentation
    experiment: Experiment
    run: Path | None


class HubFolder(
    ModelHubMixin,
    library_name="jointnmt",
    pipeline_tag="translation",
    tags=["translation", "jointnmt"],
    model_card_template=CARD,
):
    """A trained model for huggingface_hub to save and upload; implements methods of `Translator`.

    The folder is a RUN directory with all that inference needs (resolved configuration, segmentation, weights), a model
    card (README.md) and `config.json` for the Hub. Its configuration has no paths of this machine.
    """

    _hub_mixin_config: dict[str, Any] | None = {}  # noqa: RUF012 (not None: the mixin would collect arguments)

    def __init__(self, translator: Savable) -> None:
        self.translator = translator
        self._run = _run_of_weights(translator)

    def save(self, folder: Path, card: dict[str, Any]) -> None:
        """See `Pretrained.save_pretrained`."""
        check_precision(card["weights"])
        if (there := RunDirectory(folder)).log.exists() or there.checkpoints.exists():
            raise ConfigurationError(
                f"{folder}: is the RUN of a training that may still resume, and would lose its files. Name another "
                "folder."
            )
        with replacing(folder, ENTRIES) as new:
            super().save_pretrained(new, model_card_kwargs=card)
            self._save_weights(RunDirectory(new), card["weights"])

    def save_pretrained(self, save_directory: str | Path, **options: Any) -> None:
        """Write the folder that the mixin uploads; called by it."""
        self.save(Path(save_directory), options["model_card_kwargs"])

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """See `Pretrained.push_to_hub`."""
        try:
            url: str = super().push_to_hub(repo_id, **options)
        except UNREACHABLE as error:
            raise ModelError(
                f"{repo_id}: cannot be uploaded to the Hub ({' '.join(str(error).split())}). Check the name, the "
                "network and the token."
            ) from error
        return url

    def _save_weights(self, files: RunDirectory, precision: StoredPrecision) -> None:
        """Write the weights beside the configuration and segmentation that they belong to."""
        run = self._run
        steps = [] if run is None else steps_of(checkpoint.read_values(RunDirectory(run).model))
        parts = Parts.of(self.translator.experiment, files.segmentation)
        values = {"steps": steps, PARTS: parts.plain()}
        write_compact(files.model, self.translator.trained.state_dict(), values, precision)

    def generate_model_card(
        self,
        scores: Mapping[str, Scores] | None = None,
        licence: str | None = None,
        data_licence: str | None = None,
        limits: str = "Nothing more is stated yet.",
        weights: StoredPrecision = "float32",
        repo_id: str = "USER/NAME",
        folder: str | None = None,
    ) -> ModelCard:
        """The model card: data, scores, limits, settings and licences.

        Args:
            scores: scores on test sets, by name, of the stored weights computed in float32.
            licence: licence of the model, as text; an identifier such as MIT is passed to the Hub, too. None: not
                stated.
            data_licence: sources and licences of the training text. None: not stated.
            limits: limits of the model, besides those that follow from its settings.
            weights: precision in which the weights are stored.
            repo_id: name on the Hub, in the examples.
            folder: path in the examples of a model that is not on the Hub.

        Raises:
            ModelError: if a file of the run is damaged.
        """
        run, info = self._run, self._hub_mixin_info
        experiment = portable(self.translator.experiment)
        card_data = ModelCardData(
            language=[experiment.data.source_language, experiment.data.target_language],
            license=hub_licence(licence),
            library_name=info.model_card_data.library_name,
            pipeline_tag=info.model_card_data.pipeline_tag,
            tags=[*(info.model_card_data.tags or ()), experiment.model.family],
        )
        return ModelCard.from_template(
            card_data,
            template_str=info.model_card_template,
            **facts_of_experiment(experiment),
            parameters=f"{sum(parameter.numel() for parameter in self.translator.trained.parameters()):,}",
            version=version("jointnmt"),
            measured=validation_sentence(
                None if run is None else validation_scores(run), experiment.training.precision
            ),
            scores=[row for name, found in (scores or {}).items() for row in score_rows(name, found)],
            limits=limits,
            weights=weights,
            rounding="" if weights == "float32" else ", rounded from those of the training",
            licence=licence or NOT_STATED,
            data_licence=data_licence or NOT_STATED,
            repo_id=repo_id,
            folder=folder,
        )

    def _save_pretrained(self, save_directory: Path) -> None:
        run, experiment = self._run, self.translator.experiment
        measured = None if run is None else validation_scores(run)
        files = RunDirectory(save_directory)
        files.write_experiment(portable(experiment))
        self.translator.segmentation.save(files.segmentation)
        family = experiment.model.family
        packages = {FAMILY_PACKAGES: {name: version(name) for name in packages_of(family)}}
        about = {"version": version("jointnmt"), "family": family, **packages, "validation": measured}
        # One key only: the mixin takes all others for arguments of the class.
        write_text(files.about, json.dumps({"jointnmt": about}, indent=2) + "\n")


def _run_of_weights(translator: Savable) -> Path | None:
    """The run that a translator's weights are those of; None if they were changed after loading, or the run was."""
    if translator.run is None or not (stored := RunDirectory(translator.run).model).is_file():
        return None
    own, of_run = translator.trained.state_dict(), read_weights(stored)
    same = own.keys() == of_run.keys() and all(torch.equal(own[name].to(of_run[name]), of_run[name]) for name in own)
    return translator.run if same else None


def load_pretrained(name: str | Path, load: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    """See `Pretrained.from_pretrained`; `load` loads a folder or a model of the package."""
    of_hub = {key: value for key, value in options.items() if key in OPTIONS_OF_HUB}
    others = {key: value for key, value in options.items() if key not in of_hub}
    is_here = str(name).startswith(OF_PACKAGE) or Path(name).is_dir()
    return load(name if is_here else _download(str(name), of_hub), **others)


def _download(name: str, options: Mapping[str, Any]) -> str:
    """Download a repository of the Hub; return its folder."""
    if "/" not in name:
        raise ModelError(f"{name}: there is no such folder, and models on the Hub are named USER/NAME.")
    try:
        return snapshot_download(name, allow_patterns=list(FILES), **options)
    except UNREACHABLE as error:
        raise ModelError(
            f"{name}: no such folder, and no such model on the Hub ({' '.join(str(error).split())}). Check the name, "
            "the network, and for a private model the token."
        ) from error


def portable(experiment: Experiment) -> Experiment:
    """The experiment without this machine's folders of data, codes and cache; file names are kept."""
    named = {
        which: tuple(_without_folders(text) for text in getattr(experiment.data, which))
        for which in ("train", "validation")
    }
    data = experiment.data.model_copy(update={"root": Path(), "cache": None, **named})
    start = experiment.training.start
    training = experiment.training.model_copy(update={"start": None if start is None else Path(start.name)})
    segmentation = experiment.segmentation.with_file_names()
    return experiment.model_copy(update={"data": data, "segmentation": segmentation, "training": training})


def _without_folders(text: ParallelText) -> ParallelText:
    """The text with absolute paths reduced to file names."""
    paths = {name: getattr(text, name) for name in ("source", "target", "path")}
    absolute = {name: Path(path.name) for name, path in paths.items() if path is not None and path.is_absolute()}
    return text.model_copy(update=absolute)


def validation_scores(run: Path) -> dict[str, Any] | None:
    """Validation perplexity and BLEU of the weights in a RUN or a saved folder; None if not recorded.

    The last record counts: a restarted training logs again.

    Raises:
        ModelError: if the record of a saved folder is damaged.
    """
    files = RunDirectory(run)
    saved = files.about
    if saved.is_file():
        try:
            kept: dict[str, Any] | None = json.loads(saved.read_bytes()).get("jointnmt", {}).get("validation")
            if kept is not None and not kept.keys() >= {"steps", *SCORES}:
                raise ValueError("has no scores")
        except (ValueError, AttributeError, RecursionError) as error:
            raise ModelError(
                f"{saved}: is damaged. Save the model again, or delete this file, which has its scores."
            ) from error
        return kept
    if not files.log.is_file():
        return None
    steps = steps_of(checkpoint.read_values(files.model))
    of_weights = [record for record in validations(files.log, steps) if record.get("perplexity") is not None]
    if not of_weights:
        return None
    chrf = CHRF if of_weights[-1].get("chrf") is not None else ()
    return {"steps": steps, **{key: of_weights[-1].get(key) for key in (*SCORES, *chrf)}}
