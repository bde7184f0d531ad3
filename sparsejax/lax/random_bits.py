"""Random bits, counter-based: entry `k` of an array in row-major order is a cipher of the key and of `k`, whatever the format, the
loop order or the number of threads. At the pattern of a sparse array only its stored entries are computed.

Source: Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3" (threefry2x32).
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from sparsejax.core.array import Array
from sparsejax.core.avals import Aval
from sparsejax.core.primitive import Primitive, asarray
from sparsejax.core.symbolic import span
from sparsejax.formats import convert, ingest
from sparsejax.formats.storage import Storage
from sparsejax.jit.ir import cin, operators, simplify
from sparsejax.lax import typing_rules as rules
from sparsejax.lax.elementwise import convert_element_type, elementwise
from sparsejax.lax.extents import coordinates, is_known, is_long
from sparsejax.lax.sorting import places
from sparsejax.lax.structural import convert_format

WORD = np.dtype(np.uint64)


def _notation(key: rules.Operand, *rest: rules.Operand, shape: tuple[int, ...], first: int) -> cin.Definition:
    """out[i, j] = masked(stored(like[i, j]), threefry(key, first + rows[i] + columns[j]), 0)

    `rows` and `columns` count the entries before those of a row and a column: vectors, or matrices over the pattern of `like` as well.
    Several keys, or patterns along one more dimension, give as many results, along a last dimension.
    """
    indices = rules.index_vars(len(_whole(shape, *map(rules.shape_of, (key, *rest)))))
    counter: cin.Expr = simplify.literal(WORD.type(first), WORD)
    for axis, numbers in enumerate(rest[: len(shape)]):
        rank = len(rules.shape_of(numbers))
        where = (indices[axis],) if rank == 1 else indices[:rank]
        counter = cin.Call("add", (counter, rules.access(numbers, where)), WORD)
    own = indices[len(shape) :] if rules.shape_of(key) else ()
    made: cin.Expr = cin.Call("threefry", (rules.access(key, own), counter), WORD)
    for like in rest[len(shape) :]:
        inside = cin.Call("stored", (rules.access(like, indices[: len(rules.shape_of(like))]),), np.dtype(np.bool_))
        made = cin.Call("masked", (inside, made, simplify.literal(WORD.type(0), WORD)), WORD)
    return cin.Definition(indices, None, made)


def _whole(shape: tuple[int, ...], key: tuple[int, ...], *rest: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the result: one more dimension where there are several keys or patterns."""
    likes = rest[len(shape) :]
    return (*shape, *(key or (likes[0][len(shape) :] if likes else ())))


def _reference(key: Any, *rest: Any, shape: tuple[int, ...], first: int) -> Any:
    counters = np.arange(math.prod(shape), dtype=WORD).reshape(shape) + WORD.type(first)
    made = operators.get("threefry").numpy(key, counters[..., None] if np.ndim(key) else counters)
    for like in rest[len(shape) :]:
        stored = np.asarray(like) != 0
        if np.ndim(key) and stored.ndim == len(shape):
            stored = stored[..., None]
        made = np.where(stored, made if np.ndim(made) == stored.ndim else made[..., None], WORD.type(0))
    return made


def _typing(*avals: Aval, shape: tuple[int, ...], first: int) -> Aval:
    whole = _whole(shape, *(a.shape for a in avals))
    return rules.infer(_notation, avals, {"shape": shape, "first": first}, whole, WORD).strong()


random_bits_p = Primitive(
    "random_bits",
    typing=_typing,
    reference=_reference,
    notation=_notation,
    extents=rules.of_shape,
    jvp=lambda primals, tangents, out, shape, first: None,
)


def _numbers(shape: tuple[Any, ...], axis: int) -> Any:
    """How many entries there are before those of every coordinate of an axis."""
    count, stride = shape[axis], math.prod(shape[axis + 1 :])
    return _counted(count, stride) if is_known((count, stride)) else coordinates(span(0, count * stride, stride), WORD)


@functools.lru_cache(maxsize=64)
def _counted(count: int, stride: int) -> Array:
    counted = np.arange(count, dtype=WORD)
    return Array(ingest.as_storage(counted if stride == 1 else counted * WORD.type(stride % 2**64)))


def random_bits(key: Any, shape: tuple[int, ...], like: Any = None, first: int = 0) -> Any:
    """64 random bits per entry, as uint64: entry `k` in row-major order is number `first + k` of the stream of `key`.

    With a sparse `like` of that shape, its stored entries only, in its format over fill 0. O(entries + sum of extents), but for axes of more
    than 2^24 coordinates, of which those of the entries are counted alone.
    """
    if like is not None and not like.format.is_dense and any(map(is_long, shape)):
        rows = convert_format(like, "coo")
        strides = [math.prod(shape[axis + 1 :]) % 2**64 for axis in range(len(shape))]
        numbers = [
            elementwise("multiply", convert_element_type(places(rows, axis), WORD), WORD.type(stride))
            for axis, stride in enumerate(strides)
        ]
        return convert_format(random_bits_p.bind(key, *numbers, rows, shape=shape, first=first), like.format)
    operands = [key, *(_numbers(shape, axis) for axis in range(len(shape)))]
    if like is None or like.format.is_dense:
        return random_bits_p.bind(*operands, shape=shape, first=first)
    return convert_format(random_bits_p.bind(*operands, like, shape=shape, first=first), like.format)


# ------------------------------------------------------------------------------------------------------ permutation


def _shuffled(key: Any, count: int) -> Any:
    numbers = np.arange(count, dtype=WORD)
    bits = operators.get("threefry").numpy(key, numbers[:, None] if np.ndim(key) else numbers)
    return np.argsort(bits, axis=0, kind="stable")


def _permutation_call(key: Storage, out_aval: Aval, count: int) -> Storage:
    return convert.from_dense(_shuffled(convert.to_dense(key), count), out_aval.format, 0)


permutation_p = Primitive(
    "permutation",
    typing=lambda key, count: rules.dense((count, *key.shape), np.int64),
    reference=_shuffled,
    call=_permutation_call,
    jvp=lambda primals, tangents, out, count: None,
)


def permutation(key: Any, count: int) -> Any:
    """The numbers 0 to `count` - 1 in random order: those that sort random bits. O(count log count)."""
    return permutation_p.bind(asarray(key), count=count)
