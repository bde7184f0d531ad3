"""Contractions: einsum over any number of operands in any formats."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsejax import dtypes
from sparsejax.core import trace
from sparsejax.core.again import again
from sparsejax.core.array import Array
from sparsejax.core.avals import Aval
from sparsejax.core.primitive import Primitive, as_operand
from sparsejax.core.symbolic import hint
from sparsejax.formats import Format, convert
from sparsejax.formats.storage import Storage
from sparsejax.jit.ir import cin, operators, simplify, static_products
from sparsejax.lax import implicit, path
from sparsejax.lax import subscripts as subscripts_of
from sparsejax.lax import typing_rules as rules
from sparsejax.lax.elementwise import elementwise
from sparsejax.lax.rules import dense_products
from sparsejax.lax.semiring import Ring, Semiring, ring_of, semiring_of
from sparsejax.lax.structural import convert_format, integer, normal_axes, reshape

Labels = tuple[int, ...]
NARROW, MANY = 1 << 18, 1 << 21
"""A product of dense operands is a kernel where the second has at most so many bytes, and it takes so many multiplications. OpenBLAS
0.3.30 on one Zen 4 core, 1,024 to 65,536 rows, second operands of 16 x 16 to 256 x 256 doubles: 10 to 45 Gflop/s against 33 to 68, 1.2
times as fast with the largest, 2 to 3 times with 32 x 32 (`python -m benchmarks.narrow`). With fewer multiplications nobody would notice."""
BOOL: np.dtype[Any] = np.dtype(np.bool_)


def extents_of(shapes: Sequence[tuple[int, ...]], inputs: Sequence[Labels]) -> dict[int, int]:
    """The extent of every label; an axis of extent one is broadcast. ValueError where two axes disagree."""
    found: dict[int, tuple[int, int, int]] = {}
    for k, (shape, labels) in enumerate(zip(shapes, inputs, strict=True)):
        if len(shape) != len(labels):
            raise ValueError(f"operand {k} has {len(shape)} dimensions, but its subscripts name {len(labels)}")
        for axis, (extent, label) in enumerate(zip(shape, labels, strict=True)):
            known = found.get(label)
            if known is None or known[0] == 1:
                found[label] = (extent, k, axis)
            elif extent not in (1, known[0]):
                raise ValueError(
                    f"operand {k} has extent {extent} on axis {axis}, but operand {known[1]} has extent {known[0]} on axis "
                    f"{known[2]} for the same subscript; the extents must be equal"
                )
    return {label: extent for label, (extent, _, _) in found.items()}


def _notation(
    *operands: rules.Operand,
    inputs: tuple[Labels, ...],
    output: Labels,
    dtype: Any,
    out_format: Any,
    ring: Ring | None = None,
    mask: str | None = None,
) -> cin.Definition:
    """out[o] add= masked(mask[o], mul(A[..], B[..], ...), zero); sparse operands read the ring's zero where nothing is stored."""
    count = len(inputs)
    extents = extents_of([rules.shape_of(o) for o in operands[:count]], inputs)
    used = ring or arithmetic(dtype)
    zero = simplify.literal(used.zero, dtype, absent=True)
    factors: list[cin.Expr] = []
    for operand, labels in zip(operands[:count], inputs, strict=True):
        picked: list[cin.Index] = []
        for extent, label in zip(rules.shape_of(operand), labels, strict=True):
            picked.append(0 if extent == 1 and extents[label] != 1 else cin.IndexVar(f"i{label}"))
        factors.append(factor_of(rules.access(operand, picked), dtype, zero if ring else None))
    product = functools.reduce(lambda a, b: cin.Call(used.mul, (a, b), dtype), factors)
    indices = tuple(cin.IndexVar(f"i{label}") for label in output)
    if mask is not None:
        shape = tuple(extents[label] for label in output)
        condition = _condition(rules.aligned(operands[count], indices, shape), mask)
        product = cin.Call("masked", (condition, product, zero), dtype)
    return cin.Definition(indices, used.add if set(extents) - set(output) else None, product)


