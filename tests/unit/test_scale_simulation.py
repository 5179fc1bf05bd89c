"""The simulation of trainings on a cluster, and its fit."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.scale import Network, Processor, SimulatedTraining, mean_time
from benchmarks.scale_measured import fit_network, fit_processor
from benchmarks.sizes import SIZES, model_config

from jointnmt.data.batches import plan_epoch, shard
from jointnmt.data.length_buckets import BatchConfig


@pytest.fixture
def training() -> SimulatedTraining:
    """A training on pairs of 4 to 19 tokens, with gradients of 8 MB."""
    generator = np.random.default_rng(3)
    source, target = generator.integers(4, 20, (2, 400), dtype=np.int32)
    return SimulatedTraining(model_config("reformer-fast", "tiny"), SIZES["tiny"].vocabulary, 8_000_000, source, target)


def updates(training: SimulatedTraining) -> list[list[np.ndarray]]:
    return plan_epoch(training.source, training.target, BatchConfig(max_tokens=200, update_tokens=800), 1, 0)


def test_a_sum_sends_an_nth_from_neighbour_to_neighbour_twice_round() -> None:
    network = Network(latency=0.001, bandwidth=1e6)
    assert network.sum_seconds(8e6, 4) == pytest.approx(2 * 3 * (0.001 + 2e6 / 1e6))
    assert network.sum_seconds(8e6, 1) == 0


def test_one_process_computes_all_and_waits_for_nobody(training: SimulatedTraining) -> None:
    update = updates(training)[0]
    time = training.update_time(update, 1, Processor(1e-9, batch=0.5, step=0.25), Network(1.0, 1.0))
    operations = sum(map(training.operations, update))
    assert (time.waiting, time.summing, time.step) == (0, 0, 0.25)
    assert time.total == pytest.approx(operations * 1e-9 + 0.5 * len(update) + 0.25)


def test_an_update_ends_with_the_slowest_share(training: SimulatedTraining) -> None:
    processor, network = Processor(1e-9, batch=0.01, step=0.25), Network(0.001, 1e9)
    for update in updates(training):
        shares = [shard(update, (training.source, training.target), rank, 3) for rank in range(3)]
        slowest = max(sum(0.01 + 1e-9 * training.operations(part.pairs) for part in share) for share in shares)
        time = training.update_time(update, 3, processor, network)
        assert time.total == pytest.approx(slowest + 0.25 + network.sum_seconds(8e6, 3))


def test_a_short_batch_takes_as_long_as_its_launches(training: SimulatedTraining) -> None:
    update = updates(training)[0]
    time = training.update_time(update, 1, Processor(1e-15, shortest_batch=0.5), Network(1.0, 1.0))
    assert time.total == 0.5 * len(update)


def test_what_is_loaded_more_slowly_than_it_is_computed_decides(training: SimulatedTraining) -> None:
    update = updates(training)[0]
    tokens = sum(int(training.target[batch].sum()) for batch in update)
    time = training.update_time(update, 1, Processor(1e-15, load=0.01), Network(1.0, 1.0))
    assert time.total == pytest.approx(0.01 * tokens)


def test_processes_share_cores_and_those_that_end_leave_theirs_to_others(training: SimulatedTraining) -> None:
    update, processor, network = updates(training)[0], Processor(1e-9, batch=0.01, step=0.25), Network(0.0, 1e12)
    shares = [shard(update, (training.source, training.target), rank, 3) for rank in range(3)]
    first, second, third = sorted(
        sum(0.01 + 1e-9 * training.operations(part.pairs) for part in share) for share in shares
    )
    time = training.update_time(update, 3, processor, network, cores=2)
    # Two thirds of a core each until the first ends, then one each.
    assert time.compute == pytest.approx((first + second + third) / 2)
    assert time.compute + time.waiting == pytest.approx(1.5 * first + (third - first))
    assert time.step == pytest.approx(0.25 * 3 / 2)
    assert training.update_time(update, 3, processor, network, cores=8) == training.update_time(
        update, 3, processor, network
    )


def test_messages_through_memory_share_it() -> None:
    assert Network(1.0, 8.0).shared(4, 2) == Network(2.0, 4.0)
    assert Network(1.0, 8.0).shared(2, 2) == Network(1.0, 8.0)


def test_what_is_fitted_explains_what_was_measured(training: SimulatedTraining) -> None:
    processor, network = Processor(2e-9, batch=0.01, step=0.03), Network(0.0002, 3e9)
    plan = updates(training) + [update[:1] for update in updates(training)]
    seconds = [training.update_time(update, 1, processor, network).total for update in plan]
    found = fit_processor(training, [(plan, seconds)])
    assert (found.operation, found.batch, found.step) == pytest.approx((2e-9, 0.01, 0.03))
    fitted = fit_network([(size, network.sum_seconds(size, 2)) for size in (1_000, 100_000, 10_000_000)])
    assert (fitted.latency, fitted.bandwidth) == pytest.approx((0.0002, 3e9))


def test_means_are_taken_part_by_part(training: SimulatedTraining) -> None:
    times = [training.update_time(update, 2, Processor(1e-9), Network(1e-3, 1e9)) for update in updates(training)]
    assert mean_time(times).total == pytest.approx(np.mean([time.total for time in times]))
