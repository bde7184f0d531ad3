"""Fusion across reductions: what a kernel reads moves into it, to be computed at the deepest loop that both share (`placement`).

    - a reduction, and what is computed from it, is kept for one step of the shared loops
    - an elementwise value moves into every statement that reads it entry by entry, a cheap one into any; or it is kept too, if it is dear
    - what is sparse is kept as entries: a row of scores, between a sampled product and the softmax that reads them three times

before:  m[i] max= A[i,j] | E[i,j] = exp(A[i,j] - m[i]) | s[i] += E[i,j] | out[i,j] = E[i,j] / s[i]     four kernels
after:   out[i,j] = exp(A[i,j] - m[i]) / s[i],  s[i] += exp(A[i,k] - m[i]),  m[i] max= A[i,l]            one

A value moves when all its readers are in the kernel, it is no result of the program, the kernel stays within its budget, and
the scheduler prices the kernel with it below the two without: loops and conversions of both, and writing and reading the value.
Both numbers are kept for `explain`. Source: reference section 5.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from sparsejax.core.jaxpr import Jaxpr, Var
from sparsejax.formats.storage import Storage
from sparsejax.jit.cost import machine
from sparsejax.jit.graph import expected, fuse, limits, partition
from sparsejax.jit.graph import price as pricing
from sparsejax.jit.ir import choices, cin, simplify
from sparsejax.jit.ir.nest import Nest, Producer
from sparsejax.jit.schedule import placement
from sparsejax.lax.structural import refill_p

STATEMENTS = 8
"""Producers that one kernel may have."""

EVEN = 1.03
"""What one kernel may cost, as times what two do: as one, what both read may move in next (the exponentials of a softmax)."""


def merged(
    steps: list[partition.Step], jaxpr: Jaxpr, observed: expected.Known | Mapping[Var, Storage]
) -> list[partition.Step]:
    """`steps` with kernels merged where that is cheaper, given the program's inputs, or what is known of them."""
    steps = _seen_through(steps, jaxpr)
    results = {a for a in jaxpr.outputs if isinstance(a, Var)}
    sources = {
        s.output: n for n, s in enumerate(steps) if isinstance(s, partition.KernelStep) and s.output not in results
    }
    if not sources:
        return steps
    known = expected.of_program(steps, jaxpr, observed)
    readers: dict[Var, set[int]] = {}
    for number, step in enumerate(steps):
        for var in expected.inputs(step):
            readers.setdefault(var, set()).add(number)
    gone: set[int] = set()
    made: dict[int, partition.KernelStep] = {}
    for number in reversed(range(len(steps))):
        step = steps[number]
        if number in gone or not isinstance(step, partition.KernelStep):
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


def _seen_through(steps: list[partition.Step], jaxpr: Jaxpr) -> list[partition.Step]:
    """`steps` without the views of entries over another fill that only kernels read: these read the entries themselves."""
    read = {a for step in steps if isinstance(step, partition.CallStep) for a in step.eqn.inputs}
    read.update(jaxpr.outputs)
    views: dict[Var, Var] = {}
    made: list[partition.Step] = []
    for step in steps:
        if isinstance(step, partition.KernelStep):
            made.append(_asked_once(replace(step, arguments=tuple(views.get(v, v) for v in step.arguments))))
            continue
        result = step.outputs[0]
        if step.eqn.primitive is refill_p and result not in read:
            (source,), form = step.eqn.inputs, result.aval.format
            if isinstance(source, Var) and form.packed and not form.blocked and not form.is_dense:
                views[result] = source
                continue
        made.append(step)
    return made


def _asked_once(step: partition.KernelStep) -> partition.KernelStep:
    """A kernel that asks an array where it has entries as it reads their values, rather than over another fill: as one operand."""
    if len(set(step.arguments)) == len(step.arguments):
        return step
    variables: dict[str, Var] = {}
    nest = named(step, variables, "")
    values = {a for e in nest.expressions for a in _valued(e)}
    found: dict[cin.Access, cin.Expr] = {}
    for access in nest.reads:
        if access not in values:
            same = (a for a in nest.reads if a in values and a.indices == access.indices)
            alike = (a for a in same if a.tensor._replace(fill_value=0) == access.tensor._replace(fill_value=0))
            other = next(alike, None)
            if other is not None:
                found[access] = other
    if not found and len(nest.reads) == len(step.nest.reads):
        return step
    made = fuse.canonical(nest.substituted(found), step.output, variables)
    return replace(made, priced=step.priced, filled=step.filled, notes=step.notes)


def _valued(expr: cin.Expr) -> Iterator[cin.Access]:
    """The accesses whose values an expression reads, and those that it reads for these."""
    if isinstance(expr, cin.Access):
        yield from cin.accesses(expr)
    elif isinstance(expr, cin.Call):
        asks = expr.op == "stored" and isinstance(expr.args[0], cin.Access)
        for arg in expr.args:
            yield from arg.others if asks and isinstance(arg, cin.Access) else _valued(arg)


