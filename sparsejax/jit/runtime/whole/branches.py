"""`cond` in a loop that is one table: the operations of every branch, of which a round runs one, and registers that hold what either of them gives.

    y, z = cond(k, f, g, c, d)       y dense, z sparse; f makes a y, and gives d back as z; g gives c back as y, and makes a z

        SWITCH  *k
        JUMP    → f
        JUMP    → g
     f: ...                          its kernel writes y where that is
        COPY    slots of z ← d;  SET d's own ← 0      nobody reads d afterwards: its memory is z's from now on
        JUMP    → out
     g: ...
        y ↔ c                        nobody reads c afterwards: the addresses change places
        COPY    slots of z ← its result
   out:

Where an operand that a branch gives back is read afterwards, it is copied, or pointed to where no carry gets it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Eqn
from sparsejax.formats.storage import Storage
from sparsejax.jit.runtime import binding
from sparsejax.jit.runtime.kernels import KernelRunner
from sparsejax.jit.runtime.whole.driver import COPY, JUMP, SET, SWITCH
from sparsejax.jit.runtime.whole.registers import Register, Unbound, ints_of, pointers_of, size_of, words_of
from sparsejax.jit.runtime.whole.sizes import bytes_of

if TYPE_CHECKING:
    from sparsejax.jit.runtime.whole.table import Table

STEPS = "cond", "kept", "thin", "checked"
"""Steps of branches that are no kernels."""


def _known(plan: Any) -> bool:
    """Whether machine code may know all of its steps, so that a round can be tried. Branches inside of branches give dense values only: a sparse one
    may be memory of the outer operands, which would be taken for its own, and freed twice."""
    return not plan.checks.before and all(
        isinstance(step, KernelRunner)
        or (
            step.eqn.primitive.name in STEPS
            and all(_known(body) for body in plan.bodies(number))
            and (step.eqn.primitive.name != "cond" or all(o.aval.format.is_dense for o in step.eqn.outputs))
        )
        for number, step in enumerate(plan.steps)
    )


def branched(
    table: Table,
    eqn: Eqn,
    plans: Sequence[Any],
    inputs: Sequence[Register],
    gone: Sequence[Register],
    samples: Sequence[Storage],
    swapped: Sequence[bool],
) -> list[Register]:
    """The results of `cond`: an index, then operands of all branches. Nobody reads inputs that are `gone` afterwards; results that are `swapped`
    change places with carries."""
    index, *operands = inputs
    table.by_size.fixed = True
    if not all(_known(plan) for plan in plans):
        raise Unbound("a branch has steps that are not known to machine code")
    tried = [_tried(plan, operands) for plan in plans]
    merged = [_Merged(table, o.aval, s, m) for o, s, m in zip(eqn.outputs, samples, swapped, strict=True)]
    signed = index.aval.dtype.kind == "i"
    table.op(SWITCH, index.vals, len(plans), index.aval.dtype.itemsize, int(signed))
    jumps = len(table.ops)
    for _ in plans:
        table.op(JUMP, 0, 0)
    leave = []
    for number, (plan, registers) in enumerate(zip(plans, tried, strict=True)):
        table.ops[jumps + number][2] = len(table.ops)
        into = {k: m.home for k, m in zip(plan.results, merged, strict=True) if m.dense}
        results = table.plan(plan, operands, any(swapped), registers, gone, into)
        free = [r for r in gone if operands.count(r) == 1]
        results = [r if r.dense or r not in results[:n] else table.copy(r) for n, r in enumerate(results)]
        for m, result in zip(merged, results, strict=True):
            if m.dense:
                m.copied(result, free)
        for m, result in zip(merged, results, strict=True):
            if m.dense:
                m.exchanged(result)
            else:
                m.taken(result, operands, free)
        leave.append(len(table.ops))
        table.op(JUMP, 0, 0)
    for at in leave:
        table.ops[at][2] = len(table.ops)
    return [m.register for m in merged]


def _tried(plan: Any, operands: Sequence[Register]) -> list[Storage]:
    """The registers of a branch in a round that may have taken another one."""
    try:
        return plan.registers_of([r.sample for r in operands])  # type: ignore[no-any-return]
    except (ArithmeticError, LookupError, ValueError) as error:
        raise Unbound("a branch that was not taken fails on what the other one is given") from error


class _Merged:
    """A result of branches: its register, and where a branch that makes a dense one writes it."""

    def __init__(self, table: Table, aval: Aval, sample: Storage, swapped: bool) -> None:
        aval = Aval(aval.shape, aval.dtype, aval.format, sample.fill_value)
        self.table, self.swapped = table, swapped
        slots = ints_of(binding.input_slots(sample))
        self.register = r = Register(
            table.room([0] * words_of(aval)), size_of(aval), aval, sample, changes=True, made=True
        )
        self.dense = r.dense
        if r.dense:
            table.words[r.at : r.vals] = slots[:-1]
            self.home = r.vals if swapped else table.room([0])
            table.buffer(self.home, bytes_of(sample.vals.size, aval, None))
        else:
            r.owned = table.room([0])
            table.owns(r, pointers_of(r))
        self._exchange = False

    def copied(self, result: Register, free: Sequence[Register]) -> None:
        """Take a dense value of a branch: it may be here already, or in memory that is `free` afterwards, to change places with."""
        table, own = self.table, self.register
        self._exchange = False
        if not self.swapped:
            table.op(COPY, own.vals, result.vals, 1)
            table.pinned.append(result)
            result.readers += 1
            own.holds = (*own.holds, result)
        elif result.into == self.home:
            return
        elif _movable(result, free) and result not in table.exchanged:
            table.exchanged.append(result)
            self._exchange = True
        else:
            table.moved(own.vals, result, result.sample.vals.nbytes)

    def exchanged(self, result: Register) -> None:
        """Change places with it, after what others read of it has been copied."""
        if self._exchange:
            table, own, between = self.table, self.register, self.table.room([0])
            table.exchanged.remove(result)
            for to, source in ((between, own.vals), (own.vals, result.vals), (result.vals, between)):
                table.op(COPY, to, source, 1)

    def taken(self, result: Register, operands: Sequence[Register], free: Sequence[Register]) -> None:
        """Take a sparse value of a branch, with its memory where that is nobody else's."""
        table, own = self.table, self.register
        outer = result in operands
        if not outer:
            table.own(result)
        table.op(SET, own.owned, 0)
        table.op(COPY, own.at, result.at, words_of(own.aval))
        if not outer:
            table.op(SET, own.owned, 1)
            table.forget(result)
        elif not result.own and not result.holds:  # an operand of the loop
            pass
        elif result in free and result.readers == 1 and not result.holds:
            if result.owned < 0:
                table.op(SET, own.owned, 1)
            else:
                table.op(COPY, own.owned, result.owned, 1)
            table.forget(result)
        elif self.swapped:
            table.cloned(own, own.own)
            table.op(SET, own.owned, 1)
        else:
            result.readers += 1
            own.holds = (*own.holds, result)


def _movable(result: Register, free: Sequence[Register]) -> bool:
    """Whether a dense register may change places with another: a carry that nobody reads any more, or what a branch made in memory of its own."""
    if result.around:
        return result in free
    return result.made and result.changes and result.into < 0 and not result.holds
