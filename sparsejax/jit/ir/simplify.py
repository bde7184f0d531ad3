"""Simplification and exhaustion: the algebra behind co-iteration.

    exhaust(e, G) = simplify(e with every access in G replaced by the fill of its tensor)

before:  A[i] * B[i] + C[i],  G = {A}      after:  C[i]
before:  A[i] * B[i],         G = {A}      after:  0

Annihilation is for entries that are absent: `x[i] * 0` with a dense x stays a product, since x[i] may be NaN.

The cases of a loop, the formats of results and their fills are all read off exhausted expressions; nothing else in
the compiler knows what an operator means. Source: merge lattices ("The Tensor Algebra Compiler", section 4),
computed by substitution as in "Compilation of Sparse Array Programming Models".
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace

import numpy as np

from sparsejax.jit.ir import cin, operators


def literal(value: object, dtype: np.dtype[np.generic], absent: bool = False) -> cin.Literal:
    """A literal of `dtype`; the value is converted as NumPy would."""
    made = value if type(value) is dtype.type else np.asarray(value).astype(dtype)[()]
    return cin.Literal(made, dtype, absent)


def fill_of(access: cin.Access) -> cin.Literal:
    """What `access` reads where nothing is stored (or, of a dense result, where nothing was added)."""
    tensor = access.tensor
    made = literal(tensor.fill_value, tensor.dtype, tensor.lacks)
    return made if tensor.lacks or tensor.policy is None else cin.Literal(made.value, made.dtype, made.absent, True)


def simplify_call(op: str, args: tuple[cin.Expr, ...], dtype: np.dtype[np.generic]) -> cin.Expr:
    """`op(args)` with constants folded, identities dropped and annihilators applied."""
    if op == "stored" and isinstance(args[0], cin.Literal):
        return literal(False, dtype, True)  # the access is gone: nothing is stored there
    if op in ("where", "masked"):
        return _choice(op, args, dtype)
    operator = operators.get(op)
    if operator.arity == 2:
        zero = _annihilated(op, args[0], args[1], dtype)
        if zero is not None:
            return literal(zero, dtype, True)
    if all(isinstance(a, cin.Literal) for a in args):
        return _fold(op, [a for a in args if isinstance(a, cin.Literal)], dtype)
    if op == "cast":
        return args[0] if args[0].dtype == dtype else cin.Call(op, args, dtype)
    if operator.arity == 2:
        left, right = args
        if isinstance(left, cin.Literal) and operator.left_identity and _is_identity(op, left, right):
            return right
        if isinstance(right, cin.Literal) and operator.right_identity and _is_identity(op, right, left):
            return left
    return cin.Call(op, args, dtype)


def _annihilated(op: str, left: cin.Expr, right: cin.Expr, dtype: np.dtype[np.generic]) -> object | None:
    """What `op` gives because an operand is absent, if it does.

    Only what is absent annihilates: a zero that somebody stored or wrote is a number, and its product with NaN is NaN. An
    annihilator of one side also needs that nothing else comes out where a sparse divisor is absent too: 0 / 0.
    """
    operator = operators.get(op)
    if _is_absent(left, operator.left_annihilator):
        zero = operator.left_annihilator
        if operator.right_annihilator is not None:
            return zero
        divisor = exhaust(right, {a for a in cin.accesses(right) if a.tensor.lacks})
        if not _is_absent(divisor) or cin.same_value(_fold(op, [_number(left), _number(divisor)], dtype).value, zero):
            return zero
    return operator.right_annihilator if _is_absent(right, operator.right_annihilator) else None


def _number(expr: cin.Expr) -> cin.Literal:
    assert isinstance(expr, cin.Literal)
    return expr


_ANY = object()


def _is_absent(expr: cin.Expr, value: object = _ANY) -> bool:
    """Whether `expr` is an absent entry that reads as `value`."""
    return isinstance(expr, cin.Literal) and expr.absent and (value is _ANY or bool(expr.value == value))


def _choice(op: str, args: tuple[cin.Expr, ...], dtype: np.dtype[np.generic]) -> cin.Expr:
    """`where` and `masked` with a known condition, or with nothing to choose. Where a mask fails, and where a constant is chosen because
    the condition is absent, there is no entry."""
    condition, yes, no = args
    if op == "masked" and isinstance(no, cin.Literal):
        no = literal(no.value, no.dtype, True)
    if isinstance(condition, cin.Literal):
        chosen = yes if condition.value else no
        if condition.absent and isinstance(chosen, cin.Literal):
            return literal(chosen.value, chosen.dtype, True)
        return chosen
    match yes, no:
        case cin.Literal(a, first), cin.Literal(b, second) if first == second and cin.same_value(a, b):
            return literal(a, dtype, yes.absent or no.absent)
    return yes if yes == no else cin.Call(op, args, dtype)


def _is_identity(op: str, constant: cin.Literal, other: cin.Expr) -> bool:
    """Whether `other` is all that comes out. Where it may be absent, a number that is there makes the result one that is; and -0.0 + 0.0 is 0.0: what is
    absent adds nothing, a zero that somebody wrote does."""
    if constant.solid and any(a.tensor.lacks for a in cin.accesses(other)):
        return False
    identity = operators.get(op).identity(constant.dtype)
    if identity is None or not cin.same_value(constant.value, identity):
        return False
    if op not in ("add", "subtract") or constant.dtype.kind not in "fc" or constant.absent or constant.solid:
        return True
    number = complex(constant.value)
    wanted = -1.0 if op == "add" else 1.0
    parts = (number.real, number.imag) if constant.dtype.kind == "c" else (number.real,)
    return all(math.copysign(1.0, part) == wanted for part in parts)


def _fold(op: str, args: list[cin.Literal], dtype: np.dtype[np.generic]) -> cin.Literal:
    with np.errstate(all="ignore"):
        value = operators.get(op).numpy(*(np.asarray(a.value, a.dtype) for a in args))
        solid = any(a.solid for a in args)
        made = literal(value, dtype, any(a.absent for a in args) and not solid)
        return cin.Literal(made.value, dtype, made.absent, True) if solid else made


def simplify(expr: cin.Expr) -> cin.Expr:
    """`expr` simplified bottom-up."""
    return exhaust(expr, ())


def exhaust(expr: cin.Expr, gone: Collection[cin.Access]) -> cin.Expr:
    """`expr` where every access in `gone` reads its fill, simplified. Parts that are simple and read none of them stay; what is left of the
    others is remembered with them."""
    return _exhaust(expr, frozenset(gone))


def _exhaust(expr: cin.Expr, gone: frozenset[cin.Access]) -> cin.Expr:
    if type(expr) is cin.Call:
        made = expr.left.get(gone)
        if made is None:
            if expr.simple and gone.isdisjoint(expr.reads):
                return expr
            made = simplify_call(expr.op, tuple([_exhaust(a, gone) for a in expr.args]), expr.dtype)
            if type(made) is cin.Call:
                made.__dict__["simple"] = True
            expr.left[gone] = made
        return made
    if type(expr) is cin.Access:
        return fill_of(expr) if gone and (expr in gone or cin.beside(expr, gone)) else expr
    return expr


def exhaust_stmt(stmt: cin.Stmt, gone: Collection[cin.Access]) -> cin.Stmt | None:
    """`stmt` where every access in `gone` reads its fill; None when nothing is left to do.

    An assignment disappears when it would only write what is there already: the identity of its operator, or for a
    plain assignment the fill of its target, unless it is there to clear it. Where the producer of a workspace disappears, the consumer reads the
    workspace's initial value instead.
    """
    match stmt:
        case cin.Assign(lhs, op, rhs):
            if cin.beside(lhs, gone):
                return None
            value = exhaust(rhs, gone)
            known = isinstance(value, cin.Literal) and cin.same_value(value.value, nothing(lhs.tensor, op))
            if known and not stmt.clears:
                return None
            return stmt if value is rhs else replace(stmt, rhs=value)
        case cin.Forall(var, body, kind):
            inner = exhaust_stmt(body, gone)
            return None if inner is None else stmt if inner is body else cin.Forall(var, inner, kind)
        case cin.Where(consumer, producer):
            made = exhaust_stmt(producer, gone)
            if made is None:
                names = {w.lhs.tensor.name for w in cin.writes(producer)}
                if any(
                    w.lhs.tensor.name in names for w in cin.writes(consumer)
                ):  # it starts what the consumer goes on with
                    used = exhaust_stmt(consumer, gone)
                    return None if used is None else stmt if used is consumer else cin.Where(used, producer)
                empty = {a for a in cin.accesses(consumer) if a.tensor.name in names}
                return exhaust_stmt(consumer, {*gone, *empty})
            used = exhaust_stmt(consumer, gone)
            if used is None:
                return None
            read = {a.tensor.name for a in cin.accesses(used)}
            if not any(w.lhs.tensor.name in read for w in cin.writes(made)):
                return used
            return stmt if used is consumer and made is producer else cin.Where(used, made)
        case cin.Seq(stmts):
            left = [s for s in (exhaust_stmt(s, gone) for s in stmts) if s is not None]
            return cin.sequence(left) if left else None


def conditions(stmt: cin.Stmt) -> dict[cin.Expr, None]:
    """The conditions of the masks in `stmt`, in order of appearance."""
    return dict.fromkeys([c for w in cin.writes(stmt) if isinstance(w.rhs, cin.Call) for c in w.rhs.conditions])


def levels_asked(condition: cin.Expr) -> dict[cin.Access, int]:
    """How many levels of every access must be resolved for a condition to be known: whether an entry is stored does not depend on dense
    levels below all others."""
    if isinstance(condition, cin.Access):
        return {condition: len(condition.indices)}
    if not isinstance(condition, cin.Call):
        return {}
    if condition.op == "stored" and isinstance(access := condition.args[0], cin.Access):
        return {access: 1 + max(access.tensor.format.sparse, default=-1)}
    found: dict[cin.Access, int] = {}
    for arg in condition.args:
        for access, count in levels_asked(arg).items():
            found[access] = max(count, found.get(access, 0))
    return found


def decides(var: cin.IndexVar, condition: cin.Expr) -> bool:
    """Whether a condition depends on a variable."""
    return any(
        var in cin.variables_of(access.level_index(level))
        for access, count in levels_asked(condition).items()
        for level in range(count)
    )


def asked(expr: cin.Expr) -> set[cin.Access]:
    """The accesses of which `expr` asks whether they are stored."""
    if not isinstance(expr, cin.Call):
        return set()
    own = {a for a in expr.args if expr.op == "stored" and isinstance(a, cin.Access)}
    return own.union(*(asked(a) for a in expr.args))


def assume(stmt: cin.Stmt, condition: cin.Expr, holds: bool) -> cin.Stmt | None:
    """`stmt` where the masks with `condition` are decided; None when nothing is left to do.

    before:  C[i] += masked(m[i], A[i,j] * x[j], 0)
    after:   C[i] += A[i,j] * x[j]          where it holds, None where it does not
    """
    decided = literal(holds, condition.dtype)

    def look(expr: cin.Expr) -> cin.Expr:
        if not isinstance(expr, cin.Call):
            return expr
        args = tuple(look(a) for a in expr.args)
        if expr.op == "masked" and expr.args[0] == condition:
            args = (decided, *args[1:])
        return cin.Call(expr.op, args, expr.dtype)

    return exhaust_stmt(cin.map_values(stmt, look), ())


def nothing(target: cin.Tensor, op: str | None) -> object:
    """The value whose assignment to `target` with `op` changes nothing that is not stored."""
    return target.fill_value if op is None else operators.get(op).identity(target.dtype)


def at_entry(stmt: cin.Stmt, access: cin.Access) -> cin.Stmt:
    """`stmt` where `access` is stored: nothing asks that any more."""
    for c in conditions(stmt):
        if isinstance(c, cin.Call) and c.op == "stored" and c.args[0] == access:
            stmt = assume(stmt, c, True) or stmt
    return stmt


def cheap(expr: cin.Expr, free: Collection[str] = ()) -> bool:
    """Whether every operator of `expr` costs no more than a few instructions, or is one of the `free`."""
    if isinstance(expr, cin.Call):
        own = expr.op in free or operators.get(expr.op).cost <= operators.CHEAP
        return own and all(cheap(a, free) for a in expr.args)
    return True
