"""How values between kernels are stored: not always as their types say.

The type of a value fixes its shape, dtype and fill, and its format where the user sees it. Between kernels a reduction that is expected to be
fairly full may be stored densely, where no reader can tell absent zeros from stored ones.

before:  C:csr[i,j] += A[i,k] * B[k,j] | out[j] += sqrt(C[i,j])          coordinates of C are marked or sorted
after:   C:dense[i,j] += A[i,k] * B[k,j] | out[j] += sqrt(C[i,j])        C, or a row of it (`fuse_reductions`), is an array

Both storages are priced with all kernels that make and read the value, merged as they would be; positions are those expected (`expected`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Jaxpr, Var
from sparsejax.formats import Dense, Format
from sparsejax.formats.storage import Storage
from sparsejax.jit.graph import expected, fuse_reductions, partition
from sparsejax.jit.graph import price as pricing
from sparsejax.jit.ir import choices, cin, operators, simplify
from sparsejax.jit.ir.nest import Nest

ROOM = 4.0
"""A value is stored densely in at most so many times the elements that it is expected to have as entries."""

SMALL = 1 << 20
"""Elements up to which a value may be stored densely, whatever that costs."""


def stored(
    steps: list[partition.Step], jaxpr: Jaxpr, observed: expected.Known | Mapping[Var, Storage]
) -> list[partition.Step]:
    """`steps` with values between kernels in the storage that makes them cheapest, given the program's inputs, or what is known of them."""
    kernels = {s.output: s for s in steps if isinstance(s, partition.KernelStep)}
    results = {a for a in jaxpr.outputs if isinstance(a, Var)}
    inner = [v for v in kernels if v not in results and not v.aval.format.is_dense and not v.aval.format.blocked]
    known: expected.Known | None = None
    made: list[partition.Step] = list(steps)
    for var in inner:
        places = [n for n, s in enumerate(made) if var in expected.inputs(s) or var in s.outputs]
        own = [s for n in places if isinstance(s := made[n], partition.KernelStep)]
        if len(own) < len(places) or any(t.format.blocked for s in own for t in (*s.nest.inputs, s.nest.output)):
            continue  # a library call reads it as its type says
        known = known or expected.of_program(made, jaxpr, observed)
        plain = _price(own, known) if _may_be_dense(own, var, known) else None
        if plain is None:
            continue
        form = Format((Dense(),) * var.aval.ndim)
        new = Var(Aval(var.aval.shape, var.aval.dtype, form, var.aval.fill_value))
        tried = [with_storage(s, var, new) for s in own]
        price = _price(tried, known)
        if price is None or not math.isfinite(price):
            continue
        cheapest = "dense" if price < plain and _has_room(var, known) else "typed"
        if choices.pick("storage", ("typed", "dense"), cheapest) == "dense":
            text = f"{own[0].nest.value} is stored {form}: cost {price:.4g}, as {var.aval.format} {plain:.4g}"
            tried[0] = replace(tried[0], priced=(*tried[0].priced, text))
            for n, step in zip(places, tried, strict=True):
                made[n] = step
            known = None
    return made


def _may_be_dense(steps: Sequence[partition.KernelStep], var: Var, known: expected.Known) -> bool:
    """Whether a value could be stored densely, where the first of `steps` makes it and the others read it."""
    source, *readers = steps
    same = _dense_is_same(source.nest) and all(_cannot_tell(r, var) for r in readers)
    return same and (_has_room(var, known) or (choices.free() and var.aval.size <= SMALL))


def _has_room(var: Var, known: expected.Known) -> bool:
    """Whether a value takes about as much memory if it is stored densely."""
    return var.aval.size <= ROOM * known.entries(var)


def _dense_is_same(nest: Nest) -> bool:
    """Whether a kernel gives the same numbers with a dense result: sums, and what becomes of them, 0 where all is absent."""
    lacking = [a for a in dict.fromkeys(cin.accesses(nest.value)) if a.tensor.lacks]
    empty = simplify.exhaust(nest.value, lacking)
    return (
        any(p.target in lacking for p in nest.producers)
        and all(p.op == "add" for p in nest.producers)
        and isinstance(empty, cin.Literal)
        and bool(empty.value == 0)
        and bool(nest.output.fill_value == 0)
        and all(_plain(nest.value, a) for a in lacking)
    )


def _cannot_tell(reader: partition.KernelStep, var: Var) -> bool:
    """Whether a kernel with a dense result computes the same whether zeros of a value are absent or stored."""
    named = {t.name for t, v in zip(reader.nest.inputs, reader.arguments, strict=True) if v == var}
    own = [a for a in reader.nest.reads if a.tensor.name in named]
    exprs = [*(p.rhs for p in reader.nest.producers), reader.nest.value]
    return reader.nest.output.format.is_dense and all(_plain(e, a) for e in exprs for a in own)


def _plain(expr: cin.Expr, access: cin.Access) -> bool:
    """Whether an absent zero of `access` gives what a stored one would: it stands in no product that it annihilates, but with a finite
    number or of integers."""
    if not isinstance(expr, cin.Call) or access not in set(cin.accesses(expr)):
        return True
    operator = operators.get(expr.op)
    if expr.op == "stored" or operator.body is not None:
        return False
    if operator.left_annihilator is not None or operator.right_annihilator is not None:
        exact = expr.dtype.kind in "biu" and expr.op in ("multiply", "logical_and", "logical_or", "bitwise_and")
        others = [a for a in expr.args if access not in set(cin.accesses(a))]
        scaled = expr.op == "multiply" and len(others) == 1 and _is_finite(others[0])
        if not (exact or scaled):
            return False
    return all(_plain(a, access) for a in expr.args)


def _is_finite(expr: cin.Expr) -> bool:
    return isinstance(expr, cin.Literal) and bool(np.isfinite(expr.value))


def with_storage(step: partition.KernelStep, var: Var, new: Var) -> partition.KernelStep:
    """A kernel that makes or reads `new` in place of `var`."""
    form = new.aval.format
    nest = step.nest
    if step.output == var:
        made = nest.in_formats({p.target: form for p in nest.producers})
        return replace(step, nest=replace(made, output=nest.output._replace(format=form)), output=new)
    named = {t.name for t, v in zip(nest.inputs, step.arguments, strict=True) if v == var}
    return replace(
        step,
        nest=nest.in_formats({a: form for a in nest.reads if a.tensor.name in named}),
        arguments=tuple(new if v == var else v for v in step.arguments),
    )


def _price(steps: Sequence[partition.KernelStep], known: expected.Known) -> float | None:
    """What kernels cost, merged where that is cheaper, and writing and reading what lies between them."""
    with choices.pricing():
        return _cost(steps, known)


def _cost(steps: Sequence[partition.KernelStep], known: expected.Known) -> float | None:
    made = {s.output for s in steps}
    given = tuple(dict.fromkeys(v for s in steps for v in s.arguments if v not in made))
    read = {v for s in steps for v in s.arguments}
    jaxpr = Jaxpr(given, (), (), tuple(v for v in made if v not in read))
    found = known.only(given)
    return pricing.price(fuse_reductions.merged(list(steps), jaxpr, found), found, made - read)
