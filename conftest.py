"""Tests never touch the user's compile cache (those of the cache make their own folders), and find no zeros where nobody wrote them.

Machine code of kernels whose text did not change is kept between runs (`tests/objects`).
"""

import os

import pytest

from sparsejax import config
from tests import objects, poison

os.environ["SPARSEJAX_CACHE_DIR"] = "off"  # for the processes that tests start
config.update("cache_dir", "off")
poison.install()
objects.install()


@pytest.fixture(autouse=True)
def _optimisation(request):
    objects.choose(request.node.nodeid)
