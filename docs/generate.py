"""Writes the generated parts of these pages: tables of recipe keys, parameter counts and results.

A page has `<!-- begin: COMMAND -->`, the text that COMMAND makes, and `<!-- end -->`. COMMAND is `keys SECTION
[FAMILY...]`, the keys of a section of a recipe, from the configuration classes; `results TABLE CORPUS [SYSTEM...]`, a
table of the results collected in `results/CORPUS`, for all systems or these; `machines`, a table for each measured
machine; `relative` and `arithmetic`, comparisons of the families' decoding on them; `billion`, the cost of a billion
sentences on them; `paths`, the table of `benchmarks.paths`; or a `jointnmt` command, whose output is the text.

    python docs/generate.py          # write the pages
    python docs/generate.py --check  # exit code 1, with the pages' names, if one of them is out of date
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shlex
import sys
import types
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.testing import CliRunner

from jointnmt.cli.main import app
from jointnmt.data.corpus import ParallelText
from jointnmt.experiment import Experiment
from jointnmt.models import FAMILIES

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent))

from benchmarks.machines import machine_tables  # noqa: E402 (a package of the repository, not of an installation)
from benchmarks.paths import path_table  # noqa: E402 (likewise)
from benchmarks.relative import arithmetic_table, relative_table  # noqa: E402 (likewise)
from benchmarks.scale_tables import translation_table  # noqa: E402 (likewise)
from results.tables import TABLES, read_corpus  # noqa: E402 (likewise)

CONFIGS: dict[str, Any] = {family: config for family, (config, _) in FAMILIES.items()}
BLOCK = re.compile(r"(<!-- begin: (.*?) -->\n).*?(<!-- end -->)", re.S)
HEAD = "| key | value | default | meaning |\n|---|---|---|---|\n"
WHOLE = {
    "machines": machine_tables,
    "relative": relative_table,
    "arithmetic": arithmetic_table,
    "paths": path_table,
    "billion": lambda: "".join(f"{line}\n" for line in translation_table()),
}
"""Tables without arguments."""
NAMES = {int: "integer", float: "number", bool: "Boolean", str: "text", Path: "path", ParallelText: "texts (below)"}


def generate(page: str) -> str:
    """The text of a page with all its generated parts made again."""
    return BLOCK.sub(lambda match: f"{match[1]}{_make(match[2])}{match[3]}", page)


def _make(command: str) -> str:
    kind, *arguments = shlex.split(command)
    if kind == "keys":
        return HEAD + "".join(_rows(*arguments))
    if kind == "results":
        table, folder, *systems = arguments
        corpus = read_corpus(Path("results") / folder)
        return TABLES[table](corpus.only(systems) if systems else corpus)
    if kind in WHOLE:
        return WHOLE[kind]()
    assert kind == "jointnmt", f"no such command: {command}"
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, f"{command}: {result.output}"
    return result.stdout


def _rows(section: str, *families: str) -> Iterator[str]:
    """Rows of a section: `experiment` has the top-level keys, `text` those of a corpus' file."""
    if section == "model":
        yield from _model_rows(families)
    elif section == "text":
        yield from _table_of(ParallelText, "")
    elif section == "experiment":
        yield from _table_of(Experiment, "", {name for name, field in _fields(Experiment) if not _parts(field)})
    else:
        (config,) = _parts(Experiment.model_fields[section])
        yield from _table_of(config, f"{section}.")


def _model_rows(families: Sequence[str]) -> Iterator[str]:
    """Keys that all families have; or those that only `families` have, with the defaults of each."""
    shared = set.intersection(*(set(config.model_fields) for config in CONFIGS.values()))
    if not families:
        yield f"| `model.family` | {_either(CONFIGS)} | required | [Models](models.md) says what each is |\n"
        yield from _table_of(next(iter(CONFIGS.values())), "model.", shared - {"family"})
        return
    *others, last = families
    for name, field in _fields(CONFIGS[last]):
        if name in shared:
            continue
        (row,) = _table_of(CONFIGS[last], "model.", {name})
        defaults = {family: CONFIGS[family].model_fields[name].default for family in others if name in _keys(family)}
        if any(default != field.default for default in defaults.values()):
            each = ", ".join(f"{family}: `{_written(default)}`" for family, default in defaults.items())
            row = row.replace(f"`{_written(field.default)}`", f"{each}, {last}: `{_written(field.default)}`")
        yield row


def _fields(config: type[BaseModel]) -> list[tuple[str, FieldInfo]]:
    return [(field.alias or name, field) for name, field in config.model_fields.items()]


def _keys(family: str) -> set[str]:
    return set(CONFIGS[family].model_fields)


def _table_of(config: type[BaseModel], prefix: str, wanted: Container[str] | None = None) -> Iterator[str]:
    """Rows of a configuration's keys and those below them; `wanted` selects among the former."""
    for name, field in _fields(config):
        if wanted is not None and name not in wanted:
            continue
        parts = _parts(field)
        if not parts or field.default is None:
            default = "required" if field.is_required() else f"`{_written(field.default)}`"
            values = f"{_values(field.annotation)}{_bound(field)}"
            yield f"| `{prefix}{name}` | {values} | {default} | {field.description} |\n"
        below: set[str] = set()
        for part in parts:  # a key of several of them is described by the first one
            keys = {key for key, _ in _fields(part)} - below
            yield from _table_of(part, f"{prefix}{name}.", keys)
            below |= keys


def _parts(field: FieldInfo) -> list[type[BaseModel]]:
    """The configurations that a key has as a mapping; none if it has a list of them."""
    optional = get_args(field.annotation) if type(None) in get_args(field.annotation) else (field.annotation,)
    kinds = [kind for option in optional for kind in (get_args(option) if _is_union(option) else (option,))]
    return [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, types.UnionType)


def _values(kind: Any) -> str:
    """The values of a key, in words."""
    if _is_union(kind):
        return " or ".join(_values(option) for option in get_args(kind))
    if kind is type(None):
        return "`null`"
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return _either(map(str, arguments))
    if origin is tuple:
        return f"list of {_values(arguments[0])}" if ... in arguments else f"{len(arguments)} numbers"
    if arguments:  # an annotation with bounds
        return _values(arguments[0]) + _bound(arguments[1])
    return NAMES.get(kind, "mapping")


def _bound(field: FieldInfo) -> str:
    """The upper bound of a number, in words."""
    for words, bound in (("at most", "le"), ("below", "lt")):
        for limit in (getattr(each, bound) for each in field.metadata if hasattr(each, bound)):
            power = math.log2(limit) if words == "below" else math.log10(limit)
            base = 2 if words == "below" else 10
            return f", {words} {f'{base}^{power:.0f}' if limit > 10**6 else f'{limit:,}'}"
    return ""


def _either(values: Iterable[str]) -> str:
    return ", ".join(f"`{value}`" for value in values)


def _written(value: Any) -> str:
    return str(value) if isinstance(value, str | Path) else json.dumps(value)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a page is out of date")
    check = parser.parse_args().check
    os.chdir(DOCS.parent)  # the paths in the commands are relative to it
    stale = []
    for path in sorted(DOCS.glob("*.md")):
        old = path.read_text(encoding="utf-8")
        new = generate(old)
        if new == old:
            continue
        stale.append(path.name)
        if not check:
            path.write_text(new, encoding="utf-8")
    if stale:
        sys.stderr.write(f"{'out of date' if check else 'written'}: {', '.join(stale)}\n")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
