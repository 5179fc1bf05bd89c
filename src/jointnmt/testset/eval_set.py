"""The text that systems are measured on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jointnmt.evaluation.scores import check_parallel


@dataclass(frozen=True)
class EvalSet:
    """Source sentences with one reference translation each, or several.

    Raises:
        DataError: if there are no references, or the numbers of sources and references differ.
    """

    sources: Sequence[str]
    """Source sentences; empty if `source_name` is, so that only finished translations can be measured."""
    references: Sequence[str]
    source_name: str
    """The file of the sources, for messages."""
    reference_name: str
    more_references: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Further references by the names of their files, for BLEU, chrF and TER; perplexity is that of the first ones."""

    def __post_init__(self) -> None:
        if self.source_name:
            check_parallel(self.sources, self.references, self.source_name, self.reference_name)
        else:
            check_parallel(self.references, self.references, self.reference_name, self.reference_name)
        for name, texts in self.more_references.items():
            check_parallel(texts, self.references, name, self.reference_name)

    @property
    def all_references(self) -> Sequence[Sequence[str]]:
        """The references, then the further ones."""
        return [self.references, *self.more_references.values()]
