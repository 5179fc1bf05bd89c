"""Random recipes, settings, text and headers of files: a short message and a documented exit code.

Made by `hypothesis`, from one seed; input that has failed once is in `support.found` and always tried.
"""

from __future__ import annotations

import hashlib
import json
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from jointnmt.cli.main import app
from jointnmt.runs import checkpoint
from support.commands import LONGEST_MESSAGE
from support.found import FOUND_HEADERS, FOUND_RECIPES, FOUND_SETTINGS, FOUND_TEXTS
from support.tiny import tiny_recipe
from support.tiny_run import write_run
from support.tried import SCALE, Tried

SECONDS = 2.0
"""Promised limit of processor seconds for each input."""

Case = st.SearchStrategy[Any]

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.sampled_from([0, -1, 2**31, 2**63, 10**400, 1e308, 1e-320, float("inf"), float("nan"), "", "no", "1e3", "²"]),
    st.floats(),
    st.text(max_size=20),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
SNIPPETS = st.text(max_size=8) | st.sampled_from(
    [
        "&a ",
        "*a",
        "!!int ",
        "!x ",
        "|\n",
        ">-\n",
        "? ",
        ": ",
        "- ",
        "%YAML 9.9\n",
        "---\n",
        "...\n",
        "<<: ",
        "{",
        "[",
        "'",
        '"',
        "\t",
        "\x00",
        "\ufeff",
    ]
)


