"""Masks that are dense vectors, tested where the marks of a workspace are walked.

before:  forall j, i                                         after:  forall j, i
           if seen[i] == 0: mark[i] = 1                                mark[i] = 1
         drain: mark[i .. i + 63] are counted off                    drain: mark[i .. i + 63] & (seen[i .. i + 63] == 0)

The mask is tested once for every entry in place of once for every insertion, and in lanes; where a word of marks is empty it is not read.

Legal where the workspace has marks over one variable and no values (`single_valued`: what was inserted in vain leaves nothing but a mark), one
statement inserts into it, and the mask of this statement is a dense vector over that variable. Pays where words of marks receive many insertions.
A forecast of few is none, as those of loops are, which know their first round alone: so few lose 3 microseconds at most, as measured.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from sparsejax.jit.cost.skew import distinct
from sparsejax.jit.cost.workspace_choice import FEWEST
from sparsejax.jit.cost.workspace_price import LANES
from sparsejax.jit.ir import choices, cin
from sparsejax.jit.ir.program import Program

TEST, WORD, LINE = 0.5, 2.0, 0.5
"""Nanoseconds of a mask that is tested at an insertion, of a word of marks, and of a line of the mask beside it: only their ratios count. Measured on a
Zen 3 of 1,000 to a million insertions under masks of 100,000 booleans, int32 and float64: 0.3 to 0.7 (float64 up to 2), and 2.5 to 6.4 in all of a word."""


class Mask(NamedTuple):
    """A dense vector that lets through where it is not zero, or its `complement`."""

    access: cin.Access
    complement: bool
    condition: cin.Expr
    """As the statement has it."""


def noted(program: Program, inserted: tuple[float, float] | None) -> Program:
    """`program`, which says where masks are tested; `inserted`: the insertions that are expected, in how many uses of a workspace."""
    if program.stmt is None:
        return program
    found = []
    for write in cin.writes(program.stmt):
        tensor = write.lhs.tensor
        mask = of(program.stmt, tensor) if tensor.policy == "marks" else None
        if mask is None or tensor.name not in program.single:
            continue
        size = float(mask.access.tensor.shape[0])
        pay = inserted is not None and pays(*inserted, size, mask.access.dtype.itemsize)
        if choices.pick("mask_tests", ("inserted", "drained"), "drained" if pay else "inserted") == "drained":
            found.append(tensor.name)
    return replace(program, drained=tuple(found)) if found else program


def pays(inserts: float, uses: float, size: float, itemsize: int) -> bool:
    """Whether a mask of `size` elements is tested in less time where marks are walked, after so many insertions in so many uses.

    >>> [pays(n, 1.0, 20_000.0, 4) for n in (16.0, 1_500.0, 10_000.0)], pays(10_000.0, 1_000.0, 20_000.0, 4)
    ([True, False, True], False)
    """
    if inserts < FEWEST:
        return True
    words = uses * distinct(inserts / uses, max(1.0, size / LANES))
    return words * (WORD + LINE * itemsize) < TEST * inserts


def of(stmt: cin.Stmt, tensor: cin.Tensor) -> Mask | None:
    """The dense vector that is the mask of all that `stmt` inserts into a workspace of marks, if there is one."""
    inserts = [w for w in cin.writes(stmt) if w.lhs.tensor.name == tensor.name]
    if len(inserts) != 1 or len(tensor.shape) != 1:
        return None
    value, (key,) = inserts[0].rhs, inserts[0].lhs.indices
    if not isinstance(value, cin.Call) or value.op != "masked":
        return None
    mask, complement = value.args[0], False
    while isinstance(mask, cin.Call) and (mask.op, mask.dtype.kind) in (("logical_not", "b"), ("cast", "b")):
        complement ^= mask.op == "logical_not"
        (mask,) = mask.args
    if not isinstance(mask, cin.Access) or (var := cin.follows(key)) is None or var.outer is not None:
        return None
    vector = mask.tensor
    plain = vector.policy is None and vector.constant is None and not vector.inner and vector.stored.is_dense
    numbers = vector.dtype.kind in "biuf" and vector.dtype.itemsize in (1, 2, 4, 8) and vector.dtype != "float16"
    return Mask(mask, complement, value.args[0]) if plain and numbers and mask.indices == (key,) else None
