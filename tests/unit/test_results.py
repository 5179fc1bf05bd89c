"""The files of trained systems in `results/`, and the tables made from them."""

from __future__ import annotations

import importlib.util
import json
import math
import random
import statistics
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from results.__main__ import draw, main
from results.collect import collect
from results.layout import CollectedMeasures, CorpusSettings, read_systems
from results.tables import EMPTY, FEW, ONE, TABLES, Corpus, learning_curves, read_corpus
from results.training import ended, missing, train_missing
from results.trials import collect_trial
from sacrebleu.metrics.bleu import BLEU

from jointnmt.errors import ConfigurationError, DataError, ModelError
from jointnmt.translator import Translator
from support.tiny import tiny_recipe, write_corpus
from support.tiny_run import write_run

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[2]
PAIRS = {
    "valid": [("die Katze sieht", "the cat sees"), ("der Hund hört .", "the dog hears .")],
    "test": [("der Hund sieht die Katze .", "the dog sees the cat ."), ("die Katze !", "the cat !")],
}
SETTINGS = """
title: Tiny
source_language: de
target_language: en
texts: {valid: {path: valid.tsv}, test: {path: test.tsv}}
systems: {first: First, second: Second system}
length_edges: [6]
"""
RECORDS: list[dict[str, Any]] = [
    {"event": "train", "step": 10, "epoch": 0, "perplexity": 30.0, "seconds": 1800.0},
    {"event": "validation", "step": 10, "perplexity": 20.0, "bleu": 3.5, "seconds": 60.0},
    {"event": "train", "step": 1200, "epoch": 4, "perplexity": 9.0, "seconds": 1740.0},
    {"event": "validation", "step": 1200, "perplexity": 8.0, "bleu": 12.5, "seconds": 0.0},
]
WORDS = [f"w{number}" for number in range(40)]


