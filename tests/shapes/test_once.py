"""What a call of a new shape is made of: extents in place of bounds, shapes by number, and types of NumPy's arrays."""

from dataclasses import dataclass

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.core import again, primitive
from sparsejax.core.array import Array
from sparsejax.core.symbolic import Span, span
from sparsejax.formats import ingest
from sparsejax.jit.graph import resize
from sparsejax.jit.ir import infer_formats
from sparsejax.jit.ir.bounded import Bounded, bound
from sparsejax.jit.runtime import shapes
from sparsejax.lax.elementwise import elementwise

BOUNDS = [Bounded.named(name, value) for name, value in (("n", 300), ("m", 300), ("k", 17))]
EXTENTS = {"n": 260, "m": 271, "k": 9}


def change(extent):
    return EXTENTS[extent.name] if type(extent) is Bounded else extent


@dataclass(frozen=True)
class Record:
    one: object
    other: object = 3


def parameter(rng, depth):
    """A random parameter: numbers, names, bounds, ranges of which ends are bounds, and tuples and records of these."""
    kind = int(rng.integers(0, 7 if depth else 5))
    if kind < 2:
        return BOUNDS[int(rng.integers(0, len(BOUNDS)))]
    if kind == 2:
        return [int(rng.integers(-3, 9)), "rows", None, 0.5, np.dtype("f4"), ()][int(rng.integers(0, 6))]
    if kind == 3:
        return span(int(rng.integers(0, 3)), parameter(rng, 0) if rng.random() < 0.1 else BOUNDS[0], 2)
    if kind == 4:
        return range(int(rng.integers(0, 5)))
    if kind == 5:
        return Record(parameter(rng, depth - 1), parameter(rng, depth - 1))
    return tuple(parameter(rng, depth - 1) for _ in range(int(rng.integers(0, 5))))


def changed(value):
    """A parameter with its bounds changed, by a walk down all of it."""
    if type(value) is tuple:
        return tuple(map(changed, value))
    if type(value) is Record:
        return Record(changed(value.one), changed(value.other))
    return value.resized(change) if type(value) is Span else change(value)


@pytest.mark.parametrize("seed", range(50))
def test_parameters_are_written_out(seed):
    rng = np.random.default_rng(seed)
    shape = BOUNDS[0], 3, BOUNDS[1]
    params = {f"p{k}": parameter(rng, 3) for k in range(4)} | {"shape": shape, "ends": ("p", shape, 2)}
    written = resize.parameters(params, shape)
    for _ in range(2):
        assert written(changed(shape), change) == {name: changed(value) for name, value in params.items()}
    assert resize.extents_of(tuple(params.values())) >= {BOUNDS[0], BOUNDS[1]}


@pytest.mark.parametrize("seed", range(50))
def test_mapping_changes_all_extents_again_and_again(seed):
    rng = np.random.default_rng(seed)
    for _ in range(20):
        value = tuple(parameter(rng, 3) for _ in range(3))
        made = resize.mapping(value)
        for _ in range(2):
            assert repr(value if made is None else made(change)) == repr(changed(value))


