"""Fusion across reductions: what a kernel reads moves into it, to be computed at the deepest loop that both share (`placement`).

    - a reduction, and what is computed from it, is kept for one step of the shared loops
    - an elementwise value moves into every statement that reads it entry by entry, a cheap one into any

before:  m[i] max= A[i,j] | E[i,j] = exp(A[i,j] - m[i]) | s[i] += E[i,j] | out[i,j] = E[i,j] / s[i]     four kernels
after:   out[i,j] = exp(A[i,j] - m[i]) / s[i],  s[i] += exp(A[i,k] - m[i]),  m[i] max= A[i,l]            one

A value moves when all its readers are in the kernel, it is no result of the program, the kernel stays within its budget, and
the scheduler prices the kernel with it below the two without: loops and conversions of both, and writing and reading the value.
Both numbers are kept for `explain`. Source: reference section 5.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Jaxpr, Var
from sparsejax.jit import autoschedule, branches, budget, cin, facts, fuse, placement
from sparsejax.jit.nest import Nest, Producer

Facts = dict[Var, tuple[float, ...]]

STORE = 8.0
"""Per entry that is stored between two kernels: written to fresh memory, and read again."""
CALL = 4000.0
"""Per kernel: binding it, and allocating its result."""
STATEMENTS = 6
"""Producers that one kernel may have."""


def merged(steps: list[fuse.Step], jaxpr: Jaxpr, observed: Mapping[Var, tuple[float, ...]]) -> list[fuse.Step]:
    """`steps` with kernels merged where that is cheaper, given the observed positions of the program's inputs; where nothing has been
    observed, a few entries per row are expected."""
    guessed = {v: _guess(v.aval) for v in (*jaxpr.consts, *jaxpr.inputs)}
    known = _expected(steps, {**guessed, **observed})
    readers: dict[Var, set[int]] = {}
    for number, step in enumerate(steps):
        for var in _inputs(step):
            readers.setdefault(var, set()).add(number)
    results = {a for a in jaxpr.outputs if isinstance(a, Var)}
    sources = {s.output: n for n, s in enumerate(steps) if isinstance(s, fuse.KernelStep) and s.output not in results}
    gone: set[int] = set()
    made: dict[int, fuse.KernelStep] = {}
    for number in reversed(range(len(steps))):
        step = steps[number]
        if number in gone or not isinstance(step, fuse.KernelStep):
            continue
        region: set[int] = {number}
        cost: float | None = None
        while True:
            inside = [sources[v] for v in dict.fromkeys(step.arguments) if v in sources and readers[v] <= region]
            found = next(((k, m) for k in inside if (m := _cheaper(step, cost, steps[k], known)) is not None), None)
            if found is None:
                break
            source, (step, cost) = found
            region.add(source)
            gone.add(source)
        made[number] = step
    return [made.get(k, s) for k, s in enumerate(steps) if k not in gone]


def _cheaper(
    reader: fuse.KernelStep, own: float | None, source: fuse.Step, known: Facts
) -> tuple[fuse.KernelStep, float] | None:
    """One kernel of two and what it costs, where they can be one and that is cheaper; `own` is the reader's cost, if known."""
    assert isinstance(source, fuse.KernelStep)
    made = _merge(reader, source)
    if made is None:
        return None
    own = _cost(reader, known) if own is None else own
    apart, together = _cost(source, known), _cost(made, known)
    if own is None or apart is None or together is None:
        return None
    separate = own + apart + STORE * known[source.output][-1] + CALL
    if together > separate:
        return None
    text = f"{source.nest.value} moves in: cost {together:.4g}, apart {separate:.4g}"
    return replace(made, priced=(*reader.priced, text)), together


def _expected(steps: list[fuse.Step], known: Facts) -> Facts:
    """Positions per level of every value: observed for inputs, expected for the rest."""
    for step in steps:
        if isinstance(step, fuse.KernelStep):
            names = [t.name for t in step.nest.inputs]
            found = dict(zip(names, (known[v] for v in step.arguments), strict=True))
            if not any(t.format.blocked for t in (*step.nest.inputs, step.nest.output)):
                known[step.output] = autoschedule.level_counts(step.nest, facts.Facts(found)) or (1.0,)
                continue
        given = [known[a][-1] for a in _inputs(step) if not a.aval.format.is_dense]
        for var in step.outputs:
            known[var] = _guess(var.aval, max(given, default=None))
    return known


def _guess(aval: Aval, entries: float | None = None) -> tuple[float, ...]:
    """Positions per level of a value of which nothing but, at best, the number of entries is known."""
    size = float(aval.size)
    some = 8.0 * max(aval.shape, default=1) if entries is None else entries
    return facts.expected(aval.format, aval.shape, min(size, some))


def _inputs(step: fuse.Step) -> list[Var]:
    if isinstance(step, fuse.KernelStep):
        return list(step.arguments)
    return [a for a in step.eqn.inputs if isinstance(a, Var)]


def _cost(step: fuse.KernelStep, known: Facts) -> float | None:
    """What the cheapest schedule of a kernel costs; None where it has none, or shares no loop."""
    found = facts.Facts(dict(zip((t.name for t in step.nest.inputs), (known[v] for v in step.arguments), strict=True)))
    if not step.nest.nested:
        single = autoschedule.choose(step.nest, found)
        return None if single is None else single.cost.total
    made = branches.choose(step.nest, found)
    return None if made is None or branches.keeps_whole(step.nest, made) else made.cost.total


