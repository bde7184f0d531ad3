"""Simplification of small expressions, as text before and after: constants, identities, annihilators, masks and choices."""

import numpy as np
import pytest

from sparsejax.formats import Format
from sparsejax.jit.ir import blocks, cin, simplify

FLOAT, BOOL = np.dtype("f8"), np.dtype(bool)
i, j, k = map(cin.IndexVar, "ijk")


def read(name, *indices, form="dense", fill=0.0, policy=None, result=None):
    shape = (4,) * len(indices)
    made = cin.Tensor(name, shape, FLOAT, Format.parse(form, len(shape)), FLOAT.type(fill), policy, result)
    return cin.Access(made, indices)


A, B, C = (read(name, i, j, form="csr") for name in "ABC")
ONES, NAN = read("O", i, j, form="csr", fill=1.0), read("N", i, j, form="csr", fill=np.nan)
D, E = read("D", i, j), read("E", i)
W = read("w", policy="scalar", result=Format.parse("csr", 2))
KNOWN = read("t", policy="scalar")


def call(op, *args, dtype=FLOAT):
    return cin.Call(op, args, dtype)


def number(value, **marks):
    return cin.Literal(FLOAT.type(value), FLOAT, **marks)


def stored(access):
    return call("stored", access, dtype=BOOL)


def no(condition):
    return call("logical_not", condition, dtype=BOOL)


GONE = {  # an expression, the accesses that are gone, and what is left
    "product": (call("multiply", A, D), [A], "absent 0.0"),
    "product of the other side": (call("multiply", D, A), [A], "absent 0.0"),
    "product with nan": (call("multiply", NAN, D), [NAN], "multiply(nan, D[i,j])"),
    "product with one": (call("multiply", ONES, D), [ONES], "D[i,j]"),
    "product with a number": (call("multiply", D, number(0)), [], "multiply(D[i,j], 0.0)"),
    "sum": (call("add", A, B), [A], "B[i,j]"),
    "sum of none": (call("add", A, B), [A, B], "absent 0.0"),
    "difference": (call("subtract", A, B), [B], "A[i,j]"),
    "difference of the other side": (call("subtract", A, B), [A], "subtract(0.0, B[i,j])"),
    "quotient by one": (call("divide", A, ONES), [ONES], "A[i,j]"),
    "quotient of nothing": (call("divide", A, D), [A], "absent 0.0"),
    "quotient of nothing by nothing": (call("divide", A, B), [A], "divide(0.0, B[i,j])"),
    "quotient of nothing by ones": (call("divide", A, ONES), [A], "absent 0.0"),
    "quotient of both": (call("divide", A, B), [A, B], "absent nan"),
    "a zero that is written": (call("add", D, number(0)), [], "add(D[i,j], 0.0)"),
    "a zero with a sign": (call("add", number(-0.0), D), [], "D[i,j]"),
    "less zero": (call("subtract", D, number(0)), [], "D[i,j]"),
    "less a zero with a sign": (call("subtract", D, number(-0.0)), [], "subtract(D[i,j], -0.0)"),
    "power": (call("power", A, number(1)), [], "A[i,j]"),
    "maximum": (call("maximum", A, D), [A], "maximum(0.0, D[i,j])"),
    "function": (call("exp", A), [A], "absent 1.0"),
    "function of a number": (call("exp", number(0)), [], "1.0"),
    "cast": (call("cast", A), [], "A[i,j]"),
    "inside": (call("exp", call("multiply", A, D)), [A], "absent 1.0"),
    "stored": (stored(A), [A], "absent False"),
    "not stored": (no(stored(A)), [A], "absent True"),
    "masked": (call("masked", stored(A), D, number(0)), [A], "absent 0.0"),
    "masked by others": (call("masked", stored(A), B, number(0)), [B], "absent 0.0"),
    "masked by what is not": (call("masked", no(stored(A)), D, number(0)), [A], "D[i,j]"),
    "masked constants": (call("masked", stored(A), number(2), number(0)), [], "masked(stored(A[i,j]), 2.0, 0.0)"),
    "masked zeros": (call("masked", stored(A), number(0), number(0)), [], "absent 0.0"),
    "where with a dense choice": (call("where", stored(A), D, E), [A], "E[i]"),
    "where of constants": (call("where", stored(A), number(2), number(3)), [A], "absent 3.0"),
    "where of the same": (call("where", stored(A), D, D), [], "D[i,j]"),
    "where of numbers that are the same": (call("where", stored(A), number(2), number(2)), [], "2.0"),
    "workspace": (call("add", W, D), [W], "D[i,j]"),
    "workspace in a product": (call("multiply", W, D), [W], "absent 0.0"),
    "register": (call("multiply", KNOWN, D), [KNOWN], "multiply(0.0, D[i,j])"),
    "register in a sum": (call("add", KNOWN, D), [KNOWN], "D[i,j]"),
    "register beside what may be absent": (call("add", KNOWN, A), [KNOWN], "add(0.0, A[i,j])"),
    "register and what is absent": (call("add", KNOWN, A), [KNOWN, A], "0.0"),
}


