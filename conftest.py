"""Tests never touch the user's compile cache (those of the cache make their own folders), and find no zeros where nobody wrote them."""

import os

from sparsejax import config
from tests import poison

os.environ["SPARSEJAX_CACHE_DIR"] = "off"  # for the processes that tests start
config.update("cache_dir", "off")
poison.install()
