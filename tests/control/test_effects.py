"""What is called beside computing a result is called as often, and in the order, in which the written program calls it: inside of loops and branches whose
results nobody reads, in batches, by loops that run as one table, by plans that measure."""

import numpy as np
import pytest
import scipy.sparse

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import config, lax

X = np.arange(1.0, 5.0)
M = scipy.sparse.random(4, 4, 0.6, format="csr", random_state=np.random.default_rng(0))
told = []


def say(x):
    sj.debug.callback(lambda v: told.append(float(v)), x.sum(), ordered=True)
    return snp.sin(x) * 2.0


def rounds(x, count=3):
    return lax.fori_loop(0, count, lambda k, x: say(x), x)


def scanned(x):
    return lax.scan(lambda c, r: (say(c) + r, c), x, np.arange(6.0))


def until(x):
    return lax.while_loop(lambda s: s[0] < 4, lambda s: (s[0] + 1, say(s[1])), (0, x))


def asked_of(x):
    def asked(s):
        say(s[1])
        return s[0] < 3

    return lax.while_loop(asked, lambda s: (s[0] + 1, s[1] * 2), (0, x))


ruled, other = sj.custom_jvp(say), sj.custom_vjp(say)
ruled.defjvp(lambda primals, tangents: (primals[0], tangents[0]))
other.defvjp(lambda x: (x, None), lambda rest, ct: (ct,))

PROGRAMS = {
    "loop": rounds,
    "long loop": lambda x: rounds(x, 40),
    "loop nobody reads": lambda x: (rounds(x), x * 2)[1],
    "scan": scanned,
    "carry nobody reads": lambda x: scanned(x)[1],
    "scan nobody reads": lambda x: (scanned(x), x * 2)[1],
    "while": until,
    "while nobody reads": lambda x: (until(x), x * 2)[1],
    "condition": asked_of,
    "two equal loops": lambda x: rounds(x) + rounds(x),
    "branch": lambda x: lax.cond(x[0] > 0, say, lambda x: x, x),
    "branch nobody reads": lambda x: (lax.cond(x[0] > 0, say, lambda x: x, x), x * 2)[1],
    "switch nobody reads": lambda x: (lax.switch(1, [lambda x: x, say], x), x * 2)[1],
    "loop in a branch": lambda x: (lax.cond(x[0] > 0, rounds, lambda x: x, x), x * 2)[1],
    "branch in a loop": lambda x: lax.fori_loop(0, 4, lambda k, x: lax.cond(k % 2 == 0, say, lambda x: x, x), x),
    "jit nobody reads": lambda x: (sj.jit(rounds)(x), x * 2)[1],
    "batch": lambda x: sj.vmap(rounds)(snp.stack([x, x + 1])),
    "batch nobody reads": lambda x: (sj.vmap(rounds)(snp.stack([x, x + 1])), x * 2)[1],
    "rule": lambda x: lax.fori_loop(0, 3, lambda k, x: ruled(x), x),
    "rule nobody reads": lambda x: (lax.fori_loop(0, 3, lambda k, x: other(x), x), x * 2)[1],
    "rule in a branch nobody reads": lambda x: (lax.cond(x[0] > 0, ruled, lambda x: x, x), x * 2)[1],
    "rule beside what is read": lambda x: lax.fori_loop(0, 3, lambda k, x: (other(x), x * 2)[1], x),
    "checkpoint nobody reads": lambda x: (sj.checkpoint(rounds)(x), x * 2)[1],
    "sparse": lambda x: lax.fori_loop(0, 3, lambda k, y: say(sj.array(M) @ y), x),
}


def calls_of(function, times=1):
    """What is told, and the result, of each call."""
    made = []
    for _ in range(times):
        told.clear()
        out = function(X)
        made.append((list(told), [np.asarray(leaf) for leaf in sj.tree_util.tree_leaves(out)]))
    return made


def check(jitted, name, times):
    ((wanted, results),) = calls_of(PROGRAMS[name])
    assert wanted
    for calls, outs in calls_of(jitted, times):
        np.testing.assert_allclose(calls, wanted, rtol=1e-12)
        for out, result in zip(outs, results, strict=True):
            np.testing.assert_allclose(out, result, rtol=1e-12)


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_often_as_written(name):
    check(sj.jit(PROGRAMS[name]), name, 4)


@pytest.mark.parametrize("name", PROGRAMS)
def test_drawn_alternatives(name):
    for seed in range(3):
        with config.using(choose=f"random:{seed}"):
            check(sj.jit(PROGRAMS[name]), name, 2)


@pytest.mark.parametrize("name", PROGRAMS)
def test_plans_that_measure(name):
    check(sj.jit(PROGRAMS[name], autotune="any"), name, 2)


def test_gradients_of_loops_call_forward():
    """The forward pass calls, whether a derivative needs its values or not."""
    function = sj.jit(sj.grad(lambda x: lax.fori_loop(0, 3, lambda k, x: (say(x), x * 2)[1], x).sum()))
    for _ in range(2):
        told.clear()
        np.testing.assert_array_equal(function(X), np.full(4, 8.0))
        assert told == [10, 20, 40]


def test_functions_that_plans_call_are_not_measured():
    count = []

    def host(x):
        count.append(1)
        return np.asarray(x) * 2

    A = sj.array(M)

    def program(A, x):
        return A @ lax.fori_loop(0, 3, lambda k, x: sj.pure_callback(host, sj.ShapeDtypeStruct((4,), float), A @ x), x)

    for tune in (True, "any"):
        count.clear()
        sj.jit(program, autotune=tune)(A, X)
        assert len(count) == 3
