"""NumPy's and the standard's functions that arrange arrays beside each other and under other shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsejax.core.array import Array
from sparsejax.core.avals import Aval
from sparsejax.core.primitive import asarray
from sparsejax.core.symbolic import span
from sparsejax.core.trace import current
from sparsejax.formats import Format, grouping, structural
from sparsejax.formats.ownership import refuse_copy
from sparsejax.formats.parts import joined
from sparsejax.formats.parts.by_rows import padded
from sparsejax.lax import extents as sizes
from sparsejax.lax import structural as shapes
from sparsejax.lax import typing_rules as rules
from sparsejax.lax.elementwise import check_fits, elementwise
from sparsejax.lax.indexing import concatenate
from sparsejax.lax.indexing import pad as in_zeros
from sparsejax.lax.linear import empty
from sparsejax.lax.structural import broadcast_to, convert_format, integer, normal_axis, transpose
from sparsejax.numpy.indexing import getitem, take


def reshape(x: Any, /, shape: Any, format: Any = None, *, order: str = "C", copy: bool | None = None) -> Array:
    """`x` under another shape, entries in row-major order (column-major with `order="F"`); one extent may be -1.

    A dense array stays dense; a sparse one comes out as coo unless `format` says otherwise. O(stored entries). With `copy=False`
    ValueError where entries would be copied, as those of sparse arrays are.

    >>> import sparsejax as sj
    >>> reshape(sj.array(np.arange(4.0)), (2, 2), order="F")
    Array([[0., 2.],
           [1., 3.]], dtype=float64)
    """
    if order not in ("C", "F", "A"):
        raise ValueError(f"order={order!r} must be 'C', 'F' or 'A'")
    x = asarray(x)
    if order == "F":
        turned = shapes.reshape(transpose(x), tuple(reversed(shapes.signed_integers(shape, "shape"))), format)
        return transpose(turned)
    made = shapes.reshape(x, shape, format)
    if copy is False and made is not x and not (x.format.is_dense and x.format.order == tuple(range(x.ndim))):
        refuse_copy(copy, f"an array in format {x.format} is reshaped from {x.shape} to {made.shape}")
    return elementwise("positive", made) if copy and made is x and x.dtype != bool else made


def concat(arrays: Sequence[Any], /, *, axis: int | None = 0) -> Array:
    """The standard's name of `concatenate`; `axis=None` joins the arrays flattened."""
    return concatenate_all(arrays, axis)


def concatenate_all(arrays: Sequence[Any], axis: int | None = 0, *, dtype: Any = None) -> Any:
    """Arrays one behind the other along `axis`, or flattened with `axis=None`; see `sparsejax.lax.indexing.concatenate`.

    >>> concatenate_all([np.ones((2, 2)), np.zeros(2)], axis=None).shape
    (6,)
    """
    parts = [asarray(x) for x in arrays]
    if axis is None:
        parts, axis = [shapes.reshape(x, (x.size,)) for x in parts], 0
    made = concatenate(parts, axis)
    return made if dtype is None else made.astype(dtype)


concatenate_all.__name__ = concatenate_all.__qualname__ = "concatenate"


def permute_dims(x: Any, /, axes: Sequence[int]) -> Array:
    """The standard's name of `transpose`: the dimensions in another order, over the same buffers."""
    return transpose(x, axes)


def matrix_transpose(x: Any, /) -> Array:
    """The last two dimensions exchanged, over the same buffers.

    >>> matrix_transpose(np.ones((5, 2, 3))).shape
    (5, 3, 2)
    """
    x = asarray(x)
    if x.ndim < 2:
        raise ValueError(f"matrix_transpose takes an array of two dimensions or more, not one of shape {x.shape}")
    return transpose(x, [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2])


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
    """The parts of `x` along an axis, which they lack.

    >>> [part.todense().tolist() for part in unstack(np.array([[1, 2], [3, 4]]), axis=1)]
    [[1, 3], [2, 4]]
    """
    x = asarray(x)
    place = normal_axis(axis, x.ndim)
    return tuple(getitem(x, (*[slice(None)] * place, k)) for k in range(x.shape[place]))


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """`numpy.broadcast_shapes`."""
    return np.broadcast_shapes(*shapes)


