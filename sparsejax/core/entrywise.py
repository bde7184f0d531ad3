"""Operations of a sparse array and numbers on which its fill depends, at once, on numbers that are new: a program for the values it stores serves
any of them, where one for the array would be another for every number.

before:  B = add A 1.5      A csr over fill 0: another type for every number, so another plan
after:   b = add a 1.5      a the stored values of A, the number an operand
         B                  A's index buffers, the values b, fill 0 + 1.5

A number that comes back often gets the plan of its own: it is called on a shorter road.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sparsejax.core.array import Array, made
from sparsejax.core.avals import Aval, scalar_aval

OFTEN = 128
"""Calls with one number before it gets a plan, which takes as long (4 ms) as 60 to 300 calls gain by it."""
REMEMBERED = 4096
met: dict[Any, int] = {}
"""How often numbers were met, up to that."""
_mapped: dict[Any, Mapped] = {}


class Mapped:
    """A function of a number and of sparse arrays of one structure, entry by entry."""

    __slots__ = ("first", "kind", "out", "params", "primitive")

    def __init__(self, primitive: Any, params: dict[str, Any], kind: Any, out: Aval, first: bool) -> None:
        self.primitive, self.params, self.kind = primitive, params, kind
        self.out = out
        """The type of results, but for extents and the fill: it depends on the number in nothing else."""
        self.first = first
        """Whether the array is the first argument."""

    def result(self, args: Sequence[Any], run: Callable[[Any, Any], Array]) -> Array | None:
        """The result over the index buffers of the array; `run` is the function of the values that it stores. None where it has another format or
        positions that are not entries, and of numbers that come back. O(stored entries)."""
        x, number = args if self.first else reversed(args)
        storage, out = x._storage, self.out
        key = self.kind, repr(number)
        times = met.get(key, 0)
        if (
            times >= OFTEN or storage.format != out.format or not storage.packed
        ):  # unused positions hold the fill, to the last bit
            return None
        if len(met) > REMEMBERED:
            met.clear()
        met[key] = times + 1
        stored, fill = storage.vals, storage.fill_value
        flat = stored if stored.ndim == 1 else stored.reshape(-1)
        if self.first:
            vals = run(flat, number)._storage.vals
            fill = self.primitive.reference(fill, number, **self.params)
        else:
            vals = run(number, flat)._storage.vals
            fill = self.primitive.reference(number, fill, **self.params)
        fill = out.dtype.type(fill)
        made_of = storage.with_values(vals if stored.ndim == 1 else vals.reshape(stored.shape), fill)
        return made(made_of, Aval(x._aval.shape, out.dtype, out.format, fill, out.weak_type))


def of_values(
    primitive: Any, values: Sequence[Any], params: dict[str, Any], run: Callable[[Any, Any], Array]
) -> tuple[Array, Mapped] | None:
    """The result of a function of two arguments, one a sparse array and one a number, and what gives others; None where `Mapped` gives none."""
    first = isinstance(values[0], Array)
    x, number = values if first else reversed(values)
    if not isinstance(x, Array):
        return None
    kind = primitive, tuple(params.items()), x._aval.kind, type(number), first
    mapped = _mapped.get(kind)
    if mapped is None:
        (out,) = primitive.out_avals([v.aval if v is x else scalar_aval(v, is_literal=True) for v in values], params)
        if len(_mapped) > REMEMBERED:
            _mapped.clear()
        mapped = _mapped[kind] = Mapped(primitive, params, kind, out, first)
    if mapped.out.format.is_dense:
        return None
    with np.errstate(all="ignore"):
        found = mapped.result(values, run)
    return None if found is None else (found, mapped)
