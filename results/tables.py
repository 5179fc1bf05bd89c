"""Markdown tables of the results in `results/CORPUS`; `docs/generate.py` writes them into pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import log
from pathlib import Path
from statistics import geometric_mean, mean, stdev

from jointnmt.analysis.buckets import Buckets
from jointnmt.analysis.corpus import comparisons_by_length
from jointnmt.evaluation.likelihood import Likelihood
from jointnmt.evaluation.p_values import SIGNIFICANT, stated
from jointnmt.evaluation.scores import TITLES
from jointnmt.evaluation.significance import BootstrapResult, Comparison, likelihood_bootstrap
from jointnmt.report.curves import LearningCurves, read_learning_curves
from jointnmt.testset.eval_set import EvalSet
from jointnmt.testset.systems import Evaluation, MetricOptions, evaluate_systems
from jointnmt.text.languages import num_words
from results.costs import Cost, read_costs
from results.layout import TEXTS, CollectedSystem, CorpusSettings, read_systems
from results.trials import Trial, read_trials

METRICS = {"valid": ("bleu",), "test": ("bleu", "chrf")}
"""Metrics on each text."""
CONTRASTED = (("test", "bleu"), ("test", "chrf"), ("test", "nll"), ("valid", "bleu"), ("valid", "nll"))
"""Text and metric of each column of `contrasts_table`."""
EMPTY = "No runs are collected yet.\n"
ONE = "A comparison by length takes two runs.\n"
FEW = "Fewer than two runs have the likelihoods of the references of both texts.\n"


@dataclass(frozen=True, eq=False)  # hashed by identity
class Corpus:
    """The data of the tables of a corpus."""

    settings: CorpusSettings
    systems: Sequence[CollectedSystem]
    eval_sets: dict[str, EvalSet]
    trials: Sequence[Trial] = ()
    costs: Sequence[Cost] = ()

    @cache  # noqa: B019 (there is one object a corpus, for the time of a process)
    def evaluation(self, text: str) -> Evaluation:
        """Scores and comparisons on one of the texts."""
        systems = [system.evaluated(text, self.settings) for system in self.systems]
        options = MetricOptions(self.settings.target_language, METRICS[text])
        return evaluate_systems(systems, self.eval_sets[text], options)

    def only(self, folders: Sequence[str]) -> Corpus:
        """The corpus with only the systems of these folders, the first of which the others are compared with."""
        names = {system.name: system for system in self.systems}
        return replace(self, systems=[names[self.settings.systems[folder]] for folder in folders])


@cache
def read_corpus(folder: Path, root: Path = Path()) -> Corpus:
    """Read `results/CORPUS`; errors are those of `CorpusSettings.load` and `read_systems`."""
    settings = CorpusSettings.load(folder)
    eval_sets = {text: settings.eval_set(text, root) for text in TEXTS}
    trials = list(read_trials(folder, settings, root))
    costs = list(read_costs(folder, settings, trials, eval_sets["valid"].references))
    return Corpus(settings, read_systems(folder, settings), eval_sets, trials, costs)


def scores_table(corpus: Corpus) -> str:
    """The systems on the test text, each compared with the first one."""
    if not corpus.systems:
        return EMPTY
    found = corpus.evaluation("test")
    head = ["system", "runs", "parameters", *_with_difference(TITLES[metric] for metric in METRICS["test"])]
    rows = []
    for system, scores in zip(corpus.systems, found.scores, strict=True):
        runs = system.runs
        row = [system.name, "single run" if len(runs) == 1 else str(len(runs)), f"{runs[0].measured.parameters:,}"]
        for metric in METRICS["test"]:
            row.append(_mean([getattr(each, metric).value for each in scores]))
            row.append(_difference(found, metric, system.name))
        row.append(f"{mean(each.length_ratio for each in scores):.3f}")
        row.append(f"{geometric_mean(run.measured.perplexity['test'] for run in runs):.3f}")
        row.append(_difference(found, "nll", system.name))
        rows.append(row)
    signatures = [f"{TITLES[metric]} `{getattr(found.scores[0][0], metric).signature}`" for metric in METRICS["test"]]
    return (
        f"{_table([*head, 'length ratio', 'perplexity', 'difference of nll'], rows)}\n{_legend(corpus, signatures)}\n"
    )


def contrasts_table(corpus: Corpus) -> str:
    """Contrasts of systems for each question: the first system's score minus the second's."""
    numbers = {system.name: len(system.runs) for system in corpus.systems}
    rows = []
    for question, pairs in corpus.settings.contrasts.items():
        title = question
        for pair in pairs:
            one, other = (corpus.settings.systems[folder] for folder in pair)
            if not {one, other} <= numbers.keys():
                continue
            row = [title, f"{one} − {other}", f"{numbers[one]}, {numbers[other]}"]
            rows.append(row + [_contrast(corpus.evaluation(text), metric, one, other) for text, metric in CONTRASTED])
            title = ""
    head = ["question", "difference", "runs", "test: BLEU", "chrF2", "nll", "validation: BLEU", "nll"]
    return _table(head, rows) if rows else EMPTY


def runs_table(corpus: Corpus) -> str:
    """Each run by itself: the cost of its training, and its scores on both texts."""
    if not corpus.systems:
        return EMPTY
    head = ["system", "seed", "epochs", "updates", "hours", "hardware", "validation: perplexity", "BLEU"]
    rows = []
    valid, test = (corpus.evaluation(text) for text in TEXTS)
    for number, system in enumerate(corpus.systems):
        for run, on_valid, on_test in zip(system.runs, valid.scores[number], test.scores[number], strict=True):
            curves = read_learning_curves(run.folder, system.name)
            assert on_valid.bleu and on_test.bleu and on_test.chrf
            row = [system.name, str(run.seed), str(curves.epochs), f"{curves.updates:,}", f"{curves.hours:.1f}"]
            row += [curves.hardware or "", f"{run.measured.perplexity['valid']:.3f}", f"{on_valid.bleu.value:.2f}"]
            row += [f"{on_test.bleu.value:.2f}", f"{on_test.chrf.value:.2f}", f"`{run.measured.commit}`"]
            rows.append(row)
    return _table([*head, "test: BLEU", "chrF", "commit"], rows)


def lengths_table(corpus: Corpus) -> str:
    """Scores on the test text by length of the source."""
    if sum(len(system.runs) for system in corpus.systems) < 2:
        return ONE if corpus.systems else EMPTY
    settings, texts = corpus.settings, corpus.eval_sets["test"]
    outputs = {
        system.name: [run.translations("test", settings.target_language) for run in system.runs]
        for system in corpus.systems
    }
    lengths = [num_words(source, settings.source_language) for source in texts.sources]
    evaluation = corpus.evaluation("test")
    likelihoods = {system.name: system.likelihoods for system in evaluation.systems}
    rows = []
    facts = lengths, evaluation.measures, Buckets(settings.length_edges)
    for each in comparisons_by_length(outputs, texts.all_references, *facts, likelihoods=likelihoods):
        for comparison in each.comparisons:
            cells = [_of_length(comparison, name) for name in outputs]
            rows.append([each.bucket, f"{each.size:,}", TITLES[comparison.metric], *cells])
    table = _table(["words of the source", "sentences", "", *outputs], rows)
    count = sum(cell.count("p = ") + cell.count("p < ") for row in rows for cell in row[3:])
    by_chance = f"of {count} comparisons, chance would put {SIGNIFICANT * count:.0f} below {SIGNIFICANT}"
    return f"{table}\np is against {corpus.systems[0].name}: {by_chance}.\n"


def likelihood_table(corpus: Corpus) -> str:
    """Mean negative log-likelihood of both texts' references by source length; its difference above and below edges."""
    systems = {system.name: system for system in corpus.systems}
    language, edges = corpus.settings.source_language, corpus.settings.length_edges
    lengths = [num_words(source, language) for text in ("valid", "test") for source in corpus.eval_sets[text].sources]
    found = {name: _of_both_texts(system) for name, system in systems.items()}
    known = {name: likelihoods for name, likelihoods in found.items() if likelihoods}
    buckets, rows = Buckets(edges), []
    for bucket, chosen in zip(buckets.names, buckets.rows(lengths), strict=True):
        parts = {name: [each.of(chosen) for each in runs] for name, runs in known.items()}
        rows += [_likelihood_row(bucket, len(chosen), each) for each in likelihood_bootstrap(parts) if chosen]
    rows += [_likelihood_row("all", len(lengths), each) for each in likelihood_bootstrap(known)]
    for edge in edges:
        longer = [length >= edge for length in lengths]
        compared = likelihood_bootstrap(known, chosen=longer)
        rows += [_likelihood_row(f"from {edge} on, less those below", sum(longer), each) for each in compared]
    if not rows:
        return FEW if systems else EMPTY
    return _table(["words of the source", "sentences", *known], rows)