def paths_in(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """All places in nested values."""
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in children:
        yield (*path, key)
        yield from paths_in(child, (*path, key))


def changed(node: Any, path: Sequence[Any], value: Any) -> Any:
    """Nested values with a place replaced."""
    if not path:
        return value
    copy = node.copy() if isinstance(node, dict | list) else {}
    inner = copy[path[0]] if (isinstance(copy, dict) and path[0] in copy) or isinstance(copy, list) else {}
    copy[path[0]] = changed(inner, path[1:], value)
    return copy


def mutated(values: Any) -> Case:
    """The values with one or two of them replaced, or an unknown key."""
    places = sorted(paths_in(values), key=str)
    change = st.tuples(st.sampled_from(places), VALUES, st.none() | st.text(max_size=8))

    def apply(changes: list[tuple[tuple[Any, ...], Any, str | None]]) -> Any:
        result = values
        for path, value, key in changes:
            try:
                result = changed(result, path if key is None else (*path[:-1], key), value)
            except (IndexError, TypeError):  # an earlier change has removed this place
                continue
        return result

    return st.lists(change, min_size=1, max_size=2).map(apply)


def spoilt(text: str) -> Case:
    """The text with snippets inserted and slices removed, as bytes that may not be text."""
    edit = st.tuples(
        st.integers(0, len(text)),
        st.integers(0, 30),
        SNIPPETS.map(lambda each: each.encode("utf-8")) | st.binary(max_size=4),
    )

    def apply(edits: list[tuple[int, int, bytes]]) -> bytes:
        content = text.encode()
        for place, length, snippet in edits:
            content = content[:place] + snippet + content[place + (length if length < 10 else 0) :]
        return content

    return st.lists(edit, min_size=1, max_size=3).map(apply)


def attempt(case: Case, found: Sequence[Any], tried: Tried, fault: str, check: Callable[[Any], str | None]) -> None:
    """Check cases made from one seed, and all that failed before; `check` returns what is wrong."""
    failures: list[str] = []
    count = 0

    def one(value: Any) -> None:
        nonlocal count
        count += 1
        begin = time.process_time()
        complaint = check(value)
        seconds = time.process_time() - begin
        if complaint is None and seconds > SECONDS:
            complaint = f"{seconds:.1f} seconds"
        if complaint is not None:
            failures.append(f"{complaint}\n{value!r}"[:3000])

    for value in found:
        one(value)
    quiet = settings(
        max_examples=40 * SCALE, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    quiet(given(case)(one))()
    tried(fault, count, len(failures))
    assert not failures, f"{len(failures)} failures\n\n" + "\n\n".join(failures[:5])


def complaint(result: Result, codes: set[int]) -> str | None:
    """A violation by the end of a command."""
    message = result.stderr.rpartition("jointnmt: ")[2]
    if result.exit_code not in codes or "Traceback" in result.stderr:
        return f"exit code {result.exit_code}: {result.stderr[-1500:]} {result.exception!r}"
    if result.exit_code and len(message) > LONGEST_MESSAGE:
        return f"a message of {len(message):,} characters"
    return None


def call(*arguments: object, text: bytes = b"") -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, [*map(str, arguments)], input=text)


@pytest.fixture(scope="module")
def recipe(corpus: Path) -> dict[str, Any]:
    return tiny_recipe(corpus)


def test_a_made_up_recipe_is_refused_shortly(recipe: dict[str, Any], tmp_path: Path, tried: Tried) -> None:
    written = mutated(recipe).map(lambda values: yaml.safe_dump(values, allow_unicode=True).encode("utf-8", "replace"))
    file = tmp_path / "recipe.yaml"

    def check(content: bytes) -> str | None:
        file.write_bytes(content)
        return complaint(call("info", file), {0, 2})

    cases = written | spoilt(yaml.safe_dump(recipe))
    attempt(cases, FOUND_RECIPES, tried, "made-up recipe", check)


def test_a_made_up_setting_is_refused_shortly(recipe: dict[str, Any], tmp_path: Path, tried: Tried) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    keys = st.sampled_from([".".join(map(str, path)) for path in paths_in(recipe)]) | st.text(max_size=12)
    texts = (
        SNIPPETS | st.text(max_size=30) | VALUES.map(lambda value: yaml.safe_dump(value, allow_unicode=True).strip())
    )
    cases = st.tuples(keys, st.sampled_from(["=", "", ".=", ".0=", "..="]), texts).map("".join)
    attempt(
        cases,
        FOUND_SETTINGS,
        tried,
        "made-up `--set`",
        lambda text: complaint(call("info", file, "--set", text), {0, 2}),
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("made") / "run", model={"max_length": 20})


def test_made_up_text_is_translated_or_refused_line_by_line(run: Path, tried: Tried) -> None:
    """With `--on-invalid skip` the number of lines is kept; without it, the refusal is reported."""
    line = st.binary(max_size=30) | st.text(max_size=30).map(lambda text: text.encode("utf-8", "surrogatepass"))
    words = st.lists(
        st.sampled_from([b"der", b"Hund", b"\xe2\x80\xa8", b"\xc2\x85", b"\x1c", b"\xcc\x81", b"\xef\xbb\xbf"])
    ).map(b" ".join)

    def check(text: bytes) -> str | None:
        skipping = call(
            "translate", run, "--device", "cpu", "--untrusted", "--on-invalid", "skip", "--quiet", text=text
        )
        lines = text.count(b"\n") + (not text.endswith(b"\n") and text not in (b"", b"\xef\xbb\xbf"))
        if skipping.exit_code == 0 and skipping.stdout_bytes.count(b"\n") != lines:
            return f"not {lines} lines: {skipping.stdout!r}"
        return complaint(skipping, {0}) or complaint(call("translate", run, "--device", "cpu", text=text), {0, 3})

    attempt(st.lists(line | words, max_size=4).map(b"\n".join), FOUND_TEXTS, tried, "made-up text", check)


def with_header(content: bytes, header: Any) -> bytes:
    """A safetensors file with another header."""
    size = struct.unpack("<Q", content[:8])[0]
    text = json.dumps(header).encode("utf-8", "replace")
    return struct.pack("<Q", len(text)) + text + content[8 + size :]


def test_a_made_up_header_is_refused_shortly(run: Path, tmp_path: Path, tried: Tried) -> None:
    """Headers with changed names, types, places and values of a checkpoint, also with a correct checksum."""
    model = run / "model.safetensors"
    good = model.read_bytes()
    tensors, values = checkpoint.read(model)
    header = json.loads(good[8 : 8 + struct.unpack("<Q", good[:8])[0]])
    ours = json.loads(header["__metadata__"]["jointnmt"])

    def forged(values: Any) -> Any:
        digest = checkpoint._digest(tensors, values) if isinstance(values, dict) else hashlib.sha256(b"").hexdigest()
        return {**header, "__metadata__": {"jointnmt": json.dumps({**ours, "values": values, "sha256": digest})}}

    inner = mutated(ours).map(lambda each: {**header, "__metadata__": {"jointnmt": json.dumps(each)}})
    cases = mutated(header) | inner | mutated(values).map(forged)

    def check(header: Any) -> str | None:
        model.write_bytes(with_header(good, header))
        try:
            outs = [call("translate", run, "--device", "cpu", "--quiet", text=b"und\n")]
            outs.append(call("average", run, "--checkpoint", model, "--out", tmp_path / "mean.safetensors"))
            return next((said for out in outs if (said := complaint(out, {0, 4}))), None)
        finally:
            model.write_bytes(good)

    (run / "checkpoints").mkdir(exist_ok=True)
    attempt(cases, FOUND_HEADERS, tried, "made-up header of a safetensors file", check)