def _cheaper(
    reader: partition.KernelStep, own: float | None, source: partition.Step, known: expected.Known
) -> tuple[partition.KernelStep, float] | None:
    """One kernel of two and what it costs, where they can be one and that is cheaper; `own` is the reader's cost, if known."""
    assert isinstance(source, partition.KernelStep)
    ways = []
    for number, (made, again) in enumerate(_merge(reader, source)):
        cost = known.cost(made)
        if cost is not None:
            name = "again" if again else "together"
            ways.append((cost, number, made, name))
    if not ways:
        return None
    own = known.cost(reader) if own is None else own
    apart = known.cost(source)
    if own is None or apart is None:
        return None
    together, _, made, name = min(ways, key=lambda way: way[:2])
    separate = own + apart + pricing.stored(source.output, known) + machine.current().call
    legal = ["apart", *dict.fromkeys(way[3] for way in ways)]
    taken = choices.pick("fusion", legal, "apart" if together > EVEN * separate else name)
    if taken == "apart":
        return None
    if taken != name:
        together, _, made, _ = next(way for way in ways if way[3] == taken)
    text = f"{source.nest.value} moves in: cost {together:.4g}, apart {separate:.4g}"
    return replace(made, priced=(*reader.priced, *source.priced, text)), together


def _merge(reader: partition.KernelStep, source: partition.KernelStep) -> list[tuple[partition.KernelStep, bool]]:
    """Ways to make one kernel of two, and whether the value is then computed wherever it is read: none where the result of `source`
    cannot move into `reader`, or shares no loop with it."""
    if not (is_plain(reader.nest) and is_plain(source.nest)):
        return []
    variables: dict[str, Var] = {}
    outer, inner = named(reader, variables, "r"), named(source, variables, "s")
    name = _name(source.output)
    tried = {_kept(outer, inner, name, source): False}
    tried.setdefault(_inlined(outer, inner, name, source), not inner.direct)
    return [
        (replace(fuse.canonical(nest, reader.output, variables), priced=reader.priced), again)
        for nest, again in tried.items()
        if nest is not None and nest.nested and _shares(nest) and _fits(nest)
    ]


def inlined(reader: partition.KernelStep, source: partition.KernelStep) -> partition.KernelStep | None:
    """A kernel with what another computes in place of every access to its result; None where it cannot move."""
    if not (is_plain(reader.nest) and is_plain(source.nest)):
        return None
    variables: dict[str, Var] = {}
    outer, inner = named(reader, variables, "r"), named(source, variables, "s")
    nest = _inlined(outer, inner, _name(source.output), source)
    if nest is None or not _fits(nest):
        return None
    return replace(fuse.canonical(nest, reader.output, variables), priced=reader.priced, filled=reader.filled)


def is_plain(nest: Nest) -> bool:
    """Whether a kernel may be one with another, or let go of a part of it."""
    if any(t.format.blocked or t.constant is not None for t in (*nest.inputs, nest.output)):
        return False  # what is written out is a kernel by itself (`static_constants`)
    # a result at coordinates that an array holds is complete once all loops have run
    return cin.are_variables(nest.indices)


def _fits(nest: Nest) -> bool:
    """Whether a kernel stays within its budget, and what it still reads or writes tells how far all of its variables run."""
    told = {*nest.indices, *(ix for access in nest.reads for ix in access.indices)}
    if not all(told.issuperset(p.target.indices) for p in nest.producers):
        return False
    if len(nest.producers) > STATEMENTS or sum(map(limits.nodes, nest.expressions)) > limits.NODES:
        return False
    found = placement.readers(nest)
    apart = nest.asked | {p.target.tensor.name for k, p in enumerate(nest.producers) if len(found[k]) > 1}
    known: dict[cin.Access, cin.Expr] = {}
    total = 0
    for p in nest.producers:
        rhs = cin.substitute(p.rhs, known)
        total += limits.pieces(rhs, p.op, nested=True)
        if p.target.tensor.name not in apart:
            known[p.target] = rhs
    return total + limits.pieces(cin.substitute(nest.value, known), nested=True) <= limits.PIECES


def _reads(nest: Nest, name: str) -> list[cin.Access]:
    """How a kernel reads a value."""
    return [a for a in nest.reads if a.tensor.name == name]


