"""`sj.insum` against plain loops: random statements, errors with their places, dtypes, indices that are read and that are not."""

import functools
import itertools
import re

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.formats import validate
from sparsejax.insum import functions
from tests import insum_interpreter
from tests.insum import statements

BATCH = 50


def fault(case: statements.Case, jitted: bool = False) -> str | None:
    """None when the results of a case are valid and what plain loops give, else what is wrong."""
    want = insum_interpreter.interpret(case.text, case.arrays, case.stored, case.dtypes)
    run = functools.partial(sj.insum, case.text, returns=tuple(want))
    got = (sj.jit(run) if jitted else run)(**case.operands)
    for made, (name, wanted) in zip(got, want.items(), strict=True):
        validate.validate(made.storage)
        dense = made.todense()
        tolerance = 1e-5 if dense.dtype == np.float32 else 1e-12
        if dense.dtype != wanted.dtype or not np.allclose(dense, wanted, rtol=tolerance, atol=tolerance):
            return f"{case}\n{name} expected\n{wanted}\ngot\n{dense}"
    return None


@pytest.mark.rotating(2, exactly=True)
@pytest.mark.parametrize("start", range(0, 2100, BATCH))
def test_random_statements(start):
    faults = [f for f in (fault(statements.make(seed)) for seed in range(start, start + BATCH)) if f]
    assert not faults, "\n\n".join(faults)


@pytest.mark.rotating(8)
@pytest.mark.parametrize("start", range(800_000, 801_600, BATCH))
def test_random_statements_of_what_is_in_blocks(start):
    """Dimensions in blocks, levels in any order, and up to four index arrays of one operand; a third of the programs under `jit`."""
    seeds = range(start, start + BATCH)
    faults = [f for f in (fault(statements.make(seed, blocks=True), seed % 3 == 0) for seed in seeds) if f]
    assert not faults, "\n\n".join(faults)


@pytest.mark.parametrize("blocked", range(3))
def test_index_arrays_of_blocks_in_every_order_of_levels(blocked):
    """Two index arrays and a variable at the dimension in blocks, as a statement, and as the axis of a batch."""
    dense = np.arange(1.0, 226.0).reshape(9, 5, 5)
    X, Y, plain = np.array([3, 0, 4, 1, 2]), np.array([4, 4, 0, 2, 1]), np.arange(5)
    names = ["X[i]", "Y[i]"]
    names.insert(blocked, "i")
    places = [X, Y]
    places.insert(blocked, plain)
    want = dense[tuple(places)]
    for number, order in enumerate(sorted(set(itertools.permutations((0, 1, 2, blocked))))):
        levels = ("d,c,d,d", "d,d,d,d", "c,c,c,c", "q,q,c,q")[number % 4]
        blocks = ",".join("2" if d == blocked else "1" for d in range(3))
        A = sj.array(dense, format=f"({levels})@({','.join(map(str, order))})/({blocks})")
        if number % 2 or blocked == 0:  # the first axis is longer than the index arrays
            got = sj.insum(f"C[i] = A[{','.join(names)}]", A=A if blocked else A[:5], X=X, Y=Y)
        else:
            got = sj.vmap(lambda A, x, y: A[x, y], in_axes=(blocked, 0, 0))(A, X, Y)
        np.testing.assert_array_equal(got.todense(), want, f"{A.format}")


