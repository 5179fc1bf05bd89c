"""The arrows between the packages (docs: architecture), and what library code must not do, read off the source."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "jointnmt"

# Imports point down only: a unit may import the units of a lower rank, and itself.
RANKS = {
    "errors": 0,
    "config": 1,
    "text": 2,
    "data": 3,
    "ops": 3,
    "models": 4,
    "search": 5,
    "evaluation": 5,
    "runs": 5,
    "training": 6,
    "experiment": 7,
    "hub": 8,
    "train": 9,
    "translator": 9,
    "analysis": 10,
    "testset": 11,
    "scaling": 12,
    "report": 12,
    "serving": 12,
    "cli": 13,
}

# Where only part of a lower unit may be imported: models take tensors; search knows no concrete model.
NARROWED = {
    ("models", "text"): {"jointnmt.text.special"},
    ("models", "data"): {"jointnmt.data.batch"},
    ("search", "models"): {"jointnmt.models.interface"},
}

MODULES = sorted(
    path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).as_posix() not in ("__init__.py", "__main__.py")
)


def unit_of(module: str) -> str:
    """The unit that a module such as `jointnmt.text.special` belongs to."""
    inside = module.removeprefix("jointnmt.")
    return max((unit for unit in RANKS if inside == unit or inside.startswith(f"{unit}.")), key=len, default=inside)


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(tree: ast.AST) -> Iterator[str]:
    """Every module that is imported, wherever in the file, but for `if TYPE_CHECKING`."""
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


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def relative(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_imports_point_down(path: Path) -> None:
    unit = unit_of(module_name(path))
    assert unit in RANKS, f"{unit} has no rank: say where it belongs"
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
