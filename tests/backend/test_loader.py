"""Objects in memory: what the loader places runs as LLVM's linker would have it, what it cannot place is refused."""

import contextlib
import ctypes
import math
import random
from pathlib import Path

import numpy as np
import pytest

import sparsejax as sj
from sparsejax.jit.backend import compiler, engine, host, loader
from sparsejax.jit.runtime import plan_cache

pytestmark = pytest.mark.skipif(not host.has("loader"), reason="objects are loaded by LLVM here")

DECLARED = "declare ptr @calloc(i64, i64)\ndeclare void @free(ptr)\ndeclare double @fmod(double, double)\n"


def kernel(body, declared=DECLARED):
    return engine.engine().object(f"{declared}define i64 @kernel(ptr noundef %args) nounwind {{\nentry:\n{body}\n}}\n")


def run(code, *slots):
    array = (ctypes.c_double * len(slots))(*slots)
    status = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(code.address)(ctypes.addressof(array))
    return status, list(array)


def memory_map():
    return Path("/proc/self/maps").read_text().splitlines()


CALLS = """
  %x = load double, ptr %args
  %p = call ptr @calloc(i64 4, i64 8)
  %q = getelementptr double, ptr %p, i64 3
  store double %x, ptr %q
  %y = load double, ptr %q
  %r = call double @fmod(double %y, double 2.5)
  call void @free(ptr %p)
  store double %r, ptr %args
  ret i64 7
"""


def test_functions_of_the_c_library_are_called():
    status, (value,) = run(loader.load(kernel(CALLS)), 9.25)
    assert status == 7 and value == math.fmod(9.25, 2.5)


def test_constants_are_found():
    lanes = ", ".join(f"double {k}.5" for k in range(8))
    body = f"""
  %x = load <8 x double>, ptr %args, align 8
  %y = fmul <8 x double> %x, <{lanes}>
  %z = fadd <8 x double> %y, <{", ".join(["double 0.1", "double 0.7"] * 4)}>
  store <8 x double> %z, ptr %args, align 8
  ret i64 0"""
    x = np.arange(8.0) + 1
    assert run(loader.load(kernel(body)), *x)[1] == list(x * (np.arange(8) + 0.5) + np.tile([0.1, 0.7], 4))


def test_jump_tables_are_found():
    cases = "\n".join(f"    i64 {k}, label %case{k}" for k in range(9))
    blocks = "\n".join(f"case{k}:\n  call void @free(ptr null)\n  ret i64 {(k * 37) % 11}" for k in range(9))
    body = f"  %n = load i64, ptr %args\n  switch i64 %n, label %other [\n{cases}\n  ]\nother:\n  ret i64 -1\n{blocks}"
    code = loader.load(kernel(body))
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(code.address)
    found = [function(ctypes.addressof(ctypes.c_int64(k))) for k in range(10)]
    assert found == [(k * 37) % 11 for k in range(9)] + [-1]


def test_addresses_in_data_and_local_functions():
    text = """
@table = private unnamed_addr constant [2 x ptr] [ptr @one, ptr @two], align 16
define internal i64 @one(i64 %x) nounwind noinline {
  %y = add i64 %x, 1
  ret i64 %y
}
define internal i64 @two(i64 %x) nounwind noinline {
  %y = mul i64 %x, 2
  ret i64 %y
}
define i64 @kernel(ptr noundef %args) nounwind {
  %k = load i64, ptr %args
  %p = getelementptr [2 x ptr], ptr @table, i64 0, i64 %k
  %f = load ptr, ptr %p
  %r = call i64 %f(i64 21)
  %s = call i64 @one(i64 %r)
  ret i64 %s
}
"""
    image = engine.engine().object(text)
    try:
        code = loader.load(image)
    except loader.Unsupported:  # relocated data may be writeable; LLVM takes it then
        address, _keep = compiler.place(image)
    else:
        address = code.address
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(address)
    assert [function(ctypes.addressof(ctypes.c_int64(k))) for k in (0, 1)] == [23, 43]


def test_writeable_data_is_refused_and_llvm_takes_it():
    text = """
@count = internal global i64 5
define i64 @kernel(ptr noundef %args) nounwind {
  %n = load i64, ptr @count
  %m = add i64 %n, 1
  store i64 %m, ptr @count
  ret i64 %m
}
"""
    image = engine.engine().object(text)
    with pytest.raises(loader.Unsupported, match="section"):
        loader.load(image)
    address, _keep = compiler.place(image)
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(address)
    assert [function(None), function(None)] == [6, 7]


def test_unknown_functions_are_errors():
    image = kernel(
        "  call void @there_is_no_such_function()\n  ret i64 0", "declare void @there_is_no_such_function()\n"
    )
    with pytest.raises(loader.Unsupported, match="no function"):
        loader.load(image)
    with pytest.raises(RuntimeError):
        compiler.place(image)


def test_what_is_no_object_is_refused():
    image = kernel(CALLS)
    for damaged in (b"", b"x" * 500, image[:64], image[: len(image) // 2], image[:4] + b"\x01" + image[5:]):
        with pytest.raises(loader.Unsupported):
            loader.load(damaged)
    for seed in range(300):  # damage anywhere: refused or placed, never another error
        changed = bytearray(image)
        changed[random.Random(seed).randrange(len(image))] ^= 0xFF
        with contextlib.suppress(loader.Unsupported):
            loader.load(bytes(changed))


def test_code_is_not_writeable():
    code = loader.load(kernel(CALLS))
    maps = [line.split() for line in memory_map()]
    (rights,) = [m[1] for m in maps if int(m[0].split("-")[0], 16) <= code.address < int(m[0].split("-")[1], 16)]
    assert rights.startswith("r-x")


def test_code_runs_after_its_owner_only_as_long_as_it_lives():
    before = len(memory_map())
    image = kernel(CALLS)
    codes = [loader.load(image) for _ in range(50)]
    assert {run(c, 4.0)[1][0] for c in codes} == {1.5}
    del codes
    assert len(memory_map()) < before + 25


def test_kernels_of_the_compiler_need_no_other_linker(monkeypatch):
    def refuse(image):
        raise AssertionError("LLVM's linker was needed")

    monkeypatch.setattr(engine.Engine, "link", lambda self, image: refuse(image))
    compiler.forget()
    plan_cache.forget()
    x = np.arange(20.0).reshape(4, 5) % 3 - 1
    for dtype in ("f4", "f8", "c16", "i4"):
        for form in ("csr", "coo", "csc"):
            a = sj.array(x.astype(dtype), format=form, copy=True)
            np.testing.assert_array_equal((a @ a.T).todense(), x @ x.T)
            np.testing.assert_array_equal((a * a - 2 * a).todense(), (x * x - 2 * x))
