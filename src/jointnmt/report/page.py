"""The report: a single HTML page with all pictures, styles and numbers, without external resources."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import jointnmt
from jointnmt.evaluation.scores import METRICS, TITLES
from jointnmt.evaluation.significance import Comparison
from jointnmt.extras import extra
from jointnmt.report.contents import ReportContents
from jointnmt.report.pictures import (
    Cell,
    Picture,
    Table,
    analysis_picture,
    attention_picture,
    data_url,
    learning_pictures,
    resampled_lines,
)
from jointnmt.report.samples import GAP
from jointnmt.report.systems import ReportedSystem
from jointnmt.report.verdict import verdict
from jointnmt.text.languages import base_language

with extra("report"):
    from jinja2 import Environment, PackageLoader, StrictUndefined


def render(report: ReportContents) -> str:
    """The page as HTML; all content from texts, names and files is escaped."""
    environment = Environment(
        loader=PackageLoader("jointnmt.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    languages = report.systems[0].outputs.languages
    return environment.get_template("report.html.j2").render(
        report=report,
        gap=GAP,
        version=jointnmt.__version__,
        date=_today(),
        verdict=verdict(report.comparisons),
        languages=languages,
        source_language=base_language(languages[0]),
        target_language=base_language(languages[1]),
        facts=_facts(report.systems),
        scores=_scores(report),
        signatures=_signatures(report),
        learning=learning_pictures([system.learning for system in report.systems]),
        analyses=[analysis_picture(each) for each in report.analyses],
        attention=_attention(report),
        notes=_notes(report),
        numbers=data_url("application/json", json.dumps(report.plain(), ensure_ascii=False)),
    )


def _today() -> str:
    """The date in UTC, or that of SOURCE_DATE_EPOCH, for bit-reproducible pages."""
    seconds = os.environ.get("SOURCE_DATE_EPOCH", "")
    now = datetime.fromtimestamp(int(seconds), UTC) if seconds.isdecimal() else datetime.now(UTC)
    return now.date().isoformat()


def _facts(systems: Sequence[ReportedSystem]) -> Table:
    """Sizes and training of each system."""

    def row(name: str, text: Callable[[ReportedSystem], str]) -> tuple[str, list[Cell]]:
        return name, [Cell(text(system)) for system in systems]

    rows = [
        row("family", lambda system: system.experiment.model.family),
        row("parameters", lambda system: f"{system.parameters.total:,}"),
        row("of them embeddings", lambda system: f"{sum(system.parameters.embeddings.values()):,}"),
        row("layers", lambda system: _layers(system.experiment.model.plain()) or "unknown"),
        row("width", lambda system: _width(system.experiment.model.plain())),
        row("pieces, source and target", lambda system: " and ".join(f"{size:,}" for size in system.vocabularies)),
        row("updates", lambda system: _known(system.learning.updates, ",")),
        row("epochs", lambda system: _known(system.learning.epochs, ",")),
        row("hours of training", lambda system: _known(system.learning.hours, ".1f")),
        row("trained on", lambda system: system.learning.hardware or "unknown"),
        row("search", lambda system: f"beam of {system.experiment.search.beam_size}"),
    ]
    return Table("Sizes and training", ["", *(system.name for system in systems)], rows)


def _layers(model: Mapping[str, Any]) -> str:
    names = {"encoder_layers": "encoder", "decoder_layers": "decoder", "prenet_layers": "PreNet", "num_layers": "grid"}
    return ", ".join(f"{model[key]} {name}" for key, name in names.items() if model.get(key) is not None)


def _width(model: Mapping[str, Any]) -> str:
    inside = f", feed-forward {model['ffn_dim']}, {model['num_heads']} heads" if _layers(model) else ""
    return f"{model['embed_dim']}{inside}"


def _known(value: float | None, form: str) -> str:
    return "unknown" if value is None else f"{value:{form}}"


def _scores(report: ReportContents) -> Table:
    """A row for each metric, with bootstrap results below each score."""
    rows = []
    for metric in METRICS:
        values = [f"{getattr(scores, metric).value:.2f}" for scores in report.scores]
        rows.append((TITLES[metric], _compared(values, metric, report)))
    rows.append(("length ratio", [Cell(f"{scores.length_ratio:.3f}") for scores in report.scores]))
    rows.append(
        (
            "nll of the references",
            _compared([f"{each.outputs.likelihood.nll:.3f}" for each in report.systems], "nll", report),
        )
    )
    rows.append(("perplexity of the references", [Cell(f"{each.outputs.perplexity:.2f}") for each in report.systems]))
    return Table(
        f"{report.scores[0].sentences:,} sentences, target language {report.systems[0].outputs.languages[1]}",
        ["", *(system.name for system in report.systems)],
        rows,
    )


def _compared(values: Sequence[str], metric: str, report: ReportContents) -> list[Cell]:
    """A cell for each system, with the bootstrap result of its value if the metric was compared."""
    comparison = next((each for each in report.comparisons if each.metric == metric), None)
    names = [system.name for system in report.systems]
    details = [_resampled(comparison, name) if comparison else () for name in names]
    return [Cell(*each) for each in zip(values, details, strict=True)]


def _resampled(comparison: Comparison, system: str) -> tuple[str, ...]:
    result, decimals = comparison.of(system), comparison.decimals
    if result is None:
        return ()
    interval = "" if result.half_width is None else f"{result.mean:.{decimals}f} ± {result.half_width:.{decimals}f}"
    return resampled_lines(interval, result.p_value)


def _signatures(report: ReportContents) -> list[tuple[str, str]]:
    found = [(TITLES[metric], getattr(report.scores[0], metric).signature) for metric in METRICS]
    return found + [(f"{TITLES[each.metric]}, compared", each.signature) for each in report.comparisons]


def _attention(report: ReportContents) -> list[tuple[int, str, list[tuple[str, str, list[Picture]]]]]:
    """For each line: its number from 1, the source, and each system's name, translation and pictures."""
    lines = report.systems[0].attention
    return [
        (
            line + 1,
            report.eval_set.sources[line],
            [
                (
                    system.name,
                    system.outputs.translations[line],
                    [attention_picture(panel) for panel in system.attention[line]],
                )
                for system in report.systems
            ],
        )
        for line in lines
    ]


def _notes(report: ReportContents) -> list[str]:
    """Remarks needed to interpret the numbers."""
    notes = []
    for system in report.systems:
        if system.outputs.cut:
            notes.append(
                f"{system.name}: {system.outputs.cut:,} of {len(report.eval_set.sources):,} translations were cut "
                "at the maximum length."
            )
        if system.counts is None:
            notes.append(
                f"{system.name}: its training text was not found, or has changed since; it is left out of accuracy by "
                "frequency."
            )
        if not system.learning.validation:
            missing = "its log has no validation" if system.learning.updates else "there is no log of its training"
            notes.append(f"{system.name}: {missing}; it has no learning curve.")
    return notes
