"""Derivatives of loops and branches: against central differences, and against the same loops unrolled; checkpoint."""

import random

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import lax
from tests import bounds
from tests.autodiff import programs
from tests.autodiff.checks import array, check, dense, direction, same_buffers
from tests.fuzz import engine
from tests.fuzz.levels import OUTPUTS, random_format

pytestmark = pytest.mark.rotating(24)

FORMATS = ["(d,d)@(1,0)", "csr", "coo", "bitmap", "ell", "groupcoo:2", "bsr:2x2"]
N = 5


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def waves(a, x):
    return lax.fori_loop(0, 3, lambda i, x: snp.sin(a @ x) * (i + 1), x)


def rows(a, x):
    def step(c, row):
        c = snp.tanh(c * 0.5 + row.sum() * x)
        return c, row * c

    c, ys = lax.scan(step, x, a)
    return c.sum() + ys.sum(axis=0)


def powers(a, x):
    return lax.fori_loop(0, 2, lambda i, p: p @ a * 0.5 + a, a) @ x


def kept_pattern(a, x):
    """A sparse carry whose values change under one pattern."""
    return lax.fori_loop(0, 3, lambda i, p: p * (a @ x) + snp.sin(p), a).sum(axis=0)


def choice(a, x):
    return lax.cond(x[0] > 0, lambda a, x: snp.sin(a @ x), lambda a, x: x * x, a, x)


def sparse_choice(a, x):
    return lax.switch(1, [lambda a: a, lambda a: a @ a, lambda a: a * 2], a) @ x


def nested(a, x):
    def step(i, x):
        return lax.cond(x[0] > i, lambda x: lax.fori_loop(0, 2, lambda j, x: snp.cos(a @ x), x), lambda x: x * 0.5, x)

    return lax.fori_loop(0, 3, step, x)


FUNCTIONS = [waves, rows, powers, kept_pattern, choice, sparse_choice, nested]


@pytest.mark.parametrize(("f", "form"), [(f, FORMATS[(k + n) % 6]) for k, f in enumerate(FUNCTIONS) for n in (0, 1, 3)])
def test_first_derivatives(rng, f, form):
    with engine.quick():
        check(rng, f, array(rng, (N, N), form), array(rng, (N,)))


@pytest.mark.parametrize("f", [waves, rows, powers, choice])
def test_second_derivatives(rng, f):
    with engine.quick():
        check(rng, f, array(rng, (N, N), "csr"), array(rng, (N,)), second=True)


@pytest.mark.parametrize("dtype", ["f4", "c16"])
def test_other_dtypes(rng, dtype):
    a, x = array(rng, (N, N), "csr", dtype, low=0.1, high=0.3), array(rng, (N,), dtype=dtype)  # sines of 1+9j are 4052
    f = lambda a, x: lax.fori_loop(0, 3, lambda i, x: snp.sin(a @ x), x)  # noqa: E731
    g = lambda a, x: snp.sin(a @ snp.sin(a @ snp.sin(a @ x)))  # noqa: E731
    out, pull = sj.vjp(f, a, x)
    wide = np.result_type(dtype, "f8")
    _, same = sj.vjp(g, a.astype(wide), sj.array(x).astype(wide))
    largest = (1 + np.abs(dense(a)).sum(0).max()) ** 3 * np.abs(dense(out)).max()
    for mine, theirs in zip(pull(out), same(out.astype(wide)), strict=True):
        assert mine.dtype == dtype
        bounds.check(dense(mine), dense(theirs), largest, 4)


def random_case(seed):
    """A loop of a random body, rolled and unrolled, with its arguments."""
    rng, nrng = random.Random(seed), np.random.default_rng(seed)
    labels = ["".join(rng.sample("abc", rng.choice((1, 2, 2, 3)))) for _ in range(rng.randint(1, 3))]
    inputs = []
    for ls in labels:
        form = random_format(rng, len(ls), OUTPUTS)
        form = "dense" if form.is_dense or any(level.letter == "r" for level in form.levels) else str(form)
        inputs.append(array(nrng, [programs.EXTENTS[c] for c in ls], form, density=rng.choice((0.4, 1.0))))
    steps = programs.program(rng, labels)
    xs = array(nrng, (3, programs.EXTENTS[labels[0][-1]]), rng.choice(("dense", "csr", "coo")))

    def body(carry, x, *rest):
        made = snp.tanh(programs.run(steps, [carry, *rest]))
        size = snp.tanh(made.sum() * 0.1)
        if made.shape == carry.shape and made.fill_value == 0:
            carry = carry + (made * 0.3).asformat(carry.format)
        return carry * (0.5 + 0.1 * size) + carry * x * 0.1, made * size

    def rolled(xs, carry, *rest):
        def step(c, x):
            return lax.cond(x.sum() > 0, lambda c, x: body(c, x, *rest), lambda c, x: body(c * 0.5, x, *rest), c, x)

        carry, ys = lax.scan(step if branches else lambda c, x: body(c, x, *rest), carry, xs)
        return carry, ys.sum()

    def unrolled(xs, carry, *rest):
        total, form = 0.0, carry.format
        for k in range(xs.shape[0]):
            x = xs[k]
            half = snp.where(x.sum() > 0, 1.0, 0.5) if branches else 1.0
            carry, y = body(carry * half, x, *rest)
            carry, total = carry.asformat(form), total + y.sum()
        return carry, total

    branches = rng.random() < 0.4
    return rolled, unrolled, (xs, *inputs), nrng, f"seed {seed}: {steps}, {[str(x.format) for x in (xs, *inputs)]}"


