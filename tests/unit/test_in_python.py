"""The interface for Python and notebooks: options as keywords, tables, pictures, trainings."""

from __future__ import annotations

import inspect
import pickle
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import jointnmt
from jointnmt import Translator
from jointnmt.errors import ConfigurationError, DataError
from jointnmt.experiment import Experiment
from jointnmt.models.transformer import TransformerConfig
from jointnmt.search import SamplingConfig, SearchConfig
from jointnmt.translator import TranslationOptions, records
from support.tiny import tiny_recipe, write_corpus
from support.tiny_run import write_run

TEXTS = ["der Hund sieht die Katze .", "", "die Katze hört"]


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    return Translator.load(write_run(tmp_path_factory.mktemp("python") / "mine"), "cpu")


def test_options_are_keywords(translator: Translator) -> None:
    beam = SearchConfig.parse({**translator.experiment.search.plain(), "beam_size": 2}, "test")
    expected = list(translator.translate_stream(TEXTS, TranslationOptions(beam, num_best=2)))
    assert translator.translate(TEXTS, beam_size=2, num_best=2) == [
        [each.text for each in translation.candidates] for translation in expected
    ]
    assert translator.translate(TEXTS, beam_size=2) == [translation.text for translation in expected]
    assert translator.translations(TEXTS, beam_size=2, num_best=2) == expected
    assert translator.translations(TEXTS, TranslationOptions(beam, num_best=2), ["", "", "the"])[:2] == expected[:2]
    assert translator.translate(TEXTS[0]) == translator.translate(TEXTS[:1])[0]
    assert (
        translator.translate(TEXTS[0], prefixes="the cat") == translator.translate(TEXTS[:1], prefixes=["the cat"])[0]
    )


def test_sampling_is_a_keyword(translator: Translator) -> None:
    drawn = SamplingConfig.parse({"temperature": 2.0, "max_length_offset": 3}, "test")
    options = TranslationOptions(drawn, seed=5)
    assert translator.translate(TEXTS, sample=True, temperature=2.0, seed=5) == translator.translate(TEXTS, options)
    assert translator.translate(TEXTS, options, seed=6) == translator.translate(
        TEXTS, TranslationOptions(drawn, seed=6)
    )


def test_wrong_options_are_refused(translator: Translator) -> None:
    with pytest.raises(TypeError, match="beam is not an option of a translation: did you mean beam_size"):
        translator.translate(TEXTS, beam=3)
    with pytest.raises(TypeError, match="give num_best=2 to translate itself"):
        translator.translate(TEXTS, TranslationOptions(num_best=2))
    for given in (None, 5, {"a": "b"}):
        with pytest.raises(TypeError, match=f"a list of texts is needed, not a {type(given).__name__}"):
            translator.translate(given)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="a list of prefixes is needed, not a single one"):
        translator.translate(TEXTS, prefixes="Hel")
    with pytest.raises(TypeError, match="give a list"):
        translator.translate(TEXTS[0], num_best=2)
    with pytest.raises(ConfigurationError, match="temperature is for sampling"):
        translator.translate(TEXTS, temperature=0.5)  # without sample=True
    with pytest.raises(ConfigurationError, match="beam_size is not for sampling"):
        translator.translate(TEXTS, sample=True, beam_size=3)
    with pytest.raises(ConfigurationError, match="beam_size: should be at least 1"):
        translator.translate(TEXTS, beam_size=0)


def test_its_representation_says_what_it_is(translator: Translator) -> None:
    count = sum(parameter.numel() for parameter in translator.trained.parameters())
    assert repr(translator) == f"<Translator mine: reformer-fast, de to en, {count:,} parameters, float32 on cpu>"
    run = translator.run
    assert run is not None
    other = write_run(run.parent / "other", model={"ffn_dim": 16})
    assert repr(Translator.load([run, other], "cpu", "bfloat16")).startswith(
        "<Translator mine + other: reformer-fast, "
    )


def test_records_are_rows_of_a_table(translator: Translator) -> None:
    found = translator.translations(TEXTS, num_best=2)
    rows = records(found)
    assert [(row["line"], row["rank"]) for row in rows] == [(1, 1), (1, 2), (2, 1), (3, 1), (3, 2)]
    best = found[0].candidates[1]
    assert rows[1] == {
        **{"line": 1, "rank": 2, "source": TEXTS[0], "translation": best.text, "score": best.score},
        **{"log_probability": best.log_probability, "complete": best.complete, "num_tokens": len(best.tokens)},
    }
    assert (rows[2]["translation"], rows[2]["score"], rows[2]["num_tokens"]) == ("", 0.0, 0)


def test_attention_is_of_one_text(translator: Translator) -> None:
    with pytest.raises(TypeError, match="takes one text"):
        translator.attention(TEXTS)  # type: ignore[arg-type]


def test_changed_weights_translate_once_a_translator_is_made_of_them(translator: Translator) -> None:
    changed = deepcopy(translator.trained)
    for parameter in changed.parameters():
        torch.nn.init.zeros_(parameter)
    again = Translator(changed, translator.segmentation, translator.experiment)
    assert again.score(TEXTS[:1], TEXTS[:1]) != translator.score(TEXTS[:1], TEXTS[:1])


def test_attention_draws_itself(translator: Translator) -> None:
    trace = translator.attention("der Hund <b>", "the dog &")
    assert trace.alignment.shape == (4, 4)
    assert trace.alignment.sum(1) == pytest.approx(np.ones(4), abs=1e-5)
    drawn = trace._repr_html_()
    cells = re.findall(r"<td style=[^>]*>([\d.]+)</td>", drawn)
    assert [float(cell) for cell in cells] == pytest.approx(trace.alignment.flatten(), abs=0.006)
    assert "<b>" not in drawn and "&lt;/s&gt;" in drawn
    assert translator.attention(TEXTS[0]).target_pieces == translator.translate(TEXTS[0]).split()


