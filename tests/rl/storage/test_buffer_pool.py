"""Memory is used again when nobody holds what was made in it, and not before."""

import tracemalloc

import numpy as np

from vedette_rl.storage.buffer_pool import BufferPool


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def test_memory_is_used_again_once_its_array_is_gone() -> None:
    recycler = BufferPool(large_bytes=8)
    array = recycler.allocate(1000)
    first = address(array)
    del array
    assert address(recycler.allocate(900)) == first


def test_what_a_view_holds_is_not_used_again() -> None:
    recycler = BufferPool(large_bytes=8)
    array = recycler.allocate(1000)
    array[...] = 7
    view = array[8:].view(np.uint64)[1:]
    del array
    recycler.allocate(1000)[...] = 9
    assert (view.view(np.uint8) == 7).all()


def test_what_a_buffer_holds_is_not_used_again() -> None:
    recycler = BufferPool(large_bytes=8)
    array = recycler.allocate(1000)
    array[...] = 7
    buffer = array.data[500:]
    del array
    recycler.allocate(1000)[...] = 9
    assert bytes(buffer) == b"\7" * 500


def test_memory_that_is_too_small_is_left() -> None:
    recycler = BufferPool(large_bytes=8)
    recycler.allocate(10)
    large = recycler.allocate(1000)
    assert large.nbytes == 1000


def test_no_more_is_kept_than_who_changes_over_needs() -> None:
    recycler = BufferPool(large_bytes=8)
    tracemalloc.start()
    try:
        arrays = [recycler.allocate(1 << 20) for _ in range(5)]
        arrays.clear()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 3 << 20
