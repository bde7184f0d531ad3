"""A call at once with operands of known types comes to one program, or one operation: what is made of several is compiled as one when it comes back."""

import warnings

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
import tests.sweeps.more_operations  # noqa: F401
from sparsejax.core import again, primitive
from tests.autodiff.checks import array
from tests.sweeps.operations import OPERATIONS

pytestmark = pytest.mark.rotating(8)

SEVERAL = """
    array.at:add; array.at:max; array.at:min; lax.argmax; lax.argmin; lax.associative_scan; lax.batch_matmul; lax.cumlogsumexp;
    lax.igamma; lax.igammac; lax.select_n; lax.top_k; lax.top_k:0; lax.top_k:indices; linalg.eigsh;
    linalg.spilu; nn.adam; nn.adamw; nn.batch_norm; nn.dot_product_attention; nn.dropout; nn.embed;
    nn.softmax_cross_entropy_with_integer_labels; np.append; np.argpartition; np.argwhere; np.average; np.bincount; np.column_stack;
    np.concatenate; np.convolve; np.corrcoef; np.correlate; np.cov; np.cross; np.cumsum; np.diag:matrix; np.digitize; np.dstack;
    np.einsum:complement; np.einsum:diagonal of two; np.einsum:mask; np.einsum:masked min_plus; np.fft.fft; np.flatnonzero; np.gradient;
    np.insert; np.interp; np.isin; np.lexsort; np.linalg.cholesky; np.linalg.det; np.linalg.eigh; np.linalg.eigvals; np.linalg.inv;
    np.linalg.qr; np.linalg.slogdet; np.linalg.svd; np.matmul:stacked; np.median; np.median:0; np.median:1; np.meshgrid; np.moveaxis; np.nancumsum;
    np.nanpercentile; np.nanquantile; np.nonzero; np.percentile; np.quantile; np.searchsorted; np.select; np.sort:flat; np.stack; np.take:flat;
    np.take_along_axis; np.trapezoid; np.vander; random.bernoulli; random.normal; random.permutation; random.randint; random.uniform:like
"""
SEVERAL = {" ".join(name.split()) for name in SEVERAL.split(";")}
"""What comes to several operations: most look at values, call libraries, or make random numbers; some could be one."""


def operands(op, form):
    rng = np.random.default_rng(3)
    if op.kind == "f":
        return [array(rng, op.shape, form) for _ in range(op.arity)]
    one = 3 if op.kind == "i" else True
    return [sj.array((rng.random(op.shape) < 0.5) * one, format=form) for _ in range(op.arity)]


@pytest.mark.parametrize("form", ["csr", "coo"])
@pytest.mark.parametrize("name", [name for name in OPERATIONS if name not in SEVERAL])
def test_known_types_come_to_one_program(name, form):
    op = OPERATIONS[name]
    xs = operands(op, form)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(again.BACK + 3):
            op.function(*xs)
        with primitive.noting() as notes:
            op.function(*xs)
    assert len(notes) <= 1, [note.primitive.name for note in notes]


def test_what_comes_to_several_is_an_operation():
    assert set(OPERATIONS) >= SEVERAL


@pytest.mark.parametrize("limits", [(-0.5, 0.5), (0, 1), (None, 0.25)])
def test_numbers_beside_arrays_are_remembered_by_value(limits):
    """The same numbers come to one program; others, and other dtypes of them, to results of their own."""
    A = sj.array(np.random.default_rng(0).standard_normal((6, 7)) * (np.arange(7) % 3 == 0), format="csr")
    for _ in range(again.BACK + 3):
        for shift in (0, 1):
            given = [None if limit is None else limit + shift for limit in limits]
            made = snp.clip(A, *given)
            np.testing.assert_array_equal(made.todense(), np.clip(A.todense(), *given))
            np.testing.assert_array_equal(snp.isclose(A, given[1]).todense(), np.isclose(A.todense(), given[1]))
            np.testing.assert_array_equal(snp.heaviside(A, given[1]).todense(), np.heaviside(A.todense(), given[1]))
    with primitive.noting() as notes:
        snp.clip(A, *given)
    assert len(notes) <= 1


@pytest.mark.parametrize("form", ["csr", "coo"])
def test_signs_of_zeros_are_those_of_the_first_call(form):
    A = sj.array(np.array([[1.0, 0, -2], [0, 3, 0]]), format=form)
    for _ in range(4):
        made = snp.heaviside(A, -0.0).todense()
        np.testing.assert_array_equal(np.signbit(made), np.signbit(np.heaviside(A.todense(), -0.0)))


def test_of_numbers_that_change_few_are_compiled(monkeypatch):
    """Numbers that come a few times each cost no program; of those that come often, there are so many at most."""
    A = sj.array(np.random.default_rng(0).standard_normal((6, 7)) * (np.arange(7) % 3 == 0), format="csr")
    made, compiler = [], again._compiler[0]
    monkeypatch.setattr(again, "_compiler", [lambda f, name: (made.append(name), compiler(f, name))[1]])
    sj.clear_caches()
    for k in range(50):
        for _ in range(again.BACK):
            np.testing.assert_array_equal(snp.clip(A, -k / 50, 0.1).todense(), np.clip(A.todense(), -k / 50, 0.1))
    assert not made
    for k in range(again.NUMBERED + 8):
        for _ in range(again.BACK + 1):
            snp.clip(A, -k / 90, 0.1)
    assert len(made) == again.NUMBERED


@pytest.mark.parametrize(
    "given", [{"nan": -np.inf, "neginf": -1.0}, {"nan": np.inf, "posinf": 3.0}, {"posinf": np.nan}]
)
def test_what_replaces_is_not_replaced(given):
    x = np.array([np.nan, np.inf, -np.inf, 1.0, 0.0])
    for form in ("dense", "coo"):
        np.testing.assert_array_equal(
            snp.nan_to_num(sj.array(x, format=form), **given).todense(), np.nan_to_num(x, **given)
        )
