"""Parts of arrays: windows by ranges, gathers by indices, arrays side by side.

A window keeps what lies in a range of each dimension. Gathers and scatters are indirect einsums (`indirect`), scheduled, fused and
differentiated as any other:

    x[i, :]        out[p, j] = x[i[p], j]
    x[i, j]        out[p] = x[i[p], j[p]]
    scatter-add    out[i[p], j] += v[p, j]
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax import dtypes
from sparsejax.core.again import again
from sparsejax.core.array import Array, made
from sparsejax.core.avals import Aval
from sparsejax.core.primitive import Primitive, asarray
from sparsejax.core.symbolic import Span, known, length, span
from sparsejax.core.tangents import Linear
from sparsejax.core.trace import current
from sparsejax.formats import Compressed, Format, convert, selection, structural
from sparsejax.formats.storage import Storage, dense_template
from sparsejax.lax.elementwise import convert_element_type
from sparsejax.lax.extents import coordinates
from sparsejax.lax.indirect import rows
from sparsejax.lax.linear import Factor, as_dtype, empty, keep, pull, refilled, share, zeros, zeros_like
from sparsejax.lax.structural import convert_format, normal_axis
from sparsejax.lax.window_places import serves, window_places, window_places_p, windowed

# ---------------------------------------------------------------------------------------------------------- window


def _window_typing(x: Aval, ranges: tuple[range, ...], axes: tuple[int, ...]) -> Aval:
    shape = tuple(length(r) for d, r in enumerate(ranges) if d not in axes)
    form = selection.without(x.format, axes)
    return Aval(shape, x.dtype, form, 0 if form.is_dense else x.fill_value)


def _window_reference(x: Any, ranges: tuple[range, ...], axes: tuple[int, ...]) -> Any:
    return np.asarray(x)[np.ix_(*ranges)].reshape([len(r) for d, r in enumerate(ranges) if d not in axes])


def _window_call(x: Storage, out_aval: Aval, ranges: tuple[range, ...], axes: tuple[int, ...]) -> Storage:
    if x.format.is_dense and convert.in_order(out_aval.format):
        vals = np.array(convert.to_dense(x)[slices(ranges)], order="C").reshape(-1)
        vals.setflags(write=False)
        return Storage.dense(dense_template(out_aval.format, out_aval.shape, out_aval.fill_value), vals, {})
    take = selection.window if x.format.is_dense else windowed
    made = take(x, ranges, axes, out_aval.format)
    return structural.refill(made, 0) if out_aval.format.is_dense else made


def _window_on_numpy(x: Aval, ranges: tuple[range, ...], axes: tuple[int, ...]) -> Callable[..., None] | None:
    place = _place(x.shape, ranges, axes)
    if not _is_told(place):
        return None
    key = slices(place)

    def function(x: NDArray[Any], made: NDArray[Any]) -> None:
        made[...] = x[key]

    return function


def _window_transpose(ct: Any, x: Linear, ranges: tuple[range, ...], axes: tuple[int, ...]) -> list[Any]:
    """ct[k..] at the coordinates that it was taken from: a dense one with zeros around it, sparse entries where those of the operand are, else a
    contraction with a selection per dimension that lost some."""
    if ct.format.is_dense and not x.is_sparse:
        return [as_dtype(pad([ct], [_place(x.shape, ranges, axes)], x.shape), x.dtype)]
    if x.is_sparse and not ct.format.is_dense and serves(x.format, axes):
        return [as_dtype(window_places(x.pattern, ct, ranges, axes), x.dtype)]
    kept = [d for d in range(x.ndim) if d not in axes]
    lost = [length(r) < n or r.step < 0 or d in axes for d, (r, n) in enumerate(zip(ranges, x.shape, strict=True))]
    long = [d for d in range(x.ndim) if lost[d] and x.shape[d] > SELECTED]
    if long and x.is_sparse and not ct.format.is_dense and not axes and all(ranges[d].step == 1 for d in long):
        for d in long:
            ct, lost[d] = _between(ct, ranges[d], d, x.shape[d]), False
    names = [x.ndim + d if lost[d] else d for d in range(x.ndim)]
    factors: list[Factor] = [(ct, tuple(names[d] for d in kept))]
    for d, chosen in enumerate(ranges):
        if lost[d]:
            factors.append((select(coordinates(chosen), x.shape[d], ct.dtype), (names[d], d)))
    return [pull(factors, tuple(range(x.ndim)), x)]


SELECTED = 1 << 24
"""How long a dimension may be for a selection, which has an entry for every coordinate that is kept."""


def _between(x: Any, chosen: range, axis: int, extent: int) -> Any:
    """A sparse array with nothing before and behind it along `axis`, so that its entries are at the coordinates `chosen`. O(entries)."""
    parts = [x]
    for n, place in ((chosen.start, 0), (extent - chosen.start - x.shape[axis], 2)):
        shape = (*x.shape[:axis], n, *x.shape[axis + 1 :])
        parts.insert(place, empty(Aval(shape, x.dtype, x.format, x.fill_value)))
    return concatenate([part for part in parts if part.shape[axis]], axis)


window_p = Primitive(
    "window",
    typing=_window_typing,
    reference=_window_reference,
    call=_window_call,
    on_numpy=_window_on_numpy,
    jvp=lambda primals, tangents, out, ranges, axes: window(tangents[0], ranges, axes),
    transpose=_window_transpose,
    describe=lambda ranges, axes: ",".join(
        str(r.start) if d in axes else f"{r.start}:{r.stop}:{r.step}" for d, r in enumerate(ranges)
    ),
)


def window(x: Any, ranges: Sequence[range], axes: Sequence[int] = ()) -> Any:
    """The entries of `x` whose coordinate of dimension d is in `ranges[d]`; dimensions `axes`, with ranges of one, are left out.

    In the format of `x`, without the levels of `axes` (coo where no sparse format remains). Linear in the entries of the outermost
    level and those found.

    >>> import sparsejax as sj, numpy as np
    >>> window(sj.array(np.arange(6.0).reshape(2, 3)), (range(1, 2), range(0, 3, 2)), (0,))
    Array([3., 5.], dtype=float64)
    """
    x = asarray(x)
    full = all(r == span(0, n) for r, n in zip(ranges, x.shape, strict=True))
    return x if full and not axes else window_p.bind(x, ranges=tuple(ranges), axes=tuple(axes))


def _places_transpose(
    ct: Any, like: Any, values: Linear, ranges: tuple[range, ...], axes: tuple[int, ...]
) -> list[Any]:
    return [None, keep(window(share(convert_format(ct, like.format), like), ranges, axes), values)]


window_places_p.transpose = _places_transpose

# ------------------------------------------------------------------------------------------------------------- pad

Place = tuple[Any, ...]
"""Where a part lies, per dimension of the whole: a range of coordinates, None for all of them, or an integer where the part has no such dimension."""


def _place(shape: Sequence[Any], ranges: Sequence[Any], axes: Sequence[int]) -> Place:
    """Where a window of an array of this shape lies in it."""
    return tuple(
        r.start if d in axes else None if r == span(0, n) else r
        for d, (r, n) in enumerate(zip(ranges, shape, strict=True))
    )


def slices(place: Place) -> tuple[Any, ...]:
    """A place as a key of NumPy's."""
    return tuple(
        slice(None)
        if r is None
        else r
        if not isinstance(r, range)
        else slice(r.start, r.stop if r.stop >= 0 else None, r.step)
        if r
        else slice(0)
        for r in place
    )


