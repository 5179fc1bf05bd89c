"""The base of all configurations: frozen, typed and validated; YAML in and out, overrides, differences.

Each part of the package defines its own subclass of `Config`; `jointnmt.experiment` combines them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any, Self, get_args

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from jointnmt.bounded_yaml import MAX_DEPTH, YAMLError, parse_yaml, read_bounded, shorten
from jointnmt.errors import ConfigurationError

Settings = Sequence[str] | Mapping[str, Any]
"""Values to replace: `key.path=value` with the value in YAML, as on the command line, or a mapping from `key.path`."""

MAX_ERRORS = 10
"""Most errors of a configuration that a message names."""

MAX_DIFFERENCES = 5
"""Most differences of configurations that a message names."""


class Config(BaseModel):
    """A part of the configuration: immutable; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _reject_bool_for_number(cls, values: Any) -> Any:
        for name, field in cls.model_fields.items():
            kinds = set(_kinds(field.annotation))
            given = values.get(name) if isinstance(values, Mapping) else None
            numbers = given if isinstance(given, list | tuple) else [given]
            if bool not in kinds and kinds & {int, float} and any(isinstance(each, bool) for each in numbers):
                raise ValueError(f"{name} should be a number (given: {given!r})")
        return values

    @classmethod
    def variant(cls, values: Mapping[str, Any]) -> type[Config]:
        """The class that validates `values`: this one, or the subclass that they select."""
        return cls

    @classmethod
    def parse(cls, values: Mapping[str, Any], origin: str) -> Self:
        """Validate plain `values`; `origin`, such as a file name, begins the error message.

        Raises:
            ConfigurationError: naming each wrong key, its value and what is expected.
        """
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise ConfigurationError(_describe(error, cls, values, origin)) from error

    def plain(self) -> dict[str, Any]:
        """The configuration as JSON-compatible values, defaults included."""
        return self.model_dump(mode="json", by_alias=True)

    def given(self) -> dict[str, Any]:
        """The values that were set, as JSON-compatible values."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)

    def to_yaml(self) -> str:
        """The configuration as YAML, defaults included."""
        return yaml.safe_dump(self.plain(), sort_keys=False, allow_unicode=True, width=100)


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML mapping from `path`.

    Raises:
        ConfigurationError: if the file is missing, is not YAML within the bounds of `bounded_yaml`, or is no mapping.
    """
    try:
        text = read_bounded(path)
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}. Check the path.") from error
    except YAMLError as error:
        raise ConfigurationError(f"{path}: is not a configuration: {error}. Name a YAML file.") from error
    try:
        values = parse_yaml(text)
    except YAMLError as error:
        raise ConfigurationError(f"{path}: is not valid YAML: {error}") from error
    if not isinstance(values, dict):
        raise ConfigurationError(f"{path}: expected a mapping of keys to values at the top level.")
    return values


def override(values: Mapping[str, Any], settings: Settings, example: str = "--set model.dropout=0.1") -> dict[str, Any]:
    """A copy of `values` with each of `settings` set.

    A number in the path of a key indexes a list. Unknown keys are left to validation. `example` is, for
    messages, one of the option that settings of the command line were given by.

    Raises:
        ConfigurationError: if a setting has no `=`, its path goes through a value without keys, or its value is neither
            YAML nor plain.
    """
    result: dict[str, Any] = _copy(dict(values))
    option, _, expected = example.partition(" ")
    for each in settings.items() if isinstance(settings, Mapping) else settings:
        shown, path, value = _setting(each, option)
        keys = path.strip().split(".")
        if not all(keys) or len(keys) > MAX_DEPTH:
            raise ConfigurationError(f"{shown}: expected key.path=value, such as {expected}.")
        _assign(result, keys, value, shown)
    return result


