"""README.md, CONTRIBUTING.md and docs/ are correct: commands, options, keys, numbers, links, Python examples."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

import pytest
import typer.main
import yaml
from pydantic import BaseModel
from typer.testing import CliRunner

from jointnmt.cli.main import COMMANDS, EXIT_CODES, SHARED_FLAGS, SUBCOMMANDS, app
from jointnmt.data.corpus import ParallelText
from jointnmt.errors import ConfigurationError
from jointnmt.experiment import Experiment, OptimizerConfig
from jointnmt.export import export_ctranslate2
from jointnmt.models import FAMILIES
from jointnmt.runs.provenance import MAY_CHANGE
from support.own_family import install
from support.tiny import tiny_recipe, write_corpus

REPOSITORY = Path(__file__).parents[2]
DOCS = sorted((REPOSITORY / "docs").glob("*.md"))
PAGES = [REPOSITORY / "README.md", *DOCS, REPOSITORY / "CONTRIBUTING.md", REPOSITORY / "CHANGELOG.md"]
OPERATORS = {"|", "<", ">", ">>", "&&", "||", ";", "&"}
NAMES = frozenset({*COMMANDS, *map(" ".join, SUBCOMMANDS)})
"""Names of commands, with one word and with two."""
SECTIONS = tuple(Experiment.model_fields)
FILE_ENDINGS = ("safetensors", "py", "yaml", "json", "jsonl", "md")

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, whether the page marks it as not to be run, and its content."""

    language: str
    runs: bool
    text: str