def _is_told(place: Place) -> bool:
    """Whether a place is the same whatever the extents are of which a bound alone is known."""
    return all(r is None or type(r) is int or type(r) is range for r in place)


def _pad_typing(*parts: Aval, shape: tuple[int, ...], places: tuple[Place, ...]) -> Aval:
    return Aval(shape, parts[0].dtype, Format.parse("dense", len(shape)), 0)


def _pad_reference(*parts: Any, shape: tuple[int, ...], places: tuple[Place, ...]) -> Any:
    made = np.zeros(shape, parts[0].dtype)
    _add_up(made, parts, list(map(slices, places)))
    return made


def _add_up(made: NDArray[Any], parts: Sequence[NDArray[Any]], keys: Sequence[Any]) -> None:
    """Write the sum of parts to an array that is zero but where the first lies."""
    if len(parts) == 1:
        made[keys[0]] = parts[0]
        return
    np.add(parts[0], made.dtype.type(0), out=made[(*keys[0], ...)])
    for part, key in zip(parts[1:], keys[1:], strict=True):
        made[key] += part


def _pad_call(*parts: Storage, out_aval: Aval, shape: tuple[int, ...], places: tuple[Place, ...]) -> Storage:
    made = _pad_reference(*map(convert.to_dense, parts), shape=shape, places=places)
    return convert.from_dense(made, out_aval.format, 0)


