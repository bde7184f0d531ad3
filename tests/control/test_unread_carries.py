"""Carries of `while_loop` that nobody reads do not go around; others stay, through whatever they are read."""

import random

import numpy as np
import pytest

import sparsejax as sj
from sparsejax import lax
from sparsejax.transforms import staging

CASES = 40


def carries(f, *args):
    """How many values the loops of a function carry, without dead code."""
    jaxpr = staging.clean(sj.make_jaxpr(f)(*args).jaxpr)
    return [len(eqn.outputs) for eqn in jaxpr.eqns if eqn.primitive.name == "while"]


def random_loop(rng: random.Random, count: int):
    """A loop over some numbers, each of which becomes what a few others are; which results are read, and which numbers they are made of."""
    reads = [sorted(rng.sample(range(count), rng.randrange(3))) for _ in range(count)]
    asked, used = rng.randrange(count), sorted(rng.sample(range(count), rng.randrange(1, 3)))

    def body(state):
        *values, k = state
        made = [sum((values[j] for j in reads[n]), start=values[n] * 0 + n if n % 2 else 1.0) for n in range(count)]
        return *(m % 7 for m in made), k + 1

    def going(state):
        return (state[-1] < 9) & (state[asked] > -1) if rng_asks else state[-1] < 9

    rng_asks = rng.random() < 0.5
    needed = {*used, *((asked,) if rng_asks else ())}
    while True:
        more = needed | {j for n in needed for j in reads[n]} | {n for n in needed if n % 2}
        if more == needed:
            return body, going, used, needed
        needed = more


@pytest.mark.parametrize("seed", range(CASES))
def test_random_loops_carry_what_is_read(seed):
    rng = random.Random(seed)
    body, going, used, needed = random_loop(rng, 5)

    def ours(*values):
        last = lax.while_loop(going, body, (*values, 0))
        return [last[n] for n in used]

    first = [float(rng.randrange(7)) for _ in range(5)]
    state = (*first, 0)
    while going(state):
        state = body(state)
    np.testing.assert_array_equal([float(x) for x in sj.jit(ours)(*first)], [state[n] for n in used])
    assert carries(ours, *first) == [len(needed) + 1]


def test_sparse_carries_and_constants():
    """What only an unread carry is made of is no operand either."""
    A = sj.array(np.eye(4) * 2, format="csr")
    B = sj.array(np.ones((4, 4)), format="csr")

    def ours(A, B, x):
        def step(s):
            return s[0] @ A, sj.prune(s[1] @ B), s[2] + 1

        return lax.while_loop(lambda s: s[2] < 3, step, (x, sj.array(np.eye(4), format="csr"), 0))[0]

    assert carries(ours, A, B, np.ones(4)) == [2]
    (loop,) = [
        e for e in staging.clean(sj.make_jaxpr(ours)(A, B, np.ones(4)).jaxpr).eqns if e.primitive.name == "while"
    ]
    assert sum(loop.param_dict["counts"]) == 1
    np.testing.assert_array_equal(sj.jit(ours)(A, B, np.ones(4)).todense(), np.full(4, 8.0))


def test_functions_of_the_user_are_called():
    """A carry that a callback reads stays."""
    seen = []

    def ours(x):
        def step(s):
            sj.debug.callback(lambda y: seen.append(float(y)), s[1])
            return s[0] + 1, s[1] * 2, s[2] + 1

        return lax.while_loop(lambda s: s[2] < 3, step, (x, x + 1, 0))[0]

    assert float(sj.jit(ours)(1.0)) == 4.0
    assert seen == [2.0, 4.0, 8.0]
