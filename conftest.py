"""Tests never touch the user's compile cache; those of the cache make their own folders."""

import os

from sparsejax import config

os.environ["SPARSEJAX_CACHE_DIR"] = "off"  # for the processes that tests start
config.update("cache_dir", "off")
