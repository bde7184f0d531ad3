"""Divisions and functions of what is broadcast along a sparse array: stored once, where they would be computed for every entry.

before:  out[i,j] = A[i,j] * (1 / d[j])                  a division for every entry
after:   f[j] = 1 / d[j] | out[i,j] = A[i,j] * f[j]      one for every column

Along the rows of A, what depends on i alone is computed outside of the loop over entries. What stands in several kernels is stored once for all of them:
the degrees of a graph, in a layer of a network and in its gradient. As what is computed does not change, neither do results.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Jaxpr, Var
from sparsejax.formats import Format
from sparsejax.formats.storage import Storage
from sparsejax.jit.cost import machine
from sparsejax.jit.graph import expected, fuse, fuse_reductions, partition
from sparsejax.jit.ir import choices, cin, operators
from sparsejax.jit.ir.nest import Nest
from sparsejax.jit.schedule import placement


@dataclass
class _Factor:
    """A part of expressions of several kernels, over variables of its own."""

    value: cin.Expr
    indices: tuple[cin.IndexVar, ...]
    shape: tuple[int, ...]
    entries: float = 0.0
    """How often it is computed."""

    @property
    def dear(self) -> int:
        return _dear(self.value)


def stored(
    steps: list[partition.Step], jaxpr: Jaxpr, observed: expected.Known | Mapping[Var, Storage]
) -> list[partition.Step]:
    """`steps` with kernels for the factors that are cheaper to store."""
    variables: dict[str, Var] = {}
    found: dict[cin.Expr, _Factor] = {}
    places: list[tuple[cin.Expr, str]] = []
    nests: dict[int, Nest] = {}
    for number, step in enumerate(steps):
        if (
            isinstance(step, partition.KernelStep)
            and any(map(_dear, step.nest.expressions))
            and fuse_reductions.is_plain(step.nest)
        ):
            nests[number] = nest = fuse_reductions.named(step, variables, f"{number}.")
            places += _factors(nest, found)
    if not found:
        return steps
    known = expected.of_program(steps, jaxpr, observed)
    for key, name in places:
        found[key].entries += known.entries(variables[name])
    here = machine.current()
    made: dict[cin.Expr, Var] = {}
    for key, factor in found.items():
        once = math.prod(map(float, factor.shape))
        gained = factor.dear * here.function * (factor.entries - once) - once * here.store - here.call
        if choices.pick("factors", ("computed", "stored"), "stored" if gained > 0 else "computed") == "stored":
            dtype = factor.value.dtype
            made[key] = Var(Aval(factor.shape, dtype, Format.parse("dense", len(factor.shape)), dtype.type(0)))
    return _with(list(steps), nests, variables, found, made) if made else steps


def _with(
    steps: list[partition.Step],
    nests: Mapping[int, Nest],
    variables: dict[str, Var],
    found: Mapping[cin.Expr, _Factor],
    made: Mapping[cin.Expr, Var],
) -> list[partition.Step]:
    """`steps` that read the factors that are stored, which are made before they are read for the first time."""
    tensors = {key: fuse.tensor_of(f"v{var.number}", var.aval) for key, var in made.items()}
    variables |= {f"v{var.number}": var for var in made.values()}
    unmade, result = dict(made), list[partition.Step]()

    def read(expr: cin.Expr) -> cin.Expr:
        if not isinstance(expr, cin.Call):
            return expr
        key, indices = _key(expr)
        if key in tensors:
            return cin.Access(tensors[key], indices)
        return cin.Call(expr.op, tuple(map(read, expr.args)), expr.dtype)

    for number, step in enumerate(steps):
        nest = nests.get(number)
        changed = None if nest is None else nest.changed(read)
        if changed is None or changed == nest:
            result.append(step)
            continue
        assert isinstance(step, partition.KernelStep)
        plain = fuse.canonical(changed, step.output, variables)
        step = replace(plain, priced=step.priced, filled=step.filled, notes=step.notes)
        for key in [k for k, var in unmade.items() if var in step.arguments]:
            factor, var = found[key], unmade.pop(key)
            output = fuse.tensor_of("out", var.aval)
            result.append(fuse.canonical(Nest(output, factor.indices, (), factor.value), var, variables))
        result.append(step)
    return result


def _factors(nest: Nest, found: dict[cin.Expr, _Factor]) -> Iterator[tuple[cin.Expr, str]]:
    """The factors of a kernel, and the sparse arrays for every entry of which they are computed."""
    for number, expr in enumerate(nest.expressions):
        loops = placement.variables(nest, number)
        sparse = [a for a in cin.accesses(expr) if a.tensor.lacks and a.tensor.format.sparse and a.indices]
        if not sparse or len(loops) < 2 or not all(cin.are_variables(a.indices) for a in sparse):
            continue
        inner = {a.level_index(len(a.tensor.format.levels) - 1) for a in sparse}
        if len(inner) != 1 or any(a.tensor.name in nest.targets for a in sparse):
            continue
        (last,) = inner
        for part in _parts(expr, nest):
            own = set(cin.variables(part))
            if last in own and own < set(loops):
                key, indices = _key(part)
                if key not in found:
                    extents = {
                        ix: n for a in cin.accesses(part) for ix, n in zip(a.indices, a.tensor.shape, strict=True)
                    }
                    plain = tuple(cin.IndexVar(f"f{k}") for k in range(len(indices)))
                    found[key] = _Factor(key, plain, tuple(extents[ix] for ix in indices))
                yield key, sparse[0].tensor.name


def _parts(expr: cin.Expr, nest: Nest) -> Iterator[cin.Expr]:
    """The largest parts of an expression that read dense arrays alone and have a division or a function."""
    if not isinstance(expr, cin.Call):
        return
    read = list(cin.accesses(expr))
    dense = all(
        a.tensor.format.is_dense and a.tensor.name not in nest.targets and cin.are_variables(a.indices) for a in read
    )
    if dense and any(a.indices for a in read):
        if _dear(expr):
            yield expr
        return
    for arg in expr.args:
        yield from _parts(arg, nest)


def _dear(expr: cin.Expr) -> int:
    """How many divisions and functions an expression has."""
    if not isinstance(expr, cin.Call):
        return 0
    own = expr.op == "divide" or operators.get(expr.op).cost > operators.CHEAP
    return own + sum(map(_dear, expr.args))


def _key(part: cin.Expr) -> tuple[cin.Expr, tuple[cin.Index, ...]]:
    """A part of an expression over variables in the order in which they occur, and what these are."""
    indices = tuple(dict.fromkeys(cin.variables(part)))
    return cin.rename(part, {ix: cin.IndexVar(f"f{k}") for k, ix in enumerate(indices)}), indices
