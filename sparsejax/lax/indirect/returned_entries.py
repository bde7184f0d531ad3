"""Entries of `x[index]` that are added up at the entries of a sparse `x` go there by number, not by their coordinates: what gradients of rows, columns and
places are.

before:  [x0[p0],d1] add= x1[p0,d1]                                 index, values, x: the entries of x alone
after:   n = numbered x;  p = [p0,d1] add= x0[x1[p0],d1] of n, index;  returned values p x
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sparsejax.formats.parts import located
from sparsejax.jit.ir import choices
from sparsejax.lax.entry_places import numbered, returned
from sparsejax.lax.indirect.statements import Ref, Statement
from sparsejax.lax.linear import share


def serves(arrays: Sequence[Any], s: Statement) -> bool:
    """Whether a statement adds up all entries of a sparse array, each at one place of the pattern that it is given, in a format of which every
    position is an entry."""
    if s.like is None or s.op != "add" or s.drop or s.kept or s.stored or not isinstance(s.value, Ref):
        return False
    like, values, own = arrays[s.like], arrays[s.value.array], s.value.indices
    if like.format != s.format or values.dtype != s.dtype or s.dtype.kind not in "fc":
        return False
    if values.format.is_dense or not located.searched(like.format) or not located.searched(values.format):
        return False
    inner = [ix for ix in s.target if isinstance(ix, Ref)]
    plain = all(isinstance(v, str) for r in (s.value, *inner) for v in r.indices)
    all_read = set(own) == set(s.variables) and len(set(own)) == len(own)
    return (
        plain
        and bool(inner)
        and all_read
        and choices.pick("returns", ("numbers", "coordinates"), "numbers") == "numbers"
    )


def by_number(arrays: Sequence[Any], s: Statement, taken: Callable[[Sequence[Any], Statement], Any]) -> Any:
    """The result of a statement that is served; `taken` gives that of another one over as many operands."""
    assert isinstance(s.value, Ref) and s.like is not None
    values, like = arrays[s.value.array], arrays[s.like]
    forward = s.with_(
        target=s.value.indices,
        shape=values.shape,
        value=Ref(s.like, s.target),
        dtype=np.dtype(np.int64),
        format=values.format,
        like=None,
    )
    places = taken([numbered(x) if k == s.like else x for k, x in enumerate(arrays)], forward)
    return returned(share(values, places), places, like)