def _pad_on_numpy(*parts: Aval, shape: tuple[int, ...], places: tuple[Place, ...]) -> Callable[..., None] | None:
    if not all(map(_is_told, places)):
        return None
    keys = list(map(slices, places))
    around = _around(places[0]) if 2 * parts[0].size > math.prod(shape) else None

    def function(*arrays: NDArray[Any]) -> None:
        *given, made = arrays
        if around is None:
            made.fill(0)
        else:
            for key in around:
                made[key] = 0
        _add_up(made, given, keys)

    return function


def _around(place: Place) -> list[tuple[Any, ...]] | None:
    """Keys of what lies before and behind a part, each coordinate once; None where something lies between its entries."""
    if any(isinstance(r, range) and abs(r.step) > 1 for r in place):
        return None
    own, keys = slices(place), []
    for d, r in enumerate(place):
        if r is not None:
            ends = (r, r) if not isinstance(r, range) else (min(r), max(r))
            keys += [(*own[:d], slice(ends[0])), (*own[:d], slice(ends[1] + 1, None))]
    return keys


def _pad_jvp(primals: Any, tangents: Sequence[Any], out: Any, shape: tuple[int, ...], places: tuple[Place, ...]) -> Any:
    moving = [(t, place) for t, place in zip(tangents, places, strict=True) if t is not None]
    return pad([t for t, _ in moving], [place for _, place in moving], shape)


def _pad_transpose(ct: Any, *parts: Any, shape: tuple[int, ...], places: tuple[Place, ...]) -> list[Any]:
    def part(x: Any, place: Place) -> Any:
        axes = [d for d, r in enumerate(place) if r is not None and not isinstance(r, range | Span)]
        ranges = [
            span(0, n) if r is None else span(r, r + 1) if d in axes else r
            for d, (r, n) in enumerate(zip(place, shape, strict=True))
        ]
        return as_dtype(window(ct, ranges, axes), x.dtype)

    return [part(x, place) if isinstance(x, Linear) else None for x, place in zip(parts, places, strict=True)]


def _pad_describe(shape: tuple[int, ...], places: tuple[Place, ...]) -> str:
    def spelled(r: Any) -> str:
        return ":" if r is None else f"{r.start}:{r.stop}:{r.step}" if isinstance(r, range) else str(r)

    return " + ".join(",".join(map(spelled, place)) for place in places)


def _pad_extents(change: Callable[[Any], Any], shape: tuple[int, ...], places: tuple[Place, ...]) -> dict[str, Any]:
    """As `Primitive.extents`; ends of ranges stay."""
    moved = tuple([tuple([change(p) if type(p) is int else p for p in place]) for place in places])
    return {"shape": tuple(map(change, shape)), "places": moved}


pad_p = Primitive(
    "pad",
    typing=_pad_typing,
    reference=_pad_reference,
    call=_pad_call,
    on_numpy=_pad_on_numpy,
    jvp=_pad_jvp,
    transpose=_pad_transpose,
    describe=_pad_describe,
    extents=_pad_extents,
)


def pad(parts: Sequence[Any], places: Sequence[Place], shape: Sequence[int]) -> Any:
    """The sum of `parts`, each at its place in zeros of `shape`: before, behind and between its entries, as XLA's `Pad`. Dense; the transpose of
    `window`. One pass over the result, and one over each part.

    >>> pad([np.array([1, 2]), np.array(5)], [(range(0, 3, 2),), (2,)], (4,))
    Array([1, 0, 7, 0], dtype=int64)
    """
    dense = [convert_format(asarray(x), "dense") for x in parts]
    return pad_p.bind(*dense, shape=tuple(shape), places=tuple(map(tuple, places)))


# ------------------------------------------------------------------------------------------------------- selection


def _select_typing(index: Aval, extent: int, dtype: Any, drop: bool, axis: int | None) -> Aval:
    levels, order = [*index.format.levels, Compressed()], [*index.format.order, index.ndim]
    return Aval((*index.shape, extent), dtype, Format(levels, order), 0)


def _select_reference(index: Any, extent: int, dtype: Any, drop: bool, axis: int | None) -> Any:
    wrapped = np.asarray(index)[..., None] + np.where(np.asarray(index) < 0, 0 if drop else extent, 0)[..., None]
    return (wrapped == np.arange(extent)).astype(dtype)


def _select_call(index: Storage, out_aval: Aval, extent: int, dtype: Any, drop: bool, axis: int | None) -> Storage:
    """Rows of any number of dimensions: dense levels in the order in which the indices are stored."""
    return selection.selection(index.vals, out_aval.shape, out_aval.dtype, out_aval.format, drop, axis)


