"""Changes of shape, order, format and fill: no arithmetic."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from sparsejax import config
from sparsejax.core.array import Array, made
from sparsejax.core.avals import Aval
from sparsejax.core.primitive import Primitive, asarray, note
from sparsejax.core.symbolic import SymbolicDim
from sparsejax.core.trace import current
from sparsejax.errors import FormatError, TracerIntegerConversionError
from sparsejax.formats import Format, convert, grouping, selection, structural
from sparsejax.formats.parts import constant, diagonals
from sparsejax.formats.storage import Storage, dense_template
from sparsejax.formats.validate import check_extents, is_shape
from sparsejax.jit.ir import cin
from sparsejax.lax import typing_rules as rules

# ------------------------------------------------------------------------------------------------------- transpose


def _transpose_typing(x: Aval, axes: tuple[int, ...]) -> Aval:
    return Aval(tuple(x.shape[a] for a in axes), x.dtype, x.format.transposed(axes), x.fill_value)


transpose_p = Primitive(
    "transpose",
    typing=_transpose_typing,
    reference=lambda x, axes: np.transpose(x, axes),
    call=lambda x, out_aval, axes: structural.transpose(x, axes),
)


def transpose(x: Any, axes: Sequence[int] | None = None) -> Array:
    """`x` with its dimensions permuted, over the same buffers (csr becomes csc). O(1).

    >>> import sparsejax as sj, numpy as np
    >>> transpose(sj.array(np.eye(2, 3), format="csr")).format
    Format('csc')
    """
    x = asarray(x)
    if axes is None:
        order = _reversed(x.ndim)
    else:
        if not np.iterable(axes):
            axes = (axes,)
        order = tuple([normal_axis(a, x.ndim, "axes") for a in axes])
        if sorted(order) != list(range(x.ndim)):
            raise ValueError(f"axes={tuple(axes)} is not a permutation of the {x.ndim} dimensions of the array")
    if order == _reversed(x.ndim)[::-1]:
        return x
    if type(x) is Array and current() is None and "transient" not in x._storage.cache:
        aval = _transposed_aval(x._aval, order)
        known = aval.format if x._storage.format is x._aval.format else None
        result = made(structural.transpose(x._storage, order, known), aval)
        note(transpose_p, x, result)
        return result
    return transpose_p.bind(x, axes=order)


@functools.lru_cache(maxsize=64)
def _reversed(ndim: int) -> tuple[int, ...]:
    return tuple(range(ndim))[::-1]


_transposed: dict[tuple[int, tuple[int, ...]], Aval] = {}
"""A type of transposed arrays, by the number of the structure of those that they are made of, and axes."""


def _transposed_aval(x: Aval, axes: tuple[int, ...]) -> Aval:
    """The type of a transposed array: looked up by structure, as arrays of new shapes are transposed again and again."""
    key = x._kind if x._kind >= 0 else x.kind, axes
    found = _transposed.get(key)
    if found is None:
        if len(_transposed) > 1024:
            _transposed.clear()
        found = _transpose_typing(x, axes).strong()
        if found.kind >= 0:  # found once for all shapes
            _transposed[key] = found
    shape = x.shape
    return found.at(shape[::-1] if len(shape) == 2 else tuple([shape[a] for a in axes]))


def integer(value: Any, what: str) -> int:
    """`value` as a Python integer; TypeError, naming the argument, for anything else."""
    try:
        return operator.index(value)
    except TracerIntegerConversionError as error:
        raise TracerIntegerConversionError(f"{what} must be known while a function is traced. {error}") from None
    except TypeError:
        raise TypeError(f"{what}={value!r} must be an integer") from None


def signed_integers(values: Any, what: str) -> tuple[int, ...]:
    """One integer or a sequence of them (or of extents that are not known), which may be negative; TypeError, naming the argument, for anything else."""
    if not np.iterable(values) or isinstance(values, str):
        values = (values,)
    return tuple([cast(int, n) if isinstance(n, SymbolicDim) else integer(n, what) for n in values])


def extents(shape: Any, what: str = "shape") -> tuple[int, ...]:
    """A shape given as one integer or a sequence of them (or of extents that are not known), none of which is negative.

    TypeError, naming the argument, for anything else; FormatError for a negative extent, or one beyond 64 bits.
    """
    if is_shape(shape):
        return cast(tuple[int, ...], shape)
    made = signed_integers(shape, what)
    check_extents(made, what)
    return made


def extent(value: Any, what: str) -> Any:
    """One extent: see `extents`."""
    n = value if isinstance(value, SymbolicDim) else integer(value, what)
    check_extents((n,), what, alone=True)
    return n


def normal_axis(axis: Any, ndim: int, what: str = "axis") -> int:
    """`axis` counted from the front; NumPy's AxisError when out of range, TypeError when it is no integer: a truth value is none, as what is meant
    by it is another argument (`sum(x, True)`).

    >>> normal_axis(-1, 2)
    1
    """
    if axis is True or axis is False:
        raise TypeError(f"{what}={axis} must be an integer")
    k = integer(axis, what)
    if not -ndim <= k < ndim:
        raise np.exceptions.AxisError(k, ndim)
    return k % ndim


def normal_axes(axis: Any, ndim: int, what: str = "axis") -> tuple[int, ...]:
    """One axis or several, counted from the front; ValueError where one is named twice."""
    listed = axis if isinstance(axis, tuple | list) else (axis,)
    made = tuple(normal_axis(a, ndim, what) for a in listed)
    if len(set(made)) < len(made):
        raise ValueError(f"duplicate value in {what!r}: {tuple(listed)}")
    return made


# ------------------------------------------------------------------------------------------------ axes of extent one


def _expand_typing(x: Aval, axis: int) -> Aval:
    shape = (*x.shape[:axis], 1, *x.shape[axis:])
    return Aval(shape, x.dtype, structural.expanded(x.format, axis), x.fill_value)


def _squeeze_typing(x: Aval, axis: int) -> Aval:
    form = selection.without(x.format, (axis,))
    return Aval((*x.shape[:axis], *x.shape[axis + 1 :]), x.dtype, form, 0 if form.is_dense else x.fill_value)


def _squeeze_call(x: Storage, out_aval: Aval, axis: int) -> Storage:
    made = selection.squeeze(x, axis, out_aval.format)
    return structural.refill(made, 0) if out_aval.format.is_dense else made


expand_p = Primitive(
    "expand_dims",
    typing=_expand_typing,
    reference=lambda x, axis: np.expand_dims(x, axis),
    call=lambda x, out_aval, axis: structural.expand_dims(x, axis),
)
squeeze_p = Primitive(
    "squeeze", typing=_squeeze_typing, reference=lambda x, axis: np.squeeze(x, axis), call=_squeeze_call
)


def expand_dims(x: Any, axis: int | Sequence[int]) -> Array:
    """`x` with a new axis of extent one, or several, at these places of the result, over the same buffers: one more dense level, the outermost where
    `x` is sparse. O(1).

    >>> import sparsejax as sj, numpy as np
    >>> expand_dims(sj.array(np.eye(2, 3), format="csr"), 1).format
    Format('(d,d,c)@(1,0,2)')
    """
    x = asarray(x)
    if isinstance(axis, tuple | list):
        return functools.reduce(expand_dims, sorted(normal_axes(axis, x.ndim + len(axis))), x)
    place = normal_axis(axis, x.ndim + 1)
    if _dense_at_once(x):
        return _viewed(expand_p, x, structural.expand_dims(x._storage, place), _expanded_aval(x._aval, place))
    return expand_p.bind(x, axis=place)


_expanded_aval = functools.lru_cache(maxsize=1024)(_expand_typing)


def _dense_at_once(x: Any) -> bool:
    """Whether `x` is dense and there at once: another shape of it is a view, and no program is to be made for every shape."""
    return type(x) is Array and x._aval.format.is_dense and current() is None


def _viewed(primitive: Primitive, x: Array, storage: Storage, aval: Aval) -> Array:
    """The result of an operation that ran without a program, noted as others are."""
    result = made(storage, aval)
    note(primitive, x, result)
    return result


def squeeze(x: Any, axis: int | Sequence[int]) -> Array:
    """`x` without an axis of extent one, or several, in the format that its other levels make (else coo). O(1) where the axis is a dense level.
    ValueError where an extent is not one.

    >>> import sparsejax as sj, numpy as np
    >>> squeeze(expand_dims(sj.array(np.eye(2, 3), format="csr"), 1), 1).format
    Format('csr')
    """
    x = asarray(x)
    if isinstance(axis, tuple | list):
        return functools.reduce(squeeze, sorted(normal_axes(axis, x.ndim), reverse=True), x)
    place = normal_axis(axis, x.ndim)
    if x.shape[place] != 1:
        raise ValueError(
            f"cannot select an axis to squeeze out which has size not equal to one: axis {place} has {x.shape[place]}"
        )
    if _dense_at_once(x):
        aval = _squeezed_aval(x._aval, place)
        return _viewed(squeeze_p, x, _squeeze_call(x._storage, aval, place), aval)
    return squeeze_p.bind(x, axis=place)


_squeezed_aval = functools.lru_cache(maxsize=1024)(_squeeze_typing)


# --------------------------------------------------------------------------------------------------------- reshape


def _reshape_typing(x: Aval, shape: tuple[int, ...], format: Format) -> Aval:
    return Aval(shape, x.dtype, format, x.fill_value)


reshape_p = Primitive(
    "reshape",
    typing=_reshape_typing,
    reference=lambda x, shape, format: np.reshape(x, shape),
    call=lambda x, out_aval, shape, format: structural.reshape(x, shape, format),
    extents=rules.of_shape,
)


def reshape(x: Any, shape: Any, format: str | Format | None = None) -> Array:
    """`x` under another shape, entries in row-major order; one extent may be -1.

    A dense array stays dense; a sparse one comes out as coo unless `format` says otherwise. O(stored entries).
    """
    x = asarray(x)
    wanted = signed_integers(shape, "shape")
    new = list(wanted)
    if new.count(-1) > 1:
        raise ValueError("can only specify one unknown dimension")
    known = math.prod(n for n in new if n != -1)
    if -1 in new and known and x.size % known == 0:
        new[new.index(-1)] = x.size // known
    if math.prod(new) != x.size or any(n < 0 for n in new):
        raise ValueError(f"cannot reshape array of size {x.size} into shape {wanted}")
    if tuple(new) == x.shape and format is None:
        return x
    form = Format.parse(("dense" if x.format.is_dense else "coo") if format is None else format, len(new))
    if not new and not form.is_dense:
        form = Format(())
    if type(x) is Array and form.is_dense == x.format.is_dense and current() is None:
        aval = _reshaped_aval(x._aval, tuple(new), form)
        return _viewed(reshape_p, x, structural.reshape(x._storage, aval.shape, form), aval)
    if x.format.is_dense and form == Format.parse("dense", len(new)) and _squeezed(x.shape) == _squeezed(new):
        return unit_axes_p.bind(x, shape=tuple(new))
    return reshape_p.bind(x, shape=tuple(new), format=form)


_reshaped_aval = functools.lru_cache(maxsize=1024)(_reshape_typing)


def _unit_axes_notation(x: rules.Operand, shape: tuple[int, ...]) -> cin.Definition:
    """out[i,z] = x[i]"""
    indices = rules.index_vars(len(shape))
    kept = iter(v for v, n in zip(indices, shape, strict=True) if n != 1)
    return cin.Definition(indices, None, rules.access(x, [next(kept) if n != 1 else 0 for n in rules.shape_of(x)]))


def _unit_axes_call(x: Storage, out_aval: Aval, shape: tuple[int, ...]) -> Storage:
    if convert.in_order(x.format) and convert.in_order(out_aval.format):
        known = x.cache.get("extremes")
        template = dense_template(out_aval.format, shape, x.fill_value)
        return Storage.dense(template, x.vals, {} if known is None else {"extremes": known})
    return structural.reshape(x, shape, out_aval.format)


unit_axes_p = Primitive(
    "unit_axes",
    typing=lambda x, shape: rules.dense(shape, x.dtype),
    reference=lambda x, shape: np.reshape(x, shape),
    notation=_unit_axes_notation,
    call=_unit_axes_call,
    extents=rules.of_shape,
)
"""A dense array with axes of extent one put in or left out: a view, or no more than another way to index where it is read."""


def _squeezed(shape: Sequence[int]) -> list[int]:
    return [n for n in shape if n != 1]


# -------------------------------------------------------------------------------------------------------- diagonal


def _diagonal_typing(x: Aval, offset: int, axis1: int, axis2: int) -> Aval:
    rest = [n for a, n in enumerate(x.shape) if a not in (axis1, axis2)]
    count = max(0, min(x.shape[axis1] - max(0, -offset), x.shape[axis2] - max(0, offset)))
    form = Format.parse("dense" if x.format.is_dense else "coo", len(rest) + 1)
    return Aval((*rest, count), x.dtype, form, x.fill_value)


diagonal_p = Primitive(
    "diagonal",
    typing=_diagonal_typing,
    reference=lambda x, offset, axis1, axis2: np.diagonal(x, offset, axis1, axis2),
    call=lambda x, out_aval, offset, axis1, axis2: structural.diagonal(x, offset, axis1, axis2, out_aval.format),
)


def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """The entries of `x` where the index of `axis2` is that of `axis1` plus `offset`, as the last axis; any extents.

    A dense array gives a dense one, a sparse array coo. O(stored entries).

    >>> import sparsejax as sj, numpy as np
    >>> diagonal(sj.array(np.arange(6.0).reshape(2, 3)), 1)
    Array([1., 5.], dtype=float64)
    """
    if type(x) is Array and type(offset) is int and not axis1 and axis2 == 1 and current() is None:
        form = x._aval.format
        if form.ndim == 2 and not form.is_dense:
            return _diagonal_at_once(x, offset, 0, 1)
    x = asarray(x)
    if x.ndim < 2:
        raise ValueError("diagonal requires an array of at least two dimensions")
    first, second = normal_axis(axis1, x.ndim, "axis1"), normal_axis(axis2, x.ndim, "axis2")
    if first == second:
        raise ValueError("axis1 and axis2 cannot be the same")
    place = integer(offset, "offset")
    if type(x) is Array and not x.format.is_dense and current() is None:
        return _diagonal_at_once(x, place, first, second)
    return diagonal_p.bind(x, offset=place, axis1=first, axis2=second)


def _diagonal_at_once(x: Array, offset: int, first: int, second: int) -> Array:
    aval, storage = _diagonal_aval(x._aval, offset, first, second), x._storage
    lines = storage.cache.get("lines")
    if lines is not None and (line := lines.get((offset, first, second))):
        return made(line.of(storage), aval)
    return made(structural.diagonal(storage, offset, first, second, aval.format), aval)


_diagonal_aval = functools.lru_cache(maxsize=1024)(_diagonal_typing)


# ------------------------------------------------------------------------------------------------------- broadcast


def _broadcast_notation(x: rules.Operand, shape: tuple[int, ...]) -> cin.Definition:
    indices = rules.index_vars(len(shape))
    return cin.Definition(indices, None, rules.aligned(x, indices, shape))


broadcast_p = Primitive(
    "broadcast_to",
    typing=lambda x, shape: rules.infer(_broadcast_notation, (x,), {"shape": shape}, shape, x.dtype).strong(),
    reference=lambda x, shape: np.broadcast_to(x, shape),
    notation=_broadcast_notation,
    extents=rules.of_shape,
)


def broadcast_to(x: Any, shape: Sequence[int]) -> Array:
    """`x` repeated to `shape` by NumPy's broadcasting rules."""
    x = asarray(x)
    new = extents(shape)
    try:
        fits = rules.broadcast_shapes(x.shape, new) == new
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"cannot broadcast an array of shape {x.shape} to shape {new}")
    if x.shape == new:
        return x
    if _dense_at_once(x) and x._aval.format.order == tuple(range(x._aval.ndim)):
        aval = _repeated_aval(x._aval, new)
        values = np.broadcast_to(convert.to_dense(x._storage), new)
        return _viewed(broadcast_p, x, convert.from_dense(values, aval.format, 0), aval)
    return broadcast_p.bind(x, shape=new)


