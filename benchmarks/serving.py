"""Cost of the server: many clients against `translate` on the same sentences, and the latency of one client.

    python -m benchmarks.serving RUN --source FILE [--sentences N] [--clients N] [--rounds N] [--client-core N]
        [--json FILE]

In each round, the sentences are translated once as by `jointnmt translate`, from one list, and once by so many clients
over the loopback, each of which sends a sentence and waits for its translation before the next one. Clients usually run
on other machines: with `--client-core` they have that core to themselves; translator and server have those that this
process was started on (`taskset`), which should not include it. Both are measured by the wall clock and by the
processor time of the process that computes; only the latter means something on a machine with other work. Then one
client and the translator itself translate sentences one by one, in turns of some sentences: the difference of the
medians is what a client waits for besides the translation. All numbers are medians of the rounds. Translations must be
equal throughout.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.machine import write_figures
from jointnmt import Translator

ALONE, TURN = 100, 10
"""Sentences of the one client, and of a turn; a process's threads spin for a while after its last sentence."""


class TimedTranslation(NamedTuple):
    """Time and translations of a way of translating."""

    seconds: float
    processor_seconds: float
    translations: list[str]


class Process:
    """A server in a process of its own, on a free loopback port."""

    def __init__(self, run: Path, folder: Path) -> None:
        log = folder / "server.log"
        command = [sys.executable, "-m", "jointnmt", "serve", str(run), "--port", "0"]
        command += ["--device", "cpu", "--precision", "float32"]  # as for the translator
        with log.open("wb") as output:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        while not (found := re.search(r"listening on http://127\.0\.0\.1:(\d+)", log.read_text())):
            if self._process.poll() is not None:
                raise RuntimeError(log.read_text())
            time.sleep(0.1)
        self.port = int(found[1])

    def processor_seconds(self) -> float:
        """Processor seconds of all its threads so far."""
        values = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        """Stop the server."""
        self._process.terminate()
        self._process.wait(timeout=60)


async def ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sentence: str, languages: tuple[str, str]
) -> str:
    """Send one request on an open connection; its translation."""
    body = json.dumps({"q": [sentence], "source": languages[0], "target": languages[1]}).encode()
    head = "POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    answer = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", answer, re.IGNORECASE)
    if not answer.startswith(b"HTTP/1.1 200") or length is None:
        raise RuntimeError(answer.decode())
    return str(json.loads(await reader.readexactly(int(length[1])))["translatedText"][0])


async def many_clients(port: int, sentences: Sequence[str], languages: tuple[str, str], clients: int) -> list[str]:
    """Translations by clients that each take the next sentence after their answer."""
    found, remaining = [""] * len(sentences), iter(enumerate(sentences))

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number, sentence in remaining:
            found[number] = await ask(reader, writer, sentence, languages)
        writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return found


@contextmanager
def on_core(core: int | None) -> Iterator[None]:
    """Context that computes on this core; None: where it is."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, before if core is None else {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def measured(translate: Callable[[], list[str]], processor_seconds: Callable[[], float]) -> TimedTranslation:
    """Time a way of translating."""
    processor, began = processor_seconds(), time.perf_counter()
    translations = translate()
    return TimedTranslation(time.perf_counter() - began, processor_seconds() - processor, translations)


def waits(translator: Translator, port: int, sentences: Sequence[str]) -> tuple[float, float]:
    """Median seconds of one sentence: by the translator itself, and by one client of the server."""
    languages, own, served = translator.segmentation.languages, list[float](), list[float]()

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for begin in range(0, len(sentences), TURN):  # in turns, so that other work on the machine disturbs both
            for sentence in sentences[begin : begin + TURN]:
                began = time.perf_counter()
                translator.translate([sentence])
                own.append(time.perf_counter() - began)
            for sentence in sentences[begin : begin + TURN]:
                began = time.perf_counter()
                await ask(reader, writer, sentence, languages)
                served.append(time.perf_counter() - began)
        writer.close()

    asyncio.run(client())
    return statistics.median(own), statistics.median(served)


def compare(
    run: Path, sentences: Sequence[str], clients: int, rounds: int = 1, client_core: int | None = None
) -> dict[str, float]:
    """All numbers of the comparison, medians over all rounds.

    Raises:
        RuntimeError: if the server's translations differ from the translator's.
    """
    translator = Translator.load(run, "cpu")
    translator.translate(sentences[:64])  # warms kernels and caches
    with tempfile.TemporaryDirectory() as folder:
        server = Process(run, Path(folder))
        try:
            languages = translator.segmentation.languages
            asyncio.run(many_clients(server.port, sentences[:64], languages, clients))
            found = [_round(translator, server, sentences, clients, client_core) for _ in range(rounds)]
        finally:
            server.end()
    return {name: statistics.median(each[name] for each in found) for name in found[0]}


def _round(
    translator: Translator, server: Process, sentences: Sequence[str], clients: int, client_core: int | None
) -> dict[str, float]:
    languages = translator.segmentation.languages
    alone = measured(lambda: translator.translate(sentences), time.process_time)
    with on_core(client_core):
        served = measured(
            lambda: asyncio.run(many_clients(server.port, sentences, languages, clients)), server.processor_seconds
        )
    own, one_client = waits(translator, server.port, sentences[:ALONE])
    if served.translations != alone.translations:
        raise RuntimeError("The server's translations differ from the translator's.")
    return {
        "sentences": len(sentences),
        "clients": clients,
        "translate_seconds": alone.seconds,
        "serve_seconds": served.seconds,
        "throughput": alone.seconds / served.seconds,
        "translate_processor_seconds": alone.processor_seconds,
        "serve_processor_seconds": served.processor_seconds,
        "processor_throughput": alone.processor_seconds / served.processor_seconds,
        "one_sentence_ms": 1000 * own,
        "one_client_ms": 1000 * one_client,
        "added_ms": 1000 * (one_client - own),
    }


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the directory of a trained model")
    parser.add_argument("--source", type=Path, required=True, help="sentences, one a line")
    parser.add_argument("--sentences", type=int, default=2000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--client-core", type=int, help="number of a core for the many clients alone")
    parser.add_argument("--json", type=Path, help="a file for the numbers")
    given = parser.parse_args()
    # Each line is one sentence: the server would split a line of several.
    lines = (line.strip() for line in given.source.read_text(encoding="utf-8").splitlines())
    sentences = [line for line in lines if line and not re.search(r"[.!?…]\S*\s", line)][: given.sentences]
    found = compare(given.run, sentences, given.clients, given.rounds, given.client_core)
    for name, value in found.items():
        print(f"{name:28} {value:10.3f}" if isinstance(value, float) else f"{name:28} {value:10}")
    if given.json:
        write_figures(given.json, "cpu", **found)


if __name__ == "__main__":
    main()
