"""YAML that is an attack: refused at once, in a line or two."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from jointnmt.bounded_yaml import MAX_BYTES, MAX_DEPTH, MAX_VALUES, YAMLError, parse_yaml, shorten
from jointnmt.config import override
from jointnmt.errors import ConfigurationError
from jointnmt.experiment import Experiment
from jointnmt.recipe import read_recipe
from support.tiny import tiny_recipe

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 13)
)
SECONDS = 60
"""Seconds: far more than a slow, busy machine needs, far less than a successful attack."""
CHAIN = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 200))

HOSTILE = {
    "nested lists": ("[" * 3000 + "]" * 3000, "nested more than"),
    "nested mappings": ("{a: " * 3000 + "}" * 3000, "nested more than"),
    "nested blocks": ("- " * 3000 + "x", "nested more than"),
    "nested keys": ("? " * 3000 + "x", "nested more than"),
    "unclosed lists": ("[" * 200_000, "nested more than"),
    "nested by aliases": (CHAIN, "nested more than"),
    "alias bomb": (BOMB, "more than 10,000 keys and values"),
    "many values": ("[" + "a," * 90_000 + "]", "more than 10,000 keys and values"),
    "alias of itself": ("a: &a [*a]", "that it is part of"),
    "digits": ("9" * 5000, "a number of 5,000 characters"),
    "hexadecimal digits": ("0x" + "f" * 50_000, "a number of 50,002 characters"),
    "sexagesimal digits": ("1" + ":59" * 20_000, "a number of 60,001 characters"),
    "sexagesimal fractions": ("1" + ":59" * 20_000 + ".5", "a number of 60,003 characters"),
    "a tag of Python": ("!!python/object/apply:os.system ['true']", "the tag"),
    "a tag of one's own": ("!foo bar", "the tag '!foo'"),
    "a long tag": (f"!{'x' * 100_000} bar", "the tag"),
    "no date": ("!!timestamp x", "the tag"),
    "bytes": ("!!binary aGk=", "the tag"),
    "no Boolean": ("!!bool x", "cannot be read"),
    "no integer": ("!!int ''", "cannot be read"),
    "no mapping": ("!!map [a]", "cannot be read"),
    "half a surrogate": ('"\\ud800"', "no text"),
    "NUL in a string": ('"a\\0b"', "no text"),
    "a long key twice": (f"{'k' * 900}: 1\n{'k' * 900}: 2", "is given twice"),
    "merge keys": ("a: &a {b: 1}\nc: {<<: *a}", "merge keys .* are not read"),
    "a long alias": (f"*{'x' * 100_000}", "found undefined alias"),
}


@pytest.mark.parametrize(("text", "message"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_is_refused_at_once_in_a_line(tmp_path: Path, text: str, message: str) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(text, encoding="utf-8")
    begin = time.process_time()
    with pytest.raises(ConfigurationError, match=message) as caught:
        read_recipe(recipe)
    with pytest.raises(ConfigurationError) as of_setting:
        override({}, [f"model={text}"])
    assert time.process_time() - begin < SECONDS
    for error in (caught.value, of_setting.value):
        assert error.exit_code == 2
        assert len(str(error)) < 1500
        assert "\n" not in str(error)
        str(error).encode("utf-8")


def test_the_bounds_leave_room_for_what_is_within() -> None:
    assert parse_yaml("[" * (MAX_DEPTH - 1) + "x" + "]" * (MAX_DEPTH - 1))
    assert len(parse_yaml("[" + "a," * (MAX_VALUES - 1) + "]")) == MAX_VALUES - 1
    assert parse_yaml("a: &x {b: 1}\nc: *x\nd: !!str 1") == {"a": {"b": 1}, "c": {"b": 1}, "d": "1"}
    for text in ("[" * MAX_DEPTH + "x" + "]" * MAX_DEPTH, "[" + "a," * MAX_VALUES + "]"):
        with pytest.raises(YAMLError):
            parse_yaml(text)


def test_files_without_an_end_are_not_read_to_it(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("extends: /dev/zero\n")
    with pytest.raises(ConfigurationError, match=rf"/dev/zero: .*longer than {MAX_BYTES:,} bytes"):
        read_recipe(tmp_path / "recipe.yaml")


def test_links_in_a_circle_are_an_error_of_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").symlink_to("two.yaml")
    (tmp_path / "two.yaml").symlink_to("one.yaml")
    with pytest.raises(ConfigurationError, match="symbolic links"):
        read_recipe(tmp_path / "one.yaml")


def test_many_errors_and_long_values_make_a_short_message(tmp_path: Path) -> None:
    values = {**tiny_recipe(tmp_path), **{f"key{i}": 1 for i in range(5000)}, "name": ["x" * 100_000]}
    begin = time.process_time()
    with pytest.raises(ConfigurationError, match=r"and 4,991 more$") as caught:
        Experiment.parse(values, "recipe.yaml")
    assert time.process_time() - begin < SECONDS
    assert len(str(caught.value)) < 3000


@pytest.mark.parametrize("key", ["²", "-1", "01", "9" * 5000, "x", "1"])
def test_a_number_in_a_path_is_one_of_the_list(key: str) -> None:
    with pytest.raises(ConfigurationError, match="there is nothing to set at") as caught:
        override({"data": {"train": [{"source": "a"}]}}, [f"data.train.{key}.source=1"])
    assert len(str(caught.value)) < 700


def test_a_setting_changes_one_of_two_values_that_an_alias_made_equal() -> None:
    values = parse_yaml("data: {train: [&text {source: a}], validation: [*text]}")
    changed = override(values, ["data.train.0.source=b"])
    assert changed == {"data": {"train": [{"source": "b"}], "validation": [{"source": "a"}]}}
    assert values["data"]["train"] == [{"source": "a"}]


def test_a_path_of_too_many_keys_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"expected key\.path=value"):
        override({}, [".".join("a" * 5000) + "=1"])


def test_a_short_text_is_shown_whole_and_a_long_one_with_both_ends() -> None:
    assert shorten("text", 40) == "text"
    assert shorten("a" * 100 + "b" * 100, 40) == "a" * 20 + " ... " + "b" * 10
    assert shorten("\ud800") == "\\ud800"
