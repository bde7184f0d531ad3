"""Kernels that tables of loops call besides those of plans, as LLVM text: library calls that have no Python in them.

thin      slots of x, of tol, of the result     its entries that differ from the fill by more than the number `tol`, in formats that list
                                                coordinates in one segment
within    extent, count, slots of x, of y       y = the integers x, negative ones counted from the end; status 1 where one is out of bounds
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from sparsejax.core.avals import Aval
from sparsejax.formats import convert
from sparsejax.jit.backend import compiler
from sparsejax.jit.backend.builder import OUT_OF_MEMORY
from sparsejax.jit.codegen import abi

_FLOATS = {4: "float", 8: "double"}


def _machine(dtype: np.dtype[Any]) -> str | None:
    """The type of a number in machine code; None of complex and half ones."""
    return (
        f"i{8 * dtype.itemsize}" if dtype.kind in "biu" else _FLOATS.get(dtype.itemsize) if dtype.kind == "f" else None
    )


def _threshold(dtype: np.dtype[Any], tol: np.dtype[Any], kind: str, bound: str) -> list[str]:
    """The tolerance as `%tol`: a float of the type of the values, or the largest integer that is not above it."""
    if dtype.kind == "f":
        if kind == bound:
            return [f"  %tol = fadd {kind} %tol.raw, -0.0"]
        change = {"i": "sitofp", "b": "uitofp", "u": "uitofp"}.get(
            tol.kind, "fpext" if dtype.itemsize == 8 else "fptrunc"
        )
        return [f"  %tol = {change} {bound} %tol.raw to {kind}"]
    if tol.kind == "f":
        wide = "fadd double %tol.raw, -0.0" if bound == "double" else f"fpext {bound} %tol.raw to double"
        return [f"  %tol.wide = {wide}", "  %tol = call i64 @llvm.fptoui.sat.i64.f64(double %tol.wide)"]
    return [f"  %tol = {'add i64 %tol.raw, 0' if bound == 'i64' else f'zext {bound} %tol.raw to i64'}"]


@functools.lru_cache(maxsize=256)
def _thin(dims: tuple[int, ...], dtype: np.dtype[Any], fill: bytes, tol: np.dtype[Any]) -> compiler.Kernel | None:
    kind, bound = _machine(dtype), _machine(tol)
    if kind is None or bound is None:
        return None
    value = np.frombuffer(fill, dtype)[0]
    ndim, size = len(dims), dtype.itemsize
    pos, tol_at, second = ndim, 2 * ndim + 2, 2 * ndim + 3
    columns = [(pos + 1 + k, second + pos + 1 + k, width, f"i{8 * width}") for k, width in enumerate(dims)]
    columns.append((pos + 1 + ndim, second + pos + 1 + ndim, size, kind))
    out_pos, count = second + pos, second + pos + 2 + ndim
    lines = [
        f"declare ptr @{abi.NAME}(ptr, i64, i64)",
        "declare double @llvm.fabs.f64(double)",
        "declare float @llvm.fabs.f32(float)",
        "declare i64 @llvm.fptoui.sat.i64.f64(double)",
        "define i64 @kernel(ptr %s) nounwind {",
        "entry:",
        f"  %pos.at = getelementptr ptr, ptr %s, i64 {pos}",
        "  %pos = load ptr, ptr %pos.at, align 8",
        "  %lo = load i64, ptr %pos, align 8",
        "  %hi.at = getelementptr i64, ptr %pos, i64 1",
        "  %hi = load i64, ptr %hi.at, align 8",
        "  %n = sub i64 %hi, %lo",
        "  %some = icmp sgt i64 %n, 1",
        "  %room = select i1 %some, i64 %n, i64 1",
        f"  %tol.at = getelementptr ptr, ptr %s, i64 {tol_at}",
        "  %tol.ptr = load ptr, ptr %tol.at, align 8",
        f"  %tol.raw = load {bound}, ptr %tol.ptr, align {tol.itemsize}",
        *_threshold(dtype, tol, kind, bound),
    ]
    for k, (source, target, width, _) in enumerate(columns):
        lines += [
            f"  %x{k}.at = getelementptr ptr, ptr %s, i64 {source}",
            f"  %x{k} = load ptr, ptr %x{k}.at, align 8",
            f"  %b{k} = mul i64 %room, {width}",
            f"  %y{k} = call ptr @{abi.NAME}(ptr null, i64 %b{k}, i64 {abi.PLAIN})",
            f"  %y{k}.at = getelementptr ptr, ptr %s, i64 {target}",
            f"  store ptr %y{k}, ptr %y{k}.at, align 8",
            f"  %m{k} = icmp eq ptr %y{k}, null",
            f"  br i1 %m{k}, label %full, label %got{k}",
            f"got{k}:",
        ]
    lines += [
        f"  %ends = call ptr @{abi.NAME}(ptr null, i64 16, i64 {abi.PLAIN})",
        f"  %ends.at = getelementptr ptr, ptr %s, i64 {out_pos}",
        "  store ptr %ends, ptr %ends.at, align 8",
        "  %m = icmp eq ptr %ends, null",
        "  br i1 %m, label %full, label %loop",
        "loop:",
        f"  %p = phi i64 [ %lo, %got{len(columns) - 1} ], [ %p.next, %body ]",
        f"  %k = phi i64 [ 0, %got{len(columns) - 1} ], [ %k.next, %body ]",
        "  %go = icmp slt i64 %p, %hi",
        "  br i1 %go, label %body, label %done",
        "body:",
    ]
    for k, (_, _, width, machine) in enumerate(columns):
        lines += [
            f"  %from{k} = getelementptr {machine}, ptr %x{k}, i64 %p",
            f"  %v{k} = load {machine}, ptr %from{k}, align {width}",
            f"  %to{k} = getelementptr {machine}, ptr %y{k}, i64 %k",
            f"  store {machine} %v{k}, ptr %to{k}, align {width}",
        ]
    last = f"%v{len(columns) - 1}"
    if dtype.kind == "f":
        name = "fabs.f64" if size == 8 else "fabs.f32"
        number = f"0x{np.float64(value).view(np.uint64):016X}"
        lines += [
            f"  %unequal = fcmp une {kind} {last}, {number}",
            f"  %number = fcmp ord {kind} {last}, {last}",
            f"  %apart = fsub {kind} {last}, {number}",
            f"  %size = call {kind} @llvm.{name}({kind} %apart)",
            f"  %near = fcmp ole {kind} %size, %tol",
            "  %far = xor i1 %near, true",
            "  %known = and i1 %unequal, %far",
            f"  %other = and i1 %known, {'%number' if value != value else 'true'}",
        ]
    else:
        signed = "s" if dtype.kind == "i" else "u"
        lines += [
            f"  %less = icmp {signed}lt {kind} {last}, {int(value)}",
            f"  %over = sub {kind} {last}, {int(value)}",
            f"  %under = sub {kind} {int(value)}, {last}",
            f"  %apart = select i1 %less, {kind} %under, {kind} %over",
            f"  %size = {f'zext {kind} %apart to i64' if size < 8 else 'add i64 %apart, 0'}",
            "  %other = icmp ugt i64 %size, %tol",
        ]
    lines += [
        "  %one = zext i1 %other to i64",
        "  %k.next = add i64 %k, %one",
        "  %p.next = add i64 %p, 1",
        "  br label %loop",
        "done:",
        "  store i64 0, ptr %ends, align 8",
        "  %end.at = getelementptr i64, ptr %ends, i64 1",
        "  store i64 %k, ptr %end.at, align 8",
        f"  %count.at = getelementptr i64, ptr %s, i64 {count}",
        "  store i64 %k, ptr %count.at, align 8",
        "  ret i64 0",
        "full:",
        f"  ret i64 {OUT_OF_MEMORY}",
        "}",
        "",
    ]
    return compiler.compile_text("\n".join(lines))


def thin(aval: Aval, tol: Aval) -> compiler.Kernel | None:
    """The kernel for arrays of this type; None where there is none."""
    form = aval.format
    listed = bool(form.levels) and all(level.listed and level.unique for level in form.levels)
    if not listed or form.blocked or any(not form.continues(k) for k in range(1, form.ndim)):
        return None
    if tol.shape != () or (aval.dtype == np.float32 and tol.dtype != np.float32):
        return None
    dims = tuple(convert.crd_dtype(n).itemsize for n in form.level_extents(aval.shape))
    return _thin(dims, aval.dtype, np.asarray(aval.fill_value, aval.dtype).tobytes(), tol.dtype)


@functools.lru_cache(maxsize=64)
def _within(dtype: np.dtype[Any], ndim: int, drop: bool) -> compiler.Kernel:
    kind, size = f"i{8 * dtype.itemsize}", dtype.itemsize
    signed = dtype.kind == "i"
    wide = f"{'sext' if signed else 'zext'} {kind} %v to i64" if size < 8 else "add i64 %v, 0"
    narrow = f"trunc i64 %fine to {kind}" if size < 8 else "add i64 %fine, 0"
    wrapped = "%w" if drop or not signed else "%turned"
    text = f"""\
