"""Every shape of a loop that is legal gives the same numbers, whichever would be chosen (`alternatives`: "loop_shape", "tail", "prefetch", "range")."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import alternatives, config
from sparsejax.jit.ir import choices
from sparsejax.jit.runtime import plan_cache
from tests.fuzz import engine
from tests.fuzz.test_forced import ELSEWHERE

RNG = np.random.default_rng(7)
ROWS, COLS = 101, 40
RUNS = np.repeat(RNG.integers(0, 3, (ROWS, COLS // 4)), 4, axis=1).astype(float)
BAND = np.triu(np.tril(RNG.integers(1, 4, (ROWS, COLS)).astype(float), 2), -3)
VECTOR = RNG.integers(-3, 4, COLS).astype(float)
WIDE = RNG.integers(-2, 3, (COLS, 130)).astype(float)
U, V = RNG.integers(-2, 3, (ROWS, 24)).astype(float), RNG.integers(-2, 3, (COLS, 24)).astype(float)

LABELS = np.where(np.arange(ROWS) < 60, np.sort(RNG.integers(0, COLS, ROWS)), RNG.integers(0, COLS, ROWS))
NAMES, WEIGHTS = RNG.integers(0, COLS, (ROWS, 5)), RNG.integers(-2, 3, (5, 24, 20)).astype(float)


def uneven(seed):
    """Rows of every length up to that of a vector and some more; many empty ones."""
    rng = np.random.default_rng(seed)
    made = rng.integers(-4, 5, (ROWS, COLS)).astype(float)
    keep = rng.integers(0, 14, ROWS) * rng.integers(0, 2, ROWS)
    return made * (rng.random((ROWS, COLS)).argsort(axis=1) < keep[:, None])


A, B = uneven(1), uneven(2)
TERMS, EIGHT = [uneven(k) for k in range(3, 6)], [uneven(k) for k in range(6, 14)]


def stored(x, form="csr"):
    return sj.array(x, format=form)


def softmax(x):
    shown = np.where(x != 0, np.exp(x), 0.0)
    return shown / np.where(shown.sum(1, keepdims=True) == 0, 1, shown.sum(1, keepdims=True))


def scattered(labels, names, values):
    """Rows of the result that sorted labels name, and some others."""
    made = np.zeros((COLS, 24))
    np.add.at(made, labels, (values[:, :, None] * V[names]).sum(1))
    return made


PROGRAMS = {
    "product": (lambda A, x: A @ x, (stored(A), VECTOR), lambda: A @ VECTOR),
    "sums": (lambda A: A.sum(axis=1), (stored(A),), lambda: A.sum(1)),
    "squares": (lambda A: (A * A).sum(axis=1) * 2.0, (stored(A),), lambda: (A * A).sum(1) * 2),
    "functions": (
        lambda A, y: snp.expm1(A) * y[:, None],
        (stored(A), U[:, 0]),
        lambda: np.expm1(A) * U[:, :1],
    ),
    "softmax": (sj.nn.softmax, (stored(A),), lambda: softmax(A)),
    "column sums": (lambda A, x: x @ A, (stored(A), U[:, 0]), lambda: U[:, 0] @ A),
    "sampled": (lambda A, U, V: A * (U @ V.T), (stored(A), U, V), lambda: A * (U @ V.T)),
    "sum of two": (lambda A, B: A + B, (stored(A), stored(B)), lambda: A + B),
    "product of two": (lambda A, B: A * B, (stored(A), stored(B)), lambda: A * B),
    "dense": (lambda A, D: A + D, (stored(A), U @ V.T), lambda: A + U @ V.T),
    "largest": (
        lambda A, D: snp.maximum(A, D).sum(axis=1),
        (stored(A), U @ V.T),
        lambda: np.maximum(A, U @ V.T).sum(1),
    ),
    "bands": (lambda A, x: A @ x, (stored(BAND, "banded"), VECTOR), lambda: BAND @ VECTOR),
    "two bands": (lambda A, B: A * B, (stored(BAND, "banded"), stored(2 * BAND, "banded")), lambda: 2 * BAND * BAND),
    "runs": (lambda A, x: A @ x, (stored(RUNS, "rle"), VECTOR), lambda: RUNS @ VECTOR),
    "three terms": (lambda A, B, C: (A + B + C).sum(axis=1), tuple(map(stored, TERMS)), lambda: sum(TERMS).sum(1)),
    "sums of runs": (lambda A: A.sum(axis=1), (stored(RUNS, "rle"),), lambda: RUNS.sum(1)),
    "eight terms": (lambda *terms: sum(terms).sum(axis=1), tuple(map(stored, EIGHT)), lambda: sum(EIGHT).sum(1)),
    "rows in groups": (lambda A, V: A @ V, (stored(A, "groupcoo:3"), V), lambda: A @ V),
    "many columns": (lambda A, V: A @ V, (stored(A, "groupcoo:4"), WIDE), lambda: A @ WIDE),
    "sums of groups": (lambda A: A.sum(axis=1), (stored(A, "groupcoo:16"),), lambda: A.sum(1)),
    "groups that grow": (lambda A: (A * A).asformat("csr"), (stored(A, "groupcoo:2"),), lambda: A * A),
    "columns in groups": (lambda A: A.sum(axis=0), (stored(A, "groupcoo:4"),), lambda: A.sum(0)),
    "scattered rows": (
        lambda R, K, X, V: sj.insum("C[R[p],n] += X[p,q] * V[K[p,q],n]", C=np.zeros((COLS, 24)), R=R, K=K, X=X, V=V),
        (LABELS, NAMES, WEIGHTS[0, 0, 0] * NAMES, V),
        lambda: scattered(LABELS, NAMES, WEIGHTS[0, 0, 0] * NAMES),
    ),
    "gathered rows": (
        lambda N, V, W: sj.insum("Out[x,m] = V[N[x,z],c] * W[z,c,m]", N=N, V=V, W=W),
        (stored(NAMES, "(d,d,c)@(0,1,0)/(32,1)"), V, WEIGHTS),
        lambda: sum((NAMES[:, z, None] > 0) * (V[NAMES[:, z]] @ WEIGHTS[z]) for z in range(5)),
    ),
    "triplets": (lambda A, x: A @ x, (stored(A, "coo"), VECTOR), lambda: A @ VECTOR),
    "columns of triplets": (lambda A, v: A.T @ v, (stored(A, "coo"), U[:, 0]), lambda: A.T @ U[:, 0]),
    "dense sums": (lambda U: U.sum(axis=1) * 1.0, (U,), lambda: U.sum(1)),
}
SHAPES = [
    *[("product", s) for s in ("range", "entries", "pairs", "unrolled", "merge", "staged_rows")],
    *[("sums", s) for s in ("stored_values", "pairs", "unrolled", "entries", "merge", "staged_rows")],
    *[("squares", s) for s in ("stored_values", "unrolled", "staged_rows")],
    *[("functions", s) for s in ("stored_values", "entries", "merge")],
    *[("softmax", s) for s in ("staged_rows", "entries", "merge")],
    *[("sampled", s) for s in ("side_by_side", "entries", "merge")],
    *[("sum of two", s) for s in ("union", "merge")],
    *[("product of two", s) for s in ("intersection", "merge")],
    *[("dense", s) for s in ("overwrite", "gaps", "coordinates")],
    *[("largest", s) for s in ("gaps", "coordinates")],
    *[("bands", s) for s in ("band", "entries", "pairs", "unrolled", "merge")],
    *[("two bands", s) for s in ("band", "intersection", "merge")],
    *[("runs", s) for s in ("runs", "entries", "merge")],
    *[("rows in groups", s) for s in ("groups", "entries", "merge")],
    *[("many columns", s) for s in ("groups", "entries")],
    *[("sums of groups", s) for s in ("groups", "stored_values", "pairs", "unrolled", "entries")],
    *[("groups that grow", s) for s in ("groups", "stored_values", "entries", "merge")],
    *[("columns in groups", s) for s in ("groups", "entries")],
    *[("gathered rows", s) for s in ("row_tiles", "entries", "merge")],
    *[("scattered rows", s) for s in ("consecutive", "entries", "merge")],
    *[("triplets", s) for s in ("positions", "entries", "merge")],
    *[("columns of triplets", s) for s in ("positions", "entries", "merge")],
    ("eight terms", "independent"),
    ("column sums", "padded"),
]
MASKED = [
    ("sums of groups", "gathered"),
    ("product", "gathered"),
    ("product", "summed_rows"),
    ("sums", "summed_rows"),
    ("sums", "gathered"),
    ("triplets", "segmented"),
]
FINER = [
    *[("product", f"loop_shape=unrolled, tail={t}") for t in ("masked", "scalar")],
    *[("sums", f"loop_shape=stored_values, tail={t}") for t in ("masked", "scalar", "unasked")],
    *[("product", f"loop_shape=pairs, prefetch={p}") for p in ("ahead", "none")],
    *[("product", f"loop_shape=gathered, prefetch={p}") for p in ("ahead", "none")],
    *[("column sums", f"loop_shape=entries, prefetch={p}") for p in ("ahead", "own", "none")],
    *[("triplets", f"loop_shape=segmented, prefetch={p}") for p in ("ahead", "none")],
    *[("sampled", f"loop_shape=side_by_side, prefetch={p}") for p in ("ahead", "none")],
    *[("sums of groups", f"loop_shape=unrolled, tail={t}") for t in ("masked", "scalar")],
    *[("many columns", f"loop_shape=groups, prefetch={p}") for p in ("ahead", "none")],
    *[("largest", f"range={r}") for r in ("lanes", "steps")],
    *[("runs", f"range={r}") for r in ("lanes", "steps")],
    ("sums of runs", "range=once"),
]


def check(name, choose):
    """The program gives what NumPy gives, with every pair of `choose` taken."""
    function, operands, oracle = PROGRAMS[name]
    choices.TAKEN.clear()
    plan_cache.forget()
    with engine.quick(), config.using(choose=choose):
        made = sj.jit(function)(*operands)
    made = made.todense() if isinstance(made, sj.Array) else made
    np.testing.assert_allclose(made, oracle(), rtol=1e-12, atol=1e-12)
    for pair in choose.replace(" ", "").split(","):
        assert choices.TAKEN[tuple(pair.split("="))], f"{pair} was not taken"


@pytest.mark.rotating(3)
@pytest.mark.parametrize(("name", "shape"), SHAPES)
@pytest.mark.parametrize("masks", [False, True], ids=["plain", "masks"])
def test_shapes(name, shape, masks, processor):
    processor(masks)
    check(name, f"loop_shape={shape}")


@pytest.mark.parametrize(("name", "shape"), MASKED)
@pytest.mark.parametrize("gathers", [False, True], ids=["masks", "gathers"])
def test_shapes_with_masks(name, shape, gathers, processor):
    processor(True, gathers)
    check(name, f"loop_shape={shape}")


@pytest.mark.parametrize(("name", "choose"), FINER)
def test_tails_prefetches_and_ranges(name, choose, processor):
    processor(True)
    check(name, choose)


def test_every_shape_is_forced():
    """The choices that `tests.fuzz.test_forced` leaves to this file."""
    pairs = {tuple(pair.split("=")) for _, choose in FINER for pair in choose.replace(" ", "").split(",")}
    pairs |= {("loop_shape", shape) for _, shape in (*SHAPES, *MASKED)}
    assert pairs == {(choice, way) for choice in ELSEWHERE for way in alternatives.CHOICES[choice]}


@pytest.mark.rotating(3)
@pytest.mark.parametrize("shape", alternatives.CHOICES["loop_shape"])
@pytest.mark.parametrize("fusion", alternatives.CHOICES["fusion"])
def test_every_shape_fetches_ahead_what_it_reads(shape, fusion, processor):
    """Some of what softmax reads is kept for a row, and lies in no input."""
    processor(True, True)
    A = sj.array(np.arange(1.0, 61.0).reshape(6, 10) * (np.arange(60).reshape(6, 10) % 3 > 0) / 60, format="csr")
    with config.using(choose=f"prefetch=ahead,loop_shape={shape},fusion={fusion}"):
        made = sj.jit(sj.nn.softmax)(A)
    np.testing.assert_allclose(made.todense(), sj.nn.softmax(A).todense(), rtol=1e-14)
