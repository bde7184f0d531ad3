"""Kernels in panels of rows (`row_blocking`), and what is forwarded instead of being stored (`contract_arrays`), against NumPy."""

import random
import sys

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import config
from sparsejax.jit.graph import reassociate
from sparsejax.jit.schedule import row_blocking
from tests.fuzz import engine


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    """All dense products of two operands are kernels."""
    monkeypatch.setattr(sys.modules["sparsejax.lax.contract"], "MANY", 0)
    with engine.quick():
        yield


def text(f, *args, stage="cin"):
    return sj.jit(f).lower(*args).as_text(stage)


def sparse(rng, rows, columns, form="csr"):
    made = np.round(9 * rng.standard_normal((rows, columns))) * (rng.random((rows, columns)) < 0.2)
    made[rows // 2] = 0
    return snp.asarray(made).asformat(form), made


def integers(rng, *shape, dtype="f8"):
    return rng.integers(-4, 5, shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["f8", "f4", "i4"])
@pytest.mark.parametrize("seed", range(5))
def test_dense_products_of_any_extents(dtype, seed):
    """Rows, columns and terms that no panel, tile or vector divides; in one chunk and in many."""
    rng, choice = np.random.default_rng(seed), random.Random(seed)
    rows, inner, columns = choice.randint(1, 400), choice.choice((1, 2, 9, 33)), choice.choice((1, 3, 8, 17, 40))
    x, y = integers(rng, rows, inner, dtype=dtype), integers(rng, inner, columns, dtype=dtype)
    for work in (0, 1 << 16):
        with config.using(parallel_work=work):
            np.testing.assert_array_equal(sj.jit(lambda x, y: x @ y)(x, y).todense(), x @ y)


@pytest.mark.rotating(3)
@pytest.mark.parametrize("form", ["csr", "ell", "groupcoo:2", "dcsr", "csc", "bsr:3x2", "dense"])
@pytest.mark.parametrize("rows", [1, 63, 64, 65, 200])
def test_chains_of_three_with_what_becomes_of_them(form, rows):
    """The result of one statement is kept for the next, and that of the last one goes on into functions of it."""
    rng = np.random.default_rng(rows)
    A, a = sparse(rng, rows, 30, form)
    H, W, b, R = integers(rng, 30, 9), integers(rng, 9, 21), integers(rng, 21), integers(rng, rows, 21)

    def layer(A, H, W, b, R):
        return snp.maximum((A @ H) @ W + b, 0) * R

    want = np.maximum(a @ H @ W + b, 0) * R
    for work in (0, 1 << 16):
        with config.using(parallel_work=work):
            np.testing.assert_array_equal(sj.jit(layer)(A, H, W, b, R).todense(), want)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_same_bits_for_any_number_of_threads(threads):
    rng = np.random.default_rng(0)
    A, _ = sparse(rng, 700, 300)
    H, W = rng.standard_normal((300, 19)), rng.standard_normal((19, 35))

    def layer(A, H, W):
        return snp.maximum((A @ H) @ W, 0)

    with config.using(parallel_work=0, num_threads=1):
        want = sj.jit(layer)(A, H, W).todense()
    with config.using(parallel_work=0, num_threads=threads):
        np.testing.assert_array_equal(sj.jit(layer)(A, H, W).todense(), want)


def test_one_panel_is_kept_and_the_last_result_is_not():
    rng = np.random.default_rng(0)
    A, _ = sparse(rng, 500, 400)
    H, W = integers(rng, 400, 16), integers(rng, 16, 24)
    made = text(lambda A, H, W: snp.maximum((A @ H) @ W, 0), A, H, W)
    assert made.count("forall io") == 1, made
    assert made.count(": dense") == 1, made  # the rows of A @ H
    assert made.count("(tile)") == 3, made
    assert "out[io,ii,j] = maximum(" in made, made


def test_a_function_of_a_product_is_not_stored_twice():
    rng = np.random.default_rng(0)
    A, _ = sparse(rng, 50, 40)
    made = text(lambda A, H: snp.tanh(A @ H) + 1, A, integers(rng, 40, 16))
    assert ": dense" not in made and "out[i,j] = add(tanh(" in made, made


def test_what_is_read_twice_is_stored():
    """The mean of a row needs all of it."""
    rng = np.random.default_rng(0)
    A, a = sparse(rng, 50, 40)
    H = integers(rng, 40, 16)

    def centred(A, H):
        made = A @ H
        return made - snp.mean(made, axis=1, keepdims=True)

    want = a @ H - np.mean(a @ H, axis=1, keepdims=True)
    np.testing.assert_allclose(sj.jit(centred)(A, H).todense(), want, atol=1e-12)


def test_panels_stay_in_the_first_cache(monkeypatch):
    """Fewer rows of wide results; none where two would fill it."""
    monkeypatch.setattr(reassociate, "SURE", 0.0)
    rng = np.random.default_rng(0)
    A, a = sparse(rng, 300, 40)
    for width, size in ((16, row_blocking.ROWS), (1000, 4), (8000, 0)):
        H, W = integers(rng, 40, 16), integers(rng, 16, width)
        f = lambda A, H, W: snp.maximum((A @ H) @ W, 0)  # noqa: E731
        assert ("forall io" in text(f, A, H, W)) == (size > 0), width
        assert not size or f"A.n0 + {size - 1}) / {size})" in text(f, A, H, W, stage="loops"), width
        np.testing.assert_array_equal(sj.jit(f)(A, H, W).todense(), np.maximum(a @ H @ W, 0))


def test_sums_over_what_a_panel_keeps_are_held_in_registers():
    """A row of a softmax in panels: its largest value and its sum are made in lanes, and stored once."""
    rng = np.random.default_rng(0)
    A, a = sparse(rng, 300, 40)
    H, W = integers(rng, 40, 16), integers(rng, 16, 50)
    f = lambda A, H, W: sj.nn.softmax((A @ H) @ W / 64, axis=1)  # noqa: E731
    made = text(f, A, H, W)
    assert "forall io" in made and made.count("_s[] maximum= ") == made.count("_s[] += ") == 1, made
    values = a @ H @ W / 64
    want = np.exp(values - values.max(axis=1, keepdims=True))
    want /= want.sum(axis=1, keepdims=True)
    # of the argument of exp, and of the sum
    bound = np.finfo("f8").eps * (values.max() - values.min() + 2 * values.shape[1])
    np.testing.assert_allclose(sj.jit(f)(A, H, W).todense(), want, rtol=bound, atol=0)


def test_sparse_results_are_in_no_panels():
    rng = np.random.default_rng(0)
    A, a = sparse(rng, 300, 40)
    H, W = integers(rng, 40, 16), integers(rng, 16, 24)
    f = lambda A, H, W: sj.einsum("ij,jk->ik", A @ H, W, out_format="csr")  # noqa: E731
    assert "forall io" not in text(f, A, H, W)
    np.testing.assert_array_equal(sj.jit(f)(A, H, W).todense(), a @ H @ W)


def test_wide_and_small_products_go_to_a_library(monkeypatch):
    contract = sys.modules["sparsejax.lax.contract"]
    monkeypatch.setattr(contract, "MANY", 1000)
    rng = np.random.default_rng(0)
    f = lambda x, y: x @ y  # noqa: E731

    def calls(x, y, f=f):
        return text(f, x, y, stage="plan").count("library call")

    tall, small = integers(rng, 100, 16), integers(rng, 16, 16)
    assert not calls(tall, small)
    assert calls(tall[:3], small)  # few multiplications
    assert calls(tall.T @ tall, np.ones((16, 1 << 12)))  # a wide second operand
    assert calls(tall + 1j, small + 1j)
    assert calls(tall, small, lambda x, y: sj.einsum("ij,kj->ik", x, y))  # its rows are not those of the result


def test_no_output_is_added_to_across_its_rows():
    """A gradient by the dense operand of a product: with the columns outermost, its loops alone looked cheaper than what it would store."""
    rng = np.random.default_rng(0)
    n, count = 100_000, 1_000_000
    A = sj.array(sp.csr_array((np.ones(count), tuple(rng.integers(0, n, (2, count)))), shape=(n, n)))
    f = sj.jit(sj.value_and_grad(lambda X, A: ((A @ X) ** 2).sum()))
    text = f.trace(rng.random((n, 32)), A).lower().as_text("cin")
    assert "forall j (parallel)" not in text, text
