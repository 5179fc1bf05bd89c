"""`jointnmt train` and `jointnmt average` as a user runs them, and the measures of validation."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
import torch
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from typer.testing import CliRunner, Result

from jointnmt.cli.main import app
from jointnmt.data.batches import load
from jointnmt.data.store import build_store
from jointnmt.experiment import Experiment
from jointnmt.hub import validation_scores
from jointnmt.model_card import validation_sentence
from jointnmt.models import build_model
from jointnmt.report.curves import read_learning_curves
from jointnmt.report.pictures import learning_pictures
from jointnmt.runs.averaging import average_checkpoints
from jointnmt.runs.directory import RunDirectory
from jointnmt.runs.weights import read_weights
from jointnmt.search import beam_search, rescore
from jointnmt.text.segmentation import Segmentation
from jointnmt.training.progress import NoDisplay
from jointnmt.training.run import train
from support.runs import log_records
from support.tiny import tiny_recipe, write_corpus

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "jointnmt", *map(str, arguments)]


def call(*arguments: object) -> Result:
    """Run a command in this process, for speed."""
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("command")
    write_corpus(folder)
    path = folder / "recipe.yaml"
    changes = {"validation__bleu_every": 1, "validation__bleu_sentences": None, "training__average_best": 1}
    path.write_text(yaml.safe_dump(tiny_recipe(folder, **changes)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def run(recipe: Path) -> Path:
    """A run that Ctrl-C stopped and the same command finished."""
    out = recipe.parent / "run"
    arguments = command("train", recipe, "--out", out)
    process = subprocess.Popen(arguments, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not (out / "checkpoints" / "last.safetensors").exists():
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    data, messages = process.communicate()
    assert process.returncode == 130, messages
    assert "The same command resumes" in " ".join(messages.split())
    assert data == ""
    result = subprocess.run(arguments, env=ENVIRONMENT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout == ""
    assert "resuming after update" in " ".join(result.stderr.split())
    return out


def test_another_configuration_is_refused(run: Path, recipe: Path) -> None:
    result = call("train", recipe, "--out", run, "--set", "model.dropout=0.2")
    assert result.exit_code == 2
    assert "model.dropout: 0.1 -> 0.2" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(("rate", "is_better"), [(0.01, False), (0.2, True)])
def test_the_average_is_kept_only_if_it_is_no_worse(tmp_path: Path, rate: float, is_better: bool) -> None:
    write_corpus(tmp_path)
    changes: dict[str, Any] = {"training__keep_best": 3, "training__average_best": 3, "validation__every_updates": 2}
    changes["training__schedule"] = {"warmup_steps": 4, "peak_rate": rate}
    settings = Experiment.parse(tiny_recipe(tmp_path, **changes), origin="test")
    train(settings, tmp_path / "run", NoDisplay())
    *others, average = (each for each in log_records(tmp_path / "run") if each["event"] in ("validation", "average"))
    best = min(others, key=lambda each: each["perplexity"])
    assert (average["perplexity"] <= best["perplexity"]) is is_better
    steps = average["steps"] if is_better else [best["step"]]
    paths = [tmp_path / "run" / "checkpoints" / f"step-{step:08d}.safetensors" for step in steps]
    expected = average_checkpoints(paths)
    model = tmp_path / "run" / "model.safetensors"
    assert all(torch.equal(tensor, expected[name]) for name, tensor in read_weights(model).items())
    scores = validation_scores(tmp_path / "run")
    assert scores is not None and scores["perplexity"] == min(average["perplexity"], best["perplexity"])
    changed = model.stat().st_mtime_ns
    train(settings, tmp_path / "run", NoDisplay())
    assert model.stat().st_mtime_ns == changed, "the training is finished"


def test_a_longer_training_keeps_the_record_of_the_average_before(tmp_path: Path) -> None:
    """Also if it now averages more checkpoints, so that the shorter training's last one is not its result."""
    write_corpus(tmp_path)
    changes: dict[str, Any] = {"training__keep_best": 3, "validation__every_updates": 1, "training__max_epochs": None}
    for updates, several in ((3, 2), (5, 3)):
        said = {**changes, "training__max_updates": updates, "training__average_best": several}
        train(Experiment.parse(tiny_recipe(tmp_path, **said), origin="test"), tmp_path / "run", NoDisplay())
    assert [each["step"] for each in log_records(tmp_path / "run") if each["event"] == "average"] == [3, 5]