def broadcast_arrays(*arrays: Any) -> tuple[Any, ...]:
    """`numpy.broadcast_arrays`: all arrays repeated to the shape that they have together."""
    parts = [asarray(x) for x in arrays]
    shape = rules.broadcast_shapes(*(x.shape for x in parts))
    return tuple(broadcast_to(x, shape) for x in parts)


def atleast_1d(*arrays: Any) -> Any:
    """`numpy.atleast_1d`: numbers as vectors of one."""
    made = tuple(shapes.reshape(x, (1,)) if not x.ndim else x for x in map(asarray, arrays))
    return made[0] if len(made) == 1 else made


def atleast_2d(*arrays: Any) -> Any:
    """`numpy.atleast_2d`: numbers and vectors as matrices of one row."""
    made = tuple(shapes.reshape(x, (1, x.size)) if x.ndim < 2 else x for x in map(asarray, arrays))
    return made[0] if len(made) == 1 else made


def atleast_3d(*arrays: Any) -> Any:
    """`numpy.atleast_3d`: vectors of n as (1, n, 1), matrices as (m, n, 1)."""

    def grown(x: Any) -> Any:
        if x.ndim < 2:
            return shapes.reshape(x, (1, x.size, 1))
        return shapes.expand_dims(x, 2) if x.ndim == 2 else x

    made = tuple(grown(asarray(x)) for x in arrays)
    return made[0] if len(made) == 1 else made


def block(arrays: Any) -> Array:
    """`numpy.block`: nested lists of arrays, the innermost beside each other along the last axis. Sparse where all blocks are.

    >>> block([[np.eye(1), np.zeros((1, 2))]])
    Array([[1., 0., 0.]], dtype=float64)
    """
    depth = _depth(arrays)
    leaves = _flat(arrays)
    if depth == 2 and len(arrays) > 1 and type(leaves[0]) is Array and current() is None:
        at_once = _gridded(arrays)
        if at_once is not None:
            return at_once
    ndim = max([depth, *(x.ndim for x in leaves)])
    return _joined(arrays, depth, ndim)


def _gridded(arrays: list[list[Any]]) -> Array | None:
    """Sparse matrices of one type but for their extents; None of others."""
    first = arrays[0][0]
    for x in (x for row in arrays for x in row):
        if type(x) is not Array or x.ndim != 2 or x.aval.structure != first.aval.structure:
            return None
    made = joined.gridded([[x._storage for x in row] for row in arrays])
    return None if made is None else Array(made)


def _depth(arrays: Any) -> int:
    if not isinstance(arrays, list):
        return 0
    depths = {_depth(x) for x in arrays}
    if len(depths) != 1:
        raise ValueError("block takes lists that are nested equally deep and not empty")
    return 1 + depths.pop()


def _flat(arrays: Any) -> list[Any]:
    return [leaf for x in arrays for leaf in _flat(x)] if isinstance(arrays, list) else [asarray(arrays)]


def _joined(arrays: Any, depth: int, ndim: int) -> Any:
    if not depth:
        x = asarray(arrays)
        return shapes.reshape(x, (1,) * (ndim - x.ndim) + x.shape) if x.ndim < ndim else x
    return concatenate([_joined(x, depth - 1, ndim) for x in arrays], ndim - depth)


_CSR, _CSC = (Format.parse(name, 2) for name in ("csr", "csc"))