def write_log(folder: Path) -> None:
    (folder / "log.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in RECORDS))
    (folder / "versions.json").write_text('{"hardware": "1 x CPU"}\n')


def write_pairs(folder: Path, pairs: dict[str, list[tuple[str, str]]]) -> None:
    for name, lines in pairs.items():
        (folder / f"{name}.tsv").write_text("".join("\t".join(line) + "\n" for line in lines), encoding="utf-8")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with the corpus `tiny`, and the runs `one` and `two` of two seeds."""
    monkeypatch.setenv("JOINTNMT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny/results.yaml").write_text(SETTINGS)
    write_pairs(tmp_path, PAIRS)
    for seed, name in enumerate(("one", "two"), start=1):
        write_log(write_run(tmp_path / name, seed=seed))
    return tmp_path


def files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def take(root: Path, run: str, system: str = "first") -> Path:
    return collect(root / run, root / "tiny" / system, "cpu", lambda *_: None, root)


def test_a_run_is_kept_with_what_it_translates(root: Path) -> None:
    folder = take(root, "two")
    assert folder == root / "tiny/first/seed-2"
    translator = Translator.load(root / "two", "cpu")
    for name, pairs in PAIRS.items():
        expected = translator.translate([source for source, _ in pairs])
        assert (folder / f"{name}.en").read_text(encoding="utf-8").splitlines() == expected
    assert (folder / "log.jsonl").read_bytes() == (root / "two/log.jsonl").read_bytes()
    assert "seed: 2" in (folder / "experiment.yaml").read_text()
    measured = CollectedMeasures.read(folder)
    scored = translator.score(*zip(*PAIRS["test"], strict=True))
    tokens = [value for each in scored for value in each.token_log_probabilities]
    assert measured.perplexity["test"] == pytest.approx(2.718281828 ** -statistics.mean(tokens))
    (run,) = read_systems(root / "tiny", CorpusSettings.load(root / "tiny"))[0].runs
    likelihood = run.likelihood("test")
    assert likelihood is not None
    assert likelihood.perplexity == pytest.approx(measured.perplexity["test"], rel=1e-4)
    assert likelihood.log_probabilities == pytest.approx([each.log_probability for each in scored], abs=1e-4)
    assert likelihood.pieces == [len(each.token_log_probabilities) for each in scored]
    total = sum(parameter.numel() for parameter in translator.trained.parameters())
    assert measured.parameters + measured.embeddings == total > measured.parameters > 0


@pytest.mark.parametrize(
    ("run", "system", "error", "message"),
    [
        ("two", "third", ConfigurationError, "names no such system; it names first, second"),
        ("one", "first", ConfigurationError, "seed-1: exists and is not empty"),
        ("missing", "first", ModelError, "no trained model"),
        ("without-log", "second", OSError, "log.jsonl"),
    ],
)
def test_what_cannot_be_kept_is_refused_and_leaves_nothing(
    root: Path, run: str, system: str, error: type[Exception], message: str
) -> None:
    take(root, "one")
    write_run(root / "without-log")
    before = files_below(root / "tiny")
    with pytest.raises(error, match=message):
        take(root, run, system)
    assert files_below(root / "tiny") == before


def test_a_run_of_other_languages_is_refused(root: Path) -> None:
    (root / "tiny/results.yaml").write_text(SETTINGS.replace("source_language: de", "source_language: fr"))
    with pytest.raises(ConfigurationError, match=r"translates de-en, but .*tiny is fr-en"):
        take(root, "one")


def trial(root: Path, run: str, name: str) -> Path:
    return collect_trial(root / run, root / "tiny/trials/first" / name)


def test_a_trial_is_told_by_what_it_changes_of_the_recipe(root: Path) -> None:
    (root / "recipe.yaml").write_text((root / "one/experiment.yaml").read_text())
    recipes = f"{SETTINGS}recipes: {{first: recipe.yaml}}\n"
    (root / "tiny/results.yaml").write_text(f"{recipes}trials: {{first: [plain, other]}}\n")
    changed = root / "two/experiment.yaml"
    changed.write_text(changed.read_text().replace("dropout: 0.1", "dropout: 0.25", 1))
    with_shortcuts = yaml.safe_load(changed.read_text())
    with_shortcuts["model"]["shortcuts"] = {"kind": "fusion"}
    changed.write_text(yaml.safe_dump(with_shortcuts, explicit_end=True))
    kept = trial(root, "two", "other")
    values = yaml.safe_load((kept / "experiment.yaml").read_text())
    del values["training"]["process_timeout"]  # as written by a version that did not know the key
    (kept / "experiment.yaml").write_text(yaml.safe_dump(values, explicit_end=True))
    trial(root, "one", "plain")
    assert {path.name for path in kept.iterdir()} == {"experiment.yaml", "log.jsonl", "versions.json"}
    plain, other = cells(TABLES["trials"](corpus_of(root / "tiny")))
    assert plain == ["First", "as its recipe", "1", "float32", "1,200", "8.000", "12.50"]
    assert other[:3] == [
        "First",
        "`model.dropout` 0.25, `model.shortcuts.input` embedding, `model.shortcuts.kind` fusion",
        "2",
    ]
    with pytest.raises(ConfigurationError, match="exists and is not empty"):
        trial(root, "one", "plain")
    with pytest.raises(ConfigurationError, match=r"results.yaml names no such trial"):
        trial(root, "one", "third")
    for lines, message in (
        (f"{SETTINGS}trials: {{third: [plain]}}\n", "trials names third, which systems does not"),
        (f"{SETTINGS}trials: {{second: [plain]}}\n", "trials names second, which has no recipe"),
        (f"{SETTINGS}curves: [third]\n", "curves names third, which systems does not"),
        (f"{recipes}costs: {{first/plain: Plain}}\n", "costs names first/plain, which trials does not"),
        (SETTINGS.replace("[6]", "[9, 6]"), "length_edges should rise"),
        (SETTINGS.replace("Second system", "First"), "systems has two of the name 'First'"),
        (SETTINGS.replace("{valid:", "{validation:"), "texts names no valid"),
    ):
        (root / "tiny/results.yaml").write_text(lines)
        with pytest.raises(ConfigurationError, match=message):
            CorpusSettings.load(root / "tiny")


def test_quality_is_held_against_cost(root: Path, tmp_path: Path) -> None:
    (root / "recipe.yaml").write_text((root / "one/experiment.yaml").read_text())
    (root / "tiny/results.yaml").write_text(
        f"{SETTINGS}recipes: {{first: recipe.yaml}}\ntrials: {{first: [plain, other]}}\n"
        "costs: {first/plain: Plain, first/other: Other}\n"
    )
    (root / "two/validation").mkdir()
    (root / "two/validation/step-00001200.txt").write_text("the cat sees\nthe dog\n")
    trial(root, "one", "plain")
    kept = trial(root, "two", "other")
    assert (kept / "valid.en").read_text() == "the cat sees\nthe dog\n"
    assert TABLES["costs"](corpus_of(root / "tiny")) == EMPTY
    ratios = {"first/plain": {"ratio": 1.0}, "first/other": {"ratio": 2.5}}
    (root / "tiny/costs.json").write_text(json.dumps({"systems": {"training": ratios, "translating": ratios}}))
    plain, other = cells(TABLES["costs"](corpus_of(root / "tiny")))
    assert plain == ["Plain", "12.50", "1.00", "1.00"]
    assert other[0] == "Other" and other[1].startswith("12.50 ± ") and other[2:] == ["2.50", "2.50"]
    drawn = draw(root / "tiny", tmp_path, root)
    assert [path.name for path in drawn] == ["results-tiny-costs.png"] and drawn[0].stat().st_size


def test_what_costs_names_and_was_not_measured_is_an_error(root: Path) -> None:
    (root / "recipe.yaml").write_text((root / "one/experiment.yaml").read_text())
    (root / "tiny/results.yaml").write_text(
        f"{SETTINGS}recipes: {{first: recipe.yaml}}\ntrials: {{first: [plain]}}\ncosts: {{first/plain: Plain}}\n"
    )
    ratios = {"first/plain": {"ratio": 1.0}}
    costs = root / "tiny/costs.json"
    costs.write_text(json.dumps({"systems": {"training": ratios, "translating": ratios}}))
    with pytest.raises(DataError, match="costs names first/plain, which is not kept"):
        corpus_of(root / "tiny")
    trial(root, "one", "plain")
    costs.write_text(json.dumps({"systems": {"training": ratios, "translating": {}}}))
    with pytest.raises(DataError, match=r"costs.json: lacks first/plain, which costs names"):
        corpus_of(root / "tiny")


def test_bleu_of_a_part_of_the_text_is_called_so(root: Path) -> None:
    (root / "recipe.yaml").write_text((root / "one/experiment.yaml").read_text())
    (root / "tiny/results.yaml").write_text(f"{SETTINGS}recipes: {{first: recipe.yaml}}\ntrials: {{first: [plain]}}\n")
    experiment = root / "one/experiment.yaml"
    experiment.write_text(experiment.read_text().replace("bleu_sentences: null", "bleu_sentences: 1"))
    trial(root, "one", "plain")
    assert cells(TABLES["trials"](corpus_of(root / "tiny")))[0][-1] == "12.50 (1 sentences)"


def test_what_is_missing_is_trained_and_collected_the_first_seed_of_all_systems_first(root: Path) -> None:
    write_corpus(root)
    values = tiny_recipe(root, segmentation={"kind": "word", "min_frequency": 1})
    (root / "recipe.yaml").write_text(json.dumps(values))
    recipes = "recipes: {second: recipe.yaml, first: recipe.yaml}\nseeds: [1, 2]\n"
    (root / "tiny/results.yaml").write_text(SETTINGS + recipes)
    settings = CorpusSettings.load(root / "tiny")
    assert list(missing(root / "tiny", settings)) == [("second", 1), ("first", 1), ("second", 2), ("first", 2)]
    for system in ("first", "second"):
        take(root, "two", system)  # the second seed
    arguments = (root / "tiny", root / "runs"), (["training.max_updates=2"], "cpu", lambda *_: None, root)
    assert list(train_missing(*arguments[0], 0, *arguments[1])) == []
    found = list(train_missing(*arguments[0], 600, *arguments[1]))
    assert found == [root / "tiny" / name for name in ("second/seed-1", "first/seed-1")]
    assert "max_updates: 2" in (found[0] / "experiment.yaml").read_text()
    assert list(train_missing(*arguments[0], 600, *arguments[1])) == []
    assert main(["train", str(root / "tiny"), "--minutes", "1", "--runs", str(root / "runs")]) == 0


def test_a_training_without_time_is_stopped_and_a_failed_one_is_no_run() -> None:
    waits = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(143)); time.sleep(60)"
    assert not ended([sys.executable, "-c", waits], 2)
    assert ended([sys.executable, "-c", "pass"], 60)
    assert not ended(["no-such-program"], 0), "nothing is begun without time"
    with pytest.raises(ModelError, match="ended with exit code 4"):
        ended([sys.executable, "-c", "raise SystemExit(4)"], 60)


def spoilt(references: list[str], share: float, seed: int) -> list[str]:
    chance = random.Random(seed)
    return [" ".join("?" if chance.random() < share else word for word in text.split()) for text in references]


@pytest.fixture
def collected(root: Path) -> Path:
    """A corpus with three runs of the first system and one of the second, which is worse."""
    chance = random.Random(3)
    texts = [" ".join(chance.choices(WORDS, k=3 + number % 8)) for number in range(60)]
    write_pairs(root, {name: [(text, text) for text in texts] for name in PAIRS})
    for system, seeds, share in (("first", (1, 2, 3), 0.1), ("second", (1,), 0.35)):
        for seed in seeds:
            folder = root / "tiny" / system / f"seed-{seed}"
            folder.mkdir(parents=True)
            write_log(folder)
            for name in PAIRS:
                lines = spoilt(texts, share, seed)
                (folder / f"{name}.en").write_text("".join(f"{line}\n" for line in lines))
            perplexity = {"valid": 2.0 * seed, "test": 3.0}
            CollectedMeasures("0", "s", False, 1234, 99, perplexity, {"valid": 0, "test": 0}, "abc").write(folder)
    return root / "tiny"


def corpus_of(folder: Path) -> Corpus:
    read_corpus.cache_clear()
    return read_corpus(folder, folder.parent)


def cells(table: str) -> list[list[str]]:
    """The rows of a table, without its head."""
    rows = [line.strip("|\n").split("|") for line in table.splitlines() if line.startswith("|")]
    assert len({len(row) for row in rows}) == 1, "rows of one length"
    return [[cell.strip() for cell in row] for row in rows[2:]]


def test_scores_are_means_over_seeds_and_a_single_run_is_called_so(collected: Path) -> None:
    corpus = corpus_of(collected)
    table = TABLES["scores"](corpus)
    first, second = cells(table)
    references = [list(corpus.eval_sets["test"].references)]
    bleu = [BLEU().corpus_score(spoilt(references[0], 0.1, seed), references).score for seed in (1, 2, 3)]
    assert first[:4] == ["First", "3", "1,234", f"{statistics.mean(bleu):.2f} ± {statistics.stdev(bleu):.2f}"]
    other = BLEU().corpus_score(spoilt(references[0], 0.35, 1), references).score
    assert second[:4] == ["Second system", "single run", "1,234", f"{other:.2f}"]
    assert first[4] == ""
    assert second[4].startswith(f"{other - statistics.mean(bleu):+.2f} ± ") and "**p" in second[4]
    assert "over seeds and sentences" in table and "tok:13a" in table


def test_nll_is_compared_where_it_was_collected(collected: Path) -> None:
    chance = random.Random(1)
    losses = {(1, "first"): 2.0, (2, "first"): 2.1, (3, "first"): 2.05, (1, "second"): 3.0}
    for (seed, system), nll in losses.items():
        lines = [f"{-5 * nll + chance.uniform(-1, 1):.4f}\t5\n" for _ in range(60)]
        (collected / system / f"seed-{seed}/test.likelihood.tsv").write_text("".join(lines))
    corpus = corpus_of(collected)
    first, second = cells(TABLES["scores"](corpus))
    nll = [-sum(run.likelihood("test").log_probabilities) / 300 for run in corpus.systems[0].runs]
    other = -sum(corpus.systems[1].runs[0].likelihood("test").log_probabilities) / 300
    assert first[-1] == ""
    assert second[-1].startswith(f"{other - statistics.mean(nll):+.3f} ± ") and "**p" in second[-1]
    by_length = [row for row in cells(TABLES["lengths"](corpus)) if row[2] == "nll"]
    rows = [number for number, each in enumerate(corpus.eval_sets["test"].sources) if len(each.split()) >= 6]
    losses = [
        statistics.mean(-run.likelihood("test").log_probabilities[row] / 5 for row in rows)
        for run in corpus.systems[0].runs
    ]
    assert [row[1] for row in by_length] == [str(60 - len(rows)), str(len(rows))]
    assert by_length[1][3] == f"{statistics.mean(losses):.3f} ± {statistics.stdev(losses):.3f}"
    assert "**p" in by_length[1][4]
    assert TABLES["likelihood"](corpus) == FEW  # those of the other text are missing
    for system, seed in (("first", 1), ("first", 2), ("first", 3), ("second", 1)):
        file = collected / system / f"seed-{seed}/test.likelihood.tsv"
        file.with_name("valid.likelihood.tsv").write_text(file.read_text())
    table = cells(TABLES["likelihood"](corpus_of(collected)))
    long = 2 * len(rows)
    names = [["1-5", str(120 - long)], ["6+", str(long)], ["all", "120"], ["from 6 on, less those below", str(long)]]
    assert [row[:2] for row in table] == names
    assert table[2][2] == f"{statistics.mean(nll):.3f}"
    assert table[2][3].startswith(f"{other - statistics.mean(nll):+.3f} ± ")
    assert float(table[1][2]) - float(table[0][2]) == pytest.approx(float(table[3][2]), abs=0.002)
    assert [row[2] for row in cells(TABLES["likelihood"](corpus.only(["second", "first"])))] != [
        row[2] for row in table
    ]
    (collected / "first/seed-2/test.likelihood.tsv").unlink()  # a mean of some runs is that of another system
    assert [row[-1] for row in cells(TABLES["scores"](corpus_of(collected)))] == ["", ""]


def test_two_single_runs_are_compared_over_sentences_alone(collected: Path) -> None:
    for seed in (2, 3):
        (collected / f"first/seed-{seed}").rename(collected.parent / f"away-{seed}")
    first, second = cells(TABLES["scores"](corpus_of(collected)))
    assert first[1] == second[1] == "single run"
    assert second[4].endswith("these runs") and "±" not in "".join(first + second)


def test_one_system_has_scores_without_a_comparison(collected: Path) -> None:
    (collected / "second/seed-1").rename(collected.parent / "away")
    [row] = cells(TABLES["scores"](corpus_of(collected)))
    assert row[1] == "3" and "±" in row[3] and row[4] == ""
    assert len(cells(TABLES["lengths"](corpus_of(collected)))) == 4
    for seed in (1, 2):
        (collected / f"first/seed-{seed}").rename(collected.parent / f"away-{seed}")
    [row] = cells(TABLES["scores"](corpus_of(collected)))
    assert row[1] == "single run" and "±" not in row[3]
    assert TABLES["lengths"](corpus_of(collected)) == ONE


def test_every_run_has_a_row_with_what_its_training_took(collected: Path) -> None:
    rows = cells(TABLES["runs"](corpus_of(collected)))
    assert [row[:2] for row in rows] == [["First", "1"], ["First", "2"], ["First", "3"], ["Second system", "1"]]
    assert rows[1][2:7] == ["5", "1,200", "1.0", "1 x CPU", "4.000"]
    assert rows[1][7] == rows[1][8]  # both texts are the same here
    assert rows[1][-1] == "`abc`"


def test_scores_by_length_cover_every_sentence_once(collected: Path) -> None:
    corpus = corpus_of(collected)
    rows = cells(TABLES["lengths"](corpus))
    assert [row[0] for row in rows] == ["1-5", "1-5", "6+", "6+"]
    assert sum(int(row[1]) for row in rows if row[2] == "BLEU") == 60
    short = [row for row, text in enumerate(corpus.eval_sets["test"].sources) if len(text.split()) < 6]
    references = [[corpus.eval_sets["test"].references[row] for row in short]]
    system = corpus.systems[1].runs[0].translations("test", "en")
    score = BLEU().corpus_score([system[row] for row in short], references).score
    assert rows[0][4].startswith(f"{score:.2f}")


def test_comparisons_by_length_are_counted(collected: Path) -> None:
    assert TABLES["lengths"](corpus_of(collected)).endswith(
        "p is against First: of 4 comparisons, chance would put 0 below 0.05.\n"
    )


def test_learning_is_told_by_epoch_as_what_others_lack(collected: Path) -> None:
    log = collected / "first/seed-2/log.jsonl"
    log.write_text(log.read_text().replace('"perplexity": 8.0', '"perplexity": 2.0'))
    first, second = cells(TABLES["learning"](corpus_of(collected)))
    assert first == ["First", "3", "2.996", f"{math.log(8 * 2 * 8) / 3:.3f}"]
    assert second == ["Second system", "1", "+0.000", f"{math.log(8) - math.log(8 * 2 * 8) / 3:+.3f}"]
    longer = collected / "second/seed-1/log.jsonl"
    longer.write_text(longer.read_text().replace("1200", "2400"))
    assert len(cells(TABLES["learning"](corpus_of(collected)))) == 1


def test_curves_are_drawn(collected: Path) -> None:
    read_corpus.cache_clear()
    written = draw(collected, collected.parent, collected.parent)
    assert [path.name for path in written] == ["results-tiny-perplexity.png", "results-tiny-bleu.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)
    assert [each.name for each in learning_curves(corpus_of(collected))] == ["First", "Second system"]
    settings = collected / "results.yaml"
    settings.write_text(f"{settings.read_text()}curves: [second]\n")
    assert [each.name for each in learning_curves(corpus_of(collected))] == ["Second system"]


def test_without_runs_there_is_no_table(root: Path) -> None:
    for table in TABLES.values():
        assert table(corpus_of(root / "tiny")) == EMPTY
    assert draw(root / "tiny", root, root) == []


def test_what_is_damaged_or_unknown_is_named(collected: Path) -> None:
    settings = CorpusSettings.load(collected)
    (collected / "first/seed-2/measured.json").write_text("{")
    with pytest.raises(ModelError, match=r"seed-2/measured.json: is missing or damaged"):
        read_systems(collected, settings)
    (collected / "first/seed-2").rename(collected / "first/seed-two")
    with pytest.raises(DataError, match=r"first/seed-two: is no run of a seed"):
        read_systems(collected, settings)
    (collected / "first/seed-two").rename(collected / "first/seed-2")
    (collected / "first/seed-2/measured.json").write_text((collected / "first/seed-1/measured.json").read_text())
    (collected / "second").rename(collected / "third")
    with pytest.raises(DataError, match="third: has no name"):
        read_systems(collected, settings)
    with pytest.raises(DataError, match=r"results.yaml: is missing"):
        CorpusSettings.load(collected / "third")


def test_a_translation_less_is_an_error(collected: Path) -> None:
    file = collected / "second/seed-1/test.en"
    file.write_text(file.read_text().partition("\n")[2])
    with pytest.raises(DataError, match="59"):
        TABLES["scores"](corpus_of(collected))


def test_the_command_collects_runs_of_several_seeds(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "tiny/results.yaml").write_text(SETTINGS.replace("path: ", f"path: {root}/"))
    assert main(["collect", str(root / "one"), str(root / "two"), str(root / "tiny/first"), "--device", "cpu"]) == 0
    assert capsys.readouterr().out.split() == [str(root / f"tiny/first/seed-{seed}") for seed in (1, 2)]
    assert main(["collect", str(root / "one"), str(root / "tiny/first")]) == ConfigurationError.exit_code
    assert "exists and is not empty" in capsys.readouterr().err


def test_the_corpora_of_this_repository_can_be_read() -> None:
    for path in sorted((REPOSITORY / "results").glob("*/results.yaml")):
        settings = CorpusSettings.load(path.parent)
        assert len(settings.eval_set("test", REPOSITORY).references) > 100
        for system in read_systems(path.parent, settings):
            for run in system.runs:
                assert run.translations("valid", settings.target_language)


def test_pages_hold_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    specification = importlib.util.spec_from_file_location("generate", REPOSITORY / "docs/generate.py")
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    page = "before\n<!-- begin: results NAME tatoeba-de-en -->\nold\n<!-- end -->\n"
    monkeypatch.setitem(module.TABLES, "title", lambda corpus: f"{corpus.settings.title}\n")
    assert module.generate(page.replace("NAME", "title")) == page.replace("NAME", "title").replace(
        "old", "Tatoeba German-English"
    )
