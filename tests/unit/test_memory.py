"""The pool of memory for large tensors."""

from __future__ import annotations

import gc
import threading

import pytest
import torch

from jointnmt.native import memory
from jointnmt.native.memory import Pool

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
    assert pool.held_bytes == pool.most_lent_bytes == 2 * 4 * LARGE


def test_what_autograd_saves_is_not_lent_again(pool: Pool) -> None:
    x = pool.empty((LARGE,), torch.float32).fill_(2).requires_grad_()
    y = x * x
    del x
    gc.collect()
    pool.empty((LARGE,), torch.float32).fill_(5)
    y.sum().backward()
    saved = y.grad_fn.next_functions[0][0].variable  # type: ignore[union-attr]
    assert bool((saved.grad == 4).all())


def test_a_small_tensor_takes_no_large_block(pool: Pool) -> None:
    large = pool.empty((8 * LARGE,), torch.float32).data_ptr()  # freed at once
    assert pool.empty((LARGE,), torch.float32).data_ptr() != large


def test_free_blocks_that_nothing_fits_into_are_given_up(pool: Pool) -> None:
    for count in range(1, 40):
        pool.empty((count * LARGE,), torch.float32)
        assert pool.held_bytes <= memory.SURPLUS * pool.most_lent_bytes
    assert pool.most_lent_bytes <= 4 * LARGE * 39 * 9 / 8


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