@functools.lru_cache(maxsize=1024)
def _repeated_aval(x: Aval, shape: tuple[int, ...]) -> Aval:
    return rules.dense(shape, x.dtype)


# ------------------------------------------------------------------------------------------------ formats and fills


def _convert_typing(x: Aval, format: Format) -> Aval:
    return Aval(x.shape, x.dtype, format, 0 if format.is_dense else x.fill_value)


def _convert_call(x: Storage, out_aval: Aval, format: Format) -> Storage:
    made = convert.convert(x, format)
    return structural.refill(made, 0) if format.is_dense and any(made.fill_value.tobytes()) else made


convert_p = Primitive(
    "convert_format", typing=_convert_typing, reference=lambda x, format: np.asarray(x), call=_convert_call
)


def convert_format(x: Any, format: str | Format) -> Array:
    """`x` stored as `format`, by counting. O(stored entries), or O(size) to or from dense.

    "groupcoo" and "blockgroupcoo:32x32" without a size of groups take that of `sparsejax.formats.group_size`, outside of `jit` and other
    transformations: elsewhere they are a FormatError, as types do not depend on data.
    """
    x = asarray(x)
    if type(x) is Array and current() is None and x.ndim == 2 and grouping.names_groups(format):
        format = grouping.sized(x._storage, str(format))
    wanted = Format.parse(format, x.ndim)
    if wanted == x.format:
        return x
    if type(x) is Array and constant.is_zeros(x._storage) and not wanted.is_dense:  # while functions are traced, too
        aval = _converted_aval(x.aval, wanted)
        return made(diagonals.without_entries(aval.shape, aval.dtype, wanted, aval.fill_value), aval)
    if (
        type(x) is Array and current() is None
    ):  # what the compiler would do; a small conversion takes less than its detours
        aval = _converted_aval(x.aval, wanted)
        return made(_convert_call(x._storage, aval, wanted), aval)
    return convert_p.bind(x, format=wanted)


