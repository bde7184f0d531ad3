"""Derivatives and batches of random indirect einsums: central differences over what is stored, and the elements of a batch one by one."""

import random

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from tests import insum_interpreter, rotation
from tests.fuzz.levels import OUTPUTS, random_format
from tests.insum import statements

BATCH = 25
STEP = 1e-6
OTHERS, DRAWS = 1_000_000, 20
"""How far apart the seeds are that are drawn one for another, and how many of them at most."""


def names_of(case: statements.Case) -> tuple[str, ...]:
    return tuple(dict.fromkeys(line.split("[")[0].split(" ")[0] for line in case.text.split("\n")))


def entered(x: sj.Array) -> np.ndarray:
    """One at every value of an array that is an entry, and zero at those that fill up its levels."""
    return np.ones(x.size) if x.format.is_dense else sj.lax.pattern(x).storage.vals


KINK = "several values are the largest"


def derivative_fault(seed: int, blocks: bool = False) -> str | None:
    """None when the gradient of a smooth case is that of central differences, forward mode agrees, and formats are kept; `KINK` where there is no
    derivative to compare with. Three of four cases have both modes in one program, which plans what they share once."""
    case = statements.make(seed, True, blocks)
    floats = [n for n, v in case.arrays.items() if v.dtype.kind == "f"]
    names = names_of(case)

    def results(xs):
        return sj.insum(case.text, returns=names, **{**case.operands, **dict(zip(floats, xs, strict=True))})

    def weights(size):
        return np.cos(np.arange(size))

    def plain(found):
        """A number of the results, by NumPy."""
        dense = [x.todense() for x in found]
        return sum(float((np.where(np.isfinite(x), x, 0.0).ravel() * weights(x.size)).sum()) for x in dense)

    xs = [case.operands[n] for n in floats]
    rng = np.random.default_rng(seed)
    steps = [rng.standard_normal(len(x.storage.vals)) * entered(x) for x in xs]

    def moved(x, step, by):
        return sj.Array(x.storage.with_values(x.storage.vals + by * step, x.storage.fill_value))

    moves = [results([moved(x, d, h) for x, d in zip(xs, steps, strict=True)]) for h in (STEP, -STEP, 0)]
    ends = [plain(found) for found in moves]
    finite = [all(np.isfinite(x.todense()).all() for x in found) for found in zip(*moves, strict=True)]
    want = (ends[0] - ends[1]) / (2 * STEP)
    if abs(ends[0] + ends[1] - 2 * ends[2]) > STEP * 1e-2:
        return KINK

    def total(xs):
        """The same number."""
        made = 0.0
        for out, whole in zip(results(xs), finite, strict=True):
            dense = out.asformat("dense") if out.ndim else out
            dense = dense if whole else snp.where(snp.isfinite(dense), dense, 0.0)
            made = made + (dense * weights(dense.size).reshape(dense.shape)).sum()
        return made

    def both(xs, tangents):
        return sj.grad(total)(xs), sj.jvp(total, (xs,), (tangents,))[1]

    tangents = [sj.Array(x.storage.with_values(d, 0.0)) for x, d in zip(xs, steps, strict=True)]
    grads, forward = (sj.jit(both) if seed % 4 else both)(xs, tangents)
    got = sum(float((g.todense() * t.todense()).sum()) for g, t in zip(grads, tangents, strict=True))
    if any(g.format != x.format for g, x in zip(grads, xs, strict=True)):
        return f"{case}: formats {[str(g.format) for g in grads]}"
    scale = 1e-5 * max(1.0, abs(want))
    if abs(got - want) > scale or abs(float(forward) - want) > scale:
        return f"{case}: central differences {want}, reverse {got}, forward {float(forward)}"
    return None


@pytest.mark.rotating(4, exactly=True)
@pytest.mark.parametrize("start", range(0, 800, BATCH))
def test_derivatives(start):
    """Of so many statements, each that has a derivative at its operands; for one that has none, another is drawn."""
    faults = []
    for seed in range(start, start + BATCH):
        draws = (derivative_fault(seed + OTHERS * k) for k in range(DRAWS))
        found = next((f for f in draws if f != KINK), f"seed {seed}: {KINK}, {DRAWS} times")
        faults += [found] if found else []
    assert not faults, "\n\n".join(faults)


