"""Chosen tiles: they fit, they move no more than squares do, they can be applied; and what is refused."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
from benchmarks import matrices
from sparsejax.dataflow import methods, progress
from sparsejax.dataflow.pattern import words_of_dense
from tests.dataflow.test_simulator import EXPRESSIONS

A = sj.array(matrices.uniform(1200, 900, 9000))
SKEWED = sj.array(matrices.rmat(10, 8000))


def square(A):
    return A @ A.T


def dense_words(tiling, order="ikj", **options):
    return sj.traffic(square, tiling.tiles, order=order, exact=True, **options)


@pytest.mark.parametrize("matrix", [A, SKEWED], ids=["uniform", "skewed"])
@pytest.mark.parametrize("order", ["ikj", "ijk"])
def test_methods_are_ordered(matrix, order):
    words = {}
    for method in methods.METHODS:
        chosen = sj.tile_sizes(square, 2115, method, order)(matrix)
        told = sj.traffic(square, chosen.tiles, 2115, order, exact=True)(matrix)
        words[method] = told.total
        assert chosen.method == method and chosen.predicted.words[:-1] == told.words[:-1]
        assert told.fits == (max(told.largest) <= 2115)
        assert told.fits or method == "tailors"
        assert min(c.total for c in chosen.candidates) > 0
    assert words["counted"] <= words["prescient"] <= words["conservative"]
    full = sj.tile_sizes(square, 2115, order=order, full=True)(matrix)
    assert sj.traffic(square, full.tiles, 2115, order, exact=True)(matrix).total <= 1.02 * words["counted"]


def test_conservative_tiles_fit_when_dense():
    assert words_of_dense([128, 128]) == 33_027
    assert sj.tile_sizes(square, method="conservative")(A).tiles == {"i": 128, "j": 128, "k": 128}
    assert sj.tile_sizes(square, buffer="129 KiB", method="conservative")(A).tiles["i"] == 127  # 33,024 words
    ones = np.ones((300, 300))
    assert sj.tile_sizes(square, method="prescient")(ones).tiles["i"] == 128


def test_tailors_overflow_and_pay_for_it():
    chosen = sj.tile_sizes(square, 500, "tailors")(SKEWED)
    assert not chosen.predicted.fits
    assert chosen.strict.total > chosen.predicted.total
    assert "overflow" in str(chosen)


def test_the_papers_shape_is_shrunk_until_it_fits():
    wide = sp.csr_array((np.ones(4000), (np.zeros(4000, int), np.arange(4000))), shape=(4000, 4000))
    wide = sj.array(sp.csr_array(wide + sp.eye_array(4000)))
    for order in ("ikj", "ijk"):
        assert sj.tile_sizes(square, 200, "paper", order)(wide).predicted.fits


@pytest.mark.parametrize("method", ["counted", "conservative", "prescient"])
def test_two_levels(method):
    chosen = sj.tile_sizes(square, [2115, 200], method)(A)
    outer, inner = chosen.predicted.levels
    assert outer.fits and inner.fits and chosen.predicted.fits
    assert all(
        o % i == 0 or o >= n
        for o, i, n in zip(outer.tiles.values(), inner.tiles.values(), (1200, 1200, 900), strict=True)
    )
    told = sj.traffic(square, [outer.tiles, inner.tiles], [2115, 200], exact=True)(A)
    assert told.levels[1].total > told.levels[0].total
    assert chosen.predicted.levels[1].words[:-1] == told.levels[1].words[:-1]


def test_tensors():
    rng = np.random.default_rng(0)
    T = (rng.random((30, 40, 50)) < 0.02).astype(float)
    B, C = (sj.array(sp.random_array(s, density=0.2, rng=1)) for s in ((20, 40), (20, 50)))
    T = sj.array(T, format="csf")
    for function, operands, order in (
        (lambda X, B: sj.einsum("ijl,kl->ijk", X, B), (T, C), "i,j,l,k"),
        (lambda X, B, C: sj.einsum("ikl,jk,jl->ij", X, B, C), (T, B, C), "i,k,l,j"),
    ):
        told = {m: sj.tile_sizes(function, 400, m)(*operands) for m in methods.METHODS}
        assert all(t.predicted.fits for m, t in told.items() if m != "tailors")
        assert ",".join(told["counted"].predicted.order) == order
        words = {m: sj.traffic(function, t.tiles, 400, exact=True)(*operands).total for m, t in told.items()}
        assert words["counted"] <= min(words["prescient"], words["conservative"])


def test_few_tiles_of_what_is_summed_over_are_equally_long():
    given = sj.array(matrices.uniform(700, 1900, 50_000))
    chosen = sj.tile_sizes(square, 12_000)(given)
    words = []
    for parts in (2, 3):
        tiles = {"i": 245, "j": 245, "k": -(-1900 // parts)}
        while not sj.traffic(square, tiles, 12_000)(given).fits:
            tiles |= {"i": tiles["i"] - 35, "j": tiles["j"] - 35}
        words.append(sj.traffic(square, tiles, exact=True)(given).total)
    assert sj.traffic(square, chosen.tiles, exact=True)(given).total <= 1.005 * min(words)


def test_rows_longer_than_the_buffer_are_cut_finely():
    hub = np.zeros((3000, 400), bool)
    hub[: 5 * 500 : 5, :3] = True  # near each other: cells of 3000 / 64 rows hold ten
    given = sj.array(sp.csr_array(hub + matrices.uniform(3000, 400, 4000).astype(bool)))
    chosen = sj.tile_sizes(square, 60)(given)
    papers = sj.tile_sizes(square, 60, "paper")(given)
    words = [sj.traffic(square, t.tiles, 60, exact=True)(given) for t in (chosen, papers)]
    assert words[0].fits and words[0].total <= words[1].total


def test_short_tiles_begin_where_blocks_do():
    blocks = sj.array(sp.csr_array(sp.kron(matrices.uniform(200, 200, 2000), np.ones((6, 6)))))
    chosen = sj.tile_sizes(square, 7000)(blocks)
    assert chosen.tiles["i"] == chosen.tiles["j"] == 1200 and chosen.tiles["k"] <= 64
    assert chosen.tiles["k"] % 6 == 0


def test_tiles_are_applied():
    dense = np.asarray(A.todense())
    for method in ("counted", "conservative"):
        chosen = sj.tile_sizes(square, 600, method)(A)
        tiled = chosen.apply(A)
        assert tiled.nnz == A.nnz
        assert np.array_equal(np.asarray(tiled.todense()), dense)
        other = chosen.apply(A.T, "B")
        assert other.format.blocks == (chosen.tiles["k"], chosen.tiles["j"])
        pieces = [dense[at] for at in chosen.slices(A.shape)]
        assert sum(p.size for p in pieces) == 1200 * 900
        assert sum((p != 0).sum() for p in pieces) == A.nnz
    assert chosen.apply(A, np.int64(0)).format == chosen.apply(A).format
    for wrong, says in (((9999, 900), "differ in i"), ((1200,), "1 dimensions")):
        with pytest.raises(ValueError, match=says):
            chosen.slices(wrong)
    with pytest.raises(ValueError, match="none of A, B"):
        chosen.apply(A, 2)
    with pytest.raises(ValueError, match="transpose it"):
        chosen.apply(A, "B")
    with pytest.raises(ValueError, match="1 dimensions"):
        chosen.apply(np.ones(3))


def test_loops_have_the_names_that_explain_prints():
    B = sj.array(matrices.uniform(900, 700, 5000))
    for function, args in (
        (lambda A, B: A @ B, (A, B)),
        (lambda A: sj.einsum("zq,yq->yz", A, A), (A,)),
        (lambda A, B: sj.einsum("ab,bc->ca", A, B), (A, B)),
    ):
        told = sj.tile_sizes(function, method="conservative")(*args)
        (kernel,) = sj.explain(function)(*args).kernels
        assert set(told.tiles) == set(kernel.order)
        for name, operand in zip(told.predicted.names, kernel.inputs, strict=False):
            inside = told.predicted.expression.split(f" {name}[")[1].split("]")[0]
            assert f"{name}[{inside}]" in kernel.expression, operand


def test_functions_are_read_through_what_keeps_patterns():
    expected = sj.traffic(lambda A, B: A @ B, {"i": 50}, exact=True)(A, A.T).words
    tiles = {"i": 50}
    assert sj.traffic(sj.jit(square), tiles, exact=True)(A).words == expected
    assert sj.traffic(lambda A: sj.array(A, format="csc") @ A.T, tiles, exact=True)(A).words == expected
    assert sj.traffic(lambda A: (A @ A.T).astype("float32"), tiles, exact=True)(A).words == expected
    assert (
        sj.traffic(lambda A, B: sj.einsum("ik,kj->ij", A, B, semiring="min_plus"), tiles, exact=True)(A, A.T).words
        == expected
    )
    assert sj.traffic(lambda B: A @ B, tiles, exact=True)(A.T).words[1] == expected[1]


EYE = np.eye(4)


@pytest.mark.parametrize(
    ("function", "args", "says"),
    [
        (lambda A: A + A, (EYE,), "also runs 'add'"),
        (lambda A: 2 * (A @ A), (EYE,), "also runs 'multiply'"),
        (lambda A: A, (EYE,), "contracts nothing"),
        (lambda A: (A @ A, A), (EYE,), "2 results"),
        (lambda A: A @ A @ A, (EYE,), "MTTKRP"),
        (lambda A: sj.einsum("ij,ij,ij,ij->ij", A, A, A, A, optimize=False), (EYE,), "4 operands"),
        (lambda A: sj.einsum("ii,ij->ij", A, A), (EYE,), "diagonal"),
        (lambda A: sj.einsum("ij,jk->i", A, A, optimize=False), (EYE,), "one operand alone"),
        (lambda A: sj.einsum("ij,jk->ik", A, A, mask=A), (EYE,), "masked"),
        (lambda A, B: A @ B, (EYE, sj.array(EYE, format="csr", fill_value=1)), "where nothing is stored"),
    ],
)
def test_other_functions_are_refused(function, args, says):
    with pytest.raises(sj.ScheduleError, match=says):
        sj.traffic(function, {"i": 2})(*args)
    with pytest.raises(sj.ScheduleError, match=says):
        sj.tile_sizes(function)(*args)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"tiles": {"q": 2}}, ValueError, "no loop variable"),
        ({"tiles": {"i": 0}}, ValueError, "at least one"),
        ({"tiles": {"i": 2.0}}, TypeError, "integer"),
        ({"tiles": 3}, TypeError, "maps loop variables"),
        ({"tiles": "ikj"}, TypeError, "maps loop variables"),
        ({"tiles": (3, 3, 3)}, TypeError, r"tiles\[0\] maps loop variables"),
        ({"tiles": [{"i": 2}, {"i": 1}]}, ValueError, "1 buffers"),
        ({"tiles": [{"i": 3}, {"i": 2}], "buffer": [100, 50]}, ValueError, "does not divide"),
        ({"tiles": {"i": 2}, "order": "ij"}, sj.ScheduleError, "order names"),
        ({"tiles": {"i": 2}, "order": "ijj"}, sj.ScheduleError, "order names"),
        ({"tiles": {"i": 2}, "order": 3}, TypeError, "from the outside in"),
        ({"tiles": {"i": 2}, "order": ("i", 1, "k")}, TypeError, "from the outside in"),
        ({"tiles": {"i": 2}, "buffer": 6}, sj.ScheduleError, "holds no tile of one entry"),
        ({"tiles": {"i": 2}, "buffer": 0}, sj.ScheduleError, "holds nothing"),
        ({"tiles": {"i": 2}, "buffer": -1}, sj.ScheduleError, "holds nothing"),
        ({"tiles": {"i": 2}, "buffer": "12 parsecs"}, ValueError, "128 KiB"),
        ({"tiles": {"i": 2}, "buffer": 3.5}, TypeError, "an integer, which counts words"),
        ({"tiles": {"i": 2}, "buffer": 1e4}, TypeError, "an integer, which counts words"),
        ({"tiles": {"i": 2}, "buffer": np.array([100.0])}, TypeError, "an integer, which counts words"),
        ({"tiles": {"i": 2}, "buffer": []}, ValueError, "one or two"),
        ({"tiles": [{"i": 2}, {"i": 1}], "buffer": [50, 100]}, ValueError, "larger one first"),
        ({"tiles": {"i": 2}, "word": 0}, ValueError, "positive"),
    ],
)
def test_faults_of_arguments_are_named(options, error, says):
    with pytest.raises(error, match=says):
        sj.traffic(square, **options)(EYE)


def test_unknown_methods_and_functions():
    with pytest.raises(ValueError, match="prescient"):
        sj.tile_sizes(square, method="best")
    with pytest.raises(ValueError, match="prescient"):
        sj.tile_sizes(square, method=["counted"])
    with pytest.raises(TypeError, match="lambda"):
        sj.traffic(3, {"i": 2})(EYE)
    with pytest.raises(TypeError, match="ShapeDtypeStruct"):
        sj.traffic(square, {"i": 2})(sj.ShapeDtypeStruct((3, 3), "float64"))


@pytest.mark.parametrize("shape", [(0, 0), (0, 4), (4, 0), (1, 1), (5, 3)])
@pytest.mark.parametrize("method", methods.METHODS)
def test_empty_and_tiny_operands(shape, method):
    for values in (np.zeros(shape), np.ones(shape)):
        given = sj.array(values, format="csr")
        chosen = sj.tile_sizes(square, 40, method)(given)
        assert str(chosen) and chosen._repr_html_()
        told = sj.traffic(square, chosen.tiles, 40, exact=True)(given)
        assert told.fits or method == "tailors"
        assert (told.total == 0) == (values.sum() == 0)
        chosen.apply(given)


def test_huge_tiles_are_clipped():
    told = sj.traffic(square, {"i": 10**18, "k": 10**18, "j": 10**18}, exact=True)(EYE)
    assert told.tiles == {"i": 4, "j": 4, "k": 4}
    assert told.words == (43, 43, 43) and told.nbytes == 4 * 129  # a dense operand stores its zeros


def test_a_bar_comes_late_and_only_with_tqdm(monkeypatch):
    with progress.Progress("shapes") as bar:
        bar.step()
        assert bar.bar is None
        monkeypatch.setattr(progress, "AFTER", -1.0)
        bar.step()
    monkeypatch.setitem(progress.importlib.import_module("sys").modules, "tqdm", None)
    with progress.Progress("shapes") as silent:
        silent.step()
        assert silent.bar is None and silent.missing


def test_figures():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")
    assert sj.stats(A).plot().get_legend() is not None
    assert sj.tile_sizes(square, 600)(A).plot().get_xlabel().startswith("extent in i")
    pyplot.close("all")


@pytest.mark.parametrize("extent", [2 * 10**9, 2 * 10**12])
def test_dimensions_far_beyond_memory(extent):
    where = np.array([[0, 5, extent - 1, 7], [1, 2, extent - 1, 2]])
    given = sj.array(sp.coo_array((np.ones(4), tuple(where)), shape=(extent, extent)))
    chosen = sj.tile_sizes(square, 40)(given)
    told = sj.traffic(square, chosen.tiles, 40, exact=True)(given)
    assert told.fits and told.total == chosen.predicted.total
    with pytest.raises(ValueError, match="choose longer tiles"):
        sj.traffic(square, {"i": 1, "j": 1, "k": 1}, exact=True)(given)
    assert sj.stats(given, extent // 8).tiles == 2


@pytest.mark.rotating(2)
@pytest.mark.parametrize("order", ["ikj", "kij", "kji", "jki", "jik", "ijk"])
@pytest.mark.parametrize("buffer", [300, 5000])
def test_tiles_under_all_loop_orders(order, buffer):
    chosen = sj.tile_sizes(square, buffer, order=order)(SKEWED)
    full = sj.tile_sizes(square, buffer, order=order, full=True)(SKEWED)
    told, best = (sj.traffic(square, t.tiles, buffer, order, exact=True)(SKEWED) for t in (chosen, full))
    assert told.fits and chosen.predicted.fits
    assert told.total <= 1.06 * best.total
    assert chosen.predicted.words[:-1] == told.words[:-1]
    assert chosen.predicted.words[-1] == pytest.approx(told.words[-1], rel=0.1)


@pytest.mark.rotating(2)
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_method_serves_every_contraction(expression):
    rng = np.random.default_rng(7)
    terms = expression.split("->")[0]
    extents = {v: int(rng.integers(9, 15)) for v in sorted(set(terms) - {","})}
    arrays = [(rng.random([extents[v] for v in t]) < 0.4).astype(float) for t in terms.split(",")]
    operands = [sj.array(a, format="coo") for a in arrays]

    def function(*xs):
        return sj.einsum(expression, *xs, optimize=False)

    for method, buffer in itertools.product(methods.METHODS, (20, 150, [150, 20], 100_000)):
        chosen = sj.tile_sizes(function, buffer, method)(*operands)
        levels = chosen.predicted.levels
        told = sj.traffic(function, [x.tiles for x in levels], [x.buffer for x in levels], exact=True)(*operands)
        assert told.fits or method == "tailors"
        assert len({tuple(c.tiles.items()) for c in chosen.candidates}) == len(chosen.candidates)
        for level, predicted in zip(told.levels, levels, strict=True):
            assert level.words[:-1] == predicted.words[:-1] and level.largest == predicted.largest
            assert predicted.words[-1] == pytest.approx(level.words[-1], rel=0.05)  # of few rows all are looked at
        for k, (operand, array) in enumerate(zip(operands, arrays, strict=True)):
            assert np.array_equal(np.asarray(chosen.apply(operand, k).todense()), array)


@pytest.mark.parametrize(
    ("expression", "label"),
    [
        ("ki,kj->ij", "extent in i over extent in k"),
        ("i,j->ij", "extent in i"),
        ("i,i->", "1 over extent in i"),
        ("ikl,jk,jl->ij", "extent in i over extent in k"),
    ],
)
def test_figures_compare_what_stays_to_what_is_summed_over(expression, label):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")
    operands = [np.ones([5] * len(t)) for t in expression.split("->")[0].split(",")]
    chosen = sj.tile_sizes(lambda *xs: sj.einsum(expression, *xs, optimize=False), 60)(*operands)
    assert chosen.plot().get_xlabel() == label
    pyplot.close("all")
