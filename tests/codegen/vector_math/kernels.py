"""Kernels that apply one elementary function, and references in extended precision."""

from __future__ import annotations

import functools
import struct

import numpy as np

from sparsejax.jit.backend import compiler
from sparsejax.jit.backend.builder import OK
from sparsejax.jit.backend.llvm import LLVMBuilder
from sparsejax.jit.backend.types import vector_of
from sparsejax.jit.codegen.vector_math import functions

NAMES = sorted(functions.FUNCTIONS)
LONG = np.longdouble
TYPES = {np.dtype(np.float64): "double", np.dtype(np.float32): "float"}


@functools.cache
def kernel(name, dtype, lanes):
    """`out[i] = name(x[i])` for slots x, out, n; n is a multiple of `lanes`."""
    b = LLVMBuilder()
    x, out, n = b.slot(0, "ptr", "x"), b.slot(1, "ptr", "out"), b.slot(2, "i64", "n")
    with b.for_(b.i64(0), n, "i", lanes) as i:
        b.store(out, i, functions.call(b, name, b.load(x, i, vector_of(TYPES[dtype], lanes))))
    return compiler.compile_text(b.finish(lambda: None))


def apply(name, x, lanes):
    """The function on an array, `lanes` numbers at a time."""
    padded = np.concatenate([x, np.zeros(-len(x) % lanes, x.dtype)])
    out = np.empty_like(padded)
    status = kernel(name, x.dtype, lanes).run_packed(
        struct.pack("3q", padded.ctypes.data, out.ctypes.data, len(padded))
    )
    assert status == OK
    return out[: len(x)]


def _erf(x):
    """2 / sqrt(pi) exp(-x^2) sum of 2^n x^(2n+1) / (2n+1)!! (DLMF 7.6.2): all terms have the same sign."""
    term = total = np.clip(x, -7, 7)
    for n in range(1, 200):
        term = term * (2 * x * x) / (2 * n + 1)
        total = total + term
    made = total * np.exp(-x * x) * 2 / np.sqrt(LONG("3.14159265358979323846264338327950288"))
    return np.where(abs(x) < 7, made, np.sign(x))


def reference(name, x):
    """The function in extended precision."""
    with np.errstate(all="ignore"):
        x = x.astype(LONG)
        if name == "logistic":
            return 1 / (1 + np.exp(-x))
        return _erf(x) if name == "erf" else getattr(np, name)(x)


def ulps(got, true):
    """The distance of `got` from true values, in units in the last place of the type of `got`."""
    info = np.finfo(got.dtype)
    exponent = np.maximum(np.frexp(np.where(true == 0, LONG(1), true))[1] - 1, info.minexp)
    exponent = np.where(true == 0, info.minexp, exponent)
    limit = LONG(2) ** info.maxexp
    with np.errstate(all="ignore"):  # beyond the largest number, infinity stands for 2^maxexp
        true = np.clip(true, -limit, limit)
        near = np.where(np.isinf(got), np.copysign(limit, got.astype(LONG)), got.astype(LONG))
        apart = np.ldexp(abs(near - true), -(np.minimum(exponent, info.maxexp - 1) - info.nmant))
    same = np.isnan(got) & np.isnan(true)
    return np.where(same, 0, np.where(np.isnan(apart), np.inf, apart)).astype(float)
