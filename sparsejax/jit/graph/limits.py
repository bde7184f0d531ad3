"""How much one kernel may hold. What does not fit is stored between two kernels.

    nodes     of the expression as a tree: passes walk trees, and what is used twice is there twice
    pieces    of code that co-iteration makes of the expression: with g(e) the number of them,

        access with L sparse levels     L
        union of a and b                (1 + g(a)) (1 + g(b)) - 1         a alone, b alone, both
        product of a and b              max(g(a), g(b))                   nothing where either is absent
        a times any b, 0 / b            g(a) (1 + g(b))
    a long sum (`fission`)            the sum of g over its terms: they are accumulated one after the other
    the same, of T terms, where loops around it are shared with other statements, or floats are reduced as they are written
                                      (1 + g) (1 + T) - 1, with g of all levels but the last: only there are the terms apart

before:  out = |a1 + a2 + ... + a8|, all csr:  255 cases of one loop
after:   t = a1 + ... + a8,  out = |t|

Which of the three an operator is follows from `simplify` alone.
"""

from __future__ import annotations

import math

from sparsejax.formats import Dense
from sparsejax.jit.ir import cin, simplify
from sparsejax.jit.rewrite import fission

NODES = 128
"""A kernel of more nodes compiles slowly, and reads and writes memory seldom enough as it is."""

SHARED = 12
"""Nodes up to which a value is computed again by every reader instead of being stored."""

PIECES = 64


def nodes(expr: cin.Expr) -> int:
    """The nodes of the tree."""
    count, stack = 0, [expr]
    while stack:
        node = stack.pop()
        count += 1
        if isinstance(node, cin.Call):
            stack += node.args
    return count


def pieces(expr: cin.Expr, op: str | None = None, nested: bool = False) -> int:
    """An estimate of how many pieces of code co-iteration makes of `expr`, which is assigned, or reduced by `op`, in loops of its own or
    (`nested`) of several statements; at least one."""
    long = fission.accumulated(expr)
    if long is None:
        return _together(expr)
    terms = fission.groups(expr, long)
    if nested or (op is not None and fission.as_written(expr, op)):
        return (1 + _merged(expr, 1)) * (1 + len(terms)) - 1
    return sum(map(_together, terms))


def _together(expr: cin.Expr) -> int:
    """The same, where its operands are merged."""
    return max(1, _merged(expr))


def _merged(expr: cin.Expr, below: int = 0) -> int:
    """How many pieces the levels of `expr` make where they are merged, but for the last ones `below` of each operand."""
    distinct = {a: _sparse_levels(a, below) for a in cin.accesses(expr)}
    most = math.prod(1 + n for n in distinct.values()) - 1
    return most if most <= 1 else min(most, _pieces(expr, below)[0])


def _sparse_levels(access: cin.Access, below: int) -> int:
    return max(0, sum(not isinstance(level, Dense) for level in access.tensor.format.levels) - below)


def _pieces(expr: cin.Expr, below: int) -> tuple[int, cin.Expr]:
    """g of `expr`, and what it is where every sparse access is absent."""
    match expr:
        case cin.Access():
            count = _sparse_levels(expr, below)
            return count, simplify.fill_of(expr) if count else expr
        case cin.Call(op, args, dtype):
            known = [_pieces(a, below) for a in args]
            total = known[0][0]
            for k, (count, empty) in enumerate(known[1:], 1):
                if not (total and count) or len(args) > 2:
                    total = (1 + total) * (1 + count) - 1
                    continue
                before, after = known[k - 1][1], args[k]
                first = isinstance(simplify.simplify_call(op, (before, after), dtype), cin.Literal)
                second = isinstance(simplify.simplify_call(op, (args[k - 1], empty), dtype), cin.Literal)
                if first and second:
                    total = max(total, count)
                elif first or second:
                    total = total * (1 + count) if first else count * (1 + total)
                else:
                    total = (1 + total) * (1 + count) - 1
            return total, simplify.simplify_call(op, tuple(e for _, e in known), dtype)
        case _:
            return 0, expr