def arithmetic(dtype: Any) -> Ring:
    """What NumPy's einsum multiplies and adds with."""
    multiply, add = ("logical_and", "logical_or") if dtype == np.bool_ else ("multiply", "add")
    return Ring(add, multiply, np.dtype(dtype).type(0))


def factor_of(expr: cin.Expr, dtype: Any, zero: cin.Literal | None) -> cin.Expr:
    """An operand as `dtype`; in a semiring, `zero` where nothing is stored, whatever its fill."""
    made = rules.cast(expr, dtype)
    if zero is None or not isinstance(expr, cin.Access) or expr.tensor.format.is_dense:
        return made
    if simplify.exhaust(made, {expr}) == zero:
        return made
    return cin.Call("masked", (cin.Call("stored", (expr,), BOOL), made, zero), dtype)


def _condition(expr: cin.Expr, mask: str) -> cin.Expr:
    """Where a result may have entries: the pattern of a sparse mask, the true entries of a dense one, or the complement."""
    sparse = isinstance(expr, cin.Access) and not expr.tensor.format.is_dense
    inside = cin.Call("stored", (expr,), BOOL) if sparse else rules.cast(expr, BOOL)
    return cin.Call("logical_not", (inside,), BOOL) if mask == "complement" else inside


@rules.once
def _typing(
    *avals: Aval,
    inputs: tuple[Labels, ...],
    output: Labels,
    dtype: Any,
    out_format: Any,
    ring: Ring | None = None,
    mask: str | None = None,
) -> Aval:
    extents = extents_of([a.shape for a in avals[: len(inputs)]], inputs)
    shape = tuple(extents[label] for label in output)
    params = {"inputs": inputs, "output": output, "dtype": dtype, "out_format": out_format, "ring": ring, "mask": mask}
    made = rules.infer(_notation, avals, params, shape, dtype).strong()
    zero = 0 if ring is None or (out_format is not None and out_format.is_dense) else ring.zero
    return made if out_format is None else Aval(shape, dtype, out_format, zero)


def _reference(
    *args: Any,
    inputs: tuple[Labels, ...],
    output: Labels,
    dtype: Any,
    out_format: Any,
    ring: Ring | None = None,
    mask: str | None = None,
) -> Any:
    """On dense arrays a mask holds where it is not zero, and a semiring's zero is an absent entry."""
    arrays = [np.asarray(a).astype(dtype) for a in args[: len(inputs)]]
    if ring is None and mask is None:
        return np.einsum(*_numpy_operands(arrays, inputs, output))
    used = ring or arithmetic(dtype)
    extents = extents_of([a.shape for a in arrays], inputs)
    summed = [label for label in extents if label not in output]
    space = dict(
        zip((*output, *summed), np.indices([extents[x] for x in (*output, *summed)], sparse=True), strict=True)
    )
    factors = [
        a[tuple(space[x] * (n != 1) for x, n in zip(ls, a.shape, strict=True))]
        for a, ls in zip(arrays, inputs, strict=True)
    ]
    made = functools.reduce(operators.get(used.mul).numpy, factors)
    made = np.broadcast_to(made, [extents[x] for x in (*output, *summed)]).reshape(*(extents[x] for x in output), -1)
    total = np.full(made.shape[:-1], used.zero, dtype)
    for k in range(made.shape[-1]):
        total = operators.get(used.add).numpy(total, made[..., k])
    if mask is None:
        return total
    inside = np.asarray(args[-1]) != 0
    return np.where(inside if mask == "mask" else ~inside, total, used.zero).astype(dtype)


def _call(*args: Storage, out_aval: Aval, inputs: tuple[Labels, ...], output: Labels, dtype: Any, **_: Any) -> Storage:
    dense = [convert.to_dense(a).astype(dtype, copy=False) for a in args]
    product = dense_products.numpy_product(tuple(a.shape for a in dense), inputs, output, dtype)
    if product is not None:
        made = product(*dense)
    else:
        made = np.einsum(*_numpy_operands(dense, inputs, output), optimize=len(args) > 1)
    return convert.from_dense(np.array(made, dtype, copy=None), out_aval.format, out_aval.fill_value)


