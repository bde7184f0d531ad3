"""What a kernel has, found once, by which passes and choices say where they apply: one whose condition does not hold is not entered.

    y[i] += A[i,k] * x[k],  A csr            sparse=1, loops=2, products, plain; no sparse result, fills, tiles, ...
    a pass with `wanted=lambda f: f.fills`   is not asked of it

A condition is sound where it is wider than what the pass does: without conditions (`choices.asking`) every plan is the same, only later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparsejax.jit.ir import cin

MERGED = 3
"""Sparse operands up to which a product is one term (`rewrite/fission`)."""


@dataclass(frozen=True)
class Features:
    """What a kernel has."""

    sparse: int
    """Sparse operands."""
    sparse_result: bool
    reduced: bool
    """Whether the result is a reduction, with nothing applied to it."""
    loops: int
    """Variables."""
    rank: int
    """The most variables, or axes, of a dense operand."""
    products: bool
    """Whether statements compute nothing but products of few operands, and add these up or reduce them in another way than by products."""
    fills: bool
    """Whether something may be left of a sum where a sparse operand is absent."""
    tiles: bool
    """Whether a variable of a reduction's result may be contiguous in all that it reads."""
    plain: bool
    """Whether levels are ordered and hold no duplicates, and nothing is stored in blocks."""
    placed: bool
    """Whether operands or results are at positions, or at coordinates that arrays name."""
    met: bool
    """Whether the only sparse operand shares a variable with the result, so that its coordinates matter."""
    overwrites: bool
    """Whether a dense operand has the type of the result."""


def of(
    out: cin.Access, reads: Sequence[cin.Access], statements: Sequence[tuple[cin.Access, str | None, cin.Expr]]
) -> Features:
    """The features of a kernel with this result, which reads these accesses of inputs: its statements assign or (op) reduce expressions."""
    used = (out, *reads)
    sparse = [a for a in reads if a.tensor.lacks or not a.tensor.format.is_dense]
    dense = [a for a in reads if a.tensor.format.is_dense]
    placed = any(not cin.are_variables(a.indices) for a in (*used, *(lhs for lhs, _, _ in statements)))
    products = all(_is_product(rhs, op) for _, op, rhs in statements)
    result = set(out.indices)
    tiled = [lhs for lhs, op, _ in statements if op is not None]
    return Features(
        sparse=len(sparse),
        sparse_result=not out.tensor.format.is_dense,
        reduced=any(op is not None for _, op, _ in statements),
        loops=len({v for a in used for v in cin.bound_by(a)}),
        rank=max([max(len(a.indices), len(cin.bound_by(a))) for a in dense], default=0),
        products=products,
        fills=not products or any(bool(a.tensor.fill_value != 0) for a in sparse),
        tiles=placed
        or any(_asks(rhs) for _, _, rhs in statements)
        or any(_is_contiguous(v, reads) for lhs in tiled for v in lhs.indices),
        plain=all(_is_plain(a.tensor) for a in used),
        placed=placed,
        met=len(sparse) == 1 and not _leading(sparse[0]).isdisjoint(result),
        overwrites=any(a.tensor.shape == out.tensor.shape and a.tensor.dtype == out.tensor.dtype for a in dense),
    )


def _is_product(rhs: cin.Expr, op: str | None) -> bool:
    """Whether an expression is a product of few operands, that is not multiplied up itself."""
    factors: list[cin.Access] = []

    def walked(expr: cin.Expr) -> bool:
        if isinstance(expr, cin.Access):
            factors.append(expr)
            return True
        return isinstance(expr, cin.Call) and expr.op == "multiply" and all(map(walked, expr.args))

    return op != "multiply" and walked(rhs) and len(factors) <= MERGED


def _asks(expr: cin.Expr) -> bool:
    """Whether an expression depends on whether operands are stored, or on a mask."""
    return isinstance(expr, cin.Call) and (expr.op in ("masked", "stored") or any(map(_asks, expr.args)))


def _is_contiguous(var: cin.Index, reads: Sequence[cin.Access]) -> bool:
    """Whether all that is read along a variable stores it last, all of its coordinates."""
    return all(
        a.level_index(len(a.indices) - 1) == var and a.tensor.format.levels[-1].full
        for a in reads
        if var in cin.bound_by(a)
    )


def _is_plain(tensor: cin.Tensor) -> bool:
    form = tensor.format
    return not form.blocked and tensor.source is None and all(level.ordered and level.unique for level in form.levels)


def _leading(access: cin.Access) -> set[cin.Index]:
    """The variables of an operand that coordinates are stored of, and those above them."""
    last = (-1, *access.tensor.format.sparse)[-1]
    return {access.level_index(level) for level in range(last + 1)}
