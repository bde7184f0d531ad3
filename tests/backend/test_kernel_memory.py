"""Kernels come and go: memory does not grow with the number of compiles, and what is in use stays."""

import gc
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest

import sparsejax as sj
from sparsejax.jit.backend import compiler
from sparsejax.jit.runtime import plan_cache

TEXT = """
declare ptr @calloc(i64, i64)
define i64 @kernel(ptr noundef %args) nounwind {{
entry:
  %v = alloca i64
  store i64 {0}, ptr %v
  %w = load i64, ptr %v
  %p = call ptr @calloc(i64 %w, i64 0)
  ret i64 %w
}}
"""


def resident():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def compile_many(numbers):
    for k in numbers:
        status, _ = compiler.compile_text(TEXT.format(k))(b"")
        assert status == k


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_does_not_grow_with_compiles(monkeypatch):
    monkeypatch.setattr(compiler, "_KEPT", 16)
    compile_many(range(10**6, 10**6 + 400))
    before, count = resident(), compiler.compile_count()
    compile_many(range(2 * 10**6, 2 * 10**6 + 800))
    assert compiler.compile_count() == count + 800
    assert resident() - before < 800 * 2048  # LLVM's own linker and a fresh pass pipeline leaked 14 KB each time


def test_kernels_that_nobody_uses_are_unloaded(monkeypatch):
    monkeypatch.setattr(compiler, "_KEPT", 4)
    compiler.forget()
    plan_cache.forget()
    used = compiler.compile_text(TEXT.format(1))
    unused = compiler.compile_text(TEXT.format(2))
    gone = weakref.ref(unused)
    del unused
    compile_many(range(10, 20))
    gc.collect()
    assert gone() is None
    assert used(b"")[0] == 1  # still loaded
    before = compiler.compile_count()
    assert compiler.compile_text(TEXT.format(1)) is used
    assert compiler.compile_count() == before
    compile_many([2])
    assert compiler.compile_count() == before + 1


def test_plans_keep_their_kernels(monkeypatch):
    monkeypatch.setattr(compiler, "_KEPT", 1)
    compiler.forget()
    plan_cache.forget()
    x = np.arange(12.0).reshape(3, 4)
    a = sj.array(x, format="csr", copy=True)
    f = sj.jit(lambda a: a @ a.T * 3)
    f(a)
    compile_many(range(5))
    compiler.forget()
    plan_cache.forget()
    gc.collect()
    before = compiler.compile_count()
    np.testing.assert_array_equal(f(a).todense(), x @ x.T * 3)
    assert compiler.compile_count() == before


def test_recent_kernels_are_kept_longest(monkeypatch):
    monkeypatch.setattr(compiler, "_KEPT", 3)
    compiler.forget()
    plan_cache.forget()
    compile_many([1, 2, 3, 1, 4])
    gc.collect()
    before = compiler.compile_count()
    compile_many([1, 3, 4])
    assert compiler.compile_count() == before
    compile_many([2])
    assert compiler.compile_count() == before + 1