@pytest.mark.rotating(24)
@pytest.mark.parametrize("start", range(600_000, 600_600, BATCH // 2))
def test_random_statements_whatever_is_chosen(start):
    """The dearest order of loops, and alternatives at random."""
    faults = []
    for seed in range(start, start + BATCH // 2):
        for way in ("loop_order=dearest", f"random:{seed}"):
            with sj.config.using(choose=way):
                found = fault(statements.make(seed))
            faults += [f"choose={way}: {found}"] if found else []
    assert not faults, "\n\n".join(faults)


@pytest.mark.rotating(24)
@pytest.mark.parametrize("start", range(700_000, 700_600, BATCH // 2))
def test_random_statements_of_extents_that_are_symbols(start):
    """As a second shape sees them: integers as indices count from ends that are read when the program runs."""
    with sj.config.using(choose="shapes=symbolic"):
        seeds = range(start, start + BATCH // 2)
        faults = [f for f in (fault(statements.make(seed), jitted=True) for seed in seeds) if f]
    assert not faults, "\n\n".join(faults)


@pytest.mark.parametrize(
    "text",
    [
        "T[2] += x[i]",
        "T[-1] += x[i]",
        "T[-1] max= x[i]",
        "T[X[-1]] += x[i]",
        "T[X[1]] = x[2] + x[-3]",
        "T[0] += x[X[2]]",
    ],
)
def test_integers_as_indices_of_several_shapes(text):
    """Of what is read and written, in bounds and outside of them."""
    f = sj.jit(functools.partial(sj.insum, text))
    for n in (3, 4, 6, 9, 2, 5):
        arrays = {"T": np.zeros(n), "x": np.arange(1.0, n + 1), "X": np.arange(n)[::-1].copy()}
        arrays = {name: x for name, x in arrays.items() if name in text}
        if n < 3 and text != "T[-1] += x[i]" and text != "T[-1] max= x[i]" and text != "T[X[-1]] += x[i]":
            with pytest.raises(IndexError, match="out of bounds"):
                f(**arrays)
            continue
        wanted = insum_interpreter.interpret(text, arrays, {}, {k: x.dtype for k, x in arrays.items()})["T"]
        np.testing.assert_array_equal(f(**arrays).todense(), wanted)


def test_orders_count_variables_of_the_target():
    """A variable that stands in an index of the target alone."""
    with sj.config.using(choose="loop_order=dearest"):
        made = sj.insum("C[X[i]] += A[j,k]", C=np.zeros(4), X=D, A=sj.array(A, format="csr"))
        assert fault(statements.make(600_037)) is None
    np.testing.assert_array_equal(made.todense(), [A.sum(), 0, 0, 2 * A.sum()])


A, x, D = np.arange(20.0).reshape(4, 5), np.arange(5.0), np.array([0, 3, 3])
ERRORS = {
    "unknown character": ("C[i] = A[i,j] ? x[j]", "unknown character '?'", 14),
    "missing bracket": ("C[i] = A[i,j * x[j]", "'\\*' in an index", 13),
    "bracket at the end": ("C[i] = A[i,j", "missing '\\]'", 8),
    "missing parenthesis": ("C[i] = (A[i,j] * x[j]", "missing '\\)'", 7),
    "side by side": ("C[i] = A[i,j] x[j]", "'x' stands side by side", 14),
    "a sum as an index": ("C[i] = A[i,j+1]", "'\\+' in an index", 12),
    "a quotient as an index": ("C[i] = A[i,j/2]", "'/' in an index", 12),
    "unknown array": ("C[i] = A[i,j] * y[j]", "unknown array y", 16),
    "axes": ("C[i] = A[i] * x[i]", "A has 2 axes, but 1 indices", 7),
    "extents": ("C[i] = A[i,j] * x[i]", "i is 4 along axis 0 of A and 5 along axis 0 of x", 18),
    "no extent": ("C[i,k] = A[i,D[k],]", "an index is", 18),
    "a variable without extent": ("C[i,k] = A[i,j] * x[j]", "variable k has no extent", 4),
    "an unknown shape": ("C[D[k],j] = A[i,j]", "the shape of C is unknown", 2),
    "operand and index": ("C[i] = A[i,x] * x[i]", "x is an array and a variable", 11),
    "unknown function": ("C[i] = spam(A[i,j])", "unknown function spam", 7),
    "arguments": ("C[i] = exp(A[i,j], x[j])", "exp takes 1 argument, not 2", 7),
    "no arguments": ("C[i] = A[i,j] * exp()", "exp takes 1 argument, not 0", 16),
    "one of two arguments": ("C[i] = maximum(A[i,j])", "maximum takes 2 arguments, not 1", 7),
    "two points": ("C[i] = A[i,j] * 1.2.3", "1.2.3 is no number", 16),
    "an ellipsis": ("C[i] = A[i,...]", "... is no index", 11),
    "no operator": ("C[i]", "expected one of", 4),
    "no target": ("= A[i,j]", "a statement starts with its target", 0),
}


K = np.array([0, 3, 9, 1, -5])
OTHERS = {
    "fractions into integers": (TypeError, "I[i] = A[i,j]", "I is of int64", 0),
    "fractions added to integers": (TypeError, "I[i] += A[i,j]", "I is of int64", 0),
    "complex numbers in order": (TypeError, "C[i] max= Z[i]", "max= orders no complex numbers", 0),
    "a number of arguments": (TypeError, "C[i] = clip(x[i], 1, 2, 3, 4)", "clip: ", 7),
    "operators of dtypes": (TypeError, "C[i] = bitwise_and(x[i], 1)", "bitwise_and", 7),
    "fractions as indices": (IndexError, "C[i,j] = A[x[i],j]", "of integer type, but x is of float64", 11),
    "truth as indices": (IndexError, "C[i,j] = A[T[i],j]", "of integer type, but T is of bool", 11),
    "indices of indices": (IndexError, "C[i] = x[D[T[i]]]", "of integer type, but T is of bool", 11),
    "truth as indices of a target": (IndexError, "I[T[i]] += D[i]", "of integer type, but T is of bool", 2),
    "a coordinate": (IndexError, "C[i] = A[i,5]", "index 5 is out of bounds for axis 1 of A with size 5", 11),
    "a negative coordinate": (IndexError, "C[i] = A[-5,i]", "index -5 is out of bounds for axis 0 of A with size 4", 9),
    "a coordinate of a target": (IndexError, "I[4] += D[i]", "index 4 is out of bounds for axis 0 of I with size 4", 2),
    "an entry": (IndexError, "C[k,j] = A[K[k],j]", "index 9 at K[2] is out of bounds for axis 0 of A with size 4", 11),
    "an entry of a target": (
        IndexError,
        "I[K[k]] += 1",
        "index 9 at K[2] is out of bounds for axis 0 of I with size 4",
        2,
    ),
    "an entry of an entry": (
        IndexError,
        "C[k] = x[D[K[k]]]",
        "index 3 at K[1] is out of bounds for axis 0 of D with size 3",
        11,
    ),
}
OPERANDS = {
    "A": A,
    "x": x,
    "D": D,
    "K": K,
    "I": np.zeros(4, int),
    "T": np.array([True, False, True]),
    "Z": np.ones(3) * 1j,
}


@pytest.mark.parametrize("name", [*ERRORS, *OTHERS])
def test_errors_show_their_place(name):
    """The same at once, where operands are traced, and where they are constants of a jitted function."""
    kind, text, message, at = OTHERS[name] if name in OTHERS else (ValueError, *ERRORS[name])
    message = re.escape(message) if name in OTHERS else message
    operands = {k: v for k, v in OPERANDS.items() if re.search(rf"\b{k}\b", text)}
    calls = {
        "at once": lambda: sj.insum(text, **operands),
        "jit": lambda: sj.jit(lambda k: sj.insum(text, **k))(operands),
        "constants": lambda: sj.jit(lambda: sj.insum(text, **operands))(),
        "second line": lambda: sj.insum(f"first[i] = D[i]  # a line before\n{text}", **{**operands, "D": D}),
    }
    for call in calls.values():
        with pytest.raises(kind, match=message) as found:
            call()
        *_, line, caret = str(found.value).split("\n")
        assert (line, caret.index("^") - 2) == (f"  {text}", at)


def test_no_statement():
    calls = (sj.insum, lambda text, returns=None, **k: sj.jit(lambda k: sj.insum(text, returns=returns, **k))(k))
    for call in calls:
        for text in ("", "  # a comment", "\n", "  ", "\n# one\n# two", "# one\r\n"):
            first = next((line for line in text.splitlines() if line.strip()), "")
            with pytest.raises(ValueError, match="there is no statement: write one such as") as found:
                call(text)
            assert str(found.value).split("\n")[1:] == [f"  {first}", f"  {' ' * len(first)}^"]
        with pytest.raises(TypeError, match="must be a str"):
            call(3)
        with pytest.raises(TypeError, match="an operand 'x' that the text does not name"):
            call("C[i] = A[i,j]", A=A, x=x)
        with pytest.raises(ValueError, match=r"unknown array B(.|\n)* {18}\^$"):
            call("C[i] = A[i,j] * B[j]", A=A, x=x)
        with pytest.raises(ValueError, match="D is the target of no line"):
            call("C[i] = A[i,j]", A=A, returns="D")


def test_dtypes():
    ints = np.zeros(4, int)
    for op in ("=", "+=", "*=", "max="):
        with pytest.raises(TypeError, match="C is of int64"):
            sj.insum(f"C[i] {op} A[i,j]", C=ints, A=A)
    assert sj.insum("C[i] += A[i,j]", C=np.zeros(4, np.float32), A=A).dtype == np.float32
    assert sj.insum("C[i] = A[i,j]", A=A.astype(np.float32)).dtype == np.float32
    assert sj.insum("C[i] += 2", C=np.zeros(4, np.float32)).dtype == np.float32
    assert sj.insum("C[i] = A[i,j] / 2", A=A.astype(int)).dtype == np.float64
    with pytest.raises(TypeError):
        sj.insum("C[i] += A[i,j]", C=np.zeros(4, np.uint8), A=A.astype(int))
    flags = sj.insum("C[i] += A[i,j]", C=np.zeros(4, bool), A=A > 3)
    np.testing.assert_array_equal(flags.todense(), (A > 3).any(1))
    with pytest.raises(TypeError, match="orders no complex"):
        sj.insum("C[i] max= A[i,j]", A=A.astype(complex))


@pytest.mark.parametrize("wrong", [np.ones(3, np.float16), np.array([1, None, 2], object)], ids=["half", "objects"])
def test_operands_of_other_dtypes_are_named(wrong):
    with pytest.raises(TypeError, match=rf"^argument B: dtype {wrong.dtype} is not supported"):
        sj.insum("C[i] = x[i] * B[i]", x=np.ones(3), B=wrong)
    with pytest.raises(TypeError, match=rf"^argument B: dtype {wrong.dtype} is not supported"):
        sj.jit(lambda x, B: sj.insum("C[i] = x[i] * B[i]", x=x, B=B))(np.ones(3), wrong)
    with pytest.raises(TypeError, match=rf"^argument B: dtype {wrong.dtype} is not supported"):
        sj.jit(lambda **arrays: sj.insum("C[i] = x[i] * B[i]", **arrays))(x=np.ones(3), B=wrong)


STARTS = {
    "sums": ("C[R[p],n] += V[p,n]", 0),
    "products": ("C[R[p],n] *= V[p,n]", 1),
    "largest": ("C[R[p],n] max= V[p,n]", -np.inf),
    "least": ("C[R[p],n] min= V[p,n]", np.inf),
    "read too": ("C[R[p],n] += V[p,n]\nD[p,n] = C[R[p],n]", 0),
    "in two lines": ("C[R[p],n] += V[p,n]\nC[R[p],n] max= V[p,n]", 0),
}


@pytest.mark.rotating(4)
@pytest.mark.parametrize("form", ["dense", "csr"])
@pytest.mark.parametrize("case", STARTS)
def test_targets_that_hold_what_operators_start_from(case, form):
    """One program serves all such targets of a type, also after others were there."""
    text, start = STARTS[case]
    R, V = np.array([2, 0, 2]), np.arange(6.0).reshape(3, 2) - 2
    names = tuple(dict.fromkeys(line[0] for line in text.split("\n")))
    for k, first in enumerate((start, start, 3.0, start)):
        C = sj.array(np.full((4, 2), float(first)), format=form, fill_value=0 if form == "dense" else float(first))
        made = sj.insum(text, returns=names, C=C, R=R, V=V * (k + 1))
        wanted = insum_interpreter.interpret(text, {"C": np.full((4, 2), float(first)), "R": R, "V": V * (k + 1)})
        for name, found in zip(names, made, strict=True):
            np.testing.assert_array_equal(np.asarray(found.todense()), wanted[name])
        assert made[0].format == C.format
        one = sj.insum(text, C=C, R=R, V=V * (k + 1))
        np.testing.assert_array_equal(np.asarray(one.todense()), wanted[names[-1]])


def test_texts_whose_faults_come_after_a_start():
    """A target of zeros changes no message."""
    for text, error in (("C[i] += ", ValueError), ("C[i,j] += A[i,j]", ValueError), ("C[i] += B[i]", ValueError)):
        said = []
        for C in (np.zeros(3), sj.array(np.zeros(3)), sj.array(np.ones(3))):
            with pytest.raises(error) as found:
                sj.insum(text, C=C, A=np.ones((3, 2)))
            said.append(str(found.value))
        assert said[0] == said[1] == said[2]


def test_index_arrays_are_integers():
    for wrong in (np.array([0.0, 1.0]), np.array([True, False])):
        with pytest.raises(IndexError, match="must be of integer type"):
            sj.insum("C[k,j] = A[K[k],j]", A=A, K=wrong)


CHECKED = {
    "C[k,j] = A[K[k],j]": "index 9 at K[2] is out of bounds for axis 0 of A with size 4",
    "C[K[k]] += x[k]": "index 9 at K[2] is out of bounds for axis 0 of C with size 4",
}


@pytest.mark.parametrize("text", CHECKED)
@pytest.mark.parametrize("form", ["dense", "coo"])
def test_out_of_bounds(text, form):
    operands = {"A": A, "C": np.zeros(4), "K": sj.array(np.array([0, 3, 9, 1, -5]), format=form), "x": x}
    used = {k: v for k, v in operands.items() if f"{k}[" in text and not (k == "C" and "A" in text)}
    for call in (sj.insum, lambda text, **k: sj.jit(lambda k: sj.insum(text, **k))(k)):
        with pytest.raises(IndexError, match=re.escape(CHECKED[text])) as found:
            call(text, **used)
        assert "^" in str(found.value)


def test_only_what_is_read_is_checked():
    """Of an index array of which a diagonal, a column, or the entries beside those of a sparse one are read, others may hold anything."""
    X = np.array([[1, 99], [-99, 0]])
    np.testing.assert_array_equal(sj.insum("C[i] = x[X[i,i]]", x=x, X=X).todense(), [1, 0])
    np.testing.assert_array_equal(sj.insum("C[i] = x[X[0,Y[i]]]", x=x, X=X, Y=np.array([0, 0])).todense(), [1, 1])
    N = sj.array(np.array([[2, 0], [0, 3]]), format="csr")
    np.testing.assert_array_equal(sj.insum("C[i] = x[N[i,j]] * x[X[i,j]]", x=x, X=X, N=N).todense(), [2, 0])
    with pytest.raises(IndexError, match=re.escape("index 99 at X[0,1]")):
        sj.insum("C[i] = x[X[i,1]]", x=x, X=X)
    assert sj.insum("C[i] += x[X[i,j]] * z[k]", C=np.zeros(2), x=x, X=X, z=np.zeros(0)).todense().tolist() == [0, 0]


def test_the_meaning():
    """The whole right-hand side is added once for every combination; `=` forgets the target; later lines see earlier ones."""
    b, C = np.arange(4.0), np.ones(4)
    np.testing.assert_array_equal(
        sj.insum("C[i] += A[i,j] + b[i]", A=A, b=b, C=C).todense(), C + (A + b[:, None]).sum(1)
    )
    np.testing.assert_array_equal(sj.insum("C[i] = A[i,j]", A=A, C=C).todense(), A.sum(1))
    _, C2 = sj.insum("s[i] = A[i,j]\nC[i,j] = A[i,j] / s[i]", A=A, returns=("s", "C"))
    np.testing.assert_allclose(C2.todense(), A / A.sum(1, keepdims=True))
    np.testing.assert_array_equal(sj.insum("C[i,i] = b[i]", b=b, C=np.ones((4, 4))).todense(), np.diag(b))
    np.testing.assert_array_equal(
        sj.insum("Z[i,j] = X[i, Y[i,j]]", X=A, Y=np.array([[1, -1]] * 4)).todense(), A[:, [1, -1]]
    )
    assert sj.insum("s = x[i] * x[i]", x=x).todense() == (x * x).sum()


def test_a_sparse_target_stays_sparse():
    C = sj.array(np.diag([1.0, 2.0, 3.0, 4.0]), format="csr")
    made = sj.insum("C[D[p],j] += V[p] * x[j]", C=C, D=D, V=np.ones(3), x=np.arange(4.0))
    want = C.todense()
    np.add.at(want, D, np.arange(4.0))
    assert made.format == C.format and made.nnz == 2 + 8
    np.testing.assert_array_equal(made.todense(), want)


def test_threads():
    """The same bits for one thread and two, whatever repeats."""
    rng = np.random.default_rng(0)
    R, K = rng.integers(0, 300, 20_000), rng.integers(0, 500, 20_000)
    V, B = rng.random(20_000, np.float32), rng.random((500, 24), np.float32)
    for text in ("C[R[p],n] += V[p] * B[K[p],n]", "D[R[p]] += V[p]"):
        made = []
        for threads in (1, 2, 2):
            with sj.config.using(num_threads=threads, parallel_work=1000):
                operands = {k: v for k, v in {"R": R, "K": K, "V": V, "B": B}.items() if f"{k}[" in text}
                target = np.zeros((300, 24) if text[0] == "C" else 300, np.float32)
                made.append(sj.insum(text, **{text[0]: target}, **operands).todense())
        assert made[0].tobytes() == made[1].tobytes() == made[2].tobytes()
        want = np.zeros((300, 24))
        np.add.at(want, R, V[:, None] * B[K] if text[0] == "C" else V[:, None])
        np.testing.assert_allclose(made[0], want if text[0] == "C" else want[:, 0], rtol=1e-4)


def test_functions_that_are_made_of_others():
    """Every elementwise function of `sparsejax.numpy` that one array or two take, but for those with derivatives of their own."""
    x, y, K = np.array([-1.3, 0.1, 0.7, 2.5]), np.array([0.2, 0.5, -1, 2]), np.array([3, 2, 0, 0])
    for name in functions.NAMES:
        for arguments in ("x[K[i]]", "x[K[i]], y[i]", "x[K[i]], -0.5, 1"):
            try:
                plain = arguments.replace("K[i]", "K").replace("[i]", "")
                want = getattr(snp, name)(*eval(f"({plain},)"))
            except (TypeError, ValueError):
                continue
            if name in ("round", "around", "nan_to_num") and "," in arguments:
                continue
            got = sj.insum(f"c[i] = {name}({arguments})", x=x, K=K, **({"y": y} if "y" in arguments else {}))
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got.todense(), want.todense(), err_msg=name)
    grad = sj.grad(lambda x: sj.insum("c = sinc(x[K[i]]) + logistic(x[i]) + clip(x[i], -1, 1)", x=x, K=K))(x)
    plain = sj.grad(lambda x: (snp.sinc(x[K]) + snp.logistic(x) + snp.clip(x, -1, 1)).sum())(x)
    np.testing.assert_allclose(grad.todense(), plain.todense())
    with pytest.raises(TypeError, match="clip"):
        sj.insum("c[i] = clip(x[i], 1, 2, 3, 4)", x=x)


def test_every_elementwise_function_is_known():
    """All ufuncs of NumPy that `sparsejax.numpy` has, but those of two results and of matrices."""
    x, y = np.array([3, 1, 2]), np.array([1, 2, 1])
    for name in dir(snp):
        ufunc = getattr(np, name, None)
        if not isinstance(ufunc, np.ufunc) or ufunc.nout > 1 or ufunc.signature:
            continue
        operands = {"x": x, "y": y} if ufunc.nin == 2 else {"x": x}
        with np.errstate(all="ignore"):
            want = ufunc(*operands.values())
        got = sj.insum(f"c[i] = {name}({', '.join(f'{v}[i]' for v in operands)})", **operands)
        assert got.dtype == want.dtype, name
        np.testing.assert_allclose(got.todense(), want, rtol=1e-12, err_msg=name)


def test_two_numbers_of_equal_size_share_the_derivative_of_logaddexp():
    x, y, R = np.array([1.0, 3.0, 5.0]), np.array([1.0, 2.0, 5.0]), np.array([0, 0, 1])
    made = sj.grad(lambda x: sj.insum("C[R[i]] += logaddexp(x[i], y[i])", C=np.zeros(2), R=R, x=x, y=y).sum())(x)
    np.testing.assert_allclose(made.todense(), 1 / (1 + np.exp(y - x)))


def test_targets_of_what_operators_start_from_are_not_read():
    """Zeros, ones, infinities: the result is that of a target that nobody gave, in the format and dtype of the one that is given."""
    for op, nothing in (("+=", 0), ("*=", 1), ("max=", -np.inf), ("min=", np.inf)):
        text = f"C[D[k]] {op} x[k]"
        C = np.full(6, nothing, np.float32)
        program = sj.jit(functools.partial(sj.insum, text, C=C, D=D))
        known = {a.shape for a in sj.make_jaxpr(lambda x, text=text, C=C: sj.insum(text, C=C, D=D, x=x))(x[:3]).consts}
        assert (6,) not in known, op
        want = np.full(6, nothing, np.float32)
        {"+=": np.add, "*=": np.multiply, "max=": np.maximum, "min=": np.minimum}[op].at(want, D, x[:3])
        for made in (program(x=x[:3]), sj.insum(text, C=C, D=D, x=x[:3])):
            assert made.dtype == np.float32
            np.testing.assert_array_equal(made.todense(), want)
    empty = sj.array(np.zeros(6, np.float32), format="coo")
    assert sj.insum("C[D[k]] += x[k]", C=empty, D=D, x=x[:3]).format == empty.format
    made = sj.insum("C[k] += z[k]", C=np.zeros(3), z=np.array([-0.0, 1, 2]))
    assert not np.signbit(made.todense()).any()  # 0.0 + -0.0


def test_threads_of_derivatives_lookups_and_other_operators():
    """The same bits for one thread and two of what gradients scatter, of products and maxima, and of sparse results."""
    rng = np.random.default_rng(0)
    R, K = rng.integers(0, 300, 20_000), rng.integers(0, 500, 20_000)
    V, B = 0.5 + rng.random(20_000, np.float32), rng.random((500, 8), np.float32)
    S = sj.array(np.where(rng.random((300, 500)) < 0.1, rng.random((300, 500), np.float32), 0), format="csr")
    C, ones = np.zeros((300, 8), np.float32), np.ones(300, np.float32)
    programs = {
        "gradient": lambda: sj.grad(
            lambda B: (sj.insum("C[R[p],n] += V[p] * B[K[p],n]", C=C, R=R, V=V, K=K, B=B) ** 2).sum()
        )(B),
        "gradient of products": lambda: sj.grad(lambda V: sj.insum("D[R[p]] *= V[p]", D=ones, R=R, V=V).sum())(V),
        "products": lambda: sj.insum("D[R[p]] *= V[p]", D=ones, R=R, V=V),
        "maxima": lambda: sj.insum("D[R[p]] max= V[p] * B[K[p],0]", D=ones, R=R, V=V, K=K, B=B),
        "places": lambda: S[R, K],
        "rows": lambda: S[R],
        "set": lambda: S.at[R, K].set(V),
        "add": lambda: S.at[R, K].add(V),
    }
    for name, program in programs.items():
        made = []
        for threads in (1, 2, 2):
            with sj.config.using(num_threads=threads, parallel_work=1000):
                made.append(program())
        assert len({x.todense().tobytes() for x in made}) == 1, name


def test_calls_at_once_with_types_that_come_back():
    """Results and errors of later calls are those of the first, whatever the values are."""
    rng = np.random.default_rng(0)
    text = "C[R[p],n] += V[p] * B[K[p],n]"
    for turn in range(12):
        R, K, V, B = rng.integers(0, 4, 9), rng.integers(0, 6, 9), rng.integers(-4, 5, 9), rng.integers(-4, 5, (6, 2))
        C = np.zeros((4, 2), int) if turn % 3 else rng.integers(-4, 5, (4, 2))
        expected = C.copy()
        np.add.at(expected, R, V[:, None] * B[K])
        parts = {"R": R, "K": K, "V": V, "B": B, "C": C}
        for names in (list(parts), list(parts)[::-1]):
            np.testing.assert_array_equal(sj.insum(text, **{n: parts[n] for n in names}), expected)
        np.testing.assert_array_equal(sj.insum("D[n] = V[n] * 2 + x", V=V, x=turn), 2 * V + turn)
        with pytest.raises(IndexError, match="out of bounds"):
            sj.insum(text, **{**parts, "K": K + 6})
        with pytest.raises(TypeError, match="does not name"):
            sj.insum(text, **parts, W=V)
        with pytest.raises(TypeError, match="must be a str"):
            sj.insum([text], **parts)
