"""Sums over operands whose fill does not annihilate: what such an operand does not store is summed without it.

With r the terms of a sum, and r0 what they are where A stores nothing (`simplify.exhaust`),

    sum r  =  sum r0  +  sum over the entries of A of (r - r0)

before:  out[i] += (A[i,k] + 1) * x[k]                                                       every i with every k
after:   s += x[k] | t[i] += masked(stored(A[i,k]), (A[i,k] + 1) * x[k] - x[k], 0) | out[i] = t[i] + s

The first sum has lost the variables of A that nothing else has: over these it is the same, or counted. This holds for any term r, not
only for products; with several such operands one is exhausted after the other, r0, r1 (with the first), ..., and every operand has
a sum of its own over its entries: r1 - r0, r2 - r1, ... Integers are summed modulo 2^n, where this is exact; a logical or counts
its true terms. A sum of floats may cancel, and infinities do, so that there the sums are checked first:

    N = sum |r0| + sum |r1 - r0| + ...            what is added up        the error is at most a small number times  n eps N
    B = sum |r0| + sum (|r1| - |r0|) + ...        which is  sum |r|       of a plain sum in any order it is at most  n eps B

If N <= RATIO * B for every entry of the result, and all is finite, the sums apart are as good as the plain one but for RATIO. Otherwise
(an entry of A cancels the fill where x is largest, something is infinite or NaN) the plain loops run: the plan has both. Source: the two
parts are Finch's background and what differs from it ("Looplets"); the error bounds are Higham's, "Accuracy and Stability", section 4.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import ClosedJaxpr, Eqn, Jaxpr, Var
from sparsejax.core.primitive import Primitive
from sparsejax.formats import Format
from sparsejax.formats.storage import Storage
from sparsejax.jit.cost import machine
from sparsejax.jit.graph import expected, fuse, fuse_reductions, partition
from sparsejax.jit.graph import price as pricing
from sparsejax.jit.ir import choices, cin, infer_formats, simplify
from sparsejax.jit.ir.bounded import Bounded
from sparsejax.jit.ir.nest import Nest, Producer, of_definition
from sparsejax.jit.rewrite import legalize
from sparsejax.lax.control import cond_p
from sparsejax.lax.extents import extent_p

RATIO = 8.0
"""How many times the error bound of a plain sum is accepted for sums apart."""

SHARE = 1.0
"""Sums are taken apart where they cost less than this share of plain ones."""

planned_p = Primitive(
    "planned",
    typing=lambda *_, aval, steps: aval,
    reference=lambda *_, aval, steps: None,
    describe=lambda aval, steps: f"steps={steps}",
)
"""What a jaxpr shows in place of steps: these run, and never it."""

BOOL: np.dtype[np.generic] = np.dtype(np.bool_)
COUNTS: np.dtype[np.generic] = np.dtype(np.int64)


def apart(steps: Sequence[partition.Step], jaxpr: Jaxpr, observed: Mapping[Var, Storage]) -> list[partition.Step]:
    """`steps` with the sums of kernels taken apart where that is cheaper, given the program's inputs."""
    return expected.apart(steps, jaxpr, observed, _targets, _apart)


def _targets(step: partition.KernelStep) -> list[int]:
    """The sums over operands whose fill does not annihilate, by their numbers."""
    return [] if step.nest.nested else [k for k, p in enumerate(step.nest.producers) if _gaps(p)]


def _apart(step: partition.KernelStep, gaps: Sequence[int], known: expected.Known) -> list[partition.Step] | None:
    """The steps that stand for a kernel; None where it is no cheaper apart, or cannot be."""
    whole = known.cost(step)
    if whole is None:
        return None
    variables: dict[str, Var] = {}
    nest = fuse_reductions.named(step, variables, "f")
    sums = {nest.producers[k].target: _Sum.of(nest.producers[k]) for k in gaps}
    made = _Steps(variables)
    value = cin.substitute(nest.value, {target: s.value(made) for target, s in sums.items()})
    left = tuple(p for p in nest.producers if p.target not in sums)
    made.add(Nest(nest.output, nest.indices, left, value), step.output)
    checks = _Steps(variables)
    tests = [s.test(checks) for s in sums.values() if s.rounds]
    if tests:
        good = Var(Aval((), BOOL, Format(())))
        checks.all(tests, good)
    both = [*checks.made, *made.made]
    found = known.copy()
    total = pricing.price(both, found, (step.output,))
    if total is None:
        return None
    cheapest = "together" if total >= SHARE * (whole + machine.current().call) else "apart"
    if choices.pick("fills", ("together", "apart"), cheapest) == "together":
        return None
    text = f"fills are summed apart: cost {total:.4g}, together {whole:.4g}"
    last = made.made[-1]
    assert isinstance(last, partition.KernelStep)
    made.made[-1] = replace(last, priced=(*last.priced, text))
    if not tests:
        return list(made.made)
    inputs = tuple(dict.fromkeys(step.arguments))
    ways: list[list[partition.Step]] = [[step], made.made]
    branches = tuple(_closed(steps, inputs, step.output, known) for steps in ways)
    choice = Eqn(cond_p, (good, *inputs), (("branches", branches),), (step.output,))
    return [*checks.made, partition.CallStep(choice)]