def spelled(expr):
    return f"{'absent ' if isinstance(expr, cin.Literal) and expr.absent else ''}{expr}"


@pytest.mark.parametrize("name", GONE)
def test_gone(name):
    expr, gone, left = GONE[name]
    assert spelled(simplify.exhaust(expr, gone)) == left


def test_questions():
    mask = call("logical_and", stored(A), stored(read("T", i, k, j, form="(d,c,d)")), dtype=BOOL)
    asked = {str(a): n for a, n in simplify.levels_asked(mask).items()}
    assert asked == {"A[i,j]": 2, "T[i,k,j]": 2}
    assert [simplify.decides(v, mask) for v in (i, j, k)] == [True, True, True]
    assert [simplify.decides(v, stored(read("T", i, k, j, form="(d,c,d)"))) for v in (i, j, k)] == [True, False, True]
    assert {str(a): n for a, n in simplify.levels_asked(call("greater", D, E, dtype=BOOL)).items()} == {
        "D[i,j]": 2,
        "E[i]": 1,
    }
    assert simplify.asked(call("masked", mask, B, number(0))) == set(cin.accesses(mask))
    assert simplify.asked(B) == set()


def test_assumed():
    stmt = cin.Assign(D, "add", call("masked", stored(A), call("multiply", A, B), number(0)))
    assert list(simplify.conditions(stmt)) == [stored(A)]
    assert str(simplify.assume(stmt, stored(A), True).rhs) == "multiply(A[i,j], B[i,j])"
    assert simplify.assume(stmt, stored(A), False) is None
    assert simplify.assume(stmt, stored(B), False) == stmt


def test_statements():
    add = cin.Assign(D, "add", call("multiply", A, B))
    assert simplify.exhaust_stmt(add, [A]) is None
    assert simplify.exhaust_stmt(add, [C]) == add
    both = cin.Seq((add, cin.Assign(D, "add", C)))
    assert simplify.exhaust_stmt(both, [A]) == cin.Assign(D, "add", C)
    assert simplify.exhaust_stmt(both, [A, C]) is None
    assert simplify.exhaust_stmt(cin.Forall(i, add), [B]) is None
    where = cin.Where(cin.Assign(D, "add", W), cin.Assign(W, "add", A))
    assert simplify.exhaust_stmt(where, [A]) is None
    assert simplify.exhaust_stmt(where, [B]) == where
    kept = cin.Where(cin.Assign(D, "add", call("add", W, C)), cin.Assign(W, "add", A))
    assert simplify.exhaust_stmt(kept, [A]) == cin.Assign(D, "add", C)
    unread = cin.Where(cin.Assign(D, "add", call("add", call("multiply", W, B), C)), cin.Assign(W, "add", A))
    assert simplify.exhaust_stmt(unread, [B]) == cin.Assign(D, "add", C)


def test_positions():
    """Values beside an array are beside it alone, and move with a copy of it where the entries of both are numbered alike."""
    forms = {"csr": True, "coo": True, "(c,d,d)": False, "csf": True, "(d,c,d)": True, "ell": False, "bitmap": False}
    for form, moves in forms.items():
        ndim = 3 if form.count(",") == 2 or form == "csf" else 2
        assert cin.position_of(read("A", *(i, j, k)[:ndim], form=form)).moves == moves, form
    values = cin.Access(cin.Tensor("v", (9,), FLOAT, Format.parse("dense", 1), FLOAT.type(0)), (cin.position_of(A),))
    assert cin.beside(values, (A,)) and cin.beside(values, (B, A)) and not cin.beside(values, (B,))
    assert not cin.beside(A, (A,)) and not cin.beside(values, ())
    two = cin.Access(
        cin.Tensor("v", (9, 9), FLOAT, Format.parse("dense", 2), FLOAT.type(0)),
        (cin.position_of(A), cin.position_of(B)),
    )
    assert cin.beside(two, (A,)) and cin.beside(two, (B,))


def test_constants_of_other_dimensions():
    """What a constant holds is told by its coordinates: it is forgotten where dimensions change, and kept where they do not."""
    tensor = A.tensor._replace(constant=cin.Constant(((0, 1),), FLOAT.type(2).tobytes()))
    access = cin.Access(tensor, A.indices)
    outer, inner = cin.IndexVar("io"), cin.IndexVar("ii", cin.IndexVar("io"), 2)
    parts = {A.indices[0]: (outer, inner)}
    assert blocks.split_access(access, {}).tensor.constant == tensor.constant
    made = blocks.split_access(access, parts).tensor
    assert made.constant is None and len(made.shape) == len(tensor.shape) + 1 and made.inner == (1,)
