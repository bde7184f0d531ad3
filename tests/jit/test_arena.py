"""Memory of large dense results: aligned, cleared, used again only when nobody looks at it any more, and bounded."""

import gc
import threading

import numpy as np
import pytest

import sparsejax as sj
from sparsejax.jit import arena

COUNT = arena.SMALLEST // 8 + 3
F8 = np.dtype("f8")


@pytest.fixture(autouse=True)
def empty():
    gc.collect()
    arena.drop()
    yield
    arena.drop()


def write(array, value):
    """As a kernel does: through the address."""
    address = array.__array_interface__["data"][0]
    np.frombuffer((arena.ctypes.c_char * array.nbytes).from_address(address), array.dtype)[:] = value


@pytest.mark.parametrize("dtype", ["f4", "f8", "c16", "i4", "?"])
@pytest.mark.parametrize("value", [0, 1, -np.inf])
def test_values_and_alignment(dtype, value):
    dtype = np.dtype(dtype)
    start = np.asarray(value).astype(dtype)[()] if dtype.kind in "fc" else dtype.type(value != 0)
    for _ in range(3):
        array, address = arena.full(arena.SMALLEST // dtype.itemsize + 1, dtype, start)
        assert address % arena.ALIGNMENT == 0 and array.dtype == dtype and not array.flags.writeable
        assert array.__array_interface__["data"][0] == address
        assert (array == start).all()
        write(array, dtype.type(3))
        del array


def test_a_block_is_used_again_when_its_last_view_is_gone():
    first, address = arena.full(COUNT, F8, 0.0)
    view = first[5:][::2]
    del first
    second, other = arena.full(COUNT, F8, 0.0)
    assert other != address and arena.held() == 0
    del view
    assert arena.held() > 0
    third, again = arena.full(COUNT, F8, 0.0)
    assert again == address and arena.held() == 0
    del second, third


def test_what_is_free_is_bounded():
    for size in (1, 2, 3, 5, 9):
        arrays = [arena.full(size * COUNT, F8, 0.0)[0] for _ in range(8)]
        del arrays
        assert 0 < arena.held() <= arena.LIMIT
    del_me, _ = arena.full(arena.LIMIT // 8 + 1, F8, 0.0)
    del del_me
    assert arena.held() <= arena.LIMIT


def test_free_blocks_are_given_up_before_memory_runs_out(monkeypatch):
    del_me, _ = arena.full(COUNT, F8, 0.0)
    del del_me
    real, failures = arena._Memory, []

    def short(size):
        if arena.held():
            failures.append(size)
            raise MemoryError
        return real(size)

    monkeypatch.setattr(arena, "_Memory", short)
    array, _ = arena.full(3 * COUNT, F8, 0.0)
    assert len(failures) == 1 and array.sum() == 0


def test_results_in_use_are_never_overwritten():
    n = arena.SMALLEST // 8 // 64 + 1
    x = sj.array(np.eye(n, 40), format="csr", copy=True)
    f = sj.jit(lambda x, y: x @ y)
    kept = [f(x, np.full((40, 64), float(k))) for k in range(4)]
    for k in range(4, 12):
        f(x, np.full((40, 64), float(k)))
    assert arena.held() > 0
    for k, made in enumerate(kept):
        expected = np.zeros((n, 64))
        expected[:40] = k
        np.testing.assert_array_equal(made.todense(), expected)


def test_results_cannot_be_made_writeable():
    array, _ = arena.full(COUNT, F8, 0.0)
    with pytest.raises(ValueError):
        array.flags.writeable = True


def test_threads_share_blocks_without_mixing_them():
    faults = []

    def work(number):
        for _ in range(30):
            array, _ = arena.full(COUNT, F8, 0.0)
            if array.any():
                faults.append("not cleared")
            write(array, number)
            if not (array == number).all():
                faults.append("shared")

    threads = [threading.Thread(target=work, args=(k + 1.0,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults
