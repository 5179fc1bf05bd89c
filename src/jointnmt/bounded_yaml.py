"""YAML from untrusted sources, read within bounds of size, depth and number of values.

A configuration is small and plain. Anything beyond these bounds is not one, and must neither exhaust memory nor take
long: values nested thousands deep, aliases that stand for billions of values, numbers of thousands of digits, endless
files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

import yaml

MAX_BYTES = 2**18
"""Most bytes of a file: a hundred times a recipe."""

MAX_VALUES = 10_000
"""Most keys and values of a file, repetitions by aliases included. Reading so many takes less than half a second."""

MAX_DEPTH = 30
"""Deepest nesting of mappings and lists; a recipe has six."""

MAX_NUMBER = 60
"""Most characters of a number."""

MAX_MESSAGE = 400
"""Most characters quoted in an error message."""

_MERGE = "tag:yaml.org,2002:merge"
_PLAIN = tuple(f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "seq", "map"))


class YAMLError(ValueError):
    """The text is not YAML, or exceeds the bounds; the message is one line."""


def read_bounded(path: Path) -> str:
    """The text of a file.

    Raises:
        OSError: if it cannot be read.
        YAMLError: if it is too long, or not UTF-8.
    """
    with path.open("rb") as stream:
        content = stream.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise YAMLError(f"it is longer than {MAX_BYTES:,} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise YAMLError("it is not UTF-8 text") from error


def parse_yaml(text: str) -> Any:
    """The value of a YAML document.

    Raises:
        YAMLError: with the reason, and the place if it is known.
    """
    try:
        return yaml.load(text, _Loader)
    except YAMLError:
        raise
    except Exception as error:  # PyYAML's constructors raise various errors, such as KeyError for !!bool x
        reason = str(error) if isinstance(error, yaml.YAMLError | ValueError) else f"a value cannot be read ({error})"
        raise YAMLError(shorten(" ".join(reason.split())) + _missing_space(text, error)) from error


def _missing_space(text: str, error: Exception) -> str:
    """A hint at the last line before a syntax error, if it is like `key:value`; else empty."""
    mark = getattr(error, "problem_mark", None)
    lines = [] if mark is None else [*enumerate(text.splitlines()[: mark.line], start=1)]
    number, last = next(((at, line) for at, line in reversed(lines) if line.partition("#")[0].strip()), (0, ""))
    key = re.fullmatch(r"[\s-]*(\w+):([^\s:/\\][^#]*?)\s*(#.*)?", last)
    return (
        f" (line {number}: did you mean {key[1]}: {shorten(key[2], 40)}, with a space after the colon?)" if key else ""
    )


def shorten(text: str, limit: int = MAX_MESSAGE) -> str:
    """The text for a message: without its middle if it is long, and with surrogates escaped."""
    shown = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return shown if len(shown) <= limit else f"{shown[: limit // 2]} ... {shown[-limit // 4 :]}"


class _Loader(yaml.SafeLoader):
    """Loads plain values within the bounds; a duplicate key, of which YAML libraries take the last, is an error."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._count = 0
        self._heights = [0]
        """Heights so far of the values that are being read, outermost first."""
        self._extents: dict[yaml.Node, tuple[int, int]] = {}
        """Number of values and height of each finished node; aliases count as what they stand for."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """The next node, within the bounds; PyYAML's own method has none."""
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            node = super().compose_node(parent, index)
            if node not in self._extents:
                raise YAMLError(f"the alias {shorten(str(event.anchor), 40)!r} stands for a value that it is part of")
            count, height = self._extents[node]
            self._grow(count, height)
            return node
        tag = getattr(event, "tag", None)
        if tag is not None and tag != "!" and tag not in _PLAIN:
            raise YAMLError(f"line {event.start_mark.line + 1}: the tag {shorten(tag, 40)!r} is not a plain value's")
        before = self._count
        self._grow(1, 1)
        self._heights.append(0)
        node = super().compose_node(parent, index)
        assert node is not None  # only a document may have none
        height = self._heights.pop() + 1
        self._extents[node] = self._count - before, height
        self._heights[-1] = max(self._heights[-1], height)
        return node

    def _grow(self, count: int, height: int) -> None:
        """Count `count` more values, `height` deep.

        Raises:
            YAMLError: if this exceeds the bounds.
        """
        self._count += count
        self._heights[-1] = max(self._heights[-1], height)
        if self._count > MAX_VALUES:
            raise YAMLError(f"it has more than {MAX_VALUES:,} keys and values")
        if len(self._heights) + height - 1 > MAX_DEPTH:
            raise YAMLError(f"its values are nested more than {MAX_DEPTH} deep")

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> str:
        """The text of a node; NUL and surrogates are errors."""
        text = str(super().construct_scalar(node))
        if any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in text):
            raise YAMLError(f"line {node.start_mark.line + 1}: the value {text[:40]!r} has characters that are no text")
        return text

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """The mapping of a node."""
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == _MERGE:
                what = "merge keys (<<) are not read: write the keys out, or extend a recipe that has them"
                raise yaml.constructor.ConstructorError(None, None, what, key_node.start_mark)
            key = self.construct_object(key_node, deep=True)  # type: ignore[no-untyped-call]
            if not isinstance(key, Hashable):
                continue  # an error in the call below
            if key in seen:
                what = f"the key {shorten(repr(key), 80)} is given twice"
                raise yaml.constructor.ConstructorError(None, None, what, key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def _number(construct: Callable[[Any, Any], float]) -> Callable[[_Loader, yaml.ScalarNode], float]:
    def construct_bounded(loader: _Loader, node: yaml.ScalarNode) -> float:
        if len(node.value) > MAX_NUMBER:
            raise YAMLError(f"line {node.start_mark.line + 1}: a number of {len(node.value):,} characters")
        return construct(loader, node)

    return construct_bounded


_Loader.add_constructor("tag:yaml.org,2002:int", _number(yaml.SafeLoader.construct_yaml_int))
_Loader.add_constructor("tag:yaml.org,2002:float", _number(yaml.SafeLoader.construct_yaml_float))
