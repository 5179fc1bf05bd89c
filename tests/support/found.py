"""Input that once caused a traceback, took too long or gave too long a message; all tests of random input retry it."""

from __future__ import annotations

from typing import Any

FOUND_RECIPES: list[bytes] = [
    b"[" * 3000 + b"]" * 3000,
    b"extends: /dev/zero",
    b"extends: ../..",
    b"name: " + b"9" * 5000,
    b"model: !!python/object/apply:os.system ['true']",
    b"a0: &a0 [x, x]\n" + b"".join(b"a%d: &a%d [*a%d, *a%d]\n" % (n, n, n - 1, n - 1) for n in range(1, 40)),
    b"\xff\xfe",
]

FOUND_SETTINGS: list[str] = [
    "data.train.².source=1",
    "model.num_layers=10000000",
    "search.max_length_offset=1e30",
    "model=" + "[" * 3000,
    "seed=" + "9" * 5000,
    ".".join(["a"] * 3000) + "=1",
]

FOUND_TEXTS: list[bytes] = [
    b"\xff\n",
    b"und\0\nund\n",
    "a\u2028b\x85c\x1cd\n".encode(),
    b"." * 4000 + b"\n",
    "\ud800\n".encode("utf-8", "surrogatepass"),
    b"\xef\xbb\xbf",
]

FOUND_HEADERS: list[Any] = [
    {"__metadata__": {"jointnmt": "[" * 200_000}},
    {"__metadata__": {"jointnmt": '{"version": 1, "sha256": "", "values": []}'}},
    [],
]