def test_a_wrong_path_of_the_validation_text_is_told_first(tmp_path: Path, recipe: Path) -> None:
    """The error comes before the training text is segmented."""
    values = yaml.safe_load(recipe.read_text(encoding="utf-8"))
    values["data"]["validation"] = [{"source": "no.de", "target": "no.en"}]
    (recipe.parent / "wrong.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    result = call("train", recipe.parent / "wrong.yaml", "--out", tmp_path / "run")
    assert (result.exit_code, "no.de: the file cannot be read" in " ".join(result.stderr.split())) == (3, True)
    assert not (tmp_path / "run" / "segmentation").exists()


def test_the_last_weights_are_a_candidate_where_bleu_chooses(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    rules: dict[str, Any] = {"every_updates": 2, "metric": "bleu", "bleu_every": 3, "patience": None}
    settings = Experiment.parse(tiny_recipe(tmp_path, training__max_updates=4, validation=rules), origin="test")
    train(settings, tmp_path / "run", NoDisplay())
    found = [each["bleu"] for each in log_records(tmp_path / "run") if each["event"] == "validation"]
    assert found[0] is None and found[1] is not None


def test_chrf_chooses_where_it_is_the_metric(tmp_path: Path) -> None:
    """The best checkpoints, the average at the end and what is told of it go by chrF, which the log has beside BLEU."""
    write_corpus(tmp_path)
    rules: dict[str, Any] = {"every_updates": 20, "metric": "chrf", "bleu_every": 1, "patience": 50}
    changes = {"training__max_updates": 160, "training__average_best": 3, "training__keep_best": 3}
    changes |= {"training__tensorboard": True}
    settings = Experiment.parse(tiny_recipe(tmp_path, validation=rules, **changes), origin="test")
    run = tmp_path / "run"
    train(settings, run, NoDisplay())
    records = [each for each in log_records(run) if each["event"] in ("validation", "average")]
    references = (tmp_path / "valid.en").read_text(encoding="utf-8").splitlines()
    for record in records:
        written = RunDirectory(run).translations(record["step"], record["event"]).read_text(encoding="utf-8")
        chrf = sacrebleu.CHRF()
        score = chrf.corpus_score(written.splitlines(), [references]).score
        assert (record["chrf"], record["chrf_signature"]) == (pytest.approx(score), str(chrf.get_signature()))
        assert record["bleu"] is not None and record["signature"].startswith("nrefs:1")
    *validated, average = records
    ranked = sorted(validated, key=lambda each: -each["chrf"] if each["chrf"] >= 15 else each["nll"])
    assert average["steps"] == [each["step"] for each in ranked[:3]] and ranked[0]["chrf"] > 20
    kept = average if average["chrf"] >= ranked[0]["chrf"] else ranked[0]
    scores = validation_scores(run)
    assert scores is not None and scores["chrf"] == kept["chrf"]
    assert f", chrF2 {kept['chrf']:.2f} (`{kept['chrf_signature']}`) (" in validation_sentence(scores, "float32")
    curves = read_learning_curves(run, "run")
    assert curves.chrf == [(each["step"], each["chrf"]) for each in validated]
    assert [picture.title for picture in learning_pictures([curves])][1:] == [
        "BLEU of the validation text",
        "chrF2 of the validation text",
    ]
    tags = EventAccumulator(str(run / "tensorboard")).Reload().Tags()["scalars"]
    assert {"validation/chrf", "average/chrf", "validation/bleu"} <= {*tags}


def test_average_writes_weights_to_translate_with(run: Path, tmp_path: Path) -> None:
    result = call("average", run, "--best", 2, "--out", tmp_path / "mean.safetensors")
    assert result.exit_code == 0, result.stderr
    mean = read_weights(tmp_path / "mean.safetensors")
    one, other = (read_weights(path) for path in sorted((run / "checkpoints").glob("step-*"))[-2:])
    for name, tensor in mean.items():
        torch.testing.assert_close(tensor, (one[name] + other[name]) / 2)
    assert call("average", run, "--out", tmp_path / "x").exit_code == 2
    assert call("average", run, "--last", 99, "--out", tmp_path / "x").exit_code == 4
    assert "overwrites it" not in result.output
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    own = call("average", copy, "--best", 2, "--out", copy / "model.safetensors")
    assert "`jointnmt train` with this RUN overwrites it" in " ".join(own.output.split())


def test_average_of_nothing_or_into_a_folder_is_refused(tmp_path: Path) -> None:
    nowhere = call("average", tmp_path / "nowhere", "--best", 2, "--out", tmp_path / "x")
    assert (nowhere.exit_code, "there is no run here" in " ".join(nowhere.stderr.split())) == (4, True)
    folder = call("average", tmp_path, "--best", 2, "--out", tmp_path)
    assert (folder.exit_code, "is a folder" in " ".join(folder.stderr.split())) == (2, True)


def test_validation_measures_what_scoring_and_translating_give(run: Path) -> None:
    """Perplexity from log-probabilities, BLEU from sentences translated one by one, both with the best weights."""
    experiment = Experiment.load(run / "experiment.yaml")
    segmentation = Segmentation.load(run / "segmentation")
    sizes = segmentation.source.vocabulary_size, segmentation.target.vocabulary_size
    model = build_model(experiment.model, *sizes).eval()
    model.load_state_dict(read_weights(run / "model.safetensors"))
    store = build_store(experiment.data, segmentation, "validation")
    scores = [
        score for index in range(len(store)) for score in rescore(model, load(store, [index]))[0].log_probabilities
    ]
    translations = []
    for index in range(len(store)):
        hypothesis = beam_search(model, load(store, [index]).source, experiment.search)[0][0]
        translations.append(segmentation.target.decode_ids(list(hypothesis.ids)))
    references = [target for _, target in store.texts()]
    bleu = sacrebleu.BLEU(trg_lang="en")

    records = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    (best,) = [record for record in records if record["event"] == "validation" and record["best"]][-1:]
    assert best["perplexity"] == pytest.approx(math.exp(-sum(scores) / len(scores)), rel=1e-5)
    written = (run / "validation" / f"step-{best['step']:08d}.txt").read_text(encoding="utf-8").splitlines()
    assert written == translations
    assert best["bleu"] == pytest.approx(bleu.corpus_score(translations, [references]).score)
    assert best["signature"] == str(bleu.get_signature())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["training.max_updates=null"], "This training would never end"),
        (
            ["data.validation=[]", "validation.patience=2"],
            "validation.patience is 2, which needs a text in data.validation. Name one, or set "
            "validation.patience=null.",
        ),
        (["data.validation=[]", "validation.patience=null", "validation.metric=bleu"], "bleu, which needs a text"),
        (["validation.metric=bleu", "validation.bleu_every=0"], "metric is bleu, but validation.bleu_every is 0"),
        (["validation.metric=chrf", "validation.bleu_every=0"], "metric is chrf, but validation.bleu_every is 0"),
    ],
)
def test_a_training_without_an_end_or_a_measure_is_refused(
    recipe: Path, tmp_path: Path, changes: list[str], message: str
) -> None:
    settings = [word for change in changes for word in ("--set", change)]
    result = call("train", recipe, "--out", tmp_path / "run", *settings)
    assert result.exit_code == 2, result.output
    assert message in " ".join(result.stderr.split())
    assert not (tmp_path / "run").exists()