def cotangent_fault(seed: int) -> str | None:
    """None when `vjp` at once gives the results that the statements give, in their formats, and takes dense cotangents to what `grad` gives."""
    case = statements.make(seed, smooth=True)
    floats = [n for n, v in case.arrays.items() if v.dtype.kind == "f"]
    names = names_of(case)

    def results(xs):
        made = sj.insum(case.text, returns=names, **{**case.operands, **dict(zip(floats, xs, strict=True))})
        return [out for out in made if out.dtype.kind == "f"]

    xs = [case.operands[n] for n in floats]
    plain = results(xs)
    if not plain:
        return None
    made, back = sj.vjp(results, xs)
    if [x.format for x in made] != [x.format for x in plain] or any(
        not np.allclose(x.todense(), y.todense(), rtol=1e-12, atol=0, equal_nan=True)
        for x, y in zip(made, plain, strict=True)
    ):
        return f"{case}: results {made}, expected {plain}"
    weights = [np.cos(np.arange(x.size)).reshape(x.shape) for x in plain]
    (got,) = back(weights)
    (want,) = sj.jit(lambda xs: sj.vjp(results, xs)[1](weights))(xs)
    for x, y, name in zip(got, want, floats, strict=True):
        if x.format != y.format or not np.allclose(x.todense(), y.todense(), rtol=1e-9, atol=1e-9, equal_nan=True):
            return f"{case}: cotangents of {name}\n{x}\nunder jit\n{y}"
    return None


@pytest.mark.rotating(4)
@pytest.mark.parametrize("start", range(0, 200, 10))
def test_cotangents_at_once(start):
    faults = [f for f in (cotangent_fault(seed) for seed in range(start, start + 10)) if f]
    assert not faults, "\n\n".join(faults)


@pytest.mark.parametrize("format", ["csr", "coo", "dcsr", "hash", "(q,c)@(0,1)", "csc"])
@pytest.mark.parametrize("op", ["min=", "max=", "*=", "+="])
def test_cotangents_of_sparse_targets(op, format):
    """A dense cotangent of a sparse target, at once: values between the first part and what remains have the types of the trace."""
    target = sj.array(np.array([[0.0, 2.0], [0.0, 0.0], [1.04, 0.0]]), format=format)
    rows, values = np.array([-3, 2]), np.array([0.97, 3.0])

    def placed(target, values):
        return sj.insum(f"D[R[j],i] {op} A[i]", R=rows, A=values, D=target)

    made, back = sj.vjp(placed, target, values)
    assert made.format == placed(target, values).format
    weights = np.arange(1.0, 7.0).reshape(3, 2)
    dense = np.asarray(target.todense())
    want = sj.vjp(placed, dense, values)[1](weights)
    got = back(weights)
    assert got[0].format == target.format
    assert np.array_equal(got[0].todense(), np.where(dense != 0, want[0].todense(), 0.0))
    assert np.array_equal(got[1].todense(), want[1].todense())


@pytest.mark.rotating(8)
@pytest.mark.parametrize("start", range(0, 800, BATCH))
def test_derivatives_of_what_is_in_blocks(start):
    found = [derivative_fault(seed, True) for seed in range(start, start + BATCH)]
    faults = [f for f in found if f and f != KINK]
    assert not faults, "\n\n".join(faults)


def batch_fault(seed: int, blocks: bool = False) -> str | None:
    """None when a batch of two elements, along any axis of some operands, has what plain loops give for each. Of operands in `blocks`, the batch's
    axis may be in blocks, too, and stored above others."""
    case, rng = statements.make(seed, False, blocks), random.Random(seed)
    names = names_of(case)
    moving = [n for n in case.operands if rng.random() < 0.5] or list(case.operands)[:1]
    axes, given, elements = {}, {}, [dict(case.arrays), dict(case.arrays)]
    for name, x in case.operands.items():
        given[name], axes[name] = x, None
        if name in moving:
            vals = np.roll(x.storage.vals, 1) if x.storage.packed else x.storage.vals
            other = sj.Array(x.storage.with_values(np.array(vals), x.storage.fill_value))
            axes[name] = rng.randint(0, x.ndim)
            given[name] = stacked = snp.stack([x, other], axis=axes[name])
            if blocks and not x.format.is_dense and name not in case.stored:
                form = random_format(rng, stacked.ndim, OUTPUTS, [rng.choice((1, 1, 2)) for _ in stacked.shape])
                given[name] = stacked.asformat(form)
            elements[1][name] = other.todense()
    batched = sj.vmap(lambda k: sj.insum(case.text, returns=names, **k), in_axes=(axes,))
    got = (sj.jit(batched) if rng.random() < 0.5 else batched)(given)
    for number, arrays in enumerate(elements):
        want = insum_interpreter.interpret(case.text, arrays, case.stored, case.dtypes)
        for name, made in zip(names, got, strict=True):
            dense = made.todense()[number] if made.ndim > want[name].ndim else made.todense()
            if not np.allclose(dense, want[name], rtol=1e-5, atol=1e-5):
                return f"{case} axes {axes}: element {number} of {name}\nexpected\n{want[name]}\ngot\n{dense}"
    return None


