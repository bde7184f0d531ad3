"""Plans that measure: who competes, what is recorded, and that alternatives said to be exact are."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import config
from sparsejax.alternatives import CHOICES, EXACT
from sparsejax.jit.runtime import plan_cache, tuning
from tests import rotation

rng = np.random.default_rng(0)


def sparse(n, m, form="csr", density=0.1):
    return sj.array(rng.standard_normal((n, m)) * (rng.random((n, m)) < density), format=form)


A, B = sparse(90, 90), sparse(90, 90)
ALIKE = A * 0.3
X, W = rng.standard_normal((90, 32)), rng.standard_normal((32, 32))


def softmax(S):
    E = snp.exp(S - snp.max(S, axis=1, keepdims=True))
    return E / snp.sum(E, axis=1, keepdims=True)


PROGRAMS = {
    "spmv": (lambda A, X: A @ X[:, 0], A, X),
    "spmm": (lambda A, X: A @ X, A, X),
    "transposed": (lambda A, X: A.T @ X, A, X),
    "layer": (lambda A, X, W: snp.maximum((A @ X) @ W, 0), A, X, W),
    "spgemm": (lambda A, B: A @ B, A, B),
    "triangles": (lambda A, B: snp.sum(A * (A @ B)), A, B),
    "sampled": (lambda A, X: A * (X @ X.T), A, X),
    "patterns": (lambda A, B: A * B + A, A, ALIKE),
    "softmax": (softmax, X),
    "three": (lambda A, B: sj.einsum("ij,ik,jk->ij", A, B, A), A, B),
    "variance": (lambda A: A.var(axis=0), sj.array(np.eye(5), format="csf")),
    "gradient": (sj.grad(lambda A, X: snp.sum(snp.tanh(A @ X) ** 2)), A, X),
}


def bits(made):
    return [b.tobytes() for x in sj.tree_util.tree_leaves(made) for b in (*sum(x.storage.buffers, ()), x.storage.vals)]


@pytest.fixture(scope="module")
def plainly():
    """The bits of every program where nothing is forced."""
    sj.clear_caches()  # kernels that other tests compiled without optimisation
    return {name: bits(sj.jit(function)(*arguments)) for name, (function, *arguments) in PROGRAMS.items()}


@pytest.mark.rotating(2)
@pytest.mark.parametrize("choice", sorted(EXACT))
def test_alternatives_of_exact_choices_have_equal_bits(choice, plainly):
    different = []
    for name, (function, *arguments) in PROGRAMS.items():
        wanted = plainly[name]
        for way in CHOICES[choice]:
            with config.using(choose=f"{choice}={way}"):
                if bits(sj.jit(function)(*arguments)) != wanted:
                    different.append((name, way))
    assert not different


@pytest.fixture
def folder(tmp_path):
    with config.using(cache_dir=str(tmp_path)):
        plan_cache.forget()
        yield tmp_path
    plan_cache.forget()


def tuned(function):
    (found,) = function.tuned()
    return found


@pytest.fixture
def others_win(monkeypatch):
    """Every alternative is twice as fast as what was chosen, by the clock."""
    monkeypatch.setattr(tuning, "_ratio", lambda cheapest, other, storages: 2.0)


@pytest.mark.rotating(2)
@pytest.mark.parametrize("name", list(PROGRAMS))
def test_whatever_wins_the_bits_stay(name, folder, others_win):
    function, *arguments = PROGRAMS[name]
    compiled = sj.jit(function, autotune=True)
    wanted = bits(sj.jit(function)(*arguments))
    assert bits(compiled(*arguments)) == wanted
    assert bits(compiled(*arguments)) == wanted  # on the short road
    named = [pair.partition("=")[0] for pair in tuned(compiled).choose.split(",") if pair != "auto"]
    assert set(named) <= EXACT


def test_any_alternative_may_win(folder, others_win):
    seen = set()
    for function, *arguments in [PROGRAMS["sampled"], *rotation.share(list(PROGRAMS.values()), 2)]:
        compiled = sj.jit(function, autotune="any")
        for made, plain in zip(
            *(sj.tree_util.tree_leaves(f(*arguments)) for f in (compiled, sj.jit(function))), strict=True
        ):
            np.testing.assert_allclose(made.todense(), plain.todense(), rtol=1e-9, atol=1e-12)
        seen |= {pair.partition("=")[0] for pair in tuned(compiled).choose.split(",")}
    assert len(seen - EXACT) > 1


def test_a_winner_is_recorded_and_nothing_is_measured_again(folder, others_win, monkeypatch):
    function, *arguments = PROGRAMS["spmm"]
    first = sj.jit(function, autotune=True)
    first(*arguments)
    assert tuned(first).choose != "auto"

    def refused(*args):
        raise AssertionError("measured again")

    monkeypatch.setattr(tuning, "_measured", refused)
    plan_cache.forget()
    again = sj.jit(lambda A, X: A @ X, autotune=True)
    again(*arguments)
    assert tuned(again) == tuned(first)
    other = sj.jit(function, autotune="any")  # another question
    with pytest.raises(AssertionError, match="measured again"):
        other(*arguments)


def test_a_slower_or_dearer_plan_does_not_win(folder, monkeypatch):
    monkeypatch.setattr(tuning, "_ratio", lambda cheapest, other, storages: 1.04)
    function, *arguments = PROGRAMS["layer"]
    compiled = sj.jit(function, autotune="any")
    compiled(*arguments)
    assert tuned(compiled).choose == "auto" and tuned(compiled).timed > 2
    monkeypatch.setattr(tuning, "NEAR", 0.0)
    monkeypatch.setattr(tuning, "_ratio", lambda cheapest, other, storages: 9.0)
    dear = sj.jit(lambda A, X: A @ X, autotune="any")
    dear(A, X)
    assert tuned(dear) == tuning.Tuned("auto", 1.0, 1)


def test_an_alternative_with_other_bits_is_refused(folder, others_win, monkeypatch):
    monkeypatch.setattr(tuning, "EXACT", frozenset(CHOICES))
    rounded = sj.jit(lambda x: snp.sum(x * x), autotune=True)
    x = rng.standard_normal(1000)
    assert bits(rounded(x)) == bits(sj.jit(lambda x: snp.sum(x * x))(x))


def test_real_clocks(folder):
    function, *arguments = PROGRAMS["spmm"]
    compiled = sj.jit(function, autotune=True)
    np.testing.assert_array_equal(compiled(*arguments).todense(), sj.jit(function)(*arguments).todense())
    assert tuned(compiled).gain >= 1.0


def test_new_facts_and_shapes_keep_their_bits(folder, others_win):
    compiled = sj.jit(lambda A, X: A @ X, autotune=True)
    for n in (30, 90, 50, 30):
        M, Y = sparse(n, n, density=0.3), rng.standard_normal((n, 8))
        assert bits(compiled(M, Y)) == bits(sj.jit(lambda A, X: A @ X, dynamic=False)(M, Y))


def test_what_is_not_timed(folder, monkeypatch):
    monkeypatch.setattr(tuning, "_measured", lambda *args: pytest.fail("timed"))
    seen = []

    def told(x):
        sj.debug.callback(lambda v: seen.append(float(v)), snp.sum(x))
        return x * 2.0

    sj.jit(told, autotune=True)(X)
    assert len(seen) == 1
    donated = sj.jit(lambda x: x + 1, autotune=True, donate_argnums=0)
    donated(sj.array(X))
    sj.jit(lambda x: x + 1, autotune=False)(X)
    with config.using(autotune="exact"):
        sj.jit(lambda x: x + 1, autotune=False)(X)
        with pytest.raises(pytest.fail.Exception, match="timed"):
            sj.jit(lambda x: x + 1)(X)


def test_bad_values():
    with pytest.raises(TypeError, match="autotune=3 must be True or"):
        sj.jit(lambda x: x, autotune=3)
    with pytest.raises(ValueError, match="autotune='on' must be True or"):
        config.update("autotune", "on")


def test_errors_are_those_of_the_program(folder):
    compiled = sj.jit(lambda A, x: A @ x, autotune=True)
    with pytest.raises(ValueError, match="inner dimensions"):
        compiled(A, np.ones(3))


def test_operations_at_once_are_not_timed(monkeypatch):
    monkeypatch.setattr(tuning, "_measured", lambda *args: pytest.fail("timed"))
    with config.using(autotune="any"):
        for _ in range(3):
            snp.linalg.norm(A), snp.max(A), A @ X


@pytest.mark.parametrize(
    ("given", "word"), [(True, "exact"), (False, "off"), ("exact", "exact"), ("off", "off"), ("any", "any")]
)
def test_one_set_of_words(given, word):
    """For functions and for settings."""
    with config.using(autotune=given):
        assert config.autotune() == word
    assert sj.jit(lambda x: x, autotune=given)._tunes == word
