"""Plans on disk: a second process neither schedules nor lowers, and equal keys mean equal kernels."""

import os
from dataclasses import replace

import numpy as np
import pytest

import sparsejax as sj
from sparsejax import config
from sparsejax.formats import Format
from sparsejax.jit.backend import compiler, object_cache
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.nest import Nest
from sparsejax.jit.runtime import chunked, kernel_planner, kernels, plan_cache
from sparsejax.jit.runtime.kept import keys, programs
from tests.fuzz import definitions

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the cache relies on POSIX permissions")

RECIPE = plan_cache.Recipe(
    "define i64 @kernel\n", ((1, Format.parse("csc", 2)),), (7, 3), chunked.Cut(9, 64, True, "output", "add")
)


@pytest.fixture
def folder(tmp_path):
    """The compiler uses a cache in a temporary folder."""
    before = config.cache_dir()
    config.update("cache_dir", tmp_path / "cache")
    compiler.forget()
    plan_cache.forget()
    yield tmp_path / "cache"
    config.update("cache_dir", before)
    compiler.forget()
    plan_cache.forget()


@pytest.fixture
def lowered(monkeypatch):
    """One entry per kernel that is scheduled and lowered."""
    found, real = [], kernel_planner.KernelPlanner._recipe
    monkeypatch.setattr(kernel_planner.KernelPlanner, "_recipe", lambda *args: found.append(1) or real(*args))
    return found


@pytest.mark.parametrize("recipe", [RECIPE, replace(RECIPE, moves=(), expected=(), cut=None)])
def test_a_record_tells_all(recipe):
    assert plan_cache._decoded(plan_cache._encoded(recipe)) == recipe


def test_random_kernels_with_equal_keys_are_equal():
    seen = {}
    for seed in range(160):
        case = definitions.make(seed, blocked=seed % 2 == 1)
        step, inputs, order, _ = definitions.step_of(case)
        if order is not None:
            continue
        runner = kernels.KernelRunner.of(step)
        with config.using(workspace=case.workspace):
            observed = runner.observe(inputs)
            key = plan_cache.key(step.nest, False, config.planning(), observed)
            again = plan_cache.key(definitions.step_of(case)[0].nest, False, config.planning(), observed)
            recipe = runner.planner._recipe(observed, None)
        assert plan_cache._decoded(plan_cache._encoded(recipe)) == recipe
        assert again == key and seen.setdefault(key, recipe) == recipe
    assert len(seen) > 50


def nest(value=1.0, dtype="f8", fill=0.0, shape=(4,), form="csf", absent=False, op="add", index="i", policy=None):
    i, kind = cin.IndexVar(index), np.dtype(dtype)
    a = cin.Tensor("A", shape, kind, Format.parse(form, 1), kind.type(fill), policy)
    out = cin.Tensor("out", shape, kind, Format.parse("dense", 1), kind.type(0))
    expr = cin.Call(op, (cin.Access(a, (i,)), cin.Literal(kind.type(value), kind, absent)), kind)
    return Nest(out, (i,), (), expr)


CHANGES = [
    {"value": np.nextafter(1.0, 2)},
    {"value": -1.0},
    {"dtype": "f4"},
    {"dtype": "c16"},
    {"fill": 1.0},
    {"fill": -0.0},
    {"shape": (5,)},
    {"form": "coo"},
    {"absent": True},
    {"op": "multiply"},
    {"index": "j"},
    {"policy": "dense"},
]


def test_whatever_differs_makes_another_key():
    keys = {plan_cache.key(nest(**change), "cost") for change in [{}, *CHANGES]}
    assert len(keys) == len(CHANGES) + 1
    assert plan_cache.key(nest(), "cost") in keys and plan_cache.key(nest(), "loop_order=dearest") not in keys