def dense_in_any_order(x: Any) -> Array:
    """`x` as a dense array, its dimensions stored in whatever order: for libraries, which read and copy them as they need."""
    return x if x.format.is_dense else convert_format(x, "dense")


def densely(x: Any, function: str) -> Array:
    """`x` as a dense array, for a function whose result is dense; FormatError as of `check_dense`."""
    check_dense(x := asarray(x), function)
    return convert_format(x, "dense")


def check_dense(x: Array, function: str) -> None:
    """FormatError where a dense result of the shape of a sparse `x` is out of proportion, as `dense_limit` has it."""
    if type(x) is Array and not x.format.is_dense:
        limit, needed = config.dense_limit(), 8 * x.size
        if limit and needed > max(limit * x.nbytes, config.GIBIBYTE):
            raise FormatError(
                f"the result of {function} is dense: of an array of shape {x.shape} in {x.format} it would take {needed} bytes, more than "
                f"{limit} times its operand. Apply {function} to what is stored (`x.data`) or to a part of the array, or raise the limit "
                'with sparsejax.config.update("dense_limit", ...)'
            )


@functools.lru_cache(maxsize=1024)
def _converted_aval(x: Aval, format: Format) -> Aval:
    return _convert_typing(x, format).strong()


refill_p = Primitive(
    "refill",
    typing=lambda x, fill: Aval(x.shape, x.dtype, x.format, fill),
    reference=lambda x, fill: x,
    call=lambda x, out_aval, fill: structural.refill(x, fill),
)


