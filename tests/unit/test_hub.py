"""Models as folders to share, and the Hub, without any request to it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from huggingface_hub import ModelCard

from jointnmt import Translator
from jointnmt.config import read_yaml
from jointnmt.errors import ConfigurationError, ModelError
from jointnmt.evaluation.scores import corpus_scores
from jointnmt.hub import HubFolder, validation_scores
from jointnmt.runs import checkpoint
from jointnmt.shipped import MODELS
from support.tiny import TinyModel
from support.tiny_run import write_run

TEXTS = ["der Hund sieht die Katze .", "", "die Katze hört !"]

VALIDATIONS = [
    {"event": "train", "step": 1, "loss": 3.0},
    {"event": "validation", "step": 1, "perplexity": 9.5, "bleu": 12.25, "signature": "nrefs:1|version:x"},
    {"event": "validation", "step": 2, "perplexity": 8.0, "bleu": None, "signature": None},
    {"event": "average", "step": 2, "steps": [2, 1], "perplexity": 7.0, "bleu": 20.0, "signature": "nrefs:1|version:x"},
]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    data = {
        "root": "/home/somebody/corpora",
        "cache": "/home/somebody/cache",
        "source_language": "de",
        "target_language": "en",
        "train": [{"source": "/home/somebody/secret/train.de.gz", "target": "train.en.gz"}],
        "validation": [{"path": "valid.tsv"}],
    }
    run = write_run(tmp_path / "run", data=data)
    (run / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in VALIDATIONS))
    return run


@pytest.fixture
def translator(run: Path) -> Translator:
    return Translator.load(run, device="cpu")


def card_of(folder: Path) -> ModelCard:
    return ModelCard.load(folder / "README.md")


def test_saved_and_loaded_is_the_same_translator(translator: Translator, tmp_path: Path) -> None:
    assert translator.save_pretrained(tmp_path / "saved") is None
    loaded = Translator.from_pretrained(tmp_path / "saved", device="cpu", precision="float32", max_cells=50)
    assert loaded.translate(TEXTS) == translator.translate(TEXTS)
    assert loaded.max_cells == 50
    assert loaded.segmentation.fingerprint() == translator.segmentation.fingerprint()
    for name, tensor in translator.model.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[name], tensor)


def test_the_folder_is_a_run_directory(translator: Translator, tmp_path: Path) -> None:
    translator.save_pretrained(tmp_path / "saved")
    names = {path.name for path in (tmp_path / "saved").iterdir()}
    assert names == {"experiment.yaml", "model.safetensors", "segmentation", "config.json", "README.md"}
    assert Translator.load(tmp_path / "saved", device="cpu").translate(TEXTS) == translator.translate(TEXTS)


def test_a_run_directory_can_be_loaded_as_well(run: Path, translator: Translator) -> None:
    assert Translator.from_pretrained(str(run), device="cpu").translate(TEXTS) == translator.translate(TEXTS)


def test_saving_again_replaces_the_model(translator: Translator, tmp_path: Path) -> None:
    translator.save_pretrained(tmp_path / "saved")
    with torch.no_grad():
        next(translator.model.parameters()).add_(1.0)
    translator.save_pretrained(tmp_path / "saved")
    loaded = Translator.from_pretrained(tmp_path / "saved", device="cpu")
    assert torch.equal(next(loaded.model.parameters()), next(translator.model.parameters()))


def test_what_else_the_folder_holds_stays(translator: Translator, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    translator.save_pretrained(saved)
    (saved / "README.md").write_text("mine")
    (saved / ".git").mkdir()
    (saved / ".git" / "HEAD").write_text("ref")
    (saved / "segmentation" / "old.json").write_text("{}")
    saved.chmod(0o750)
    translator.save_pretrained(saved)
    assert ((saved / "README.md").read_text(), (saved / ".git" / "HEAD").read_text()) == ("mine", "ref")
    assert not (saved / "segmentation" / "old.json").exists()
    assert saved.stat().st_mode & 0o777 == 0o750
    assert {path.name for path in tmp_path.iterdir()} == {"run", "saved"}


@pytest.mark.parametrize("moment", ["RunDirectory.write_experiment", "write_compact", "Parts.of"])
@pytest.mark.parametrize("error", [OSError("no space left"), KeyboardInterrupt()])
def test_a_save_that_fails_leaves_the_folder_as_it_was(
    translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, error: BaseException
) -> None:
    translator.save_pretrained(tmp_path / "saved")
    before = {path: path.read_bytes() for path in (tmp_path / "saved").rglob("*") if path.is_file()}

    def fail(*_: object) -> None:
        assert before == {path: path.read_bytes() for path in before}
        raise error

    monkeypatch.setattr(f"jointnmt.hub.{moment}", fail)
    with pytest.raises(type(error)):
        translator.save_pretrained(tmp_path / "saved")
    assert before == {path: path.read_bytes() for path in (tmp_path / "saved").rglob("*") if path.is_file()}
    assert {path.name for path in tmp_path.iterdir()} == {"run", "saved"}


@pytest.mark.parametrize("hindered", ["the volume's root", "no exchange"])
def test_a_folder_is_replaced_where_it_cannot_be_exchanged(
    translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hindered: str
) -> None:
    saved = tmp_path / "saved"
    translator.save_pretrained(saved)
    (saved / "README.md").write_text("mine")
    with torch.no_grad():
        next(translator.model.parameters()).add_(1.0)
    if hindered == "no exchange":  # as on systems other than Linux
        monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: None)
    else:
        monkeypatch.setattr(Path, "is_mount", lambda path: path == saved)
    translator.save_pretrained(saved)
    loaded = Translator.from_pretrained(saved, device="cpu")
    assert torch.equal(next(loaded.model.parameters()), next(translator.model.parameters()))
    names = {"experiment.yaml", "model.safetensors", "segmentation", "config.json", "README.md"}
    assert {path.name for path in saved.iterdir()} == names
    assert (saved / "README.md").read_text() == "mine"


@pytest.mark.parametrize("config", ["[" * 200_000, '{"jointnmt": ' + "9" * 5000 + "}", "[]", '"x"', "{broken"])
def test_a_hostile_config_is_left_aside(translator: Translator, tmp_path: Path, config: str) -> None:
    translator.save_pretrained(tmp_path / "saved")
    (tmp_path / "saved" / "config.json").write_text(config)
    loaded = Translator.from_pretrained(tmp_path / "saved", device="cpu")
    assert loaded.translate(TEXTS) == translator.translate(TEXTS)


def test_the_folder_does_not_tell_where_things_were(translator: Translator, tmp_path: Path) -> None:
    translator.save_pretrained(tmp_path / "saved")
    for path in (tmp_path / "saved").glob("*.*"):
        assert b"somebody" not in path.read_bytes(), path
    data = read_yaml(tmp_path / "saved" / "experiment.yaml")["data"]
    assert (data["root"], data["cache"]) == (".", None)
    assert (data["train"][0]["source"], data["train"][0]["target"]) == ("train.de.gz", "train.en.gz")
    assert translator.experiment.data.root == Path("/home/somebody/corpora")


def test_the_card_states_data_settings_scores_and_licence(translator: Translator, tmp_path: Path) -> None:
    scores = corpus_scores(["the dog sees the cat ."], ["the dog sees a cat ."], "en")
    translator.save_pretrained(
        tmp_path / "saved",
        model_card_kwargs={"scores": {"test2016": scores}, "licence": "CC BY 4.0", "data_licence": "research only"},
    )
    card = card_of(tmp_path / "saved")
    data = card.data.to_dict()
    assert (data["language"], data["library_name"], data["pipeline_tag"]) == (["de", "en"], "jointnmt", "translation")
    assert "reformer-fast" in data["tags"]
    assert data["license"] == "cc-by-4.0"
    for licence, of_hub in (("CC BY 2.0 FR", "other"), ("MIT", "mit")):  # the first is none of the Hub's
        assert HubFolder(translator).generate_model_card(licence=licence).data.license == of_hub
    for expected in ("`train.de.gz`", "`train.en.gz`", "`valid.tsv`", "research only", "CC BY 4.0"):
        assert expected in card.text
    signature = scores.bleu.signature.replace("|", r"\|")  # a bar would start another column
    assert "Of the stored weights, computed in float32:\n\n| test set |" in card.text
    assert f"| test2016 | BLEU | {scores.bleu.value:.2f} | `{signature}` |" in card.text
    parameters = sum(parameter.numel() for parameter in translator.model.parameters())
    assert f"{parameters:,} parameters" in card.text
    settings = yaml.safe_load(card.text.partition("```yaml\n")[2].partition("```")[0])
    assert settings["model"] == translator.experiment.model.plain()


def test_the_card_without_licence_and_scores_says_so(translator: Translator) -> None:
    translator.run = None
    card = HubFolder(translator).generate_model_card()
    assert card.text.count("not stated yet") == 3
    assert "No validation scores are recorded." in card.text
    assert card.data.license == "unknown"


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([1], "in training, in float32: perplexity 9.500, BLEU 12.25 (`nrefs:1|version:x`) (update 1)"),
        ([2], "perplexity 8.000 (update 2)"),
        ([2, 1], "perplexity 7.000, BLEU 20.00 (`nrefs:1|version:x`) (average of the weights after updates 2, 1)"),
        ([3], "No validation scores are recorded."),
    ],
)
def test_validation_scores_are_those_of_the_weights(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: list[int], expected: str
) -> None:
    tensors, _ = checkpoint.read(run / "model.safetensors")
    checkpoint.write(run / "model.safetensors", tensors, {"steps": steps})
    Translator.load(run, device="cpu").save_pretrained(tmp_path / "saved")
    assert expected in card_of(tmp_path / "saved").text
    again = Translator.from_pretrained(tmp_path / "saved", device="cpu")  # they are kept on saving
    again.save_pretrained(tmp_path / "again")
    assert expected in card_of(tmp_path / "again").text


def test_changed_weights_do_not_have_the_scores_of_the_run(translator: Translator, tmp_path: Path) -> None:
    translator.save_pretrained(tmp_path / "before", weights="bfloat16")
    stored = Translator.from_pretrained(tmp_path / "before", device="cpu")
    for each, name in ((translator, "of a run"), (stored, "of a folder")):
        each.save_pretrained(tmp_path / "unchanged" / name)
        with torch.no_grad():
            each.trained.source_embedding.weight[5] += 1  # type: ignore[union-attr, operator, index]
        each.save_pretrained(tmp_path / name)
        assert "perplexity 9.500" in card_of(tmp_path / "unchanged" / name).text
        assert "No validation scores are recorded." in card_of(tmp_path / name).text
        assert validation_scores(tmp_path / name) is None
        steps = [checkpoint.read(tmp_path / of / "model.safetensors")[1]["steps"] for of in (f"unchanged/{name}", name)]
        assert steps == [[1], []]


def test_a_model_of_the_package_keeps_its_scores() -> None:
    name = "tatoeba-de-en-transformer"
    found = validation_scores(Path(f"package:{name}"))
    assert found is not None and found == validation_scores(MODELS / name)


def test_a_line_of_the_log_that_is_not_finished_is_left_out(run: Path) -> None:
    before = validation_scores(run)
    with (run / "log.jsonl").open("a", encoding="utf-8") as log:
        log.write('{"event": "validation", "st')
    assert before is not None
    assert validation_scores(run) == before


class FakeApi:
    """The part of huggingface_hub's HfApi that pushing uses; keeps uploaded files."""

    def __init__(self, token: str | None = None) -> None:
        self.token = token

    def create_repo(self, repo_id: str, **_: Any) -> SimpleNamespace:
        return SimpleNamespace(repo_id=repo_id)

    def upload_folder(self, repo_id: str, folder_path: Path, commit_message: str, **_: Any) -> str:
        uploaded[repo_id] = {
            path.relative_to(folder_path).as_posix(): path.read_bytes() for path in folder_path.rglob("*.*")
        }
        return f"https://huggingface.co/{repo_id}/commit/{commit_message}"


