"""What operators claim, against NumPy: identities, annihilators, order and grouping, what undoes them, and what reducing copies gives."""

import itertools

import numpy as np
import pytest

from sparsejax.jit.codegen.vector_math import functions
from sparsejax.jit.ir import cin, operators, scalar_functions

DTYPES = [np.dtype(name) for name in ("?", "u1", "u8", "i1", "i8", "f4", "f8", "c16")]
NUMBERS = (0, 1, 2, 3, 5)
BITS = ("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift")
BINARY = sorted(
    name for name, op in operators.OPERATORS.items() if op.arity == 2 and not op.body and name != "threefry"
)


CASES = [(name, dtype) for name in BINARY for dtype in DTYPES if dtype.kind in "biu" or name not in BITS]


def test_elementary_operators_are_those_that_are_written_for_lanes():
    """`logaddexp` of two numbers is made of two of them."""
    assert {name for name, op in operators.OPERATORS.items() if op.elementary} == {*functions.FUNCTIONS, "logaddexp"}


def values(dtype):
    made = [dtype.type(x) for x in NUMBERS]
    if dtype.kind in "ifc":
        made += [dtype.type(-1), dtype.type(-3)]
    if dtype.kind in "iu":
        made += [np.iinfo(dtype).min, np.iinfo(dtype).max]
    if dtype.kind == "f":
        made += [np.finfo(dtype).min, np.finfo(dtype).max, np.inf, -np.inf]
    return [dtype.type(x) for x in made]


def result(op, *args):
    """`op` of numbers of one type, where it has that type too; None elsewhere."""
    dtype = args[0].dtype
    try:
        with np.errstate(all="ignore"):
            made = np.asarray(op.numpy(*args))
    except (TypeError, ValueError):
        return None
    return made[()] if made.dtype == dtype else None


def alike(x, y):
    return x is None or y is None or bool(x == y) or bool(x != x and y != y)


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_claims(name, dtype):
    op, numbers = operators.get(name), values(dtype)
    identity = op.identity(dtype)
    for x in numbers:
        if identity is not None:
            assert identity.dtype == dtype
            start, side = (identity, x), (x, identity)
            assert not op.left_identity or alike(result(op, *start), x), start
            assert not op.right_identity or alike(result(op, *side), x), side
        assert not op.idempotent or alike(result(op, x, x), x)
        if op.repeat is not None and op.repeats(dtype) and dtype.kind in "iu":
            repeated = np.asarray(operators.get(op.repeat).numpy(x, dtype.type(3)))
            assert alike(result(op, result(op, x, x), x), repeated.astype(dtype)[()])
    for x, y in itertools.product(numbers, numbers):
        assert not op.commutative or alike(result(op, x, y), result(op, y, x)), (x, y)
        if op.undoes is not None:
            redone, inverse = map(operators.get, op.undoes)
            turned = result(inverse, y)
            assert (
                turned is None
                or dtype.kind == "?"
                or dtype.kind in "fc"
                or alike(result(op, x, y), result(redone, x, turned))
            )
    if op.associative and dtype.kind in "biu":
        for x, y, z in itertools.product(numbers, repeat=3):
            left, right = result(op, x, y), result(op, y, z)
            assert left is None or alike(result(op, left, z), result(op, x, right)), (x, y, z)


@pytest.mark.parametrize(("name", "dtype"), [c for c in CASES if operators.get(c[0]).identity_of is not None])
def test_reductions_start_from_the_identity(name, dtype):
    """An identity is neutral for every value of its type, the extreme ones too."""
    op = operators.get(name)
    if not (op.associative and op.commutative):
        return
    for x in values(dtype):
        made = result(op, op.identity(dtype), x)
        logical = name.startswith("logical")
        assert alike(made, x) or (logical and bool(made) == bool(x)), x


@pytest.mark.parametrize("name", BINARY)
def test_annihilators(name):
    op = operators.get(name)
    for x in map(np.float64, (1, 2, -3, 0.5)):
        for zero, args in ((op.left_annihilator, (np.float64(0), x)), (op.right_annihilator, (x, np.float64(0)))):
            if zero is not None and bool(zero == 0) and zero is not False:
                made = result(op, *args)
                assert made is None or made == 0


def test_repeats():
    told = {
        name: "".join(d.char for d in DTYPES if operators.get(name).repeats(d))
        for name in ("add", "multiply", "maximum")
    }
    assert told == {"add": "?BLblfd", "multiply": "Ll", "maximum": "?BLblfdD"}


def test_user_reductions_and_products():
    dtype = np.dtype("f8")
    x, y = scalar_functions.parameters(dtype)
    longer = scalar_functions.reduction(cin.Call("hypot", (x, y), dtype), 0.0)
    assert longer.associative and longer.commutative and longer.left_identity and longer.right_identity
    assert longer.identity(dtype) == 0 and longer.numpy(3.0, 4.0) == 5 and not longer.idempotent
    assert scalar_functions.reduction(cin.Call("multiply", (x, y), dtype), 1.0) is operators.get("multiply")
    assert scalar_functions.reduction(cin.Call("subtract", (x, y), dtype), 0.0) is not operators.get("subtract")
    for one in (None, 1.0):
        op = scalar_functions.product(cin.Call("add", (x, y), dtype), np.inf, one)
        assert (op.left_annihilator, op.right_annihilator) == (np.inf, np.inf)
        assert op.left_identity == op.right_identity == (one is not None)
        assert (op.identity(dtype) is None) == (one is None)
        assert not op.commutative and not op.associative
        assert [op.numpy(a, b) for a, b in ((1.0, 2.0), (np.inf, -np.inf), (1.0, np.inf))] == [3, np.inf, np.inf]


def test_registered_once():
    op = operators.get("add")
    assert operators.register(op) is op