def _numpy_operands(args: Sequence[Any], inputs: tuple[Labels, ...], output: Labels) -> list[Any]:
    """Operands in NumPy's interleaved form, labels renumbered from zero."""
    number = {label: k for k, label in enumerate(dict.fromkeys(x for labels in inputs for x in labels))}
    made: list[Any] = []
    for arg, labels in zip(args, inputs, strict=True):
        made += [arg, [number[x] for x in labels]]
    return [*made, [number[x] for x in output]]


def _on_numpy(*avals: Aval, inputs: tuple[Labels, ...], output: Labels, dtype: Any, **_: Any) -> Any:
    """A product that one function of NumPy's takes as it is."""
    same = all(a.dtype == dtype for a in avals)
    return dense_products.numpy_product(tuple(a.shape for a in avals), inputs, output, dtype) if same else None


def _for_blas(
    *avals: Aval,
    inputs: tuple[Labels, ...],
    output: Labels,
    dtype: Any,
    ring: Ring | None = None,
    mask: str | None = None,
    **params: Any,
) -> bool:
    """Whether a library computes this: a product of dense operands that is not tall and narrow."""
    dense = ring is None and mask is None and all(a.format.is_dense for a in avals)
    return dense and not _is_narrow(avals, inputs, output, dtype)


def _is_narrow(avals: Sequence[Aval], inputs: tuple[Labels, ...], output: Labels, dtype: Any) -> bool:
    """Whether rows of the first operand meet a second one that stays in the cache, and are many enough for a kernel of their own."""
    if len(avals) != 2 or dtype.kind not in "fiu" or any(len(set(ls)) < len(ls) for ls in (*inputs, output)):
        return False
    (tall, small), extents = inputs, extents_of([a.shape for a in avals], inputs)
    if any(a.shape[k] != extents[x] for a, ls in zip(avals, inputs, strict=True) for k, x in enumerate(ls)):
        return False
    summed, own = set(tall) & set(small), set(small) - set(tall)
    if len(own) != 1 or not summed or summed & set(output) or output[-1:] != small[-1:] or not own <= {small[-1]}:
        return False
    multiplications = math.prod(extents.values())
    return avals[1].size * dtype.itemsize <= NARROW and multiplications >= MANY and set(tall) - summed < set(output)


def _describe(
    inputs: tuple[Labels, ...],
    output: Labels,
    dtype: Any,
    out_format: Any,
    ring: Ring | None = None,
    mask: str | None = None,
) -> str:
    letters = "ijklmnopqrstuvwxyzabcdefghABCDEFGHIJKLMNOPQRSTUVWXYZ"
    labels = dict.fromkeys(x for ls in (*inputs, output) for x in ls)
    names = {label: letters[k % len(letters)] for k, label in enumerate(labels)}
    terms = ["".join(names[x] for x in ls) for ls in (*inputs, output)]
    pinned = "" if out_format is None else f" out_format={out_format}"
    pinned += "" if ring is None else f" semiring={ring}"
    pinned += "" if mask is None else f" mask={mask}"
    return f"{','.join(terms[:-1])}->{terms[-1]}{pinned}"


contract_p = Primitive(
    "contract",
    typing=_typing,
    reference=_reference,
    notation=_notation,
    call=_call,
    prefers_call=_for_blas,
    on_numpy=_on_numpy,
    describe=_describe,
)


