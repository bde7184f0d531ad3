"""How much a run tests: the random statements, derivatives and batches of every share of the rotating lists."""

import pytest

from tests import rotation
from tests.insum import test_insum, test_transforms

WANTED = {
    test_insum.test_random_statements: (1000, test_insum.BATCH),
    test_transforms.test_derivatives: (200, test_transforms.BATCH),
    test_transforms.test_batches: (200, test_transforms.BATCH),
}


def seeds(test, batch, number):
    """Those that a test runs in the share with a number."""
    marks = {mark.name: mark for mark in test.pytestmark}
    starts = list(marks["parametrize"].args[1])
    file = test.__module__.replace(".", "/")
    run = rotation.taken(f"{file}.py::{test.__name__}", marks["rotating"], starts, number)
    return [seed for start in run for seed in range(start, start + batch)]


@pytest.mark.parametrize("test", WANTED, ids=lambda test: test.__name__)
def test_every_run_has_so_many_statements(test):
    wanted, batch = WANTED[test]
    for number in range(24):
        found = seeds(test, batch, number)
        assert len(set(found)) == len(found) >= wanted, f"share {number} runs {len(found)} of {wanted}"


def test_this_run_has_so_many_statements(request):
    """What pytest has collected, where it was asked for all of the tests of a file."""
    collected = [item for item in request.session.items if hasattr(item, "callspec")]
    asked = [str(a) for a in request.config.args]
    for test, (wanted, batch) in WANTED.items():
        found = [item for item in collected if item.function is test]
        whole = not any("::" in a for a in asked) and not request.config.option.keyword
        if whole and any(item.path.stem == test.__module__.rsplit(".", 1)[-1] for item in request.session.items):
            starts = {item.callspec.params["start"] for item in found}
            assert len(starts) * batch >= wanted, f"{test.__name__}: {len(starts) * batch} of {wanted}"
