"""What transformations need of linear operations: restriction to a pattern, shared patterns, zeros, and `pull`, by which the
cotangent of a contraction's operand is a contraction itself.

A cotangent of a sparse operand is computed under the mask of that operand's pattern, in its format: SDDMM for `A @ X`, a masked
SpGEMM for `A @ B`. Source: the einsum rule  dA[a] = pattern(A)[a] * sum dC[c] prod(others).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsejax.core.array import Array
from sparsejax.core.avals import Aval
from sparsejax.core.primitive import Primitive, asarray
from sparsejax.core.tangents import Linear
from sparsejax.formats import Format, convert, structural
from sparsejax.formats.parts import carried, diagonals
from sparsejax.formats.storage import Storage
from sparsejax.jit.ir import cin
from sparsejax.lax import extents as sizes
from sparsejax.lax import typing_rules as rules
from sparsejax.lax.contract import contract
from sparsejax.lax.elementwise import convert_element_type, real
from sparsejax.lax.structural import broadcast_to, convert_format, expand_dims, refill, reshape, squeeze, transpose

CSR = Format.parse("csr", 2)
Factor = tuple[Any, tuple[int, ...]]
"""A value with a label per axis."""

# ---------------------------------------------------------------------------------------------------------- sample


def _sample_notation(x: rules.Operand, like: rules.Operand) -> cin.Definition:
    """out[i] = masked(stored(like[i]), x[i], 0)"""
    shape = rules.shape_of(like)
    indices = rules.index_vars(len(shape))
    dtype = np.dtype(x.dtype)
    inside = cin.Call("stored", (rules.access(like, indices),), np.dtype(np.bool_))
    value = rules.aligned(x, indices, shape)
    return cin.Definition(indices, None, cin.Call("masked", (inside, value, cin.Literal(dtype.type(0), dtype)), dtype))


def _sample_transpose(ct: Any, x: Linear, like: Any) -> list[Any]:
    if ct.shape == x.shape:
        return [same_entries(ct, x), None]
    return [pull([aligned(ct, ct.ndim)], aligned(x, ct.ndim)[1], x), None]


sample_p = Primitive(
    "sample",
    typing=lambda x, like: rules.infer(_sample_notation, (x, like), {}, like.shape, x.dtype).strong(),
    reference=lambda x, like: np.broadcast_to(x, np.shape(like)) * (np.asarray(like) != 0),
    notation=_sample_notation,
    jvp=lambda primals, tangents, out: None if tangents[0] is None else sample(tangents[0], primals[1]),
    transpose=_sample_transpose,
)


def sample(x: Any, like: Any) -> Any:
    """`x`, broadcast, where `like` stores an entry; nothing elsewhere. In the format of `like`, but `x` may lack entries.

    >>> import sparsejax as sj, numpy as np
    >>> sample(sj.array(np.ones((2, 2))), sj.array(np.eye(2), format="csr")).nnz
    2
    """
    if x.shape == like.shape and not x.format.is_dense:
        x = convert_format(x, like.format)  # by counting: two storage orders would be merged through a workspace
    return convert_format(sample_p.bind(x, like), like.format)


# ----------------------------------------------------------------------------------------------------------- share


def shared(x: Storage, like: Storage) -> Storage:
    """The entries of `x` at the positions of `like`, over its buffers. O(entries)."""
    made = x if x.format == like.format else convert.convert(x, like.format)
    vals = made.vals if _equal(made, like) else carried.carried(made, like)
    if vals is None:
        coords, found = convert.to_coords(made)
        own, position = convert.to_coords(_numbered(like))
        flat = Format.parse("coo", len(x.shape))
        zeros = np.zeros(own.shape[1], x.dtype)
        union = convert.from_coords(np.hstack([own, coords]), np.concatenate([zeros, found]), x.shape, flat, 0)
        place = convert.from_coords(own, position, x.shape, flat, 0)
        if like.format.levels[-1].shared or len(place.vals) < len(position):
            return made
        values = union.vals
        if len(values) > len(position):
            owned = np.repeat([True, False], [own.shape[1], coords.shape[1]])
            values = values[convert.from_coords(np.hstack([own, coords]), owned, x.shape, flat, False).vals]
        vals = np.zeros(len(like.vals), x.dtype)
        vals[place.vals] = values
    return like.with_values(vals, x.dtype.type(0))


def _numbered(x: Storage) -> Storage:
    return Storage(x.format, x.shape, np.int64(0), x.buffers, np.arange(len(x.vals)))


def _equal(x: Storage, like: Storage) -> bool:
    pairs = [(a, b) for xs, ys in zip(x.buffers, like.buffers, strict=True) for a, b in zip(xs, ys, strict=True)]
    return all(a is b or np.array_equal(a, b) for a, b in pairs)


share_p = Primitive(
    "share",
    typing=lambda x, like: Aval(like.shape, x.dtype, like.format, 0),
    reference=lambda x, like: np.asarray(x),
    call=lambda x, like, out_aval: shared(x, like),
    jvp=lambda primals, tangents, out: None if tangents[0] is None else share(tangents[0], primals[1]),
    transpose=lambda ct, x, like: [same_entries(ct, x), None],
)


def share(x: Any, like: Any) -> Any:
    """`x` with the pattern of `like`: the same format over the same index buffers.

    Entries that `x` lacks are stored zeros, others that it has are left out. Runs of equal values, and duplicates, are assembled anew where the buffers differ.

    >>> import sparsejax as sj, numpy as np
    >>> A = sj.array(np.eye(3), format="csr")
    >>> share(sj.array(np.zeros((3, 3)), format="csr"), A).nnz
    3
    """
    return share_p.bind(x, like)


# ----------------------------------------------------------------------------------------------------------- zeros


def _zeros_call(like: Storage, out_aval: Aval, dtype: np.dtype[Any]) -> Storage:
    return Storage(like.format, like.shape, dtype.type(0), like.buffers, np.zeros(len(like.vals), dtype))


zeros_p = Primitive(
    "zeros",
    typing=lambda like, dtype: Aval(like.shape, dtype, like.format, 0),
    reference=lambda like, dtype: np.zeros(np.shape(like), dtype),
    call=_zeros_call,
    jvp=lambda primals, tangents, out, dtype: None,
)


def zeros_like(x: Any, dtype: Any = None) -> Any:
    """Zero for every stored entry of `x`, over fill 0 and the same index buffers; dense zeros for a dense `x`."""
    return zeros_p.bind(x, dtype=np.dtype(x.dtype if dtype is None else dtype))


def zeros(aval: Aval) -> Any:
    """Dense zeros of the shape and dtype of `aval`."""
    return full(aval, 0)


def empty(aval: Aval) -> Any:
    """Zero of the type `aval`: dense, or without an entry."""
    if aval.format.is_dense:
        return convert_format(zeros(aval), aval.format)
    if not sizes.is_known(aval.shape):
        return sizes.empty(aval.shape, aval.dtype, aval.format, aval.fill_value)
    return Array(diagonals.without_entries(aval.shape, aval.dtype, aval.format, aval.fill_value))


def full(aval: Aval, value: Any) -> Any:
    """A dense array of one value, of the shape and dtype of `aval`."""
    scalar = convert_element_type(value, aval.dtype)
    return convert_format(broadcast_to(scalar, aval.shape), Format.parse("dense", aval.ndim))


# ------------------------------------------------------------------------------------------------------------ pull


def aligned(value: Any, ndim: int) -> Factor:
    """A factor with the labels of its axes, broadcast as NumPy does, in a result of `ndim` dimensions labelled from 0."""
    return value, tuple(range(ndim - value.ndim, ndim))


def pull(factors: Sequence[Factor], labels: tuple[int, ...], to: Linear) -> Any:
    """The cotangent of `to`, whose axes are `labels`: the product of the factors, summed over all other labels, at the pattern
    of `to` where it is sparse.

    Axes of extent one that were broadcast are summed; a label that no factor has is broadcast; one that stands twice in
    `labels` (a diagonal) is non-zero on the diagonal only. The dtype is that of `to`: a complex cotangent of a real operand
    gives its real part.
    """
    factors = list(factors)
    extents = _extents(factors)
    free = tuple(k for k, (x, n) in enumerate(zip(labels, to.shape, strict=True)) if n == 1 and extents.get(x, 1) != 1)
    kept = [x for k, x in enumerate(labels) if k not in free]
    shape = [n for k, n in enumerate(to.shape) if k not in free]
    repeated = len(set(kept)) < len(kept)
    mask = to.pattern if to.is_sparse else None
    for axis in reversed(free if to.is_sparse else ()):
        mask = squeeze(mask, axis)
    if len(factors) == 1 and not repeated and set(factors[0][1]) <= set(kept):
        made = _spread(factors[0], kept, shape, mask)
    else:
        made = _contracted(factors, kept, shape, mask)
    if free and mask is not None:
        for axis in free:
            made = expand_dims(made, axis)
        made = keep(made if made.format == to.format else convert_format(made, to.format), to)
    elif free:
        made = keep(reshape(made, to.shape), to)
    return as_dtype(made, to.dtype)


def same_entries(ct: Any, to: Linear) -> Any:
    """The cotangent of a result of the shape of `to` that has its entries, at the pattern of `to`."""
    return keep(ct, to) if to.has_pattern_of_result else as_dtype(settle(ct, to), to.dtype)


def keep(ct: Any, to: Linear) -> Any:
    """A cotangent that has no other entries than `to`: no mask is needed where it has the format already."""
    return as_dtype(ct if not to.is_sparse or ct.format == to.format else settle(ct, to), to.dtype)


def settle(ct: Any, to: Linear) -> Any:
    """A cotangent of the shape of `to`, at its pattern and in its format where it is sparse."""
    return sample(ct, to.pattern) if to.is_sparse else ct


def as_dtype(ct: Any, dtype: np.dtype[Any]) -> Any:
    """A cotangent of an operand of `dtype`: the real part of a complex one for a real operand."""
    made = real(ct) if ct.dtype.kind == "c" and dtype.kind != "c" else ct
    return convert_element_type(made, dtype)


def _extents(factors: Sequence[Factor]) -> dict[int, int]:
    found: dict[int, int] = {}
    for value, labels in factors:
        for label, n in zip(labels, value.shape, strict=True):
            found[label] = n if found.get(label, 1) == 1 else found[label]
    return found


def _spread(factor: Factor, kept: list[int], shape: list[int], mask: Any) -> Any:
    """One factor with its axes in the order of `kept`, broadcast to `shape`, at the pattern of `mask`, if any."""
    value, labels = factor
    order = [x for x in kept if x in labels]
    value = transpose(value, [labels.index(x) for x in order])
    if kept[len(kept) - len(order) :] != order:
        if not value.format.is_dense:
            return _contracted([(value, tuple(order))], kept, shape, mask)
        extent = dict(zip(order, value.shape, strict=True))
        value = reshape(value, [extent.get(x, 1) for x in kept])
    return broadcast_to(value, shape) if mask is None else sample(value, mask)


def _contracted(factors: Sequence[Factor], kept: list[int], shape: list[int], mask: Any) -> Any:
    dtype = np.result_type(*(v.dtype for v, _ in factors))
    operands, inputs = [v for v, _ in factors], [ls for _, ls in factors]
    known = _extents(factors)
    output: list[int] = []
    for label, n in zip(kept, shape, strict=True):
        name = label
        if name in output:
            name = max((*kept, *known, *output)) + 1
            operands.append(sizes.unit((n, n), 0, dtype, CSR))
            inputs.append((label, name))
            known[name] = n
        if known.get(name, 1) != n:
            operands.append(asarray(sizes.filled((n,), 1, dtype)))
            inputs.append((name,))
        elif name not in known:
            operands.append(Array(convert.from_dense(np.ones(1, dtype), Format.parse("dense", 1), 0)))
            inputs.append((name,))
        output.append(name)
    if mask is None:
        return contract(operands, inputs, output, dtype=dtype)
    return contract(operands, inputs, output, mask.format, dtype, mask=mask, filled=True)


# ----------------------------------------------------------------------------------------------------------- fills


def refilled(x: Any, fill: Any = 0) -> Any:
    """`x` over another fill, where it has one."""
    same = x.format.is_dense or structural.same_bits(x.fill_value, x.dtype.type(fill))
    return x if same else refill(x, fill)
