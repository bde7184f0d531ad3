"""Every public operation, at once, of arrays whose shapes never came before: after a few shapes nothing is scheduled or compiled."""

import numpy as np
import pytest

import sparsejax as sj
import tests.sweeps.more_operations  # noqa: F401 - adds its lines to the table
from sparsejax.jit import pipeline
from tests.sweeps.operations import OPERATIONS

KNOWN, NEW = 24, 4
EXTENTS = range(66, 97), range(97, 128)
"""Extents of as many bits, of which none are equal, with about as many entries in a row: one bucket of sizes and of facts."""
OTHERS = {
    "lax.custom_root",
    "lax.custom_linear_solve",
    "lax.while_loop",
    "lax.fori_loop",
    "lax.switch",
    "sj.jit",
}
"""What runs other programs, which are traced for the shapes at hand, or makes a function anew in every call."""


def fitting(operation):
    """Whether an operation takes matrices of other shapes than those of the table."""
    rng = np.random.default_rng(0)
    try:
        operation.function(*matrices(rng, operation, 5, 7))
    except (ValueError, IndexError, TypeError):
        return False
    return True


def matrices(rng, operation, n, m):
    if operation.shape[0] == operation.shape[-1]:
        m = n
    made = []
    for _ in range(operation.arity):
        dense = np.where(rng.random((n, m)) < 11 / m, rng.uniform(operation.low, operation.high, (n, m)), 0)
        dense = np.ceil(dense).astype({"i": int, "b": bool}.get(operation.kind, float))
        made.append(
            sj.array(
                dense[0] if len(operation.shape) == 1 else dense, format="csr" if len(operation.shape) > 1 else "coo"
            )
        )
    return made


@pytest.mark.rotating(12)
@pytest.mark.parametrize("name", [name for name in OPERATIONS if name not in OTHERS])
def test_new_shapes_plan_nothing(name, monkeypatch):
    operation = OPERATIONS[name]
    if len(operation.shape) > 2 or not fitting(operation):
        pytest.skip("takes the shapes of the table alone")
    sj.clear_caches()  # shapes of other tests count as seen
    rng = np.random.default_rng(sum(name.encode()))
    planned, schedule_of = [], pipeline.schedule_of
    monkeypatch.setattr(pipeline, "schedule_of", lambda *a, **k: planned.append(a[0]) or schedule_of(*a, **k))
    extents = [rng.permutation(own)[: KNOWN + NEW].tolist() for own in EXTENTS]  # none comes twice
    with np.errstate(all="ignore"):
        for k, (n, m) in enumerate(zip(*extents, strict=True)):
            if k == KNOWN:
                planned.clear()
            operation.function(*matrices(rng, operation, n, m))
    assert len(planned) <= 1, planned[0]  # numbers of entries have buckets, too