def blocks(page: Path, *languages: str) -> list[Block]:
    found = re.findall(r"^```(\w+)([^\n]*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)
    return [Block(language, "no-run" not in info, text) for language, info, text in found if language in languages]


def inline_code(page: Path) -> list[str]:
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    return [" ".join(code.replace(r"\|", "|").split()) for code in re.findall(r"`([^`]+)`", prose)]


def tables(page: Path) -> Iterator[list[str]]:
    """The rows of all tables, without heads."""
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("| ") and line.endswith("|"):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def simple_commands(line: str) -> Iterator[list[str]]:
    """The words of each part of a line of shell, without redirections."""
    words = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    words.whitespace_split = True
    part: list[str] = []
    for word in [*words, ";"]:
        if word not in OPERATORS:
            part.append(word)
        elif part:
            yield part
            part = []


def arguments(line: str) -> Iterator[list[str]]:
    """The arguments of every call of jointnmt in a line of shell, by name or as a module."""
    for words in simple_commands(line):
        if words[0] == "jointnmt" or ("-m", "jointnmt") in itertools.pairwise(words):
            given = words[words.index("jointnmt") + 1 :]
            given = [word for word in given if word not in SHARED_FLAGS]
            yield [" ".join(given[:2]), *given[2:]] if tuple(given[:2]) in SUBCOMMANDS else given


def block_commands(page: Path) -> list[list[str]]:
    """Calls of jointnmt in the page's shell blocks."""
    lines = [
        line.removeprefix("$ ")
        for block in blocks(page, "sh", "console")
        for line in block.text.replace("\\\n", " ").splitlines()
        if block.language == "sh" or line.startswith("$ ")
    ]
    return [call for line in lines for call in arguments(line)]


def inline_commands(page: Path) -> list[list[str]]:
    code = [text for text in inline_code(page) if text.startswith(("jointnmt ", "torchrun "))]
    return [call for text in code for call in arguments(text)]


@cache
def command(name: str) -> Any:
    """A command, with its options."""
    group: Any = typer.main.get_command(app)
    return group.resolve_command(group.context_class(group, info_name="jointnmt"), name.split())[1]


@cache
def options(name: str | None) -> frozenset[str]:
    """The options of a command, or those before any command."""
    owner = typer.main.get_command(app) if name is None else command(name)
    return frozenset(option for parameter in owner.params for option in parameter.opts) | {"--help", "-h"}


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory with the recipes and trained models; `examples/own_family` is installed."""
    install(tmp_path / "site")
    monkeypatch.syspath_prepend(tmp_path / "site")
    for name in ("recipes", "pretrained"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_recipes(page: Path, folder: Path) -> list[Path]:
    """The page's YAML blocks as files, by the name in their first line, or as additions to the previous recipe."""
    base, written = "recipes/multi30k/en-de-reformer-fast.yaml", []
    for number, block in enumerate(blocks(page, "yaml")):
        name = re.match(r"# (\S+\.yaml)\n", block.text)
        path = folder / (name[1] if name else f"fragment-{number}.yaml")
        values = yaml.safe_load(block.text)
        if "extends" not in values:
            values["extends"] = base
        path.write_text(yaml.safe_dump(values), encoding="utf-8")
        base = path.name if name else base
        written.append(path)
    return written


def check_settings(recipe: Path, settings: list[str]) -> None:
    """Load a recipe with settings; a directory, or a placeholder for a recipe, stands for one of any family."""
    recipes = [recipe] if recipe.suffix == ".yaml" else sorted((REPOSITORY / "recipes/multi30k").glob("en-de-*.yaml"))
    messages = []
    for path in recipes:
        try:
            Experiment.load(path, settings)
            return
        except ConfigurationError as error:
            messages.append(str(error))
    pytest.fail(messages[0])


@every_page
def test_commands_in_blocks_are_understood(page: Path, workspace: Path) -> None:
    """The command line accepts every call, with options and values; recipes and settings are valid."""
    write_recipes(page, workspace)
    begun = {Path(rest[0]) for name, *rest in block_commands(page) if name == "init"}
    for name, *rest in block_commands(page):
        if name.startswith("-"):
            assert name in options(None), name
            continue
        assert name in NAMES, f"{page.name}: there is no command {name}"
        given = command(name).make_context(name, rest).params
        for recipe in given.get("recipes", [given["recipe"]] if "recipe" in given else []):
            check_settings(Path("RECIPE") if recipe.parent in begun else recipe, given["settings"] or [])


@every_page
def test_commands_and_options_in_the_text_exist(page: Path, workspace: Path) -> None:
    write_recipes(page, workspace)
    for name, *rest in inline_commands(page):
        if name.startswith("-") or name == "COMMAND":
            assert {name, *rest} - {"COMMAND"} <= options(None), f"{page.name}: jointnmt {name} {rest}"
            continue
        assert name in NAMES, f"{page.name}: there is no command {name}"
        unknown = {word for word in rest if word.startswith("-")} - options(name)
        assert not unknown, f"{page.name}: jointnmt {name} has no {unknown}"
        settings = [rest[i + 1] for i, word in enumerate(rest) if word == "--set"]
        check_settings(Path(rest[0] if rest and rest[0].endswith(".yaml") else "RUN"), settings)
    known = frozenset.union(options(None), *(options(name) for name in NAMES))
    for text in inline_code(page):
        given = {word for word in text.split() if word.startswith("--")} if text.startswith("--") else set()
        assert given <= known, f"{page.name}: no command has {given - known}"


def known_keys() -> set[str]:
    """Every key of every family's configuration, and the keys above it."""
    return {
        ".".join(parts[:depth])
        for key in (*expected_defaults(), *(f"data.train.0.{name}" for name in ParallelText.model_fields))
        for parts in [key.split(".")]
        for depth in range(1, len(parts) + 1)
    }


@every_page
def test_keys_in_the_text_exist(page: Path) -> None:
    for text in inline_code(page):
        for word in text.split():
            key, equals, _ = word.partition("=")
            if not re.fullmatch(rf"({'|'.join(SECTIONS)})(\.\w+)*", key) or key.endswith(FILE_ENDINGS):
                continue
            if equals and "KEY" not in word:
                check_settings(Path("RECIPE"), [word])
            elif "." in key:
                assert key in known_keys(), f"{page.name}: there is no key {key}"


@every_page
def test_yaml_blocks_are_recipes(page: Path, workspace: Path) -> None:
    for path in write_recipes(page, workspace):
        Experiment.load(path)


@every_page
def test_paths_and_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for pattern in re.findall(r"(?<!\w)(?:recipes|src|tests|docs)/[\w./*-]*\w", text):
        assert list(REPOSITORY.glob(pattern)), f"{page.name}: there is no {pattern}"
    for code in inline_code(page):
        if re.fullmatch(r"[\w/]+\.py", code):
            there = [root for root in (REPOSITORY, REPOSITORY / "src/jointnmt") if (root / code).is_file()]
            assert there, f"{page.name}: there is no {code}"
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.is_file(), f"{page.name}: there is no {target}"
        assert not anchor or anchor in anchors(linked), f"{page.name}: there is no {target}"
    for goal in re.findall(r"`make (\w+)`|^make (\w+)", text, re.M):
        assert re.search(rf"^{goal[0] or goal[1]}:.*##", (REPOSITORY / "Makefile").read_text(), re.M), goal


def anchors(page: Path) -> set[str]:
    """Targets of links: headings in lower case, without punctuation, with hyphens for spaces."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_readme_lists_every_command_and_exit_code() -> None:
    rows = list(tables(PAGES[0]))
    listed = [re.fullmatch(r"`jointnmt ([\w-]+)`", row[0]) for row in rows]
    assert [match[1] for match in listed if match] == list(COMMANDS)
    assert [int(row[0]) for row in rows if row[0].isdigit()] == list(EXIT_CODES)


def test_the_page_on_performance_is_short() -> None:
    """Method, counts, and a table for each kind of processor; the engineering log has the trials."""
    page = (REPOSITORY / "docs/performance.md").read_text(encoding="utf-8")
    before, _, tables = page.partition("<!-- begin: machines -->")
    assert len((before + tables.partition("<!-- end -->")[2]).splitlines()) <= 225


def test_the_index_lists_every_page() -> None:
    index = REPOSITORY / "docs/README.md"
    for page in DOCS:
        assert page == index or f"({page.name})" in index.read_text(encoding="utf-8"), f"{index} does not name {page}"


def is_configuration(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def expected_defaults() -> dict[str, set[str]]:
    """The defaults of every key, as written in the tables; for a model's key, those of each family that has it."""
    found: dict[str, set[str]] = {}

    def walk(config: type[BaseModel], prefix: str) -> None:
        for attribute, field in config.model_fields.items():
            name = field.alias or attribute
            is_union = get_origin(field.annotation) in (Union, UnionType)
            kinds = get_args(field.annotation) if is_union else [field.annotation]
            parts = [kind for kind in kinds if is_configuration(kind) and kind is not OptimizerConfig]  # has any keys
            for part in parts if prefix or name != "model" else []:
                walk(part, f"{prefix}{name}.")
            if (prefix or name != "model") and (not parts or field.default is None):
                default = None if field.is_required() else field.default
                written = str(default) if isinstance(default, str | Path) else json.dumps(default)
                found.setdefault(prefix + name, set()).add("required" if field.is_required() else written)

    walk(Experiment, "")
    for config, _ in FAMILIES.values():
        walk(config, "model.")
    found["model.family"] = {"required"}
    return found


def test_configuration_pages_have_every_key_with_its_default() -> None:
    rows = [row for name in ("configuration.md", "models.md") for row in tables(REPOSITORY / "docs" / name)]
    stated = {
        key[1]: set(re.findall(r"`([^`]+)`", row[2])) or {row[2]}
        for row in rows
        if len(row) == 4 and (key := re.fullmatch(r"`([a-z_.]+)`", row[0]))
    }
    texts = {key: stated.pop(key) for key in ParallelText.model_fields}
    assert stated == expected_defaults()
    assert texts == {key: {json.dumps(field.default)} for key, field in ParallelText.model_fields.items()}


def test_generated_tables_are_up_to_date() -> None:
    """Recipe keys in configuration.md, parameter counts in models.md."""
    result = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"], cwd=REPOSITORY, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, f"{result.stderr}Run: python docs/generate.py"
    for page, count in (("configuration.md", 8), ("models.md", 3)):
        assert (REPOSITORY / "docs" / page).read_text(encoding="utf-8").count("<!-- begin: ") >= count


def test_architecture_names_what_may_change_in_a_run() -> None:
    text = (REPOSITORY / "docs/architecture.md").read_text(encoding="utf-8")
    paragraph = text[text.index("These keys may change") :].partition("\n\n")[0]
    assert tuple(re.findall(r"`([a-z_.]+)`", paragraph)) == MAY_CHANGE


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which `runs/mine` is a small Reformer-fast, trained for a moment."""
    folder = tmp_path_factory.mktemp("documented")
    write_corpus(folder)
    model = {"family": "reformer-fast", "num_layers": 1, "prenet_layers": 1}
    model |= {"embed_dim": 16, "num_heads": 2, "ffn_dim": 16, "dropout": 0.1}
    recipe = tiny_recipe(folder, model=model, training__tensorboard=True, training__max_updates=6)
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    result = CliRunner().invoke(app, ["train", str(folder / "recipe.yaml"), "--out", str(folder / "runs" / "mine")])
    assert result.exit_code == 0, result.output
    shipped = Path("package:tatoeba-de-en-transformer")
    export_ctranslate2(shipped, folder / "exported", "int8")
    return folder


def test_the_run_directory_holds_what_the_architecture_page_says(run: Path) -> None:
    rows = [row[0].strip("`") for row in tables(REPOSITORY / "docs/architecture.md")]
    names = [row for row in rows if row.endswith((".safetensors", ".yaml", ".jsonl", ".json"))]
    assert len(names) > 5
    for name in names:
        assert list((run / "runs/mine").glob(re.sub(r"step-\d+", "step-*", name))), name


def test_the_log_has_the_fields_that_the_tutorial_names(run: Path) -> None:
    lines = (run / "runs/mine/log.jsonl").read_text(encoding="utf-8").splitlines()
    records = {record["event"]: record for record in map(json.loads, lines)}
    rows = [row for row in tables(REPOSITORY / "docs/tutorial-small-corpus.md") if row[0].strip("`") in records]
    assert [row[0].strip("`") for row in rows] == ["train", "validation", "average"]
    for event, fields in rows:
        assert set(re.findall(r"`(\w+)`", fields)) <= set(records[event.strip("`")])


@every_page
def test_python_examples_run(page: Path, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run)
    names: dict[str, Any] = {}
    for block in blocks(page, "python"):
        code = compile(block.text, page.name, "exec")
        if block.runs:
            exec(code, names)


def test_the_recipe_by_hand_works_from_top_to_bottom(tmp_path: Path) -> None:
    """In a folder with only the recipes, with a corpus and a model small enough for a test."""
    (tmp_path / "recipes").symlink_to(REPOSITORY / "recipes")
    (recipe,) = blocks(PAGES[0], "yaml")
    (tmp_path / "mine.yaml").write_text(recipe.text, encoding="utf-8")
    text = PAGES[0].read_text(encoding="utf-8")
    start, end = text.index("## A recipe by hand"), text.index("## In Python")
    lines = [line for block in re.findall(r"```sh\n(.*?)```", text[start:end], re.S) for line in block.splitlines()]
    (unpack,) = re.findall("^jointnmt data .*--out data/tatoeba$", text, re.M)
    lines.insert(0, unpack)
    sizes = "--set model.embed_dim=16 --set model.ffn_dim=16 --set training.max_updates=2"
    smaller = "for file in data/tatoeba/*; do head -n 50 $file > lines; mv lines $file; done"
    script = []
    for line in lines:
        script.append(f"{line} {sizes} --quiet" if line.startswith("jointnmt train") else line)
        script += [smaller] * line.startswith("jointnmt data")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    settings = {"PATH": path, "JOINTNMT_CACHE": str(tmp_path / "cache"), "CUDA_VISIBLE_DEVICES": ""}
    result = subprocess.run(
        ["bash", "-e", "-c", "\n".join(script)],
        cwd=tmp_path,
        env={**os.environ, **settings, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    assert len((tmp_path / "runs/mine.en").read_text(encoding="utf-8").splitlines()) == 50
    assert "BLEU" in result.stdout
