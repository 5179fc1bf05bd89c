"""Translators as folders, and on the Hugging Face Hub. Imports that only the Hub needs are deferred until used."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from jointnmt.experiment import Experiment
from jointnmt.models import TranslationModel
from jointnmt.runs.weights import StoredPrecision, check_precision
from jointnmt.text.segmentation import Segmentation


class Pretrained:
    """Adds `save_pretrained`, `from_pretrained` and `push_to_hub` to a translator.

    The folder is a RUN directory with what inference needs (resolved configuration, segmentation, weights), a model
    card (README.md) and `config.json` for the Hub. Its configuration contains no local paths.

    `model_card_kwargs` of `save_pretrained` and `push_to_hub` takes the arguments of
    `HubFolder.generate_model_card`.
    """

    trained: TranslationModel
    """The model as it was trained."""
    segmentation: Segmentation
    experiment: Experiment
    run: Path | None

    @classmethod
    def load(cls, run: Path | str, *args: Any, **options: Any) -> Self:
        """Read a RUN directory."""
        raise NotImplementedError

    def check_can_be_saved(self) -> None:
        """Check that the model can be saved.

        Raises:
            ConfigurationError: if the model cannot be saved.
        """
        raise NotImplementedError

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path, **options: Any) -> Self:
        """Load a folder, or download and cache a repository of the Hub (`user/name`).

        Takes the options of `load` and of a download (`revision`, `cache_dir`, `local_files_only`, `force_download`,
        `token`).

        Raises:
            MissingPackageError: without the extra `hub`; `load` reads a folder without it.
            ModelError: if there is no such folder or repository, or its model is incomplete.
        """
        from jointnmt.hub import load_pretrained

        return load_pretrained(pretrained_model_name_or_path, cls.load, options)

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
        """Save as a folder, with weights stored in this precision; 16 bits halve its size.

        An existing folder is replaced at the end by a complete new one, and keeps its other files and its model card
        (README.md). Updates and validation scores of the run are stated unless the weights were changed after loading.
        Takes the options of huggingface_hub, too.

        Returns:
            With `push_to_hub`, the URL of the commit.

        Raises:
            ConfigurationError: if it is an ensemble; if there is no such precision, or a weight is beyond its range; if
                the folder is the RUN of a training.
            MissingPackageError: without the extra `hub`.
            ModelError: if the model could not be loaded again, such as one inside another; if a file of its run is
                damaged.
            OSError: if it cannot be written; an existing folder stays unchanged.
            TypeError: if an option is unknown, without `push_to_hub`.
        """
        if options and not push_to_hub:
            raise TypeError(f"save_pretrained: {', '.join(options)}: unknown option, or one for push_to_hub=True alone")
        self.check_can_be_saved()
        from jointnmt.hub import HubFolder

        folder = Path(save_directory)
        card = {"weights": weights, **(model_card_kwargs or {})}
        HubFolder(self).save(folder, card)
        if not push_to_hub:
            return None
        return self.push_to_hub(repo_id or folder.name, weights=card["weights"], model_card_kwargs=card, **options)

    def push_to_hub(self, repo_id: str, *, weights: StoredPrecision = "float32", **options: Any) -> str:
        """Upload the folder to a repository of the Hub, created if needed; returns the URL of the commit.

        Takes the options of huggingface_hub (`private`, `token`, `commit_message`, ...).

        Raises:
            ConfigurationError: as in `save_pretrained`.
            MissingPackageError: without the extra `hub`.
            ModelError: if the Hub cannot be reached, or refuses it.
        """
        self.check_can_be_saved()
        from jointnmt.hub import HubFolder

        card = {"repo_id": repo_id, "weights": weights, **(options.pop("model_card_kwargs", None) or {})}
        check_precision(card["weights"])  # before a repository is created
        return HubFolder(self).push_to_hub(repo_id, model_card_kwargs=card, **options)
