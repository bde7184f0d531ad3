"""How much one kernel may hold. What does not fit is stored between two kernels.

    nodes     of the expression as a tree: passes walk trees, and what is used twice is there twice
    pieces    of code that co-iteration makes of the expression: the cases of every loop, over all levels. At level l, an operand has n(l)
              ways to be there, each inside other cases of the loops around it, and d(l) to be gone, at this level or one above

        access with L sparse levels     n = 1, d = min(l, L)
        union of a and b                n = n(a) n(b) + n(a) d(b) + d(a) n(b), d = d(a) d(b)          a alone, b alone, both
        product of a and b              n = n(a) n(b), d = l                                          nothing where either is absent
        a times any b, 0 / b            n = n(a) (n(b) + d(b)), d = l
    a long sum (`fission`)            the sum over its terms: they are accumulated one after the other
    the same, of T terms, where loops around it are shared with other statements, or floats are reduced as they are written
                                      (1 + g) (1 + T) - 1, with g of all levels but the last: only there are the terms apart

before:  out = |a1 + a2 + ... + a8|, all csr:  255 cases of one loop
after:   t = a1 + ... + a8,  out = |t|

Which of the three an operator is follows from `simplify` alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sparsejax.jit.ir import cin, simplify
from sparsejax.jit.rewrite import fission

NODES = 128
"""A kernel of more nodes compiles slowly, and reads and writes memory seldom enough as it is."""

SHARED = 12
"""Nodes up to which a value is computed again by every reader instead of being stored."""

PIECES = 48


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
    found = {a: _sparse_levels(a, below) for a in cin.accesses(expr)}
    depth = max(found.values(), default=0)
    most = math.prod(1 + n for n in found.values()) - 1
    return min(most, sum(_Ways.of(expr, found, depth).there)) if depth else 0


def _sparse_levels(access: cin.Access, below: int) -> int:
    return max(0, len(access.tensor.format.sparse) - below)


class _Ways(NamedTuple):
    """How many ways an expression has to be there, and to be gone, at each level; what it is where every sparse access is absent."""

    there: Sequence[int]
    gone: Sequence[int]
    empty: cin.Expr

    @property
    def sparse(self) -> bool:
        return any(self.gone)

    @classmethod
    def of(cls, expr: cin.Expr, levels: Mapping[cin.Access, int], depth: int) -> _Ways:
        """Those of `expr` at `depth` levels, whose operands have so many of them."""
        below = range(1, depth + 1)
        match expr:
            case cin.Access():
                count = levels[expr]
                return cls([1] * depth, [min(k, count) for k in below], simplify.fill_of(expr) if count else expr)
            case cin.Call(op, args, dtype):
                made, rest = cls.of(args[0], levels, depth), args[0]
                known = [made.empty]
                for arg in args[1:]:
                    other = cls.of(arg, levels, depth)
                    first, second = made.sparse and other.sparse and len(args) == 2, False
                    if first:
                        first, second = (
                            isinstance(simplify.simplify_call(op, pair, dtype), cin.Literal)
                            for pair in ((made.empty, arg), (rest, other.empty))
                        )
                    made = cls._joined(made, other, first, second)
                    known.append(other.empty)
                return cls(made.there, made.gone, simplify.simplify_call(op, tuple(known), dtype))
            case _:
                return cls([1] * depth, [0] * depth, expr)

    @classmethod
    def _joined(cls, a: _Ways, b: _Ways, first: bool, second: bool) -> _Ways:
        """Both as operands of one operator, of which nothing is left without the `first`, or without the `second`."""
        pairs = list(zip(a.there, a.gone, b.there, b.gone, strict=True))
        below = range(1, len(pairs) + 1)
        if first and second:
            return cls([n * m for n, _, m, _ in pairs], below, a.empty)
        if first:
            return cls([n * (m + e) for n, _, m, e in pairs], below, a.empty)
        if second:
            return cls([(n + d) * m for n, d, m, _ in pairs], below, a.empty)
        return cls([n * m + n * e + d * m for n, d, m, e in pairs], [d * e for _, d, _, e in pairs], a.empty)
