"""Commands without the packages of the extras: they work, or name the extra that they need."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from jointnmt.cli.main import COMMANDS
from support.tiny_run import write_run

HIDE = """
import json, sys
from importlib.machinery import PathFinder

class Hiding(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in HIDDEN else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Hiding
from jointnmt.cli.main import app
from typer.testing import CliRunner

for arguments in json.load(sys.stdin):
    done = CliRunner().invoke(app, arguments, input="der Hund sieht die Katze .\\n")
    print(json.dumps([done.exit_code, done.stdout, done.stderr]))
"""
MODULES = {
    "charset-normalizer": "charset_normalizer",
    "lightning-fabric": "lightning_fabric",
    "translate-toolkit": "translate",
}
"""Modules of packages with another name."""


def packages(pyproject: Path, extra: str) -> set[str]:
    """The modules of an extra's packages, those of the extras that it names included."""
    found = set()
    for requirement in tomllib.loads(pyproject.read_text())["project"]["optional-dependencies"][extra]:
        if requirement.startswith("jointnmt["):
            for other in requirement.removeprefix("jointnmt[").removesuffix("]").split(","):
                found |= packages(pyproject, other)
        else:
            name = requirement.partition(">=")[0].partition("[")[0]
            found.add(MODULES.get(name, name))
    return found


WORKING = [
    ["translate", "RUN"],
    ["translate", "RUN", "--json", "--alignments", "--num-best", "2"],
    ["translate", "RUN", "--sample", "--seed", "3"],
    ["translate", "RUN", "der Hund sieht . Die Katze .", "--precision", "bfloat16"],
    ["translate", "package:tatoeba-de-en-reformer-fast", "der Hund"],
    ["score", "RUN", "--source", "RUN/a.de", "--target", "RUN/a.en"],
    ["align", "RUN", "--source", "RUN/a.de", "--target", "RUN/a.en"],
    ["contrast", "RUN", "--source", "RUN/a.de", "--right", "RUN/a.en", "--wrong", "RUN/a"],
    ["info", "RUN"],
    ["info", "recipes/demo.yaml"],
    ["recipes"],
    ["data"],
    ["kernels", "status"],
    *([*command.split(), "--help"] for command in (*COMMANDS, "data check")),
]
REFUSED = [
    (["train", "recipes/demo.yaml", "--out", "RUN/new"], "train"),
    (["scale", "recipes/demo.yaml", "--out", "RUN/new"], "train"),
    (["report", "RUN", "--source", "x", "--reference", "y", "--out", "z.html"], "report"),
    (["attention", "RUN", "--text", "x", "--out", "RUN/x.png"], "report"),
    (["analyse", "RUN", "--source", "RUN/a", "--reference", "RUN/a", "--out", "RUN/new"], "report"),
    (["probe", "RUN", "--source", "RUN/a", "--reference", "RUN/a", "--out", "RUN/new"], "report"),
    (["explore", "RUN", "--text", "x", "--out", "RUN/new.html"], "report"),
    (["share", "RUN", "--out", "RUN/shared"], "report"),
    (["serve", "RUN"], "serve"),
    (["translate-corpus", "RUN", "RUN/a", "--out", "RUN/new"], "cluster"),
    (["export", "RUN", "--to", "ctranslate2", "--out", "RUN/new"], "export"),
    (["data", "check", "RUN/a.tsv"], "data"),
    (["init", "RUN/new", "--from", "RUN/a.tsv"], "data,train"),
    (["evaluate", "--hypothesis", "RUN/a", "--reference", "RUN/a", "--language", "en"], "report"),
]

Outcomes = dict[str, tuple[int, str, str]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = write_run(tmp_path_factory.mktemp("extras") / "run")
    for name, text in {
        "a.de": "der Hund sieht die Katze .\n",
        "a.en": "the dog sees the cat .\n",
        "a": "a\n",
        "a.tsv": "a\tb\n",
    }.items():
        (run / name).write_text(text, encoding="utf-8")
    return run


@pytest.fixture(scope="module")
def outcomes(repository: Path, run: Path) -> Outcomes:
    """Exit code, output and messages of each command, in one process where no package of any extra can be found."""
    hidden = packages(repository / "pyproject.toml", "all") | packages(repository / "pyproject.toml", "cluster")
    assert {"lightning_fabric", "matplotlib", "numpy", "sacrebleu", "tokenizers"} <= hidden
    commands = [*WORKING, *(arguments for arguments, _ in REFUSED)]
    given = [[word.replace("RUN", str(run)) for word in words] for words in commands]
    process = subprocess.run(
        [sys.executable, "-c", f"HIDDEN = {hidden!r}\n{HIDE}"],
        cwd=repository,
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert process.returncode == 0 and not process.stderr, process.stderr
    found = map(json.loads, process.stdout.splitlines())
    return {" ".join(words): outcome for words, outcome in zip(commands, found, strict=True)}


@pytest.mark.parametrize("command", map(" ".join, WORKING))
def test_what_needs_no_extra_works_without_any(command: str, outcomes: Outcomes) -> None:
    """Nor are there warnings of missing packages, such as PyTorch's of NumPy."""
    code, output, messages = outcomes[command]
    assert code == 0, messages
    assert len(output.splitlines()) >= 1
    assert "Warning" not in messages and "umpy" not in messages


@pytest.mark.parametrize(("arguments", "extra"), REFUSED)
def test_what_needs_an_extra_names_it(
    arguments: list[str], extra: str, repository: Path, run: Path, outcomes: Outcomes
) -> None:
    code, _, messages = outcomes[" ".join(arguments)]
    assert code == 5, messages
    package = re.search(r"The package (\w+) is needed, but not installed", messages)
    assert package is not None
    assert f"pip install 'jointnmt[{extra}]'" in messages
    assert any(package[1] in packages(repository / "pyproject.toml", each) for each in extra.split(","))
    assert not (run / "new").exists() and not (run / "shared").exists()