def _inlined(outer: Nest, inner: Nest, name: str, source: partition.KernelStep) -> Nest | None:
    """`inner` in place of every access: computed where it is read."""
    read = _reads(outer, name)
    if name in outer.asked or any(_refilled(a, source) for a in read):
        return None
    inside: dict[cin.Access, Nest] = {}
    added: set[cin.Access] = set()
    for access in read:
        moved = _moved(outer, inner, access, source)
        if moved is None:
            return None
        for p in moved.producers:
            if p.target not in added and len(read) > 1 and set(cin.variables(p.target)) & _own(outer, access):
                return None  # the same reduction at two places: it would be computed twice
            if any(t != p.target and t.tensor.name == p.target.tensor.name for t in added):
                return None  # the same, over other variables
            added.add(p.target)
        inside[access] = moved
    made = outer.inlined(inside)
    pairs = zip(outer.producers, made.producers[len(added) :], strict=True)
    keeps = all(fuse.keeps_variables(old.rhs, new.rhs, new.target.indices) for old, new in pairs)
    return made if keeps else None


def _moved(outer: Nest, inner: Nest, access: cin.Access, source: partition.KernelStep) -> Nest | None:
    """What the kernel that makes a value becomes where `access` reads it."""
    made = _renamed(inner, access)
    if made is None or inner.direct:
        return made
    everywhere = all(
        set(placement.variables(outer, number)) == set(access.indices)
        for number, expr in enumerate(outer.expressions)
        if access in set(cin.accesses(expr))
    )
    whole = not any(p.target.tensor.lacks for p in made.producers)
    if everywhere or (whole and simplify.cheap(made.value) and limits.nodes(made.value) <= limits.SHARED):
        return made if fuse.entrywise(inner, source.output.aval) else None
    return None


def _kept(outer: Nest, inner: Nest, name: str, source: partition.KernelStep) -> Nest | None:
    """`inner` as a statement of its own: what it computes is kept for the loops that all its readers share."""
    unified = _unified(outer, name)
    if unified is None:
        return None
    access, *others = _reads(unified, name)
    if any(a.indices != access.indices for a in others):
        return None
    made = _renamed(inner, access)
    if made is None:
        return None
    if inner.direct:
        last = made.producers[-1]
        if not cin.same_value(last.target.tensor.fill_value, source.nest.output.fill_value):
            return None
        producers, target = made.producers, last.target
    else:
        tensor = source.nest.output._replace(name=f"t{source.output.number}")
        target = cin.Access(tensor, access.indices)
        producers = (*made.producers, Producer(target, None, made.value))
    moved = {name: target}
    readers = (Producer(p.target, p.op, cin.replaced(p.rhs, moved)) for p in unified.producers)
    return replace(unified, producers=(*producers, *readers), value=cin.replaced(unified.value, moved))


def _refilled(access: cin.Access, source: partition.KernelStep) -> bool:
    """Whether a value is read over another fill than it has."""
    return not cin.same_value(access.tensor.fill_value, source.output.aval.fill_value)


def _renamed(inner: Nest, access: cin.Access) -> Nest | None:
    """`inner` over the indices of an access to its result; None where these or its own are no variables, or one is there twice."""
    if not cin.are_variables((*inner.indices, *access.indices)) or len(set(access.indices)) < len(access.indices):
        return None
    return inner.over(access.indices)


def _unified(nest: Nest, name: str) -> Nest | None:
    """`nest` with variables renamed such that all statements read a value by the same ones; None where one statement reads it in two
    ways.

    before:  s[i] += exp(A[i,k]);  out[i,j] = exp(A[i,j]) / s[i]
    after:   s[i] += exp(A[i,j]);  out[i,j] = exp(A[i,j]) / s[i]
    """
    read = _reads(nest, name)
    if not all(cin.are_variables(a.indices) for a in read):
        return None
    names: dict[cin.Index, cin.Index] = {}

    def now(index: cin.Index) -> cin.Index:
        while index in names:
            index = names[index]
        return index

    for access in read[1:]:
        for one, other in zip(read[0].indices, access.indices, strict=True):
            if now(one) != now(other):
                names[now(other)] = now(one)
    for number in range(len(nest.producers) + 1):
        own = placement.variables(nest, number)
        if len(set(map(now, own))) < len(own):
            return None
    rename = {index: now(index) for index in names}
    return nest.changed(lambda expr: cin.rename(expr, rename))


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


def _name(var: Var) -> str:
    return f"v{var.number}"


def named(step: partition.KernelStep, variables: dict[str, Var], prefix: str) -> Nest:
    """The nest of a step with tensors named by their values, index variables and targets by a prefix."""
    nest = step.nest
    names: dict[cin.Index, cin.Index] = {v: cin.IndexVar(f"{prefix}.{v.name}") for v in nest.variables}
    by_name = dict(zip((t.name for t in nest.inputs), step.arguments, strict=True))
    moved: dict[cin.Access, cin.Expr] = {}
    for access in nest.reads:
        var = by_name[access.tensor.name]
        variables[_name(var)] = var
        moved[access] = cin.Access(access.tensor._replace(name=_name(var)), access.indices)
    return nest.respelled(moved, [f"{prefix}{step.output.number}.{k}" for k in range(len(nest.producers))], names)
