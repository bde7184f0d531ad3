"""Calls written out as functions: slots by format, and facts that are told by how many entries there are."""

import itertools

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.formats import Format
from sparsejax.formats.storage import Storage
from sparsejax.jit.cost import spreads, statistics
from sparsejax.jit.runtime import kernels, written
from sparsejax.jit.runtime.system import result_memory

FORMATS = {
    1: ["dense", "coo", "(c)", "(b)"],
    2: [
        "dense",
        "csr",
        "csc",
        "coo",
        "dcsr",
        "ell",
        "dia",
        "banded",
        "bitmap",
        "hash",
        "rle",
        "lil",
        "bsr:2x3",
        "(d,d)@(1,0)",
    ],
    3: ["dense", "csf", "coo", "(d,c,d)", "(d,d,c)@(2,0,1)", "(d,c,c)"],
}


def storage(form, entries, shape):
    """A storage with one sparse level of so many entries: what they are is of no matter."""
    alone, crd = form.alone, np.zeros(entries, np.int32)
    above = int(np.prod([shape[d] for d in form.order[:alone]]))
    names = form.buffer_names(alone)
    assert names in (("pos", "crd"), ("crd",))
    level = (np.linspace(0, entries, above + 1).astype(np.int64), crd)[-len(names) :]
    buffers = tuple(level if k == alone else () for k in range(len(form.levels)))
    below = int(np.prod([shape[d] for d in form.order[alone + 1 :]]))
    return Storage(form, shape, np.float64(0), buffers, np.zeros(entries * below))


@pytest.mark.parametrize(
    "text, shape",
    [("csr", (7, 90)), ("csc", (7, 90)), ("(c)", (900,)), ("(d,c,d)", (3, 40, 5)), ("(d,c,d)", (3, 40, 0))],
)
def test_counts_tell_positions(text, shape):
    form = Format.parse(text, len(shape))
    rng = np.random.default_rng(0)
    counts = [0, 1, 2, 3, 5, 6, 11, 12, *map(int, rng.integers(0, 3000, 20)), spreads.LEAST - 1]
    for count in counts:
        _, low, high = statistics.few(storage(form, count, shape))
        assert low <= count < high
        told = statistics.positions(storage(form, count, shape))
        for other in {low, high - 1, low - 1, high, int(rng.integers(low, high))}:
            if 0 <= other < spreads.LEAST:
                found = storage(form, other, shape)
                assert (low <= other < high) == (statistics.positions(found) == told)
                assert statistics.rounded_counts(found) == tuple(statistics.positions(found))
    assert statistics.few(storage(form, spreads.LEAST, shape)) is None


def test_dense_storages_of_one_shape_are_alike():
    for entries in (0, 3, 100_000):
        assert statistics.few(sj.array(np.zeros(entries))._storage) == (-1, 0, 0)


@pytest.mark.parametrize("ndim, text", [(n, text) for n, texts in FORMATS.items() for text in texts])
def test_slots_are_extents_and_addresses(ndim, text):
    rng = np.random.default_rng(ndim)
    shape = (6, 9, 4)[:ndim]
    x = sj.array((rng.random(shape) < 0.4) * rng.random(shape)).asformat(text)._storage
    x = Storage(x.format, x.shape, x.fill_value, x.buffers, x.vals)
    arrays = [b for level in x.buffers for b in level] + [x.vals]
    extents = x.format.level_extents(x.shape) if x.format.blocked else x.shape
    words = [*extents, *(a.__array_interface__["data"][0] for a in arrays)]
    assert written.packer(x.format)(x) == np.array(words, np.int64).tobytes() == x.cache["slots"]


def test_slots_by_the_protocol_of_numpy(monkeypatch):
    monkeypatch.setattr(result_memory, "words", None)
    written.packer.cache_clear()
    try:
        for text in FORMATS[2]:
            test_slots_are_extents_and_addresses(2, text)
    finally:
        written.packer.cache_clear()


PROGRAMS = {
    "A @ x": lambda A, x: A @ x,
    "A.T @ y": lambda A, x: A.T @ snp.ones(A.shape[0]),
    "A * 2": lambda A, x: A * 2.0,
    "sum": lambda A, x: A.sum(axis=1),
    "A + A": lambda A, x: A + A.T.T,
    "A @ A.T": lambda A, x: A @ A.T,
    "exp": lambda A, x: snp.expm1(A).sum(),
}


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "(d,b)", "bsr:2x2"])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("jitted", [False, True])
def test_arrays_of_one_shape_run_by_the_plan_for_their_own_facts(name, form, jitted, monkeypatch):
    """Counts go up and down across the bounds between two facts; every kernel runs as it was planned for what its operands are."""
    function = sj.jit(PROGRAMS[name], dynamic=False) if jitted else PROGRAMS[name]
    rng = np.random.default_rng(len(name))
    shape, ran = (40, 30), []
    plainly = kernels.KernelRunner._current

    def current(self, inputs):
        planned = plainly(self, inputs)
        found = self.observe(inputs)
        ran.extend(planned.observed[k] == found[k] for k, _ in self._watched)
        return planned

    monkeypatch.setattr(kernels.KernelRunner, "_current", current)
    for entries in (0, 90, 91, 90, 181, 182, 90, 181, 600, 1199, 4, 182, 91, 0, 90):
        values = np.zeros(shape)
        values.flat[rng.choice(1200, entries, replace=False)] = 1 + rng.random(entries)
        A, x = sj.array(values).asformat(form), sj.array(rng.random(30))
        for _ in range(2):
            made = function(A, x)
        expected = PROGRAMS[name](values, np.asarray(x)) if name != "exp" else np.expm1(values).sum()
        np.testing.assert_allclose(made.todense() if made.ndim else made.item(), np.asarray(expected), rtol=1e-12)
    assert all(ran)


def test_a_plan_for_other_facts_is_never_run():
    """The functions of one shape look at counts as `_current` looks at facts: each asks for the other road exactly where these differ."""
    compiled = sj.jit(lambda A, x: A @ x, dynamic=False)
    rng = np.random.default_rng(1)
    asked = []
    for entries in map(int, rng.integers(1, 800, 60)):
        values = np.zeros((30, 40))
        values.flat[rng.choice(1200, entries, replace=False)] = 1.0
        A = sj.array(values).asformat("csr")
        before = kernels.KernelRunner._current
        seen = []
        kernels.KernelRunner._current = lambda self, inputs, seen=seen, before=before: (
            seen.append(1) or before(self, inputs)
        )
        try:
            compiled(A, np.ones(40))
        finally:
            kernels.KernelRunner._current = before
        asked.append((bool(seen), statistics.positions(A._storage)))
    changed = [now != last for (_, last), (_, now) in itertools.pairwise(asked)]
    assert [seen for seen, _ in asked][1:] == changed