def _setting(given: str | tuple[str, Any], option: str) -> tuple[str, str, Any]:
    """A setting's name in messages, its path and its plain value; no path if it has no `=`."""
    if not isinstance(given, str):
        key, value = given
        if not isinstance(key, str):
            raise ConfigurationError(f"setting {key!r}: the key should be text, such as model.dropout.")
        try:
            return f"setting {key}", key, json.loads(json.dumps(value, default=str, ensure_ascii=False).encode())
        except (ValueError, TypeError, RecursionError) as error:  # half of a surrogate pair, or a circle
            raise ConfigurationError(f"setting {key}: the value is not plain: {shorten(str(error))}") from error
    shown = f"{option} {shorten(' '.join(given.split()))}"
    path, equals, text = given.partition("=")
    if not equals:
        return shown, "", None
    try:
        return shown, path, parse_yaml(text)
    except YAMLError as error:
        raise ConfigurationError(f"{shown}: the value is not valid YAML: {error}") from error


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Keys with different values in two plain configurations, as `key.path: old -> new`."""
    return list(differences_by_key(old, new).values())


def differences_by_key(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, str]:
    """`differences` as a mapping from `key.path`."""
    old_flat, new_flat = dict(_flatten(old)), dict(_flatten(new))
    absent = "(absent)"
    return {
        key: f"{key}: {old_flat.get(key, absent)} -> {new_flat.get(key, absent)}"
        for key in sorted(old_flat.keys() | new_flat.keys())
        if old_flat.get(key, absent) != new_flat.get(key, absent)
    }


def in_words(changed: Collection[str]) -> str:
    """Differences for a message: the first ones, and the number of others."""
    others = len(changed) - MAX_DIFFERENCES
    return "; ".join([*islice(changed, MAX_DIFFERENCES), *([f"and {others:,} more"] if others > 0 else [])])


def merged(old: Any, new: Any) -> Any:
    """`new` merged over `old`: mappings key by key, other values replaced."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return new
    return {**old, **{key: merged(old.get(key), value) for key, value in new.items()}}


def _copy(node: Any) -> Any:
    """A deep copy, in which mappings and lists that are shared by YAML aliases become separate."""
    if isinstance(node, dict):
        return {key: _copy(value) for key, value in node.items()}
    return [_copy(value) for value in node] if isinstance(node, list) else node


def _assign(node: Any, keys: list[str], value: Any, setting: str) -> None:
    *parents, last = keys
    for key in parents:
        if isinstance(node, dict) and node.get(key) is None:
            node[key] = {}
        node = _child(node, key, setting)
    if isinstance(node, dict):
        node[last] = value
    else:
        _child(node, last, setting)
        node[int(last)] = value


def _child(node: Any, key: str, setting: str) -> Any:
    if isinstance(node, dict):
        return node[key]
    if isinstance(node, list) and key in map(str, range(len(node))):
        return node[int(key)]
    raise ConfigurationError(f"{setting}: there is nothing to set at {shorten(repr(key), 80)}.")


