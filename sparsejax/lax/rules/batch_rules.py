"""Batches of every operation: the batch is one more index variable, see `core.batching`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sparsejax.core.array import Array
from sparsejax.core.avals import Aval
from sparsejax.core.batching import Batched, batched_format
from sparsejax.core.primitive import Primitive
from sparsejax.core.symbolic import span
from sparsejax.core.trace import is_python_scalar
from sparsejax.formats import Format, convert
from sparsejax.lax import indexing, linear, random_bits, window_places
from sparsejax.lax.contract import Labels, contract_p
from sparsejax.lax.elementwise import aval_of, cast_p, primitives, unary_p, where_p
from sparsejax.lax.indirect.index_arrays import positions_p
from sparsejax.lax.reduce import reduce_p
from sparsejax.lax.rules import semiring_rules
from sparsejax.lax.rules.batching import aligned, element, faithful, moved, ragged, spread
from sparsejax.lax.semiring import Ring
from sparsejax.lax.structural import (
    broadcast_p,
    convert_format,
    convert_p,
    diagonal_p,
    entries_p,
    expand_dims,
    expand_p,
    pattern,
    pattern_p,
    refill_p,
    reshape,
    reshape_p,
    squeeze_p,
    transpose,
    transpose_p,
    unit_axes_p,
)

Rule = Callable[..., Any]

# ------------------------------------------------------------------------------------------------------- elementwise


def _elementwise(primitive: Primitive) -> Rule:
    """op(x[i,b], y[j,b], z[i,j,0]): operands broadcast as before, the batch being last. Where patterns come in storage orders that do not
    agree, so that dimensions come in their own order, op(x[b,i], y[b,j], z[i,j]): the pattern of each element is below the batch.
    """

    def rule(size: int, *operands: Any, **params: Any) -> Any:
        if any(not is_python_scalar(x) and x.aval.ndim for x in operands):
            operands = _alike([faithful(x) for x in operands], primitive, params)
        last = [aligned(x) for x in operands]
        made = primitive.typing(*(aval_of(x) if is_python_scalar(x) else x.aval for x in last), **params)
        if not made.is_dense or _out_aval(primitive, operands, params).is_dense:
            return primitive.bind(*last, **params)
        most = max(element(x).ndim for x in operands if not is_python_scalar(x))
        return moved(primitive.bind(*(_led(x, most) for x in operands), **params), 0, most)

    return rule


def _led(x: Any, ndim: int) -> Any:
    """The value of an operand as NumPy broadcasts it in a result that has the batch before `ndim` other dimensions."""
    if not isinstance(x, Batched):
        return x
    made = moved(x.value, x.value.ndim - 1, 0)
    for _ in range(ndim - x.aval.ndim):
        made = expand_dims(made, 1)
    return made


def _alike(operands: list[Any], primitive: Primitive, params: dict[str, Any]) -> tuple[Any, ...]:
    """Patterns that elements share, repeated where they are united with patterns that they do not share, since a level holds one
    or the other."""
    mixed = [isinstance(x, Batched) and not x.value.format.is_dense and not x.is_ragged for x in operands]
    if any(mixed) and ragged(operands) and not _out_aval(primitive, operands, params).is_dense:
        return tuple(
            Batched(convert_format(x.value, batched_format(x.aval.format, True)), x.aval) if mix else x
            for x, mix in zip(operands, mixed, strict=True)
        )
    return tuple(operands)


def _out_aval(primitive: Primitive, operands: Sequence[Any], params: dict[str, Any]) -> Aval:
    """The type of the result for one element."""
    avals = [aval_of(x) if is_python_scalar(x) else element(x) for x in operands]
    made: Aval = primitive.typing(*avals, **params)
    return made


for _primitive in (*primitives.values(), cast_p, where_p, unary_p):
    _primitive.batch = _elementwise(_primitive)

# ------------------------------------------------------------------------------------------------------ contractions


def _more(operands: Sequence[Any], inputs: Sequence[Labels], batch: int) -> tuple[Labels, ...]:
    return tuple((*ls, batch) if isinstance(x, Batched) else tuple(ls) for x, ls in zip(operands, inputs, strict=False))


def _contract(
    size: int,
    *operands: Any,
    inputs: tuple[Labels, ...],
    output: Labels,
    dtype: Any,
    out_format: Format | None,
    ring: Ring | None = None,
    mask: str | None = None,
) -> Any:
    """out[o, b] = sum A[a, b] * B[c]: one more label."""
    count = len(inputs)
    params: dict[str, Any] = {"dtype": dtype, "out_format": out_format}
    params |= {} if ring is None else {"ring": ring}
    params |= {} if mask is None else {"mask": mask}
    operands = tuple(faithful(x) for x in operands)
    single = _out_aval(contract_p, operands, {"inputs": inputs, "output": output, **params})
    outermost = _is_outermost(operands, inputs, output)
    if not outermost and any(not element(x).is_dense for x in operands):
        walked = {x for o, ls in zip(operands, inputs, strict=False) if not element(o).is_dense for x in ls}
        other = {*output, *walked}
        dots = [_contiguous(x, ls) not in other for x, ls in zip(operands, inputs, strict=False)]
        operands = tuple(x if k < count and dots[k] else _in_lanes(x) for k, x in enumerate(operands))
    form = batched_format(single.format, outermost if single.is_dense else ragged(operands))
    batch = _unused(*inputs, output)
    labels = _more(operands, inputs, batch)
    values = [x.value if isinstance(x, Batched) else x for x in operands[:count]]
    if not any(batch in ls for ls in labels):  # the mask alone is batched
        if ring is None:
            ones = Array(convert.from_dense(np.ones(size, dtype), Format.parse("dense", 1), 0))
            values, labels = [*values, ones], (*labels, (batch,))
        else:
            values[0], labels = spread(values[0], size), ((*labels[0], batch), *labels[1:])
    values += [aligned(x) for x in operands[count:]]
    return contract_p.bind(*values, **{**params, "inputs": labels, "output": (*output, batch), "out_format": form})


def _is_outermost(operands: Sequence[Any], inputs: Sequence[Labels], output: Labels) -> bool:
    """Whether the batch is the outermost loop: where elements have patterns of their own, and where another dense variable of the
    result fills the lanes already, unless dense operands have the batch innermost."""
    if ragged(operands):
        return True
    stored = [x.value.format for x in operands if isinstance(x, Batched) and x.value.format.is_dense]
    if any(form.order[-1] == form.ndim - 1 for form in stored):
        return False
    walked = [ls for x, ls in zip(operands, inputs, strict=False) if not element(x).is_dense]
    return not walked or any(all(label not in ls for ls in walked) for label in output)


def _contiguous(x: Any, labels: Labels) -> int:
    """The label along which an operand is contiguous in memory: where that is a dense one that is summed, it fills the lanes. The batch is -1."""
    return (*labels, -1)[x.value.format.order[-1]] if isinstance(x, Batched) else -1


def _in_lanes(x: Any) -> Any:
    """A dense operand with the batch innermost in memory: a copy where it was not, which is read once per stored entry."""
    if isinstance(x, Batched) and x.value.format.is_dense:
        return Batched(convert_format(x.value, batched_format(x.aval.format, False)), x.aval)
    return x


contract_p.batch = _contract


def _unused(*labels: Labels) -> int:
    """A label that none of these are."""
    return max((x for ls in labels for x in ls), default=-1) + 1


def _first(size: int, *operands: Any, inputs: tuple[Labels, ...], output: Labels, summed: Labels, **params: Any) -> Any:
    count = len(inputs)
    batch = _unused(*inputs, output)
    best = operands[count]
    if not any(isinstance(x, Batched) for x in operands[:count]):
        operands = (Batched(spread(operands[0], size), element(operands[0])), *operands[1:])
    values = [x.value if isinstance(x, Batched) else x for x in map(faithful, operands)]
    values[count] = spread(faithful(best), size)
    labels = _more(operands, inputs, batch)
    return semiring_rules.first_p.bind(*values, inputs=labels, output=(*output, batch), summed=summed, **params)


semiring_rules.first_p.batch = _first


def _pick(size: int, *operands: Any, **params: Any) -> Any:
    inputs, moving, chosen, output = (params[k] for k in ("inputs", "moving", "chosen", "output"))
    count = len(inputs)
    masked, form = params["masked"], params["format"]
    batch = _unused(moving, *inputs, output)
    operands = tuple(faithful(x) for x in operands)
    if not any(isinstance(x, Batched) for x in operands[: count + 1]):
        operands = (Batched(spread(operands[0], size), element(operands[0])), *operands[1:])
    values = [x.value if isinstance(x, Batched) else x for x in operands]
    if masked and not isinstance(operands[-1], Batched):
        values[-1] = spread(operands[-1], size)
    if chosen is not None and isinstance(operands[count + 1], Batched):
        chosen = (*chosen, batch)
    labels = _more(operands[: count + 1], (moving, *inputs), batch)
    changed = {
        **params,
        "moving": labels[0],
        "inputs": labels[1:],
        "chosen": chosen,
        "output": (*output, batch),
        "format": None if form is None else batched_format(form, ragged(operands)),
    }
    return semiring_rules.pick_p.bind(*values, **changed)


semiring_rules.pick_p.batch = _pick

# --------------------------------------------------------------------------------------------------------- structure


def _unary(primitive: Primitive) -> Rule:
    """Operations that mean the same with one more dimension behind the others."""

    def rule(size: int, x: Batched, **params: Any) -> Any:
        return primitive.bind(faithful(x).value, **params)

    return rule


for _primitive in (refill_p, pattern_p, linear.zeros_p, expand_p, squeeze_p):
    _primitive.batch = _unary(_primitive)


def _reduce(size: int, x: Batched, kind: str, axes: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """A sum of which an element is dense is dense at once."""
    value, params = faithful(x).value, {"kind": kind, "axes": axes, "dtype": dtype}
    single: Aval = reduce_p.typing(x.aval, **params)
    if kind == "sum" and single.is_dense and not value.format.is_dense:
        labels = tuple(range(value.ndim))
        kept = tuple(k for k in labels if k not in axes)
        form = batched_format(single.format, x.is_ragged)
        return contract_p.bind(value, inputs=(labels,), output=kept, dtype=dtype, out_format=form)
    return reduce_p.bind(value, **params)


reduce_p.batch = _reduce
transpose_p.batch = lambda size, x, axes: transpose(x.value, (*axes, len(axes)))


def _reshape(size: int, x: Batched, shape: tuple[int, ...], format: Format) -> Any:
    value = faithful(x)
    form = batched_format(format, value.is_ragged)
    return reshape_p.bind(value.value, shape=(*shape, size), format=form)


reshape_p.batch = _reshape
unit_axes_p.batch = lambda size, x, shape: reshape(faithful(x).value, (*shape, size))


def _diagonal(size: int, x: Batched, offset: int, axis1: int, axis2: int) -> Any:
    made = diagonal_p.bind(x.value, offset=offset, axis1=axis1, axis2=axis2)
    return transpose(made, [*range(made.ndim - 2), made.ndim - 1, made.ndim - 2])


diagonal_p.batch = _diagonal
broadcast_p.batch = lambda size, x, shape: broadcast_p.bind(faithful(x).value, shape=(*shape, size))


def _convert(size: int, x: Batched, format: Format) -> Any:
    """Elements that become sparse have patterns of their own."""
    value = faithful(x)
    own = value.is_ragged or (value.value.format.is_dense and not format.is_dense)
    return convert_format(value.value, batched_format(format, own))


convert_p.batch = _convert


def _entries(size: int, x: Batched) -> Any:
    ones = pattern(faithful(x).value, np.int64)
    params: dict[str, Any] = {"inputs": (tuple(range(ones.ndim)),), "output": (ones.ndim - 1,)}
    return contract_p.bind(ones, dtype=np.dtype(np.int64), out_format=Format.parse("dense", 1), **params)


entries_p.batch = _entries

# ------------------------------------------------------------------------------------- restriction to other patterns


def _sample(size: int, x: Any, like: Any) -> Any:
    """One walk of a pattern that elements share: a contraction under its mask."""
    like = faithful(like)
    if isinstance(like, Batched):
        return linear.sample(aligned(faithful(x)), like.value)
    value = broadcast_p.bind(faithful(x).value, shape=(*like.shape, size))
    if like.format.is_dense:
        return value
    labels = tuple(range(value.ndim))
    form = batched_format(like.format, False)
    params: dict[str, Any] = {"inputs": (labels,), "output": labels, "dtype": value.dtype, "out_format": form}
    return contract_p.bind(value, aligned(like), mask="mask", **params)


linear.sample_p.batch = _sample


def _share(size: int, x: Any, like: Any) -> Any:
    return linear.share_p.bind(spread(faithful(x), size), spread(faithful(like), size))


linear.share_p.batch = _share

# ----------------------------------------------------------------------------------------------------------- indexing


def _window(size: int, x: Batched, ranges: tuple[range, ...], axes: tuple[int, ...]) -> Any:
    return indexing.window_p.bind(faithful(x).value, ranges=(*ranges, span(0, size)), axes=axes)


indexing.window_p.batch = _window


def _window_places(size: int, like: Any, values: Any, ranges: tuple[range, ...], axes: tuple[int, ...]) -> Any:
    own, entries = spread(faithful(like), size), spread(faithful(values), size)
    return window_places.window_places(own, entries, (*ranges, span(0, size)), axes)


window_places.window_places_p.batch = _window_places


def _pad(size: int, *parts: Any, shape: tuple[int, ...], places: tuple[indexing.Place, ...]) -> Any:
    values = [spread(faithful(x), size) for x in parts]
    return indexing.pad_p.bind(*values, shape=(*shape, size), places=tuple((*place, None) for place in places))


indexing.pad_p.batch = _pad


def _select(size: int, index: Batched, **params: Any) -> Any:
    made = indexing.select_p.bind(faithful(index).value, **params)
    return transpose(made, [*range(made.ndim - 2), made.ndim - 1, made.ndim - 2])


indexing.select_p.batch = _select


def _positions(size: int, index: Batched, **params: Any) -> Any:
    made = positions_p.bind(faithful(index).value, **params)
    return transpose(made, [*range(made.ndim - 2), made.ndim - 1, made.ndim - 2])


positions_p.batch = _positions


def _concatenate(size: int, *xs: Any, axis: int) -> Any:
    """Parts in one format where those of an element are."""
    values = [spread(faithful(x), size) for x in xs]
    forms = {element(x).format for x in xs}
    if len(forms) == 1 and not values[0].format.is_dense and len({v.format for v in values}) > 1:
        form = batched_format(forms.pop(), ragged(xs))
        values = [convert_format(v, form) for v in values]
    return indexing.concatenate_p.bind(*values, axis=axis)


indexing.concatenate_p.batch = _concatenate


# ----------------------------------------------------------------------------------------------------- random numbers


def _random_bits(size: int, *operands: Any, shape: tuple[int, ...], first: int) -> Any:
    """Each element draws from its own key, or draws the same numbers at its own pattern."""
    values = [x.value if isinstance(x, Batched) else x for x in map(faithful, operands)]
    return random_bits.random_bits_p.bind(*values, shape=shape, first=first)


random_bits.random_bits_p.batch = _random_bits
random_bits.permutation_p.batch = lambda size, key, count: random_bits.permutation_p.bind(
    faithful(key).value, count=count
)