select_p = Primitive(
    "select",
    typing=_select_typing,
    reference=_select_reference,
    call=_select_call,
    jvp=lambda primals, tangents, out, extent, dtype, drop, axis: None,
)


def select(index: Any, extent: int, dtype: Any = np.float64, drop: bool = False, axis: int | None = None) -> Any:
    """The array of shape (*index.shape, extent) with a one at `index[p]` of every row p: csr for a vector of integers, else dense
    levels above a compressed one. O(size of index).

    Negative indices count from the end, and those out of bounds raise an IndexError that names the first, and `axis`. With `drop`, both
    give rows without entries.

    >>> select(np.array([2, 0]), 3).todense()
    array([[0., 0., 1.],
           [1., 0., 0.]])
    """
    index = asarray(index)
    dense = convert_format(index, Format.parse("dense", index.ndim))
    return select_p.bind(dense, extent=known(extent), dtype=np.dtype(dtype), drop=drop, axis=axis)


def gather(x: Any, indices: dict[int, Any], axes: Sequence[int] | None = None, place: int | None = None) -> Any:
    """`x` at arrays of integers that are broadcast to one shape, one for each of some dimensions: x[:, i, :, j] for {1: i, 3: j}.

    The axes of that shape replace the dimensions, before the other dimension number `place` (default: where the first of them stood).
    A sparse result has the format of `x` where one vector indexes it, and coo else. Work: the result, and of a sparse `x` a search for every
    place, or its entries where it is not stored by what is indexed first. Errors call dimension d `axes[d]`.

    >>> import sparsejax as sj
    >>> gather(sj.array(np.arange(6.0).reshape(2, 3)), {1: np.array([2, 2, 0])})
    Array([[2., 2., 0.],
           [5., 5., 3.]], dtype=float64)
    """
    x, traced = asarray(x), current() is not None
    arrays = {d: asarray(i, "an index", keep=traced) for d, i in indices.items()}
    if traced or not x.format.is_dense:
        return rows.gathered(x, arrays, axes, place=place)
    called = [d if axes is None else axes[d] for d in arrays]
    return _at_once(len(arrays))(x, *arrays.values(), *arrays, *called, place)


@functools.cache
def _at_once(count: int) -> Callable[..., Any]:
    """What gathers of so many index arrays are at once: programs that serve any extents."""
    return again(1 + count, whole=True)(_gathered)


def _gathered(x: Any, *rest: Any) -> Any:
    """`rest` are index arrays, the dimensions that they index, what errors call these, and the place."""
    count = len(rest) // 3
    dimensions, called, place = rest[count : 2 * count], rest[2 * count : 3 * count], rest[-1]
    names = dict(zip(dimensions, called, strict=True))
    arrays = dict(zip(dimensions, rest[:count], strict=True))
    return rows.gathered(x, arrays, [names.get(d, d) for d in range(x.ndim)], place=place)


def scatter(values: Any, indices: dict[int, Any], shape: Sequence[int], op: str = "add") -> Any:
    """The transpose of `gather` of vectors: `values` added up (or what `op` makes of them) at the coordinates that `indices` name, nothing
    elsewhere. `values` has one dimension, the first, in place of those of `indices`; sparse in coo.

    >>> scatter(np.array([1.0, 2.0, 4.0]), {0: np.array([1, 0, 1])}, (3,)).todense()
    array([2., 5., 0.])
    """
    arrays = {d: asarray(i) for d, i in indices.items()}
    return rows.accumulated(op, asarray(values), arrays, shape, format=Format.parse("coo", len(shape)))


# ----------------------------------------------------------------------------------------------------- concatenate


def _concatenate_typing(*xs: Aval, axis: int) -> Aval:
    shape = list(xs[0].shape)
    shape[axis] = sum(x.shape[axis] for x in xs)
    sparse = [x for x in xs if not x.format.is_dense]
    if len(sparse) < len(xs):
        return Aval(tuple(shape), xs[0].dtype, Format.parse("dense", len(shape)), 0)
    forms = {x.format for x in xs}
    form = xs[0].format if len(forms) == 1 else Format.parse("coo", len(shape))
    return Aval(tuple(shape), xs[0].dtype, form, xs[0].fill_value)


def _concatenate_call(*xs: Storage, out_aval: Aval, axis: int) -> Storage:
    return selection.concatenate(xs, axis, out_aval.format)


