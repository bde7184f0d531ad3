"""Tests never touch the user's compile cache; those of the cache make their own folders."""

import os

os.environ["SPARSEJAX_CACHE_DIR"] = "off"
