"""Compact files of weights: 16 bits, and tied weights once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from jointnmt.errors import ConfigurationError, ModelError
from jointnmt.runs import checkpoint
from jointnmt.runs.weights import StoredPrecision, read_weights, write_compact

TABLE = torch.randn(40, 8, generator=torch.Generator().manual_seed(0))
WEIGHTS = {"source.weight": TABLE, "output.weight": TABLE, "bias": torch.tensor([1.0, -2.5, 1e-9]), "view": TABLE[:1]}


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [("float32", torch.float32), ("float16", torch.float16), ("bfloat16", torch.bfloat16)],
)
def test_weights_are_rounded_once_and_loaded_as_float32(
    tmp_path: Path, precision: StoredPrecision, dtype: torch.dtype
) -> None:
    write_compact(tmp_path / "a", WEIGHTS, {"steps": [3, 1]}, precision)
    stored, values = checkpoint.read(tmp_path / "a")
    assert {tensor.dtype for tensor in stored.values()} == {dtype}
    assert values == {"steps": [3, 1], "weights": precision, "tied": {"output.weight": "source.weight"}}
    loaded = read_weights(tmp_path / "a")
    assert loaded.keys() == WEIGHTS.keys()
    for name, tensor in WEIGHTS.items():
        assert loaded[name].dtype == torch.float32
        assert torch.equal(loaded[name], tensor.to(dtype).float()), name


def test_tied_weights_are_stored_once(tmp_path: Path) -> None:
    write_compact(tmp_path / "a", WEIGHTS, {}, "float32")
    assert checkpoint.read(tmp_path / "a")[0].keys() == {"source.weight", "bias", "view"}
    equal = {"one": TABLE, "other": TABLE.clone()}  # equal by chance: each is kept
    write_compact(tmp_path / "b", equal, {}, "float32")
    assert checkpoint.read(tmp_path / "b")[0].keys() == equal.keys()


def test_a_weight_beyond_the_range_is_no_infinity(tmp_path: Path) -> None:
    large = {"layer.weight": torch.tensor([1.0, 70_000.0])}
    with pytest.raises(ConfigurationError, match=r"layer\.weight reach 7e\+04.*bfloat16"):
        write_compact(tmp_path / "a", large, {}, "float16")
    assert not [*tmp_path.iterdir()]
    write_compact(tmp_path / "a", large, {}, "bfloat16")


def test_what_is_unknown_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="'float8'"):
        write_compact(tmp_path / "a", WEIGHTS, {}, "float8")  # type: ignore[arg-type]
    checkpoint.write(tmp_path / "a", {"weight": TABLE}, {"steps": [], "weights": "int4"})
    with pytest.raises(ModelError, match="'int4'"):
        read_weights(tmp_path / "a")
    checkpoint.write(tmp_path / "a", {"weight": TABLE}, {"weights": "float16", "tied": {"output": "source"}})
    with pytest.raises(ModelError, match="tied to source, which is missing"):
        read_weights(tmp_path / "a")
