"""Sums taken apart: terms over different sparse operands are accumulated one after the other.

before:  forall j                              after:  forall j
           s += A[i,j] * x[j] + B[i,j] + y[j]            s += A[i,j] * x[j]
                                                       forall j
                                                         s += B[i,j]
                                                       forall j
                                                         s += y[j]

before:  forall j                              after:  forall j
           out[i,j] = A[i,j] + ... + D[i,j]              where s: scalar
                                                           s += A[i,j]
                                                           ...
                                                         then
                                                           out[i,j] = s

"Sum" stands for any associative and commutative operator; terms that walk the same operands stay together. Reductions
are taken apart, since a loop over one operand needs no comparisons; assignments only where more than `FEW` operands would be
merged, whose subsets are too many for a case each. A dense result is written term after term.

Sums of floats are not associative: what A and B sum up to by themselves may be 1e308 each, or agree in all digits, where A - B is small. They
are added as they are written, element by element:

before:  forall j                              after:  forall j                     in one loop, with a case for every subset
           s += A[i,j] - B[i,j]                          s += A[i,j] - B[i,j]

before:  forall j                              after:  forall j                     with a test for every term
           s += A[i,j] - B[i,j] + ... + D[i,j]           where t: scalar
                                                           t += A[i,j]
                                                           t += -B[i,j]
                                                           ...
                                                         then
                                                           s += t

A term is what stands right of an operator, whatever it is made of: A - B + (C - D) has the terms A, -B and C - D. Terms that have one
sign whatever their operands are (A * A + abs(B)) cancel nothing: these sums are taken apart as all others.
Source: reference section 1.3, shape S5.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparsejax.formats import Format
from sparsejax.jit.ir import cin, operators, simplify

FEW = 3
"""Operands that are merged in one loop, with a case for every subset that matters."""


def split(stmt: cin.Stmt, around: frozenset[cin.IndexVar] = frozenset()) -> cin.Stmt | None:
    """`stmt`, inside loops over `around`, with the sums in it taken apart; None when nothing is left to do."""
    match stmt:
        case cin.Forall(var, body, kind):
            made = _apart(stmt, around)
            if made is not None:
                return simplify.exhaust_stmt(made, ())
            inner = split(body, around | {var})
            return None if inner is None else cin.Forall(var, inner, kind)
        case cin.Where(consumer, producer):
            made, used = split(producer), split(consumer, around)  # what the producer writes is new inside these loops
            if made is None or used is None:
                return simplify.exhaust_stmt(stmt, ())
            return cin.Where(used, made)
        case cin.Seq(stmts):
            left = [s for s in (split(s, around) for s in stmts) if s is not None]
            return cin.sequence(left) if left else None
        case _:
            return stmt


def as_written(expr: cin.Expr, op: str) -> bool:
    """Whether it matters how a tree of `op` is associated: sums are rounded, and may cancel."""
    if op != "add" or expr.dtype.kind not in "fc":
        return False
    signs = set(map(_sign, _terms(expr, op)))
    return len(signs) > 1 or 0 in signs


def _sign(expr: cin.Expr) -> int:
    """1 where a real expression is never negative, -1 where it is never positive, whatever its operands are; else 0. NaN has any sign."""
    if expr.dtype.kind in "bu":
        return 1
    match expr:
        case cin.Literal(value, dtype) if dtype.kind != "c":
            return 1 if value > 0 else -1 if value < 0 else 0
        case cin.Call(_, _, dtype) if dtype.kind == "c":
            return 0
        case cin.Call("absolute" | "square" | "exp" | "sqrt"):
            return 1
        case cin.Call("negative", (one,)):
            return -_sign(one)
        case cin.Call("cast", (one,)):
            return _sign(one) if one.dtype.kind != "c" else 0
        case cin.Call("multiply", (one, other)):
            return 1 if one == other else _sign(one) * _sign(other)
        case cin.Call("add", (one, other)):
            both = {_sign(one), _sign(other)}
            return both.pop() if len(both) == 1 else 0
        case _:
            return 0


def groups(expr: cin.Expr, op: str) -> list[cin.Expr]:
    """The terms of `expr` as a tree of `op`, those over the same sparse operands joined; those of floats as they are written, in this order.

    Each result is again a tree of `op`; a single one is `expr` itself.
    """
    operator = operators.get(op)
    if not (operator.associative and operator.commutative):
        return [expr]
    if as_written(expr, op):
        return _written(expr, op)
    found: list[tuple[frozenset[cin.Access], list[cin.Expr]]] = []
    for term in _terms(expr, op):
        sparse = _walked(term)
        joined = [g for g in found if (g[0] and sparse and (g[0] <= sparse or sparse <= g[0])) or g[0] == sparse]
        members = [m for g in joined for m in g[1]]
        found = [g for g in found if g not in joined]
        found.append((sparse.union(*(g[0] for g in joined)), [*members, term]))
    return [expr] if len(found) == 1 else [_tree(members, op) for _, members in found]


def _walked(expr: cin.Expr) -> frozenset[cin.Access]:
    return frozenset(a for a in cin.accesses(expr) if _sparse(a))


def _written(expr: cin.Expr, op: str) -> list[cin.Expr]:
    """What is added one after the other where `expr` is computed as it is written."""
    taken: list[cin.Expr] = []
    while isinstance(expr, cin.Call) and all(a.dtype == expr.dtype for a in expr.args):
        undone = operators.get(expr.op).undoes
        if expr.op == op:
            taken.append(expr.args[1])
        elif undone is not None and undone[0] == op:
            taken.append(cin.Call(undone[1], expr.args[1:], expr.dtype))
        else:
            break
        expr = expr.args[0]
    return [expr, *reversed(taken)]


def _terms(expr: cin.Expr, op: str) -> list[cin.Expr]:
    if isinstance(expr, cin.Call) and all(a.dtype == expr.dtype for a in expr.args):
        if expr.op == op:
            return [t for a in expr.args for t in _terms(a, op)]
        undone = operators.get(expr.op).undoes
        if undone is not None and undone[0] == op:
            taken = [cin.Call(undone[1], (t,), t.dtype) for t in _terms(expr.args[1], op)]
            return [*_terms(expr.args[0], op), *taken]
    return [expr]


def _tree(terms: Sequence[cin.Expr], op: str) -> cin.Expr:
    made = terms[0]
    for term in terms[1:]:
        made = cin.Call(op, (made, term), made.dtype)
    return made


def _sparse(access: cin.Access) -> bool:
    return not access.tensor.format.is_dense


def walks(expr: cin.Expr, var: cin.IndexVar) -> bool:
    """Whether some operand of `expr` has a sparse level over `var`."""
    return any(
        not level.full and access.level_index(k) == var
        for access in cin.accesses(expr)
        for k, level in enumerate(access.tensor.format.levels)
    )


def many(expr: cin.Expr) -> str | None:
    """The operator of a tree of more than `FEW` terms over different sparse operands, and with an identity; else None.

    Not of a product that absent operands annihilate: what its operands have in common is one case."""
    if not isinstance(expr, cin.Call):
        return None
    undone = operators.get(expr.op).undoes
    op = expr.op if undone is None else undone[0]
    sparse = {walked for g in groups(expr, op) if (walked := _walked(g))}
    if len(sparse) > FEW and _annihilated(expr, op):
        return None
    return op if len(sparse) > FEW and operators.get(op).identity(expr.dtype) is not None else None


def _annihilated(expr: cin.Expr, op: str) -> bool:
    """Whether `expr` is the annihilator of `op` where its sparse operands are absent."""
    zero = operators.get(op).left_annihilator
    left = simplify.exhaust(expr, {a for a in cin.accesses(expr) if _sparse(a)})
    return zero is not None and isinstance(left, cin.Literal) and cin.same_value(left.value, zero)


def accumulated(expr: cin.Expr) -> str | None:
    """The operator of a sum of many terms none of which says anything where its operands are absent; else None.

    Its terms may be accumulated one after the other, in a workspace or in place, whatever loops they need.
    """
    op = many(expr)
    if op is None or any(not _sparse(a) for a in cin.accesses(expr)):
        return None
    left = simplify.exhaust(expr, set(cin.accesses(expr)))
    identity = operators.get(op).identity(expr.dtype)
    return op if isinstance(left, cin.Literal) and cin.same_value(left.value, identity) else None


def _apart(stmt: cin.Forall, around: frozenset[cin.IndexVar]) -> cin.Stmt | None:
    """The loop `stmt` taken apart; None where it has to stay, or where a loop inside is the place."""
    variables, inner = cin.nested(stmt)
    if not isinstance(inner, cin.Assign) or not walks(inner.rhs, stmt.var):
        return None
    lhs, op, rhs = inner.lhs, inner.op, inner.rhs
    in_place = lhs.tensor.policy is not None or lhs.tensor.format.is_dense
    if op is not None:
        if as_written(rhs, op) and not around.union(variables) <= set(lhs.indices):
            return _summed(stmt, inner) if len(variables) == 1 else None
        terms = groups(rhs, op)
        if len(set(map(_walked, terms))) == 1 or not in_place or _overflows(op, lhs):
            return None
        return cin.sequence(cin.around(variables, cin.Assign(lhs, op, t)) for t in terms)
    op = many(rhs)
    if op is None or lhs.tensor.policy not in (None, "append"):
        return None
    if not in_place or lhs.tensor.policy == "append":
        return _summed(stmt, inner) if len(variables) == 1 else None
    terms = groups(rhs, op)
    if not as_written(rhs, op):
        terms.sort(key=lambda term: bool(_walked(term)))  # what is dense comes first
    if _walked(terms[0]):
        terms.insert(0, simplify.literal(operators.get(op).identity(lhs.dtype), lhs.dtype))
    first, *rest = terms
    stmts = (cin.Assign(lhs, None, first), *(cin.Assign(lhs, op, t) for t in rest))
    return cin.sequence(cin.around(variables, s) for s in stmts)


def _summed(stmt: cin.Forall, inner: cin.Assign) -> cin.Stmt | None:
    """The loop `stmt` around `inner`, with the many terms of an element accumulated in a register; None where they are few."""
    lhs, op = inner.lhs, many(inner.rhs)
    if op is None or inner.op not in (None, op):
        return None
    identity = operators.get(op).identity(lhs.dtype)
    name = f"{lhs.tensor.name}_{'s' if inner.op is None else 'e'}"
    scalar = cin.Access(cin.Tensor(name, (), lhs.dtype, Format(()), identity, "scalar"), ())
    parts = cin.sequence(cin.Assign(scalar, op, t) for t in groups(inner.rhs, op))
    return cin.Forall(stmt.var, cin.Where(cin.Assign(lhs, inner.op, scalar), parts))


def _overflows(op: str, target: cin.Access) -> bool:
    """Whether reducing one term for itself may run over where the whole does not: infinity times zero."""
    return operators.get(op).left_annihilator is not None and target.dtype.kind in "fc"
