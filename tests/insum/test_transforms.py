"""Derivatives and batches of random indirect einsums: central differences over what is stored, and the elements of a batch one by one."""

import random

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from tests import insum_interpreter
from tests.insum import statements

BATCH = 25
STEP = 1e-6


def names_of(case: statements.Case) -> tuple[str, ...]:
    return tuple(dict.fromkeys(line.split("[")[0].split(" ")[0] for line in case.text.split("\n")))


def derivative_fault(seed: int) -> str | None:
    """None when the gradient of a smooth case is that of central differences, forward mode agrees, and formats are kept."""
    case = statements.make(seed, smooth=True)
    floats = [n for n, v in case.arrays.items() if v.dtype.kind == "f"]
    names = names_of(case)

    def total(xs):
        outs = sj.insum(case.text, returns=names, **{**case.operands, **dict(zip(floats, xs, strict=True))})
        made = 0.0
        for out in outs:
            dense = out.asformat("dense") if out.ndim else out
            dense = snp.where(snp.isfinite(dense), dense, 0.0)
            made = made + (dense * np.cos(np.arange(dense.size)).reshape(dense.shape)).sum()
        return made

    xs = [case.operands[n] for n in floats]
    rng = np.random.default_rng(seed)
    steps = [rng.standard_normal(len(x.storage.vals)) for x in xs]

    def moved(x, step, by):
        return sj.Array(x.storage.with_values(x.storage.vals + by * step, x.storage.fill_value))

    ends = [float(total([moved(x, d, h) for x, d in zip(xs, steps, strict=True)])) for h in (STEP, -STEP, 0)]
    want = (ends[0] - ends[1]) / (2 * STEP)
    if abs(ends[0] + ends[1] - 2 * ends[2]) > STEP * 1e-2:
        return None  # several values are the largest
    grads = sj.grad(total)(xs)
    got = sum(float((g.storage.vals * d).sum()) for g, d in zip(grads, steps, strict=True))
    tangents = [sj.Array(x.storage.with_values(d, 0.0)) for x, d in zip(xs, steps, strict=True)]
    _, forward = sj.jvp(total, (xs,), (tangents,))
    if any(g.format != x.format for g, x in zip(grads, xs, strict=True)):
        return f"{case}: formats {[str(g.format) for g in grads]}"
    scale = 1e-5 * max(1.0, abs(want))
    if abs(got - want) > scale or abs(float(forward) - want) > scale:
        return f"{case}: central differences {want}, reverse {got}, forward {float(forward)}"
    return None


@pytest.mark.rotating(4)
@pytest.mark.parametrize("start", range(0, 800, BATCH))
def test_derivatives(start):
    seeds = range(start, start + BATCH)
    faults = [f for f in (derivative_fault(seed) for seed in seeds) if f]
    assert not faults, "\n\n".join(faults)


def batch_fault(seed: int) -> str | None:
    """None when a batch of two elements, along any axis of some operands, has what plain loops give for each."""
    case, rng = statements.make(seed), random.Random(seed)
    names = names_of(case)
    moving = [n for n in case.operands if rng.random() < 0.5] or list(case.operands)[:1]
    axes, given, elements = {}, {}, [dict(case.arrays), dict(case.arrays)]
    for name, x in case.operands.items():
        given[name], axes[name] = x, None
        if name in moving:
            vals = np.roll(x.storage.vals, 1) if x.storage.packed else x.storage.vals
            other = sj.Array(x.storage.with_values(np.array(vals), x.storage.fill_value))
            axes[name] = rng.randint(0, x.ndim)
            given[name] = snp.stack([x, other], axis=axes[name])
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


@pytest.mark.rotating(4)
@pytest.mark.parametrize("start", range(0, 800, BATCH))
def test_batches(start):
    faults = [f for f in (batch_fault(seed) for seed in range(start, start + BATCH)) if f]
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