def contract(
    operands: Sequence[Any],
    inputs: Sequence[Sequence[int]],
    output: Sequence[int],
    out_format: str | Format | None = None,
    dtype: Any = None,
    semiring: str | Semiring | None = None,
    mask: Any = None,
    complement: bool = False,
    filled: bool = False,
) -> Any:
    """Multiply operands entry by entry and sum over every label that is not in `output`.

    `inputs` holds one integer label per axis of each operand. Labels may repeat inside an operand (diagonals) and be
    shared by any number of operands. Sparse operands compile to one kernel that visits only coordinates where the
    product can be non-zero; products of dense operands go to BLAS. `semiring`, `mask` and `complement` as in `einsum`. A `filled` result may
    store every entry of its mask, zeros where nothing contributes.
    """
    arrays = [as_operand(x, f"operand {k}") for k, x in enumerate(operands)]
    labels = tuple(tuple(map(int, ls)) for ls in inputs)
    out = tuple(map(int, output))
    chosen = None if semiring is None else semiring_of(semiring)
    wanted = _wanted(arrays, dtype, chosen)
    extents = extents_of([a.shape for a in arrays], labels)
    for label in out:
        if label not in extents:
            raise ValueError(
                "einstein sum subscripts string included output subscript which never appeared in an input"
            )
    form = None if out_format is None else Format.parse(out_format, len(out))
    params: dict[str, Any] = {"inputs": labels, "output": out, "dtype": wanted, "out_format": form}
    if chosen is not None:
        params["ring"] = ring_of(chosen, wanted)
    if mask is not None:
        arrays.append(_mask(mask, tuple(extents[label] for label in out)))
        params["mask"] = "complement" if complement else "pattern" if filled else "mask"
    elif complement:
        raise ValueError("complement=True needs a mask")
    elif chosen is None and len(arrays) > 1 and (tracing := trace.current()) is not None and tracing.eqns:
        found = implicit.terms(tracing, arrays, labels, out)
        if found is not None:
            return _apart(arrays, labels, out, form, wanted, *found)
    return contract_p.bind(*arrays, **params)


def _apart(
    arrays: Sequence[Any],
    labels: Sequence[Sequence[int]],
    out: tuple[int, ...],
    form: Any,
    dtype: Any,
    place: int,
    *terms: Any,
) -> Any:
    """The contraction of a sum, term by term; see `implicit`."""
    made: list[Any] = []
    for value, own, _ in terms:
        value = value if value.ndim == len(own) else reshape(value, [n for n in value.shape if n != 1])
        operands, inputs = [*arrays], [*labels]
        operands[place], inputs[place] = value, own
        known = {label for ls in inputs for label in ls}
        part = contract(operands, inputs, [x for x in out if x in known], dtype=dtype)
        sizes = iter(part.shape)
        made.append(reshape(part, [next(sizes) if x in known else 1 for x in out]))
    first, second = (elementwise("negative", x) if minus else x for x, (_, _, minus) in zip(made, terms, strict=True))
    total = elementwise("add", first, second)
    return total if form is None else convert_format(total, form)


def _wanted(arrays: Sequence[Any], dtype: Any, semiring: Semiring | None) -> np.dtype[Any]:
    """The dtype that a contraction computes in: NumPy's promotion; bool in a logical semiring; int64 for other semirings of
    booleans, which count or compare."""
    if dtype is not None:
        return dtypes.canonical(dtype)
    if semiring is not None and semiring.is_logical:
        return BOOL
    made = dtypes.result_type(*((a.dtype, a.aval.weak_type) for a in arrays))
    arithmetic = semiring is None or (semiring.add, semiring.mul) == ("add", "multiply")
    return made if arithmetic or made != np.bool_ else np.dtype(np.int64)


def _mask(mask: Any, shape: tuple[int, ...]) -> Any:
    made = as_operand(mask, "the mask")
    if made.ndim > len(shape) or any(n not in (1, m) for n, m in zip(made.shape[::-1], shape[::-1], strict=False)):
        raise ValueError(f"the mask has shape {made.shape}, which does not broadcast to the result's shape {shape}")
    return made


