"""Tests never touch the user's compile cache (those of the cache make their own folders), and find no zeros where nobody wrote them.

Machine code of kernels whose text did not change is kept between runs (`tests/objects`).
"""

import os

import pytest

from sparsejax import config
from tests import objects, poison, rotation

os.environ["SPARSEJAX_CACHE_DIR"] = "off"  # for the processes that tests start
config.update("cache_dir", "off")
poison.install()
objects.install()


@pytest.fixture(autouse=True)
def _optimisation(request):
    objects.choose(request.node.nodeid)


def pytest_collection_modifyitems(config, items):
    """Of tests that rotate, a share (`tests/rotation`); a test that is named on the command line runs."""
    if any("::" in str(arg) for arg in config.args):
        return
    kept, left = rotation.split(items)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept
