"""Functions that `jax.lax` has, of arrays in any format where that makes sense."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsejax.core.again import again
from sparsejax.core.array import Array
from sparsejax.core.primitive import asarray
from sparsejax.core.symbolic import sliced, span
from sparsejax.core.trace import current, is_python_scalar
from sparsejax.formats.parts import located
from sparsejax.lax import sorting
from sparsejax.lax.contract import contract, matmul
from sparsejax.lax.elementwise import aval_of, convert_element_type, elementwise, loop_dtypes, where
from sparsejax.lax.extents import along, coordinates, filled
from sparsejax.lax.indexing import concatenate as _concatenate
from sparsejax.lax.indexing import gather, window
from sparsejax.lax.indexing import select as _selection
from sparsejax.lax.library.cumulative import cumulative
from sparsejax.lax.library.special import special
from sparsejax.lax.reduce import reduce
from sparsejax.lax.structural import (
    broadcast_to,
    convert_format,
    extent,
    extents,
    integer,
    normal_axis,
    reshape,
    signed_integers,
)

# ------------------------------------------------------------------------------------------------------- elementwise


def _named(op: str, arity: int) -> Any:
    if arity == 1:

        def unary(x: Any) -> Any:
            return elementwise(op, x)

        function: Any = unary
    else:

        def binary(x: Any, y: Any) -> Any:
            return elementwise(op, x, y)

        function = binary
    function.__doc__ = f"`numpy.{op}`, entry by entry."
    return function


def _elementwise(table: dict[str, str], arity: int) -> dict[str, Any]:
    made = {}
    for name, op in table.items():
        made[name] = _named(op, arity)
        made[name].__name__ = made[name].__qualname__ = name
    return made


UNARY = _elementwise(
    {
        "abs": "absolute", "acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh", "atan": "arctan",
        "atanh": "arctanh", "bitwise_not": "invert", "cbrt": "cbrt", "ceil": "ceil", "conj": "conjugate", "cos": "cos",
        "cosh": "cosh", "exp": "exp", "exp2": "exp2", "expm1": "expm1", "floor": "floor", "is_finite": "isfinite",
        "log": "log", "log1p": "log1p", "neg": "negative", "round": "rint", "sign": "sign", "sin": "sin", "sinh": "sinh",
        "sqrt": "sqrt", "square": "square", "tan": "tan", "tanh": "tanh",
    },
    1,
)  # fmt: skip
BINARY = _elementwise(
    {
        "add": "add", "atan2": "arctan2", "bitwise_and": "bitwise_and", "bitwise_or": "bitwise_or", "bitwise_xor": "bitwise_xor",
        "div": "divide", "eq": "equal", "ge": "greater_equal", "gt": "greater", "le": "less_equal", "lt": "less", "max": "maximum",
        "min": "minimum", "mul": "multiply", "ne": "not_equal", "pow": "power", "shift_left": "left_shift", "sub": "subtract",
        "nextafter": "nextafter",
    },
    2,
)  # fmt: skip


@again(2, whole=True)
def rem(x: Any, y: Any) -> Array:
    """The remainder with the sign of `x` (C's `fmod`), where `numpy.remainder` has that of `y`; exact.

    >>> rem(np.array([-7, 7]), 3)
    Array([-1,  1], dtype=int64)
    """
    dtype = loop_dtypes("remainder", (aval_of(x), aval_of(y)))[1]
    kind = dtype.kind
    if kind == "f":
        # the least integer of a dtype has no size in it
        x, y = (
            convert_element_type(v, dtype) if aval_of(v).dtype.kind in "iu" and not is_python_scalar(v) else v
            for v in (x, y)
        )
        sizes = (abs(v) if is_python_scalar(v) else elementwise("absolute", v) for v in (x, y))
        size = elementwise("remainder", *sizes)
        return elementwise("copysign", size, x)
    left = elementwise("remainder", x, y)
    if kind != "i":
        return left
    opposite = elementwise("less", elementwise("bitwise_xor", elementwise("sign", left), x), 0)
    return where(
        elementwise("logical_and", elementwise("not_equal", left, 0), opposite), elementwise("subtract", left, y), left
    )


@again(1, whole=True)
def rsqrt(x: Any) -> Array:
    """1 / sqrt(x).

    >>> rsqrt(np.array([4.0]))
    Array([0.5], dtype=float64)
    """
    return elementwise("divide", 1, elementwise("sqrt", x))


@again(1)
def reciprocal(x: Any) -> Array:
    """1 / x."""
    return elementwise("divide", 1, x)


@again(1)
def integer_pow(x: Any, y: int) -> Array:
    """`x` to a power that is a Python integer."""
    return elementwise("power", x, integer(y, "y"))


def lgamma(x: Any) -> Array:
    """The logarithm of the absolute value of the gamma function.

    >>> lgamma(np.array([1.0, 3.0])).todense().round(6)
    array([0.      , 0.693147])
    """
    return special("gammaln", x)


def digamma(x: Any) -> Array:
    """The derivative of `lgamma`."""
    return special("psi", x)


def erfc(x: Any) -> Array:
    """1 - erf(x), without cancellation."""
    return special("erfc", x)


def erf_inv(x: Any) -> Array:
    """The inverse of erf."""
    return special("erfinv", x)


def igamma(a: Any, x: Any) -> Array:
    """The regularised lower incomplete gamma function; differentiable by `x`."""
    return special("gammainc", a, x)


def igammac(a: Any, x: Any) -> Array:
    """The regularised upper incomplete gamma function; differentiable by `x`."""
    return special("gammaincc", a, x)


def clamp(min: Any, x: Any, max: Any) -> Array:
    """`x` limited to [min, max].

    >>> clamp(0, np.array([-1, 5]), 3)
    Array([0, 3], dtype=int64)
    """
    return _limited(x, min, max)


@again(1)
def _limited(x: Any, least: Any, most: Any) -> Array:
    return elementwise("minimum", elementwise("maximum", x, least), most)


def select(pred: Any, on_true: Any, on_false: Any) -> Array:
    """`on_true` where `pred` holds, else `on_false`: arrays of one shape, or a `pred` of no dimensions.

    >>> select(np.array([True, False]), np.array([1, 2]), np.array([3, 4]))
    Array([1, 4], dtype=int64)
    """
    return where(pred, on_true, on_false)


def select_n(which: Any, *cases: Any) -> Array:
    """Of every place the case whose number `which` is there (False is 0, True is 1)."""
    made = cases[-1]
    for k in builtins.range(len(cases) - 2, -1, -1):
        made = where(elementwise("equal", convert_element_type(which, np.int64), k), cases[k], made)
    return made


# ------------------------------------------------------------------------------------------------- creation and shapes


def iota(dtype: Any, size: int) -> Array:
    """0, 1, … `size` - 1 as `dtype`."""
    return asarray(coordinates(span(0, extent(size, "size")), dtype))


def broadcasted_iota(dtype: Any, shape: Sequence[int], dimension: int) -> Array:
    """An array whose entries are their coordinate along `dimension`."""
    new = extents(shape)
    place = normal_axis(dimension, len(new))
    return broadcast_to(
        reshape(iota(dtype, new[place]), [-1 if d == place else 1 for d in builtins.range(len(new))]), new
    )


def full(shape: Sequence[int], fill_value: Any, dtype: Any = None) -> Array:
    """A dense array of one value."""
    value = asarray(fill_value)
    return broadcast_to(value if dtype is None else convert_element_type(value, dtype), extents(shape))


def concatenate(operands: Sequence[Any], dimension: int) -> Array:
    """Arrays one behind the other along `dimension`."""
    return _concatenate(operands, dimension)


def rev(operand: Any, dimensions: Sequence[int]) -> Array:
    """The order along some dimensions reversed."""
    x = asarray(operand)
    turned = {normal_axis(d, x.ndim) for d in dimensions}
    return window(x, [sliced(builtins.slice(None, None, -1 if d in turned else 1), n) for d, n in enumerate(x.shape)])


def slice(
    operand: Any, start_indices: Sequence[int], limit_indices: Sequence[int], strides: Sequence[int] | None = None
) -> Array:
    """A window: from, to and steps per dimension, all inside of the array. O(what it holds).

    >>> slice(np.arange(6), (1,), (5,), (2,))
    Array([1, 3], dtype=int64)

    Raises ValueError, naming the dimension, for windows that reach out of the array, and for steps that are not positive.
    """
    x = asarray(operand)
    starts, limits = signed_integers(start_indices, "start_indices"), signed_integers(limit_indices, "limit_indices")
    steps = (1,) * x.ndim if strides is None else signed_integers(strides, "strides")
    if not len(starts) == len(limits) == len(steps) == x.ndim:
        raise ValueError(
            f"start_indices, limit_indices and strides must have {x.ndim} numbers each, one per dimension of operand, not {len(starts)}, "
            f"{len(limits)} and {len(steps)}"
        )
    for d, (a, b, s, n) in enumerate(zip(starts, limits, steps, x.shape, strict=True)):
        if a < 0 or b < a or b > n or s < 1:
            raise ValueError(
                f"the window from {a} to {b} in steps of {s} does not lie in dimension {d} of operand, of extent {n}: "
                f"0 <= start <= limit <= {n} and a stride of at least 1 are asked"
            )
    return window(x, [builtins.range(a, b, s) for a, b, s in zip(starts, limits, steps, strict=True)])


def slice_in_dim(
    operand: Any, start_index: int | None, limit_index: int | None, stride: int = 1, axis: int = 0
) -> Array:
    """A window along one axis."""
    x = asarray(operand)
    place = normal_axis(axis, x.ndim)
    chosen = sliced(builtins.slice(start_index, limit_index, stride), x.shape[place])
    return window(x, [chosen if d == place else span(0, n) for d, n in enumerate(x.shape)])


def _listed(x: Any, start_indices: Any, sizes: Sequence[int]) -> list[Any]:
    """Where a window of these extents is asked to begin, per dimension; ValueError where it does not fit."""
    listed = (
        list(start_indices)
        if isinstance(start_indices, tuple | list)
        else [start_indices[d] for d in builtins.range(x.ndim)]
    )
    if len(listed) != x.ndim or len(sizes) != x.ndim:
        raise ValueError(f"start_indices and sizes must have {x.ndim} numbers each, not {len(listed)} and {len(sizes)}")
    for n, whole in zip(sizes, x.shape, strict=True):
        if not 0 <= n <= whole:
            raise ValueError(f"a window of extent {n} does not fit into one of {whole}")
    return listed


def _window(x: Any, listed: Sequence[Any], sizes: Sequence[int]) -> tuple[Any, ...] | None:
    """The window of an array that is there, moved so that it lies inside, as slices; None of what is traced."""
    if current() is not None or type(x) is not Array:
        return None
    ends = []
    for s, n, whole in zip(listed, sizes, x.shape, strict=True):
        first = operator.index(s.item() if isinstance(s, Array) else s)
        ends.append(builtins.max(0, builtins.min(first + whole if first < 0 else first, whole - n)) + n)
    return tuple([builtins.slice(end - n, end) for n, end in zip(sizes, ends, strict=True)])


def _starts(x: Any, listed: Sequence[Any], sizes: Sequence[int]) -> list[Any]:
    """Where a window begins, per dimension, moved so that it lies inside."""
    made = []
    for s, n, whole in zip(listed, sizes, x.shape, strict=True):
        number = convert_element_type(asarray(s), np.int64)
        number = where(elementwise("less", number, 0), elementwise("add", number, whole), number)
        made.append(clamp(0, number, whole - n))
    return made


def dynamic_slice(operand: Any, start_indices: Any, slice_sizes: Sequence[int]) -> Array:
    """A window of known extents from a place that may be traced, which is moved so that it lies inside, as in JAX. A sparse array
    gives a sparse one: a contraction with a selection per dimension.

    >>> dynamic_slice(np.arange(5), (3,), (3,))
    Array([2, 3, 4], dtype=int64)
    """
    x, sizes = asarray(operand), extents(slice_sizes, "slice_sizes")
    listed = _listed(x, start_indices, sizes)
    window = _window(x, listed, sizes)
    if window is not None:
        return x[window]
    for d, (start, n) in enumerate(zip(_starts(x, listed, sizes), sizes, strict=True)):
        if n != x.shape[d]:
            x = gather(x, {d: elementwise("add", start, coordinates(span(0, n)))})
    return x


def dynamic_update_slice(operand: Any, update: Any, start_indices: Any) -> Array:
    """`operand` with `update` in the place of a window, moved so that it lies inside. Of the format of `operand`, if that lists coordinates or is dense.

    >>> dynamic_update_slice(np.zeros(4), np.ones(2), (1,))
    Array([0., 1., 1., 0.], dtype=float64)
    """
    x, new = asarray(operand), asarray(update)
    listed, keeps = _listed(x, start_indices, new.shape), located.searched(x.format)
    window = _window(x, listed, new.shape) if keeps else None
    if window is not None:
        return x.at[window].set(new)
    starts = _starts(x, listed, new.shape)
    made, mask = convert_element_type(new, x.dtype), asarray(filled(new.shape, True, bool))
    form = None if x.format.is_dense else "coo"
    for d, (start, n) in enumerate(zip(starts, new.shape, strict=True)):
        chosen = _selection(elementwise("add", start, coordinates(span(0, n))), x.shape[d], x.dtype)
        inside = convert_element_type(chosen, bool)
        labels = list(builtins.range(x.ndim))
        source = [x.ndim if k == d else k for k in labels]
        made = contract([chosen, made], [(x.ndim, d), source], labels, None, x.dtype)
        mask = contract([inside, mask], [(x.ndim, d), source], labels, None, np.dtype(bool))
    if form is None:
        return where(convert_format(mask, "dense"), convert_format(made, "dense"), x)
    made = where(convert_format(mask, form), convert_format(made, form), x)
    return convert_format(made, x.format) if keeps else made


def dynamic_slice_in_dim(operand: Any, start_index: Any, slice_size: int, axis: int = 0) -> Array:
    """`dynamic_slice` along one axis."""
    x = asarray(operand)
    place = normal_axis(axis, x.ndim)
    starts = [start_index if d == place else 0 for d in builtins.range(x.ndim)]
    return dynamic_slice(x, starts, [slice_size if d == place else n for d, n in enumerate(x.shape)])


def dynamic_index_in_dim(operand: Any, index: Any, axis: int = 0, keepdims: bool = True) -> Array:
    """One slice along an axis, at a place that may be traced."""
    made = dynamic_slice_in_dim(operand, index, 1, axis)
    place = normal_axis(axis, made.ndim)
    return made if keepdims else reshape(made, [n for d, n in enumerate(made.shape) if d != place])


def dynamic_update_slice_in_dim(operand: Any, update: Any, start_index: Any, axis: int) -> Array:
    """`dynamic_update_slice` along one axis."""
    x = asarray(operand)
    place = normal_axis(axis, x.ndim)
    return dynamic_update_slice(x, update, [start_index if d == place else 0 for d in builtins.range(x.ndim)])


def dynamic_update_index_in_dim(operand: Any, update: Any, index: Any, axis: int) -> Array:
    """One slice along an axis replaced."""
    x, new = asarray(operand), asarray(update)
    place = normal_axis(axis, x.ndim)
    if new.ndim < x.ndim:
        new = reshape(new, [1 if d == place else n for d, n in enumerate(x.shape)])
    return dynamic_update_slice_in_dim(x, new, index, axis)


# ------------------------------------------------------------------------------------------- products, sums and order


def dot(lhs: Any, rhs: Any) -> Array:
    """The product of vectors and matrices."""
    return matmul(lhs, rhs)


def batch_matmul(lhs: Any, rhs: Any) -> Array:
    """The products of stacks of matrices."""
    return matmul(lhs, rhs)


def _reduction(kind: str) -> Any:
    @again(1)
    def over(operand: Any, *axes: int) -> Any:
        return reduce(kind, operand, axes)

    def function(operand: Any, axes: Sequence[int]) -> Any:
        return over(operand, *axes)

    function.__name__ = function.__qualname__ = f"reduce_{kind}"
    function.__doc__ = f"`reduce` by {kind} over some axes."
    return function


reduce_sum, reduce_prod, reduce_max, reduce_min = (_reduction(kind) for kind in ("sum", "prod", "max", "min"))
reduce_and, reduce_or = _reduction("all"), _reduction("any")


def cumsum(operand: Any, axis: int = 0, reverse: bool = False) -> Array:
    """Running sums along an axis; dense, of the dtype of the operand."""
    return sorting.cumsum(operand, axis, reverse)


def cumprod(operand: Any, axis: int = 0, reverse: bool = False) -> Array:
    """Running products along an axis; dense."""
    return cumulative("prod", operand, axis, reverse)


def cummax(operand: Any, axis: int = 0, reverse: bool = False) -> Array:
    """Running maxima along an axis; dense.

    >>> cummax(np.array([1, 3, 2]))
    Array([1, 3, 3], dtype=int64)
    """
    return cumulative("max", operand, axis, reverse)


def cummin(operand: Any, axis: int = 0, reverse: bool = False) -> Array:
    """Running minima along an axis; dense."""
    return cumulative("min", operand, axis, reverse)


def cumlogsumexp(operand: Any, axis: int = 0, reverse: bool = False) -> Array:
    """Running logarithms of sums of exponentials along an axis, relative to the maximum; dense."""
    x = convert_format(asarray(operand), "dense")
    place = normal_axis(axis, x.ndim)
    most = reduce("max", x, place, keepdims=True)
    most = where(elementwise("isfinite", most), most, 0.0)
    total = sorting.cumsum(elementwise("exp", elementwise("subtract", x, most)), place, reverse)
    return elementwise("add", elementwise("log", total), most)


def sort(operand: Any, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> Any:
    """Lines along `dimension` in increasing order; of several arrays, a tuple, all in the order of the first `num_keys`.

    >>> sort((np.array([2, 1]), np.array([5, 6])))
    (Array([1, 2], dtype=int64), Array([6, 5], dtype=int64))
    """
    if not isinstance(operand, tuple | list):
        return sorting.sort(operand, dimension)
    arrays = [convert_format(asarray(x), "dense") for x in operand]
    if not 1 <= num_keys <= len(arrays):
        raise ValueError(f"num_keys={num_keys} must be at least 1 and at most {len(arrays)}")
    place = normal_axis(dimension, arrays[0].ndim)
    for key in reversed(builtins.range(num_keys)):  # the last key first: stable
        order = sorting.argsort(arrays[key], place)
        index = tuple([order if d == place else along(n, d, order.ndim) for d, n in enumerate(order.shape)])
        arrays = [x[index] for x in arrays]
    return tuple(arrays)


def argmax(operand: Any, axis: int, index_dtype: Any = np.int64) -> Array:
    """Where the maximum of a line is first."""
    return convert_element_type(_first(operand, axis, "max"), index_dtype)


def argmin(operand: Any, axis: int, index_dtype: Any = np.int64) -> Array:
    """Where the minimum of a line is first."""
    return convert_element_type(_first(operand, axis, "min"), index_dtype)


def _first(operand: Any, axis: int, kind: str) -> Any:
    x = convert_format(asarray(operand), "dense")
    place = normal_axis(axis, x.ndim)
    holds = elementwise("equal", x, reduce(kind, x, place, keepdims=True))
    numbers = reshape(iota(np.int64, x.shape[place]), [-1 if d == place else 1 for d in builtins.range(x.ndim)])
    return reduce("min", where(holds, numbers, x.shape[place]), place)