def _closed(steps: list[partition.Step], inputs: tuple[Var, ...], output: Var, known: expected.Known) -> ClosedJaxpr:
    """Steps as a jaxpr of one equation, whose plan consists of them."""
    empty = Jaxpr(inputs, (), (), (output,))
    made = fuse_reductions.merged(list(steps), empty, known.only(inputs))
    eqn = Eqn(planned_p, inputs, (("aval", output.aval), ("steps", len(made))), (output,))
    closed = ClosedJaxpr(replace(empty, eqns=(eqn,)), ())
    closed.cache.update(steps=made, clean=True)
    return closed


def _gaps(producer: Producer) -> list[cin.Access]:
    """The sparse operands of a sum whose absence leaves something to add, and that have a variable which is summed over."""
    kind = producer.target.dtype.kind
    if producer.op != ("logical_or" if kind == "b" else "add"):
        return []
    if not cin.are_variables(producer.target.indices):
        return []  # what is added up is not what has the same variables
    summed = set(cin.variables(producer.rhs)) - set(producer.target.indices)
    expr = simplify.simplify(producer.rhs)
    return [
        a
        for a in dict.fromkeys(cin.accesses(expr))
        if a.tensor.lacks and not summed.isdisjoint(a.indices) and not _is_nothing(simplify.exhaust(expr, {a}))
    ]


def _is_nothing(expr: cin.Expr) -> bool:
    return isinstance(expr, cin.Literal) and bool(expr.value == 0)


@dataclass
class _Steps:
    """Kernels that compute values which others read."""

    variables: dict[str, Var]
    made: list[partition.Step] = field(default_factory=list)

    def add(self, nest: Nest, var: Var) -> None:
        """The kernel that computes `var`."""
        self.made.append(fuse.canonical(nest, var, self.variables))

    def extent(self, size: Bounded, dtype: np.dtype[np.generic]) -> cin.Expr:
        """An extent that is known when the program runs, as a number."""
        var = Var(Aval((), COUNTS, Format(())))
        self.made.append(partition.CallStep(Eqn(extent_p, (), (("size", size),), (var,))))
        name = f"v{var.number}"
        self.variables[name] = var
        return _call("cast", cin.Access(fuse.tensor_of(name, var.aval), ()), dtype=dtype)

    def sum(self, expr: cin.Expr, indices: tuple[cin.Index, ...], extents: Mapping[cin.IndexVar, int]) -> cin.Expr:
        """The sum of `expr` over its variables that are not among `indices`."""
        own = tuple(v for v in cin.followed(indices) if v in cin.variables(expr))
        if len(own) == len(cin.variables(expr)):
            return expr
        shape = tuple(extents[v] for v in own)
        definition = cin.Definition(own, "add", expr)
        var = Var(Aval(shape, expr.dtype, *infer_formats.infer(definition, shape, expr.dtype)))
        output = fuse.tensor_of("out", var.aval)
        output = legalize.assembled(output)
        self.add(of_definition(output, definition), var)
        name = f"v{var.number}"
        self.variables[name] = var
        return cin.Access(fuse.tensor_of(name, var.aval), own)

    def all(self, tests: Sequence[cin.Expr], var: Var) -> None:
        """Whether tests hold everywhere."""
        output = fuse.tensor_of("out", var.aval)
        targets = [cin.Access(output._replace(name=f"t{k}", fill_value=np.True_), ()) for k in range(len(tests))]
        producers = tuple(Producer(t, "logical_and", e) for t, e in zip(targets, tests, strict=True))
        value: cin.Expr = targets[0]
        for target in targets[1:]:
            value = cin.Call("logical_and", (value, target), BOOL)
        self.add(Nest(output, (), producers, value), var)