def _of_both_texts(system: CollectedSystem) -> list[Likelihood]:
    """Likelihoods of the system's runs; none if one of them has none."""
    found = [(run.likelihood("valid"), run.likelihood("test")) for run in system.runs]
    both = [valid.followed_by(test) for valid, test in found if valid and test]
    return both if len(both) == len(found) else []


def _likelihood_row(title: str, size: int, comparison: Comparison) -> list[str]:
    first, *others = comparison.systems
    cells = [f"{first.score:.{comparison.decimals}f}"]
    cells += [_difference_of(comparison, each) for each in others]
    return [title, f"{size:,}", *cells]


def learning_table(corpus: Corpus) -> str:
    """Nats a piece of the validation text at each validation, means over runs, minus the first system's.

    Systems that were trained for another number of updates are left out.
    """
    if not corpus.systems:
        return EMPTY
    curves = [[read_learning_curves(run.folder, system.name) for run in system.runs] for system in corpus.systems]
    first = curves[0][0]
    if not (first.validation and first.updates and first.epochs):
        return EMPTY
    rows, own = [], _nats(curves[0])
    for runs in curves:
        if any((run.updates, len(run.validation)) != (first.updates, len(first.validation)) for run in runs):
            continue
        found = _nats(runs)
        cells = [
            f"{value:.3f}" if runs is curves[0] else f"{value - its:+.3f}"
            for value, its in zip(found, own, strict=True)
        ]
        rows.append([runs[0].name, str(len(runs)), *cells])
    epochs = [f"{step * first.epochs / first.updates:.0f}" for step, _ in first.validation]
    return _table(["nats a piece after epoch", "runs", *epochs], rows)