uploaded: dict[str, dict[str, bytes]] = {}


def test_pushing_uploads_the_folder_and_its_card(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.hub_mixin.HfApi", FakeApi)
    address = translator.push_to_hub("somebody/de-en", commit_message="first", model_card_kwargs={"licence": "MIT"})
    assert address == "https://huggingface.co/somebody/de-en/commit/first"
    files = uploaded["somebody/de-en"]
    assert {"experiment.yaml", "model.safetensors", "config.json", "README.md"} < set(files)
    assert any(name.startswith("segmentation/") for name in files)
    assert b'Translator.from_pretrained("somebody/de-en")' in files["README.md"]
    assert b"hf download somebody/de-en --local-dir somebody/de-en" in files["README.md"]
    assert b"MIT" in files["README.md"]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("ensemble", "saved as one model"),
        ("weights", "must be one of float32"),
        ("wrapper", "This TinyModel is not"),
    ],
)
def test_what_cannot_be_saved_makes_no_repository(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, message: str
) -> None:
    monkeypatch.setattr("huggingface_hub.hub_mixin.HfApi", lambda **_: pytest.fail("the Hub was asked"))
    runs = [run, write_run(tmp_path / "other", seed=2)] if kind == "ensemble" else run
    translator = Translator.load(runs, device="cpu")
    if kind == "wrapper":
        translator = Translator(TinyModel(), translator.segmentation, translator.experiment)
    options: Any = {"weights": "float64"} if kind == "weights" else {}
    with pytest.raises((ConfigurationError, ModelError), match=message):
        translator.push_to_hub("somebody/de-en", **options)