def fault(seed):
    rolled, unrolled, args, nrng, text = random_case(seed)
    ts = tuple(direction(nrng, x) for x in args)
    derive = lambda f: sj.jit(lambda args, ts: sj.jvp(f, args, ts))(args, ts)  # noqa: E731
    (carry, total), tangents = derive(rolled)
    same, wanted = derive(unrolled)
    cts = (direction(nrng, carry), np.float64(0.7))
    pulled = [sj.jit(lambda cts, *xs, f=f: sj.vjp(f, *xs)[1](cts))(cts, *args) for f in (rolled, unrolled)]
    pairs = [*zip((carry, total, *tangents), (*same, *wanted), strict=True), *zip(*pulled, strict=True)]
    for k, (mine, theirs) in enumerate(pairs):
        if not np.allclose(dense(mine), dense(theirs), rtol=1e-9, atol=1e-11):
            return f"{text}\nvalue {k}: expected\n{dense(theirs)}\ngot\n{dense(mine)}"
    for x, c in zip(args, pulled[0], strict=True):
        if c.format != x.format or not (x.format.is_dense or same_buffers(x, c)):
            return f"{text}\nthe cotangent of {x.aval} is {c.aval} over other buffers"
    return None


@pytest.mark.rotating(6)
@pytest.mark.parametrize("seed", range(3))
def test_random_loops_against_unrolled_ones(seed):
    with engine.quick():
        assert not fault(seed)


@pytest.mark.slow
def test_more_random_loops_against_unrolled_ones():
    with engine.quick():
        faults = [f for f in map(fault, range(3, 200)) if f]
    assert not faults, "\n\n".join(faults)


def test_the_check_can_fail(monkeypatch):
    monkeypatch.setattr(lax, "cond", lambda p, true, false, *xs: true(*xs))
    with engine.quick():
        assert any(map(fault, (2, 0, 1)))


# ------------------------------------------------------------------------------------------------------ while loops


def test_while_loops_in_forward_mode(rng):
    a, x = array(rng, (N, N), "csr"), array(rng, (N,))

    def f(a, x, n):
        return lax.fori_loop(0, n, lambda i, x: snp.sin(a @ x), x)

    ts = direction(rng, a), direction(rng, x)
    out, t = sj.jit(lambda n: sj.jvp(lambda a, x: f(a, x, n), (a, x), ts))(3)
    want, wanted = sj.jvp(lambda a, x: f(a, x, 3), (a, x), ts)
    np.testing.assert_allclose(out, want)
    np.testing.assert_allclose(t, wanted)
    grown = lambda a: lax.while_loop(lambda p: p.sum() < 1e3, lambda p: p @ a + a, abs(a))  # noqa: E731
    out, t = sj.jvp(grown, (a,), (ts[0],))
    up, down = (grown(a + step * ts[0]) for step in (1e-6, -1e-6))
    np.testing.assert_allclose(t.todense(), (up.todense() - down.todense()) / 2e-6, rtol=1e-4, atol=1e-4)


def test_while_loops_in_reverse_mode_are_an_error(rng):
    x = array(rng, (N,))
    for loop in (
        lambda x: lax.while_loop(lambda x: x[0] < 3, lambda x: x * 2 + 1, x).sum(),
        lambda x: lax.fori_loop(0, x.sum().astype("i8"), lambda i, x: x * 2, x).sum(),
    ):
        with pytest.raises(ValueError, match=r"Reverse-mode differentiation does not work for lax\.while_loop"):
            sj.grad(loop)(x)


# ------------------------------------------------------------------------------------------------ structure of programs


def scans(jaxpr):
    return [eqn for eqn in jaxpr.eqns if eqn.primitive.name == "scan"]