@pytest.mark.slow
def test_training_takes_a_file_values_or_an_experiment(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    values = tiny_recipe(tmp_path, training__max_updates=4)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(values), encoding="utf-8")
    logs = {}
    for name, given in (("file", recipe), ("values", values), ("experiment", Experiment.load(recipe))):
        logs[name] = jointnmt.train(given, tmp_path / name, ["training.max_updates=2"])
        assert max(record["step"] for record in logs[name]) == 2
        assert Translator.load(tmp_path / name, "cpu").experiment.training.max_updates == 2
    assert len({len(log) for log in logs.values()}) == 1


def test_settings_act_on_an_experiment_as_on_its_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_corpus(tmp_path)
    recipe, trained = tiny_recipe(tmp_path, model__family="transformer"), list[Experiment]()
    monkeypatch.setattr("jointnmt.training.run.train", lambda experiment, *_: trained.append(experiment))
    monkeypatch.setattr("jointnmt.training.run.read_records", lambda _: [])
    for settings in (
        {"name": "run 😀", "training.max_updates": 2, "data.cache": tmp_path / "cache"},
        {"model.family": "reformer-fast"},
        {"model.shortcuts.kind": "plain", "model.emelin_compatible": True},
    ):
        for given in (recipe, Experiment.load(recipe)):
            jointnmt.train(given, tmp_path / "run", settings)
        of_recipe, of_experiment = trained[-2:]
        assert of_experiment == of_recipe
    sizes = {**recipe["model"], "family": "transformer"}
    model = TransformerConfig(**{key: value for key, value in sizes.items() if key != "family"})
    made = Experiment.load(recipe).model_copy(update={"model": model})
    assert Experiment.load(made.given()) == made == Experiment.load({**recipe, "model": sizes})
    assert trained[0].name == "run 😀" and trained[-1].training.loss_mean == "sentences"
    plain: list[tuple[Any, str]] = [
        ({"name": "\ud83d"}, "not plain"),
        ({"data": {(): 1}}, "not plain"),
        ({3: 1}, "text"),
    ]
    for wrong, said in plain:
        with pytest.raises(ConfigurationError, match=said):
            jointnmt.train(recipe, tmp_path / "run", wrong)
    tagged = Experiment.load(recipe, ["data.train.0.tag=<b>", "segmentation.tags=[<a>]"])
    assert tagged.segmentation.tags == ("<a>", "<b>")
    assert Experiment.load(tagged.given(), {"data.train.0.tag": None}).segmentation.tags == ("<a>",)
    two = "data.train=[{path: b.tsv, tag: <b>}, {path: a.tsv, tag: <a>}]"
    for tags in ("[]", "[<a>]", "[<a>, <b>]", "[<c>, <b>]"):
        of_recipe = Experiment.load(recipe, [two, f"segmentation.tags={tags}"])
        assert Experiment.load(of_recipe.given()) == of_recipe, tags
        assert of_recipe.given()["segmentation"]["tags"] == yaml.safe_load(tags.replace("<", "'<").replace(">", ">'"))
    untagged = {"data.train.0.tag": None, "data.train.1.tag": None}
    explicit = Experiment.load(recipe, [two, "segmentation.tags=[<a>, <b>]"]).given()
    assert Experiment.load(explicit, untagged).segmentation.tags == ("<a>", "<b>")
    lower = Experiment.load(recipe, ["segmentation.kind=bpe", "segmentation.lowercase=true"])
    with pytest.raises(ConfigurationError, match=r"does not fit the model of training\.from"):
        jointnmt.train(lower, tmp_path / "run", {"training.from": "package:tatoeba-de-en-transformer"})


def test_train_is_a_function() -> None:
    """Help, wrappers and process pools need a function."""
    assert list(inspect.signature(jointnmt.train).parameters) == ["recipe", "out", "settings", "display", "mirror"]
    assert pickle.loads(pickle.dumps(jointnmt.train)) is jointnmt.train


def test_values_are_what_a_recipe_in_the_working_directory_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    values = {
        "extends": "package:tatoeba/de-en-transformer",
        "data": {"train": [{"path": "mine.tsv"}], "source_language": "de", "target_language": "en"},
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(values))
    assert Experiment.load(values) == Experiment.load(Path("recipe.yaml"))
    assert values["extends"], "they stay as they were"
    values["data"]["source_language"] = "german"
    for refused, said in (
        (values, "recipe: data.source_language: 'german' is not a language code"),
        ({"extends": "missing.yaml"}, "recipe: extends a recipe that cannot be read"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            jointnmt.train(refused, tmp_path / "run")
    with pytest.raises(TypeError, match=r'pass \["training.max_updates=1"\]'):
        jointnmt.train(values, tmp_path / "run", "training.max_updates=1")
    with pytest.raises(DataError, match=r"mine\.tsv"):
        jointnmt.train({**values, "data": {**values["data"], "source_language": "de"}}, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_training_tells_once_what_is_removed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_corpus(tmp_path)
    text = tmp_path / "train.de"
    text.write_text("\n" + text.read_text(encoding="utf-8").partition("\n")[2], encoding="utf-8")
    jointnmt.train(tiny_recipe(tmp_path), tmp_path / "run", {"training.max_updates": 1, "data.filters.empty": "drop"})
    (told,) = (record for record in caplog.records if "empty source: 1" in record.getMessage())
    assert told.levelname == "WARNING"
