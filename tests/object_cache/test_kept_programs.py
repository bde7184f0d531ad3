"""Programs on disk: what a new process runs by a record gives the same bits as what it plans itself, and nothing else is taken for it."""

import gc
import json
import os
import random
import subprocess
import sys
import weakref
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import config, formats, nn
from sparsejax.core import entrywise, primitive
from sparsejax.core.again import again
from sparsejax.core.avals import Aval
from sparsejax.core.primitive import Primitive
from sparsejax.formats import Format
from sparsejax.jit.backend import object_cache, records
from sparsejax.jit.runtime import shapes
from sparsejax.jit.runtime.kept import encoding, keys
from sparsejax.jit.runtime.kept.programs import Kept
from tests.fuzz import programs

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the cache relies on POSIX permissions")

OPERATIONS = (
    lambda A, B, x, X: A @ x,
    lambda A, B, x, X: A @ X,
    lambda A, B, x, X: A.T @ B,
    lambda A, B, x, X: A + B,
    lambda A, B, x, X: A * B,
    lambda A, B, x, X: A * 2,
    lambda A, B, x, X: A > 0.25,
    lambda A, B, x, X: A.sum(),
    lambda A, B, x, X: A.sum(axis=0),
    lambda A, B, x, X: A.max(axis=1),
    lambda A, B, x, X: A.min(),
    lambda A, B, x, X: A.mean(axis=0),
    lambda A, B, x, X: snp.exp(A) - 1,
    lambda A, B, x, X: A**2,
    lambda A, B, x, X: snp.where(A > 0.5, A, 0),
    lambda A, B, x, X: snp.maximum(A, B),
    lambda A, B, x, X: snp.argmax(A, axis=1),
    lambda A, B, x, X: snp.count_nonzero(A, axis=0),
    lambda A, B, x, X: A * x,
    lambda A, B, x, X: snp.trace(A[:20, :20]),
    lambda A, B, x, X: snp.linalg.norm(A),
    lambda A, B, x, X: nn.softmax(A, axis=1),
    lambda A, B, x, X: snp.einsum("ij,ij->i", A, B),
    lambda A, B, x, X: A.astype("float32") @ x.astype("float32"),
    lambda A, B, x, X: A.asformat("csc") @ x,
    lambda A, B, x, X: A * A,
)


def operands(number, seed=0, density=0.1):
    """Matrices of one pattern of zeros and of two, a vector and a dense matrix."""
    rng = np.random.default_rng([number, seed])
    n, m = 23 + 3 * number, 31 + number
    A, B = (sp.random_array((n, m), density=density, format="csr", rng=rng) for _ in range(2))
    return sj.array(A), sj.array(B), sj.array(rng.standard_normal(m)), sj.array(rng.standard_normal((m, 3)))


def bits(result):
    """All of an array, as text."""
    s = result.storage
    held = [a for level in s.buffers for a in level]
    known = [(a.dtype.str, a.shape, a.tobytes().hex()) for a in (*held, s.vals)]
    return repr((str(s.format), s.shape, s.fill_value.tobytes().hex(), known))