def einsum(
    subscripts: Any,
    *operands: Any,
    out_format: str | Format | None = None,
    semiring: str | Semiring | None = None,
    mask: Any = None,
    complement: bool = False,
    optimize: Any = "auto",
    dtype: Any = None,
) -> Array:
    """NumPy's einsum over arrays in any formats, over any semiring, under a mask.

    Takes everything that `numpy.einsum` takes as subscripts: implicit output, ellipses, repeated subscripts, spaces,
    and the interleaved form `einsum(A, [0, 1], B, [1, 2], [0, 2])`. The result's format follows from the operands' types
    (see docs/guide/formats.md); `out_format` pins it. `optimize=False` forces one kernel over all operands at once.

    `semiring` (a name such as "min_plus", or a `sparsejax.Semiring`) says what to multiply and add with. An entry that a sparse
    operand does not store is the semiring's zero then, whatever the operand's fill; what it stores, and every entry of a dense
    operand, is a value. Where nothing contributes the result is the semiring's zero, which is also the fill of a sparse one.

    `mask` limits the entries of the result: a sparse mask to the entries that it stores, whatever their values, a dense one to
    where it is true; with `complement=True` to all others. Masked entries are never computed. The mask broadcasts to the result.

    Raises ValueError for malformed subscripts or extents that disagree, naming operand and axis.

    >>> import sparsejax as sj, numpy as np
    >>> A = sj.array(np.eye(3), format="csr")
    >>> einsum("ij,j->i", A, np.arange(3.0))
    Array([0., 1., 2.], dtype=float64)
    >>> einsum("ij,j->i", A, np.arange(3.0), semiring="min_plus", mask=np.array([True, False, True]))
    Array([ 1., inf,  3.], dtype=float64)
    """
    if isinstance(subscripts, str):
        arrays = [as_operand(x, f"operand {k}") for k, x in enumerate(operands)]
        inputs, output = subscripts_of.parsed(subscripts, [a.ndim for a in arrays])
    else:
        arrays, inputs, output = subscripts_of.interleaved([subscripts, *operands])
    plain = semiring is None and mask is None and not complement
    if plain and optimize is not False and not all(a.format.is_dense for a in arrays):
        return _along(arrays, inputs, output, out_format, dtype)
    return contract(arrays, inputs, output, out_format, dtype, semiring, mask, complement)


def _along(arrays: list[Any], inputs: list[Labels], output: Labels, out_format: Any, dtype: Any) -> Any:
    """Contract along the cheapest path; the result has the type that one contraction of all operands gives it."""
    wanted = _wanted(arrays, dtype, None)
    extents = extents_of([a.shape for a in arrays], inputs)
    broadcast = any(a.shape[k] != extents[x] for a, ls in zip(arrays, inputs, strict=True) for k, x in enumerate(ls))
    if broadcast or any(label not in extents for label in output):
        return contract(arrays, inputs, output, out_format, wanted)
    if _written_out(arrays, inputs, output, out_format, wanted):
        return contract(arrays, inputs, output, out_format, wanted)
    at_once = trace.current() is None and not any(a.format.blocked for a in arrays)
    about = _rounded if at_once else hint  # a trace is of one shape, or for many
    steps = path.plan(tuple(a.aval.resized(about) for a in arrays), tuple(inputs), output, _typing_for(wanted))
    if len(steps) == 1:
        return contract(arrays, inputs, output, out_format, wanted)
    left = list(zip(arrays, inputs, strict=True))
    for step in steps[:-1]:
        chosen = [left[k] for k in step]
        left = [x for k, x in enumerate(left) if k not in step]
        needed = {*output, *(x for _, ls in left for x in ls)}
        kept = tuple(dict.fromkeys(x for _, ls in chosen for x in ls if x in needed))
        left.append((contract([a for a, _ in chosen], [ls for _, ls in chosen], kept, None, wanted), kept))
    if out_format is None:
        typing = _typing_for(wanted)
        # extents that become others do so in all operands alike: none that stays, in blocks or not known, meets one
        stays = any(a.format.blocked or any(type(n) is not int for n in a.shape) for a in arrays)
        kinds = [[a.aval if stays else rules.alike(a.aval) for a in those] for those in (arrays, [a for a, _ in left])]
        whole = typing(tuple(kinds[0]), tuple(inputs), output).format
        if whole != typing(tuple(kinds[1]), tuple(ls for _, ls in left), output).format:
            out_format = whole
    return contract([a for a, _ in left], [ls for _, ls in left], output, out_format, wanted)


def _rounded(extent: Any) -> int:
    """About this extent, a power of two but for 0: what a path depends on, so that one serves many shapes. None of the others becomes 1."""
    known = hint(extent)
    return known if known < 2 else 1 << (known - 1).bit_length()


