"""Every differentiable primitive over formats and dtypes: first and second derivatives."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import lax
from tests.autodiff.checks import array, check

pytestmark = pytest.mark.rotating(28)

FORMATS = ("dense", "csr", "coo", "dcsc", "ell", "groupcoo:2", "bitmap")
SMOOTH = (
    *(
        "negative",
        "positive",
        "absolute",
        "sign",
        "square",
        "sqrt",
        "cbrt",
        "reciprocal",
        "exp",
        "exp2",
        "expm1",
        "log",
        "log2",
    ),
    *(
        "log10",
        "log1p",
        "sin",
        "cos",
        "tan",
        "arcsin",
        "arccos",
        "arctan",
        "sinh",
        "cosh",
        "tanh",
        "arcsinh",
        "arctanh",
    ),
    *("floor", "ceil", "trunc", "rint", "logistic", "erf", "real", "imag", "conjugate"),
)


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("form", ["dense", "csr"])
def test_unary(name, form):
    rng = np.random.default_rng(1)
    check(rng, getattr(snp, name), array(rng, (3, 4), form, low=0.2, high=0.8, signed=False), second=form == "csr")


def test_arccosh():
    rng = np.random.default_rng(1)
    check(rng, snp.arccosh, array(rng, (3, 4), "csr", low=1.5, high=2.5, signed=False))


@pytest.mark.parametrize("form", FORMATS)
def test_formats_of_unary_operations(form):
    rng = np.random.default_rng(2)
    check(rng, lambda x: snp.exp(x) * snp.sin(x), array(rng, (4, 5), form))


FORMS = [("dense", "dense"), ("csr", "dense"), ("csr", "csr"), ("dense", "coo"), ("dcsc", "csr")]
OPERATIONS = [(name, f) for name in ("add", "subtract", "multiply", "maximum", "minimum") for f in FORMS]
OPERATIONS += [(name, f) for name in ("divide", "arctan2", "hypot", "remainder") for f in FORMS[:2]]


@pytest.mark.parametrize(("name", "forms"), OPERATIONS, ids=lambda x: x if isinstance(x, str) else "-".join(x))
def test_binary(name, forms):
    rng = np.random.default_rng(3)
    x, y = (array(rng, (4, 5), f) for f in forms)
    check(rng, getattr(snp, name), x, y, second=forms[0] == "csr")


@pytest.mark.parametrize("form", ["dense", "csr"])
def test_broadcast(form):
    rng = np.random.default_rng(4)
    x = array(rng, (4, 5), form)
    row, column, scalar = array(rng, (5,)), array(rng, (4, 1)), array(rng, ())
    check(rng, lambda x, r, c, s: x * r * c * s, x, row, column, scalar)
    check(rng, lambda x, r, c: x + r - c / (r * r + 1), x, row, column)
    check(rng, lambda c, r: snp.broadcast_to(c, (4, 5)) * r, column, row)
    narrow = array(rng, (4, 1), "dense" if form == "dense" else "coo")
    check(rng, lambda n, r: n * r, narrow, row)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 2.5, -1.0])
@pytest.mark.parametrize("form", ["dense", "csr"])
def test_powers(exponent, form):
    rng = np.random.default_rng(5)
    check(rng, lambda x: x**exponent, array(rng, (3, 4), form, signed=False))


def test_power_of_arrays():
    rng = np.random.default_rng(5)
    check(rng, lambda x, y: x**y, array(rng, (3, 4), signed=False), array(rng, (4,)))


@pytest.mark.parametrize("form", FORMATS)
def test_choices(form):
    rng = np.random.default_rng(6)
    x, y = array(rng, (4, 5), form), array(rng, (4, 5))
    check(rng, lambda x, y: snp.where(y > 0, x, y), x, y)
    check(rng, lambda x: snp.where(x > 0, x * x, 0), x)
    check(rng, lambda x: snp.maximum(x, 0) + snp.clip(x, -1, 1), x)


@pytest.mark.rotating(20)
@pytest.mark.parametrize("kind", ["sum", "mean", "prod", "max", "min"])
@pytest.mark.parametrize("form", FORMATS)
def test_reductions(kind, form):
    rng = np.random.default_rng(7)
    for axis in (None, 0, 1):
        x = array(rng, (4, 5), form, density=0.7)
        check(
            rng, lambda x, axis=axis: getattr(snp, kind)(x, axis=axis), x, second=axis == 1 and form in ("csr", "dense")
        )


@pytest.mark.rotating(24)
@pytest.mark.parametrize("kind", ["sum", "prod", "max", "mean"])
@pytest.mark.parametrize("form", ["csf", "coo", "(d,c,d)@(0,2,1)"])
def test_reductions_of_tensors(kind, form):
    rng = np.random.default_rng(8)
    x = array(rng, (2, 3, 4), form)
    check(rng, lambda x: getattr(snp, kind)(x, axis=(0, 2), keepdims=True), x)
    check(rng, lambda x: getattr(snp, kind)(x, axis=1), x)


def test_other_fills():
    rng = np.random.default_rng(9)
    x = array(rng, (4, 5), "csr", fill=2.0)
    for f in (snp.exp, lambda x: x.sum(axis=1), lambda x: x.max(axis=0), lambda x: x.prod(axis=0), lambda x: x * x + 1):
        check(rng, f, x)
    check(rng, lambda x: lax.refill(x, 5.0) * x, x)


@pytest.mark.parametrize("form", ["dense", "csr", "coo", "csf"])
def test_structure(form):
    rng = np.random.default_rng(10)
    x = array(rng, (4, 6), form)
    check(rng, lambda x: x.T @ x, x)
    check(rng, lambda x: snp.reshape(x, (2, 12)) * 2, x)
    check(rng, lambda x: snp.expand_dims(snp.ravel(x) ** 2, 0), x)
    check(rng, lambda x: snp.diagonal(x, 1) ** 2, x)
    check(rng, lambda x: snp.trace(x @ x.T), x)
    for target in ("dense", "csr", "csc", "coo", "ell", "groupcoo:2"):
        check(rng, lambda x, target=target: (x * x).asformat(target) * 3, x)


@pytest.mark.parametrize("dtype", ["f4", "c8", "c16"])
@pytest.mark.parametrize("form", ["dense", "csr"])
def test_dtypes(dtype, form):
    rng = np.random.default_rng(11)
    x, v = array(rng, (4, 5), form, dtype), array(rng, (5,), dtype=dtype)
    for f in (lambda x, v: snp.sin(x) @ v, lambda x, v: x * v / 2, lambda x, v: (x * x).sum(axis=0) * snp.exp(v)):
        g = sj.vjp(f, x, v)[1](f(x, v))
        assert [c.dtype for c in g] == [x.dtype, v.dtype]
    if dtype == "c16":
        check(rng, lambda x, v: snp.sin(x) @ v, x, v)
        check(rng, lambda x, v: snp.exp(x * v) / 2, x, v)


def test_casts():
    rng = np.random.default_rng(12)
    x = array(rng, (3, 4), "csr")
    check(rng, lambda x: (x.astype("c16") * 2j).imag, x)
    g = sj.grad(lambda x: x.astype("f4").sum())(x)
    assert g.dtype == np.float64
    assert sj.grad(lambda x: (x.astype("i8") * x).sum())(x).dtype == np.float64