def _concatenate_jvp(primals: Sequence[Any], tangents: Sequence[Any], out: Any, axis: int) -> Any:
    """A part that is constant has zeros for what it stores."""
    parts = zip(primals, tangents, strict=True)
    return concatenate(
        [t if t is not None else zeros(x.aval) if x.format.is_dense else zeros_like(x) for x, t in parts], axis
    )


def _part(ct: Any, x: Linear, ranges: Sequence[Any]) -> Any:
    """The cotangent of a part, which lies there with all its entries."""
    found = window(ct, ranges)
    labels = tuple(range(x.ndim))
    return pull([(found, labels)], labels, x) if ct.format.is_dense else keep(found, x)


def _concatenate_transpose(ct: Any, *xs: Any, axis: int) -> list[Any]:
    parts: list[Any] = []
    start = 0
    for x in xs:
        stop = start + x.shape[axis]
        ranges = [span(start, stop) if d == axis else span(0, n) for d, n in enumerate(ct.shape)]
        parts.append(_part(ct, x, ranges) if isinstance(x, Linear) else None)
        start = stop
    return parts


concatenate_p = Primitive(
    "concatenate",
    typing=_concatenate_typing,
    reference=lambda *xs, axis: np.concatenate(xs, axis),
    call=_concatenate_call,
    jvp=_concatenate_jvp,
    transpose=_concatenate_transpose,
)


def _concatenated(parts: list[Any], axis: int) -> Any:
    """What arrays that are there make, outside `jit`: all of one type but for extents along `axis`, dense ones in the order of NumPy; None for others."""
    first = parts[0]
    if type(first) is not Array or type(axis) is not int or not -first.ndim <= axis < first.ndim:
        return None
    if first.format.is_dense and (first.aval.weak_type or first.format != Format.parse("dense", first.ndim)):
        return None
    place, key = axis % first.ndim, first.aval.structure
    rest = list(first.aval.shape)
    total = rest[place]
    for x in parts[1:]:
        if type(x) is not Array or x.aval.structure != key:
            return None
        shape = x.aval.shape
        total += shape[place]
        if any(shape[d] != n for d, n in enumerate(rest) if d != place):
            return None
    rest[place] = total
    aval = _joined_aval(first.aval, tuple(rest))
    return made(selection.concatenate([x._storage for x in parts], place, aval.format), aval)


@functools.lru_cache(maxsize=1024)
def _joined_aval(x: Aval, shape: tuple[int, ...]) -> Aval:
    return Aval(shape, x.dtype, x.format, x.fill_value)


def concatenate(arrays: Sequence[Any], axis: int = 0) -> Any:
    """Arrays one behind the other along `axis`; dtypes are promoted as NumPy does.

    Sparse arrays of one format keep it; those of several give coo; any dense array makes the result dense, and so do different fills,
    as in arithmetic. Zeros of either sign are one fill, or `[A, -A]` would become dense: what is not stored takes the sign of the first
    array's fill; stored values keep theirs. Linear in the entries.

    >>> import sparsejax as sj
    >>> A = sj.array(np.eye(2), format="csr")
    >>> concatenate([A, A * 2], axis=1).todense()
    array([[1., 0., 2., 0.],
           [0., 1., 0., 2.]])

    Raises ValueError for shapes that differ elsewhere.
    """
    parts = [asarray(x) for x in arrays]
    if not parts:
        raise ValueError("need at least one array to concatenate")
    at_once = _concatenated(parts, axis) if len(parts) > 1 and current() is None else None
    if at_once is not None:
        return at_once
    if not parts[0].ndim:
        raise ValueError("zero-dimensional arrays cannot be concatenated")
    place = normal_axis(axis, parts[0].ndim)
    dtype = dtypes.result_type(*((x.dtype, x.aval.weak_type) for x in parts))
    parts = [convert_element_type(x, dtype) for x in parts]
    for k, x in enumerate(parts):
        if x.ndim != parts[0].ndim or any(
            n != m for d, (n, m) in enumerate(zip(x.shape, parts[0].shape, strict=True)) if d != place
        ):
            raise ValueError(
                f"all the input array dimensions except for the concatenation axis {place} must match exactly, but array 0 has "
                f"shape {parts[0].shape} and array {k} has shape {x.shape}"
            )
    fills = [x.dtype.type(x.fill_value) for x in parts]
    if any(x.format.is_dense for x in parts) or not all(
        f == fills[0] or structural.same_bits(f, fills[0]) for f in fills
    ):
        parts = [convert_format(x, "dense") for x in parts]
    parts = [refilled(x, fills[0]) for x in parts]  # zeros of either sign
    return parts[0] if len(parts) == 1 else concatenate_p.bind(*parts, axis=place)