@pytest.mark.rotating(4, exactly=True)
@pytest.mark.parametrize("start", range(0, 800, BATCH))
def test_batches(start):
    faults = [f for f in (batch_fault(seed) for seed in range(start, start + BATCH)) if f]
    assert not faults, "\n\n".join(faults)


@pytest.mark.rotating(8)
@pytest.mark.parametrize("start", range(0, 800, BATCH))
def test_batches_of_what_is_in_blocks(start):
    faults = [f for f in (batch_fault(seed, True) for seed in range(start, start + BATCH)) if f]
    assert not faults, "\n\n".join(faults)


@pytest.mark.parametrize("format", ["coo", "csr", "dcsr", "hash", "bitmap", "ell", "bsr:2x3", "(c,d)@(0,1)", "dense"])
def test_what_names_no_variable_of_an_index_array_is_counted_at_every_entry(format):
    """The cotangent of `b` has neither values nor coordinates of X, and one term for each entry of X."""
    X = sj.array(np.array([[0, 2, 0], [0, 0, 0], [1, 0, 3], [0, 0, 0]]), format=format)
    A, x = sj.array(np.array([1.0, 0, 2, 3]), format="csf"), np.arange(1.0, 4.0)
    for text, b in (("c = A[X[j,k]] - b", x[1]), ("c = A[X[j,k]] - b[i]", x), ("c[i] = A[X[j,k]] - b[i]", x)):

        def total(b, text=text):
            return sj.insum(text, X=X, A=A, b=b).sum()

        for made in (sj.grad(total)(b), sj.jit(sj.grad(total))(b)):
            np.testing.assert_array_equal(made.todense(), np.full(np.shape(b), -X.nnz))


def test_second_derivatives():
    rng = np.random.default_rng(0)
    R, K, B = np.array([0, 2, 2, 1]), np.array([1, 1, 0, 3]), rng.random((4, 3))

    def f(B):
        return (sj.insum("C[R[p],n] = B[K[p],n] * B[R[p],n]", C=np.zeros((3, 3)), R=R, K=K, B=B) ** 2).sum()

    def plain(B):
        made = snp.zeros((3, 3)).at[R].add(B[K] * B[R])
        return (made**2).sum()

    np.testing.assert_allclose(sj.hessian(f)(B).todense(), sj.hessian(plain)(B).todense())


def test_maxima_differentiate_as_segment_max():
    ids, x = np.array([0, 1, 1, 0, 1]), np.array([3.0, 1.0, 4.0, 3.0, 4.0])
    got = sj.grad(
        lambda x: (sj.insum("m[ids[p]] max= x[p]", m=np.zeros(2), ids=ids, x=x) * np.array([1.0, 10.0])).sum()
    )(x)
    want = sj.grad(lambda x: (sj.nn.segment_max(x, ids, 2) * np.array([1.0, 10.0])).sum())(x)
    np.testing.assert_array_equal(got.todense(), want.todense())


