"""A translator in one line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jointnmt.translator.translator import Translator


def description(translator: Translator) -> str:
    """One line about the model: name, family, languages, parameters, precision, device."""
    runs: list[Path | None] = [*(member.run for member in translator.members)] or [translator.run]
    names = [run.resolve().name if run else translator.experiment.name for run in runs]
    families = dict.fromkeys(each.model.family for each in translator.experiments)
    return (
        f"{' + '.join(names)}: {' + '.join(families)}, {' to '.join(translator.languages)}, "
        f"{translator.num_parameters:,} parameters, {translator.precision} on {translator.device}"
    )
