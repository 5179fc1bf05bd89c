"""Limits on untrusted text. The server extends them."""

from __future__ import annotations

from pydantic import Field

from jointnmt.config import Config
from jointnmt.search import SamplingConfig, SearchConfig

Search = SearchConfig | SamplingConfig


class TextLimits(Config):
    """How much one line may cost: its length, the breadth of its search, and with both the memory for it.

    Each `refused_...` is the reason why something is not taken, as a sentence, or None.
    """

    line_characters: int = Field(5_000, ge=1, description="most characters of a line")
    sentence_tokens: int = Field(250, ge=2, description="most source tokens of a sentence, end mark counted")
    beam_size: int = Field(16, ge=1, description="widest beam")
    num_best: int = Field(16, ge=1, description="most translations, or samples, of a line")
    sentence_cells: int = Field(
        2_000_000, ge=1, description="most cells of a sentence: hypotheses * source tokens * most target tokens"
    )

    def refused_line(self, characters: int) -> str | None:
        """Of a line with so many characters."""
        if characters <= self.line_characters:
            return None
        return f"A line has {characters} characters; at most {self.line_characters} are taken. Split it."

    def refused_breadth(self, num_best: int, beam_size: int) -> str | None:
        """Of so many translations of a line, searched with such a beam."""
        for name, value in (("num_best", num_best), ("beam_size", beam_size)):
            if value > (most := getattr(self, name)):
                return f"{name} is {value}; at most {most} is taken."
        return None

    def refused_sentence(self, tokens: int, max_length: int | None = None) -> str | None:
        """Of a sentence with so many tokens, for a model that takes no more than `max_length`, if that is given."""
        most = min(self.sentence_tokens, max_length or self.sentence_tokens)
        if tokens <= most:
            return None
        return f"A sentence has {tokens} tokens, end mark included; at most {most} are taken."

    def refused_cells(self, rows: int, source_tokens: int, target_tokens: int) -> str | None:
        """Of a sentence with so many hypotheses, source tokens, and target tokens at most."""
        cells = rows * source_tokens * target_tokens
        if cells <= self.sentence_cells:
            return None
        return (
            f"A sentence of {source_tokens} tokens needs up to {cells} cells ({rows} hypotheses, {target_tokens} "
            f"target tokens); at most {self.sentence_cells} are taken. Split it, or use a smaller beam."
        )