def refill(x: Any, fill: Any) -> Array:
    """The stored entries of `x` over another fill, a number (so entries that are not stored change their value). O(1)."""
    if np.ndim(fill):
        raise ValueError(f"fill must be a number, not an array of shape {np.shape(fill)}")
    return refill_p.bind(asarray(x), fill=fill)


pattern_p = Primitive(
    "pattern",
    typing=lambda x, dtype: Aval(x.shape, dtype, x.format, 0),
    reference=lambda x, dtype: np.ones(np.shape(x), dtype),
    call=lambda x, out_aval, dtype: structural.pattern(x, dtype),
)


def distinct(x: Any) -> Array:
    """`x` with each coordinate once at most, for functions that are not sums of what they make of entries: those that repeat are summed."""
    form = x.format.distinct
    return x if form is x.format else convert_format(x, form)


def pattern(x: Any, dtype: Any = np.float64) -> Array:
    """One wherever an entry of `x` is stored, over fill 0. O(stored entries)."""
    return pattern_p.bind(distinct(asarray(x)), dtype=np.dtype(dtype))


def _entries_call(x: Storage, out_aval: Aval) -> Storage:
    known: Storage | None = x.cache.get("entries")
    if known is None:
        known = Storage(out_aval.format, (), out_aval.fill_value, (), np.array([x.nnz], np.int64))
        x.cache["entries"] = known
    return known


entries_p = Primitive(
    "entries",
    typing=lambda x: Aval((), np.int64, Format(()), 0),
    reference=lambda x: np.asarray(np.size(x), np.int64),
    call=_entries_call,
)


def entries(x: Any) -> Any:
    """The number of stored entries of `x`, of those that repeat each, as an array of no dimensions. O(1), but for runs, bands and bitmaps: O(positions)."""
    return entries_p.bind(asarray(x))