def block_diag(*arrays: Any, format: Any = "csr") -> Array:
    """Matrices along the diagonal of one matrix, nothing elsewhere: csr unless `format` says otherwise. O(stored entries).

    >>> block_diag(np.ones((1, 2)), np.ones((1, 1))).todense()
    array([[1., 1., 0.],
           [0., 0., 1.]])
    """
    listed = arrays[0] if len(arrays) == 1 and isinstance(arrays[0], list | tuple) else arrays
    if current() is None:
        at_once = _on_diagonal(listed, format)
        if at_once is not None:
            return convert_format(at_once, format)
    parts = [convert_format(atleast_2d(x), "csr") for x in listed]
    if not parts:
        raise ValueError("block_diag takes at least one matrix")
    total = sum(x.shape[1] for x in parts)
    rows, start = [], 0
    for x in parts:
        if x.ndim != 2:
            raise ValueError(f"block_diag takes matrices, not an array of shape {x.shape}")
        rows.append(_placed(x, 1, start, total - start - x.shape[1]))
        start += x.shape[1]
    return convert_format(concatenate(rows, 0), format)


def _on_diagonal(arrays: Sequence[Any], format: Any) -> Array | None:
    """Sparse matrices of one dtype, with fill 0, of whose coordinates all are listed, or of one format of rows that are cut as they are stored; None of
    others. The latter in `format`, if that has such rows too."""
    for x in arrays:
        if type(x) is not Array or x.ndim != 2 or x.dtype != arrays[0].dtype or x.format.is_dense:
            return None
        if not structural.same_bits(x.dtype.type(x.fill_value), x.dtype.type(0)):
            return None
    if not arrays:
        return None
    storages, made = [x._storage for x in arrays], None
    if padded.rows_of(storages[0].format) is not None and not grouping.names_groups(format):
        made = joined.diagonal(storages, Format.parse(format, 2)) if len({s.format for s in storages}) == 1 else None
    made = joined.on_diagonal(storages, _CSC if format in ("csc", _CSC) else _CSR) if made is None else made
    return None if made is None else Array(made)


def _placed(x: Any, axis: int, before: int, after: int, value: Any = 0) -> Any:
    """`x` with `value` before and after it along `axis`: without entries where `x` is sparse over that fill."""
    parts = [x]
    for count, place in ((before, 0), (after, len(parts) + 1)):
        if count:
            shape = [count if d == axis else n for d, n in enumerate(x.shape)]
            parts.insert(place, _constant(x, shape, value))
    return concatenate(parts, axis) if len(parts) > 1 else x


def _constant(x: Any, shape: Sequence[int], value: Any) -> Any:
    number = x.dtype.type(value)
    if not x.format.is_dense and structural.same_bits(x.dtype.type(x.fill_value), number):
        return empty(Aval(shape, x.dtype, x.format, x.fill_value))
    return asarray(np.full(shape, number)) if sizes.is_known(shape) else broadcast_to(number, shape)