def _written_out(
    arrays: Sequence[Any], inputs: Sequence[Labels], output: Labels, out_format: Any, dtype: np.dtype[Any]
) -> bool:
    """Whether one of the operands is a constant of a program that is traced, whose entries are worth code of their own: contracting it with
    another one first would hide it."""
    if out_format is not None or trace.current() is None:
        return False
    held = {f"x{k}": a.storage for k, a in enumerate(arrays) if isinstance(a, Array) and not a.format.is_dense}
    if not held:
        return False
    tensors = [cin.Tensor(f"x{k}", a.shape, a.dtype, a.format, a.fill_value) for k, a in enumerate(arrays)]
    made = _notation(*tensors, inputs=tuple(inputs), output=output, dtype=dtype, out_format=None)
    return static_products.worth(made, [extents_of([a.shape for a in arrays], inputs)[x] for x in output], held)


@functools.cache
def _typing_for(dtype: np.dtype[Any]) -> path.Typing:
    """The type of a plain contraction in `dtype`."""

    def typing(avals: tuple[Aval, ...], inputs: tuple[Labels, ...], output: Labels) -> Aval:
        return _typing(*avals, inputs=inputs, output=output, dtype=dtype, out_format=None)

    return typing


@again(2)
def matmul(
    a: Any, b: Any, *, semiring: str | Semiring | None = None, mask: Any = None, complement: bool = False
) -> Array:
    """NumPy's matmul: vectors are promoted, leading dimensions broadcast. Semirings and masks as in `einsum`."""
    a, b = as_operand(a, "the first operand of matmul"), as_operand(b, "the second operand of matmul")
    if not a.ndim or not b.ndim:
        raise ValueError("matmul: Input operand does not have enough dimensions (scalars are multiplied with *)")
    inner = a.shape[-1], b.shape[-2 if b.ndim > 1 else 0]
    if inner[0] != inner[1]:
        raise ValueError(
            f"matmul: the inner dimensions of shapes {a.shape} and {b.shape} differ: {inner[0]} is not {inner[1]}"
        )
    batch_a, batch_b = a.ndim - 2, b.ndim - 2
    left = [*range(-max(batch_a, 0), 0), *([1] if a.ndim > 1 else []), 2]
    right = [*range(-max(batch_b, 0), 0), 2, *([3] if b.ndim > 1 else [])]
    batch = range(-max(batch_a, batch_b, 0), 0)
    output = [*batch, *([1] if a.ndim > 1 else []), *([3] if b.ndim > 1 else [])]
    return contract([a, b], [left, right], output, semiring=semiring, mask=mask, complement=complement)


def tensordot(a: Any, b: Any, axes: Any = 2) -> Array:
    """NumPy's tensordot: sum over pairs of axes, or over the last `axes` axes of `a` and the first of `b`."""
    a, b = as_operand(a, "the first operand of tensordot"), as_operand(b, "the second operand of tensordot")
    if not np.iterable(axes):
        count = integer(axes, "axes")
        if not 0 <= count <= min(a.ndim, b.ndim):
            raise ValueError(f"axes={count} axes of operands of shapes {a.shape} and {b.shape} cannot be summed over")
        pairs = [(a.ndim - count + k, k) for k in range(count)]
    else:
        listed = [tuple(x) if np.iterable(x) else x for x in axes]
        first, second = (normal_axes(x, y.ndim, "axes") for x, y in zip(listed, (a, b), strict=True))
        if len(first) != len(second):
            raise ValueError(
                f"axes={axes} names {len(first)} axes of the first operand and {len(second)} of the second"
            )
        pairs = list(zip(first, second, strict=True))
    left, right = list(range(a.ndim)), list(range(a.ndim, a.ndim + b.ndim))
    for p, q in pairs:
        if a.shape[p] != b.shape[q]:
            raise ValueError(
                f"shape-mismatch for sum: axis {p} of the first operand has extent {a.shape[p]}, axis {q} of the second {b.shape[q]}"
            )
        right[q] = left[p]
    summed = {left[p] for p, _ in pairs}
    return contract([a, b], [left, right], [x for x in (*left, *right) if x not in summed])
