"""The text that systems are measured on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jointnmt.evaluation.scores import check_parallel


@dataclass(frozen=True)
class EvalSet:
    """Source sentences with one reference translation each.

    Raises:
        DataError: if there are no references, or not as many sources.
    """

    sources: Sequence[str]
    """Empty if `source_name` is: finished translations alone can be measured then."""
    references: Sequence[str]
    source_name: str
    """The file of the sources, for messages."""
    reference_name: str

    def __post_init__(self) -> None:
        if self.source_name:
            check_parallel(self.sources, self.references, self.source_name, self.reference_name)
        else:
            check_parallel(self.references, self.references, self.reference_name, self.reference_name)