def _merge(reader: fuse.KernelStep, source: fuse.KernelStep) -> fuse.KernelStep | None:
    """One kernel of two; None where the result of `source` cannot move into `reader`, or shares no loop with it."""
    tensors = (*reader.nest.inputs, reader.nest.output, *source.nest.inputs, source.nest.output)
    if any(t.format.blocked for t in tensors):
        return None
    variables: dict[str, Var] = {}
    outer, inner = _named(reader, variables, "r"), _named(source, variables, "s")
    name = _name(source.output)
    read = dict.fromkeys(a for a in cin.accesses(outer.composite) if a.tensor.name == name)
    if any(set(fuse.patterns(e)) & set(read) for e in _expressions(outer)):
        return None
    producers = list(outer.producers)
    value = outer.value
    added: dict[cin.Access, Producer] = {}
    for access in read:
        if not all(isinstance(ix, cin.IndexVar) for ix in access.indices) or len(set(access.indices)) < len(
            access.indices
        ):
            return None
        moved = _moved(outer, inner, access, source)
        if moved is None:
            return None
        new, replacement = moved
        for p in new:
            if p.target not in added and len(read) > 1 and set(cin.variables(p.target)) & _own(outer, access):
                return None  # the same reduction at two places: it would be computed twice
            added.setdefault(p.target, p)
        producers = [Producer(p.target, p.op, cin.substitute(p.rhs, {access: replacement})) for p in producers]
        value = cin.substitute(value, {access: replacement})
    nest = Nest(outer.output, outer.indices, (*added.values(), *producers), value)
    whole = nest.composite
    if len(nest.producers) > STATEMENTS or budget.nodes(whole) > budget.NODES or budget.pieces(whole) > budget.PIECES:
        return None
    if not nest.nested or not _shares(nest):
        return None
    return replace(fuse.canonical(nest, reader.output, variables), priced=reader.priced)


def _moved(
    outer: Nest, inner: Nest, access: cin.Access, source: fuse.KernelStep
) -> tuple[list[Producer], cin.Expr] | None:
    """What the kernel that makes a value becomes where `access` reads it: producers, and what stands for the access."""
    rename: dict[cin.Index, cin.Index] = dict(zip(inner.indices, access.indices, strict=True))
    made = [p.moved(lambda expr: cin.rename(expr, rename)) for p in inner.producers]
    result = cin.rename(inner.value, rename)
    if inner.direct:
        return made, result
    everywhere = all(
        set(placement.variables(outer, number)) == set(access.indices)
        for number, expr in enumerate(_expressions(outer))
        if access in set(cin.accesses(expr))
    )
    whole = not any(p.target.tensor.lacks for p in made)
    if everywhere or (whole and fuse.cheap(result) and budget.nodes(result) <= budget.SHARED):
        return (made, result) if fuse.entrywise(inner, source.output.aval) else None
    if not source.output.aval.format.is_dense:
        return None
    target = cin.Access(fuse.tensor_of(f"t{source.output.number}", source.output.aval), access.indices)
    return [*made, Producer(target, None, result)], target


def _own(nest: Nest, access: cin.Access) -> set[cin.Index]:
    """The indices of an access that not every statement has."""
    shared = set.intersection(*(set(placement.variables(nest, k)) for k in range(len(nest.producers) + 1)))
    return set(access.indices) - shared


def _shares(nest: Nest) -> bool:
    """Whether every producer has a variable in common with some loop around a reader of it."""
    readers = placement.readers(nest)
    return all(
        any(set(cin.variables(p.target)) & set(placement.variables(nest, r)) for r in readers[k])
        for k, p in enumerate(nest.producers)
        if p.target.indices or placement.variables(nest, readers[k][0])
    )


def _expressions(nest: Nest) -> list[cin.Expr]:
    return [*(p.rhs for p in nest.producers), nest.value]


def _name(var: Var) -> str:
    return f"v{var.number}"


def _named(step: fuse.KernelStep, variables: dict[str, Var], prefix: str) -> Nest:
    """The nest of a step with tensors named by their values, index variables and targets by a prefix."""
    nest = step.nest
    names: dict[cin.Index, cin.Index] = {v: cin.IndexVar(f"{prefix}.{v.name}") for v in nest.variables}
    by_name = dict(zip((t.name for t in nest.inputs), step.arguments, strict=True))
    moved: dict[cin.Access, cin.Expr] = {}
    for access in dict.fromkeys(cin.accesses(nest.composite)):
        var = by_name[access.tensor.name]
        variables[_name(var)] = var
        moved[access] = cin.Access(replace(access.tensor, name=_name(var)), access.indices)
    for k, p in enumerate(nest.producers):
        target = replace(p.target.tensor, name=f"{prefix}{step.output.number}.{k}")
        moved[p.target] = cin.Access(target, p.target.indices)

    def move(expr: cin.Expr) -> cin.Expr:
        return cin.rename(cin.substitute(expr, moved), names)

    producers = tuple(p.moved(move) for p in nest.producers)
    indices = tuple(ix for ix in (names[v] for v in nest.indices) if isinstance(ix, cin.IndexVar))
    return Nest(nest.output, indices, producers, move(nest.value))
