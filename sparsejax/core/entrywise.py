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

OFTEN = 64
"""Calls with one number before it gets a plan, which takes as long (4 ms) as a hundred calls gain by it."""
REMEMBERED = 4096
_types: dict[Any, Aval] = {}
met: dict[Any, int] = {}
"""How often numbers were met, up to that."""


def of_values(
    primitive: Any, values: Sequence[Any], params: dict[str, Any], run: Callable[[list[Any]], Any]
) -> Array | None:
    """The result of a function of two arguments, one a sparse array and one a number, entry by entry, over the index buffers of the array; `run` is
    the function of the values that it stores. None where the result has another format, and of numbers that come back. O(stored entries)."""
    x, number = values if isinstance(values[0], Array) else reversed(values)
    if not isinstance(x, Array):
        return None
    aval, storage = x._aval, x._storage
    kind = primitive, tuple(params.items()), aval.kind, type(number), x is values[0]
    key = kind, repr(number)
    times = met.get(key, 0)
    if times >= OFTEN:
        return None
    out = _types.get(kind)
    if out is None:  # it depends on the number in nothing but its fill
        if len(_types) > REMEMBERED:
            _types.clear()
        (out,) = primitive.out_avals([v.aval if v is x else scalar_aval(v, is_literal=True) for v in values], params)
        _types[kind] = out
    if out.format.is_dense or out.format != storage.format:
        return None
    if len(met) > REMEMBERED:
        met.clear()
    met[key] = times + 1
    stored, fill = storage.vals, storage.fill_value
    flat = stored if stored.ndim == 1 else stored.reshape(-1)
    vals = run([flat if v is x else v for v in values])._storage.vals
    with np.errstate(all="ignore"):
        filled = out.dtype.type(primitive.reference(*[fill if v is x else v for v in values], **params))
    made_of = storage.with_values(vals if stored.ndim == 1 else vals.reshape(stored.shape), filled)
    return made(made_of, Aval(aval.shape, out.dtype, out.format, filled, out.weak_type))
