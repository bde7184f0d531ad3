"""Calls of jitted functions by keyword: warm ones go the same way as calls by position, and mean the same."""

import functools

import numpy as np
import pytest

import sparsejax as sj


def test_order_and_names_of_keywords_are_told_apart():
    traces = []

    @sj.jit
    def f(x, y, z=10.0):
        traces.append(None)
        return x + 2.0 * y + z

    rng, ways = np.random.default_rng(0), 6
    for turn in range(120):
        x, y, z = (rng.integers(0, 9, 3).astype(float) for _ in range(3))
        way = int(rng.integers(ways)) if turn >= 2 * ways else turn // 2
        made, expected = [
            lambda x=x, y=y, z=z: (f(x, y, z), x + 2 * y + z),
            lambda x=x, y=y, z=z: (f(x=x, y=y, z=z), x + 2 * y + z),
            lambda x=x, y=y, z=z: (f(z=z, y=y, x=x), x + 2 * y + z),
            lambda x=x, y=y: (f(y=y, x=x), x + 2 * y + 10),
            lambda x=x, y=y, z=z: (f(x, z=sj.array(z), y=y), x + 2 * y + z),
            lambda x=x, y=y: (f(x, y=y), x + 2 * y + 10),
        ][way]()
        np.testing.assert_array_equal(made, expected)
    assert len(traces) == 5  # the order of keywords is none of the structure


def test_warm_calls_by_keyword_run_the_plan_alone(monkeypatch):
    f = sj.jit(lambda x, y: x - y)
    x, y = sj.array(np.arange(3.0)), sj.array(np.ones(3))
    for _ in range(3):
        f(x, y=y)
    monkeypatch.setattr(f, "_flatten", None)
    np.testing.assert_array_equal(f(x, y=y), [-1, 0, 1])
    np.testing.assert_array_equal(f(x, y=np.zeros(3)), [0, 1, 2])


def test_missing_and_unknown_keywords_are_errors_beside_warm_calls():
    f = sj.jit(lambda x, y: x - y)
    x, y = np.arange(3.0), np.ones(3)
    for _ in range(3):
        np.testing.assert_array_equal(f(x=x, y=y), x - y)
    for wrong in ({"x": x}, {"x": x, "w": y}, {"x": x, "y": y, "w": y}, {}):
        with pytest.raises(TypeError, match="argument"):
            f(**wrong)
    with pytest.raises(TypeError, match="multiple values"):
        f(x, y, x=x)
    np.testing.assert_array_equal(f(y=x, x=y), y - x)


def test_containers_in_place_of_arrays_are_told_apart():
    f = sj.jit(lambda x, y: (x[0] if isinstance(x, tuple) else 2 * x) + y)
    x, y = np.arange(3.0), np.ones(3)
    for _ in range(3):
        np.testing.assert_array_equal(f(x=x, y=y), 2 * x + y)
        np.testing.assert_array_equal(f(x=(x,), y=y), x + y)
    for _ in range(3):
        np.testing.assert_array_equal(f(x=(x,), y=y), x + y)
    np.testing.assert_array_equal(f(x=x, y=y), 2 * x + y)


def test_types_of_keywords_are_told_apart():
    f = sj.jit(lambda x, y: x * y)
    A = sj.array(np.eye(3), format="csr")
    for _ in range(3):
        np.testing.assert_array_equal(f(x=A, y=2.0).todense(), 2 * np.eye(3))
    assert f(y=2, x=sj.array(np.arange(3))).dtype == np.int64
    assert f(y=2.5, x=np.arange(4)).shape == (4,)
    np.testing.assert_array_equal(f(y=3.0, x=A).todense(), 3 * np.eye(3))


def test_static_and_donated_arguments_by_name():
    @functools.partial(sj.jit, static_argnames="power")
    def f(x, power=2):
        return x**power

    x = np.arange(3.0)
    for power in (2, 3, 2, 3, 1):
        np.testing.assert_array_equal(f(x=x, power=power), x**power)
        np.testing.assert_array_equal(f(x=x), x**2)
    with pytest.raises(ValueError, match="not hashable"):
        f(x=x, power=[1])
    g = sj.jit(lambda x, y: x + y, donate_argnums=0)
    for _ in range(3):
        np.testing.assert_array_equal(g(sj.array(x), y=x), 2 * x)
        np.testing.assert_array_equal(g(y=x, x=sj.array(x)), 2 * x)
