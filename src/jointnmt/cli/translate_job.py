"""The work of `jointnmt translate`: lines in, translations out, each as soon as it is computed."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jointnmt.cli.console import counted, stderr
from jointnmt.cli.conversation import greeting, prompted
from jointnmt.cli.lines import STANDARD_INPUT, input_lines, open_output
from jointnmt.cli.resumption import Write, resumable_output
from jointnmt.data.lines import lines_or_errors
from jointnmt.errors import ConfigurationError
from jointnmt.files import hash_file
from jointnmt.translator import Translation, TranslationOptions, Translator
from jointnmt.translator.searching import check_options

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TranslationJob:
    """Input, options and output of one call."""

    input: list[str] | Path | None
    """Texts, a file, or standard input."""
    output: Path | None
    """A file, or standard output."""
    prefix: Path | None
    options: TranslationOptions
    as_json: bool
    typed: bool
    """Whether the lines are typed at a terminal."""

    def run(self, translator: Translator, resume: bool) -> None:
        """Translate, and write each translation as soon as it is computed; with `resume`, only the remaining lines."""
        if self.typed and logger.isEnabledFor(logging.INFO):
            stderr().print(greeting(translator), highlight=False, soft_wrap=True)
        began = time.perf_counter()
        check_options(translator, self.options)  # before the output of an interrupted call is overwritten
        with self._opened(translator, resume) as (write, done):
            number = done
            for number, translation in enumerate(self._translations(translator, done), start=done + 1):
                if self.typed and translation.error:
                    logger.error(translation.error)
                for line in self._rendered(translation, number):
                    write(line)
        if not self.typed and not isinstance(self.input, list):
            seconds, count = time.perf_counter() - began, number - done
            logger.info("%s in %.1f s, %.1f a second", counted(count, "line"), seconds, count / seconds)

    @contextmanager
    def _opened(self, translator: Translator, resume: bool) -> Iterator[tuple[Write, int]]:
        """A function that writes a line of output, and how many lines of input are done already."""
        files = [path for path in (self.input, self.prefix) if isinstance(path, Path)]
        from_files = isinstance(self.input, Path) and all(path.is_file() for path in files)  # a pipe is read only once
        if self.output is None or not from_files or (self.output.exists() and not self.output.is_file()):
            if resume:
                raise ConfigurationError("--resume is for files that can be read again: no pipes or devices.")
            with open_output(self.output) as write:
                yield write, 0
            return
        several_rows = self.options.num_best > 1 and not self.as_json
        with resumable_output(self.output, self._facts(translator), several_rows, resume) as opened:
            yield opened

    def _translations(self, translator: Translator, done: int) -> Iterator[Translation]:
        """The translations of the lines after the first `done`."""
        prefixes = None if self.prefix is None else lines_or_errors(self.prefix, str(self.prefix))
        if isinstance(self.input, list):
            return translator.translate_stream(self.input, self.options, prefixes, "text")
        lines = input_lines(self.input)
        if self.typed and logger.isEnabledFor(logging.INFO):
            lines = prompted(lines, f"{translator.segmentation.languages[0]}> ")
        return translator.translate_stream(lines, self.options, prefixes, str(self.input or STANDARD_INPUT), done)

    def _facts(self, translator: Translator) -> dict[str, Any]:
        """Everything that the output depends on."""
        options = asdict(self.options)
        for name in ("search", "limits"):
            options[name] = options[name] and options[name].plain()
        files = {"input": self.input, "prefix": self.prefix}
        return {
            **translator.facts(),
            "computed": [translator.device.type, translator.precision, translator.max_cells],
            "options": options,
            "format": "json" if self.as_json else "text",
            **{name: hash_file(path) for name, path in files.items() if isinstance(path, Path)},
        }

    def _rendered(self, translation: Translation, number: int) -> list[str]:
        """The lines to write for a line of input."""
        several = self.options.num_best > 1
        if self.as_json:
            return [json.dumps({"line": number, **translation.plain(several)}, ensure_ascii=False)]
        if not several:
            return [translation.text]
        candidates = [(each.score, each.text) for each in translation.candidates] or [(0.0, "")]
        return [f"{number}\t{score:.6f}\t{text}" for score, text in candidates]
