"""Powers by small constants: multiplications, a reciprocal, a square root; others by the power function."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp

pytestmark = pytest.mark.rotating(24)

SPECIAL = [0.0, -0.0, 1.0, -1.0, 1.5, -2.25, 1e-200, 3e200, np.inf, -np.inf, np.nan, 7.0]


def ulps(got, want):
    with np.errstate(all="ignore"):
        near = np.abs(got - want) / np.spacing(np.abs(want))
    return np.where((got == want) | (np.isnan(got) & np.isnan(want)), 0, near)


@pytest.mark.parametrize("form", ["dense", "csr", "coo"])
@pytest.mark.parametrize("exponent", [2, 3, 4, -1, 0.5, 2.0, 3.0, 0, 1, 5, 2.5, -2, -0.5])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_floats(form, exponent, dtype):
    with np.errstate(all="ignore"):
        x = np.array([SPECIAL, list(np.linspace(-3, 3, len(SPECIAL)))]).astype(dtype)
        want = np.power(x, exponent)
        if exponent == 0.5:  # pow(-inf, 0.5) is inf, but NumPy takes the root where it knows the exponent
            x[x == -np.inf] = 2
            want = np.power(x, exponent)
        if form != "dense":  # where -0.0 is not stored
            x = x + 0.0
            want = np.power(x, exponent)
    a = sj.array(x, format=form)
    for got in (a**exponent, sj.jit(lambda a: a**exponent)(a), sj.jit(lambda a, t: a**t)(a, exponent)):
        assert got.dtype == want.dtype
        assert ulps(got.todense(), want).max() <= 2
    assert snp.power(a, exponent).format == (a**exponent).format


@pytest.mark.parametrize("exponent", [2, 3, 4, 5])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64])
def test_integers_wrap(exponent, dtype):
    x = np.arange(-128, 127).astype(dtype)
    np.testing.assert_array_equal((sj.array(x) ** exponent).todense(), x**exponent)


@pytest.mark.parametrize("exponent", [2, 3, 4, 0.5, -1])
def test_complex(exponent):
    x = np.array([1 + 2j, -3.5j, 2, 0.25 - 1j])
    np.testing.assert_allclose((sj.array(x) ** exponent).todense(), x**exponent, rtol=1e-14)


@pytest.mark.parametrize("exponent", [2, 3, 4, -1, 0.5])
def test_no_power_function_is_called(exponent):
    text = sj.jit(lambda x: x**exponent).lower(np.ones(50)).as_text("llvm")
    assert "@pow" not in text and "<8 x double>" in text
    assert "@pow" in sj.jit(lambda x: x**2.5).lower(np.ones(50)).as_text("llvm")


@pytest.mark.parametrize(
    ("form", "dtype", "exponents"),
    [("dense", "i8", "i1"), ("dense", "u8", "i8"), ("csr", "u1", "i8"), ("csr", "u8", "i1"), ("bitmap", "?", "i1")],
)
def test_negative_exponents_of_integers(form, dtype, exponents):
    """As NumPy: an error, but for uint64, which is promoted; wherever the exponent comes from."""
    x = np.array([[1, 0, 2, 0], [0, 0, 0, 1]]).astype(dtype)
    n = np.array([[0, 0, 3, 0], [0, -1, 0, 1]], exponents)
    a, m = sj.array(x, format=form), sj.array(n, format=form)
    programs = [
        lambda a, m, s: a**m,
        lambda a, m, s: a ** (m + 1 - 1),
        lambda a, m, s: snp.power(a, n),
        lambda a, m, s: a ** (s[1, 1]),
        lambda a, m, s: a ** n[1],
        lambda a, m, s: snp.sum(a**m),
    ]
    for k, program in enumerate(programs):
        for f in (program, sj.jit(program)):
            if dtype == "u8":
                with np.errstate(all="ignore"):
                    want = program(x, n, n) if k else np.power(x, n)
                got = f(a, m, n)
                assert got.dtype == want.dtype
                np.testing.assert_array_equal(np.asarray(got.asformat("dense")), np.asarray(want))
            else:
                with pytest.raises(ValueError, match="negative integer powers"):
                    f(a, m, n)


def test_negative_exponents_are_found_by_every_thread():
    x, n = np.full(1 << 19, 3), np.zeros(1 << 19, np.int64)
    f = sj.jit(lambda x, n: x**n + 1)
    with sj.config.using(num_threads=2):
        assert np.all(f(x, n).todense() == 2)
        for place in (0, 123456, -1):
            n[:] = 0
            n[place] = -1
            with pytest.raises(ValueError, match="negative integer powers"):
                f(x, n)
        n[:] = 2
        assert np.all(f(x, n).todense() == 10)


def test_negative_exponents_of_numbers_that_a_function_computes():
    f = sj.jit(lambda x, s: x ** (s - 5))
    assert f(np.array([2, 3]), 7).todense().tolist() == [4, 9]
    with pytest.raises(ValueError, match="negative integer powers"):
        f(np.array([2, 3]), 4)
    loop = sj.jit(lambda x: sj.lax.fori_loop(0, 3, lambda k, y: y + x ** (1 - k), x))
    with pytest.raises(ValueError, match="negative integer powers"):
        loop(np.array([2, 3]))
    assert sj.vmap(lambda n: np.array([2, 3]) ** n)(np.array([0, 2])).todense().tolist() == [[1, 1], [4, 9]]
    with pytest.raises(ValueError, match="negative integer powers"):
        sj.jit(sj.vmap(lambda n: np.array([2, 3]) ** n))(np.array([0, -2]))
    for number in (-1, np.int64(-1)):
        with pytest.raises(ValueError, match="negative integer powers"):
            sj.array([1]) ** number
    with pytest.raises(OverflowError):
        sj.array(np.array([1], np.uint8)) ** -1


@pytest.mark.parametrize("exponent", [-1, -3, np.int64(-2), np.array(-2), 2])
@pytest.mark.parametrize("form", ["dense", "csr", "coo"])
@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.bool_])
def test_of_no_elements(dtype, form, exponent):
    x = np.zeros((0, 3), dtype)
    a, want = sj.array(x, format=form), x**exponent
    for got in (a**exponent, sj.jit(lambda a: a**exponent)(a), sj.jit(lambda a, t: a**t)(a, exponent)):
        assert got.shape == want.shape and got.dtype == want.dtype
    x = np.ones((2, 3), dtype)
    a = sj.array(x, format=form)
    for run in (lambda: a**exponent, lambda: sj.jit(lambda a, t: a**t)(a, exponent)):
        if exponent < 0:
            with pytest.raises(ValueError, match="negative integer powers"):
                run()