def test_kernels_are_lowered_once(folder, lowered, kernels_alone):
    A = sj.array(np.eye(5), format="csr", copy=True)
    results = [sj.jit(lambda A, B: A @ B)(A, A) for _ in range(3)]
    assert len(lowered) == 1 and all((r.todense() == np.eye(5)).all() for r in results)
    with config.using(workspace="hash"):
        sj.jit(lambda A, B: A @ B)(A, A)
    assert len(lowered) == 2
    config.update("cache_dir", "off")
    sj.jit(lambda A, B: A @ B)(A, A)
    assert len(lowered) == 2
    plan_cache.forget()
    sj.jit(lambda A, B: A @ B)(A, A)
    assert len(lowered) == 3


@pytest.fixture
def kernels_alone(monkeypatch):
    """What is traced has no records, so that kernels are looked for by themselves."""
    monkeypatch.setattr(programs, "recall_traced", lambda closed, arrays: None)


def test_records_work_without_the_machine_code(folder, lowered, kernels_alone):
    A = sj.array(np.eye(5), format="csr", copy=True)
    sj.jit(lambda A: A @ A)(A)
    sizes = {path: path.stat().st_size for path in folder.iterdir()}
    assert len(sizes) == 2
    for path in sizes:
        kept = path.read_bytes()
        path.unlink()
        compiler.forget()
        plan_cache.forget()
        assert (sj.jit(lambda A: A @ A)(A).todense() == np.eye(5)).all()
        path.write_bytes(kept)
    assert len(lowered) == 2


def test_records_that_make_no_sense_are_replaced(folder, lowered, kernels_alone, monkeypatch):
    A = sj.array(np.eye(5), format="csr", copy=True)
    for nonsense in [b"", b"\xff", b"[]\n", b"{}\n", b'{"moves": [[0]], "expected": [], "cut": null}\n']:
        with monkeypatch.context() as patch:
            patch.setattr(plan_cache, "_encoded", lambda recipe, made=nonsense: made)
            sj.jit(lambda A: A + A)(A)
        before = len(lowered)
        plan_cache.forget()
        assert (sj.jit(lambda A: A + A)(A).todense() == 2 * np.eye(5)).all()
        assert len(lowered) == before + 1
        plan_cache.forget()
        for path in folder.iterdir():
            path.unlink()


def test_numbers_that_are_read_at_run_time_leave_few_records(folder):
    A = sj.array(np.eye(5), format="csr", copy=True)
    for k in range(100):
        assert ((A + (k + 2.5)).todense() == np.eye(5) + (k + 2.5)).all()
    assert len(list(folder.iterdir())) <= 1 + keys.PLACES  # the machine code, and programs with some of the numbers


def test_other_sources_are_another_key(tmp_path, monkeypatch):
    (tmp_path / "inner").mkdir()
    file = tmp_path / "inner" / "a.py"
    file.write_text("x = 1\n")
    found = [object_cache.sources(tmp_path)]
    assert object_cache.sources(tmp_path) == found[0]
    status = file.stat()
    file.write_text("x = 2\n")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    found.append(object_cache.sources(tmp_path))
    (tmp_path / "b.py").write_text("")
    found.append(object_cache.sources(tmp_path))
    (tmp_path / "notes.txt").write_text("")
    assert object_cache.sources(tmp_path) == found[-1] and len(set(found)) == 3
    before = plan_cache.key(nest(), "cost")
    monkeypatch.setattr(object_cache, "SOURCES", "others")
    assert plan_cache.key(nest(), "cost") != before


def test_a_cache_that_cannot_be_written_makes_no_difference(tmp_path, caplog):
    file = tmp_path / "file"
    file.write_text("")
    before = config.cache_dir()
    config.update("cache_dir", file / "below")
    try:
        A = sj.array(np.eye(3), format="csr", copy=True)
        assert (sj.jit(lambda A: A @ A * 3)(A).todense() == 3 * np.eye(3)).all()
        assert object_cache.active() is not None and len(caplog.records) == 1
    finally:
        config.update("cache_dir", before)
