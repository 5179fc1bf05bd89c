"""The page of the analysis agrees with the numbers beside its figures: probes, similarity and gates."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

SYSTEMS = ("transformer", "transformer-shortcuts", "transformer-fusion")


@pytest.fixture
def page(repository: Path) -> str:
    """The part about words in the layers, on one line."""
    text = (repository / "docs/analysis.md").read_text(encoding="utf-8")
    return " ".join(text[text.index("## Words in the layers") : text.index("## Hidden units")].split())


def numbers(repository: Path, name: str) -> list[dict[str, str]]:
    with (repository / "docs/figures" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def listed(values: list[str]) -> str:
    return f"{', '.join(values[:-1])} and {values[-1]}"


def test_the_command_names_the_systems_of_the_figures(page: str, repository: Path) -> None:
    command = re.findall(r"jointnmt probe ([^`]+)```", page)[0]  # of the captions; Tatoeba's follow
    runs = re.findall(r"runs/(\S+)", command)
    for name in ("accuracy-source", "accuracy-target", "similarity-source", "similarity-target"):
        assert list(dict.fromkeys(row["system"] for row in numbers(repository, name))) == runs == list(SYSTEMS)
    assert "Reformer" not in page


def test_accuracies_and_similarities_are_those_of_the_files(page: str, repository: Path) -> None:
    for side, stack in (("source", "encoder"), ("target", "decoder")):
        rows = [row for row in numbers(repository, f"accuracy-{side}") if row["stack"] == stack]
        for system in SYSTEMS:
            percents = [f"{100 * float(row['accuracy']):.0f}" for row in rows if row["system"] == system]
            assert f"{listed(percents)}%" in page, (system, side)
    rows = [row for row in numbers(repository, "similarity-source") if row["stack"] == "encoder"]
    for system in SYSTEMS:
        assert listed([f"{float(row['similarity']):.2f}" for row in rows if row["system"] == system]) in page, system


def spread(rows: list[dict[str, str]]) -> str:
    gates = [float(row["gate"]) for row in rows if row["gate"]]
    return f"{min(gates):.2f} to {max(gates):.2f}"


def test_gates_of_feature_fusion_stay_where_the_page_says(page: str, repository: Path) -> None:
    layers, bins = (
        [
            row
            for side in ("source", "target")
            for row in numbers(repository, f"gate-{side}{grouping}")
            if row["system"] == "transformer-fusion"
        ]
        for grouping in ("", "-by-frequency")
    )
    unseen = [row for row in bins if row["group"] == "unseen"]
    seen = [row for row in bins if row["group"] != "unseen"]
    assert f"{spread(layers)} on average in every layer" in page
    assert f"{spread(seen)} in every bin of training frequency" in page
    assert f"never occur in the training text range wider, {spread(unseen)}" in page


def test_gates_of_plain_shortcuts_close_above_the_first_layer(page: str, repository: Path) -> None:
    ranges = {
        (stack, kind): spread(
            [
                row
                for row in numbers(repository, f"gate-{side}")
                if (row["system"], row["stack"]) == ("transformer-shortcuts", f"{stack} {kind}") and row["layer"] != "1"
            ]
        )
        for side, stack in (("source", "encoder"), ("target", "decoder"))
        for kind in ("keys", "values")
    }
    assert f"{ranges['encoder', 'keys']} in the encoder, {ranges['decoder', 'keys']} in the decoder" in page
    assert f"({ranges['encoder', 'values']}, and {ranges['decoder', 'values']})" in page
