"""Index arrays are looked at once: their bounds, and their order; and what is gathered is nowhere stored."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.jit import pipeline
from sparsejax.jit.graph import partition
from sparsejax.jit.runtime import kernels, plans
from sparsejax.lax.indirect.kernels import insum_p
from sparsejax.lax.indirect.statements import Ref
from sparsejax.lax.library import index_arrays

ROWS, ENTRIES, COLUMNS = 50, 300, 16


def where(storage):
    """The address of its values."""
    return storage.vals.__array_interface__["data"][0]


@pytest.fixture
def looks(monkeypatch):
    """The index arrays whose bounds are looked at, each time that they are, with what they index; and those that are sorted."""
    seen = {"bounds": [], "combinations": [], "sorted": []}

    def watched(name, function, described):
        real = getattr(index_arrays, function)

        def watching(*args):
            seen[name].append(described(*args))
            return real(*args)

        monkeypatch.setattr(index_arrays, function, watching)

    watched("bounds", "_wrapped", lambda x, extent: (where(x), extent))
    watched("combinations", "read_out_of_bounds", lambda ref, stored, extents, arrays, extent: where(arrays[0]))
    watched("sorted", "_positions", lambda x, shape, *rest: (where(x), shape[-1]))
    return seen


def operands(seed=0):
    rng = np.random.default_rng(seed)
    R, K = (sj.array(rng.integers(0, ROWS, ENTRIES)) for _ in "RK")
    return R, K, sj.array(rng.random(ENTRIES)), sj.array(rng.random((ROWS, COLUMNS)))


def test_bounds_of_an_index_array_are_looked_at_once(looks):
    """By all statements, calls and transformations that read all of it, at once and under `jit`."""
    R, K, V, B = operands()
    pairs = "C[R[p],n] += V[p] * B[K[p],n]"

    def product(B, V):
        return sj.insum(pairs, C=snp.zeros((ROWS, COLUMNS)), R=R, K=K, V=V, B=B)

    compiled = sj.jit(lambda R, K, V, B: sj.insum(pairs, C=snp.zeros((ROWS, COLUMNS)), R=R, K=K, V=V, B=B))
    for _ in range(3):
        product(B, V)
        compiled(R, K, V, B)
        sj.insum("D[p] = B[R[p],n] * B[K[p],n]", R=R, K=K, B=B)
        sj.insum("m[R[p]] max= V[p]", m=np.zeros(ROWS), R=R, V=V)
        sj.jit(sj.grad(lambda B, V: product(B, V).sum()))(B, V)
        sj.vmap(lambda B: product(B, V))(snp.stack([B, B]))
        B[K]
        B.at[R].add(1.0)
        snp.take(B, K, axis=0)
    wanted = {(where(R.storage), ROWS), (where(K.storage), ROWS)}
    assert set(looks["bounds"]) >= wanted
    assert len(looks["bounds"]) == len(set(looks["bounds"]))
    assert [x for x in looks["bounds"] if x in wanted] == sorted(wanted, key=looks["bounds"].index)
    assert not looks["combinations"]


def test_rows_that_an_index_array_names_are_sorted_once(looks):
    R, K, V, B = operands()
    compiled = sj.jit(lambda C, V: sj.insum("C[R[p],n] += V[p] * B[K[p],n]", C=C, R=R, K=K, V=V, B=B))
    for _ in range(3):
        compiled(np.zeros((ROWS, COLUMNS)), V)
        sj.insum("C[R[p],n] += V[p] * B[K[p],n]", C=np.ones((ROWS, COLUMNS)), R=R, K=K, V=V, B=B)
    assert looks["sorted"] == [(where(R.storage), ROWS)]


def test_each_array_and_each_extent_is_looked_at(looks):
    R, K, V, B = operands()
    sj.insum("D[p] = V[p] * B[K[p],0]", K=K, V=V, B=B)
    larger = sj.array(np.ones((ROWS + 3, COLUMNS)))
    sj.insum("D[p] = V[p] * B[K[p],0]", K=K, V=V, B=larger)
    sj.insum("D[p] = V[p] * B[K[p],0]", K=R, V=V, B=larger)
    assert {(where(K.storage), ROWS), (where(K.storage), ROWS + 3), (where(R.storage), ROWS + 3)} <= set(
        looks["bounds"]
    )
    other = sj.array(K.todense().copy())
    sj.insum("D[p] = V[p] * B[K[p],0]", K=other, V=V, B=larger)
    assert looks["bounds"].count((where(other.storage), ROWS + 3)) == 1
    with pytest.raises(IndexError, match="out of bounds"):
        sj.insum("D[p] = V[p] * B[K[p],0]", K=other.at[7].set(ROWS + 3), V=V, B=larger)


def test_what_is_not_read_is_not_looked_at(looks):
    """An array with coordinates out of bounds: those that are read are looked at, at every call."""
    X = sj.array(np.array([[1, 99], [-99, 0]]))
    for calls in (1, 2):
        assert sj.insum("C[i] = x[X[i,i]]", x=np.arange(5.0), X=X).todense().tolist() == [1, 0]
        assert looks["combinations"] == [where(X.storage)] * calls
    assert looks["bounds"] == [(where(X.storage), 5)]


GATHERED = {
    "pairs": "C[R[p],n] += V[p] * B[K[p],n]",
    "scores": "D[p] = B[R[p],n] * B[K[p],n]",
    "three factors": "C[R[p],n] += V[p] * B[K[p],n] * B[R[p],n]",
    "rows and columns": "C[R[p],n] += V[p] * B[K[p],n] + B[R[p],n]",
}


@pytest.mark.parametrize("name", GATHERED)
@pytest.mark.parametrize("derived", [False, True])
def test_no_step_of_a_program_stores_what_is_gathered(name, derived):
    """Of a statement and of its derivative: what the steps of their programs store is smaller than an element for each entry and column."""
    R, K, V, B = operands()
    text = GATHERED[name]
    given = {k: x for k, x in {"R": R, "K": K, "V": V, "B": B}.items() if f"{k}[" in text}

    def function(B):
        target = {"C": snp.zeros((ROWS, COLUMNS))} if text[0] == "C" else {}
        return sj.insum(text, **{**given, "B": B}, **target)

    traced = sj.jit(sj.grad(lambda B: (function(B) * 2.0).sum()) if derived else function).trace(B)
    steps = pipeline.steps_of(pipeline.cleaned(traced.jaxpr.jaxpr), {})[0]
    assert any(isinstance(step, partition.KernelStep) for step in steps)
    for step in steps:
        for var in step.outputs:
            stored = var.aval.size if var.aval.format.is_dense else max(var.aval.shape)
            assert stored < ENTRIES * COLUMNS, f"{var.aval} is made"


@pytest.mark.parametrize("made", [False, True])
def test_copies_of_what_is_remembered_with_an_index_array_stay(made):
    """They are priced as those of operands are, unless every call makes the index array."""
    R, K, V, B = operands()

    def function(R, V, B):
        return sj.insum(
            "C[R[p],n] += V[p] * B[K[p],n]", C=snp.zeros((ROWS, COLUMNS)), R=R + 0 if made else R, K=K, V=V, B=B
        )

    (runner,) = (
        s
        for s in plans.plan_of(sj.jit(function).trace(R, V, B).jaxpr).steps
        if isinstance(s, kernels.KernelRunner) and "bool" in {str(t.dtype) for t in s.planner.nest.inputs}
    )
    turned = {t.name for t in runner.planner.nest.inputs if t.dtype == bool}
    assert len(turned) == 1
    assert turned <= runner.planner._fresh if made else turned.isdisjoint(runner.planner._fresh)


def test_statements_that_do_not_fit_their_operands_are_refused():
    """As those of an exported file may be, which somebody has changed."""
    closed = sj.make_jaxpr(lambda x: sj.insum("T[i] = x[i,j]", x=x))(np.ones((3, 4)))
    params = closed.jaxpr.eqns[0].param_dict
    statement, avals = params["statement"], params["avals"]
    insum_p.typing(*avals, **params)
    changes = [{"extents": (("i", 3), ("j", 5))}, {"extents": (("i", 3),)}, {"shape": (4,)}, {"shape": (3, 4)}]
    changes += [{"value": Ref(0, own)} for own in (("i", 4), ("i", -1), ("j", "i"), ("i",))] + [
        {"value": Ref(1, ("i", "j"))}
    ]
    for change in changes:
        with pytest.raises(ValueError):
            insum_p.typing(*avals, **params | {"statement": statement.with_(**change)})
    with pytest.raises(ValueError, match="has operands of"):
        insum_p.typing(*avals, *avals, **params)
