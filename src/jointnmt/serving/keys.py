"""API keys: who may use the server, and how often.

A key is 256 random bits, which cannot be guessed, so a plain hash of it is enough. The file holds only hashes.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
import time
from collections import Counter
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, field_validator

from jointnmt.config import Config, read_yaml
from jointnmt.errors import ConfigurationError
from jointnmt.files import write_text
from jointnmt.serving.errors import RequestError


class Key(Config):
    """A key's entry in the file."""

    name: str = Field(
        min_length=1, pattern=r"^[^\p{C}\p{Zl}\p{Zp}]*$", description="who has it, in one line; is written to the log"
    )
    sha256: str = Field(pattern="^[0-9a-f]{64}$", description="SHA-256 of the key, in hexadecimal")
    requests_per_minute: int | None = Field(None, ge=1, description="most requests a minute; null: any number")


class KeyFile(Config):
    """The file of keys."""

    keys: tuple[Key, ...] = Field((), description="accepted keys; without any, no request is accepted")

    @field_validator("keys", mode="before")
    @classmethod
    def _none_left(cls, value: Any) -> Any:
        """Accept null, which is left of a list in YAML after its last entry is deleted."""
        return () if value is None else value


def digest(key: str) -> str:
    """The hash of a key in the file."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def read_keys(path: Path) -> tuple[Key, ...]:
    """The keys of a file.

    Raises:
        ConfigurationError: if it cannot be read, is not a file of keys, or has two keys of one name.
    """
    keys = KeyFile.parse(read_yaml(path), str(path)).keys
    counts = Counter(key.name for key in keys)
    if repeated := [name for name, count in counts.items() if count > 1]:
        raise ConfigurationError(f"{path}: there are several keys named {repeated[0]}. Give them different names.")
    return keys


def add_key(path: Path, name: str, requests_per_minute: int | None) -> str:
    """Draw a new key and write its hash to the file, which is created if needed; returns the key.

    Raises:
        ConfigurationError: if the file is not a file of keys, has a key of this name, or the name is invalid.
    """
    keys = read_keys(path) if path.exists() else ()
    if name in (each.name for each in keys):
        raise ConfigurationError(f"{path}: there is a key named {name}. Delete its entry, or choose another name.")
    key = secrets.token_urlsafe(32)
    values = {"name": name, "sha256": digest(key), "requests_per_minute": requests_per_minute}
    added = Key.parse(values, "the new key")
    plain = KeyFile(keys=(*keys, added)).plain()
    path.touch(mode=0o600)
    write_text(path, yaml.safe_dump(plain, sort_keys=False, allow_unicode=True))
    return key


class Access:
    """Checks keys and counts requests; None for keys: no key is needed."""

    def __init__(self, keys: tuple[Key, ...] | None) -> None:
        self._keys = keys
        self._rates = {key: Rate(key.requests_per_minute) for key in keys or () if key.requests_per_minute}

    def renewed(self, keys: tuple[Key, ...]) -> Access:
        """Access with these keys; unchanged keys keep the counts of their requests."""
        found = Access(keys)
        found._rates |= {key: rate for key, rate in self._rates.items() if key in found._rates}
        return found

    @property
    def needs_key(self) -> bool:
        """Whether a key is needed."""
        return self._keys is not None

    def admit(self, given: str | None) -> str | None:
        """Count a request of the given key; returns the key's name, or None if no key is needed.

        Raises:
            RequestError: if the key is not in the file, or has used up its requests of this minute.
        """
        if self._keys is None:
            return None
        found = digest(given or "")
        # All of them are compared, so that the time does not depend on the key.
        matching = [key for key in self._keys if hmac.compare_digest(key.sha256, found)]
        if not given or not matching:
            problem = "Invalid API key." if given else "An API key is needed: ask the operator of this server for one."
            # The status is LibreTranslate's; the header distinguishes it from refusals that do not depend on the key.
            raise RequestError(403, problem, {"WWW-Authenticate": "Bearer"})
        key = matching[0]
        if key in self._rates and (wait := self._rates[key].wait()):
            raise RequestError(
                429, "Slow down: this key has used up its requests of this minute.", {"Retry-After": str(wait)}
            )
        return key.name


class Rate:
    """Rate limit per minute: a token bucket that is full at first, and refills at a steady rate."""

    def __init__(self, requests_per_minute: int) -> None:
        self._size, self._left, self._at = requests_per_minute, float(requests_per_minute), time.monotonic()

    def wait(self) -> int:
        """Take a token and return 0, or return the seconds until there is one."""
        now = time.monotonic()
        self._left = min(self._size, self._left + (now - self._at) * self._size / 60)
        self._at = now
        if self._left < 1:
            return math.ceil((1 - self._left) * 60 / self._size)
        self._left -= 1
        return 0
