"""Imports between packages, modules that inference may load, and rules of library code, checked in the source."""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from jointnmt.runs import code
from support.tiny_run import write_run

PACKAGE = Path(__file__).parents[2] / "src" / "jointnmt"
PAGE = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8")

TIERS = (
    ("errors", "bounded_yaml"),
    ("config", "cache", "compression", "cores", "extensions", "extras", "files", "interruption", "shipped"),
    ("text", "ops"),
    ("data",),
    ("models",),
    ("search", "evaluation", "recipe"),
    ("experiment",),
    ("runs", "model_card"),
    ("training", "hub", "export"),
    ("translator",),
    ("testset", "analysis"),
    ("serving", "report", "scaling", "planning", "cluster"),
    ("cli",),
)
"""Tiers from the bottom: a unit may import itself and units of lower tiers, but no other one of its tier."""

RANKS = {unit: rank for rank, units in enumerate(TIERS) for unit in units}

NARROWED: dict[tuple[str, str], set[str]] = {
    ("models", "text"): {"jointnmt.text.special"},
    ("models", "data"): set(),
    ("search", "models"): {"jointnmt.models.interface"},
}
"""Units of which only a part may be imported: models take tensors; search knows no concrete model."""

INFERENCE = ("jointnmt.translator", "jointnmt.hub")
TRAINING = ("jointnmt.training",)

MODULES = sorted(
    path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).as_posix() not in ("__init__.py", "__main__.py")
)


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for path in MODULES}


def unit_of(module: str) -> str:
    """The unit that a module such as `jointnmt.text.special` belongs to."""
    return module.split(".")[1]


def imports(tree: ast.AST) -> Iterator[str]:
    """All imported modules, anywhere in the file, except under `if TYPE_CHECKING`."""
    if isinstance(tree, ast.If) and ast.unparse(tree.test).endswith("TYPE_CHECKING"):
        return
    if isinstance(tree, ast.Import):
        yield from (alias.name for alias in tree.names)
    if isinstance(tree, ast.ImportFrom):
        assert tree.level == 0, "imports are absolute"
        assert tree.module is not None
        is_package = (PACKAGE.parent / tree.module.replace(".", "/")).is_dir()
        yield from (f"{tree.module}.{alias.name}" if is_package else tree.module for alias in tree.names)
    for child in ast.iter_child_nodes(tree):
        yield from imports(child)


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def relative(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def is_of(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


@pytest.mark.parametrize("packages", [code.TRANSLATING, code.TRAINING], ids=lambda names: names[-1])
def test_digests_of_code_cover_all_packages_that_results_depend_on(packages: tuple[str, ...]) -> None:
    modules = [path for name, path in FILES.items() if unit_of(name) in packages]
    used = {unit_of(name) for path in modules for name in imports(parse(path)) if name.startswith("jointnmt.")}
    assert {unit for unit in used if (PACKAGE / unit).is_dir()} <= {*packages}


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_imports_point_down(path: Path) -> None:
    unit = unit_of(module_name(path))
    assert unit in RANKS, f"{unit} has no tier: say where it belongs"
    for name in imports(parse(path)):
        if not name.startswith("jointnmt."):
            continue
        other = unit_of(name)
        if other == unit or other not in RANKS:  # not a unit: a name of the package itself, such as __version__
            continue
        assert RANKS[other] < RANKS[unit], f"{unit} must not import {name}"
        allowed = NARROWED.get((unit, other))
        assert allowed is None or any(name == part or name.startswith(f"{part}.") for part in allowed), (
            f"of {other}, {unit} may import {allowed}, not {name}"
        )


def test_the_page_shows_these_tiers() -> None:
    shown = re.search(r"```text\n(cli\n.*?)```", PAGE, re.DOTALL)
    assert shown is not None
    assert [set(line.split(", ")) for line in reversed(shown[1].splitlines())] == [set(units) for units in TIERS]


def test_the_page_lists_every_package_and_no_other() -> None:
    table = PAGE.partition("## Packages")[2].partition("Imports point down")[0]
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    listed = {path.split("/")[0].removesuffix(".py") for row in rows for path in re.findall(r"`(.+?)`", row)}
    assert listed == set(RANKS)
    assert listed == {unit_of(module_name(path)) for path in MODULES}


def test_what_the_page_says_where_to_look_first_is_there() -> None:
    rows = PAGE.partition("Where to look first:")[2].partition("## Packages")[0].splitlines()[4:]
    assert len(rows) > 3
    for row in filter(None, rows):
        words = re.findall(r"`(.+?)`", row)
        text = "".join((PACKAGE / word).read_text(encoding="utf-8") for word in words if word.endswith(".py"))
        names = [name for word in words if not word.endswith(".py") for name in word.split(".")]
        assert not [name for name in names if not re.search(rf"^ *(def|class) {name}\b", text, re.MULTILINE)], row


def loaded_by(start: tuple[str, ...]) -> dict[str, str]:
    """All modules of the package that `start` imports, immediately or on use, each with one that imports it."""
    found = {name: "" for name in FILES if is_of(name, start)}
    waiting = list(found)
    while waiting:
        importer = waiting.pop()
        for name in imports(parse(FILES[importer])):
            known = name if name in FILES else name.rpartition(".")[0]  # a class of a package
            if known in FILES and known not in found:
                found[known] = importer
                waiting.append(known)
    return found


def test_inference_imports_nothing_of_training() -> None:
    found = loaded_by(INFERENCE)
    assert "jointnmt.models.reformer" in found and "jointnmt.runs.loading" in found
    assert not {name: by for name, by in found.items() if is_of(name, TRAINING)}


@pytest.mark.slow
def test_translating_loads_nothing_of_training(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    program = (
        "import sys; from jointnmt import Translator; "
        f"Translator.load({str(run)!r}, 'cpu').translate(['der Hund']); "
        "print([name for name in sys.modules if name.startswith('jointnmt.')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = ast.literal_eval(done.stdout)
    assert "jointnmt.search.beam" in loaded
    assert not [name for name in loaded if is_of(name, TRAINING)]


def test_no_two_classes_share_a_name() -> None:
    """Nor a class and an alias of a type: one name means one thing."""
    places: dict[str, set[str]] = defaultdict(set)
    for path in MODULES:
        for name in (*class_names(parse(path)), *alias_names(parse(path))):
            places[name].add(relative(path))
    assert not {name: where for name, where in places.items() if len(where) > 1}


def class_names(tree: ast.Module) -> list[str]:
    return [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def alias_names(tree: ast.Module) -> list[str]:
    """Names of types in a module that are not classes, such as `Side = Literal[...]`, except for type variables."""
    return [
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign) and not ast.unparse(node.value).startswith("TypeVar(")
        for target in node.targets
        if isinstance(target, ast.Name) and target.id[0].isupper() and not target.id.isupper()
    ]


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_library_code_never_prints(path: Path) -> None:
    calls = (node for node in ast.walk(parse(path)) if isinstance(node, ast.Call))
    printing = [call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]
    assert not printing, f"print() in lines {printing}"


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_no_pickle(path: Path) -> None:
    tree = parse(path)
    banned = {"pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
    assert not {name.split(".")[0] for name in imports(tree)} & banned
    calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert not calls & {"torch.load", "torch.save", "fabric.save", "fabric.load", "self.fabric.save"}


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_modules_say_what_they_are_for(path: Path) -> None:
    assert not path.read_text() or ast.get_docstring(parse(path)), "no module docstring"
