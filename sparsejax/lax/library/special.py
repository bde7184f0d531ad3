"""Functions of numbers that SciPy computes, entry by entry: of one array in any format, or of several dense ones.

    y = special[gammaln] x          tangent  dy = psi(x) dx         the derivatives are in `_SLOPES`

Sparse arrays keep their pattern; the fill is mapped too.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sparsejax.core.avals import Aval
from sparsejax.core.primitive import Primitive, asarray
from sparsejax.formats import convert
from sparsejax.formats.storage import Storage
from sparsejax.lax import typing_rules as rules
from sparsejax.lax.elementwise import aval_of, convert_element_type, elementwise
from sparsejax.lax.rules.batching import aligned, element
from sparsejax.lax.structural import convert_format, distinct


def _ufunc(op: str) -> Any:
    return getattr(importlib.import_module("scipy.special"), op)


def _applied(op: str, *xs: Any) -> Any:
    with np.errstate(all="ignore"):
        return _ufunc(op)(*xs)


def _typing(*xs: Aval, op: str, dtype: np.dtype[Any]) -> Aval:
    shape = rules.broadcast_shapes(*(x.shape for x in xs))
    if len(xs) == 1 and not xs[0].format.is_dense:
        return Aval(shape, dtype, xs[0].format, _applied(op, xs[0].fill_value))
    return rules.dense(shape, dtype)


def _call(*xs: Storage, out_aval: Aval, op: str, dtype: np.dtype[Any]) -> Storage:
    if len(xs) == 1:
        return xs[0].with_values(np.asarray(_applied(op, xs[0].vals), dtype), out_aval.fill_value)
    made = np.asarray(_applied(op, *(convert.to_dense(x) for x in xs)), dtype)
    return convert.from_dense(np.ascontiguousarray(np.broadcast_to(made, out_aval.shape)), out_aval.format, 0)


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], out: Any, op: str, dtype: np.dtype[Any]) -> Any:
    if op not in _SLOPES:
        return None
    slopes = _SLOPES[op](out, *primals)
    total = None
    for slope, tangent in zip(slopes, tangents, strict=True):
        if tangent is None:
            continue
        if slope is None:
            raise NotImplementedError(f"{op} has no derivative with respect to this argument")
        part = slope * tangent
        total = part if total is None else total + part
    return total


def _batch(size: int, *xs: Any, op: str, dtype: np.dtype[Any]) -> Any:
    if len(xs) == 1:
        return special_p.bind(xs[0].value, op=op, dtype=dtype)
    ndim = max(element(x).ndim for x in xs)
    values = [convert_format(asarray(aligned(x)), "dense") for x in xs]
    grown = [v if v.ndim in (0, ndim + 1) else v.reshape((1,) * (ndim + 1 - v.ndim) + v.shape) for v in values]
    return special_p.bind(*grown, op=op, dtype=dtype)


special_p = Primitive(
    "special",
    typing=_typing,
    reference=lambda *xs, op, dtype: np.asarray(_applied(op, *xs), dtype),
    call=_call,
    jvp=_jvp,
    batch=_batch,
    describe=lambda op, dtype: op,
)


def special(op: str, *args: Any) -> Any:
    """`scipy.special.<op>` of every entry, in float32 or float64; several arguments broadcast and give a dense result. O(stored
    entries) for one argument.

    >>> special("gammaln", np.array([1.0, 4.0])).todense().round(6)
    array([0.      , 1.791759])
    """
    types = [aval_of(x) for x in args]
    for k, x in enumerate(types):
        if x.dtype.kind == "c":
            raise TypeError(f"{op} takes real numbers, but argument {k} has dtype {x.dtype}")
    strong = [x.dtype for x in types if not x.weak_type] or [x.dtype for x in types]
    dtype = np.result_type(*strong)
    dtype = dtype if dtype.kind == "f" else np.dtype(np.float64)
    values = [convert_element_type(x, dtype) for x in args]
    if len(values) > 1:
        values = [convert_format(x, "dense") for x in values]
    else:
        values = [distinct(values[0])]
    return special_p.bind(*values, op=op, dtype=dtype)


def _exp(x: Any) -> Any:
    return elementwise("exp", x)


def _density(x: Any) -> Any:
    """Of the normal distribution."""
    return _exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))


def _gammainc_slope(a: Any, x: Any) -> Any:
    return _exp((a - 1) * elementwise("log", x) - x - special("gammaln", a))


_SLOPES: dict[str, Callable[..., Sequence[Any]]] = {
    "gammaln": lambda out, x: [special("psi", x)],
    "gamma": lambda out, x: [out * special("psi", x)],
    "psi": lambda out, x: [special("zeta", 2.0, x)],
    "zeta": lambda out, s, x: [None, -s * special("zeta", s + 1, x)],
    "erfc": lambda out, x: [_exp(-x * x) * (-2 / math.sqrt(math.pi))],
    "erfinv": lambda out, x: [_exp(out * out) * (math.sqrt(math.pi) / 2)],
    "erfcinv": lambda out, x: [_exp(out * out) * (-math.sqrt(math.pi) / 2)],
    "ndtr": lambda out, x: [_density(x)],
    "ndtri": lambda out, x: [1 / _density(out)],
    "log_ndtr": lambda out, x: [_exp(x * x * -0.5 - out) * (1 / math.sqrt(2 * math.pi))],
    "i0": lambda out, x: [special("i1", x)],
    "i1": lambda out, x: [special("i0", x) - special("i1e", x) * _exp(elementwise("absolute", x)) / x],
    "i0e": lambda out, x: [special("i1e", x) - elementwise("sign", x) * out],
    "i1e": lambda out, x: [special("i0e", x) - out * (elementwise("sign", x) + 1 / x)],
    "expi": lambda out, x: [_exp(x) / x],
    "exp1": lambda out, x: [-_exp(-x) / x],
    "gammainc": lambda out, a, x: [None, _gammainc_slope(a, x)],
    "gammaincc": lambda out, a, x: [None, -_gammainc_slope(a, x)],
    "betaln": lambda out, a, b: [
        special("psi", a) - special("psi", a + b),
        special("psi", b) - special("psi", a + b),
    ],
}
