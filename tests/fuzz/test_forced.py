"""Small programs reach every alternative of every choice of the compiler, without every pass, with the results of the cheapest plan."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import config, nn
from sparsejax.alternatives import CHOICES, HOST, PASSES
from sparsejax.jit.ir import choices
from tests.fuzz import engine, forced

rng = np.random.default_rng(0)
N = 6
ELSEWHERE = {"loop_shape", "range", "tail", "prefetch"}
"""Choices whose every alternative `tests/rewrite/test_forced_shapes.py` takes, which says so in a test of its own."""
SHARDED = {"sharded_loops", "sharded_tasks"}
"""Those of programs over shards, which `tests/dask/test_together.py` and `tests/dask/test_gangs.py` take."""


def sparse(shape, form, density=0.4, fill=0):
    dense = np.where(rng.random(shape) < density, rng.integers(1, 5, shape) / 4, fill)
    return sj.array(dense, format=form, fill_value=fill)


A, B, C = sparse((N, N), "csr"), sparse((N, N), "csr"), sparse((N, N), "csc")
ALIKE, TALL = A * 2.0, sparse((150, N), "csr")
W, V = snp.asarray(rng.random((N, 4))), snp.asarray(rng.random((4, N)))
LARGE = snp.asarray(rng.random(1000))
FILLED = sparse((N, N), "csr", fill=1)


def softmax(S):
    E = snp.expm1(S)
    return E / snp.sum(E, axis=1, keepdims=True)


SELECTIONS = sj.array(
    (np.ones(400), (rng.integers(0, 150, 400), rng.integers(0, 3, 400), rng.integers(0, 20, 400))),
    shape=(150, 3, 20),
    format="csf",
)
PATHS = np.zeros((2, 4, 4, 4))
"""A path from a number to a vector, and one back."""
PATHS[0, 0, 1:, 1:], PATHS[1, 1:, 1:, 0] = np.eye(3), np.eye(3)
PATHS = sj.array(PATHS, format="coo")
OF_PATHS = [snp.asarray(np.arange(np.prod(s)).reshape(s) % 7 / 4) for s in ((3, 4, 4), (3, 4), (2, 4, 4))]
PROGRAMS = {
    "chain": (lambda A, W, V: (A @ W) @ V, A, W, V),
    "three dense factors": (lambda W, V, X: (W @ V) @ X, W, V, W),
    "sparse product": (lambda A, B: A @ B, A, B),
    "columns of rows": (lambda A, B: A @ B, A, C),
    "shared value": (lambda A, B: (snp.sum(t := A * B, axis=1), snp.sum(t, axis=0)), A, C),
    "computed again": (lambda x: ((t := snp.exp(x)) + 1, t * 2), LARGE),
    "softmax": (softmax, A),
    "attention": (lambda X, M: nn.dot_product_attention(X, X, X, M), W, A),
    "triangles": (lambda A: snp.sum(A * (A @ A)), A),
    "sum of a product": (lambda A, B: snp.sum(A @ B, axis=1), A, B),
    "product that is reduced": (lambda A, B: snp.sum(snp.sqrt(A @ B), axis=0), A, B),
    "product that is read by columns": (lambda A, B: snp.sqrt(A @ B).T @ snp.abs(A @ B), A, B),
    "inner products": (lambda A, B: sj.einsum("ij,ik,jk->ij", A, B, C), A, B),
    "filled": (lambda A, x: A @ x, FILLED, W),
    "rows in registers": (lambda A, X: A @ X, A, W),
    "columns in registers": (lambda A, X: A.T @ X, A, W),
    "patterns": (lambda A, B: A * B + A, A, ALIKE),
    "functions of one array": (lambda A: snp.exp(A) * 2, C),
    "dense sum of rows": (lambda x, y: snp.sum(x * y), LARGE, LARGE),
    "small dense": (lambda x: x + 1, LARGE),
    "ends that meet": (lambda W, V, X: sj.einsum("ik,ik->i", W @ V, X), W, V, A.todense()),
    "layer": (lambda A, H, W: snp.maximum((A @ H) @ W, 0), TALL, W, V),
    "tall": (lambda x, y: x @ y, np.ones((130, 9)), np.ones((9, 8))),
    "read across": (lambda A: sj.einsum("ij,kj->ik", P := A @ A, P), sparse((300, 300), "csr", 1 / 300)),
    "matrices by column": (
        lambda A, H, W: sj.einsum("ik,il,klj->ij", A, H, W),
        TALL,
        rng.random((150, 3)),
        rng.random((N, 3, 4)),
    ),
    "stored rows": (
        lambda K, H, W: sj.insum("Out[x,m] = H[K[x,z],c] * W[z,c,m]", K=K, H=H, W=W),
        (TALL.asformat("coo") * 100).astype(np.int64),
        rng.random((101, 3)),
        rng.random((N, 3, 4)),
    ),
    "pairs of rows and matrices": (
        lambda X, Y, Z, H, W: sj.insum(
            "O[X[p],m] += H[Y[p],c] * W[Z[p],c,m]", X=X, Y=Y, Z=Z, H=H, W=W, O=snp.zeros((150, 9))
        ),
        rng.integers(0, 150, 400),
        rng.integers(0, 20, 400),
        rng.integers(0, 3, 400),
        rng.random((20, 2)),
        rng.random((3, 2, 9)),
    ),
    "gradient of rows": (
        lambda A, W, R: sj.grad(lambda A: snp.sum((A[R] @ W) ** 2))(A),
        A,
        W,
        rng.integers(0, N, 30),
    ),
    "rows by two index arrays": (
        lambda R, K, V, X: sj.insum("O[R[p],m] += V[p] * X[K[p],m]", R=R, K=K, V=V, X=X, O=snp.zeros((20, 9))),
        rng.integers(0, 20, 300),
        rng.integers(0, 30, 300),
        rng.random(300),
        rng.random((30, 9)),
    ),
    "selections": (
        lambda S, H, W: sj.einsum("xzy,yc,zcm->xm", S, H, W),
        SELECTIONS,
        rng.random((20, 2)),
        rng.random((3, 2, 9)),
    ),
    "blocks": (lambda A, X: A @ X, sparse((N, N), "bsr:3x2"), W),
    "wide blocks": (lambda A, X: A @ X, sparse((N, N), "bsr:3x2"), rng.random((N, 50))),
    "converted": (lambda A: A.asformat("csc"), A),
    "a constant": (lambda V: V @ A, V),
    "paths": (lambda X, Y, W: sj.einsum("pijk,biu,bj,puw->bkw", PATHS, X, Y, W), *OF_PATHS),
    "written by columns": (lambda A, x: sj.einsum("ij,j->ij", A, x, out_format="csc"), A, W[:, 0]),
    "steps": (lambda A, x: sj.lax.while_loop(lambda y: snp.sum(y) < 1e6, lambda y: A @ y + 1, x), A, W[:, 0]),
    "rows of whole lines": (lambda A, X: A @ X, A, rng.random((N, 16))),
    "product under a dense mask": (
        lambda A, B, M: sj.einsum("ik,kj->ij", A, B, mask=M, out_format="csr"),
        A,
        B,
        rng.random((N, N)) < 0.5,
    ),
    "row under a dense mask": (
        lambda x, A, m: sj.einsum("i,ij->j", x, A, semiring="or_pair", mask=m, complement=True, out_format="coo"),
        sparse((N,), "coo"),
        A,
        rng.random(N) < 0.5,
    ),
    "columns beside rows": (lambda A, X: X.T @ A, A, W),
    "columns beside columns": (lambda A, X: X.T @ A, C, rng.random((N, 16))),
    "one column": (lambda A, x, V: A @ x[:, None] + V[:1, :1], A, W[:, 0], V),
    "columns by their sizes": (lambda A, x: A * (1 / x), A, 1 + rng.random(N)),
    "what meets": (lambda A, B: sj.einsum("ik,kj->ij", A, B, semiring="max_pair", out_format="csr"), A, B),
}


REACHED = {
    "alone": ("sparse product", "chain"),
    "association": ("three dense factors", "ends that meet"),
    "chunks": ("sparse product", "rows in registers", "dense sum of rows"),
    "columns": ("wide blocks",),
    "conversion": ("converted", "columns of rows"),
    "constants": ("a constant",),
    "copies": ("sparse product", "chain"),
    "depth": ("softmax", "triangles"),
    "donation": ("small dense", "dense sum of rows"),
    "entries": ("what meets",),
    "factors": ("columns by their sizes",),
    "fills": ("filled",),
    "fusion": ("softmax", "shared value", "computed again"),
    "line_starts": ("rows of whole lines",),
    "loop_order": ("columns of rows", "rows in registers"),
    "masked_insert": ("product under a dense mask",),
    "mask_tests": ("row under a dense mask",),
    "meeting": ("inner products", "triangles"),
    "memory": ("small dense",),
    "panels": ("matrices by column",),
    "passes": ("converted",),
    "pattern": ("patterns", "functions of one array"),
    "products": ("three dense factors",),
    "reductions": ("sum of a product",),
    "operations": ("steps",),
    "rounds": ("steps",),
    "results": ("columns beside rows",),
    "row_sums": ("stored rows",),
    "rows": ("tall", "layer"),
    "returns": ("gradient of rows",),
    "scatters": ("rows by two index arrays",),
    "shapes": ("tall", "filled", "softmax", "sparse product"),
    "storage": ("product that is reduced",),
    "steps": ("paths",),
    "stores": ("rows of whole lines",),
    "strips": ("blocks",),
    "sums": ("blocks",),
    "sums_inside": ("selections",),
    "targets": ("pairs of rows and matrices",),
    "tile": ("rows in registers", "columns in registers", "columns beside columns"),
    "workspace": ("sparse product", "written by columns"),
}
"""The programs that take every alternative of a choice."""
BESIDE = {
    "mask_tests=drained": ",workspace=marks",
    "mask_tests=inserted": ",workspace=marks",
    "passes=compiled": ",conversion=passes",
    "passes=numpy": ",conversion=passes",
    "rows=blocks": ",products=kernel",
    "rows=pairs": ",products=kernel",
    "steps=apart": ",constants=static",
    "steps=one": ",constants=static",
}
"""Other choices that lead there."""
SKIPPED = ("softmax", "rows in registers", "sparse product", "patterns", "one column")
ALONE = {
    "drained_masks": ("row under a dense mask", "mask_tests=drained,workspace=marks"),
    "pack": ("wide blocks", "columns=packed"),
    "single_valued": ("what meets", "entries=one,workspace=marks"),
    "stores": ("rows of whole lines", "stores=past"),
}
"""A program with something to do for a pass that these have none for, and what is chosen there."""


def results(name):
    function, *arguments = PROGRAMS[name]
    found = sj.jit(function)(*arguments)
    return [x.todense() for x in (found if isinstance(found, tuple) else (found,))]


@pytest.fixture(scope="module")
def wanted():
    with engine.quick():
        return {name: results(name) for name in PROGRAMS}


def differences(wanted, names=tuple(PROGRAMS)):
    for name in names:
        for x, y in zip(results(name), wanted[name], strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-12, err_msg=f"{name},{forced.settings()}")


@pytest.mark.parametrize("choice", sorted(CHOICES.keys() - ELSEWHERE - SHARDED))
def test_every_alternative_of_every_choice_is_taken(wanted, choice):
    """Each on its own, whatever it costs."""
    for way in CHOICES[choice]:
        wish, work = f"{choice}={way}", 0 if choice in ("chunks", "alone") else 1 << 17
        choices.TAKEN.clear()
        with engine.quick(), config.using(choose=wish + BESIDE.get(wish, ""), parallel_work=work):
            differences(wanted, REACHED[choice])
        assert choices.TAKEN[choice, way], f"no program here takes {choice}={way}"


@pytest.mark.parametrize("name", sorted({*PASSES, *HOST} - config.FIXED))
def test_every_pass_and_every_feature_can_be_missing(wanted, name):
    with engine.quick(), config.using(skip=config.skip() | {name}):
        differences(wanted, SKIPPED)


@pytest.mark.parametrize("name", ALONE)
def test_a_pass_that_is_missing_takes_no_alternative(wanted, name):
    program, wish = ALONE[name]
    taken = []
    for skip in ((), (name,)):
        choices.TAKEN.clear()
        with engine.quick(), config.using(choose=wish, skip=config.skip() | set(skip)):
            differences(wanted, [program])
        taken.append(choices.TAKEN[tuple(wish.split(",")[0].split("="))])
    assert taken[0] and (name == "pack" or not taken[1])  # the panels of `pack` stay, and are read where they lie


def test_draws_are_the_same_in_every_run(wanted):
    made = []
    for _ in range(2):
        sj.clear_caches()  # what is remembered of the first run is not asked again
        choices.TAKEN.clear()
        with engine.quick(), forced.alternatives(5):
            differences(wanted, list(PROGRAMS)[::3])
        made.append({x: n for x, n in choices.TAKEN.items() if x[0] not in ("conversion", "passes")})  # copies are kept
    assert made[0] == made[1]
    assert len(made[0]) > 20


def test_half_of_the_seeds_are_forced():
    seen = [forced.half(lambda seed: None if config.choose() == "auto" else f"wrong {seed}")(seed) for seed in range(8)]
    assert [x is None for x in seen] == [True, True, False, False] * 2
    assert "random:2" in seen[2]


def test_settings_that_raise_are_named():
    def check(seed):
        raise ValueError(seed)

    with pytest.raises(ValueError, match="7") as info:
        forced.every(check)(7)
    assert "random:7" in info.value.__notes__[0]
