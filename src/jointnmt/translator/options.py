"""Options of a translation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from jointnmt.errors import ConfigurationError
from jointnmt.models.quantize import Precision
from jointnmt.search import SamplingConfig, SearchConfig
from jointnmt.translator.limits import TextLimits

OnLong = Literal["error", "split"]
OnInvalid = Literal["error", "skip"]


class LoadOptions(NamedTuple):
    """Where and how a model computes: the arguments of `Translator.load` after the run."""

    device: str = "auto"
    """auto (a GPU if there is one), cpu, cuda, ..."""
    precision: Precision = "float32"
    max_cells: int | None = None
    """Most cells of a batch; None: `default_cells`."""


@dataclass(frozen=True)
class TranslationOptions:
    """How lines are translated, and what each translation comes with."""

    search: SearchConfig | SamplingConfig | None = None
    """Beam search or sampling; None: the search of the experiment."""
    num_best: int = 1
    """Translations, or samples, of each line."""
    alignments: bool = False
    """Align source and target tokens, which takes one more forward pass over each translation."""
    gates: bool = False
    """Return the mean gates of lexical shortcuts, which takes one more forward pass over each translation."""
    long: OnLong = "error"
    """A line beyond the model's `max_length` is an error, or split at its sentence ends. A model without `max_length`
    takes lines of any length."""
    on_invalid: OnInvalid = "error"
    """A line that cannot be translated (no UTF-8, too long, ...) is an error, after the translations of the lines
    before it, or is skipped: its translation is empty, and says why in `error`."""
    limits: TextLimits | None = None
    """Limits on untrusted text; None: the text is trusted."""
    seed: int = 0
    """Of sampling."""
    window: int = 1024
    """Lines read ahead and batched by length; 1 translates each line before the next one is read."""

    def __post_init__(self) -> None:
        for name in ("num_best", "window"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} is {getattr(self, name)}, but must be at least 1.")
        if self.seed < 0:
            raise ConfigurationError(f"seed is {self.seed}, but must not be negative.")
        for name, kinds in (("long", OnLong), ("on_invalid", OnInvalid)):
            if getattr(self, name) not in get_args(kinds):
                raise ConfigurationError(
                    f"{name} is {getattr(self, name)!r}, but must be one of {', '.join(get_args(kinds))}."
                )
