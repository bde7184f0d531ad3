"""Memory of large dense results: aligned, cleared, used again only when nobody looks at it any more, and bounded."""

import gc
import struct

import numpy as np
import pytest

import sparsejax as sj
from sparsejax.jit.backend import host
from sparsejax.jit.runtime.system import allocator, allocator_text, result_memory
from tests.together import in_threads

COUNT = result_memory.SMALLEST // 8 + 3
F8 = np.dtype("f8")
owned = pytest.mark.skipif(not host.has("mremap"), reason="large results come from NumPy here")


@pytest.fixture(autouse=True, scope="module")
def settled():
    """Of what earlier tests left, the garbage collector need not look at anything after every test: that took 3 s each."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def empty():
    gc.collect()
    allocator.drop()
    yield
    allocator.drop()


def write(array, value):
    """As a kernel does: through the address."""
    address = array.__array_interface__["data"][0]
    np.frombuffer((result_memory.ctypes.c_char * array.nbytes).from_address(address), array.dtype)[:] = value


@pytest.mark.rotating(2)
@pytest.mark.parametrize("dtype", ["f4", "f8", "c16", "i4", "?"])
@pytest.mark.parametrize("value", [0, 1, -np.inf])
def test_values_and_alignment(dtype, value):
    dtype = np.dtype(dtype)
    start = np.asarray(value).astype(dtype)[()] if dtype.kind in "fc" else dtype.type(value != 0)
    for _ in range(3):
        array, address = result_memory.full(result_memory.SMALLEST // dtype.itemsize + 1, dtype, start)
        assert address % result_memory.ALIGNMENT == 0 and array.dtype == dtype and not array.flags.writeable
        assert array.__array_interface__["data"][0] == address
        assert (array == start).all()
        write(array, dtype.type(3))
        del array


@owned
def test_a_block_is_used_again_when_its_last_view_is_gone():
    first, address = result_memory.full(COUNT, F8, 0.0)
    view = first[5:][::2]
    del first
    second, other = result_memory.full(COUNT, F8, 0.0)
    assert other != address and allocator.held() == 0
    del view
    assert allocator.held() > 0
    third, again = result_memory.full(COUNT, F8, 0.0)
    assert again == address and allocator.held() == 0
    del second, third


@owned
@pytest.mark.parametrize("sizes", [(4, 3, 2), (2, 3, 4)])
def test_results_of_other_sizes_take_what_was_given_back_last(sizes):
    """Of free blocks up to twice as large as what is needed, not the one that fits best: it would be out of the caches."""
    kept = [result_memory.full(n * COUNT // 2, F8, 0.0) for n in sizes]
    addresses = [address for _, address in kept]
    while kept:
        kept.pop(0)
    for size, address in ((2, addresses[-1]), (2, addresses[-2])):
        array, taken = result_memory.full(size * COUNT // 2, F8, 0.0)
        assert taken == address
        kept.append(array)


@owned
def test_much_larger_blocks_are_left_alone():
    result_memory.full(3 * COUNT, F8, 0.0)
    array, _ = result_memory.full(COUNT, F8, 0.0)
    assert allocator.held() > 0
    del array
    large = 2 * allocator_text.HUGE // 8
    result_memory.full(3 * large // 2, F8, 0.0)
    held = allocator.held()
    array, _ = result_memory.full(large, F8, 0.0)
    assert allocator.held() == held
    del array


@owned
def test_what_is_free_is_bounded():
    for size in (1, 2, 3, 5, 9):
        arrays = [result_memory.full(size * COUNT, F8, 0.0)[0] for _ in range(8)]
        del arrays
        assert 0 < allocator.held() <= allocator.limit()
    del_me, _ = result_memory.full(allocator.limit() // 8 + 1, F8, 0.0)
    del del_me
    assert allocator.held() <= allocator.limit()


@owned
def test_results_in_use_are_never_overwritten():
    n = result_memory.SMALLEST // 8 // 64 + 1
    x = sj.array(np.eye(n, 40), format="csr", copy=True)
    f = sj.jit(lambda x, y: x @ y)
    kept = [f(x, np.full((40, 64), float(k))) for k in range(4)]
    for k in range(4, 12):
        f(x, np.full((40, 64), float(k)))
    assert allocator.held() > 0
    for k, made in enumerate(kept):
        expected = np.zeros((n, 64))
        expected[:40] = k
        np.testing.assert_array_equal(made.todense(), expected)


@owned
def test_results_cannot_be_made_writeable():
    array, _ = result_memory.full(COUNT, F8, 0.0)
    with pytest.raises(ValueError):
        array.flags.writeable = True


@pytest.mark.rotating(3)
@pytest.mark.parametrize("dtype", ["?", "i2", "f4", "f8", "c16"])
@pytest.mark.parametrize(
    "size", [0, 1, 7, 64, 100, result_memory.TINY // 16, result_memory.TINY, 3 * result_memory.TINY, 1 << 14]
)
def test_small_results_are_aligned_and_apart(dtype, size):
    dtype = np.dtype(dtype)
    results, kept = result_memory.Results(size, dtype, dtype.type(1), b"12345678"), []
    for k in range(70):
        vals, slots = results.ready.pop() if results.ready else results.take()
        (address,) = struct.unpack("q", slots[8:])
        assert slots[:8] == b"12345678" and address % result_memory.ALIGNMENT == 0
        assert vals.shape == (size,) and vals.dtype == dtype and (vals == 1).all() and not vals.flags.writeable
        if size:
            assert vals.ctypes.data == address
            write(vals, dtype.type(k % 2))
            kept.append((vals, k % 2))
    assert all((vals == value).all() for vals, value in kept)


def test_a_kept_result_keeps_one_page_at_most():
    results = result_memory.Results(8, F8, 0.0)
    vals, _ = results.take()
    assert vals.base.nbytes <= result_memory.PAGE + result_memory.ALIGNMENT


@pytest.mark.parametrize("n", [3, 200, 5000])
@pytest.mark.parametrize("op", ["add", "maximum"])
def test_results_of_kernels_are_aligned(n, op):
    x = sj.array(np.arange(float(n)), copy=True)
    made = [sj.jit(lambda x: getattr(sj.numpy, op)(x, 1.0))(x) for _ in range(5)]
    assert all(m._storage.vals.ctypes.data % result_memory.ALIGNMENT == 0 for m in made)


@pytest.mark.parametrize("count", [5, 100, 3000])
def test_threads_take_results_apart(count):
    results, faults = result_memory.Results(count, F8, 0.0), []

    def work(k):
        number, kept = k + 1.0, []
        for _ in range(300):
            try:
                vals, _ = results.ready.pop()
            except IndexError:
                vals, _ = results.take()
            if vals.any():
                faults.append("not cleared")
            write(vals, number)
            kept = [*kept[-20:], vals]
            if not all((v == number).all() for v in kept):
                faults.append("shared")

    in_threads(6, work)
    assert not faults


def test_threads_share_blocks_without_mixing_them():
    faults = []

    def work(k):
        number = k + 1.0
        for _ in range(30):
            array, _ = result_memory.full(COUNT, F8, 0.0)
            if array.any():
                faults.append("not cleared")
            write(array, number)
            if not (array == number).all():
                faults.append("shared")

    in_threads(8, work)
    assert not faults
