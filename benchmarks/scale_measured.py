"""The simulation of `benchmarks.scale` against trainings of 1, 2 and 4 processes on this machine.

    python -m benchmarks.scale_measured [--families FAMILY ...] [--size SIZE] [--processes N ...] [--out FILE]

The cost of a process's share is fitted to processes that train alone, as many at once as there are cores, and the
network to sums of random numbers between two processes. Then updates are trained together, by gloo over the loopback
interface, one thread a process, and compared with the simulation of the same updates.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import distributed

from benchmarks.lengths import sentence_lengths
from benchmarks.machine import write_figures
from benchmarks.scale import Network, Processor, SimulatedTraining, mean_time
from benchmarks.sizes import SIZES
from benchmarks.training import Training, TrainingCase
from jointnmt.data.batches import UpdateBatches
from jointnmt.models import FAMILIES

CORES = os.cpu_count() or 1
BATCH_TOKENS, UPDATE_TOKENS = 1024, 4096
MAX_CELLS = 16_384
WARM_UP = 4
"""Updates of warm-up."""
SUMMED = [2**exponent for exponent in range(12, 24, 2)]
"""Numbers that are summed in measurements of the network."""

Timed = tuple[list[UpdateBatches], list[float]]
"""Updates, and the seconds of each."""


def train(case: TrainingCase, updates: int) -> Timed:
    """Time updates in this process, which trains with the others of its group."""
    subject = Training(case)
    reports = [next(subject.steps) for _ in range(WARM_UP + updates)]
    return subject.plan()[WARM_UP:], [report.seconds for report in reports[WARM_UP:]]


def sum_numbers() -> list[tuple[int, float]]:
    """Bytes and seconds of sums over the processes of this group."""
    distributed.init_process_group("gloo")
    return [(4 * count, _sum_seconds(torch.zeros(count))) for count in SUMMED]


def _sum_seconds(tensor: torch.Tensor) -> float:
    took = []
    for _ in range(15):
        distributed.barrier()
        began = time.perf_counter()
        distributed.all_reduce(tensor)
        took.append(time.perf_counter() - began)
    return median(took)


def in_group(act: Callable[[], Any], processes: int) -> Any:
    """Result of `act` in the first of so many processes, which form a group as under torchrun."""
    return _start(act, [(rank, processes) for rank in range(processes)])[0]


def alone(act: Callable[[], Any], copies: int) -> list[Any]:
    """Results of `act` in so many simultaneous processes that do not form a group."""
    return _start(act, [(0, 1)] * copies)


def _start(act: Callable[[], Any], places: Sequence[tuple[int, int]]) -> list[Any]:
    context = multiprocessing.get_context("forkserver")  # imports once, and forks a clean process each time
    context.set_forkserver_preload(["benchmarks.training"])
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    pipes = [context.Pipe(duplex=False) for _ in places]
    workers = [
        context.Process(target=_work, args=(act, rank, world, port, theirs), daemon=True)
        for (rank, world), (_, theirs) in zip(places, pipes, strict=True)
    ]
    for worker, (_, theirs) in zip(workers, pipes, strict=True):
        worker.start()
        theirs.close()
    results = [ours.recv() for ours, _ in pipes]
    for worker in workers:
        worker.join()
    return results


def _work(act: Callable[[], Any], rank: int, world: int, port: int, connection: Any) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": str(world)}
    if world > 1:  # by which the package detects torchrun
        os.environ |= {"TORCHELASTIC_RUN_ID": "benchmark", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(world)}
    torch.set_num_threads(1)
    connection.send(act())


def fit_processor(simulated: SimulatedTraining, timed: Sequence[Timed]) -> Processor:
    """Seconds of an operation, a batch and a step, fitted to updates of processes that train alone."""
    rows = [
        (sum(map(simulated.operations, update)), len(update), 1.0, seconds)
        for updates, times in timed
        for update, seconds in zip(updates, times, strict=True)
    ]
    *features, seconds = np.array(rows).T
    relative = np.stack(features, 1) / seconds[:, None]
    scale = relative.max(0)
    operation, batch, step = np.linalg.lstsq(relative / scale, np.ones(len(rows)), rcond=None)[0] / scale
    return Processor(operation=float(operation), batch=max(0.0, float(batch)), step=max(0.0, float(step)))


def fit_network(timed: Sequence[tuple[int, float]]) -> Network:
    """Latency and bandwidth, fitted to sums of two processes: 2 (latency + bytes / 2 / bandwidth) seconds each."""
    sizes, seconds = np.array(timed).T
    columns = np.stack([2 / seconds, sizes / seconds], 1)
    scale = columns.max(0)
    latency, per_byte = np.linalg.lstsq(columns / scale, np.ones(len(seconds)), rcond=None)[0] / scale
    return Network(max(0.0, float(latency)), 1 / float(per_byte))


def compare(family: str, size: str, precision: str, counts: Sequence[int], updates: int) -> list[dict[str, Any]]:
    """Simulated and measured seconds of an update, for each number of processes."""
    lengths = sentence_lengths(size)
    whole = TrainingCase(
        family, size, precision, "product", lengths.source, lengths.target, BATCH_TOKENS, MAX_CELLS,
        updates=WARM_UP + updates, update_tokens=UPDATE_TOKENS,
    )  # fmt: skip
    small = TrainingCase(**{**vars(whole), "update_tokens": BATCH_TOKENS})
    simulated = SimulatedTraining.of(Training(whole).trainer.model, SIZES[size].vocabulary, lengths)
    network = fit_network(in_group(sum_numbers, 2))
    rows, processors = [], {}
    for processes in counts:
        busy = min(processes, CORES)
        if busy not in processors:
            timed = [each for case in (whole, small) for each in alone(partial(train, case, updates), busy)]
            processors[busy] = fit_processor(simulated, timed)
        plan, seconds = in_group(partial(train, whole, updates), processes)
        expected = mean_time(
            [
                simulated.update_time(update, processes, processors[busy], network.shared(processes, CORES), CORES)
                for update in plan
            ]
        )
        rows.append({
            "family": family, "processes": processes, "simulated": expected.total, "measured": float(np.mean(seconds)),
            "off": expected.total / float(np.mean(seconds)) - 1, "parts": vars(expected),
            "processor": vars(processors[busy]), "network": vars(network),
        })  # fmt: skip
    return rows


def main() -> None:
    """Measure, compare, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=["transformer", "reformer-fast"])
    parser.add_argument("--size", choices=SIZES, default="Multi30k")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--out", type=Path, help="JSON")
    asked = parser.parse_args()
    rows = []
    for family in asked.families:
        for row in compare(family, asked.size, asked.precision, asked.processes, asked.updates):
            rows.append(row)
            print(
                f"{family}, {row['processes']} processes: {row['simulated']:.3f} s simulated, {row['measured']:.3f} s "
                f"measured ({row['off']:+.0%})",
                flush=True,
            )
    if asked.out:
        write_figures(asked.out, rows=rows)


if __name__ == "__main__":
    main()
