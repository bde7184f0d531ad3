"""Sums into rows that an index array names, in the order of what another one reads, where that meets rows again before the caches have lost them.

before:  S = positions(R)                                      rows of the result one after the other: each is written once
         out[i,j] += V[p] * B[K[p],j] where S[p,i] is stored
after:   S = positions(K)                                      rows of B one after the other: each is read once
         out[R[p],j] += V[p] * B[k,j] where S[p,k] is stored

sorted:  R', V', K' = in_order(R, K), in_order(V, K), in_order(K, K);  S' = positions(K')
         out[R'[p],j] += V'[p] * B[k,j] where S'[p,k] is stored       what the entries have is read one after the other, too

Either order has a row of one array to itself, and those of the other come in any order: how often one comes again soon enough is looked up in the index
arrays (`cost/reuse`). Where a few rows of a matrix are nearly full, entries by rows read all of B again for each of these, and entries by columns add
to the same few rows. The price of both is that of the scheduler, with what index arrays tell of its waits.

Legal where a dense result adds up (terms are added in another order), both index arrays are dense and named by the same entries, and nothing else follows
the rows of the result. Copies, where entries are a vector or groups of one, each reads one row, and calls make none of what they have anew: less than a line
each, else nothing of a line is wasted.
They are remembered with the arrays, and each call is taken to pay its part of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sparsejax.core.jaxpr import Eqn, Jaxpr, Var
from sparsejax.formats.storage import Storage
from sparsejax.jit.cost import machine, reuse
from sparsejax.jit.cost.memory import LINE
from sparsejax.jit.graph import expected, fuse, fuse_reductions, partition
from sparsejax.jit.ir import choices, cin
from sparsejax.jit.ir.nest import of_definition
from sparsejax.lax.indirect.index_arrays import checked_p, in_order_p, positions_p

GAIN = 0.95
"""What the other order may cost, as times what rows of the result one after the other do: waits are samples.
Of 28 matrices of 50,000 entries and more, with 32 and 128 columns, `qp_BOYD1_A` costs 0.90 and 0.62 so, every other one 1.13 and more."""


@dataclass(frozen=True)
class Scatter:
    """A kernel that walks what an index array names."""

    walked: cin.Access
    """S[p,i]: true where the index array names i at p."""
    read: cin.Access
    """K[p], which leads to a dense operand."""
    led: cin.Access
    """B[K[p],j]."""
    rows: Var
    """The index array that is walked."""
    columns: Var
    """The one that leads to the operand."""


def ordered(steps: Sequence[partition.Step], jaxpr: Jaxpr, observed: Mapping[Var, Storage]) -> list[partition.Step]:
    """`steps` with entries in the order of what is read where that is cheaper, given the program's inputs."""
    calls = {s.eqn.outputs[0]: s.eqn for s in steps if isinstance(s, partition.CallStep) and len(s.eqn.outputs) == 1}

    def parts(step: partition.KernelStep, found: Scatter, known: expected.Known) -> Sequence[partition.Step] | None:
        return _parts(step, found, known, calls, observed)

    made = expected.apart(steps, jaxpr, observed, lambda step: _scatter(step, calls), parts)
    read = {*jaxpr.outputs, *(v for s in made for v in expected.inputs(s))}
    unread = {v for v, eqn in calls.items() if eqn.primitive is positions_p and v not in read}
    return [s for s in made if not unread.intersection(s.outputs)]


def _scatter(step: partition.KernelStep, calls: Mapping[Var, Eqn]) -> Scatter | None:
    """What a kernel walks, and reads in the order of that; None of another kernel."""
    nest = step.nest
    if not nest.direct or nest.op != "add" or nest.bounded or not nest.output.format.is_dense or nest.output.source:
        return None
    variables = dict(zip((t.name for t in nest.inputs), step.arguments, strict=True))
    lacking = [a for a in nest.reads if a.tensor.lacks]
    if len(lacking) != 1:
        return None
    (walked,) = lacking
    made = calls.get(variables[walked.tensor.name])
    if made is None or made.primitive is not positions_p or not made.param_dict["by_target"]:
        return None
    if made.param_dict["drop"] or made.param_dict["sparse_rows"] or not isinstance(made.inputs[0], Var):
        return None
    row, entry = walked.indices[-1], walked.indices[:-1]
    if not entry or not made.inputs[0].aval.format.is_dense or list(nest.indices).count(row) != 1:
        return None
    if any(row in cin.bound_by(a) for a in nest.reads if a != walked) or not cin.are_variables((*entry, *nest.indices)):
        return None
    if any(v in cin.bound_by(cin.Access(nest.output, nest.indices)) for v in entry):
        return None
    found = []
    for a in nest.reads:
        named = [ix for ix in a.indices if isinstance(ix, cin.Access)]
        if len(named) != 1 or not a.tensor.format.is_dense or a.indices[0] != named[0]:
            continue
        own = named[0].indices
        if (
            named[0].tensor.format.is_dense
            and own[: len(entry)] == entry
            and all(n == 1 or cin.follows(ix) is not None for ix, n in zip(own, named[0].tensor.shape, strict=True))
        ):
            found.append((named[0], a))
    if len(found) != 1 or nest.indices[0] != row:
        return None
    ((read, led),) = found
    return Scatter(walked, read, led, made.inputs[0], variables[read.tensor.name])