def pad(x: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Array:
    """`numpy.pad` in the modes "constant", "edge", "reflect", "symmetric" and "wrap". A sparse array padded with its fill stays sparse,
    in its format.

    >>> pad(np.array([1, 2]), (1, 2), "edge")
    Array([1, 1, 2, 2, 2], dtype=int64)
    """
    x = asarray(x)
    at_once = _surrounded(x, pad_width, constant_values) if mode == "constant" and current() is None else None
    if at_once is not None:
        return at_once
    widths = np.broadcast_to(np.asarray(_widths(pad_width, x.ndim)), (x.ndim, 2)).tolist()
    if any(n < 0 for pair in widths for n in pair):
        raise ValueError("pad_width must not be negative")
    if not isinstance(constant_values, np.ndarray | np.generic):
        for value in np.asarray(constant_values, object).ravel():
            check_fits(value, x.dtype)
    values = np.broadcast_to(np.asarray(constant_values), (x.ndim, 2))
    if mode == "constant" and x.format.is_dense and not values.any():
        return _in_zeros(x, [[integer(n, "pad_width") for n in pair] for pair in widths])
    for axis, (before, after) in enumerate(widths):
        before, after = integer(before, "pad_width"), integer(after, "pad_width")
        if not before and not after:
            continue
        if mode == "constant":
            x = _placed(_placed(x, axis, before, 0, values[axis, 0]), axis, 0, after, values[axis, 1])
        elif mode in ("edge", "reflect", "symmetric", "wrap"):
            x = take(x, _mirrored(x.shape[axis], before, after, mode), axis)
        else:
            raise ValueError(f"mode={mode!r} must be 'constant', 'edge', 'reflect', 'symmetric' or 'wrap'")
    return x


def _mirrored(n: Any, before: int, after: int, mode: str) -> Any:
    """Where the entries of a padded axis of extent `n` come from."""
    if sizes.is_known((n,)):
        known: Any = np.pad(np.arange(n), (before, after), mode)  # type: ignore[call-overload]
        return known
    places = sizes.coordinates(span(-before, n + after))
    if mode == "edge":
        return elementwise("minimum", elementwise("maximum", places, 0), n - 1)
    if mode == "wrap":
        return elementwise("remainder", places, n)
    if mode == "symmetric":  # 0 ... n - 1, n - 1 ... 0
        there = elementwise("remainder", places, 2 * n)
        return elementwise("minimum", there, elementwise("subtract", 2 * n - 1, there))
    period = elementwise("maximum", sizes.extent(2 * n - 2), 1)  # 0 ... n - 1, n - 2 ... 1
    there = elementwise("remainder", places, period)
    return elementwise("minimum", there, elementwise("subtract", period, there))


def _in_zeros(x: Any, widths: Sequence[Sequence[int]]) -> Any:
    """A dense array with so many zeros before and behind it, by axis."""
    if not any(map(any, widths)):
        return x
    place = [
        span(before, before + n) if before or after else None
        for (before, after), n in zip(widths, x.shape, strict=True)
    ]
    return in_zeros(
        [x], [tuple(place)], [before + n + after for (before, after), n in zip(widths, x.shape, strict=True)]
    )


def _surrounded(x: Any, pad_width: Any, value: Any) -> Array | None:
    """A sparse array that is there, outside `jit`, with its fill around it: pairs of Python's integers, or one, one number as the value. None for others."""
    if type(x) is not Array or x.format.is_dense:
        return None
    if type(pad_width) is int:
        pad_width = ((pad_width, pad_width),) * x.ndim
    if type(pad_width) not in (list, tuple) or len(pad_width) != x.ndim:
        return None
    for pair in pad_width:
        if type(pair) not in (list, tuple) or len(pair) != 2 or any(type(n) is not int or n < 0 for n in pair):
            return None
    fill = x.dtype.type(x.fill_value)
    if type(value) not in (bool, int, float, complex) or not structural.same_bits(fill, x.dtype.type(value)):
        return None
    storage = joined.surrounded(x._storage, pad_width)
    return None if storage is None else Array(storage)


def _widths(pad_width: Any, ndim: int) -> Any:
    if isinstance(pad_width, dict):
        made = [[0, 0] for _ in range(ndim)]
        for axis, width in pad_width.items():
            made[normal_axis(axis, ndim)] = np.broadcast_to(width, (2,)).tolist()
        return made
    return pad_width


def append(x: Any, values: Any, axis: int | None = None) -> Array:
    """`numpy.append`: `values` behind `x` along `axis`, or both flattened."""
    return concatenate_all([x, values], axis)


def meshgrid(*arrays: Any, indexing: str = "xy", sparse: bool = False) -> tuple[Any, ...]:
    """`numpy.meshgrid`: coordinates of a grid, an array per vector; with `sparse`, of extent one along the others (dense arrays in any
    case).

    >>> meshgrid(np.array([1, 2]), np.array([3, 4, 5]))[0].shape
    (3, 2)
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(f"indexing={indexing!r} must be 'xy' or 'ij'")
    vectors = [shapes.reshape(asarray(x), (-1,)) if asarray(x).size else asarray(x) for x in arrays]
    count = len(vectors)
    order = list(range(count))
    if indexing == "xy" and count > 1:
        order[:2] = [1, 0]
    wide = [shapes.reshape(v, [v.size if d == order[k] else 1 for d in range(count)]) for k, v in enumerate(vectors)]
    return tuple(wide) if sparse else broadcast_arrays(*wide)
