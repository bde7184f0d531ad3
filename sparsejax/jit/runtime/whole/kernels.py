"""Kernels that tables of loops call besides those of plans: library calls that have no Python in them.

thin      slots of x, of tol, of the result           its entries that differ from the fill by more than the number `tol`, in formats that
                                                      list coordinates in one segment
listed    slots of x, of the result                   the entries of the dense vector x that differ from the fill
within    extent, count, slots of x, of y, memory     y = the integers x, negative ones counted from the end; status 1 where one is out of
                                                      bounds. Where x is fine as it is, y is x itself, unless it must lie `apart`
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from sparsejax.core.avals import Aval
from sparsejax.formats import Format, convert
from sparsejax.jit.backend import compiler, host
from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.backend.llvm import LLVMBuilder
from sparsejax.jit.backend.types import scalar_of, vector_of
from sparsejax.jit.codegen.kernel_memory import allocate
from sparsejax.jit.runtime.passes.conversion_loops import Vector
from sparsejax.jit.runtime.passes.pass_kernels import compiled

BYTES = 64
"""Bytes of index arrays that are looked at at once."""
PACKED = 8
"""Entries that are dropped or kept at once, by processors with masked lanes: others would take them one by one."""
_FLOATS = {4: "float", 8: "double"}


def _machine(dtype: np.dtype[Any]) -> str | None:
    """The type of a number in machine code; None of complex and half ones."""
    return (
        f"i{8 * dtype.itemsize}" if dtype.kind in "biu" else _FLOATS.get(dtype.itemsize) if dtype.kind == "f" else None
    )


def _threshold(b: Builder, dtype: np.dtype[Any], tol: np.dtype[Any], raw: Val) -> Val:
    """The tolerance as a float of the type of the values, or as the largest integer that is not above it."""
    if dtype.kind == "f" and tol.kind == "f":
        return b.convert("fpext" if dtype.itemsize == 8 else "fptrunc", raw, _FLOATS[dtype.itemsize])
    if dtype.kind == "f":
        return b.convert("sitofp" if tol.kind == "i" else "uitofp", raw, _FLOATS[dtype.itemsize])
    if tol.kind == "f":
        return b.call("llvm.fptoui.sat.i64.f64", "i64", [b.convert("fpext", raw, "double")])
    return b.convert("zext", raw, "i64")


def _differs(b: Builder, value: Val, fill: Any, tol: Val, lanes: int) -> Val:
    """Where a value, or each of some lanes, differs from the fill by more than `tol`."""
    kind = scalar_of(value.type)

    def each(number: Val) -> Val:
        return number if lanes == 1 else b.splat(number, lanes)

    if kind not in _FLOATS.values():
        wanted = each(b.const(kind, int(fill)))
        below = b.compare("slt" if fill.dtype.kind == "i" else "ult", value, wanted)
        apart = b.select(below, b.sub(wanted, value), b.sub(value, wanted))
        return b.compare("ugt", b.convert("zext", apart, vector_of("i64", lanes)), each(tol))
    if fill != fill:
        return b.compare("ord", value, value)
    wanted, short = each(b.const(kind, fill)), "f64" if kind == "double" else "f32"
    name = f"llvm.fabs.{short}" if lanes == 1 else f"llvm.fabs.v{lanes}{short}"
    size = b.call(name, value.type, [b.binary("fsub", value, wanted)])
    far = b.compare("ugt", size, each(tol))  # what is no number is far
    return b.and_(b.compare("une", value, wanted), far)


@functools.lru_cache(maxsize=256)
def _thin(
    dims: tuple[int, ...], dtype: np.dtype[Any], fill: bytes, tol: np.dtype[Any], lanes: int
) -> compiler.Kernel | None:
    kind, bound = _machine(dtype), _machine(tol)
    if kind is None or bound is None:
        return None
    b, value = LLVMBuilder(), np.frombuffer(fill, dtype)[0]
    pos, second, sizes = len(dims), 2 * len(dims) + 3, [*dims, dtype.itemsize]
    ends = Vector.in_slot(b, pos, 8, "pos")
    lo, hi = ends.get(b, b.i64(0)), ends.get(b, b.i64(1))
    least = _threshold(b, dtype, tol, b.load(b.slot(second - 1, "ptr", "tol"), b.i64(0), bound))

    def made(slot: int, count: Val, size: int) -> Vector:
        vector = Vector(allocate(b, count, size, zero=False), size)
        b.set_slot(slot, vector.pointer)
        return vector

    room = b.sub(hi, lo) if lanes == 1 else b.add(b.sub(hi, lo), lanes)
    moves = [
        (Vector.in_slot(b, pos + 1 + k, size, "source"), made(second + pos + 1 + k, room, size))
        for k, size in enumerate(sizes)
    ]
    new, at = made(second + pos, b.i64(2), 8), b.var("at", b.i64(0))
    values, last = moves[-1][0].pointer, lo
    if lanes > 1:
        last = b.add(lo, b.and_(b.sub(hi, lo), b.i64(-lanes)))
        with b.for_(lo, last, "p", step=lanes) as p:
            stays = _differs(b, b.load(values, p, vector_of(kind, lanes)), value, least, lanes)
            for source, target in moves:
                some = b.load(source.pointer, p, vector_of(source.type, lanes))
                packed = [some, stays, Val("poison", some.type)]
                name = f"llvm.experimental.vector.compress.v{lanes}{source.type}"
                b.store(target.pointer, b.get(at), b.call(name, some.type, packed))
            count = b.call(f"llvm.ctpop.i{lanes}", f"i{lanes}", [b.convert("bitcast", stays, f"i{lanes}")])
            b.increment(at, b.convert("zext", count, "i64"))
    with b.for_(last, hi, "p") as p:
        for source, target in moves:
            target.put(b, b.get(at), source.get(b, p))
        b.increment(at, b.convert("zext", _differs(b, b.load(values, p, kind), value, least, 1), "i64"))
    new.put(b, b.i64(0), b.i64(0))
    new.put(b, b.i64(1), b.get(at))
    b.set_slot(second + pos + 1 + len(sizes), b.get(at))
    return compiled(b)


def thin(aval: Aval, tol: Aval) -> compiler.Kernel | None:
    """The kernel for arrays of this type; None where there is none."""
    form = aval.format
    listed = bool(form.levels) and all(level.listed and level.unique for level in form.levels)
    if not listed or form.blocked or any(not form.continues(k) for k in range(1, form.ndim)):
        return None
    if tol.shape != () or (aval.dtype == np.float32 and tol.dtype != np.float32):
        return None
    dims = tuple(convert.crd_dtype(n).itemsize for n in form.level_extents(aval.shape))
    lanes = PACKED if host.has("masks") and all(size in (4, 8) for size in (*dims, aval.dtype.itemsize)) else 1
    return _thin(dims, aval.dtype, np.asarray(aval.fill_value, aval.dtype).tobytes(), tol.dtype, lanes)


@functools.lru_cache(maxsize=64)
def _within(dtype: np.dtype[Any], ndim: int, drop: bool, apart: bool) -> compiler.Kernel:
    b, kind, signed = LLVMBuilder(), f"i{8 * dtype.itemsize}", dtype.kind == "i"
    extent, count, zero = b.slot(0, "i64", "extent"), b.slot(1, "i64", "count"), b.i64(0)
    given, own = Vector.in_slot(b, 2 + ndim, dtype.itemsize, "x"), 3 + 2 * ndim
    made = Vector.in_slot(b, own + (not apart), dtype.itemsize, "y")
    most = 2 ** (8 * dtype.itemsize - 1) - (0 if signed else 1)
    limit = given.element(b, b.min(extent, b.i64(most)) if dtype.itemsize < 8 else extent)
    lanes = BYTES // dtype.itemsize
    some, rest = b.splat(b.const("i1", 0), lanes), b.and_(count, b.i64(-lanes))
    many, strange = b.var("many", some), b.var("strange", b.const("i1", 0))
    with b.for_(zero, rest, "p", step=lanes) as p:
        value = b.load(given.pointer, p, f"<{lanes} x {kind}>")
        b.set(many, b.binary("or", b.get(many), b.compare("uge", value, b.splat(limit, lanes))))
    b.set(strange, b.call(f"llvm.vector.reduce.or.v{lanes}i1", "i1", [b.get(many)]))
    with b.for_(rest, count, "p") as p:
        b.set(strange, b.binary("or", b.get(strange), b.compare("uge", given.get(b, p), limit)))

    def as_it_is() -> None:
        if apart:
            b.call("memcpy", "ptr", [made.pointer, given.pointer, b.mul(count, dtype.itemsize)])
        else:
            b.set_slot(own, given.pointer)

    def changed() -> None:
        bad = b.var("bad", zero)
        with b.for_(zero, count, "p") as p:
            value = b.convert("sext" if signed else "zext", given.get(b, p), "i64")
            turned = b.add(value, b.select(b.lt(value, 0), extent, zero)) if signed and not drop else value
            inside = b.compare("ult", turned, extent)
            made.put(b, p, given.element(b, b.select(inside, turned, zero)))
            b.set(bad, b.select(inside, b.get(bad), b.i64(0 if drop else 1)))
        if not apart:
            b.set_slot(own, made.pointer)
        with b.if_(b.ne(b.get(bad), 0)):
            b.fail(1)

    b.if_else(b.get(strange), changed, as_it_is)
    return compiled(b)


def within(aval: Aval, drop: bool, apart: bool) -> compiler.Kernel | None:
    """The kernel for index arrays of this type; None where there is none."""
    if not aval.format.is_dense or aval.dtype.kind not in "iu" or aval.format.blocked:
        return None
    return _within(aval.dtype, aval.ndim, drop, apart)


@functools.lru_cache(maxsize=64)
def _listed(coordinate: int, dtype: np.dtype[Any], fill: bytes) -> compiler.Kernel:
    b, kind, value = LLVMBuilder(), _machine(dtype), np.frombuffer(fill, dtype)[0]
    assert kind is not None
    extent, given, zero = b.slot(0, "i64", "extent"), Vector.in_slot(b, 1, dtype.itemsize, "x"), b.i64(0)
    made = []
    for slot, count, size in ((3, b.i64(2), 8), (4, extent, coordinate), (5, extent, dtype.itemsize)):
        made.append(Vector(allocate(b, count, size, zero=False), size))
        b.set_slot(slot, made[-1].pointer)
    ends, crd, vals = made
    at, differs = b.var("at", zero), "une" if dtype.kind == "f" else "ne"
    fills = b.const(kind, value if dtype.kind == "f" else int(value))

    def one(p: Val) -> None:
        with b.if_(b.compare(differs, b.load(given.pointer, p, kind), fills)):
            crd.put(b, b.get(at), crd.element(b, p))
            vals.put(b, b.get(at), given.get(b, p))
            b.increment(at)

    lanes = BYTES // dtype.itemsize
    rest = b.and_(extent, b.i64(-lanes))
    with b.for_(zero, rest, "p", step=lanes) as p:
        some = b.compare(differs, b.load(given.pointer, p, f"<{lanes} x {kind}>"), b.splat(fills, lanes))
        with b.if_(b.call(f"llvm.vector.reduce.or.v{lanes}i1", "i1", [some])), b.for_(p, b.add(p, lanes), "q") as q:
            one(q)
    with b.for_(rest, extent, "p") as p:
        one(p)
    ends.put(b, zero, zero)
    ends.put(b, b.i64(1), b.get(at))
    b.set_slot(6, b.get(at))
    return compiled(b)


def listed(aval: Aval, form: Format) -> compiler.Kernel | None:
    """The kernel for dense vectors of this type, and lists of one segment; None where there is none."""
    if aval.ndim != 1 or not aval.format.is_dense or form.blocked or len(form.levels) != 1 or aval.format.blocked:
        return None
    fill = np.asarray(aval.fill_value, aval.dtype)
    if not form.levels[0].listed or not form.levels[0].unique or _machine(aval.dtype) is None or fill != fill:
        return None
    return _listed(convert.crd_dtype(aval.shape[0]).itemsize, aval.dtype, fill.tobytes())
