"""Operations of a sparse array and numbers on which the fill of the result depends, at once, on numbers that are new: a program for the values it
stores serves any of them, where one for the array would be another for every number.

before:  B = add A 1.5      A csr over fill 0: another type for every number, so another plan
after:   b = add a 1.5      a the stored values of A, the number an operand
         B                  A's index buffers, the values b, fill 0 + 1.5

The fill of the array is such a number too, where it is not 0: after `A + t`, so are `exp(A + t)` and `(A + t) > 1`. Results have the format that
a plan would give them (that of rows for lil), and hold the fill at positions that are no entries.

A number that comes back often gets the plan of its own: it is called on a shorter road.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.core.array import Array, made
from sparsejax.core.avals import Aval, scalar_aval
from sparsejax.formats import Format, convert, entries
from sparsejax.formats.storage import Storage, dense_template

OFTEN = 128
"""Calls with one number before it gets a plan, which takes as long (4 ms) as 60 to 300 calls gain by it."""
REMEMBERED = 4096
met: dict[Any, int] = {}
"""How often numbers were met, up to that."""
_mapped: dict[Any, Mapped] = {}


class Mapped:
    """A function of a sparse array of one structure and of a number, or of the array alone, entry by entry."""

    __slots__ = ("count", "kind", "out", "params", "place", "primitive")

    def __init__(self, primitive: Any, params: dict[str, Any], kind: Any, out: Aval, place: int, count: int) -> None:
        self.primitive, self.params, self.kind = primitive, params, kind
        self.out = out
        """The type of results, but for extents and the fill: it depends on the number in nothing else."""
        self.place, self.count = place, count
        """Which argument the array is, and of how many."""

    def result(self, args: Sequence[Any], run: Callable[..., Array]) -> Array | None:
        """The result over the index buffers of the array; `run` is the function of the values that it stores. None for arrays whose values are not
        those of their entries, and for numbers that come back. O(stored entries)."""
        place, out = self.place, self.out
        x = args[place]
        storage = x._storage
        fill = storage.fill_value
        key = self.kind, fill.tobytes(), repr(args[1 - place]) if self.count == 2 else None
        times = met.get(key, 0)
        if times >= OFTEN or storage.format.levels[-1].shared:
            return None
        if len(met) > REMEMBERED:
            met.clear()
        met[key] = times + 1
        if storage.format != out.format:
            storage = convert.convert(storage, out.format)
        stored = storage.vals
        changed = list(args)
        changed[place] = _of_stored(stored if stored.ndim == 1 else stored.reshape(-1))
        vals = run(*changed)._storage.vals
        changed[place] = fill
        with np.errstate(all="ignore"):
            fill = self.primitive.reference(*changed, **self.params)
        fill = out.dtype.type(fill)
        if not storage.packed:
            vals = _with_fill(storage, vals, fill)
        made_of = storage.with_values(vals if stored.ndim == 1 else vals.reshape(stored.shape), fill)
        return made(made_of, Aval(x._aval.shape, out.dtype, out.format, fill, out.weak_type))


def _of_stored(values: NDArray[Any]) -> Array:
    """Stored values, to which nobody writes, as a dense array."""
    shape, zero = (len(values),), values.dtype.type(0)
    storage = Storage.dense(dense_template(_VECTOR, shape, zero), values, {})
    return made(storage, Aval.of(shape, values.dtype, _VECTOR, zero))


_VECTOR = Format.parse("dense", 1)


def _with_fill(storage: Storage, vals: NDArray[Any], fill: Any) -> NDArray[Any]:
    """Values at the positions of an array, of which those that are no entries hold the fill, to the last bit."""
    used = entries.used(storage.format, storage.shape, storage.buffers)
    if used is None:
        return vals
    filled = np.full(len(vals), fill, vals.dtype)
    filled[used] = vals[used]
    return filled


def of_values(
    primitive: Any, values: Sequence[Any], params: dict[str, Any], run: Callable[..., Array]
) -> tuple[Array, Mapped] | None:
    """The result of a function of a sparse array and a number, in any order, or of an array alone whose fill is not 0, and what gives others; None
    for other functions, and where `Mapped` gives none."""
    count = len(values)
    place = 0 if isinstance(values[0], Array) else 1
    if count > 2 or place >= count or not isinstance(x := values[place], Array):
        return None
    aval, number = x._aval, type(values[1 - place]) if count == 2 else None
    structure = aval.ndim, aval.dtype, aval.format, aval.weak_type, bool(aval.fill_value)
    kind = primitive, tuple(params.items()), structure, number, place
    mapped = _mapped.get(kind)
    if mapped is None:
        (out,) = primitive.out_avals([v.aval if v is x else scalar_aval(v, is_literal=True) for v in values], params)
        if len(_mapped) > REMEMBERED:
            _mapped.clear()
        mapped = _mapped[kind] = Mapped(primitive, params, kind, out, place, count)
    if mapped.out.format.is_dense:
        return None
    found = mapped.result(values, run)
    return None if found is None else (found, mapped)
