"""Machine code of tests: kept between runs, and without optimisation where the text that is compiled is what is tested.

`install` keeps object files in a folder of the user (`$SPARSEJAX_TEST_OBJECTS`; "off" keeps none), by text, processor and code generator: a kernel
whose text a commit left alone is never compiled again, by any process. They count as compiled. One of 31 tests, drawn by their names, and all
below `OPTIMISED`, run with the shipped optimisation, which takes LLVM five times as long: others for every commit, so that 31 commits run each both
ways (no list of cases rotates by 31); SPARSEJAX_SLICE=k chooses the k-th share.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from pathlib import Path

import platformdirs

from sparsejax.jit.backend import engine, object_cache
from tests import rotation

OPTIMISED = (
    "tests/real_data",
    "tests/codegen/vector_math",
    "tests/benchmarks",
    "tests/object_cache",
    "tests/examples",
    "tests/codegen/test_jammed",
    "tests/runtime/test_tuning",
    "tests/dask/test_cluster",
    "tests/dask/test_random_programs_on_a_cluster",
    "tests/threads",
)
"""Tests whose kernels run on large data, or whose speed or bits are in question."""
SHARES = 31
"""One of so many shares of the other tests runs with the shipped optimisation."""
LIMIT = 1 << 30
"""Bytes that are kept."""
_state = {"plain": False, "drawn": False}
turns = [0]
"""How often what is compiled has changed from optimised to not, or back."""


class Kept(object_cache.ObjectCache):
    """Objects of all tests, thousands of files, which are counted once at the end rather than by chance at one store of sixty."""

    def _sweep(self, folder: int) -> None:
        pass

    def tidied(self) -> None:
        """Keep the folder within its limit."""
        with contextlib.suppress(OSError, ValueError), self._opened() as folder:
            super()._sweep(folder)


def _kept() -> Kept | None:
    place = os.environ.get("SPARSEJAX_TEST_OBJECTS") or platformdirs.user_cache_path("sparsejax-tests")
    return None if str(place) == "off" else Kept(Path(place), LIMIT)


def install() -> None:
    """From now on, object files come from the folder where they are there."""
    made, kept = engine.Engine.object, _kept()

    def object_of(self: engine.Engine, text: str, plain: bool = False) -> bytes:
        plain = plain or _state["plain"]
        key = f"{plain}\n{text}"
        image = None if kept is None else kept.load(key)
        if image is None:
            image = made(self, text, plain)
            if kept is not None:
                kept.store(key, image)
        return image

    engine.Engine.object = object_of  # type: ignore[method-assign]


def plain() -> bool:
    """Whether kernels of the test that runs are compiled without optimisation."""
    return _state["plain"]


def shipped() -> bool:
    """Whether what a test has compiled quickly is optimised all the same: all kernels of a test that is drawn, as some compare the bits of two."""
    return _state["drawn"]


def install_elsewhere(plain: bool) -> None:
    """The same in a process that a test has started, whose kernels are compiled as those of the test."""
    if getattr(engine.Engine.object, "__name__", "") != "object_of":
        install()
    _state["plain"] = plain


def tidy() -> None:
    """At the end of a run."""
    kept = _kept()
    if kept is not None:
        kept.tidied()


def choose(name: str) -> None:
    """Compile the kernels of the test called `name` with optimisation or without; those of a file of `tests/dask` alike, as its tests share workers."""
    if name.startswith("tests/dask/"):
        name = name.partition("::")[0]
    optimised = _state["drawn"] = (zlib.crc32(name.encode()) + rotation.slice_number()) % SHARES == 0
    now = not optimised and not name.startswith(OPTIMISED)
    turns[0] += now != _state["plain"]
    _state["plain"] = now
