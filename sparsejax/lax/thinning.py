"""Thinning: `prune` drops stored entries, by how far they are from the fill, by a predicate, or all but the largest of every line.

kept[i, j] = which entries of x stay           a flag per entry, over the pattern of x; constant for derivatives
out        = thin(x, kept)                     tangent  thin(dx, kept),  cotangent  where(kept, ct, 0) at the pattern of x
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsejax.core.array import Array, made
from sparsejax.core.avals import Aval
from sparsejax.core.batching import Batched, batched_format
from sparsejax.core.primitive import Primitive, asarray
from sparsejax.core.tangents import Linear
from sparsejax.core.trace import Tracer, current
from sparsejax.formats import Format, convert
from sparsejax.formats.distances import differs
from sparsejax.formats.storage import Storage
from sparsejax.jit.ir import cin, simplify
from sparsejax.lax import typing_rules as rules
from sparsejax.lax.elementwise import where
from sparsejax.lax.library import thinning
from sparsejax.lax.linear import keep as keep_entries
from sparsejax.lax.linear import sample, settle
from sparsejax.lax.rules.batching import aligned, ragged, spread
from sparsejax.lax.structural import convert_format, integer, normal_axis

# --------------------------------------------------------------------------------------------------- what is kept


def _kept_reference(x: Any, *operands: Any, bounded: bool, keep: int | None, axes: tuple[int, ...]) -> Any:
    x, rest = np.asarray(x), list(operands)
    chosen = differs(x, x.dtype.type(0), rest.pop(0)) if bounded else np.ones(x.shape, bool)
    for mask in rest:
        chosen = chosen & np.asarray(mask)
    if keep is None:
        return chosen
    columns = [np.ravel(c) for c in np.indices(x.shape)]
    return thinning.largest(x.ravel(), columns, x.shape, axes, chosen.ravel(), keep).reshape(x.shape)


def _kept_call(
    x: Storage, *operands: Storage, out_aval: Aval, bounded: bool, keep: int | None, axes: tuple[int, ...]
) -> Storage:
    rest = list(operands)
    tol = thinning.number(rest.pop(0)) if bounded else None
    return thinning.kept(x, tol, rest[0] if rest else None, keep, axes)


def _kept_batch(size: int, x: Any, *operands: Any, bounded: bool, keep: int | None, axes: tuple[int, ...]) -> Any:
    rest = list(operands)
    values = [convert_format(aligned(rest.pop(0)), "dense")] if bounded else []
    values += [spread(mask, size) for mask in rest]
    return kept_p.bind(spread(x, size), *values, bounded=bounded, keep=keep, axes=axes)


kept_p: Primitive = Primitive(
    "kept",
    typing=lambda x, *operands, bounded, keep, axes: Aval(
        x.shape, np.bool_, thinning.flags_format(x.format), np.False_
    ),
    reference=_kept_reference,
    call=_kept_call,
    batch=_kept_batch,
    jvp=lambda primals, tangents, out, **params: None,
)
"""Of operands x, the tolerance if `bounded`, and a mask if there is one more: a flag for every entry of x."""


BOOL = np.dtype(np.bool_)

# ------------------------------------------------------------------------------------------------------ thinning


def _thin_batch(size: int, x: Any, kept: Any) -> Any:
    values = [spread(operand, size) for operand in (x, kept)]
    if isinstance(kept, Batched) or ragged([x]):  # every element has a pattern of its own
        of = x.aval.format
        values[0] = convert_format(values[0], batched_format(of, True))
    return thin_p.bind(*values)


def _thin_transpose(ct: Any, x: Linear, kept: Any) -> list[Any]:
    return [settle(keep_entries(where(kept, ct, ct.dtype.type(0)), x), x), None]


thin_p: Primitive = Primitive(
    "thin",
    typing=lambda x, kept: Aval(x.shape, x.dtype, x.format, x.fill_value),
    reference=lambda x, kept: np.where(kept, x, np.zeros((), np.asarray(x).dtype)),
    call=lambda x, kept, out_aval: thinning.thinned(x, kept),
    batch=_thin_batch,
    jvp=lambda primals, tangents, out: None if tangents[0] is None else thin_p.bind(tangents[0], primals[1]),
    transpose=_thin_transpose,
)
"""The entries of x where flags hold, in its format and over its fill."""


# ------------------------------------------------------------------------------------------------ of dense arrays


def _sifted_call(
    x: Storage, *operands: Storage, out_aval: Aval, bounded: bool, keep: int | None, axes: tuple[int, ...]
) -> Storage:
    rest = list(operands)
    tol, mask = thinning.number(rest.pop(0)) if bounded else None, rest[0] if rest else None
    found = thinning.of_dense(x, tol, mask, keep, axes)
    if found is None:
        x = convert.convert(x, out_aval.format)
        found = thinning.thinned(x, thinning.kept(x, tol, mask, keep, axes))
    return found


def _sifted_batch(size: int, x: Any, *operands: Any, **params: Any) -> Any:
    """As entries of arrays that store what differs from the fill."""
    form = Format.parse(_listed(x.aval.ndim), x.aval.ndim)
    if isinstance(x, Batched):
        aval = Aval(x.aval.shape, x.aval.dtype, form, x.aval.fill_value)
        listed: Any = Batched(convert_format(x.value, batched_format(form, True)), aval)
    else:
        listed = convert_format(x, form)
    kept = _kept_batch(size, listed, *operands, **params)
    return _thin_batch(size, listed, Batched(kept, Aval(x.aval.shape, BOOL, thinning.flags_format(form), np.False_)))


sifted_p: Primitive = Primitive(
    "sifted",
    typing=lambda x, *operands, bounded, keep, axes: Aval(
        x.shape, x.dtype, Format.parse(_listed(x.ndim), x.ndim), x.fill_value
    ),
    reference=lambda x, *operands, **params: np.where(
        _kept_reference(x, *operands, **params), x, np.zeros((), np.asarray(x).dtype)
    ),
    call=_sifted_call,
    batch=_sifted_batch,
    jvp=lambda primals, tangents, out, **params: None if tangents[0] is None else sample(tangents[0], out),
)
"""Of a dense x, and operands as of `kept_p`: its entries that stay, without an array of all that differ from the fill in between."""


def _thinned_notation(x: rules.Operand, tol: float) -> cin.Definition:
    """out[i] = masked(x[i] != fill, x[i], fill); with a tolerance also not (abs(x[i] - fill) <= tol)"""
    assert isinstance(x, cin.Tensor)
    shape, dtype = rules.shape_of(x), np.dtype(x.dtype)
    indices = rules.index_vars(len(shape))
    value, fill = rules.access(x, indices), simplify.literal(x.fill_value, dtype)
    nan = bool(np.isnan(x.fill_value))
    stays: cin.Expr = cin.Call("equal" if nan else "not_equal", (value, value if nan else fill), BOOL)
    if tol > 0:
        far = cin.Call("absolute", (cin.Call("subtract", (value, fill), dtype),), dtype)
        near = cin.Call("less_equal", (far, simplify.literal(tol, dtype)), BOOL)
        stays = cin.Call("logical_and", (stays, cin.Call("logical_not", (near,), BOOL)), BOOL)
    return cin.Definition(indices, None, cin.Call("masked", (stays, value, fill), dtype))


thinned_p: Primitive = Primitive(
    "thinned",
    typing=lambda x, tol: Aval(x.shape, x.dtype, x.format, x.fill_value),
    reference=lambda x, tol: np.where(differs(np.asarray(x), np.asarray(x).dtype.type(0), tol), x, 0),
    notation=_thinned_notation,
)
"""The entries of x that differ from its fill by more than a number of the program: what the compiler makes of both operations, where one kernel does
all (`jit.graph.thinned_products`)."""


def prune(
    A: Any, *, tol: Any = None, predicate: Any = None, keep: Any = None, axis: int | Sequence[int] | None = -1
) -> Array:
    """The sparse array `A` without some of its stored entries: a new array of the same shape, dtype, format and fill.

    A dense `A` becomes sparse: csr, if it is a matrix, else coo, as if its elements that are not the fill had been stored in that format before. A matrix
    that is there, row by row, is not: what takes memory beside the result is a flag for every element at most.

    Without other arguments, stored entries that equal the fill are dropped, as by `A.eliminate_zeros()`. An entry stays if it passes
    all that is given:

    - `tol`: entries with `abs(a - fill) <= tol` are dropped; a number, or a dense array that broadcasts to `A`, such as one per row.
      By default 0, or no bound at all where there is a `predicate`. NaN stays, unless the fill is NaN. Differences of integers are exact.
    - `predicate`: what is kept. A function of `A` that gives bools, entry by entry, such as `lambda a: abs(a) > 0.5`; or a bool array of
      the shape of `A`, sparse or dense; or, outside `jit`, one of the shape of `A.data`, for its values. Only stored entries are asked.
    - `keep`: of what passes the others, the `keep` entries of largest absolute value in every line along `axis`: -1, of every row;
      0, of every column of a matrix; None, of the whole array; several axes, of every part. Of equal ones the first coordinates stay,
      NaN before all numbers.

    Formats that store more than they are told to (blocks, dense levels below sparse ones, bands) hold the fill where an entry was
    dropped beside one that stays.

    Works under `jit`, where which entries stay is data as in a product; under `vmap`; and has derivatives: entries that stay pass them
    on, which of them do is constant.

    Raises TypeError for an `A` without dimensions and for a `predicate` that is not bool, ValueError for a negative `tol` or `keep` and for shapes
    that do not fit, AxisError for an `axis` that `A` does not have. O(stored entries); `keep` along axes that are not the last in the
    order of storage takes a counting sort.

    >>> import sparsejax as sj
    >>> A = sj.array(np.array([[0.1, 0.0, -3.0], [0.0, 2.0, 1.0]]), format="csr")
    >>> prune(A, tol=0.5).todense()
    array([[ 0.,  0., -3.],
           [ 0.,  2.,  1.]])
    >>> prune(A, keep=1).todense()
    array([[ 0.,  0., -3.],
           [ 0.,  2.,  0.]])
    >>> prune(A, predicate=lambda a: a > 0, keep=1, axis=0).nnz
    3
    >>> X = np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
    >>> prune(X @ X.T, keep=2).todense()  # the nearest neighbours of each
    array([[1. , 0.8, 0. ],
           [0.8, 1. , 0. ],
           [0. , 0.6, 1. ]])
    """
    if (
        type(A) is Array
        and tol is None
        and predicate is None
        and (axis is None or (type(axis) is int and axis == -1))
        and current() is None
    ):
        given, aval = A._storage, A._aval  # no detours for small arrays
        form = aval.format
        if keep is None and not form.is_dense:
            thin = thinning.of_kind(given, aval.kind)
            return A if thin is given else made(thin, aval.strong() if aval.weak_type else aval)
        if type(keep) is int and keep > 0 and form is _ROWS and len(given.vals) and aval.fill_value == 0:
            foremost = thinning.foremost(given, keep, axis is None)
            if foremost is not None:
                return Array(foremost)
    x = asarray(A, "A")
    if x.format.is_dense and not x.ndim:
        raise TypeError("prune drops entries of arrays of one dimension or more; A has shape ()")
    axes = () if type(axis) is int and axis == -1 else _axes(axis, x.ndim)
    if predicate is None and keep is None and type(x) is Array and current() is None:  # no detours for small arrays
        least = 0 if tol is None else _tolerance(tol, x)
        if not x.format.is_dense and not isinstance(least, Array | Tracer):
            thin = thinning.apart(x._storage, least)
            return x if thin is x._storage else made(thin, x.aval.strong())
    count = None if keep is None else integer(keep, "keep")
    if count is not None and count < 0:
        raise ValueError(f"keep={keep} must be at least 0: the number of entries that stay in a line")
    bound = _tolerance(0 if tol is None and predicate is None else tol, x)
    mask = None if predicate is None else _mask(predicate, x)
    params: dict[str, Any] = {"keep": count, "axes": (axes or _axes(axis, x.ndim)) if count is not None else ()}
    if current() is None and not any(isinstance(operand, Tracer) for operand in (x, bound, mask)):
        limit = thinning.number(bound._storage) if type(bound) is Array else bound
        if x.format.is_dense:
            found = thinning.of_dense(x._storage, limit, None if mask is None else mask._storage, **params)
            if found is not None:
                return Array(found)
            x = convert_format(x, _listed(x.ndim))
        thin = thinning.pruned(x._storage, limit, None if mask is None else mask._storage, **params)
        return x if thin is x._storage else made(thin, x.aval.strong())
    if type(bound) is np.float64 and type(tol) in (type(None), int, float):
        bound = float(bound)  # a number of the program
    operands = [o if type(o) is float else asarray(o) for o in (bound, mask) if o is not None]
    params["bounded"] = bound is not None
    return (
        sifted_p.bind(x, *operands, **params)
        if x.format.is_dense
        else thin_p.bind(x, kept_p.bind(x, *operands, **params))
    )


_ROWS = Format.parse("dense", 2)


def _listed(ndim: int) -> str:
    """The format of what is left of a dense array."""
    return "csr" if ndim == 2 else "coo"


def eliminate_zeros(x: Any) -> Array:
    """`prune(x)`; a dense array stays as it is, since it stores everything."""
    x = asarray(x)
    return x if x.format.is_dense else prune(x)


def _axes(axis: Any, ndim: int) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(ndim))
    listed = axis if isinstance(axis, tuple | list) else (axis,)
    given = tuple(sorted({normal_axis(a, ndim) for a in listed}))
    if len(given) < len(listed):
        raise ValueError(f"axis={axis} names an axis twice")
    return given


def _tolerance(tol: Any, x: Any) -> Any:
    """The tolerance, as a number of NumPy's or an array; Python's numbers take the precision of `x`."""
    if tol is None:
        return None
    if isinstance(tol, bool | int | float) and not isinstance(tol, np.generic):
        if not tol >= 0:
            raise ValueError(f"tol={tol} must be a number that is not negative")
        real = x.fill_value.real.dtype
        if real.kind == "f":
            return real.type(tol)
        return np.uint64(min(math.floor(tol), 2**64 - 1) if math.isfinite(tol) else 2**64 - 1)
    given = asarray(tol, "tol")
    if given.dtype.kind not in "biuf":
        raise TypeError(f"tol has dtype {given.dtype}; it must be real, and is compared with absolute values")
    if given.ndim > x.ndim or any(n not in (1, m) for n, m in zip(given.shape[::-1], x.shape[::-1], strict=False)):
        raise ValueError(f"tol of shape {given.shape} does not broadcast to A of shape {x.shape}")
    given = convert_format(given, "dense")
    if type(given) is Array and not bool(np.all(given.todense() >= 0)):
        raise ValueError("tol must not be negative or NaN anywhere")
    return given


def _mask(predicate: Any, x: Any) -> Any:
    """What is kept, as an array of bools of the shape of `x`."""
    called = callable(predicate) and not hasattr(predicate, "shape")
    value = predicate(x) if called else predicate
    what = "the result of predicate" if called else "predicate"
    given = asarray(value, what)
    if given.dtype != np.bool_:
        raise TypeError(f"{what} has dtype {given.dtype}; it must be bool, as of a comparison such as A > 0.5")
    if given.shape == x.shape:
        return given
    if type(x) is Array and type(given) is Array and not called and given.shape == x.data.shape:
        return Array(thinning.positioned(x._storage, given.asformat("dense").todense().ravel()))
    stored = f" (or {x.data.shape}, a bool for every value of A.data)" if type(x) is Array else ""
    raise ValueError(f"{what} has shape {given.shape}, but A has shape {x.shape}: give it that shape{stored}")