@pytest.mark.parametrize("dtype", ["f8", "f4", "c8", "i4", "i8", "u1", "bool", ">f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_numpy_arrays_of_a_new_shape_are_viewed_as_those_of_an_old_one(dtype, order):
    sj.clear_caches()
    for shape in [(3, 5), (4, 2), (7,), (1,), (9,), (), (1, 6), (6, 1), (0, 4), (4, 0), (2, 3, 4), (5, 1, 2), (3, 5)]:
        given = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype, order=order)
        expected = Array(ingest.operand_storage(given))
        for _ in range(2):
            found = primitive.view(given)
            assert found.aval == expected.aval
            assert found.aval.kind == expected.aval.kind
            assert found._storage.format == expected._storage.format
            assert found.shape == found._storage.shape == shape
            assert found._storage.fill_value == expected._storage.fill_value
            assert type(found._storage.fill_value) is type(expected._storage.fill_value)
            np.testing.assert_array_equal(found._storage.vals, expected._storage.vals)
            assert found._storage.buffers == expected._storage.buffers


def test_results_of_new_shapes_have_their_types():
    f = sj.jit(lambda x, y: (x @ y, x.sum(), y * 2, x.T))
    rng = np.random.default_rng(0)
    for n, m in [(30, 40), (31, 42), (37, 45), (50, 33), (29, 61)]:
        x, y = rng.standard_normal((n, m)), rng.standard_normal((m, 4))
        product, total, doubled, turned = f(x, y)
        bound = np.finfo(float).eps * 2 * (m + 1)
        assert (np.abs(np.asarray(product) - x @ y) <= bound * (np.abs(x) @ np.abs(y))).all()
        assert abs(float(total) - x.sum()) <= np.finfo(float).eps * 2 * x.size * np.abs(x).sum()
        np.testing.assert_array_equal(np.asarray(doubled), y * 2)
        np.testing.assert_array_equal(np.asarray(turned), x.T)
        assert [r.shape for r in (product, total, doubled, turned)] == [(n, 4), (), (m, 4), (m, n)]
        assert [r.aval.shape for r in (product, total, doubled, turned)] == [(n, 4), (), (m, 4), (m, n)]


def test_sizes_on_both_sides_of_a_bound_run_one_plan():
    f = sj.jit(lambda A, x: (A @ x)[1:] * A.shape[0])
    rng = np.random.default_rng(0)

    def plans(*sizes):
        for n in sizes:
            values = np.where(rng.random((n, 7)) < 0.3, rng.integers(1, 5, (n, 7)), 0).astype(float)
            x = rng.integers(-4, 5, 7).astype(float)
            np.testing.assert_array_equal(f(sj.array(values, format="csr"), x).todense(), (values @ x)[1:] * n)
        (family,) = f._families.values()
        return len(family._members[0].bounds)

    assert plans(400, 300) == 1
    assert plans(129, 255, 200, 256, 257, 4095) == 1  # n and n - 1 may lie on both sides
    assert plans(127) == 2
    assert plans(64, 20, 130) == 2
    f.clear_cache()
    assert plans(150, 140) == 1
    assert plans(300) == 2
    (family,) = f._families.values()
    member = family._members[0]
    plans(150, 300)
    assert all(plan is member.bounds[max(member.bounds)] for plan in member._plans.values())


def test_buckets_of_other_coordinates_are_apart():
    assert shapes._is_near(4095, 65535, 12)
    assert not shapes._is_near(4095, 65535, 11)
    assert not shapes._is_near(255, 65535, 8)
    assert shapes._is_near(255, 255, 5)
    assert not shapes._is_near(bound(2**31 - 1), bound(2**31), 31)


@pytest.mark.parametrize("name", ["deg2rad", "rad2deg"])
@pytest.mark.parametrize("form", ["csr", "dense"])
def test_a_number_of_the_function_is_brought(name, form, monkeypatch):
    """What multiplies by a number of its own serves operands of any extents; the function does not run again."""
    function, wanted = getattr(snp, name), getattr(np, name)
    values = [np.arange(1.0, n + 1) * np.eye(n) for n in range(3, 12)]
    for value in values[:4]:
        function(sj.array(value, format=form))
    monkeypatch.setattr(again, "_learning", _Refusing())
    for value in values[4:]:
        np.testing.assert_allclose(function(sj.array(value, format=form)).todense(), wanted(value), rtol=1e-15)


class _Refusing(list):
    def append(self, value):
        pytest.fail("the function ran again")


@pytest.mark.parametrize("method", ["set", "add"])
@pytest.mark.parametrize("form", ["csr", "coo", "dcsr"])
def test_updates_of_new_shapes_infer_nothing(form, method, monkeypatch):
    """The format of what is written to is found for one shape."""
    arrays = [sj.array(np.eye(n, n + 3), format=form) for n in range(4, 12)]
    getattr(arrays[0].at[1, 2], method)(3.0)
    monkeypatch.setattr(infer_formats, "infer", lambda *args: pytest.fail("a format was inferred"))
    for x in arrays[1:]:
        made = getattr(x.at[np.array([1, 0]), np.array([2, 2])], method)(3.0)
        wanted = np.eye(*x.shape)
        wanted[[1, 0], [2, 2]] = 3.0
        np.testing.assert_array_equal(made.todense(), wanted)
        assert made.format == x.format


def test_an_extent_that_has_not_changed_yet_pins_no_other():
    """`a / c` and `a / b` by turns: an axis that broadcasts in one is as long as another, which is a number so far, in the other."""
    for n in range(20, 30):
        a, b, c = np.ones((n, n)), np.full((1, n), 2.0), np.full((n, 1), 4.0)
        for d in (c, b):
            np.testing.assert_array_equal(elementwise("divide", sj.array(a), sj.array(d)).todense(), a / d)
    families = [f for k, f in primitive._families.items() if k[0].name == "divide" and f._samples]
    assert families and not any(f._fixed for f in families)
