"""The pool of memory for large tensors."""

from __future__ import annotations

import errno
import gc
import mmap
import os
import threading

import numpy as np
import pytest
import torch
from jointnmt.ops.native.memory import Pool

from jointnmt.ops.native import memory

LARGE = memory.SMALLEST  # elements of float32: four times what is lent


@pytest.fixture
def pool() -> Pool:
    return Pool()


def test_tensors_are_like_any_others(pool: Pool) -> None:
    for kind in (torch.float32, torch.bfloat16, torch.int64):
        tensor = pool.empty((4, LARGE // 4), kind)
        assert tensor.shape == (4, LARGE // 4) and tensor.dtype == kind and tensor.is_contiguous()
        assert not tensor._is_view() and tensor.data_ptr() % 64 == 0
        assert tensor.untyped_storage().nbytes() == LARGE * kind.itemsize
        tensor.fill_(3)
        assert bool((tensor.clone() == 3).all())


def test_small_tensors_are_left_to_pytorch(pool: Pool) -> None:
    pool.empty((10,), torch.float32), pool.empty((0, LARGE), torch.float32)
    assert pool.held_bytes == 0


def test_memory_is_lent_again_when_the_last_tensor_over_it_is_gone(pool: Pool) -> None:
    first = pool.empty((LARGE,), torch.float32)
    address, part = first.data_ptr(), first[7:9]
    del first
    second = pool.empty((LARGE,), torch.float32)
    assert second.data_ptr() != address  # `part` is still there
    del part
    third = pool.empty((LARGE // 2,), torch.float32)
    assert third.data_ptr() == address
    assert pool.lent_bytes == 4 * LARGE * 3 // 2
    assert pool.most_lent_bytes == 2 * 4 * LARGE


def test_of_equal_blocks_that_came_back_the_last_is_lent_first(pool: Pool) -> None:
    first, second, other = (pool.empty((size,), torch.float32) for size in (LARGE, LARGE, LARGE // 2))
    address, lent = second.data_ptr(), pool.lent_bytes
    del first
    del second
    del other
    assert pool.empty((LARGE - 10,), torch.float32).data_ptr() == address
    assert pool.lent_bytes == lent  # nothing has been sorted in


def test_what_autograd_saves_is_not_lent_again(pool: Pool) -> None:
    x = pool.empty((LARGE,), torch.float32).fill_(2).requires_grad_()
    y = x * x
    del x
    gc.collect()
    pool.empty((LARGE,), torch.float32).fill_(5)
    y.sum().backward()
    saved = y.grad_fn.next_functions[0][0].variable  # type: ignore[union-attr]
    assert bool((saved.grad == 4).all())


def test_neighbours_become_one_block_again(pool: Pool) -> None:
    """After any order of taking and giving back, no two tensors overlap, and everything free is in one piece."""
    generator = np.random.default_rng(0)
    tensors: list[tuple[torch.Tensor, int]] = []
    for number in range(400):
        if tensors and generator.random() < 0.45:
            tensor, value = tensors.pop(int(generator.integers(len(tensors))))
            assert bool((tensor == value).all())
        else:
            tensor = pool.empty((int(generator.integers(LARGE // 4, 4 * LARGE)),), torch.float32)
            tensors.append((tensor.fill_(number), number))
    assert all(bool((tensor == value).all()) for tensor, value in tensors)
    lent = sum(tensor.untyped_storage().nbytes() for tensor, _ in tensors)
    del tensor
    tensors.clear()
    assert lent <= pool.lent_bytes
    pool.empty((5 * LARGE,), torch.float32)  # what has come back is sorted in when nothing of it fits
    pool.empty((6 * LARGE,), torch.float32)
    assert sum(block.before is None and block.after is None for block in pool._free) == pool._arenas - 1
    assert sum(block.size for block in pool._free) + pool.lent_bytes == pool.held_bytes


def test_little_more_is_held_than_was_ever_lent_at_once(pool: Pool) -> None:
    """Batches of ever new shapes: tensors that are kept for a backward pass, and short-lived ones between them."""
    generator = np.random.default_rng(0)
    for _ in range(40):
        rows, kept = int(generator.integers(200, 6000)), []
        for _ in range(12):
            kept += [pool.empty((rows, width), torch.float32) for width in (256, 768, 1024)]
            pool.empty((rows, 256), torch.float32)
        while kept:
            pool.empty((rows, 512), torch.float32)
            kept.pop()
    assert pool.most_lent_bytes > 500e6
    assert pool.held_bytes < 1.2 * pool.most_lent_bytes


def test_no_memory_left_is_a_memory_error(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    with monkeypatch.context() as patch:
        patch.setattr(memory.mmap, "mmap", refuse)
        with pytest.raises(MemoryError, match="bytes of memory left"):
            pool.empty((LARGE,), torch.float32)
    assert pool.empty((LARGE,), torch.float32).shape == (LARGE,)
    assert pool.lent_bytes == 4 * LARGE


def test_what_is_not_lent_can_be_given_back(pool: Pool) -> None:
    kept, large = pool.empty((LARGE,), torch.float32), pool.empty((32 * LARGE,), torch.float32)
    held = pool.held_bytes
    pool.release()
    assert pool.held_bytes == held  # all arenas are in use
    del large
    pool.release()
    assert pool.held_bytes == memory.ARENA
    assert bool((kept.fill_(3) == 3).all())
    del kept
    pool.release()
    assert (pool.held_bytes, pool.lent_bytes, pool._free) == (0, 0, [])


def test_a_system_without_huge_pages_will_do(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    class NoHugePages(mmap.mmap):
        def madvise(self, *_: int) -> None:
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(memory.mmap, "mmap", NoHugePages)
    assert bool((pool.empty((LARGE,), torch.float32).fill_(1) == 1).all())


def test_arenas_that_are_too_small_are_given_up_for_a_larger_one(pool: Pool) -> None:
    for count in (1, 2, 4, 8):
        pool.empty((count * memory.ARENA,), torch.uint8)
    assert pool.held_bytes == 8 * memory.ARENA


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_process_has_memory_of_its_own(pool: Pool) -> None:
    tensor = pool.empty((LARGE,), torch.float32).fill_(1)
    if (child := os.fork()) == 0:
        tensor.numpy()[:] = 7
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert bool((tensor == 1).all())


def test_threads_share_a_pool(pool: Pool) -> None:
    wrong = []

    def work(number: int) -> None:
        for count in range(200):
            tensor = pool.empty((LARGE // 4 * (1 + (count + number) % 5),), torch.float32)
            tensor.fill_(number)
            if not bool((tensor == number).all()):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
