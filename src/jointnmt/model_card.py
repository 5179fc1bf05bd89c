"""Model cards: the template, and text derived from a model's configuration and scores."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from jointnmt.evaluation.scores import METRICS, TITLES, Scores
from jointnmt.experiment import Experiment
from jointnmt.models.families import packages_of

NOT_STATED = "not stated yet."

CARD = """---
{{ card_data }}
---

# {{ name }}

Translates from {{ source_language }} to {{ target_language }}. A {{ family }} model of {{ parameters }} parameters,
trained with jointnmt {{ version }}.
{%- if packages %} The family is defined by {{ packages }}, which has to be installed, too.{% endif %}

```sh
{% if not folder %}hf download {{ repo_id }} --local-dir {{ repo_id }}  # from the Hub
{% endif %}jointnmt translate {{ folder or repo_id }} < source.txt > translation.txt
```

In Python, from a folder or from the Hub:

```python
from jointnmt import Translator

translator = Translator.from_pretrained("{{ folder or repo_id }}")
print(translator.translate(["..."])[0])
```

## Data

Trained on {{ training | join(", ") }}, with seed {{ seed }}; validated on {{ validation | join(", ") or "nothing" }}.
Sources and licences of these texts: {{ data_licence }}

Filters: {{ filters }}

## Scores

{{ measured }}
{% if scores %}
Of the stored weights, computed in float32:

| test set | metric | score | signature |
|---|---|---|---|
{% for row in scores %}| {{ row | join(" | ") }} |
{% endfor %}{% else %}
Scores on test sets: not stated yet.
{% endif %}
## What it cannot do

It translates each line by itself, without the lines around it. {{ longest }}{{ case }}A {{ unit }} that the
training text lacks becomes `<unk>`. {{ limits }}

## Weights

Stored in {{ weights }}{{ rounding }}. `jointnmt translate` computes in bfloat16 where that is faster, and else in
float32; `--precision` says otherwise.

## Settings

```yaml
{{ settings }}```

## Licence

{{ licence }}
"""


def facts_of_experiment(experiment: Experiment) -> dict[str, Any]:
    """Values of the template that come from the configuration."""
    data = experiment.data
    return {
        "name": experiment.name,
        "family": experiment.model.family,
        "packages": " and ".join(f"{name} {version(name)}" for name in packages_of(experiment.model.family)),
        "source_language": data.source_language,
        "target_language": data.target_language,
        "training": _file_names(data.train),
        "seed": experiment.seed,
        "validation": _file_names(data.validation),
        "filters": json.dumps(data.filters.plain()),
        "longest": _longest_line(experiment.model.max_length),
        "case": "Its translations are in lower case. " if experiment.segmentation.lowercase else "",
        "unit": "word" if experiment.segmentation.kind == "word" else "character",
        "settings": experiment.to_yaml(),
    }


def hub_licence(licence: str | None) -> str:
    """The licence in the format of the Hub's metadata: an identifier in lower case, `other` for a text, or `unknown`.

    Identifiers of Creative Commons may be written with spaces: CC BY 4.0.
    """
    if not licence:
        return "unknown"
    if re.fullmatch(r"CC(0| BY(-NC)?(-SA|-ND)?) \d\.\d", licence, re.IGNORECASE):
        licence = licence.replace(" ", "-")
    return licence.lower() if re.fullmatch(r"[\w.+-]+", licence) else "other"


def _longest_line(max_length: int | None) -> str:
    """The sentence about lines that are too long; empty without a limit."""
    if max_length is None:
        return ""
    return f"A line of more than {max_length - 1} pieces is refused, or divided at the ends of its sentences. "


def _file_names(texts: Any) -> list[str]:
    return [f"`{path.name}`" for text in texts for path in text.files]


def validation_sentence(measured: Mapping[str, Any] | None, precision: str) -> str:
    """The sentence about scores on the validation text, measured while training in this precision."""
    if measured is None:
        return "No validation scores are recorded."
    scores = "".join(
        f", {title} {measured[key]:.2f} (`{measured.get(signature)}`)"
        for key, title, signature in (("bleu", "BLEU", "signature"), ("chrf", "chrF2", "chrf_signature"))
        if measured.get(key) is not None
    )
    steps = ", ".join(map(str, measured["steps"]))
    weights = f"average of the weights after updates {steps}" if len(measured["steps"]) > 1 else f"update {steps}"
    when = "in training" if precision == "auto" else f"in training, in {precision}"
    return f"On the validation text, {when}: perplexity {measured['perplexity']:.3f}{scores} ({weights})."


def score_rows(test_set: str, scores: Scores) -> list[tuple[str, str, str, str]]:
    """Table rows of a test set: test set, metric, score, signature."""
    found = ((metric, getattr(scores, metric)) for metric in METRICS)
    return [
        (test_set, TITLES[metric], f"{score.value:.2f}", f"`{score.signature}`".replace("|", r"\|"))
        for metric, score in found
        if score is not None
    ]