def _flatten(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    children = node.items() if isinstance(node, Mapping) else enumerate(node) if isinstance(node, list) else None
    if children is None or not node:
        yield prefix, node
        return
    for key, child in children:
        yield from _flatten(child, f"{prefix}.{key}" if prefix else str(key))


def _describe(error: ValidationError, config: type[Config], values: Mapping[str, Any], origin: str) -> str:
    lines: list[str] = []
    found = error.errors(include_url=False)
    for item in found[:MAX_ERRORS]:
        path, given = ".".join(shorten(key, 80) for key in _keys(item["loc"], values)), item["input"]
        if item["type"] == "too_short" and given:  # pydantic does not count invalid items
            continue
        if item["type"] == "extra_forbidden":
            what, but = f"is not a known key{_suggestion(config, item['loc'], values)}", ""
        else:  # a mapping is not shown: the message names its keys
            what, but = expected(item), "" if isinstance(given, Mapping) else f" (given: {shorten(repr(given), 200)})"
        if item["type"] == "string_type" and isinstance(given, bool):
            but += ", as YAML reads no, yes, off and on: put it into quotes"
        begin, end = f"{path}: should be " if path else "should be ", but
        if lines and what.startswith("should be ") and lines[-1].startswith(begin) and lines[-1].endswith(end):
            # another kind of value that is possible there
            lines[-1] = f"{lines[-1].removesuffix(end)} or {what.removeprefix('should be ')}{end}"
        else:
            lines.append(f"{path}: {what}{but}" if path else f"{what}{but}")
    if len(found) > MAX_ERRORS:
        lines.append(f"and {len(found) - MAX_ERRORS:,} more")
    return f"{origin}: the configuration is not valid. " + "; ".join(lines)


WORDS = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "int_parsing_size"), "should be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "should be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "should be true or false"),
    **dict.fromkeys(("tuple_type", "list_type"), "should be a list"),
    **dict.fromkeys(("model_type", "dict_type"), "should be a mapping of keys to values"),
    **dict.fromkeys(("path_type", "path_string"), "should be the name of a file or folder"),
    "string_type": "should be text",
    **dict.fromkeys(("string_too_short", "too_short"), "should not be empty"),
    "missing": "is missing",
    "finite_number": "should be a finite number",
    "greater_than_equal": "should be at least {ge}",
    "greater_than": "should be more than {gt}",
    "less_than_equal": "should be at most {le}",
    "less_than": "should be less than {lt}",
    "literal_error": "should be {expected}",
    "union_tag_invalid": "{discriminator} should be one of {expected_tags} (given: {tag!r})",
    "union_tag_not_found": "{discriminator} is missing",
}
"""Text of what is expected, by pydantic's types of errors."""


def expected(item: Any) -> str:
    """Text of what a pydantic error expects, in the terms of recipes."""
    known = WORDS.get(item["type"])
    if known is None:
        return str(item["msg"]).removeprefix("Value error, ").replace("Input should", "should")
    context = {name: f"{value:g}" if isinstance(value, float) else value for name, value in item.get("ctx", {}).items()}
    if "discriminator" in context:  # pydantic quotes it
        context["discriminator"] = str(context["discriminator"]).strip("'")
    return known.format(**context)


def _keys(place: Sequence[int | str], values: Any) -> Iterator[str]:
    """Keys of an error's location, without pydantic's names for branches of a union."""
    for part in place:
        if not isinstance(values, Mapping) and not _is_index(part, values):
            continue
        values = _below(values, part)
        yield str(part)


def _is_index(part: int | str, values: Any) -> bool:
    return isinstance(values, list | tuple) and isinstance(part, int) and part < len(values)


def _below(values: Any, part: int | str) -> Any:
    """The part of `values` at a part of an error's location; None if there is none."""
    return values.get(part) if isinstance(values, Mapping) else values[part] if _is_index(part, values) else None


def _suggestion(config: type[Config], place: Sequence[int | str], values: Any) -> str:
    """A hint at the known key closest to the last one of a location; empty if there is none."""
    parts = {config}
    for step in place[:-1]:
        values = _below(values, step)
        within = {part.model_fields[step].annotation for part in parts if step in part.model_fields}
        parts = {part for annotation in within for part in _parts(annotation)} or parts
        parts = {part.variant(values) for part in parts} if isinstance(values, Mapping) else parts
    known = {field.alias or name for part in parts for name, field in part.model_fields.items()}
    name, colon, value = str(place[-1]).partition(":")
    if colon and value and name in known:
        return f" (did you mean {name}: {value}, with a space after the colon?)"
    near = [name for name in sorted(known) if name.startswith(f"{place[-1]}_")]
    near = near or get_close_matches(str(place[-1]), sorted(known), 1)
    return f" (did you mean {' or '.join(near)}?)" if near else ""


def _parts(annotation: Any) -> Iterator[type[Config]]:
    return (kind for kind in _kinds(annotation) if issubclass(kind, Config))


def _kinds(annotation: Any) -> Iterator[type]:
    """The classes in a type annotation."""
    if isinstance(annotation, type) and not get_args(annotation):
        yield annotation
    for argument in get_args(annotation):
        yield from _kinds(argument)