define i64 @kernel(ptr %s) nounwind {{
entry:
  %extent = load i64, ptr %s, align 8
  %count.at = getelementptr i64, ptr %s, i64 1
  %count = load i64, ptr %count.at, align 8
  %x.at = getelementptr ptr, ptr %s, i64 {2 + ndim}
  %x = load ptr, ptr %x.at, align 8
  %y.at = getelementptr ptr, ptr %s, i64 {3 + 2 * ndim}
  %y = load ptr, ptr %y.at, align 8
  br label %loop
loop:
  %p = phi i64 [ 0, %entry ], [ %p.next, %body ]
  %bad = phi i1 [ 0, %entry ], [ %bad.next, %body ]
  %go = icmp slt i64 %p, %count
  br i1 %go, label %body, label %done
body:
  %from = getelementptr {kind}, ptr %x, i64 %p
  %v = load {kind}, ptr %from, align {size}
  %w = {wide}
  %sign = icmp slt i64 %w, 0
  %more = select i1 %sign, i64 %extent, i64 0
  %turned = add i64 %w, %more
  %inside = icmp ult i64 {wrapped}, %extent
  %outside = xor i1 %inside, true
  %bad.next = or i1 %bad, %outside
  %fine = select i1 %inside, i64 {wrapped}, i64 0
  %made = {narrow}
  %to = getelementptr {kind}, ptr %y, i64 %p
  store {kind} %made, ptr %to, align {size}
  %p.next = add i64 %p, 1
  br label %loop
done:
  %status = zext i1 {"0" if drop else "%bad"} to i64
  ret i64 %status
}}
"""
    return compiler.compile_text(text)


def within(aval: Aval, drop: bool) -> compiler.Kernel | None:
    """The kernel for index arrays of this type; None where there is none."""
    if not aval.format.is_dense or aval.dtype.kind not in "iu" or aval.format.blocked:
        return None
    return _within(aval.dtype, aval.ndim, drop)