@dataclass(frozen=True)
class _Sum:
    """A sum with its gaps: `chain` holds r0, r1, ..., and `gaps` the operand that each but the first has more than the one before."""

    target: cin.Access
    extents: Mapping[cin.IndexVar, int]
    chain: tuple[cin.Expr, ...]
    gaps: tuple[cin.Access, ...]

    @staticmethod
    def of(producer: Producer) -> _Sum:
        expr, gaps = simplify.simplify(producer.rhs), _gaps(producer)
        accesses = (producer.target, *cin.accesses(producer.rhs))
        extents = cin.extents(accesses)
        chain = tuple(_number(simplify.exhaust(expr, set(gaps[k:]))) for k in range(len(gaps) + 1))
        if expr.dtype == BOOL:
            chain = tuple(cin.Call("cast", (e,), COUNTS) for e in chain)
        return _Sum(producer.target, extents, chain, tuple(gaps))

    @property
    def rounds(self) -> bool:
        """Whether sums are rounded, so that it matters how they are taken apart."""
        return self.chain[0].dtype.kind in "fc"

    def value(self, steps: _Steps) -> cin.Expr:
        """The sum, of values that `steps` compute."""
        made = self._together(steps, self.chain[0], lambda one, other: _call("subtract", other, one))
        return _call("not_equal", made, _zero(made.dtype), dtype=BOOL) if self.target.dtype == BOOL else made

    def test(self, steps: _Steps) -> cin.Expr:
        """Whether RATIO * B - N is neither negative, nor infinite or NaN, of the sum taken apart."""
        real = np.zeros((), self.chain[0].dtype).real.dtype

        def size(expr: cin.Expr) -> cin.Expr:
            return cin.Call("absolute", (expr,), real)

        def times(count: float, expr: cin.Expr) -> cin.Expr:
            return _call("multiply", simplify.literal(count, real), expr)

        def change(one: cin.Expr, other: cin.Expr) -> cin.Expr:
            grown = times(RATIO, _call("subtract", size(other), size(one)))
            return _call("subtract", grown, size(_call("subtract", other, one)))

        made = self._together(steps, times(RATIO - 1, size(self.chain[0])), change)
        least, most = _call("greater_equal", made, _zero(real), dtype=BOOL), simplify.literal(np.inf, real)
        return _call("logical_and", least, _call("less", made, most, dtype=BOOL), dtype=BOOL)

    def _together(self, steps: _Steps, first: cin.Expr, change: Callable[[cin.Expr, cin.Expr], cin.Expr]) -> cin.Expr:
        terms = [first]
        for gap, one, other in zip(self.gaps, self.chain[:-1], self.chain[1:], strict=True):
            differs = change(one, other)
            stored = cin.Call("stored", (gap,), BOOL)
            terms.append(
                cin.Call("masked", (stored, differs, replace(_zero(differs.dtype), absent=True)), differs.dtype)
            )
        made: cin.Expr | None = None
        for term in terms:
            expr = simplify.simplify(term)
            part = self._times(steps.sum(expr, self.target.indices, self.extents), expr, steps)
            made = part if made is None else _call("add", made, part)
        assert made is not None
        return simplify.simplify(made)

    def _times(self, total: cin.Expr, expr: cin.Expr, steps: _Steps) -> cin.Expr:
        """`total` as often as `expr` occurs: once for everything that it does not depend on, and that is summed over."""
        summed = set(self.extents) - set(self.target.indices) - set(cin.variables(expr))
        sizes = [self.extents[v] for v in sorted(summed, key=str)]
        for size in sizes:
            if isinstance(size, Bounded):
                total = _call("multiply", total, steps.extent(size, total.dtype))
        count = math.prod(n for n in sizes if not isinstance(n, Bounded))
        if total.dtype.kind in "iu":
            count = (count + 2**63) % 2**64 - 2**63 if total.dtype.kind == "i" else count % 2**64
            return _call("multiply", total, cin.Literal(np.array(count).astype(total.dtype)[()], total.dtype))
        return _call("multiply", total, simplify.literal(float(count), total.dtype))


def _number(expr: cin.Expr) -> cin.Expr:
    """A constant as a number: what the program could have written."""
    return replace(expr, absent=False) if isinstance(expr, cin.Literal) else expr


def _zero(dtype: np.dtype[np.generic]) -> cin.Literal:
    return simplify.literal(0, dtype)


def _call(op: str, *args: cin.Expr, dtype: np.dtype[np.generic] | None = None) -> cin.Expr:
    return simplify.simplify_call(op, args, dtype or args[0].dtype)
