"""Elementary functions: distances from the truth, special values, the same bits in every lane, where their numbers come from."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from benchmarks import minimax
from sparsejax.jit.codegen.vector_math import coefficients
from tests.codegen.vector_math.kernels import NAMES, apply, reference, ulps

pytestmark = pytest.mark.rotating(16)

DTYPES = (np.float64, np.float32)
BOUNDED = {"tanh": (-1, 1), "erf": (-1, 1), "sin": (-1, 1), "cos": (-1, 1), "logistic": (0, 1)}


def sweep(dtype, count=8000):
    """Numbers of all magnitudes, and many where some function is hard."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**64, count, dtype=np.uint64)
    normal = rng.standard_normal(count)
    numbers = [
        bits.view(np.float64) if dtype == np.float64 else bits.astype(np.uint32).view(np.float32),
        normal * 10.0 ** rng.uniform(-20, 9, count),
        1 + normal * 10.0 ** rng.uniform(-8, 0, count),  # logarithms near zero
        np.pi / 2 * rng.integers(0, 10**6, count) * (1 + normal * 1e-9),  # sines near zero
        *(np.linspace(-limit, limit, count) for limit in (1, 8, 105, 1100)),
        np.linspace(-760, -680, count),  # exponentials that are subnormal
        normal * np.finfo(dtype).tiny * 10.0 ** rng.uniform(-8, 1, count),
    ]
    with np.errstate(all="ignore"):
        return np.concatenate([n.astype(dtype) for n in numbers])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_two_units_in_the_last_place(name, dtype):
    x = sweep(dtype)
    got = apply(name, x, 8)
    distance = ulps(got, reference(name, x))
    worst = int(np.argmax(distance))
    assert distance[worst] < 2, (x[worst], got[worst])
    if name in BOUNDED:
        lo, hi = BOUNDED[name]
        known = got[~np.isnan(got)]
        assert known.min() >= lo
        assert known.max() <= hi


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_special_values(name, dtype):
    """Zeros with their signs, infinities and what has no value are exactly where they belong."""
    info = np.finfo(dtype)
    sizes = [0, np.inf, np.nan, 1, info.max, info.tiny, info.smallest_subnormal, 0.5, 2, 1e4, 2.0**60, 150, 1030, 800]
    x = np.array(sizes + [-s for s in sizes], dtype)
    got, true = apply(name, x, 4), reference(name, x)
    with np.errstate(all="ignore"):
        true = true.astype(dtype)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(true))
    np.testing.assert_array_equal(np.isinf(got) * np.sign(got), np.isinf(true) * np.sign(true))
    zero = true == 0
    np.testing.assert_array_equal(got == 0, zero)
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(true[zero]))


@pytest.mark.parametrize(("name", "x", "y"), [("exp", 0, 1), ("exp2", 10, 1024), ("log", 1, 0), ("log2", 2.0**-1050, -1050),
    ("log10", 1e15, 15), ("cos", 0, 1), ("logistic", 0, 0.5), ("tanh", 40, 1), ("expm1", -50, -1), ("erf", 7, 1)])  # fmt: skip
def test_exact_values(name, x, y):
    assert apply(name, np.array([x], np.float64), 1)[0] == y


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_every_lane_gives_the_same_bits(name, dtype):
    x = sweep(dtype, 500)
    one = apply(name, x, 1)
    for lanes in (2, 4, 8, 16):
        got = apply(name, x, lanes)
        same = (got.view(f"u{x.itemsize}") == one.view(f"u{x.itemsize}")) | (np.isnan(got) & np.isnan(one))
        assert same.all(), (lanes, x[~same])


@pytest.mark.parametrize("name", ["sinh", "arctan", "log1p"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_ends_of_two_vectors_at_once(name, dtype):
    """Arrays of every length up to three pairs of vectors, and what stands behind them."""
    x = sweep(dtype, 500)[-100:]
    function, one = sj.jit(getattr(snp, name)), apply(name, x, 1)
    for n in range(1, len(x)):
        np.testing.assert_array_equal(np.asarray(function(sj.array(x[:n]))), one[:n])


@pytest.mark.parametrize(
    "x",
    [1.0, np.nextafter(1, 0), np.nextafter(1, 2), 1.3862943611198906, 1.4436354751788103, 2.0794415416798357, 708.9],
)
def test_sinh_where_its_formulas_meet(x):
    near = x * (1 + np.arange(-200, 201) * np.finfo(float).eps)
    assert ulps(apply("sinh", near, 8), reference("sinh", near)).max() < 2


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("entry", minimax.TABLES, ids=lambda t: t.name)
def test_coefficients_are_those_of_the_exchange_algorithm(entry, single):
    made, error = minimax.table(entry, single)
    assert tuple(made) == getattr(coefficients, entry.name)[single]
    assert error < (4e-8 if single else 4e-16)


def test_constants_are_sums():
    for name, (value, count) in minimax.SUMS.items():
        for single in (False, True):
            assert tuple(minimax.parts(value, count, single)) == getattr(coefficients, name)[single]


@pytest.mark.parametrize("name", NAMES)
def test_kernels_use_lanes(name):
    """Dense arrays and the stored values of sparse ones; the printed loops name the function and nothing of its inside."""
    x = sj.array(np.linspace(0.1, 0.9, 77).reshape(7, 11))
    for array, lanes in ((x, 8), (x.reshape(77), 16)):  # two vectors at once in a loop over everything
        lowered = sj.jit(getattr(snp, name)).trace(array).lower()
        assert f"@{name}.double.{lanes}(<{lanes} x double>" in lowered.as_text("llvm")
    assert f"= {name}(" in lowered.as_text("loops")
    np.testing.assert_allclose(getattr(snp, name)(x).todense(), reference(name, x.todense()).astype(float), rtol=1e-14)


def test_erf_of_complex_numbers():
    with pytest.raises(TypeError, match="complex"):
        snp.erf(sj.array(np.array([1j])))
