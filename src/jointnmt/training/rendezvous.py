"""The process group of torchrun's workers, which is made anew whenever they start again."""

from __future__ import annotations

import secrets
import time
from datetime import timedelta

from torch import distributed
from torch.distributed import PrefixStore, Store

PAUSE = 0.02
"""Seconds between looks into the store."""


def join_workers(backend: str, rank: int, size: int, timeout: timedelta) -> None:
    """Make the process group of the workers that torchrun has started together.

    Raises:
        RuntimeError: if others cannot be reached.
    """
    store, _, _ = next(distributed.rendezvous("env://", rank, size, timeout=timeout))
    distributed.init_process_group(
        backend, store=_unused_part(store, rank, size), rank=rank, world_size=size, timeout=timeout
    )


def _unused_part(store: Store, rank: int, size: int) -> Store:
    """A part of torchrun's store in which no earlier workers have written.

    torchrun keeps its store over restarts, and a process group would find the addresses of dead workers there. The
    name of the part is drawn by the worker of rank 0, which answers the question of each other worker, until all have
    said that they know it. Questions of dead workers are answered, too; nobody reads that.
    """
    mine = secrets.token_hex(16)
    if rank == 0:
        others = set(range(1, size))
        while others:
            for other in tuple(others):
                if store.check([f"{mine}/knows/{other}"]):
                    others.remove(other)
                elif store.check([f"asks/{other}"]):
                    store.set(f"{store.get(f'asks/{other}').decode()}/answer", mine)
            time.sleep(PAUSE)
        return PrefixStore(mine, store)
    store.set(f"asks/{rank}", mine)
    while not store.check([f"{mine}/answer"]):  # a signal is heeded meanwhile, which `Store.wait` would let wait
        time.sleep(PAUSE)
    name = store.get(f"{mine}/answer").decode()
    store.set(f"{name}/knows/{rank}", "")
    return PrefixStore(name, store)

