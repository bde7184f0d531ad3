"""More ways to make arrays: without values, over memory of other libraries, from diagonals."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsejax import dtypes
from sparsejax.core.array import Array
from sparsejax.core.methods import ArrayBase
from sparsejax.core.primitive import asarray
from sparsejax.core.symbolic import span
from sparsejax.core.trace import Tracer
from sparsejax.formats import Format, convert, passes
from sparsejax.formats.parts import unlisted
from sparsejax.formats.storage import Storage
from sparsejax.lax.elementwise import convert_element_type, elementwise
from sparsejax.lax.extents import coordinates, even, is_known, nearest, triangle
from sparsejax.lax.library.spacing import spaced
from sparsejax.lax.structural import convert_format, extent, extents, integer
from sparsejax.numpy.making import array, check_device, eye, own, zeros, zeros_like


def empty(shape: Any, dtype: Any = None, format: str | Format | None = None, *, device: Any = None) -> Array:
    """An array whose values mean nothing: zeros, since nothing can be written to it."""
    return zeros(shape, dtype, format, device=device)


def empty_like(x: Any, dtype: Any = None, shape: Any = None, *, format: Any = None, device: Any = None) -> Array:
    """An array like `x` whose values mean nothing: zeros."""
    return zeros_like(x, dtype, shape, format=format, device=device)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Array:
    """A dense array of the values of any object that speaks DLPack: of PyTorch, JAX, CuPy in host memory, NumPy.

    A copy, unless `copy=False`: then over its memory, which others can still write to; they must not.

    >>> from_dlpack(np.arange(3.0))
    Array([0., 1., 2.], dtype=float64)
    """
    check_device(device)
    values = np.from_dlpack(x)
    return array(values, copy=False) if copy is False else own(np.array(values))


def diagflat(v: Any, k: int = 0, *, format: str | Format = "csr") -> Array:
    """`numpy.diagflat`: the matrix with all entries of `v` on its k-th diagonal; sparse."""
    return diags([asarray(v).ravel()], [k], format=format)


def diags(
    diagonals: Any, offsets: Any = 0, *, shape: Any = None, dtype: Any = None, format: str | Format = "csr"
) -> Array:
    """The sparse matrix with vectors (or single numbers, repeated) on its diagonals, as `scipy.sparse.diags_array`. O(entries).

    >>> diags([[1.0, 2.0], [5.0]], [0, 1]).todense()
    array([[1., 5.],
           [0., 2.]])

    Raises ValueError for vectors that do not fit their diagonals.
    """
    if np.ndim(offsets) == 0:
        nested = isinstance(diagonals, list | tuple) and diagonals and np.ndim(diagonals[0]) == 1
        listed, places = [asarray(diagonals[0] if nested else diagonals)], [integer(offsets, "offsets")]
    else:
        listed, places = [asarray(d) for d in diagonals], [integer(k, "offsets") for k in offsets]
    if len(listed) != len(places):
        raise ValueError(f"diags has {len(listed)} diagonals, but {len(places)} offsets")
    if shape is None:
        n = max(d.size + abs(k) for d, k in zip(listed, places, strict=True))
        rows, columns = extents((n, n))
    else:
        rows, columns = extents(shape)
    counts = [max(0, min(rows - max(0, -k), columns - max(0, k))) for k in places]
    for d, k, count in zip(listed, places, counts, strict=True):
        if d.size not in (1, count):
            raise ValueError(
                f"diagonal {k} of shape {(rows, columns)} has {count} places, but {d.size} values are given"
            )
    wanted = Format.parse(format, 2)
    if not wanted.is_dense and all(type(d) is Array and not d.aval.weak_type for d in listed):
        kind = np.result_type(*(d.dtype for d in listed))
        made = _on_diagonals([d.todense().ravel() for d in listed], places, counts, (rows, columns), wanted, kind)
        return made if dtype is None else convert_element_type(made, dtype)
    total = None
    for d, k in zip(listed, places, strict=True):
        row = coordinates(span(-max(0, -k), rows - max(0, -k)))
        row = elementwise("maximum", elementwise("minimum", row, d.size - 1), 0)
        values = d.reshape((d.size,))[row].reshape((rows, 1)) if d.size else asarray(np.zeros((rows, 1), d.dtype))
        part = elementwise("multiply", values, eye(rows, columns, k, dtype=bool))
        total = part if total is None else elementwise("add", total, part)
    assert total is not None
    return convert_format(total if dtype is None else convert_element_type(total, dtype), format)


def _on_diagonals(
    given: list[Any], places: list[int], counts: list[int], shape: tuple[int, int], format: Format, dtype: Any
) -> Array:
    """The matrix of these values on its diagonals, what falls on the same one added up: as rows of slots, one for each diagonal, where the format lists
    the entries of rows (or columns) and most slots are inside; else entry by entry. O(entries)."""
    zero, dims = np.dtype(dtype).type(0), unlisted.listed_rows(format)
    offsets = sorted({k if dims == (0, 1) else -k for k in places})
    if dims is not None and shape[dims[0]] * len(offsets) <= 2 * sum(counts):
        lines: dict[int, Any] = {}
        for values, k, count in zip(given, places, counts, strict=True):
            offset = k if dims == (0, 1) else -k
            line = values.astype(dtype, copy=False)
            if offset in lines:
                line = np.broadcast_to(line + lines[offset], count)
            lines[offset] = line
        extents = shape[dims[0]], shape[dims[1]]
        pos, crd, vals = passes.over(sum(counts)).lined(extents, offsets, [lines[k] for k in offsets])
        assert vals is not None
        return Array(Storage(format, shape, zero, ((), (pos, crd)), vals))
    ends = np.cumsum([0, *counts])
    inner, coords = np.empty(ends[-1], dtype), np.empty((2, ends[-1]), np.int64)
    for values, k, start, end in zip(given, places, ends[:-1], ends[1:], strict=True):
        inner[start:end] = values
        for d, first in enumerate((max(0, -k), max(0, k))):
            coords[d, start:end] = np.arange(first, first + end - start)
    return Array(convert.from_coords(coords, inner, shape, format, zero))


def linspace(
    start: Any,
    stop: Any,
    /,
    num: int = 50,
    endpoint: bool = True,
    *,
    dtype: Any = None,
    device: Any = None,
    retstep: bool = False,
    axis: int = 0,
) -> Any:
    """`numpy.linspace`; with traced or array ends too, along a new first axis."""
    check_device(device)
    count = integer(num, "num") if is_known((num,)) else num
    wanted = None if dtype is None else dtypes.canonical(dtype)
    known = is_known((count,)) or retstep or axis
    if not known and all(isinstance(end, int | float) for end in (start, stop)):
        return even(start, stop, count, bool(endpoint), np.dtype(float) if wanted is None else wanted)
    if not any(isinstance(end, Tracer) for end in (start, stop)):
        ends: list[Any] = [np.asarray(e) if isinstance(e, ArrayBase) else e for e in (start, stop)]
        made, step = np.linspace(ends[0], ends[1], count, endpoint, retstep=True, dtype=wanted, axis=axis)
        return (own(made), float(step)) if retstep else own(made)
    if retstep or axis:
        raise ValueError("linspace of traced ends takes neither retstep nor axis")
    made = spaced(start, stop, count, bool(endpoint))
    if wanted is None:
        return made
    return convert_element_type(elementwise("floor", made) if wanted.kind in "iu" else made, wanted)


def tri(n: int, m: int | None = None, k: int = 0, dtype: Any = float) -> Array:
    """`numpy.tri`: ones on and below the k-th diagonal, dense."""
    rows, columns = extents((n, n if m is None else m))
    if is_known((rows, columns)):
        return own(np.tri(rows, columns, nearest(integer(k, "k"), (rows, columns)), dtype))
    made = triangle((rows, columns), integer(k, "k"), lower=True)
    return convert_format(convert_element_type(made, dtypes.canonical(dtype)), "dense")


def vander(x: Any, n: int | None = None, increasing: bool = False) -> Array:
    """`numpy.vander`: powers of `x` as columns."""
    x = asarray(x)
    if x.ndim != 1:
        raise ValueError(f"x must be a vector, not an array of shape {x.shape}")
    count = x.size if n is None else extent(n, "n")
    powers = coordinates(span(0, count) if increasing else span(count - 1, -1, -1))
    return elementwise("power", x.reshape((x.size, 1)), powers)
