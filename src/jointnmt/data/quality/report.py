"""Reports on checked texts, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from jointnmt.data.quality.check import CheckedText
from jointnmt.data.quality.languages import SideLanguage
from jointnmt.data.quality.problems import NUMBERS, PROBLEMS

MOST_EXAMPLES, MOST_BLOCKS, MOST_CHARACTERS = 3, 10, 60


@dataclass(frozen=True)
class Example:
    """A line that has a problem."""

    line: int
    source: str
    target: str


@dataclass(frozen=True)
class Finding:
    """A problem of a text: how many pairs have it, and the first of them."""

    problem: str
    count: int
    examples: tuple[Example, ...]


@dataclass(frozen=True)
class TextReport:
    """Results of the check of one text."""

    text: str
    part: str
    pairs: int
    good: int
    notes: tuple[str, ...]
    findings: tuple[Finding, ...]
    shifted: tuple[tuple[int, int, int], ...]
    """First line, last line (from 1) and shift of the translations, in lines, of each shifted block."""


@dataclass(frozen=True)
class QualityReport:
    """Results of the check of all texts."""

    source: SideLanguage
    target: SideLanguage
    texts: tuple[TextReport, ...]

    @property
    def pairs(self) -> int:
        """Number of pairs of all texts."""
        return sum(text.pairs for text in self.texts)

    @property
    def good(self) -> int:
        """Number of pairs without a problem."""
        return sum(text.good for text in self.texts)

    def plain(self) -> dict[str, object]:
        """The report as JSON-compatible values."""
        return {**asdict(self), "pairs": self.pairs, "good": self.good}

    def render(self) -> str:
        """The report as text."""
        lines = [
            f"source: {self.source.language or 'unknown'} ({self.source.reason}); "
            f"target: {self.target.language or 'unknown'} ({self.target.reason})"
        ]
        for text in self.texts:
            lines += ["", *_rendered(text)]
        if len(self.texts) > 1:
            lines += ["", f"all: {self.pairs:,} pairs, {self.pairs - self.good:,} with a problem"]
        return "\n".join(lines)


def quality_report(checked: Sequence[CheckedText], languages: tuple[SideLanguage, SideLanguage]) -> QualityReport:
    """The report on checked texts; reads the lines of the examples again."""
    return QualityReport(languages[0], languages[1], tuple(map(_text_report, checked)))


def _text_report(checked: CheckedText) -> TextReport:
    counts = checked.counts()
    examples: dict[str, list[Example]] = {name: [] for name in counts}
    names = {number: name for name, number in NUMBERS.items()}
    missing = sum(min(MOST_EXAMPLES, count) for count in counts.values())
    for pair, number in zip(checked.text.pairs(), checked.problems.tolist(), strict=True):
        if not missing:
            break
        if number and len(examples[names[number]]) < MOST_EXAMPLES:
            problem = f"({pair.detail})" if pair.detail else ""
            source, target = pair.source or problem, pair.target or (problem if pair.source else "")
            examples[names[number]].append(Example(pair.line, _printable(source), _printable(target)))
            missing -= 1
    return TextReport(
        text=checked.text.name,
        part=checked.text.part,
        pairs=len(checked),
        good=int(checked.good.sum()),
        notes=tuple(checked.notes),
        findings=tuple(Finding(name, count, tuple(examples[name])) for name, count in counts.items()),
        shifted=tuple((block.begin + 1, block.end, block.shift) for block in checked.blocks),
    )


def _printable(text: str) -> str:
    """Text with surrogates, which are not valid Unicode, replaced."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _rendered(text: TextReport) -> list[str]:
    bad = text.pairs - text.good
    share = f" ({bad / text.pairs:.1%})" if text.pairs else ""
    lines = [f"{text.text}: {text.pairs:,} pairs, {bad:,} with a problem{share}"]
    lines += [f"  note: {note.removeprefix(text.text + ': ')}" for note in text.notes]
    for finding in text.findings:
        lines.append(f"  {finding.problem}: {finding.count:,}  {PROBLEMS[finding.problem]}")
        if finding.problem == "shifted":
            lines += [f"    {_shift(*block)}" for block in text.shifted[:MOST_BLOCKS]]
            if len(text.shifted) > MOST_BLOCKS:
                lines.append(f"    and {len(text.shifted) - MOST_BLOCKS:,} more blocks (--json has all)")
            continue
        lines += [
            f"    line {example.line}: {_shortened(example.source)} | {_shortened(example.target)}"
            for example in finding.examples
        ]
    return lines


def _shift(first: int, last: int, shift: int) -> str:
    lines = f"line {first}" if first == last else f"lines {first} to {last}"
    return (
        f"{lines}: translations are {abs(shift)} line{'s' if abs(shift) > 1 else ''} "
        f"{'later' if shift > 0 else 'earlier'}"
    )


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"
