"""The machine that kernels are priced for: which table counts, what files may hold, and that plans follow it."""

import dataclasses
import json

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
from sparsejax import config
from sparsejax.jit.cost import machine
from sparsejax.jit.cost.machines import ICE_LAKE, MACHINES
from tests.prices import priced


def test_the_table_with_the_nearest_caches_counts():
    for known in MACHINES:
        found = machine.nearest(tuple(1.1 * size for size in known.caches))
        assert found == dataclasses.replace(known, caches=found.caches) and found.caches[0] == 1.1 * known.caches[0]
    assert machine.nearest(None) == MACHINES[0]


def test_caches_that_the_system_reports(tmp_path, monkeypatch):
    for number, (level, kind, size) in enumerate(
        [(1, "Data", "48K"), (1, "Instruction", "32K"), (2, "Unified", "2048K"), (3, "Unified", "36864K")]
    ):
        entry = tmp_path / f"index{number}"
        entry.mkdir()
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (entry / name).write_text(f"{text}\n")
    monkeypatch.setattr(machine, "_CACHES", tmp_path)
    assert machine.caches_here() == (48 << 10, 2 << 20, 36 << 20)
    (tmp_path / "index3" / "size").write_text("unknown")
    assert machine.caches_here() is None
    monkeypatch.setattr(machine, "_CACHES", tmp_path / "nowhere")
    assert machine.caches_here() is None


def test_a_file_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(dataclasses.asdict(ICE_LAKE)))
    with config.using(machine=path):
        assert machine.current() == ICE_LAKE


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lane": -1.0}, "lane is -1.0"),
        ({"lane": "fast"}, "lane is 'fast'"),
        ({"line": [1.0, float("nan"), 2.0]}, "line is"),
        ({"line": [1.0, 2.0]}, "line is"),
        ({"lane": [1.0, 2.0, 3.0]}, "lane is"),
        ({"speed": 1.0}, "speed"),
        (None, "no table"),
    ],
)
def test_other_files_are_refused(tmp_path, change, message):
    path = tmp_path / "machine.json"
    path.write_text(json.dumps([] if change is None else dataclasses.asdict(ICE_LAKE) | change))
    with pytest.raises(ValueError, match=message):
        machine.read(str(path))


def test_a_machine_that_is_not_there():
    with config.using(machine="abacus"), pytest.raises(ValueError, match=r"'abacus'.*ice_lake"):
        machine.current()


def test_plans_follow_the_machine():
    """A lookup in a scattered row costs as little, or as much, as the table says."""
    B = sj.array(sp.random_array((300, 300), density=0.05, format="csr", rng=np.random.default_rng(0)))
    function = sj.jit(lambda A: (A * (A @ A)).sum())
    texts = []
    for price in (0.0, 1e6):
        with priced(scatter=price, lookup=price):
            texts.append(function.lower(B).as_text("cin"))
    assert "scattered" in texts[0] and "scattered" not in texts[1]