def test_a_translator_in_int8_is_saved_as_it_was_trained(run: Path, tmp_path: Path) -> None:
    Translator.load(run, "cpu", "int8").save_pretrained(tmp_path / "saved")
    saved, trained = (Translator.load(each, "cpu").trained.state_dict() for each in (tmp_path / "saved", run))
    assert all(torch.equal(saved[name], trained[name]) for name in trained)


def test_a_model_of_the_hub_is_downloaded_and_loaded(
    translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator.save_pretrained(tmp_path / "saved")
    asked: dict[str, Any] = {}

    def download(repo_id: str, **options: Any) -> str:
        asked.update(options, repo_id=repo_id)
        return str(tmp_path / "saved")

    monkeypatch.setattr("jointnmt.hub.snapshot_download", download)
    loaded = Translator.from_pretrained("somebody/de-en", revision="v1", device="cpu")
    assert (asked["repo_id"], asked["revision"]) == ("somebody/de-en", "v1")
    assert loaded.translate(TEXTS) == translator.translate(TEXTS)


@pytest.mark.parametrize("name", ["no/such/folder", "somebody/de-en"])
def test_what_is_nowhere_is_a_model_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelError, match=name):
        Translator.from_pretrained(name, local_files_only=True, cache_dir=tmp_path, device="cpu")


