"""The lists of known failures of the array API suite: short, and every line with its reason."""

from pathlib import Path

import pytest

from tests.array_api import run

FLOORS = {"dense": 25, "sparse": 30}


@pytest.mark.parametrize("mode", FLOORS)
def test_the_lists_are_short(mode):
    assert len(run.known(mode)) < FLOORS[mode]


@pytest.mark.parametrize("name", ["xfails.txt", "xfails_sparse.txt"])
def test_every_block_has_a_reason(name):
    for block in (Path(run.HERE) / name).read_text().strip().split("\n\n"):
        assert block.startswith("# ") and any(not line.startswith("#") for line in block.splitlines()), block


def test_listed_tests_exist():
    folder = run.suite()
    if folder is None:
        pytest.skip("there is no array API suite in $ARRAY_API_TESTS or ../shared/suites/array-api-tests")
    for line in run.known("sparse"):
        path, _, name = line.partition("::")
        assert name.split("[")[0].split("::")[-1] in (folder / path).read_text(), line
