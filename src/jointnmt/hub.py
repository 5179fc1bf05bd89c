"""Saving and loading models as folders, and sharing them on the Hugging Face Hub, with a model card."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

from huggingface_hub import ModelCard, ModelCardData, ModelHubMixin, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError

from jointnmt.data.corpus import ParallelText
from jointnmt.errors import ModelError
from jointnmt.evaluation.scores import METRICS, TITLES, Scores
from jointnmt.experiment import Experiment
from jointnmt.models import TranslationModel
from jointnmt.runs import checkpoint
from jointnmt.runs.directory import RunDirectory
from jointnmt.runs.log import whole_records
from jointnmt.text.segmentation import Segmentation

FILES = ("experiment.yaml", "model.safetensors", "segmentation/*", "config.json", "README.md")

CARD = """---
{{ card_data }}
---

# {{ name }}

Translates from {{ source_language }} to {{ target_language }}. A {{ family }} model of {{ parameters }} parameters,
trained with jointnmt {{ version }}.

```python
from jointnmt import Translator

translator = Translator.from_pretrained("{{ repo_id }}")
print(translator.translate(["..."])[0])
```

## Data

Trained on {{ training | join(", ") }}; validated on {{ validation | join(", ") or "nothing" }}.
Sources and licences of these texts: {{ data_licence }}

Filters: {{ filters }}

## Scores

{{ measured }}
{% if scores %}
| test set | metric | score | signature |
|---|---|---|---|
{% for row in scores %}| {{ row | join(" | ") }} |
{% endfor %}{% else %}
Scores on test sets: not stated yet.
{% endif %}
## Settings

```yaml
{{ settings }}```

## Licence

{{ licence }}
"""


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

    `model_card_kwargs`, of `save_pretrained` and `push_to_hub`, may have `scores` (test set name to `Scores`),
    `licence` and `data_licence` (text), and `repo_id`.
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
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ModelError(
                f"{pretrained_model_name_or_path}: config.json is damaged ({error}). Save or download the model again."
            ) from error

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Upload the folder to a repository of the Hub, created if needed; returns the URL of the commit.

        Takes the options of huggingface_hub (`private`, `token`, `commit_message`, ...).
        """
        card = {"repo_id": repo_id, **(options.pop("model_card_kwargs", None) or {})}
        return super().push_to_hub(repo_id, model_card_kwargs=card, **options)

    def generate_model_card(
        self,
        scores: Mapping[str, Scores] | None = None,
        licence: str = "not stated yet.",
        data_licence: str = "not stated yet.",
        repo_id: str = "USER/NAME",
    ) -> ModelCard:
        """The model card: data, scores, settings and licences."""
        experiment, info = portable(self.experiment), self._hub_mixin_info
        data = experiment.data
        card_data = ModelCardData(
            language=[data.source_language, data.target_language],
            license="unknown",
            library_name=info.model_card_data.library_name,
            pipeline_tag=info.model_card_data.pipeline_tag,
            tags=[*(info.model_card_data.tags or ()), experiment.model.family],
        )
        card: ModelCard = ModelCard.from_template(
            card_data,
            template_str=info.model_card_template,
            name=experiment.name,
            family=experiment.model.family,
            parameters=f"{sum(parameter.numel() for parameter in self.trained.parameters()):,}",
            version=version("jointnmt"),
            source_language=data.source_language,
            target_language=data.target_language,
            training=_file_names(data.train),
            validation=_file_names(data.validation),
            filters=json.dumps(data.filters.plain()),
            measured=_validation_sentence(None if self.run is None else validation_scores(self.run)),
            scores=[row for name, found in (scores or {}).items() for row in _score_rows(name, found)],
            settings=experiment.to_yaml(),
            licence=licence,
            data_licence=data_licence,
            repo_id=repo_id,
        )
        return card

    def _save_pretrained(self, save_directory: Path) -> None:
        measured = None if self.run is None else validation_scores(self.run)
        steps = [] if self.run is None else checkpoint.read_values(RunDirectory(self.run).model).get("steps", [])
        files = RunDirectory(save_directory)
        checkpoint.write_text(files.experiment, portable(self.experiment).to_yaml())
        shutil.rmtree(files.segmentation, ignore_errors=True)
        self.segmentation.save(files.segmentation)
        files.write_weights(files.model, self.trained.state_dict(), steps)
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
    return experiment.model_copy(update={"data": data})


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
        except (ValueError, AttributeError) as error:
            raise ModelError(
                f"{saved}: is damaged. Save the model again, or delete this file, which holds its scores."
            ) from error
        return kept
    files = RunDirectory(run)
    if not files.log.is_file():
        return None
    steps = checkpoint.read_values(files.model).get("steps")
    found = None
    for _, record in whole_records(files.log):
        if record["event"] in ("validation", "average") and record.get("steps", [record["step"]]) == steps:
            found = {"steps": steps, **{key: record[key] for key in ("perplexity", "bleu", "signature")}}
    return found


def _file_names(texts: Any) -> list[str]:
    return [f"`{path.name}`" for text in texts for path in text.files]


def _validation_sentence(measured: Mapping[str, Any] | None) -> str:
    if measured is None:
        return "No validation scores are recorded."
    bleu = "" if measured["bleu"] is None else f", BLEU {measured['bleu']:.2f} (`{measured['signature']}`)"
    steps = ", ".join(map(str, measured["steps"]))
    weights = f"average of the weights after updates {steps}" if len(measured["steps"]) > 1 else f"update {steps}"
    return f"On the validation text: perplexity {measured['perplexity']:.3f}{bleu} ({weights})."


def _score_rows(test_set: str, scores: Scores) -> list[tuple[str, str, str, str]]:
    found = ((metric, getattr(scores, metric)) for metric in METRICS)
    return [
        (test_set, TITLES[metric], f"{score.value:.2f}", f"`{score.signature}`".replace("|", r"\|"))
        for metric, score in found
        if score is not None
    ]