def test_a_name_that_no_model_of_the_hub_can_have_is_not_asked_for_there() -> None:
    with pytest.raises(ModelError, match="no such folder, and models on the Hub are named USER/NAME"):
        Translator.from_pretrained("mistyped", device="cpu")


SHAPES = ('{"perplexity": 3.4}', '"x"', "[1]")
DAMAGED = ("{broken", "[]", *(f'{{"jointnmt": {{"validation": {shape}}}}}' for shape in SHAPES))


@pytest.mark.parametrize("damaged", DAMAGED)
def test_a_damaged_record_is_a_model_error(translator: Translator, tmp_path: Path, damaged: str) -> None:
    translator.save_pretrained(tmp_path / "saved")
    (tmp_path / "saved" / "config.json").write_text(damaged)
    with pytest.raises(ModelError, match=r"config\.json: is damaged"):
        Translator.load(tmp_path / "saved", device="cpu").save_pretrained(tmp_path / "again")


@pytest.mark.parametrize("error", [ValueError("of a family"), OSError(28, "No space left on device")])
def test_what_goes_wrong_in_loading_is_not_taken_for_something_else(
    translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    translator.save_pretrained(tmp_path / "saved")

    def load(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(Translator, "load", load)
    with pytest.raises(type(error), match=str(error.args[-1])):
        Translator.from_pretrained(tmp_path / "saved")


def test_the_run_of_a_training_is_not_written_over(translator: Translator, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (run / "checkpoints").mkdir(exist_ok=True)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(ConfigurationError, match="is the RUN of a training"):
        translator.save_pretrained(run)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_models_of_the_package_have_their_names() -> None:
    loaded = Translator.from_pretrained("package:tatoeba-de-en-transformer", device="cpu")
    assert loaded.translate("Danke!") == "Thank you."


def test_a_hub_that_cannot_be_reached_is_told(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise ConnectionError("Name or service not known")

    monkeypatch.setattr("huggingface_hub.hub_mixin.HfApi", refuse)
    with pytest.raises(ModelError, match=r"somebody/de-en: cannot be uploaded .*Name or service not known"):
        translator.push_to_hub("somebody/de-en")


def test_an_option_that_nobody_knows_is_refused(translator: Translator, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="weigths"):
        translator.save_pretrained(tmp_path / "saved", weigths="float16")
    assert not (tmp_path / "saved").exists()


def test_a_folder_without_a_model_is_a_model_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"experiment\.yaml"):
        Translator.from_pretrained(tmp_path, device="cpu")
