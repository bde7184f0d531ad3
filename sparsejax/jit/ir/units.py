"""Axes of extent one: where the types say that a dense axis has one coordinate, no loop runs over it and no access has it.

before:  y[i,j] += A[i,k] * x[k,j],    x dense of shape (9, 1), y dense of shape (4, 1)
after:   y[i] += A[i,k] * x[k],        x and y over the same memory: each passes the extent that it no longer has (`cin.Tensor.units`)

A variable goes where it indexes nothing but dense axes of extent one, and nothing is reduced over it; so do such axes that are read at 0, as
where they are broadcast. Extents that are one by chance, of a program that serves many shapes, stay: only a bound of these is known.
Kernels are priced without them too, by what merges them (`graph/expected`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from sparsejax.formats import Format
from sparsejax.jit.ir import choices, cin
from sparsejax.jit.ir.nest import Nest


def dropped(nest: Nest) -> Nest:
    """`nest` without axes of extent one: see above. Those stay of which code is written out for constants, and all where pass `units` is skipped."""
    if not any(1 in t.shape for t in (nest.output, *nest.inputs)) or nest.has_constant or not choices.does("units"):
        return nest
    out = cin.Access(nest.output, nest.indices)
    read = (a for e in nest.expressions for a in cin.accesses(e))  # results of statements too
    accesses = list(dict.fromkeys((out, *(p.target for p in nest.producers), *nest.reads, *read)))
    gone = _variables(nest, accesses)
    made = {a: _squeezed(a, gone, a.tensor.name in nest.targets) for a in accesses}
    known: dict[cin.Access, cin.Expr] = {a: new for a, new in made.items() if new is not a}
    return replace(nest.substituted(known), output=made[out].tensor) if known else nest


def _variables(nest: Nest, accesses: Collection[cin.Access]) -> set[cin.IndexVar]:
    """The variables that index nothing but dense axes of extent one, and over which nothing is reduced."""
    found: set[cin.IndexVar] = set()
    stay = {v for p in nest.producers for v in cin.variables(p.rhs) if v not in p.target.indices}
    for access in accesses:
        for index, n in zip(access.indices, access.tensor.shape, strict=True):
            var = cin.follows(index)
            if var is not None and n == 1 and _fits(access.tensor):
                found.add(var)
            elif not isinstance(index, cin.Access):  # the accesses that name coordinates are among these
                stay.update(cin.variables_of(index))
    return found - stay


def _fits(tensor: cin.Tensor) -> bool:
    """Whether axes of a tensor may go."""
    return tensor.format.is_dense and not tensor.format.blocked and tensor.source is None and tensor.units is None


def _squeezed(access: cin.Access, gone: Collection[cin.Index], workspace: bool) -> cin.Access:
    """`access` without its axes of extent one that are read at 0 or by a variable that is `gone`."""
    tensor = access.tensor
    if not _fits(tensor):
        return access
    pairs = list(zip(access.indices, tensor.shape, strict=True))
    left = [d for d, (ix, n) in enumerate(pairs) if n != 1 or not (ix in gone or cin.fixed(ix) == 0)]
    if len(left) == len(pairs):
        return access
    made = tensor.reshaped([tensor.shape[d] for d in left], _without(tensor.format, left))
    if not workspace:
        made = made._replace(units=cin.Units(tuple(d for d in range(len(pairs)) if d not in left), tensor.format))
    return cin.Access(made, tuple(access.indices[d] for d in left))


def _without(form: Format, left: Sequence[int]) -> Format:
    """The format of an array that has these dimensions left."""
    levels = [(level, left.index(d)) for level, d in zip(form.levels, form.order, strict=True) if d in left]
    return Format([level for level, _ in levels], [d for _, d in levels])


def restored(tensor: cin.Tensor, form: Format) -> Format:
    """The format of the stored array whose dimensions that are left of it have `form`: the others are its innermost ones."""
    if tensor.units is None:
        return form
    if form == tensor.format:
        return tensor.units.format
    rank = len(tensor.shape) + len(tensor.units.dimensions)
    left = [d for d in range(rank) if d not in tensor.units.dimensions]
    own = tensor.units.format
    rest = [(level, d) for level, d in zip(own.levels, own.order, strict=True) if d in tensor.units.dimensions]
    return Format(
        [*form.levels, *(level for level, _ in rest)], [*(left[d] for d in form.order), *(d for _, d in rest)]
    )


def counts(tensor: cin.Tensor, given: Sequence[float]) -> Sequence[float]:
    """Observed positions per level of the stored array, of the levels that are left of it."""
    if tensor.units is None:
        return given
    levels = zip(tensor.units.format.order, given, strict=True)
    return tuple(n for d, n in levels if d not in tensor.units.dimensions) or (1.0,)
