"""NumPy's own einsum tests, run through `sparsejax.einsum` with operands in random formats.

The tests come with the installed NumPy and are not copied. `np.einsum` is replaced by a wrapper that stores every operand in a
random format, calls ours, and hands NumPy's assertions a dense array; `out=` is served by the wrapper, since our arrays are
immutable. Left out, with the reason for each, are the tests in `LEFT_OUT`.
"""

import random

import numpy as np
import numpy._core.tests.test_einsum as theirs
import pytest

import sparsejax as sj
from sparsejax.formats import Format
from tests.fuzz.levels import ENUMERATED

LEFT_OUT = {
    "test_einsum_sums_object": "object dtype",
    "test_object_loop": "object dtype",
    "test_einsum_object_errors": "object dtype",
    "test_einsum_sums_float16": "float16 is not supported",
    "test_einsum_sums_longdouble": "longdouble has no machine representation here",
    "test_einsum_sums_clongdouble": "clongdouble has no machine representation here",
    "test_einsum_views": "results are never views",
    "test_out_is_res": "out=: arrays are immutable",
    "test_einsum_0d_out": "out=: arrays are immutable",
    "test_einsum_all_contig_non_contig_output": "out=: arrays are immutable",
    "test_output_order": "order=: the memory order of results is not an argument",
    "test_einsum_sorting_behavior": "tests einsum_path, not einsum",
    "test_einsum_specific_errors": "checks out=, order=, casting= beside the messages tested below",
    "test_einsum_errors": "checks out=, order=, casting= and object arrays beside the messages tested below",
}


class Einsum:
    """`np.einsum` by way of ours."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.calls = 0

    def stored(self, x):
        array = np.asarray(x)
        order = list(range(array.ndim))
        self.rng.shuffle(order)
        levels = [self.rng.choice(ENUMERATED) for _ in order]
        return sj.array(array, format=Format(levels, order))

    def __call__(self, *args, out=None, dtype=None, optimize="auto", casting="safe", order="K"):
        operands = args[1:] if isinstance(args[0], str) else args[: len(args) - len(args) % 2 : 2]
        if any(np.asarray(x).dtype == object for x in operands):  # single calls inside tests of other dtypes
            return np.einsum(*args, out=out, dtype=dtype, optimize=optimize, casting=casting, order=order)
        self.calls += 1
        if isinstance(args[0], str):
            args = [args[0], *(self.stored(x) for x in args[1:])]
        else:
            pairs = len(args) - len(args) % 2
            args = [self.stored(x) if k % 2 == 0 and k < pairs else x for k, x in enumerate(args)]
        made = sj.einsum(*args, dtype=dtype, optimize=optimize).todense()
        if out is None:
            return made[()] if made.ndim == 0 else made
        out[...] = made.astype(out.dtype)
        return out


class Proxy:
    """The numpy that their module sees: everything but einsum is NumPy's."""

    def __init__(self, einsum):
        self.einsum = einsum

    def __getattr__(self, name):
        return getattr(np, name)


def own_tests():
    """(name, arguments) of every test of theirs that is not left out, parametrised ones spelled out."""
    for name in dir(theirs.TestEinsum):
        if not name.startswith("test_") or name in LEFT_OUT:
            continue
        marks = [m for m in getattr(getattr(theirs.TestEinsum, name), "pytestmark", []) if m.name == "parametrize"]
        values = marks[0].args[1] if marks else [None]
        for value in values:
            yield name, () if not marks else (value,)


@pytest.mark.rotating(96)
@pytest.mark.parametrize(("name", "args"), list(own_tests()))
def test_numpys_own(name, args, monkeypatch):
    if args and np.dtype(args[0] if not isinstance(args[0], bool) else bool) in (
        np.float16,
        np.longdouble,
        np.clongdouble,
    ):
        pytest.skip(f"dtype {np.dtype(args[0])} has no machine representation here")
    wrapper = Einsum(f"{name}{args}")
    monkeypatch.setattr(theirs, "np", Proxy(wrapper))
    getattr(theirs.TestEinsum(), name)(*args)
    assert wrapper.calls


@pytest.mark.parametrize("share", [sj.array, lambda x: x], ids=["arrays", "operands"])
def test_operands_stay_writeable(share, monkeypatch):
    """Their test of an output that overlaps an operand, with `out=` as an assignment to that operand."""

    def einsum(subscripts, *operands, out=None):
        made = sj.einsum(subscripts, *(share(x) for x in operands)).todense()
        if out is None:
            return made
        out[...] = made
        return out

    monkeypatch.setattr(theirs, "np", Proxy(einsum))
    theirs.test_overlap()


def test_what_is_left_out_still_exists():
    assert set(LEFT_OUT) <= set(dir(theirs.TestEinsum))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("", 0, 0), "more operands"),
        (("ii", 0), "too many subscripts"),
        ((",", 0, [0], [0]), "more operands"),
        ((",", [0]), "fewer operands"),
        (("i", [[0, 1], [0, 1]]), "more dimensions than subscripts"),
        (("i.", [0]), "not part of an ellipsis"),
        (("i%", [0]), "subscripts must be letters"),
        (("ii->i", np.arange(6).reshape(2, 3)), "operand 0 has extent 3 on axis 1"),
        (("i->ij", [0]), "never appeared in an input"),
        (("i->ii", [0]), "multiple times"),
        (("ij,jk", np.ones((2, 3)), np.ones((4, 2))), "operand 1 has extent 4 on axis 0"),
        (("i->-i", [0]), "'->'"),
    ],
)
def test_error_messages(args, message):
    with pytest.raises(ValueError, match=message):
        sj.einsum(*args)