def residuals(f, *args):
    """The types that the forward loop of a gradient stacks."""
    made = sj.make_jaxpr(lambda *args: sj.vjp(f, *args)[1](1.0))(*args).jaxpr
    forward = scans(sj.transforms.staging.clean(made))[0]
    return [str(v.aval) for v in forward.outputs[forward.param_dict["carry"] :]]


def test_constants_and_scanned_values_are_not_stacked_again(rng):
    a, x, xs = array(rng, (N, N), "csr"), array(rng, (N,)), array(rng, (4, N))
    found = residuals(lambda a: lax.scan(lambda c, x: (snp.sin(a @ c) * x, None), x, xs)[0].sum(), a)
    assert sorted(found) == ["f64[4:d,5:d]"] * 2  # the carry and the cosine


def chain(a, x):
    return snp.sin(a @ snp.sin(a @ snp.tanh(a @ x)))


def test_checkpoint_keeps_no_residuals(rng):
    a, x = array(rng, (N, N), "csr"), array(rng, (N,))

    def loop(f):
        return lambda x: lax.scan(lambda x, _: (f(a, x), None), x, None, length=4)[0].sum()

    assert len(residuals(loop(chain), x)) == 3
    assert residuals(loop(sj.checkpoint(chain)), x) == ["f64[4:d,5:d]"]
    np.testing.assert_allclose(sj.grad(loop(sj.checkpoint(chain)))(x), sj.grad(loop(chain))(x), rtol=1e-12)


def test_checkpoint_computes_again(rng):
    """In the compiled program of a gradient: the sine of the last layer is not needed, the others are computed twice."""
    a, x = array(rng, (N, N), "csr"), array(rng, (N,))
    weights = np.arange(float(N))

    def count(f):
        both = sj.make_jaxpr(sj.value_and_grad(lambda x: (f(a, x) * weights).sum()))(x).jaxpr
        made = sj.transforms.staging.clean(both)
        return [e.primitive.name for e in made.eqns].count("tanh")

    assert count(chain) == 1 and count(sj.checkpoint(chain)) == 2


@pytest.mark.parametrize("form", ["(d,d)@(1,0)", "csr", "coo"])
def test_derivatives_of_checkpointed_functions(rng, form):
    a, x = array(rng, (N, N), form), array(rng, (N,))
    with engine.quick():
        check(rng, sj.checkpoint(chain), a, x, second=True)
        check(rng, sj.remat(lambda a: snp.sin(a @ a) * a), a)


def test_checkpoint_of_pytrees_closures_and_static_arguments(rng):
    x, scale = array(rng, (N,)), array(rng, (N,))

    def loss(x, scale):
        @sj.checkpoint
        def inner(state, *, factor):
            return {"y": state[0] * scale * factor}, state[1]

        power = sj.checkpoint(lambda x, n: x**n, static_argnums=1)
        out, one = inner((snp.sin(x), 1.0), factor=2.0)
        return power(out["y"], 3).sum() + one

    want = lambda x, scale: ((snp.sin(x) * scale * 2.0) ** 3).sum()  # noqa: E731
    for mine, theirs in zip(sj.grad(loss, (0, 1))(x, scale), sj.grad(want, (0, 1))(x, scale), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)
    with pytest.raises(TypeError, match="checkpoint expects a function"):
        sj.checkpoint(3)


def test_loops_in_custom_rules_are_transposed(rng):
    """A rule that is linear in its tangent by a loop, which was not made by differentiation."""
    a, x = array(rng, (N, N), "csr"), array(rng, (N,))

    @sj.custom_jvp
    def f(x):
        return lax.fori_loop(0, 3, lambda i, x: a @ x, x)

    @f.defjvp
    def rule(primals, tangents):
        t = lax.fori_loop(0, 3, lambda i, t: a @ t, tangents[0])
        return f(*primals), lax.cond(primals[0][0] > -9, lambda t: t * 2, lambda t: t, t)

    want = 2 * np.ones(N) @ np.linalg.matrix_power(a.todense(), 3)
    np.testing.assert_allclose(sj.grad(lambda x: f(x).sum())(x), want, rtol=1e-12)


def test_gradient_of_a_scan_of_a_jitted_function(rng):
    a, x = array(rng, (N, N), "csr"), array(rng, (N,))
    layer = sj.jit(lambda x, w: snp.tanh(a @ x * w))
    ws = array(rng, (4, N))
    f = lambda ws: lax.scan(lambda x, w: (layer(x, w), None), x, ws)[0].sum()  # noqa: E731

    def unrolled(ws):
        y = x
        for k in range(4):
            y = layer(y, ws[k])
        return y.sum()

    np.testing.assert_allclose(sj.jit(sj.grad(f))(ws), sj.grad(unrolled)(ws), rtol=1e-12, atol=1e-14)
