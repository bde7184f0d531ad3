"""Dense arrays under other shapes: at once they are views, for which nothing is planned, of the types that programs give them."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.core import primitive
from sparsejax.lax import structural

SHAPES = [(), (1,), (4,), (1, 4), (4, 1), (2, 3), (1, 1, 1), (0,), (0, 3), (2, 1, 3)]


def operations(shape):
    """Everything that an array of this shape can be seen as, and repeated to: functions of an array and of the module that has them."""
    ndim, size = len(shape), int(np.prod(shape))
    for axis in range(ndim + 1):
        yield lambda x, f, axis=axis: f.expand_dims(x, axis)
    for axis in (axis for axis, n in enumerate(shape) if n == 1):
        yield lambda x, f, axis=axis: f.squeeze(x, axis)
    for new in ((size,), (1, *shape, 1), shape[::-1]):
        yield lambda x, f, new=new: f.reshape(x, new)
    for key in ((None, ..., None), (None, *[slice(None)] * ndim), (*[slice(None)] * ndim, None)):
        yield lambda x, f, key=key: x[key]
    for new in ((3, *shape), (2, 0, *shape), (2, *(5 if n == 1 else n for n in shape))):
        yield lambda x, f, new=new: f.broadcast_to(x, new)


@pytest.mark.rotating(3)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["f8", "i4", "?", "c16"])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("module", [snp, structural], ids=["numpy", "lax"])
def test_values_and_types_are_those_of_programs(shape, dtype, turned, module):
    values = (np.arange(np.prod(shape)) % 3).reshape(shape).astype(dtype)
    x = sj.array(values.T).T if turned else sj.array(values)
    for run in operations(shape):
        made, traced = run(x, module), sj.jit(lambda x, run=run: run(x, module))(x)
        assert made.aval == traced.aval
        assert (made.storage.shape, made.storage.format) == (made.shape, made.format)
        np.testing.assert_array_equal(made.todense(), run(values, np))
        np.testing.assert_array_equal(traced.todense(), made.todense())
        with pytest.raises(ValueError, match="read-only"):
            made.todense()[...] = 1


@pytest.mark.parametrize("length", [3, 50, 701])
def test_no_program_runs(length, monkeypatch):
    x = sj.array(np.arange(float(length)).reshape(1, length))
    monkeypatch.setattr(primitive, "_executor", [])
    for run in operations(x.shape):
        np.testing.assert_array_equal(run(x, snp).todense(), run(x.todense(), np))


def test_entries_in_the_order_of_rows_share_memory():
    x = sj.array(np.arange(6.0))
    for made in (x[:, None], x.reshape(2, 3), snp.squeeze(x[None]), snp.ravel(x.reshape(3, 2))):
        assert np.shares_memory(made.todense(), x.todense())


def test_a_function_of_views_is_one_program_when_it_comes_back():
    x, y = sj.array(np.arange(3.0)), sj.array(np.arange(4.0))
    for _ in range(4):
        np.testing.assert_array_equal(snp.outer(x, y).todense(), np.outer(np.arange(3.0), np.arange(4.0)))
