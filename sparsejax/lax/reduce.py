"""Reductions over any axes, in time proportional to the stored entries whatever the fill."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from sparsejax import dtypes
from sparsejax.core.avals import Aval
from sparsejax.core.primitive import Primitive, asarray
from sparsejax.core.symbolic import SymbolicDim
from sparsejax.jit.ir import cin, operators
from sparsejax.lax import typing_rules as rules
from sparsejax.lax.elementwise import convert_element_type, elementwise, real, where
from sparsejax.lax.extents import number
from sparsejax.lax.linear import sample
from sparsejax.lax.structural import distinct, entries, normal_axes, pattern, refill, reshape

OPERATORS = {
    "sum": "add",
    "prod": "multiply",
    "max": "maximum",
    "min": "minimum",
    "any": "logical_or",
    "all": "logical_and",
}
_NUMPY = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "any": np.any, "all": np.all}


def _notation(x: rules.Operand, kind: str, axes: tuple[int, ...], dtype: np.dtype[Any]) -> cin.Definition:
    indices = rules.index_vars(len(rules.shape_of(x)))
    kept = tuple(v for k, v in enumerate(indices) if k not in axes)
    return cin.Definition(kept, OPERATORS[kind], rules.cast(rules.access(x, indices), dtype))


def _typing(x: Aval, kind: str, axes: tuple[int, ...], dtype: np.dtype[Any]) -> Aval:
    shape = tuple(n for k, n in enumerate(x.shape) if k not in axes)
    return rules.infer(_notation, (x,), {"kind": kind, "axes": axes, "dtype": dtype}, shape, dtype).strong()


def _reference(x: Any, kind: str, axes: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    start = {} if kind in ("any", "all") else {"initial": operators.get(OPERATORS[kind]).identity(dtype)}
    return _NUMPY[kind](np.asarray(x).astype(dtype), axis=axes, **start)  # type: ignore[operator]


reduce_p = Primitive(
    "reduce",
    typing=_typing,
    reference=_reference,
    notation=_notation,
    describe=lambda kind, axes, dtype: f"{kind} axes={axes}",
)


def reduce(kind: str, x: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """Reduce `x` over `axis` (an int, a tuple, or None for all) by `kind`: sum, prod, max, min, any or all.

    Dtypes as in NumPy (sums of integers are int64 or uint64). Entries that are not stored count with the fill; where
    the fill is not the identity of the reduction, the stored entries are reduced and the fill is folded in once, so
    that the cost stays O(stored entries). A product with a zero that is not stored is zero, or NaN beside an infinity or NaN as in
    NumPy, in any order: never NaN because the product of the others overflows.

    >>> import sparsejax as sj, numpy as np
    >>> reduce("max", sj.array(-np.eye(3), format="csr"), axis=1)
    Array([0., 0., 0.], dtype=float64)
    """
    x = asarray(x)
    axes = _axes(axis, x.ndim)
    out = result_dtype(kind, x.dtype, dtype)
    count = math.prod(x.shape[a] for a in axes)
    if kind in ("max", "min") and count == 0:
        raise ValueError(f"zero-size array to reduction operation {OPERATORS[kind]} which has no identity")
    if kind in ("any", "all") and x.dtype != np.bool_:
        x = elementwise("not_equal", x, 0)
    made = _reduce(kind, x, axes, out, count)
    if keepdims:
        made = reshape(made, [1 if k in axes else n for k, n in enumerate(x.shape)])
    return made


def _reduce(kind: str, x: Any, axes: tuple[int, ...], dtype: np.dtype[Any], count: int) -> Any:
    if not axes:
        return convert_element_type(x, dtype)
    x = convert_element_type(x, dtype)
    op = operators.get(OPERATORS[kind])
    identity = op.identity(dtype)
    if x.format.is_dense or cin.same_value(x.fill_value, identity):
        return reduce_p.bind(x, kind=kind, axes=axes, dtype=dtype)
    fill = x.fill_value.item()
    stored = reduce_p.bind(refill(x, identity), kind=kind, axes=axes, dtype=dtype)
    if len(axes) == x.ndim:
        stored_count = entries(distinct(x))
    else:
        ones = sample(asarray(np.int64(1)), x)  # read where they are counted, not stored
        stored_count = reduce_p.bind(ones, kind="sum", axes=axes, dtype=np.dtype(np.int64))
    if kind == "prod" and fill == 0:  # zero, even if the product of the others overflows
        absent = _lacking(count, stored_count)
        zero: Any = dtype.type(0)
        if dtype.kind in "fc":
            undefined = dtype.type(math.nan if dtype.kind == "f" else complex(math.nan, math.nan))
            zero = where(reduce("all", elementwise("isfinite", x), axes), zero, undefined)
        return where(absent, zero, stored)
    if kind in ("sum", "prod") and not stored_count.format.is_dense:
        count = int(count)  # what is not stored depends on it, so that it is part of the type
    rest = _filled(kind, fill, count, stored_count, dtype)
    if (
        kind not in ("sum", "prod") and len(axes) == x.ndim and count <= MOST
    ):  # what is reduced is read once: this is done where it ends
        missing = elementwise("greater", elementwise("subtract", count, stored_count), 0)
        other = where(missing, dtype.type(fill), identity)
        return convert_element_type(elementwise(op.name, stored, other), dtype)
    combined = convert_element_type(elementwise(op.name, stored, rest), dtype)
    # beyond 2^63 elements some are not stored, whatever memory holds
    return combined if count > MOST else where(_lacking(count, stored_count), combined, stored)


def _lacking(count: Any, stored: Any) -> Any:
    """Where fewer than `count` elements are stored. What stores none lacks some, whatever the count (symbols are 2 at least): of an extent that is not
    known as well, so that results have the same format."""
    if isinstance(count, SymbolicDim) and not stored.format.is_dense:
        return elementwise("less", elementwise("divide", stored, number(count)), 1.0)
    return elementwise("greater", elementwise("subtract", min(count, MOST), stored), 0)


MOST = 2**63 - 1


def _filled(kind: str, fill: Any, count: int, stored: Any, dtype: np.dtype[Any]) -> Any:
    """The reduction of `fill`, `count - stored` times; `count` may exceed 64 bits, the entries never come near that.

    Integers are computed modulo 2^64, as always. An exponent keeps what matters of it: how many bits an even fill shifts by
    (64 are as good as more), and its remainder modulo 2^62, the order of the odd numbers modulo 2^64.
    """
    if kind not in ("sum", "prod"):
        return fill
    huge = count > MOST
    if dtype.kind in "fc" and huge:
        missing = elementwise("subtract", float(count), convert_element_type(stored, np.float64))
    elif kind == "sum" or not huge:
        missing = elementwise("subtract", (count + 2**63) % 2**64 - 2**63, stored)
    else:
        missing = elementwise("subtract", count % 2**62 + 2**62, stored)
    if kind == "sum":
        return elementwise("multiply", convert_element_type(missing, dtype), fill)
    if dtype.kind not in "fc":
        return elementwise("power", fill, convert_element_type(missing, dtype))
    return convert_element_type(_raised(fill, missing, lambda n: _remainder(count, stored, n)), dtype)


def _remainder(count: int, stored: Any, modulus: int) -> Any:
    """`count - stored` modulo a power of two."""
    difference = elementwise("subtract", count % modulus, elementwise("bitwise_and", stored, modulus - 1))
    return elementwise("bitwise_and", difference, modulus - 1)


def _raised(base: float | complex, exponent: Any, remainder: Callable[[int], Any]) -> Any:
    """`base` to powers that are whole numbers, in double precision, given their `remainder` modulo 2 and 4: rounded exponents have lost how
    often a sign, or a quarter of a turn, comes back."""
    exponent = convert_element_type(exponent, np.float64)
    if base.real and base.imag:
        return elementwise("power", base, convert_element_type(exponent, np.complex128))
    size, turned = base.real or base.imag, base.imag != 0
    made = elementwise("power", abs(size), exponent)
    if size < 0:
        made = where(elementwise("equal", remainder(2), 1), elementwise("negative", made), made)
    if turned:
        quarters = remainder(4)
        for quarter, unit in ((1, 1j), (2, -1), (3, -1j)):
            made = where(elementwise("equal", quarters, quarter), elementwise("multiply", made, unit), made)
    return made


def mean(x: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """The mean over `axis`; entries that are not stored count with the fill. Integers give float64."""
    x = asarray(x)
    axes = _axes(axis, x.ndim)
    out = dtypes.canonical(dtype if dtype is not None else x.dtype if x.dtype.kind in "fc" else np.float64)
    count = math.prod(x.shape[a] for a in axes)
    total = reduce("sum", x, axis=axes, dtype=out, keepdims=keepdims)
    if count == 0 and not total.format.is_dense:
        total = refill(total, math.nan)  # a quotient of absent entries would be absent
    return convert_element_type(elementwise("divide", total, number(count)), out)


def var(x: Any, axis: Any = None, dtype: Any = None, ddof: float = 0, keepdims: bool = False) -> Any:
    """The variance over `axis`: the mean square distance to the mean, over the number of elements less `ddof`.

    Two passes over the stored entries, as NumPy's over all of them; those that are not stored are counted, not visited.
    TypeError for a `dtype` of integers or booleans.

    >>> import sparsejax as sj, numpy as np
    >>> var(sj.array(np.eye(4), format="csr"), axis=0)
    Array([0.1875, 0.1875, 0.1875, 0.1875], dtype=float64)
    """
    x = asarray(x)
    axes = _axes(axis, x.ndim)
    wide = dtypes.canonical(dtype if dtype is not None else x.dtype if x.dtype.kind in "fc" else np.float64)
    if wide.kind not in "fc":
        raise TypeError(f"dtype={wide} cannot hold a variance or a deviation; take float64, and convert the result")
    x = convert_element_type(x, wide)
    count = math.prod(x.shape[a] for a in axes)
    center = mean(x, axes, keepdims=True)
    if x.format.is_dense:
        total = reduce("sum", _square(elementwise("subtract", x, center)), axes, keepdims=keepdims)
    else:
        stored = pattern(x, wide)
        distance = elementwise("subtract", refill(x, 0), elementwise("multiply", stored, center))
        rest = elementwise("subtract", number(count), reduce("sum", stored, axes, keepdims=True))
        others = elementwise("multiply", rest, _square(elementwise("subtract", x.fill_value.item(), center)))
        others = where(elementwise("greater", _real(rest), 0), others, 0)
        total = elementwise("add", reduce("sum", _square(distance), axes, keepdims=True), others)
        total = total if keepdims else reshape(total, [n for k, n in enumerate(x.shape) if k not in axes])
    total = _real(total)
    less = int(ddof) if int(ddof) == ddof else ddof
    if count <= less and not total.format.is_dense:
        total = refill(total, math.nan)  # as in `mean`
    out = total.dtype if dtype is None else wide
    return convert_element_type(elementwise("divide", total, number(max(0, count - less))), out)


def _real(x: Any) -> Any:
    return real(x) if x.dtype.kind == "c" else x


def _square(x: Any) -> Any:
    """The squares of absolute values."""
    return elementwise("multiply", x, elementwise("conjugate", x) if x.dtype.kind == "c" else x)


def _axes(axis: Any, ndim: int) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(ndim))
    return tuple(sorted(normal_axes(axis, ndim)))


def result_dtype(kind: str, own: np.dtype[Any], wanted: Any) -> np.dtype[Any]:
    """The dtype of a reduction of entries of dtype `own`, where `wanted` is asked for or None: as in NumPy."""
    if kind in ("any", "all"):
        return np.dtype(np.bool_)
    if wanted is not None:
        return dtypes.canonical(wanted)
    if kind in ("sum", "prod") and own.kind in "bi":
        return np.dtype(np.int64)
    return np.dtype(np.uint64) if kind in ("sum", "prod") and own.kind == "u" else own
