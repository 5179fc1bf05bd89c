"""Options of a translation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from numbers import Integral
from types import NoneType
from typing import Any, Literal, NamedTuple, get_args, overload

from jointnmt.errors import ConfigurationError
from jointnmt.search import Constraint, SamplingConfig, SearchConfig
from jointnmt.translator.limits import TextLimits
from jointnmt.translator.precision import PrecisionChoice

Split = Literal["never", "long", "always"]
OnInvalid = Literal["error", "skip"]
MOST_BEST = 1_000_000
"""Most translations, or samples, of a line."""

_KINDS = {"split": get_args(Split), "on_invalid": get_args(OnInvalid)}
_TYPES: dict[str, tuple[Any, str]] = {
    **dict.fromkeys(("num_best", "seed", "window"), (Integral, "an integer")),
    **dict.fromkeys(("alignments", "gates"), (bool, "True or False")),
    "search": ((SearchConfig, SamplingConfig, NoneType), "a SearchConfig or a SamplingConfig"),
    "limits": ((TextLimits, NoneType), "TextLimits"),
    "tag": ((str, NoneType), "a text"),
    "constraint": ((Callable, NoneType), "a function"),
}
"""Types of the options that are not checked against a list of choices, and their names in messages."""


class LoadOptions(NamedTuple):
    """Where and how a model computes: the arguments of `Translator.load` after the run."""

    device: str = "auto"
    """auto (a GPU if there is one), cpu, cuda or another PyTorch device."""
    precision: PrecisionChoice = "float32"
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
    split: Split = "never"
    """Which lines are split into sentences, each translated by itself: none, those beyond the model's `max_length`
    (otherwise an error), or all. A model without `max_length` takes lines of any length."""
    on_invalid: OnInvalid = "error"
    """Handling of a line that cannot be translated (not UTF-8, too long, ...): an error, after the translations of the
    lines before it; or skipped, with an empty translation and the reason in `error`."""
    limits: TextLimits | None = None
    """Limits on untrusted text; None: the text is trusted."""
    tag: str | None = None
    """Tag to put before every line that is not empty, for a model trained with it (`tag` of `data.train`)."""
    seed: int = 0
    """Seed of sampling."""
    window: int = 1024
    """Lines read ahead and batched by length; 1 translates each line before the next one is read."""
    constraint: Constraint | None = None
    """A rule of one's own for what may follow at each position."""

    def __post_init__(self) -> None:
        for name, (kind, description) in _TYPES.items():
            if not isinstance(value := getattr(self, name), kind):
                raise TypeError(f"{name} is {value!r}, but must be {description}.")
        for name in ("num_best", "window"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} is {getattr(self, name)}, but must be at least 1.")
        if self.num_best > MOST_BEST:
            raise ConfigurationError(f"num_best is {self.num_best}, but must be at most {MOST_BEST}.")
        if self.seed < 0:
            raise ConfigurationError(f"seed is {self.seed}, but must not be negative.")
        for name, kinds in _KINDS.items():
            if getattr(self, name) not in kinds:
                raise ConfigurationError(f"{name} is {getattr(self, name)!r}, but must be one of {', '.join(kinds)}.")

    def changed(self, changes: Mapping[str, Any], default: SearchConfig | SamplingConfig) -> TranslationOptions:
        """The options with some fields, or settings of the search, replaced.

        Args:
            changes: fields of these options, keys of `SearchConfig` or `SamplingConfig`, and `sample`: draw samples
                instead of beam search. None leaves a setting as it is.
            default: the search that is changed if these options have none.

        Raises:
            TypeError: if there is no such field or setting.
            ConfigurationError: if a value is invalid.
        """
        own = {field.name for field in fields(self)}
        known = own | {"sample"} | {*SearchConfig.model_fields} | {*SamplingConfig.model_fields}
        for name in changes:
            if name not in known:
                near = get_close_matches(name, sorted(known), 1)
                raise TypeError(
                    f"{name} is not an option of a translation" + (f": did you mean {near[0]}?" if near else ".")
                )
        given = {name: value for name, value in changes.items() if value is not None}
        options = replace(self, **{name: value for name, value in given.items() if name in own})
        sampled = given.pop("sample", isinstance(options.search or default, SamplingConfig))
        if not isinstance(sampled, bool):
            raise TypeError(f"sample is {sampled!r}, but must be True or False.")
        if "seed" in given and not sampled:
            raise ConfigurationError("options: seed is for sampling: set sample=True, too.")
        settings = {name: value for name, value in given.items() if name not in own}
        if not settings and "sample" not in changes:
            return options
        return replace(options, search=changed_search(options.search or default, sampled, settings))


@overload
def changed_search(
    default: SearchConfig | SamplingConfig, sampled: Literal[False], changes: Mapping[str, Any], origin: str = "options"
) -> SearchConfig: ...


@overload
def changed_search(
    default: SearchConfig | SamplingConfig, sampled: bool, changes: Mapping[str, Any], origin: str = "options"
) -> SearchConfig | SamplingConfig: ...


def changed_search(
    default: SearchConfig | SamplingConfig, sampled: bool, changes: Mapping[str, Any], origin: str = "options"
) -> SearchConfig | SamplingConfig:
    """Beam search or sampling with the applicable settings of `default` and these changes; errors name their `origin`.

    The class is that of `default` if it is of the wanted kind.

    Raises:
        ConfigurationError: if a value is invalid, or a setting belongs to the other kind.
    """
    kind, other = (SamplingConfig, SearchConfig) if sampled else (SearchConfig, SamplingConfig)
    if misplaced := [name for name in changes if name not in kind.model_fields and name in other.model_fields]:
        why = "is not for sampling, which has no beam" if sampled else "is for sampling: ask for that, too"
        raise ConfigurationError(f"{origin}: {misplaced[0]} {why}.")
    settings = {name: value for name, value in default.plain().items() if name in kind.model_fields}
    wanted = type(default) if isinstance(default, kind) else kind
    return wanted.parse({**settings, **changes}, origin=origin)
