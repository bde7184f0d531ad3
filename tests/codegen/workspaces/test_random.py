"""Kernels that scatter through every workspace policy, against dense NumPy and the interpreter."""

import numpy as np
import pytest

from sparsejax.formats import convert, validate
from sparsejax.jit.cost import workspace_choice
from sparsejax.jit.ir import policies
from tests.codegen.workspaces import cases

pytestmark = pytest.mark.rotating(10)

POLICIES = list(policies.SPARSE)
BATCH = 30


def same(got: np.ndarray, want: np.ndarray) -> bool:
    return got.shape == want.shape and np.allclose(got, want, rtol=1e-5, atol=1e-5, equal_nan=True)


def check(seed: int, policy: str, **options: bool) -> str | None:
    """None when the case of a seed is right under a policy, else what is wrong."""
    case = cases.make(seed, **options)
    with np.errstate(all="ignore"):
        want = cases.expected(case)
    got = cases.run(case, policy)
    validate.validate(got)
    dense = convert.to_dense(got)
    return None if same(dense, want) else f"seed {seed} {policy}: {case}\nexpected\n{want}\ngot\n{dense}"


@pytest.mark.rotating(20)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("start", range(0, 120, BATCH))
def test_small(policy, start):
    faults = [f for f in (check(seed, policy) for seed in range(start, start + BATCH)) if f]
    assert not faults, "\n\n".join(faults)


@pytest.mark.rotating(10)
@pytest.mark.parametrize("policy", POLICIES)
def test_large(policy):
    faults = [f for f in (check(seed, policy, large=True) for seed in range(1000, 1025)) if f]
    assert not faults, "\n\n".join(faults)


@pytest.mark.parametrize("policy", POLICIES)
def test_interpreter_agrees(policy):
    for seed in range(40):
        case = cases.make(seed)
        with np.errstate(all="ignore"):
            want = cases.expected(case)
        assert same(cases.interpreted(case, policy), want), str(case)


@pytest.mark.parametrize("policy", [p for p in POLICIES if p not in workspace_choice.DENSE])
def test_hypersparse(policy):
    """Coordinates spread over extents up to 2^62, keys of one word or several: the same entries, elsewhere."""
    for seed in range(2000, 2015):
        case = cases.make(seed, dense=False)
        near = cases.run(case, policy)
        far_case, places = cases.stretched(case, seed)
        far = cases.run(far_case, policy)
        validate.validate(far)
        (near_coords, near_vals), (far_coords, far_vals) = convert.to_coords(near), convert.to_coords(far)
        spread = [places[v][c] for v, c in zip(case.nest.indices, near_coords, strict=True)]
        assert np.array_equal(far_coords, np.stack(spread)), f"seed {seed}: {case}"
        assert np.array_equal(far_vals, near_vals, equal_nan=True), f"seed {seed}: {case}"