def _parts(
    step: partition.KernelStep,
    found: Scatter,
    known: expected.Known,
    calls: Mapping[Var, Eqn],
    observed: Mapping[Var, Storage],
) -> list[partition.Step] | None:
    """The entries of what is read, sorted, and the kernel that walks them; None where it is no cheaper so."""
    ways, sizes = {"read": _turned(step, found)}, _copied(step, found, known)
    if sizes is not None:
        ways["sorted"] = _turned(step, found, copied=True)
    rows, columns = (_values(v, calls, observed) for v in (found.rows, found.columns))
    prices = {}
    if rows is not None and columns is not None:
        prices = _prices(step, found, known, ways, sizes or {}, rows.vals, columns.vals)
    by_rows = prices.pop("target", math.inf)
    cheapest = min(prices, key=lambda way: prices[way], default="target")
    if cheapest != "target" and prices[cheapest] >= GAIN * by_rows:
        cheapest = "target"
    texts = {
        way: f"entries in the order of what is read: cost {price:.4g}, by rows of the result {by_rows:.4g}"
        for way, price in prices.items()
    }
    taken = choices.pick("scatters", ("target", *ways), cheapest)
    if taken == "target":
        return None
    *before, turned = ways[taken]
    assert isinstance(turned, partition.KernelStep)
    return [*before, replace(turned, priced=(*step.priced, texts.get(taken, "")))]


