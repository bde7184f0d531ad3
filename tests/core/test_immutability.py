"""Nobody changes an array by what it hands out: views of views of its memory stay read-only."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj

FORMATS = ("dense", "csr", "coo", "csf", "bitmap", "hash", "(d,d)@(1,0)")
D = np.array([[0, 1.5, 0], [2, 0, 3]])


def made_from(form):
    """Arrays that own their memory in different ways."""
    yield sj.array(D, format=form, copy=True)
    yield sj.array(D.astype("f4"), format=form, dtype="f8")
    yield sj.array(D.tolist(), format=form)
    yield sj.array(D[:, ::-1][:, ::-1].copy(), format=form)
    yield sj.jit(lambda x: x * 1)(sj.array(D, format=form, copy=True))
    yield sj.array(D, copy=True).asformat(form)
    yield sj.array(D, format=form, copy=True).astype("f4").astype("f8")


def handed_out(array):
    s = array.storage
    yield s.vals
    for level in s.buffers:
        yield from level
    yield array.todense()
    if array.format.is_dense:
        yield np.asarray(array)
    else:
        yield array.to_scipy().data


def written_to(view):
    """Try everything to write through `view`; whether it worked."""
    seen = view
    while isinstance(seen, np.ndarray):
        try:
            seen.flags.writeable = True
        except ValueError:
            seen = seen.base
            continue
        seen.reshape(-1)[:] = 1
        return True
    return False


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_handed_out_cannot_be_written(form):
    for array in made_from(form):
        before = [b.copy() for level in array.storage.buffers for b in level]
        for view in handed_out(array):
            shares = any(np.shares_memory(view, x) for x in (array.storage.vals, *sum(array.storage.buffers, ())))
            assert not (shares and view.size and written_to(view))
        np.testing.assert_array_equal(array.todense(), D)
        for ours, old in zip((b for level in array.storage.buffers for b in level), before, strict=True):
            np.testing.assert_array_equal(ours, old)


def test_views_are_fresh_objects():
    a = sj.array(D, format="csr", copy=True)
    a.storage.vals.dtype = np.int64
    a.storage.vals.shape = (3, 1)
    np.testing.assert_array_equal(a.todense(), D)
    assert a.storage.vals.dtype == np.float64 and np.shares_memory(a.storage.vals, a.storage.vals)


def test_the_check_can_fail():
    assert written_to(np.ones(3)[1:]) and written_to(np.ones(3))


def test_what_was_borrowed_belongs_to_its_owner():
    """The source is frozen; a view made before can still write, which is the caller's promise not to do."""
    source = np.eye(3)
    view = source[:]
    borrowed, copied = sj.numpy.asarray(source), sj.array(np.eye(3))
    assert not source.flags.writeable and np.shares_memory(borrowed.storage.vals, source)
    view[0, 0] = 9
    assert borrowed.todense()[0, 0] == 9 and copied.todense()[0, 0] == 1
    m = sp.csr_array(D)
    sj.numpy.asarray(m)
    with pytest.raises(ValueError, match="read-only"):
        m.data[0] = 1


@pytest.mark.parametrize("order", ["C", "F"])
def test_operands_of_one_call_stay_their_owners(order):
    """NumPy operands are viewed while a call runs; neither results nor traced programs refer to them afterwards."""
    w = np.array(np.arange(9.0).reshape(3, 3), order=order)
    a, x = sj.array(np.eye(3), format="csr"), np.ones(3)
    programs = (
        lambda w: a @ w,
        lambda w: a + w,
        lambda w: w.T @ a,
        lambda w: sj.einsum("ij->ji", w),
        lambda w: sj.numpy.transpose(w),
        lambda w: sj.numpy.reshape(w, 9),
        lambda w: sj.numpy.sum(w, axis=()),
        lambda w: sj.numpy.multiply(w, 1),
        lambda w: sj.jit(lambda w: w)(w),
        lambda w: sj.jit(lambda w: w.T)(w),
    )
    for program in programs:
        made = program(w)
        before = made.todense().copy()
        w += 1
        assert w.flags.writeable
        np.testing.assert_array_equal(made.todense(), before)
    closing = (lambda x: x + w, lambda x: x @ w, lambda x: sj.einsum("i,ij->j", x, w), lambda x: a @ w @ x)
    for program in closing:
        compiled = sj.jit(program)
        before = compiled(x).todense().copy()
        w += 1
        np.testing.assert_array_equal(compiled(x).todense(), before)


def test_operands_are_read_as_they_are_now():
    a, x, f = sj.array(np.eye(3), format="csr"), np.ones(3), sj.jit(lambda a, x: a @ x)
    for k in range(3):
        x[:] = k
        np.testing.assert_array_equal((a @ x).todense(), x)
        np.testing.assert_array_equal(f(a, x).todense(), x)
        np.testing.assert_array_equal(f(a, x[::-1]).todense(), x)
        np.testing.assert_array_equal(f(a, x.astype(">f8")).todense(), x)
