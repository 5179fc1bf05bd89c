"""API keys: made, kept as hashes, admitted, counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from jointnmt.errors import ConfigurationError
from jointnmt.serving.errors import RequestError
from jointnmt.serving.keys import Access, add_key, read_keys


def test_a_new_key_is_admitted_and_only_its_hash_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "keys.yaml"
    keys = {name: add_key(file, name, None) for name in ("weblate", "omegat")}
    assert file.stat().st_mode & 0o077 == 0, "others may not read the file"
    assert not any(key in file.read_text() for key in keys.values())
    access = Access(read_keys(file))
    for name, key in keys.items():
        assert access.admit(key) == name


@pytest.mark.parametrize("given", [None, "", "wrong", "ü\ud800"])
def test_other_keys_are_refused(tmp_path: Path, given: str | None) -> None:
    add_key(tmp_path / "keys.yaml", "one", None)
    with pytest.raises(RequestError) as refused:
        Access(read_keys(tmp_path / "keys.yaml")).admit(given)
    assert refused.value.status == 403


def test_without_keys_everybody_comes_in() -> None:
    assert Access(None).admit(None) is None
    assert not Access(None).needs_key


def test_a_file_without_keys_lets_nobody_in() -> None:
    with pytest.raises(RequestError):
        Access(()).admit("anything")


def test_a_name_is_given_once(tmp_path: Path) -> None:
    add_key(tmp_path / "keys.yaml", "one", None)
    with pytest.raises(ConfigurationError, match="a key named one"):
        add_key(tmp_path / "keys.yaml", "one", None)


@pytest.mark.parametrize("name", ["", "a\nb", "a\u2028b", "\x1b[0m"])
def test_a_name_is_one_line(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="name"):
        add_key(tmp_path / "keys.yaml", name, None)
    assert not (tmp_path / "keys.yaml").exists()


def test_two_keys_of_one_name_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "keys.yaml"
    add_key(file, "one", None)
    file.write_text(file.read_text() + file.read_text().removeprefix("keys:\n"))
    with pytest.raises(ConfigurationError, match="several keys named one"):
        read_keys(file)


def test_a_key_that_is_read_anew_has_no_more_requests_than_before(tmp_path: Path) -> None:
    file = tmp_path / "keys.yaml"
    same, changed = add_key(file, "same", 1), add_key(file, "changed", 1)
    access = Access(read_keys(file))
    for key in (same, changed):
        access.admit(key)
    one, other = read_keys(file)
    renewed = access.renewed((one, other.model_copy(update={"requests_per_minute": 2})))
    with pytest.raises(RequestError):
        renewed.admit(same)
    assert renewed.admit(changed) == "changed"


def test_a_key_has_its_rate_and_no_other_key_pays_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    file = tmp_path / "keys.yaml"
    slow, free = add_key(file, "slow", 3), add_key(file, "free", None)
    access = Access(read_keys(file))
    for _ in range(3):
        access.admit(slow)
    with pytest.raises(RequestError) as refused:
        access.admit(slow)
    assert refused.value.status == 429
    assert refused.value.headers["Retry-After"] == "20"
    for _ in range(50):
        access.admit(free)
    now += 20
    access.admit(slow)
    with pytest.raises(RequestError):
        access.admit(slow)


@pytest.mark.parametrize("left", ["keys:\n", "keys: []\n", "{}\n"])
def test_the_last_key_can_be_taken_back(tmp_path: Path, left: str) -> None:
    path = tmp_path / "keys.yaml"
    key = add_key(path, "weblate", None)
    path.write_text(left)
    with pytest.raises(RequestError):
        Access(read_keys(path)).admit(key)
    assert Access(read_keys(path)).needs_key
    add_key(path, "omegat", None)
    assert [each.name for each in read_keys(path)] == ["omegat"]


@pytest.mark.parametrize("text", ["keys: 3", "keys: [{name: a, sha256: short}]", "other: []"])
def test_a_file_that_is_none_of_keys_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "keys.yaml").write_text(text)
    with pytest.raises(ConfigurationError, match=r"keys\.yaml"):
        read_keys(tmp_path / "keys.yaml")