def _prices(
    step: partition.KernelStep,
    found: Scatter,
    known: expected.Known,
    ways: Mapping[str, Sequence[partition.Step]],
    sizes: Mapping[str, int],
    targets: Any,
    columns: Any,
) -> dict[str, float]:
    """Nanoseconds by rows of the result (`target`), and of each other way, with waits for rows that index arrays name; nothing where none is scheduled."""
    plain = known.schedule(step)
    if plain is None:
        return {}
    here, out = machine.current(), step.output.aval
    row = out.size / out.shape[0] * out.dtype.itemsize
    if columns.size > targets.size:
        targets = targets.repeat(columns.size // targets.size)
    bytes_of_entry = sum(sizes.values())
    gathered = sum(reuse.carried(columns, n, here) for n in sizes.values())
    by_rows = plain.cost.loops + plain.cost.output + reuse.waits(columns, targets, row, here)
    by_rows += out.size * out.dtype.itemsize / LINE * sum(here.fill)  # written once
    by_rows += sum(reuse.carried(targets, n, here) for n in sizes.values())
    waits = reuse.waits(targets, columns, row, here, written=True)
    waits += len(targets) * row / 8 * here.lane  # added to memory, not to registers
    waits += found.led.tensor.shape[0] * row / LINE * sum(here.stream)  # read once
    streamed = len(targets) * bytes_of_entry / LINE * sum(here.stream)
    copying = (gathered + len(targets) * bytes_of_entry / LINE * sum(here.fill)) / here.calls
    entries = {"read": gathered, "sorted": streamed + copying}
    prices = {"target": by_rows}
    for way, steps in ways.items():
        there = known.copy()
        for call in steps[:-1]:
            there.add(call)
        kernel = steps[-1]
        assert isinstance(kernel, partition.KernelStep)
        if (other := there.schedule(kernel)) is not None:
            prices[way] = other.cost.loops + other.cost.output + waits + entries[way]
    return prices


def _copied(step: partition.KernelStep, found: Scatter, known: expected.Known) -> dict[str, int] | None:
    """The tensors whose rows are those of the entries, with the bytes of a row; None where these are no vector, or some cannot be copied in another order."""
    entry = found.walked.indices[0]
    variables = dict(zip((t.name for t in step.nest.inputs), step.arguments, strict=True))
    alone = all(n == 1 for n in (*found.walked.tensor.shape[1:-1], *found.read.tensor.shape[1:]))
    if not alone or found.read.indices[0] != entry or found.walked.tensor.format.is_dense:
        return None
    made = dict[str, int]()
    for access in (a for read in step.nest.reads if read != found.walked for a in _accesses(read)):
        tensor = access.tensor
        if entry not in access.indices:
            continue
        if access.indices.index(entry) or access.indices.count(entry) > 1 or not tensor.format.is_dense:
            return None
        size = tensor.dtype.itemsize * math.prod(n for n in tensor.shape[1:] if type(n) is int)
        ordered = tensor.format.order == tuple(range(len(tensor.shape)))
        if not ordered or size >= LINE or not all(type(n) is int for n in tensor.shape):
            return None
        made[tensor.name] = size
    return None if any(variables[n] in known.made for n in made) else made


def _accesses(access: cin.Access) -> Iterator[cin.Access]:
    """An access, and those that are indices in it."""
    yield access
    for index in access.indices:
        if isinstance(index, cin.Access):
            yield from _accesses(index)


def _turned(step: partition.KernelStep, found: Scatter, copied: bool = False) -> list[partition.Step]:
    """The steps in the order of what is read, the kernel last; `copied`: with what the entries have in this order."""
    variables: dict[str, Var] = {}
    nest = fuse_reductions.named(step, variables, "s")
    number = dict(zip(step.nest.reads, nest.reads, strict=True))
    walked, led = number[found.walked], number[found.led]
    (index,) = (ix for ix in led.indices if isinstance(ix, cin.Access))
    extent, copies, named, read = led.tensor.shape[0], dict[Var, Var](), found.rows, found.columns
    before: list[partition.Step] = []

    def in_order(var: Var) -> Var:
        if not copied:
            return var
        if var not in copies:
            inputs = (var, read)
            copies[var] = Var(in_order_p.typing(*(v.aval for v in inputs), extent=extent))
            before.append(partition.CallStep(Eqn(in_order_p, inputs, (("extent", extent),), (copies[var],))))
        return copies[var]

    def moved(access: cin.Access) -> cin.Access:
        indices = tuple(moved(ix) if isinstance(ix, cin.Access) else ix for ix in access.indices)
        if not copied or index.indices[0] not in access.indices:
            return cin.Access(access.tensor, indices)
        own = in_order(variables[access.tensor.name])
        name = f"{access.tensor.name}.s"
        variables[name] = own
        return cin.Access(access.tensor._replace(name=name), indices)

    by = in_order(read)
    made = Var(positions_p.typing(by.aval, extent=extent, by_target=True, sparse_rows=False, drop=False))
    params = (("extent", extent), ("by_target", True), ("sparse_rows", False), ("drop", False))
    before.append(partition.CallStep(Eqn(positions_p, (by,), params, (made,))))
    variables |= {"sorted": made, "named": in_order(named)}
    var = cin.IndexVar("s.read")
    sorted_by = cin.Access(fuse.tensor_of("sorted", made.aval), (*index.indices, var))
    row = cin.Access(fuse.tensor_of("named", named.aval), walked.indices[:-1])
    (producer,) = nest.producers
    own: dict[cin.Access, cin.Expr] = {a: moved(a) for a in nest.reads if a not in (walked, led)}
    own |= {walked: sorted_by, led: cin.Access(led.tensor, (var, *led.indices[1:]))}
    value = cin.substitute(producer.rhs, own)
    indices = tuple(row if ix == walked.indices[-1] else ix for ix in nest.indices)
    whole = of_definition(nest.output, cin.Definition(indices, producer.op, value))
    return [*before, fuse.canonical(whole, step.output, variables)]


def _values(var: Var, calls: Mapping[Var, Eqn], observed: Mapping[Var, Storage]) -> Storage | None:
    """An index array as it was given, if it was; negative coordinates are as good as others."""
    made = calls.get(var)
    while var not in observed and made is not None and made.primitive is checked_p and isinstance(made.inputs[0], Var):
        var = made.inputs[0]
        made = calls.get(var)
    return observed.get(var)
