"""Blocks of kernels and results: what is written stays, nobody shares, and what is free is bounded, in any order and on any thread."""

import ctypes
import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
from sparsejax import config
from sparsejax.jit.backend import compiler, engine, host, loader
from sparsejax.jit.codegen import abi
from sparsejax.jit.runtime.system import allocator, allocator_object, allocator_text
from tests.together import in_threads

resource = pytest.importorskip("resource")
MIB = 1 << 20
pytestmark = pytest.mark.skipif(not host.has("mremap"), reason="blocks are recycled where there is mremap")


@pytest.fixture(autouse=True)
def empty():
    allocator.give(allocator.take(1))  # which tells how much is kept
    allocator.drop()
    yield
    allocator.drop()


def block(old, size, what=abi.PLAIN):
    return allocator._function()(old, size, what) or 0


def portable():
    """The function of systems without `mremap`, which works here too."""
    code = compiler.compile_text(allocator_text.text(mremap=False))
    call = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(code.address)
    call.code = code
    return lambda old, size, what=abi.PLAIN: call(old, size, what) or 0


def linked():
    """The same machine code as `allocator`'s, placed by LLVM's linker, which must find the state."""
    address, keep = engine.engine().link(engine.engine().object(allocator_text.text()))
    call = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)
    call.code = keep
    return lambda old, size, what=abi.PLAIN: call(old, size, what) or 0


