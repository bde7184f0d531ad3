"""Arrays that share the ends of their rows, as columns in another order do: what is done with one leaves the others as they were."""

import copy
import pickle

import numpy as np
import pytest

import sparsejax as sj


@pytest.mark.parametrize("form", ["csr", "csc"])
def test_what_is_done_with_one_leaves_the_other_as_it_was(form):
    rng = np.random.default_rng(len(form))
    dense = rng.integers(1, 9, (300, 301)) * (rng.random((300, 301)) < 0.1) * 1.0
    A = sj.array(dense, format=form)
    ends = A.storage.buffers[1][0]
    order = rng.permutation(dense.shape[form == "csr"])
    key = (slice(None), order) if form == "csr" else order
    wanted = dense[key]
    changed = wanted.copy()
    changed[np.arange(50), np.arange(50)] += 1
    for use, result in (
        (sj.jit(lambda X: X * 2, donate_argnums=0), 2 * wanted),
        (lambda X: sj.jit(lambda X, Y: X + Y, donate_argnums=(0, 1))(X, +X), 2 * wanted),
        (lambda X: X.at[np.arange(50), np.arange(50)].add(1.0), changed),
        (lambda X: pickle.loads(pickle.dumps(X)), wanted),
        (lambda X: copy.deepcopy(X) * 3, 3 * wanted),
    ):
        B, kept = A[key], A[key]
        assert np.shares_memory(B.storage.buffers[1][0], ends)
        np.testing.assert_array_equal(use(B).todense(), result)
        np.testing.assert_array_equal(kept.todense(), wanted)
        np.testing.assert_array_equal(A.todense(), dense)
    result = sj.jit(lambda X: X * 2, donate_argnums=0)(A)
    del A
    np.testing.assert_array_equal(kept.todense(), wanted)
    np.testing.assert_array_equal(result.todense(), 2 * dense)


def test_index_errors_in_every_call_of_a_shape():
    """However a shape is served, by a trace of another one or by its own, what is out of bounds is an error, and the next call is right."""
    rng = np.random.default_rng(3)
    taken = sj.jit(lambda A, x, I: (A[I], x[I]))
    for rows in (30, 41, 52, 53, 30):
        dense, x = rng.random((rows, 7)) * (rng.random((rows, 7)) < 0.5), rng.random(rows)
        A = sj.array(dense, format="csr")
        for call in range(18):
            index = rng.integers(-rows, rows, 9)
            wrong = index.copy()
            wrong[call % 9] = rows if call % 2 else -rows - 1
            for function in (taken, lambda A, x, I: (A[I], sj.numpy.take(x, I))):
                with pytest.raises(IndexError, match=str(wrong[call % 9])):
                    function(A, x, wrong)
                found = function(A, x, index)
                np.testing.assert_array_equal(found[0].todense(), dense[index])
                np.testing.assert_array_equal(np.asarray(found[1]), x[index])
