"""Contraction paths: what is contracted first, and that it changes nothing but the work."""

import numpy as np
import pytest

import sparsejax as sj
from sparsejax.lax import path, typing_rules
from sparsejax.lax import subscripts as told
from sparsejax.lax.contract import _typing_for, contract

pytestmark = pytest.mark.rotating(24)

RNG_LETTERS = "ijkl"


def sparse(rng, shape, form):
    dense = np.where(rng.random(shape) < 0.4, rng.integers(-4, 5, shape), 0).astype(float)
    return sj.array(dense, format=form), dense


def steps_of(subscripts, *args):
    """The equations of an einsum, as printed, without their operands."""
    jaxpr = sj.make_jaxpr(lambda *xs: sj.einsum(subscripts, *xs))(*args).jaxpr
    return [eqn.primitive.describe(**eqn.param_dict) for eqn in jaxpr.eqns]


def struct(shape, form="dense"):
    return sj.array(np.zeros(shape), format=form)


N = 2000
A, X, H = struct((N, N), "csr"), struct(N), struct((N, 16))


@pytest.mark.parametrize(
    ("subscripts", "args", "steps"),
    [
        ("ij,jk,k->i", (A, A, X), ["ij,j->i", "ij,j->i"]),
        ("ij,jk,kl,l->i", (A, A, A, X), ["ij,j->i"] * 3),
        ("i,ij,jk,k->", (X, A, A, X), None),
        ("ij,kl->ij", (A, A), ["ij->", "ij,->ij"]),
        ("ij,kl->", (A, A), ["ij->", "ij,->"]),
        ("ij,jk->i", (A, A), ["ij->i", "ij,j->i"]),
        ("ij,jk->ik", (A, A), ["ij,jk->ik"]),
        ("ij,jk->ik", (A, H), ["ij,jk->ik"]),
        ("ij,ik,jk->ij", (A, H, H), ["ij,ik,jk->ij"]),
        ("ij,j,i->ij", (A, X, X), ["ij,j,i->ij"]),
    ],
)
def test_plans(subscripts, args, steps):
    made = steps_of(subscripts, *args)
    if steps is None:
        assert len(made) > 1
    else:
        assert made == steps


def test_tensors_with_factors():
    t = struct((60, 60, 60), "csf")
    u = struct((60, 16))
    assert steps_of("ijk,jr,kr->ir", t, u, u) == ["ijk,jl,kl->il"]
    assert len(steps_of("ijk,ia,jb,kc->abc", t, u, u, u)) > 1
    assert len(steps_of("ijk,ia,jb,kc->abc", struct((3, 3, 3), "csf"), *[struct((3, 2))] * 3)) == 1


def test_one_kernel_on_demand():
    jaxpr = sj.make_jaxpr(lambda a, x: sj.einsum("ij,jk,k->i", a, a, x, optimize=False))(A, X).jaxpr
    assert len(jaxpr.eqns) == 1


@pytest.mark.parametrize("seed", range(150))
def test_random_contractions(seed, monkeypatch):
    """Whatever is contracted first (kernels are free here, so that paths are taken at small sizes too): NumPy's values, and
    the type of one contraction of all operands."""
    monkeypatch.setattr(path, "OVERHEAD", 0.0)
    monkeypatch.setattr(path, "FIBER", 2.0)
    path.plan.cache_clear()
    rng = np.random.default_rng(seed)
    extents = dict(zip(RNG_LETTERS, map(int, rng.integers(2, 6, 4)), strict=True))
    terms, arrays, dense = [], [], []
    for _ in range(int(rng.integers(1, 7))):
        term = "".join(rng.permutation(list(RNG_LETTERS))[: int(rng.integers(1, 4))])
        forms = {1: ["dense", "coo"], 2: ["dense", "csr", "csc", "coo", "dcsr"], 3: ["dense", "csf", "coo"]}[len(term)]
        a, d = sparse(rng, [extents[x] for x in term], str(rng.choice(forms)))
        terms.append(term), arrays.append(a), dense.append(d)
    used = sorted({x for term in terms for x in term})
    out = "".join(rng.permutation(used)[: int(rng.integers(0, min(3, len(used)) + 1))])
    subscripts = f"{','.join(terms)}->{out}"
    try:
        got = sj.einsum(subscripts, *arrays)
    finally:
        path.plan.cache_clear()
    np.testing.assert_allclose(got.todense(), np.einsum(subscripts, *dense), err_msg=subscripts)
    whole = contract(arrays, *told.parsed(subscripts, [a.ndim for a in arrays]))
    assert (got.format, got.dtype, got.shape, got.fill_value) == (
        whole.format, whole.dtype, whole.shape, whole.fill_value
    )  # fmt: skip


def test_types_are_found_once_and_only_where_they_matter(monkeypatch):
    """A product of three operands whose pairs cost more whatever their types are: one type is found, that of the result."""
    found, real = [], typing_rules.infer
    monkeypatch.setattr(typing_rules, "infer", lambda *args: found.append(args) or real(*args))
    a, h = struct((1999, 1999), "csr"), struct((1999, 16))
    assert steps_of("ij,ik,jk->ij", a, h, h) == ["ij,ik,jk->ij"]
    assert len(found) == 1


@pytest.mark.parametrize("seed", range(60))
def test_what_is_left_out_of_a_search_costs_more(seed, monkeypatch):
    """Plans are those of a search that finds all types."""
    rng = np.random.default_rng(seed)
    extents = dict(zip(RNG_LETTERS, map(int, rng.choice([3, 20, 300, 5000], 4)), strict=True))
    avals, inputs = [], []
    for _ in range(int(rng.integers(2, 5))):
        labels = tuple(map(int, rng.permutation(4)[: int(rng.integers(1, 4))]))
        form = str(rng.choice(["coo", "csf", "dense"]))
        shape = [extents[RNG_LETTERS[x]] for x in labels]
        avals.append(sj.ShapeDtypeStruct(shape, "f8", format=form).aval)
        inputs.append(labels)
    used = sorted({x for labels in inputs for x in labels})
    output = tuple(map(int, rng.permutation(used)[: int(rng.integers(0, 3))]))
    given = tuple(avals), tuple(inputs), output, _typing_for(np.dtype("f8"))
    pruned, whole = path.plan.__wrapped__(*given), path._Planner._make
    monkeypatch.setattr(path._Planner, "_make", lambda self, items, step, limit=0.0: whole(self, items, step))
    assert path.plan.__wrapped__(*given) == pruned
