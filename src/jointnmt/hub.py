"""Saving and loading models as folders, and sharing them on the Hugging Face Hub, with a model card."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

from huggingface_hub import ModelCard, ModelCardData, ModelHubMixin, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError

from jointnmt.data.corpus import ParallelText
from jointnmt.errors import ModelError
from jointnmt.evaluation.scores import Scores
from jointnmt.experiment import Experiment
from jointnmt.extras import extra
from jointnmt.model_card import CARD, NOT_STATED, hub_licence, score_rows, told_by_experiment, validation_sentence
from jointnmt.models import TranslationModel
from jointnmt.runs import checkpoint
from jointnmt.runs.directory import RunDirectory
from jointnmt.runs.folder import replacing
from jointnmt.runs.log import read_records
from jointnmt.runs.weights import StoredPrecision, check_precision
from jointnmt.text.segmentation import Segmentation

PARTS = ("experiment.yaml", "model.safetensors", "segmentation", "config.json")
"""What `save_pretrained` writes anew, besides a model card if there is none."""

FILES = ("experiment.yaml", "model.safetensors", "segmentation/*", "config.json", "README.md")


class PretrainedMixin(
    ModelHubMixin,
    library_name="jointnmt",
    pipeline_tag="translation",
    tags=["translation", "jointnmt"],
    model_card_template=CARD,
):
    """Adds `save_pretrained`, `from_pretrained` and `push_to_hub` to a translator.

    The folder is a RUN directory with what inference needs (resolved configuration, segmentation, weights), a model
    card (README.md) and `config.json` for the Hub. Its configuration has no paths of this machine.

    `model_card_kwargs`, of `save_pretrained` and `push_to_hub`, may have the arguments of `generate_model_card`.
    """

    trained: TranslationModel
    """The model as it was trained."""
    segmentation: Segmentation
    experiment: Experiment
    run: Path | None = None
    """The directory that the model was loaded from; its log has the validation scores."""
    _hub_mixin_config: dict[str, Any] | None = {}  # noqa: RUF012 (not None: the mixin would collect arguments)

    @classmethod
    def load(cls, run: Path | str, *args: Any, **options: Any) -> Self:
        """Read a RUN directory."""
        raise NotImplementedError

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path, **options: Any) -> Self:
        """Load a folder, or download and cache a repository of the Hub (`user/name`).

        Takes the options of `load` besides those of huggingface_hub (`revision`, `cache_dir`, `local_files_only`, ...).

        Raises:
            ModelError: if there is no such folder or repository, or its model is incomplete.
        """
        try:
            return super().from_pretrained(pretrained_model_name_or_path, **options)
        except (HFValidationError, HfHubHTTPError, OSError) as error:
            raise ModelError(
                f"{pretrained_model_name_or_path}: no such folder, and no such model on the Hub "
                f"({' '.join(str(error).split())}). Check the name, the network, and for a private model the token."
            ) from error
        except (ValueError, RecursionError, AttributeError) as error:  # what the mixin meets in config.json
            raise ModelError(
                f"{pretrained_model_name_or_path}: config.json is damaged ({error}). Save or download the model again."
            ) from error

    def save_pretrained(
        self,
        save_directory: str | Path,
        *,
        weights: StoredPrecision = "float32",
        push_to_hub: bool = False,
        repo_id: str | None = None,
        model_card_kwargs: dict[str, Any] | None = None,
        **options: Any,
    ) -> str | None:
        """Save as a folder, with weights stored in this precision: in 16 bits, it takes half the room.

        A folder that is there is replaced at the end by a whole new one, and keeps its other files. Takes the options
        of huggingface_hub, too. A model card (README.md) that is there is left as it is.

        Returns:
            With `push_to_hub`, the URL of the commit.

        Raises:
            ConfigurationError: if there is no such precision, or a weight is beyond its range.
            OSError: if it cannot be written; a folder that is there stays as it was.
        """
        card = {"weights": weights, **(model_card_kwargs or {})}
        check_precision(card["weights"])
        folder = Path(save_directory)
        with replacing(folder, PARTS) as new:
            super().save_pretrained(new, model_card_kwargs=card)
            self._save_weights(RunDirectory(new), card["weights"])
        if not push_to_hub:
            return None
        return self.push_to_hub(repo_id or folder.name, weights=card["weights"], model_card_kwargs=card, **options)

    def _save_weights(self, files: RunDirectory, precision: StoredPrecision) -> None:
        """Write the weights beside the configuration and segmentation that they belong to."""
        steps = [] if self.run is None else checkpoint.read_values(RunDirectory(self.run).model).get("steps", [])
        files.bind(self.experiment)
        files.write_compact(files.model, self.trained.state_dict(), steps, precision)

    def push_to_hub(self, repo_id: str, *, weights: StoredPrecision = "float32", **options: Any) -> str:
        """Upload the folder to a repository of the Hub, created if needed; returns the URL of the commit.

        Takes the options of huggingface_hub (`private`, `token`, `commit_message`, ...).
        """
        # Of the arguments added here, the mixin hands only those for the card on to `save_pretrained`.
        card = {"repo_id": repo_id, "weights": weights, **(options.pop("model_card_kwargs", None) or {})}
        return super().push_to_hub(repo_id, model_card_kwargs=card, **options)

    def generate_model_card(
        self,
        scores: Mapping[str, Scores] | None = None,
        licence: str | None = None,
        data_licence: str | None = None,
        limits: str = "Nothing more is stated yet.",
        weights: StoredPrecision = "float32",
        repo_id: str = "USER/NAME",
    ) -> ModelCard:
        """The model card: data, scores, limits, settings and licences.

        Args:
            scores: on test sets, by their names.
            licence: of the model, as text; an identifier such as MIT is given to the Hub, too. None: not stated.
            data_licence: sources and licences of the training text. None: not stated.
            limits: what the model cannot do, besides what follows from its settings.
            weights: the precision that they are stored in.
            repo_id: what `from_pretrained` is to be called with in the example.

        Raises:
            MissingPackageError: without jinja2, which the extra `report` has.
        """
        with extra("report"):
            import jinja2  # noqa: F401 (huggingface_hub renders the card with it)
        experiment, info = portable(self.experiment), self._hub_mixin_info
        card_data = ModelCardData(
            language=[experiment.data.source_language, experiment.data.target_language],
            license=hub_licence(licence),
            library_name=info.model_card_data.library_name,
            pipeline_tag=info.model_card_data.pipeline_tag,
            tags=[*(info.model_card_data.tags or ()), experiment.model.family],
        )
        card: ModelCard = ModelCard.from_template(
            card_data,
            template_str=info.model_card_template,
            **told_by_experiment(experiment),
            parameters=f"{sum(parameter.numel() for parameter in self.trained.parameters()):,}",
            version=version("jointnmt"),
            measured=validation_sentence(None if self.run is None else validation_scores(self.run)),
            scores=[row for name, found in (scores or {}).items() for row in score_rows(name, found)],
            limits=limits,
            weights=weights,
            rounding="" if weights == "float32" else ", rounded from those of the training",
            licence=licence or NOT_STATED,
            data_licence=data_licence or NOT_STATED,
            repo_id=repo_id,
        )
        return card

    def _save_pretrained(self, save_directory: Path) -> None:
        measured = None if self.run is None else validation_scores(self.run)
        files = RunDirectory(save_directory)
        files.write_experiment(portable(self.experiment))
        self.segmentation.save(files.segmentation)
        about = {"version": version("jointnmt"), "family": self.experiment.model.family, "validation": measured}
        # One key: the mixin takes the others for arguments of the class.
        checkpoint.write_text(save_directory / "config.json", json.dumps({"jointnmt": about}, indent=2) + "\n")

    @classmethod
    def _from_pretrained(
        cls,
        *,
        model_id: str,
        revision: str | None,
        cache_dir: str | Path | None,
        force_download: bool,
        local_files_only: bool,
        token: str | bool | None,
        **options: Any,
    ) -> Self:
        if Path(model_id).is_dir():
            return cls.load(model_id, **options)
        folder = snapshot_download(
            model_id,
            revision=revision,
            cache_dir=cache_dir,
            force_download=force_download,
            local_files_only=local_files_only,
            token=token,
            allow_patterns=list(FILES),
        )
        return cls.load(folder, **options)


def portable(experiment: Experiment) -> Experiment:
    """The experiment without this machine's folders of data and cache; files keep their names."""
    named = {
        which: tuple(_without_folders(text) for text in getattr(experiment.data, which))
        for which in ("train", "validation")
    }
    data = experiment.data.model_copy(update={"root": Path(), "cache": None, **named})
    start = experiment.training.start
    training = experiment.training.model_copy(update={"start": None if start is None else Path(start.name)})
    return experiment.model_copy(update={"data": data, "training": training})


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
    saved = run / "config.json"
    if saved.is_file():
        try:
            kept: dict[str, Any] | None = json.loads(saved.read_bytes()).get("jointnmt", {}).get("validation")
        except (ValueError, AttributeError, RecursionError) as error:
            raise ModelError(
                f"{saved}: is damaged. Save the model again, or delete this file, which holds its scores."
            ) from error
        return kept
    files = RunDirectory(run)
    if not files.log.is_file():
        return None
    steps = checkpoint.read_values(files.model).get("steps")
    found = None
    for record in read_records(files.log):
        is_of_weights = record.get("steps", [record["step"]]) == steps
        if is_of_weights and record["event"] in ("validation", "average") and record.get("perplexity") is not None:
            found = {"steps": steps, **{key: record.get(key) for key in ("perplexity", "bleu", "signature")}}
    return found