def test_products_have_derivatives_of_any_order_without_division():
    """Zeros among the factors, one or several of a place; places that nothing, one and many factors name; batches."""
    R, weights = np.array([0, 2, 2, 1, 2, 0]), np.array([1.0, 10.0, 100.0, 1000.0])
    C = np.array([1.0, 2.0, 3.0, 4.0])

    def total(v):
        return (sj.insum("C[R[p]] *= v[p]", C=C, R=R, v=v) * weights).sum()

    def but(v, *left):
        """The derivative by the factors `left`: products of all others of their place."""
        rows = {R[p] for p in left}
        if len(rows) > 1 or len({*left}) < len(left):
            return 0.0
        (t,) = rows
        return weights[t] * C[t] * np.prod([v[q] for q in range(6) if q not in left and R[q] == t])

    vs = np.array([[2.0, 0.0, 3.0, 4.0, 0.0, 5.0], [2.0, 0.0, 3.0, 4.0, 7.0, 5.0], [1.0, -2.0, 3.0, 0.0, 5.0, 0.0]])
    firsts = [[but(v, p) for p in range(6)] for v in vs]
    for v, first in zip(vs, firsts, strict=True):
        np.testing.assert_allclose(sj.grad(total)(v).todense(), first)
        second = [[but(v, p, q) for q in range(6)] for p in range(6)]
        np.testing.assert_allclose(sj.hessian(total)(v).todense(), second)
    third = [[[but(vs[0], p, q, r) for r in range(6)] for q in range(6)] for p in range(6)]
    np.testing.assert_allclose(sj.jacfwd(sj.hessian(total))(vs[0]).todense(), third)
    np.testing.assert_allclose(sj.jit(sj.vmap(sj.grad(total)))(vs).todense(), firsts)
    np.testing.assert_allclose(sj.grad(lambda vs: sj.vmap(total)(vs).sum())(vs).todense(), firsts)
    with pytest.raises(IndexError, match=r"index 2 at R\[1\] is out of bounds for axis 0 of C with size 2"):
        sj.grad(lambda v: sj.insum("C[R[p]] *= v[p]", C=np.ones(2), R=R, v=v).sum())(vs[0])


def test_inside_scan():
    K = np.array([1, 2, 0])

    def step(x, v):
        x = sj.insum("y[p] = x[K[p]] * v[p]", x=x, K=K, v=v)
        return x, x.sum()

    vs = np.arange(1.0, 13.0).reshape(4, 3)
    last, sums = sj.lax.scan(step, np.ones(3), vs)
    x, want = np.ones(3), []
    for v in vs:
        x = x[K] * v
        want.append(x.sum())
    np.testing.assert_allclose(last.todense(), x)
    np.testing.assert_allclose(sums.todense(), want)
    grad = sj.grad(lambda vs: sj.lax.scan(step, np.ones(3), vs)[1].sum())(vs)
    assert np.isfinite(grad.todense()).all()


ALONE = {
    "max=": "C[R[p]] max= v[p] * w[K[p]]",
    "min=": "C[R[p]] min= v[p] * w[K[p]]",
    "*=": "C[R[p]] *= v[p] * w[K[p]]",
    "max= of rows": "D[R[p],n] max= v[p] * B[K[p],n]",
    "*= of rows": "D[R[p],n] *= v[p] * B[K[p],n]",
    "max= of stored": "C[R[p]] max= v[p] * S[K[p],n]",
}