def trials_table(corpus: Corpus) -> str:
    """Scores of each trial on the validation text at its end."""
    if not corpus.trials:
        return EMPTY
    rows = []
    for trial in corpus.trials:
        curves = trial.curves
        perplexity = f"{curves.validation[-1][1]:.3f}" if curves.validation else ""
        bleu = f"{curves.bleu[-1][1]:.2f}" if curves.bleu else ""
        if bleu and trial.bleu_sentences is not None:
            bleu += f" ({trial.bleu_sentences:,} sentences)"
        row = [trial.system, trial.changes, str(trial.seed), trial.precision, f"{curves.updates or 0:,}"]
        rows.append([*row, perplexity, bleu])
    return _table(["system", "changed", "seed", "precision", "updates", "validation: perplexity", "BLEU"], rows)


def costs_table(corpus: Corpus) -> str:
    """Quality on the validation text and cost of the measured trials."""
    rows = []
    for each in corpus.costs:
        interval = "" if each.half_width is None else f" ± {each.half_width:.2f}"
        rows.append([each.name, f"{each.bleu:.2f}{interval}", f"{each.training:.2f}", f"{each.translating:.2f}"])
    return _table(["system", "validation: BLEU", "time of training", "of translating"], rows) if rows else EMPTY


TABLES: dict[str, Callable[[Corpus], str]] = {
    "scores": scores_table,
    "contrasts": contrasts_table,
    "runs": runs_table,
    "lengths": lengths_table,
    "likelihood": likelihood_table,
    "learning": learning_table,
    "trials": trials_table,
    "costs": costs_table,
}


