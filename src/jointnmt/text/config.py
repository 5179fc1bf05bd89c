"""Configuration of segmentation."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from jointnmt.config import Config
from jointnmt.text.tags import check_tag

LEARNT = (
    *("vocabulary_size", "num_merges", "target_vocabulary_size", "min_frequency"),
    *("split_punctuation", "split_digits"),
)
"""Keys that say what is learnt; merges that are given leave no choice."""

FILES = {"codes": "from", "target_codes": "target_from"} | {key: key for key in ("vocabulary", "target_vocabulary")}
"""Fields with files of given merges, and their keys."""


class SegmentationConfig(Config):
    """How text is segmented."""

    kind: Literal["bpe", "unigram", "word"] = Field("bpe", description="byte-pair encoding, unigram, or whole words")
    joint: bool | Literal["merges"] = Field(
        True,
        description="one vocabulary for both sides; false: one for each; `merges`: BPE is learnt from both together, "
        "and the vocabulary of each side has the pieces that occur in its text",
    )
    vocabulary_size: int = Field(
        10_000, ge=8, le=100_000_000, description="most pieces, special ones included; if not joint, of the source"
    )
    num_merges: int | None = Field(
        None,
        ge=1,
        le=100_000_000,
        description="merges of joint BPE, in place of `vocabulary_size`; characters are not counted, as in papers",
    )
    vocabulary_threshold: int = Field(
        0,
        ge=0,
        le=10**9,
        description="for joint BPE: least frequency of a piece on a side; rarer ones are split into smaller ones there",
    )
    target_vocabulary_size: int | None = Field(
        None, ge=8, le=100_000_000, description="most pieces of the target; null: as for the source"
    )
    min_frequency: int = Field(
        2, ge=1, le=10**9, description="least count of a merge (bpe) or a word; rarer words: unknown"
    )
    lowercase: bool = Field(False, description="lower-case all text; not undone on output")
    moses: bool = Field(False, description="Moses tokenisation first, undone on output; false for tokenised text")
    normalize_punctuation: bool = Field(
        False, description="unify quotation marks, dashes and spaces first, as the Moses script does; not undone"
    )
    truecase: bool = Field(
        False, description="words in their case within sentences, by a Moses model; undone on output; needs tokens"
    )
    split_punctuation: bool = Field(
        False, description="punctuation is never in one piece with letters (bpe, unigram); exactly undone on output"
    )
    split_digits: bool = Field(
        False,
        description="each decimal digit is a piece of its own (bpe, unigram), as in SentencePiece; exactly "
        "undone on output",
    )
    codes: Path | None = Field(
        None,
        alias="from",
        description="codes of `subword-nmt learn-bpe`, whose merges are used; if not joint, of the source; null: the "
        "pieces are learnt from the training text",
    )
    target_codes: Path | None = Field(
        None, alias="target_from", description="codes of the target, with `from` and joint false"
    )
    vocabulary: Path | None = Field(
        None,
        description="with `from`: pieces of the source and their counts, by `subword-nmt get-vocab`; null: counted in "
        "the training text",
    )
    target_vocabulary: Path | None = Field(None, description="likewise for the target; goes with vocabulary")
    tags: tuple[str, ...] = Field(
        (), description="tags that a source may begin with, a piece each; those of the texts of `data` are included"
    )

    @model_validator(mode="after")
    def _tags_differ_from_text(self) -> Self:
        for tag in self.tags:
            check_tag(tag)
        if len(set(self.tags)) < len(self.tags):
            raise ValueError(f"tags names one twice: {', '.join(self.tags)}")
        return self

    @model_validator(mode="after")
    def _target_size_needs_two(self) -> Self:
        if self.joint and self.target_vocabulary_size is not None:
            raise ValueError(f"target_vocabulary_size {self.target_vocabulary_size} needs joint false")
        return self

    @model_validator(mode="after")
    def _merges_are_of_joint_bpe(self) -> Self:
        for name, given in (
            ("joint merges", self.joint == "merges"),
            (f"num_merges {self.num_merges}", self.num_merges is not None),
            (f"vocabulary_threshold {self.vocabulary_threshold}", self.vocabulary_threshold > 0),
        ):
            if given and (self.kind != "bpe" or not self.joint):
                raise ValueError(f"{name} needs kind bpe, and joint true or merges")
        return self

    @model_validator(mode="after")
    def _case_is_kept_or_not(self) -> Self:
        if self.truecase and self.lowercase:
            raise ValueError("truecase and lowercase exclude each other")
        return self

    @property
    def shared(self) -> bool:
        """Whether both sides have one vocabulary."""
        return self.joint is True

    @property
    def counts_pieces(self) -> bool:
        """Whether segmentation depends on the frequencies of pieces on each side."""
        return self.joint == "merges" or self.vocabulary_threshold > 0

    @model_validator(mode="after")
    def _given_merges_are_not_learnt(self) -> Self:
        given = [key for field, key in FILES.items() if getattr(self, field) is not None]
        if self.codes is None:
            if given:
                raise ValueError(f"{given[0]} needs from, the codes of subword-nmt")
            return self
        if self.kind != "bpe":
            raise ValueError(f"from needs kind bpe: codes of subword-nmt are its merges (given: {self.kind})")
        if learnt := [key for key in LEARNT if getattr(self, key) != type(self).model_fields[key].default]:
            raise ValueError(f"from gives the merges, so that nothing is learnt: leave out {' and '.join(learnt)}")
        if (self.target_codes is None) != bool(self.joint):
            raise ValueError("target_from goes with joint false: each side then has its own codes, else one file")
        return self

    @model_validator(mode="after")
    def _given_counts_are_of_both_sides(self) -> Self:
        if (self.vocabulary is None) != (self.target_vocabulary is None):
            raise ValueError("vocabulary and target_vocabulary go together")
        if self.vocabulary is not None and not self.counts_pieces:
            raise ValueError(
                "vocabulary needs joint merges, or vocabulary_threshold of at least 1, which keeps each of its pieces"
            )
        return self

    @property
    def files(self) -> tuple[Path, ...]:
        """Files that the segmentation is made from, besides the training text."""
        found = (getattr(self, field) for field in FILES)
        return tuple(path for path in found if path is not None)

    def without_files(self) -> Self:
        """The configuration of a segmentation once it is made, which no longer needs these files."""
        return self.model_copy(update=dict.fromkeys(FILES)) if self.files else self

    def with_file_names(self) -> Self:
        """The configuration with the names of its files alone, not their folders."""
        paths = {field: getattr(self, field) for field in FILES}
        return self.model_copy(update={field: Path(path.name) for field, path in paths.items() if path is not None})

    @model_validator(mode="after")
    def _words_are_whole(self) -> Self:
        for name in ("split_punctuation", "split_digits"):
            if getattr(self, name) and self.kind == "word":
                raise ValueError(f"{name} needs kind bpe or unigram: whole words do not mark spaces")
        return self
