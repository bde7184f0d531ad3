"""Fourier transforms: values beside NumPy's, derivatives beside differences, batches beside loops."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from tests.autodiff.checks import check

pytestmark = pytest.mark.rotating(16)

RNG = np.random.default_rng(0)


def check_grads(f, args, order):
    check(np.random.default_rng(1), f, *map(sj.array, args), second=order == 2)


REAL = RNG.normal(size=(3, 6))
COMPLEX = REAL + 1j * RNG.normal(size=(3, 6))
CASES = [
    (name, x, options)
    for name, x in (
        ("fft", COMPLEX),
        ("ifft", COMPLEX),
        ("rfft", REAL),
        ("irfft", COMPLEX),
        ("hfft", COMPLEX),
        ("ihfft", REAL),
        ("fftn", COMPLEX),
        ("ifftn", REAL),
        ("rfftn", REAL),
        ("irfftn", COMPLEX),
        ("fft2", REAL),
        ("ifft2", REAL),
        ("rfft2", REAL),
        ("irfft2", COMPLEX),
    )
    for options in (
        {},
        {"norm": "ortho"},
        {"norm": "forward"},
        *([{"n": 5}, {"n": 9}, {"axis": 0}] if not name.endswith(("n", "2")) else [{"s": (4, 5)}]),
    )
]


@pytest.mark.parametrize(("name", "x", "options"), CASES)
def test_values(name, x, options):
    want = getattr(np.fft, name)(x, **({"axes": (-2, -1)} if "s" in options else {}), **options)

    def ours(x):
        return getattr(snp.fft, name)(x, **options)

    for given in (x, sj.array(x), sj.array(x, format="csr")):
        np.testing.assert_allclose(ours(given).todense(), want, atol=1e-12)
    np.testing.assert_allclose(sj.jit(ours)(x).todense(), want, atol=1e-12)
    if not name.endswith(("n", "2")) and "axis" not in options:
        np.testing.assert_allclose(sj.vmap(ours)(x).todense(), want, atol=1e-12)


@pytest.mark.parametrize("name", ["rfft", "ihfft", "fft", "rfftn"])
@pytest.mark.parametrize("n", [5, 6])
def test_derivatives_by_real_numbers(name, n):
    options = {"s": (3, n)} if name.endswith("n") else {"n": n}
    check_grads(lambda x: snp.sum(abs(getattr(snp.fft, name)(x, **options) + 0.5) ** 3), (REAL,), order=1)


@pytest.mark.parametrize("name", ["irfft", "hfft", "ifft", "irfftn"])
@pytest.mark.parametrize("n", [5, 6])
def test_derivatives_by_complex_numbers(name, n):
    options = {"s": (3, n)} if name.endswith("n") else {"n": n}

    def f(re, im):
        return snp.sum(abs(getattr(snp.fft, name)(re + 1j * im, **options) + 0.5) ** 3)

    check_grads(f, (REAL, RNG.normal(size=REAL.shape)), order=1)


def test_precision_and_helpers():
    assert snp.fft.fft(REAL.astype("f4")).dtype == np.complex64
    for n in (4, 5):
        np.testing.assert_array_equal(snp.fft.fftfreq(n, 0.5).todense(), np.fft.fftfreq(n, 0.5))
        np.testing.assert_array_equal(snp.fft.rfftfreq(n).todense(), np.fft.rfftfreq(n))
    for axes in (None, 1, (0, 1)):
        np.testing.assert_array_equal(snp.fft.fftshift(REAL, axes).todense(), np.fft.fftshift(REAL, axes))
        np.testing.assert_array_equal(snp.fft.ifftshift(REAL, axes).todense(), np.fft.ifftshift(REAL, axes))
    with pytest.raises(ValueError, match="norm"):
        snp.fft.fft(REAL, norm="mine")
    with pytest.raises(TypeError, match="real"):
        snp.fft.rfft(COMPLEX)
