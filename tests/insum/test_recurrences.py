"""Linear recurrences in segments against a plain loop: few entries in NumPy, many by machine code, forwards and from behind; derivatives."""

import numpy as np
import pytest

import sparsejax as sj
from sparsejax.formats import passes
from sparsejax.lax.library.recurrences import recurrence
from tests import bounds


def plain(x, b, begins, reverse):
    y = np.zeros_like(b)
    n = len(b)
    for k in range(n - 1, -1, -1) if reverse else range(n):
        if reverse:
            y[k] = b[k] if k == n - 1 or begins[k + 1] else b[k] + x[k + 1] * y[k + 1]
        else:
            y[k] = b[k] if k == 0 or begins[k] else b[k] + x[k] * y[k - 1]
    return y


@pytest.mark.parametrize("count", [1, 7, passes.MANY + 5])
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16", "i8"])
def test_values(count, dtype):
    rng = np.random.default_rng(0)
    x, b = ((4 * rng.random(count) - 2).astype(dtype) for _ in range(2))
    if dtype[0] == "c":
        x = (x + 1j * rng.random(count)).astype(dtype)
    begins = rng.random(count) < 0.3
    for reverse in (False, True):
        got = recurrence(x, b, begins, reverse).todense()
        assert got.dtype == b.dtype
        exact = plain(bounds.wide(x), bounds.wide(b), begins, reverse)
        terms = plain(np.abs(bounds.wide(x)), np.abs(bounds.wide(b)), begins, reverse)
        bounds.check(got, exact, terms)


def test_derivatives_and_batches():
    rng = np.random.default_rng(0)
    x, b = rng.random((2, 9)) + 0.5
    begins = np.array([0, 0, 0, 1, 1, 0, 0, 1, 0], bool)
    for reverse in (False, True):

        def f(x, b, reverse=reverse):
            return recurrence(x, b, begins, reverse)

        for argument in (0, 1):
            forward, backward = sj.jacfwd(f, argument)(x, b).todense(), sj.jacrev(f, argument)(x, b).todense()
            step = 1e-6 * np.eye(9)
            moved = [
                (
                    f(*((x + e, b) if argument == 0 else (x, b + e))).todense(),
                    f(*((x - e, b) if argument == 0 else (x, b - e))).todense(),
                )
                for e in step
            ]
            want = np.stack([(up - down) / 2e-6 for up, down in moved], 1)
            np.testing.assert_allclose(forward, want, atol=1e-8)
            np.testing.assert_allclose(backward, want, atol=1e-8)
        xs = rng.random((3, 9))
        got = sj.vmap(f, in_axes=(0, None))(xs, b).todense()
        np.testing.assert_allclose(got, [plain(v, b, begins, reverse) for v in xs])