def learning_curves(corpus: Corpus) -> list[LearningCurves]:
    """Curves of the first run of each drawn system."""
    drawn = {corpus.settings.systems[name] for name in corpus.settings.curves}
    systems = [system for system in corpus.systems if not drawn or system.name in drawn]
    return [read_learning_curves(system.runs[0].folder, system.name) for system in systems]


def _nats(runs: Sequence[LearningCurves]) -> list[float]:
    """Nats a piece at each validation, means over runs."""
    return [mean(log(run.validation[place][1]) for run in runs) for place in range(len(runs[0].validation))]


def _legend(corpus: Corpus, signatures: Sequence[str]) -> str:
    first = corpus.systems[0].name
    text = f"{len(corpus.eval_sets['test'].references):,} sentences. Parameters: outside the embeddings. "
    if len(corpus.systems) > 1:
        text += (
            f"Differences are from {first}, ± half of the 95% interval, with p, over seeds and sentences; of two "
            "single runs, p is over sentences alone, of these very runs. nll is the negative log-probability of the "
            "references, in nats a piece, the lower the better; its difference is known of runs collected with it. "
        )
    return f"{text}Signatures: {', '.join(signatures)}."


def _with_difference(titles: Iterable[str]) -> Iterator[str]:
    for title in titles:
        yield title
        yield "difference"


def _mean(values: Sequence[float]) -> str:
    return f"{mean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")


def _contrast(evaluation: Evaluation, metric: str, one: str, other: str) -> str:
    """Difference of a system from another; empty if they cannot be compared."""
    scores = next((each for each in evaluation.resampled if each.metric == metric), None)
    if scores is None or not {one, other} <= scores.systems.keys():
        return ""
    comparison = scores.comparison(other, one)
    result = comparison.systems[1]
    single = f"{result.score - comparison.systems[0].score:+.{comparison.decimals}f}, " * (result.difference is None)
    return f"{single}{_difference_of(comparison, result)}"


def _difference(evaluation: Evaluation, metric: str, system: str) -> str:
    """Difference from the first system; empty for that one itself, or without a comparison."""
    comparison = next((each for each in evaluation.comparisons if each.metric == metric), None)
    result = comparison.of(system) if comparison else None
    return _difference_of(comparison, result) if comparison and result else ""


def _difference_of(comparison: Comparison, result: BootstrapResult) -> str:
    if result.p_value is None:
        return ""
    if found := result.difference:
        decimals = comparison.decimals
        return f"{found.value:+.{decimals}f} ± {found.half_width:.{decimals}f}, {_p(found.p_value)}"
    return f"{_p(result.p_value)}, these runs"


def _of_length(comparison: Comparison, system: str) -> str:
    result, decimals = comparison.of(system), comparison.decimals
    if result is None:
        return ""
    deviation = "" if result.deviation is None else f" ± {result.deviation:.{decimals}f}"
    text = f"{result.score:.{decimals}f}{deviation}"
    p_value = result.difference.p_value if result.difference else result.p_value
    return text if p_value is None else f"{text}, {_p(p_value)}"


def _p(value: float) -> str:
    """A p-value; that of a significant difference is bold."""
    return f"**{stated(value)}**" if value < SIGNIFICANT else stated(value)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    first, *others = (f"| {' | '.join(line)} |\n" for line in (head, *rows))
    return "".join([first, "|---" * len(head), "|\n", *others])
