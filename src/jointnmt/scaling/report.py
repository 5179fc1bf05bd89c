"""The report of a scaling, as plain values and files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jointnmt.analysis.parameters import count_parameters
from jointnmt.experiment import Experiment
from jointnmt.files import write_text
from jointnmt.scaling.runs import RunOutcome
from jointnmt.scaling.sizes import added_layers, depths, parameter_ratio, width_ratio
from jointnmt.scaling.step import Scaling, cost


def _sizes(experiment: Experiment, vocabularies: tuple[int, int]) -> dict[str, Any]:
    """Layers, F, w and true parameters of an experiment's model."""
    model = experiment.model
    parameters = count_parameters(model, *vocabularies).plain()
    sums = {key: parameters[key] for key in ("embeddings", "rest", "total")}
    return {"layers": depths(model), "ffn_dim": model.ffn_dim, "width": width_ratio(model), "parameters": sums}


def scaling_report(
    experiment: Experiment, scaling: Scaling, outcomes: Mapping[str, RunOutcome], ratio: float, epsilon: int
) -> dict[str, Any]:
    """All measurements and results as JSON-compatible values; null where there is no scaled model."""
    vocabularies = outcomes["base"].vocabularies
    runs = {
        name: {key: getattr(one, key) for key in ("nll", "step", "updates", "seconds")}
        | _sizes(Experiment.parse(one.experiment, origin=name), vocabularies)
        for name, one in outcomes.items()
    }
    report: dict[str, Any] = {
        "name": experiment.name,
        "family": experiment.model.family,
        "ratio": ratio,
        "epsilon": epsilon,
        "runs": runs,
        "gradient": scaling.gradient._asdict(),
        "step": None if scaling.step is None else scaling.step._asdict(),
        "scaled": None,
        "parameter_ratio": None,
        "cost": None,
        "refused": scaling.refused,
    }
    if scaling.experiment is not None:
        base, scaled = experiment.model, scaling.experiment.model
        sizes = _sizes(scaling.experiment, vocabularies)
        true = {key: sizes["parameters"][key] / runs["base"]["parameters"][key] for key in ("rest", "total")}
        report["scaled"] = {"added_layers": added_layers(base, scaled), **sizes}
        report["parameter_ratio"] = {"predicted": parameter_ratio(base, scaled), **true}
        report["cost"] = cost(base, scaled, outcomes, epsilon).plain()
    return report


def write_report(experiment: Experiment, scaling: Scaling, report: dict[str, Any], out: Path) -> None:
    """Write report.json and scaled.yaml; without a scaled model, an older scaled.yaml is deleted."""
    write_text(out / "report.json", json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    if scaling.experiment is None:
        (out / "scaled.yaml").unlink(missing_ok=True)
        return
    head = f"# {experiment.name}, scaled by the gradient of its validation cross-entropy. See report.json.\n"
    write_text(out / "scaled.yaml", head + scaling.experiment.to_yaml())
