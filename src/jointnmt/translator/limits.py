"""Limits on untrusted text. The server extends them."""

from __future__ import annotations

from pydantic import Field

from jointnmt.config import Config
from jointnmt.search import SamplingConfig, SearchConfig

Search = SearchConfig | SamplingConfig


class TextLimits(Config):
    """How much one line may cost: its length, the breadth of its search, and the memory that both need.

    Each `refused_...` method returns the reason for a refusal, as a sentence, or None.
    """

    line_characters: int = Field(5_000, ge=1, description="most characters of a line")
    sentence_tokens: int = Field(250, ge=2, description="most source tokens of a sentence, end mark included")
    beam_size: int = Field(16, ge=1, description="widest beam")
    num_best: int = Field(16, ge=1, description="most translations, or samples, of a line")
    sentence_cells: int = Field(
        2_000_000, ge=1, description="most cells of a sentence: hypotheses * source tokens * most target tokens"
    )

    def refused_line(self, characters: int) -> str | None:
        """Refusal of a line with so many characters."""
        if characters <= self.line_characters:
            return None
        return f"A line has {characters} characters; at most {self.line_characters} are taken. Split it."

    def refused_breadth(self, num_best: int, beam_size: int) -> str | None:
        """Refusal of so many translations of a line, or of such a beam."""
        for name, value in (("num_best", num_best), ("beam_size", beam_size)):
            if value > (most := getattr(self, name)):
                return f"{name} is {value}; at most {most} is taken."
        return None

    def refused_sentence(self, tokens: int, max_length: int | None = None) -> str | None:
        """Refusal of a sentence with so many tokens; `max_length` is the model's own limit, if it has one."""
        most = min(self.sentence_tokens, max_length or self.sentence_tokens)
        if tokens <= most:
            return None
        return f"A sentence has {tokens} tokens, end mark included; at most {most} are taken."

    def refused_cells(self, rows: int, source_tokens: int, target_tokens: int) -> str | None:
        """Refusal of a sentence with so many hypotheses, source tokens, and at most so many target tokens."""
        cells = rows * source_tokens * target_tokens
        if cells <= self.sentence_cells:
            return None
        return (
            f"A sentence of {source_tokens} tokens needs up to {cells} cells ({rows} hypotheses, {target_tokens} "
            f"target tokens); at most {self.sentence_cells} are taken. Split it, or use a smaller beam."
        )
