"""The caching allocator for large tensors."""

from __future__ import annotations

import errno
import gc
import mmap
import os
import sys
import threading

import numpy as np
import pytest
import torch

from jointnmt.ops.native import allocator as memory
from jointnmt.ops.native.allocator import CachingAllocator
from jointnmt.ops.native.recording import Memory

LARGE = memory.SMALLEST  # elements of float32: four times the smallest


@pytest.fixture
def allocator() -> CachingAllocator:
    return CachingAllocator()


def test_tensors_are_like_any_others(allocator: CachingAllocator) -> None:
    for kind in (torch.float32, torch.bfloat16, torch.int64):
        tensor = allocator.empty((4, LARGE // 4), kind)
        assert tensor.shape == (4, LARGE // 4) and tensor.dtype == kind and tensor.is_contiguous()
        assert not tensor._is_view() and tensor.data_ptr() % 64 == 0
        assert tensor.untyped_storage().nbytes() == LARGE * kind.itemsize
        tensor.fill_(3)
        assert bool((tensor.clone() == 3).all())


def test_small_tensors_are_left_to_pytorch(allocator: CachingAllocator) -> None:
    allocator.empty((10,), torch.float32), allocator.empty((0, LARGE), torch.float32)
    assert allocator.reserved_bytes == 0


def test_memory_is_used_again_when_the_last_tensor_over_it_is_gone(allocator: CachingAllocator) -> None:
    first = allocator.empty((LARGE,), torch.float32)
    address, part = first.data_ptr(), first[7:9]
    del first
    second = allocator.empty((LARGE,), torch.float32)
    assert second.data_ptr() != address  # `part` still exists
    del part
    third = allocator.empty((LARGE // 2,), torch.float32)
    assert third.data_ptr() == address
    assert allocator.allocated_bytes == 4 * LARGE * 3 // 2
    assert allocator.peak_allocated_bytes == 2 * 4 * LARGE


def test_of_equal_blocks_that_came_back_the_last_is_used_first(allocator: CachingAllocator) -> None:
    first, second, other = (allocator.empty((size,), torch.float32) for size in (LARGE, LARGE, LARGE // 2))
    address, allocated = second.data_ptr(), allocator.allocated_bytes
    del first
    del second
    del other
    assert allocator.empty((LARGE - 10,), torch.float32).data_ptr() == address
    assert allocator.allocated_bytes == allocated  # nothing has been sorted in yet


def test_what_autograd_saves_is_not_used_again(allocator: CachingAllocator) -> None:
    x = allocator.empty((LARGE,), torch.float32).fill_(2).requires_grad_()
    y = x * x
    del x
    gc.collect()
    allocator.empty((LARGE,), torch.float32).fill_(5)
    y.sum().backward()
    saved = y.grad_fn.next_functions[0][0].variable  # type: ignore[union-attr]
    assert bool((saved.grad == 4).all())


def test_neighbours_become_one_block_again(allocator: CachingAllocator) -> None:
    """After any order of allocation and release, no two tensors overlap, and all free memory is one block."""
    generator = np.random.default_rng(0)
    tensors: list[tuple[torch.Tensor, int]] = []
    for number in range(400):
        if tensors and generator.random() < 0.45:
            tensor, value = tensors.pop(int(generator.integers(len(tensors))))
            assert bool((tensor == value).all())
        else:
            tensor = allocator.empty((int(generator.integers(LARGE // 4, 4 * LARGE)),), torch.float32)
            tensors.append((tensor.fill_(number), number))
    assert all(bool((tensor == value).all()) for tensor, value in tensors)
    allocated = sum(tensor.untyped_storage().nbytes() for tensor, _ in tensors)
    del tensor
    tensors.clear()
    assert allocated <= allocator.allocated_bytes
    allocator.empty((5 * LARGE,), torch.float32)  # released blocks are sorted in when none of them fits
    allocator.empty((6 * LARGE,), torch.float32)
    assert sum(block.before is None and block.after is None for block in allocator._free) == allocator._arenas - 1
    assert sum(block.size for block in allocator._free) + allocator.allocated_bytes == allocator.reserved_bytes


def test_little_more_is_reserved_than_was_ever_allocated_at_once(allocator: CachingAllocator) -> None:
    """Batches of ever new shapes: tensors kept for a backward pass, and short-lived ones between them."""
    generator = np.random.default_rng(0)
    for _ in range(40):
        rows, kept = int(generator.integers(200, 6000)), []
        for _ in range(12):
            kept += [allocator.empty((rows, width), torch.float32) for width in (256, 768, 1024)]
            allocator.empty((rows, 256), torch.float32)
        while kept:
            allocator.empty((rows, 512), torch.float32)
            kept.pop()
    assert allocator.peak_allocated_bytes > 500e6
    assert allocator.reserved_bytes < 1.2 * allocator.peak_allocated_bytes


def test_no_memory_left_is_a_memory_error(allocator: CachingAllocator, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    with monkeypatch.context() as patch:
        patch.setattr(memory.mmap, "mmap", refuse)
        with pytest.raises(MemoryError, match="bytes of memory"):
            allocator.empty((LARGE,), torch.float32)
    assert allocator.empty((LARGE,), torch.float32).shape == (LARGE,)
    assert allocator.allocated_bytes == 4 * LARGE


def test_what_is_not_allocated_can_be_given_back(allocator: CachingAllocator) -> None:
    kept, large = allocator.empty((LARGE,), torch.float32), allocator.empty((32 * LARGE,), torch.float32)
    reserved = allocator.reserved_bytes
    allocator.empty_cache()
    assert allocator.reserved_bytes == reserved  # all arenas are in use
    del large
    allocator.empty_cache()
    assert allocator.reserved_bytes == memory.ARENA
    assert bool((kept.fill_(3) == 3).all())
    del kept
    allocator.empty_cache()
    assert (allocator.reserved_bytes, allocator.allocated_bytes, allocator._free) == (0, 0, [])


def test_no_code_of_python_runs_when_memory_comes_back(allocator: CachingAllocator) -> None:
    """Otherwise a signal's handler might run there, and Python discards what it raises."""
    ran: list[str] = []
    recorded = Memory()
    for make in (allocator.empty, recorded.empty):
        tensor = make((LARGE,), torch.float32)
        sys.setprofile(lambda frame, event, _: ran.append(frame.f_code.co_name) if event == "call" else None)
        try:
            del tensor
        finally:
            sys.setprofile(None)
        address = make((LARGE,), torch.float32).data_ptr()
        assert address == make((LARGE,), torch.float32).data_ptr(), "it has come back all the same"
    assert not ran


def test_a_system_without_huge_pages_will_do(allocator: CachingAllocator, monkeypatch: pytest.MonkeyPatch) -> None:
    class NoHugePages(mmap.mmap):
        def madvise(self, *_: int) -> None:
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(memory.mmap, "mmap", NoHugePages)
    assert bool((allocator.empty((LARGE,), torch.float32).fill_(1) == 1).all())


def test_arenas_that_are_too_small_are_given_up_for_a_larger_one(allocator: CachingAllocator) -> None:
    for count in (1, 2, 4, 8):
        allocator.empty((count * memory.ARENA,), torch.uint8)
    assert allocator.reserved_bytes == 8 * memory.ARENA


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_process_has_memory_of_its_own(allocator: CachingAllocator) -> None:
    tensor = allocator.empty((LARGE,), torch.float32).fill_(1)
    if (child := os.fork()) == 0:
        tensor.numpy()[:] = 7
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert bool((tensor == 1).all())


def test_threads_share_an_allocator(allocator: CachingAllocator) -> None:
    wrong = []

    def work(number: int) -> None:
        for count in range(200):
            tensor = allocator.empty((LARGE // 4 * (1 + (count + number) % 5),), torch.float32)
            tensor.fill_(number)
            if not bool((tensor == number).all()):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
