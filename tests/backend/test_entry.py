"""How Python enters kernels: slots in any number of parts, by functions of CPython's own calling convention or by `ctypes`, with the same results."""

import contextlib
import gc
import hashlib
import itertools
import random
import struct
import subprocess
import sys
import weakref

import pytest

from sparsejax import config
from sparsejax.jit.backend import compiler, entry, entry_object, host
from tests.together import in_threads

ours = pytest.mark.skipif(not host.has("entry"), reason="ctypes calls here")
TEXT = """
define i64 @kernel(ptr noundef %slots) nounwind {
entry:
  %count = load i64, ptr %slots
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %k.next, %next ]
  %sum = phi i64 [ 0, %entry ], [ %sum.next, %next ]
  %k.next = add i64 %k, 1
  %at = getelementptr i64, ptr %slots, i64 %k
  %word = load i64, ptr %at
  %sum.next = add i64 %sum, %word
  store i64 %sum, ptr %at
  %more = icmp slt i64 %k.next, %count
  br i1 %more, label %next, label %end
end:
  ret i64 %sum.next
}
"""
"""The sum of all words, the first of which says how many there are; each becomes the sum of those before."""


@contextlib.contextmanager
def way(name):
    with config.using(skip={"entry"} if name == "ctypes" else set()):
        yield


def expected(words):
    return sum(words), (0, *itertools.accumulate(words[:-1]))


@pytest.fixture(scope="module")
def address():
    kernel = compiler.compile_text(TEXT)
    yield kernel.address
    del kernel


@pytest.mark.parametrize("name", [pytest.param("ours", marks=ours), "ctypes"])
@pytest.mark.parametrize("count", [1, 2, 9, entry.STACK // 8, entry.STACK // 8 + 1, 50_000])
def test_parts_of_slots(address, name, count):
    rng = random.Random(count)
    words = [count, *(rng.randrange(-(2**40), 2**40) for _ in range(count - 1))]
    packed = struct.pack(f"{count}q", *words)
    status, left = expected(words)
    with way(name):
        call, after = entry.call(address), entry.after(address)
    for parts in (1, 2, 3, 7):
        cuts = sorted(8 * rng.randrange(count + 1) for _ in range(parts - 1))
        split = [packed[a:b] for a, b in zip([0, *cuts], [*cuts, len(packed)], strict=True)]
        before = [bytes(bytearray(p)) for p in split]
        assert struct.unpack(f"{count + 1}q", after(*split)) == (status, *left)
        assert split == before, "slots of the caller were written"
        if parts > 1:  # one part is read where it is, by kernels that write no slots
            assert call(*split) == status


def test_a_kernel_by_its_slots_and_at_an_address(address):
    kernel = compiler.Kernel(address, None)
    packed = struct.pack("3q", 3, 5, -9)
    assert kernel(packed) == kernel(packed[:8], packed[8:]) == (-1, (0, 3, 8))


@ours
@pytest.mark.parametrize("asked", [entry.call, entry.after])
@pytest.mark.parametrize("part", [3, "ab", None, bytearray(8), memoryview(bytes(8))])
def test_what_is_not_bytes_is_refused(address, asked, part):
    with pytest.raises(TypeError):
        asked(address)(struct.pack("q", 1), part)


@ours
def test_references_are_as_before(address):
    part, call, after = struct.pack("2q", 2, 1 << 50), entry.call(address), entry.after(address)
    held = sys.getrefcount(part)
    for _ in range(100):
        call(part[:8], part)
        left = after(part)
        assert sys.getrefcount(left) == sys.getrefcount(part) == held


@ours
def test_the_interpreter_is_free_meanwhile():
    """A kernel that sleeps: threads beside each other take as long as one."""
    text = """
declare i32 @usleep(i32)
define i64 @kernel(ptr noundef %slots) nounwind {
  %ignored = call i32 @usleep(i32 50000)
  ret i64 7
}
"""
    kernel, running, most = compiler.compile_text(text), [0], [0]

    def work(_):
        running[0] += 1
        most[0] = max(most[0], running[0])
        status = kernel.run_packed(b"", b"")
        running[0] -= 1
        return status

    assert in_threads(4, work) == [7] * 4 and most[0] > 1


def test_threads_that_are_left_behind_end_with_the_process():
    code = """
import threading, numpy as np, sparsejax as sj
f, x = sj.jit(lambda x: x * 2.0 + 1.0), sj.array(np.ones(200_000))
f(x)
def work():
    while True:
        f(x)
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
print("over")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip(), done.stderr.strip()) == (0, "over", "")


def test_the_object_that_is_here_is_of_this_text():
    assert hashlib.sha256(entry.TEXT.encode()).hexdigest() == entry_object.DIGEST, "python -m tools.objects"


@ours
def test_it_is_in_use():
    assert type(entry.call(compiler.compile_text(TEXT).address)) is type(len)


@pytest.mark.parametrize("name", [pytest.param("ours", marks=ours), "ctypes"])
@pytest.mark.parametrize("asked", [entry.call, entry.after, entry.at])
def test_code_stays_as_long_as_what_calls_it(address, name, asked):
    class Code:
        pass

    code = Code()
    gone = weakref.ref(code)
    with way(name):
        function = asked(address, code)
    del code
    gc.collect()
    assert gone() is not None
    del function
    gc.collect()
    assert gone() is None