def session(seed=0, density=0.1):
    """What a session comes to, by operation."""
    return [bits(op(*operands(k, seed, density))) for k, op in enumerate(OPERATIONS)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder for records, in a process that exchanges none with others."""
    monkeypatch.setattr(records, "_sources", ())
    before = config.cache_dir()
    config.update("cache_dir", tmp_path / "cache")
    sj.clear_caches()
    yield tmp_path / "cache"
    config.update("cache_dir", before)
    sj.clear_caches()


@pytest.fixture
def recalled(monkeypatch):
    """One entry for every program that is found on disk."""
    found, real = [], Kept.__init__

    def noted(self, *args):
        real(self, *args)
        found.append(self)

    monkeypatch.setattr(Kept, "__init__", noted)
    return found


def test_a_session_has_the_same_bits_in_a_second_process(folder, recalled):
    first = session()
    assert not recalled
    sj.clear_caches()
    assert session() == first
    assert len(recalled) > 20
    assert not any(kept.missed for kept in recalled)
    with config.using(cache_dir="off"):
        sj.clear_caches()
        assert session() == first


@pytest.mark.parametrize("density", [0.1, 0.02, 0.6])
def test_operands_that_hold_other_entries(folder, recalled, density):
    with config.using(cache_dir="off"):
        wanted = session(1, density)
    sj.clear_caches()
    session()
    sj.clear_caches()
    assert session(1, density) == wanted
    assert recalled


def test_shared_patterns_and_others_under_one_record(folder, recalled):
    A, B, *_ = operands(0)
    sine = snp.sin(A)
    pairs = [(A, sine), (A, B), (sine, A), (B, A), (A, A)]

    def all_of(order):
        return {k: bits(pairs[k][0] + pairs[k][1]) for k in order}

    wanted = all_of(range(5))
    for order in ((0, 1, 2, 3, 4), (4, 3, 2, 1, 0), (1, 0, 3, 2, 4)):
        sj.clear_caches()
        assert all_of(order) == wanted
    assert recalled


@pytest.mark.rotating(8)
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("start", range(0, 160, 4))
def test_random_programs_have_the_same_bits(folder, start, whole):
    def run():
        made = []
        for seed in range(start, start + 4):
            drawn = programs.program(seed)

            def evaluated(*inputs, result=drawn.result):
                return sj.array(programs.evaluate(snp, result, inputs))

            with np.errstate(all="ignore"):
                result = (sj.jit(evaluated) if whole else evaluated)(*[o.array() for o in drawn.inputs])
            made.append(bits(result))
        return made

    random.seed(start)
    first = run()
    sj.clear_caches()
    assert run() == first


def test_programs_that_differ_in_numbers(folder, recalled):
    """Records of some of the numbers take the places of others; each number has its own fill and its own bits."""
    A, *_ = operands(0)
    values = [k / 4 - 2 for k in range(20)]

    def run(order):
        return {v: bits(op(A, v)) for v in order for op in (snp.add, snp.greater)}

    with config.using(cache_dir="off"):
        wanted = run(values)
    for order in (values, values[::-1], values[-1:], values):
        sj.clear_caches()
        assert run(order) == {v: wanted[v] for v in order}
    assert recalled


def test_products_whose_entries_collide(folder, recalled):
    wide = [operands(0, seed, density)[0] for seed, density in ((0, 0.05), (1, 0.3), (2, 0.9))]
    with config.using(cache_dir="off"):
        wanted = [bits(A.T @ A) for A in wide]
    for order in ((0, 1, 2), (2, 1, 0)):
        sj.clear_caches()
        assert {k: bits(wide[k].T @ wide[k]) for k in order} == dict(enumerate(wanted))
    assert recalled


@pytest.fixture
def traced(monkeypatch):
    """One entry for every trace with symbols."""
    found, real = [], shapes.Member.of
    monkeypatch.setattr(shapes.Member, "of", lambda *args: found.append(args) or real(*args))
    return found


def shaped(numbers):
    """What operations come to for operands of these shapes, one after the other."""
    return {(k, n): bits(op(*operands(n, k))) for n in numbers for k, op in enumerate(OPERATIONS)}


def test_programs_for_many_shapes(folder, traced):
    """Other shapes, also of other sizes, of a later process: those of a bucket that is known take its plan, the others one of their own."""
    with config.using(cache_dir="off"):
        wanted = shaped(range(5)) | shaped([300])
    for numbers, known in (((0, 1, 2), False), ((3, 1, 4), True), ((2, 300, 0), False), ((300, 4), True)):
        sj.clear_caches()
        del traced[:]
        made = shaped(numbers)
        assert made == {key: wanted[key] for key in made}
        # where what operands hold decides steps, there are no records; nor at once of operands that share patterns
        assert len(traced) < 5 if known else len(traced) > 10


def test_what_operands_hold_decides_plans_for_many_shapes(folder, monkeypatch):
    """A later process that has the same operands plans nothing; others find no plan that was decided by these."""
    planned, real = [], shapes.plans.planned
    monkeypatch.setattr(shapes.plans, "planned", lambda *args: planned.append(args) or real(*args))

    def run(seed):
        made = [operands(k, seed)[0] for k in (0, 1, 2)]
        return [bits(op(A)) for A in made for op in (lambda A: A.max(axis=1), lambda A: snp.argmax(A, axis=0))]

    with config.using(cache_dir="off"):
        wanted = {seed: run(seed) for seed in range(3)}
    for seed, known in ((0, False), (0, True), (1, False), (2, False), (2, True)):
        sj.clear_caches()
        del planned[:]
        assert run(seed) == wanted[seed]
        assert not (known and planned)


def test_guards_of_another_shape(folder, traced):
    """A record whose trace does not hold is no trace of these operands."""
    for order in (((5, 7), (9, 4), (6, 6)), ((6, 6), (3, 3), (9, 4)), ((9, 4), (8, 8), (5, 7))):
        sj.clear_caches()
        for n, m in order:
            dense = np.arange(float(n * m)).reshape(n, m) % 3
            A = sj.array(dense, format="csr")
            np.testing.assert_allclose((A + A.reshape(m, n).reshape(n, m)).todense(), 2 * dense)
            np.testing.assert_allclose(snp.trace(A).todense(), np.trace(dense))
            np.testing.assert_allclose((A.T @ A).todense(), dense.T @ dense)
            np.testing.assert_allclose(nn.softmax(A, axis=1).sum(axis=1).todense(), (dense != 0).any(axis=1))


def test_a_trace_from_disk_tells_the_program(folder, traced, monkeypatch):
    monkeypatch.setattr(entrywise, "OFTEN", 0)  # a program for this number
    for _ in range(2):
        del traced[:]
        sj.clear_caches()
        for n in (5, 9, 14, 300):
            assert (sj.array(np.eye(n), format="csr") > 0.5).nnz == n
    assert not traced
    (member,) = [m for family in primitive._families.values() for m in family._members]
    assert member.domain.stands == ("n0", "n0")
    assert "greater" in str(member.closed)
    resized = member.at(member.find((6, 6)), [sj.array(np.eye(6), format="csr")])
    assert resized.out_avals[0].shape == (6, 6)
    assert "closed" in vars(member)


PROCESS = """
import sys
from tests.object_cache import test_kept_programs as t
from sparsejax.jit.runtime.kept.programs import Kept
count, real = [0], Kept.__init__
def noted(self, *args):
    real(self, *args)
    count[0] += 1
Kept.__init__ = noted
for line in t.session():
    print(line)
print(count[0])
"""


def process(folder, **settings):
    """What a session comes to in a process of its own, and how many records it found."""
    named = {f"SPARSEJAX_{k.upper()}": v for k, v in settings.items()}
    env = os.environ | {"SPARSEJAX_CACHE_DIR": str(folder)} | named
    here = Path(__file__).parents[2]
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROCESS], env=env, cwd=here, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    *made, count = ran.stdout.splitlines()
    return made, int(count)


def test_processes(tmp_path):
    folder = tmp_path / "cache"
    first, none = process(folder)
    second, count = process(folder)
    assert (first, none) == (second, 0)
    assert count > 20


SETTINGS = (
    {"workspace": "hash"},
    {"skip": "masks"},
    {"skip": "loader"},
    {"parallel_work": 0},
    {"dense_limit": 0},
    {"choose": "random:3"},
    {"choose": "pattern=coordinates"},
    {"skip": "tile"},
    {"machine": "zen3"},
)


@pytest.mark.rotating(3, exactly=True)
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_settings_are_part_of_the_key(folder, recalled, settings):
    session()
    with config.using(**settings):
        sj.clear_caches()
        under = session()
        assert not recalled
        with config.using(cache_dir="off"):
            sj.clear_caches()
            assert session() == under
        sj.clear_caches()
        assert session() == under
    sj.clear_caches()
    del recalled[:]
    session()
    assert len(recalled) > 20


def test_functions_of_users_are_planned_once(folder, recalled):
    def jitted(seed=0, density=0.1):
        return [bits(sj.jit(op)(*operands(k, seed, density))) for k, op in enumerate(OPERATIONS)]

    first = jitted()
    assert not recalled
    sj.clear_caches()
    assert jitted() == first
    assert len(recalled) > 20
    assert not any(kept.missed for kept in recalled)
    with config.using(cache_dir="off"):
        sj.clear_caches()
        wanted = jitted(1, 0.4)
    sj.clear_caches()
    assert jitted(1, 0.4) == wanted


def test_slices_and_functions_that_stand_for_others_have_records(folder, recalled):
    A, B, x, X = operands(0)

    @sj.custom_jvp
    def cube(x):
        return x * x * x

    cube.defjvp(lambda primals, tangents: (cube(*primals), 3 * primals[0] ** 2 * tangents[0]))
    functions = [
        sj.grad(lambda A, B, x, X: ((x[1:] - x[:-1]) ** 2).sum() + x[3] * X[0, 1], 2),
        lambda A, B, x, X: X[::-2] * 2,
        lambda A, B, x, X: nn.softmax(A * 2, axis=1) @ x,
        sj.grad(lambda A, B, x, X: nn.relu(cube(A) @ x).sum()),
        lambda A, B, x, X: snp.pad(X, 1) @ np.ones(5),
    ]

    def run():
        return [bits(sj.jit(f)(A, B, x, X)) for f in functions]

    first = run()
    assert not recalled
    sj.clear_caches()
    assert run() == first
    assert len(recalled) >= len(functions)
    assert not any(kept.missed for kept in recalled)


@pytest.mark.parametrize("bad", [np.inf, np.nan, 1e300])
def test_programs_whose_values_are_looked_at_have_records(folder, recalled, bad):
    rng = np.random.default_rng(0)
    U, V, W = rng.random((60, 2)), rng.random((2, 60)), rng.random((60, 3))

    def run(U, asked):
        f = sj.jit(lambda U, V, W: (U * 2 @ V) @ W)
        with np.errstate(all="ignore"):
            made = bits(f(U, V, W))
        assert not asked or any(f._cache[k].closed.cache["plan"].checks.before for k in f._cache)
        return made

    worse = U.copy()
    worse[3, 1] = bad
    with config.using(cache_dir="off"):
        wanted = [run(U, False), run(worse, False)]
    for _ in range(3):
        sj.clear_caches()
        assert [run(U, True), run(worse, False)] == wanted
    assert recalled


def test_functions_of_users_are_traced(folder):
    A, _, x, _ = operands(0)
    scale = 2.0
    twice = sj.jit(lambda A, x: (A * scale) @ x)
    first = twice(A, x)
    sj.clear_caches()
    scale = 3.0
    np.testing.assert_allclose(twice(A, x).todense(), first.todense() * 1.5)


def test_functions_whose_traces_differ_a_little(folder):
    """In a number, its type, a parameter, a constant: none is taken for another."""
    A, _, x, _ = operands(0)
    small = sp.random_array(A.shape, density=0.02, format="csr", rng=np.random.default_rng(5))
    functions = [
        *[lambda A, x, c=c: (A * c) @ x for c in (2, 3, 2.0, np.float32(2), True)],
        *[lambda A, x, axis=axis: A.sum(axis=axis) for axis in (0, 1, None)],
        *[lambda A, x, dtype=dtype: A.astype(dtype) @ x.astype(dtype) for dtype in ("f4", "f8")],
        *[lambda A, x, c=c: A @ c for c in (x, x + 1, sj.array(np.ones(x.shape, "f4")))],
        *[lambda A, x, c=c: A * c for c in (sj.array(small), sj.array(small * 2), sj.array(small).asformat("csc"))],
        *[lambda A, x, k=k: A[k:, ::2] for k in (1, 2)],
        *[lambda A, x, k=k: A[snp.array([k, 3])] for k in (1, 2)],
        *[lambda A, x, f=f: A.asformat(f) for f in ("csc", "coo", "dense")],
        lambda A, x: {"a": A @ x, "b": (A + A, x)},
        lambda A, x: [A @ x, A + A, x],
        lambda A, x: (x, A + A, A @ x),
    ]

    def run():
        made = [sj.jit(f)(A, x) for f in functions]
        return [[bits(leaf) for leaf in sj.tree_util.tree_leaves(value)] for value in made]

    with config.using(cache_dir="off"):
        wanted = run()
    for _ in range(2):
        sj.clear_caches()
        assert run() == wanted
    sj.clear_caches()
    functions.reverse()
    assert run() == wanted[::-1]


def test_numbers_that_functions_of_users_are_given(folder, recalled):
    power = sj.jit(lambda A, k: A * k, static_argnums=())
    A = sj.array(np.arange(6, dtype=np.int8).reshape(2, 3), format="csr")
    first = bits(power(A, 3))
    sj.clear_caches()
    assert bits(power(A, 3)) == first
    with pytest.raises(OverflowError, match="Python integer 300 out of bounds for int8"):
        power(A, 300)


def test_only_functions_of_this_package_have_names():
    def made(count):
        return again(1, whole=True)(lambda x: x * count)

    x = sj.array(np.arange(3.0))
    assert [made(k)(x).tolist() for k in (2.0, 3.0)] == [[0, 2, 4], [0, 3, 6]]


def _files(folder):
    return sorted(p for p in folder.iterdir() if p.suffix == ".object")


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_damaged_files_are_planned_anew(folder, recalled, damage):
    first = session()
    for path in _files(folder):
        content = bytearray(path.read_bytes())
        if damage == "flipped":
            content[len(content) // 2] ^= 1
        path.write_bytes(b"" if damage == "empty" else content[: -5 if damage == "cut" else None])
    sj.clear_caches()
    assert session() == first
    assert not recalled


@pytest.mark.rotating(3, exactly=True)
@pytest.mark.parametrize("record", [b"", b"{}\n", b"[]\n", b"by facts", b"\xff", json.dumps({"code": 3}).encode()])
def test_records_of_something_else_are_planned_anew(folder, recalled, monkeypatch, record):
    first = session()
    sj.clear_caches()
    real = object_cache.ObjectCache.load
    foreign = lambda self, text: record if "\nprogram " in text[:400] else real(self, text)  # noqa: E731
    monkeypatch.setattr(object_cache.ObjectCache, "load", foreign)
    assert session() == first
    assert not recalled


def test_operands_are_not_kept(folder, recalled):
    def called():
        A, B, x, _ = operands(0)
        for result in (A @ x, A + B, A.sum(), snp.trace(A[:20, :20]), A * 0.5):
            result.todense()
        return [weakref.ref(s) for s in (A.storage, B.storage)]

    called()
    sj.clear_caches()
    held = called()
    gc.collect()
    assert recalled
    assert [ref() for ref in held] == [None, None]


def test_a_record_tells_the_kernel_itself(folder, recalled):
    """What is not in a record, the kernel says that it is of."""
    A, _, x, _ = operands(0)
    want = A @ x
    sj.clear_caches()
    got = A @ x
    (kept,) = recalled
    assert not kept.missed
    assert str(kept).startswith("{ lambda")
    assert kept.plan.steps[0].planner.step.nest.inputs[0].format == A.format
    assert kept.missed
    assert bits(got) == bits(want)
    B, *_ = operands(0, 1, 0.9)
    np.testing.assert_allclose((B @ x).todense(), B.todense() @ x.todense())


KEYS = (
    ("sum", 1),
    ("sum", 1.0),
    ("sum", True),
    ("sum", "1"),
    ("sum", (1,)),
    ("sum", (1, ())),
    ("sum", ((1,),)),
    ("sum", None),
    ("sum", b"1"),
    ("sum", np.float32(1)),
    ("sum", np.float64(1)),
    ("sum", np.int64(1)),
    ("sum", -0.0),
    ("sum", 0.0),
    ("sum", np.dtype("f4")),
    ("sum", np.dtype(">f4")),
    ("sum", "<f4"),
    ("sum", Format.parse("csr", 2)),
    ("sum", "csr"),
    ("sum", frozenset([1])),
    ("sum", Aval((2,), "f4", Format.parse("dense", 1))),
    ("sum", Aval((2,), "f4", Format.parse("dense", 1), weak_type=True)),
    ("sum", Aval((2, 2), "f4", Format.parse("csr", 2))),
    ("sum", Aval((2, 2), "f4", Format.parse("csr", 2), 1)),
    ("sum", Aval((2, 2), "f4", Format.parse("csc", 2))),
    ("sum", int),
    ("sum,1",),
)


def test_keys_differ():
    assert len({keys.spelled(key) for key in KEYS}) == len(KEYS)


@pytest.mark.parametrize("part", [object(), lambda: 0, np.arange(2), [1], {1: 2}, np.float64, random.Random(0)])
def test_what_may_differ_in_another_process_has_no_key(part):
    with pytest.raises(encoding.Unkept):
        keys.spelled(("sum", part))


def test_primitives_of_others_have_no_records(folder, recalled):
    """They may mean something else by their names in another process."""
    A, *_ = operands(0)

    def applied(function):
        (eqn,) = sj.make_jaxpr(function)(A, A).jaxpr.eqns
        rules = eqn.primitive
        own = Primitive("twice of tests", typing=rules.typing, reference=rules.reference, notation=rules.notation)
        assert rules.is_known
        assert not own.is_known
        return [own.bind(A, A, **eqn.param_dict) for _ in range(3)][-1].todense()

    for function in (snp.multiply, snp.add):
        primitive._named.pop("twice of tests", None)  # as in a process of its own
        sj.clear_caches()
        np.testing.assert_array_equal(applied(function), function(A.todense(), A.todense()))
    assert not recalled


def test_names_that_several_primitives_have():
    known = primitive.named("multiply")
    assert known.is_known
    try:
        Primitive("multiply", typing=None, reference=None)
        assert not known.is_known
    finally:
        primitive._named["multiply"] = known


@dataclass(frozen=True)
class Strange(formats.Compressed):
    """A level that no name stands for."""

    letter = "z"


@dataclass(frozen=True)
class Alike(formats.Compressed):
    """A level with the name of another."""


@pytest.mark.parametrize("level", [Strange(), Alike()])
def test_levels_of_others_have_no_records(folder, recalled, level):
    form = Format([formats.Dense(), level])
    A = sj.array(np.eye(5) * np.arange(5), format=form)
    for part in (form, A.aval):
        with pytest.raises(encoding.Unkept):
            keys.spelled(part)
    for _ in range(2):
        sj.clear_caches()
        np.testing.assert_allclose((A * 2).sum(axis=0).todense(), 2 * np.arange(5))
        np.testing.assert_allclose(nn.softmax(A, axis=1).sum(axis=1).todense(), [0, 1, 1, 1, 1])
    assert not any(s.format == form for kept in recalled for s in [*kept.in_avals, *kept.out_avals])
