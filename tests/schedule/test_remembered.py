"""Kernels that run on the same patterns again and again: copies of operands once these would have gained their price."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
from sparsejax.formats import convert, copies
from sparsejax.formats.format import Format
from sparsejax.jit.runtime import plan_cache
from sparsejax.jit.schedule import replan
from tests.fuzz import engine
from tests.prices import priced

CSC = Format.parse("csc", 2)


@pytest.fixture
def cheap():
    """Another kernel costs nothing, and is not optimised."""
    with priced(compile=0.0), engine.quick():
        yield


def drawn(rng, rows, cols, dtype=float):
    values = rng.integers(-9, 10, (rows, cols))
    return np.where(rng.random((rows, cols)) < 0.1, values, 0).astype(dtype)


@pytest.fixture
def accounts(monkeypatch):
    """The accounts of all kernels that are planned."""
    made = []

    class Listed(replan.Account):
        def __init__(self, later):
            super().__init__(later)
            made.append(self)

    monkeypatch.setattr(replan, "Account", Listed)
    return made


@pytest.mark.rotating(2)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "c16"])
@pytest.mark.parametrize("form", ["csr", "coo", "dcsr", "(d,c,d)@(0,1,2)"])
def test_results_do_not_change(cheap, form, dtype):
    rng = np.random.default_rng(0)
    A, G = drawn(rng, 300, 200, dtype), drawn(rng, 300, 16, dtype)
    product, given = sj.jit(lambda A, G: sj.einsum("ki,kj->ij", A, G)), A
    if form.count("d,") == 2 or "," in form:
        given, product = np.stack([A, 2 * A], axis=2), sj.jit(lambda A, G: sj.einsum("kib,kj->ijb", A, G))
    stored = sj.array(given, format=form)
    want = np.einsum("kib,kj->ijb", given, G) if given.ndim == 3 else A.T @ G
    for _ in range(12):
        np.testing.assert_array_equal(product(stored, G).todense(), want)
    other = sj.array(given * 2, format=form)
    np.testing.assert_array_equal(product(other, G).todense(), 2 * want)


def test_a_copy_is_made_when_it_would_have_paid(cheap, accounts):
    rng = np.random.default_rng(1)
    A, G = sj.array(drawn(rng, 300, 500), format="csr"), sj.array(rng.random((300, 16)))
    product = sj.jit(lambda A, G: sj.einsum("ki,kj->ij", A, G))
    first = product(A, G).todense()
    assert CSC not in A.storage.cache.get("converted", {})
    calls = 1
    while CSC not in A.storage.cache.get("converted", {}):
        made, calls = product(A, G).todense(), calls + 1
        assert calls < 1000
    later = accounts[0].later
    price = later.copied[0][2]
    assert calls == -(-price // later.gain)
    np.testing.assert_allclose(made, first, rtol=1e-12, atol=1e-12)
    B = sj.array(drawn(rng, 300, 500), format="csr")
    product(B, G)
    assert CSC not in B.storage.cache.get("converted", {})


@pytest.mark.parametrize("columns", [1, 7, 16, 33])
@pytest.mark.parametrize("dtype", ["f4", "f8", "c16"])
def test_bits_do_not_depend_on_the_number_of_calls(accounts, dtype, columns):
    rng = np.random.default_rng(6)
    A, G = sj.array(rng.random((400, 300)) * drawn(rng, 400, 300, dtype), format="csr"), rng.random((400, columns))
    product = sj.jit(lambda A, G: sj.einsum("ki,kj->ij", A, G))
    with priced(compile=0.0):
        first = product(A, G).todense()
        for _ in range(40):
            np.testing.assert_array_equal(product(A, G).todense(), first)
        assert all(a.pays([A.storage, sj.array(G).storage]) for a in accounts)


def test_arrays_over_one_pattern_pay_for_its_copy_together():
    storage = sj.array(drawn(np.random.default_rng(2), 40, 30), format="csr").storage
    others = [storage.with_values(storage.vals * k, storage.fill_value) for k in range(6)]
    pays = [copies.pays(s, CSC, gain=30.0, price=50.0, gather=10.0) for s in others]
    assert pays == [False, False, True, True, True, True]  # each gains 30 and costs 10: 50 is reached by the third
    copies.converted(others[2], CSC)
    alone = storage.with_values(storage.vals, storage.fill_value)
    assert [copies.pays(alone, CSC, 4.0, 50.0, 10.0) for _ in range(3)] == [False, False, True]
    copies.converted(alone, CSC)
    assert copies.pays(alone, CSC, 0.0, 50.0, 10.0)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("csr", "csc"),
        ("(d,c,d)@(0,1,2)", "(d,c,d)@(1,0,2)"),
        ("(d,c,d)@(0,1,2)", "(d,d,c)@(2,1,0)"),
        ("(c,d,d)@(0,1,2)", "(d,d,c)@(1,2,0)"),
        ("(c,d,d)@(0,1,2)", "(c,d,d)@(0,2,1)"),
        ("bsr:2x3", "(d,c,d,d)@(1,0,0,1)/(2,3)"),
        ("bsr:2x3", "(d,c,d,d)@(0,1,0,1)/(3,2)"),
    ],
)
@pytest.mark.parametrize("extents", [(12, 6, 4), (1, 6, 4), (6, 6, 1), (6, 6, 0)])
def test_copies_over_a_remembered_pattern(before, after, extents):
    shape = extents if before.count("(d,c,d)") or before.count("(c,d,d)") else extents[:2]
    rng = np.random.default_rng(5)
    storage = sj.array(rng.integers(-1, 2, shape).astype(float), format=before).storage
    wanted = Format.parse(after, len(shape))
    for k in range(1, 4):
        again = storage.with_values(storage.vals * k + 0.0, storage.fill_value)
        made = copies.converted(again, wanted)
        assert made.format == wanted
        np.testing.assert_array_equal(convert.to_dense(made), convert.to_dense(again))


def test_arrays_that_share_no_pattern_pay_alone():
    rng = np.random.default_rng(3)
    for _ in range(5):
        storage = sj.array(drawn(rng, 40, 30), format="csr").storage
        assert not copies.pays(storage, CSC, gain=30.0, price=50.0, gather=10.0)


def test_recipes_keep_what_is_cheaper_later(accounts):
    rng = np.random.default_rng(4)
    A, G = sj.array(drawn(rng, 300, 500), format="csr"), sj.array(rng.random((300, 16)))
    product = sj.jit(lambda A, G: sj.einsum("ki,kj->ij", A, G))
    product(A, G)
    later = accounts[0].later
    assert later.order == ("i", "k", "j") and later.gain > 0
    recipe = plan_cache.Recipe("text", (), (), None, later=later)
    assert plan_cache._decoded(plan_cache._encoded(recipe)) == recipe


def test_products_that_keep_rows_in_registers_want_no_copies(accounts):
    rng = np.random.default_rng(5)
    A, G = sj.array(drawn(rng, 300, 500), format="csr"), sj.array(rng.random((500, 16)))
    product = sj.jit(lambda A, G: A @ G)
    product(A, G)
    assert not accounts


@pytest.mark.parametrize("alike", [False, True])
def test_results_that_are_larger_than_expected_change_nothing(accounts, alike):
    """Two patterns that are the same have as many entries in common as each has: the other order would have to sort them all."""
    rng = np.random.default_rng(7)
    rows, cols, entries = 40_000, 200, 20_000
    drawn = [
        sp.csr_array(
            (np.ones(entries), (rng.integers(0, rows, entries), rng.integers(0, cols, entries))), shape=(rows, cols)
        )
        for _ in range(2)
    ]
    A, B = sj.array(drawn[0]), sj.array((drawn[0] if alike else drawn[1]).copy())
    multiply = sj.jit(lambda A, B: A * B)
    with priced(compile=0.0, conversion=8.0):  # too dear for a few calls
        for _ in range(400):
            multiply(A, B)
    assert len(accounts) == 1
    assert (A.storage.cache.get("converted", {}) == {}) == alike