class Model:
    """Random requests; every live block is marked with its number at both ends."""

    def __init__(self, function, seed):
        self.function, self.rng, self.live, self.number = function, np.random.default_rng(seed), {}, 0

    def size(self):
        return int(self.rng.choice([8, 500, 2 << 10, 200 << 10, 300 << 10, MIB, 2 * MIB, 5 * MIB, 9 * MIB])) + int(
            self.rng.integers(0, 4096)
        )

    def mark(self, address, size):
        self.number += 1
        text = self.number.to_bytes(4, "little") * 2
        for at in (address, address + size - 8):
            ctypes.memmove(at, text, 8)
        self.live[address] = size, text

    def check(self, address):
        size, text = self.live[address]
        assert ctypes.string_at(address, 4) == text[:4]
        return size, text

    def step(self):
        what = self.rng.integers(0, 5)
        if what < 2 or not self.live:
            size, kind = (
                self.size(),
                int(self.rng.choice([abi.PLAIN, abi.ZERO, abi.SPARSE, abi.EXACT])),
            )
            address = self.function(None, size, kind)
            assert address and address not in self.live
            if kind in (abi.ZERO, abi.SPARSE):
                assert not any(ctypes.string_at(address, size))
            self.mark(address, size)
            return
        address = int(self.rng.choice(list(self.live)))
        size, text = self.check(address)
        if what == 2:
            grown = size + self.size()
            del self.live[address]
            moved = self.function(address, grown)
            assert ctypes.string_at(moved, 4) == text[:4] and ctypes.string_at(moved + size - 4, 4) == text[4:]
            self.mark(moved, grown)
        elif what == 3:
            used = max(8, size // 3)
            self.function(address, used, abi.SETTLE)
            ctypes.memmove(address + used - 8, text, 8)
            self.live[address] = used, text
        else:
            assert ctypes.string_at(address + size - 4, 4) == text[4:]
            del self.live[address]
            self.function(address, 0)

    def run(self, steps):
        for _ in range(steps):
            self.step()
            while len(self.live) > 12:
                address = next(iter(self.live))
                self.check(address)
                del self.live[address]
                self.function(address, 0)
        for address in list(self.live):
            self.check(address)
            self.function(address, 0)


@pytest.mark.rotating(3)
@pytest.mark.parametrize("function", [lambda: block, portable, linked], ids=["loaded", "portable", "linked"])
@pytest.mark.parametrize("seed", range(3))
def test_blocks_keep_what_is_written_and_are_apart(function, seed):
    Model(function(), seed).run(250)
    assert allocator.held() <= allocator.limit()


@pytest.mark.rotating(3)
@pytest.mark.parametrize("mebibytes", [0, 7, 64])
def test_threads_take_blocks_apart_within_the_bound(mebibytes):
    with config.using(free_memory=mebibytes):
        allocator.give(allocator.take(8))  # tells the bound
    in_threads(6, lambda seed: Model(block, seed).run(80))
    assert 0 <= allocator.held() <= mebibytes * MIB
    allocator.give(allocator.take(8))  # the bound that is set otherwise
    allocator.drop()
    assert allocator.held() == 0


@pytest.mark.parametrize("size", [300 << 10, MIB, 5 * MIB, 40 * MIB])
def test_a_block_is_taken_again_where_it_fits(size):
    first = block(None, size)
    assert first % abi.ALIGNMENT == 0
    block(first, 0)
    assert size <= allocator.held() <= size + size // 7 + 2 * MIB
    assert block(None, size // 4) != first  # more than twice what is needed
    assert block(None, size - size // 10) == first
    assert allocator.held() == 0


@pytest.mark.parametrize("eighths", [9, 11, 13, 16, 17, 18, 21, 25, 28, 30, 33, 34, 41, 50, 66, 73, 129, 160])
@pytest.mark.parametrize("over", [-64, -63, 0, 5000])
def test_at_most_an_eighth_of_a_block_is_unused(eighths, over):
    size = eighths * (MIB // 8) + over
    address = block(None, size)
    ctypes.memset(address, 1, size)
    block(address, 0)
    used = size + abi.ALIGNMENT
    one = allocator_text.HUGE < used <= 2 * MIB  # a huge page
    assert used <= allocator.held() <= (2 * MIB if one else used * 8 // 7 + 4096)


def test_results_are_never_in_blocks_much_larger_than_they_are():
    first = allocator.take(10 * MIB)
    allocator.give(first)
    assert allocator.take(6 * MIB) != first
    assert allocator.take(9 * MIB) == first


def test_what_a_result_does_not_use_goes_back():
    address = block(None, 40 * MIB)
    ctypes.memset(address, 1, 40 * MIB)
    block(address, 3 * MIB, abi.SETTLE)
    assert ctypes.string_at(address, 3 * MIB) == b"\1" * (3 * MIB)
    block(address, 0)
    assert allocator.held() <= 6 * MIB


@pytest.mark.parametrize(("used", "left"), [(900, 1024), (600, 1024), (400, 448), (100, 160)])
def test_a_small_block_is_cut_where_more_of_it_is_unused_than_used(used, left):
    address = block(None, MIB - abi.ALIGNMENT)
    ctypes.memset(address, 1, MIB - abi.ALIGNMENT)
    block(address, used << 10, abi.SETTLE)
    assert ctypes.string_at(address, used << 10) == b"\1" * (used << 10)
    block(address, 0)
    assert used << 10 <= allocator.held() <= left << 10


def test_the_bound_is_a_flag():
    with config.using(free_memory=0):
        allocator.give(allocator.take(MIB))
        assert allocator.held() == 0
    with config.using(free_memory=8):
        blocks = [allocator.take(3 * MIB) for _ in range(5)]
        for taken in blocks:
            allocator.give(taken)
        assert 3 * MIB < allocator.held() <= 8 * MIB
        assert allocator.take(3 * MIB) in blocks[-2:]  # the oldest have gone
    allocator.give(allocator.take(MIB))


def test_no_more_memory_is_an_error_and_leaves_the_old_block():
    address = block(None, MIB)
    ctypes.memset(address, 5, MIB)
    assert block(address, 1 << 59) == 0 and block(address, 1 << 62) == 0
    assert ctypes.string_at(address, MIB) == b"\5" * MIB
    with pytest.raises(MemoryError, match="does not fit in memory"):
        allocator.take(1 << 59)
    block(address, 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_child_has_a_list_that_works():
    blocks = [block(None, MIB) for _ in range(4)]
    for address in blocks:
        block(address, 0)
    child = os.fork()
    if not child:
        try:
            Model(block, 0).run(60)
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("threads", [1, 2])
def test_results_that_grow_touch_no_fresh_pages(threads):
    rng, n, e = np.random.default_rng(0), 20_000, 100_000
    parts = [
        sp.csr_array((rng.random(e), (rng.integers(0, n, e), rng.integers(0, n, e))), shape=(n, n)) for _ in range(2)
    ]
    A, B = (sj.array(p) for p in parts)
    f = sj.jit(lambda A, B: ((A @ B) * 2).sum(axis=0))

    def faults():
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

    with config.using(num_threads=threads):
        for _ in range(3):
            result = A @ B
            f(A, B)
        before = faults()
        for _ in range(5):
            result = A @ B
    assert result.nnz > 300_000
    assert faults() - before < 1000  # 6 MB for each: 1,500


def unlike(rng, n, hubs):
    """A factor of which the first quarter of the rows names long rows of the other, 15 times as long as what the rest names; and the other."""
    few = rng.integers(0, hubs, (n // 4, 4)).ravel()
    names = np.concatenate([few, rng.integers(hubs, n, (n - n // 4, 4)).ravel()])
    lengths = np.where(np.arange(n) < hubs, 120, 8)
    total = int(lengths.sum())
    A = sp.csr_array((rng.random(4 * n), (np.repeat(np.arange(n), 4), names)), shape=(n, n))
    B = sp.csr_array((rng.random(total), (np.repeat(np.arange(n), lengths), rng.integers(0, n, total))), shape=(n, n))
    return A, B


@pytest.mark.parametrize("threads", [1, 2])
def test_chunks_that_make_more_than_others_touch_no_fresh_pages(threads):
    """Room for a share of the whole was outgrown in every call: 1,000 to 4,000 pages on one thread."""
    A, B = map(sj.array, unlike(np.random.default_rng(0), 20_000, 600))

    def faults():
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

    with config.using(num_threads=threads, choose="alone=chunked"):
        for _ in range(4):
            result = A @ B
        before = faults()
        for _ in range(3):
            result = A @ B
    assert result.nnz > 2_800_000
    assert faults() - before < 500


@pytest.mark.parametrize("threads", [1, 2])
def test_chunks_of_operands_in_turns_have_room(threads):
    """What chunks made of other operands of the same shapes is a guess, and only that."""
    rng = np.random.default_rng(1)
    A, B = unlike(rng, 3000, 90)
    turned = sp.csr_array(A[::-1])
    sparse = sp.random_array((3000, 3000), density=1e-4, format="csr", rng=rng)
    f = sj.jit(lambda A, B: A @ B)
    with config.using(num_threads=threads, choose="alone=chunked"):
        for given in (A, turned, sparse, A, sparse, turned, A):
            made, true = f(sj.array(given), sj.array(B)).to_scipy().tocsr(), sp.csr_array(given @ B)
            made.sort_indices()
            true.sort_indices()
            assert (made.indptr == true.indptr).all() and (made.indices == true.indices).all()
            terms = abs(given) @ abs(B)
            terms.sort_indices()
            assert (abs(made.data - true.data) <= 1e-13 * terms.data).all()


def test_the_object_that_is_here_is_of_this_text():
    digest = hashlib.sha256(allocator_text.text().encode()).hexdigest()
    assert digest == allocator_object.DIGEST, "python -m tools.objects"


@pytest.mark.skipif(not host.has("loader"), reason="compiled where objects are placed by LLVM")
def test_a_new_process_compiles_no_allocator():
    code = """
from sparsejax.jit.backend import compiler
from sparsejax.jit.runtime.system import allocator
allocator.give(allocator.take(1 << 20))
assert not compiler.compile_count()
"""
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "SPARSEJAX_CACHE_DIR": "off"})


def test_names_that_kernels_use_are_provided():
    assert loader.address_of(abi.NAME) == allocator._code().address
    with pytest.raises(loader.Unsupported):
        loader.address_of("sparsejax_nothing")
    assert sys.getrefcount(allocator._code()) > 2


@pytest.mark.parametrize("size", [1, 500, 896, 897, 1024, 1025, 1279, 1281, 5000, 30_000, (32 << 10) - 1])
def test_small_blocks_are_kept(size):
    """Beyond `LEAST` bytes: what is taken next is what was given back last, whole and of its own."""
    first = [block(None, size) for _ in range(6)]
    for k, address in enumerate(first):
        ctypes.memset(address, k, size)
    for k, address in enumerate(first):
        assert ctypes.string_at(address, size) == bytes([k]) * size
        block(address, 0)
    again = [block(None, size) for _ in range(4)]
    assert len(set(again)) == 4
    if size > allocator_text.LEAST:
        assert set(again) == set(first[: allocator_text.WAYS])
    for address in again:
        block(address, 0)
    zeros = block(None, size, abi.ZERO)
    assert ctypes.string_at(zeros, size) == bytes(size)
    grown = block(zeros, 3 * size)
    assert ctypes.string_at(grown, size) == bytes(size)
    ctypes.memset(grown, 7, 3 * size)
    block(grown, 0)


def test_nothing_small_is_kept_where_nothing_is():
    with config.using(free_memory=0):
        allocator.give(allocator.take(2000))
        address = block(None, 2000)
        block(address, 0)
        assert allocator._state[allocator_text._KEPT_PLACES : allocator_text.WORDS] == [0] * (
            allocator_text.WAYS * allocator_text.CLASSES
        )
    allocator.give(allocator.take(2000))
    assert any(allocator._state[allocator_text._KEPT_PLACES : allocator_text.WORDS])
    allocator.drop()
    assert not any(allocator._state[allocator_text._KEPT_PLACES : allocator_text.WORDS])