@pytest.mark.parametrize("name", ALONE)
def test_derivatives_of_other_operators_whatever_is_chosen(name):
    """`max=`, `min=` and `*=` alone, forwards and in reverse, under alternatives at random: central differences of the loops, and equal ends."""
    text, rng = ALONE[name], np.random.default_rng(0)
    fixed = {"R": np.array([0, 2, 2, 1, 2, 0, 2]), "K": np.array([1, 0, 3, 3, 1, 2, 0])}
    stored = sj.array(np.where(rng.random((4, 3)) < 0.6, rng.random((4, 3)), 0), format="csr")
    floats = {"v": rng.random(7) + 0.5, "w": rng.random(4) + 0.5, "B": rng.random((4, 3)) + 0.5, "S": stored}
    floats |= {"C": rng.random(4) + 0.9, "D": rng.random((4, 3)) + 0.9}
    floats = {k: x for k, x in floats.items() if f"{k}[" in text}
    weights = 1.0 + np.arange(4.0 if text[0] == "C" else 12.0).reshape((4,) if text[0] == "C" else (4, 3))

    def total(xs):
        return (sj.insum(text, **fixed, **xs) * weights).sum()

    def plain(xs):
        dense = {**fixed, **{k: x.todense() if isinstance(x, sj.Array) else x for k, x in xs.items()}}
        (made,) = insum_interpreter.interpret(text, dense, {}, {}).values()
        return float((made * weights).sum())

    steps = {
        k: rng.standard_normal(x.storage.vals.shape if isinstance(x, sj.Array) else x.shape) for k, x in floats.items()
    }

    def moved(by):
        made = {}
        for k, x in floats.items():
            sparse = isinstance(x, sj.Array)
            made[k] = (
                sj.Array(x.storage.with_values(x.storage.vals + by * steps[k], 0.0)) if sparse else x + by * steps[k]
            )
        return made

    want = (plain(moved(STEP)) - plain(moved(-STEP))) / (2 * STEP)
    tangents = {
        k: sj.Array(x.storage.with_values(steps[k], 0.0)) if isinstance(x, sj.Array) else steps[k]
        for k, x in floats.items()
    }
    for way in ("auto", "loop_order=dearest", *(f"random:{seed}" for seed in rotation.share(range(6), 3))):
        with sj.config.using(choose=way):
            grads = sj.grad(total)(floats)
            _, forward = sj.jvp(total, (floats,), (tangents,))
        got = sum(
            float(((g.storage.vals if isinstance(floats[k], sj.Array) else g.todense()) * steps[k]).sum())
            for k, g in grads.items()
        )
        np.testing.assert_allclose([got, float(forward)], want, rtol=1e-6, err_msg=way)


@pytest.mark.rotating(20)
@pytest.mark.parametrize("start", range(0, 100, 5))
def test_derivatives_whatever_is_chosen(start):
    faults = []
    for seed in range(start, start + 5):
        with sj.config.using(choose=f"random:{seed}"):
            found = derivative_fault(seed)
        faults += [f"choose=random:{seed}: {found}"] if found else []
    assert not faults, "\n\n".join(faults)


SCANNED = {
    "sums": "C[R[p],n] += v[p] * B[K[p],n]",
    "maxima": "C[R[p],n] max= v[p] * B[K[p],n]",
    "products": "C[R[p],n] *= v[p] + B[K[p],n]",
    "entries": "C[i,n] += v[i] * S[i,j] * B[j,n]",
}


@pytest.mark.parametrize("name", SCANNED)
def test_scans_over_statements(name):
    """Steps with values and index arrays of their own, against the unrolled loop: results, gradients, batches."""
    text, rng = SCANNED[name], np.random.default_rng(0)
    S = sj.array(np.where(rng.random((4, 4)) < 0.5, rng.random((4, 4)), 0), format="csr")
    C, B, steps = rng.random((4, 3)), rng.random((4, 3)), 5
    vs, Rs, Ks = rng.random((steps, 4)), rng.integers(-4, 4, (steps, 4)), rng.integers(-4, 4, (steps, 4))

    def after(C, v, R, K, B):
        given = {"v": v, "R": R, "K": K, "B": B, "S": S}
        return sj.insum(text, C=C, **{k: x for k, x in given.items() if f"{k}[" in text})

    def scanned(C, vs, B):
        def step(C, x):
            C = after(C, *x, B)
            return C, C.sum()

        last, sums = sj.lax.scan(step, C, (vs, Rs, Ks))
        return (last * last).sum() + sums.sum()

    def unrolled(C, vs, B):
        made = 0.0
        for k in range(steps):
            C = after(C, vs[k], Rs[k], Ks[k], B)
            made = made + C.sum()
        return made + (C * C).sum()

    np.testing.assert_allclose(float(scanned(C, vs, B)), float(unrolled(C, vs, B)), rtol=1e-10)
    want = sj.grad(unrolled, (0, 1, 2))(C, vs, B)
    for made in (sj.grad(scanned, (0, 1, 2)), sj.jit(sj.grad(scanned, (0, 1, 2)))):
        for got, wanted in zip(made(C, vs, B), want, strict=True):
            np.testing.assert_allclose(got.todense(), wanted.todense(), rtol=1e-10)
    batched = sj.vmap(scanned, in_axes=(0, None, None))(np.stack([C, 2 * C]), vs, B)
    np.testing.assert_allclose(batched.todense(), [float(unrolled(c, vs, B)) for c in (C, 2 * C)], rtol=1e-10)
