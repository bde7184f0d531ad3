"""Tests never touch the user's compile cache (those of the cache make their own folders), and find no zeros where nobody wrote them.

Machine code of kernels whose text did not change is kept between runs (`tests/objects`).
"""

import gc
import importlib.util
import os
import re
import sys

import platformdirs
import pytest
from _pytest.doctest import DoctestItem, DoctestModule
from hypothesis import seed, settings

from sparsejax import clear_caches, config
from sparsejax.formats import passes
from sparsejax.jit.runtime.passes import conversions
from sparsejax.jit.runtime.passes.between import dense_conversions
from tests import objects, poison, rotation

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # in workers: threads of BLAS would wait for each other
os.environ |= {"SPARSEJAX_CACHE_DIR": "off", "SPARSEJAX_MACHINE": "ice_lake"}  # for the processes that tests start
# hypothesis reads the numbers of all modules: those of files that did not change are known, as machine code is (tests/objects.py)
os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(platformdirs.user_cache_path("sparsejax-tests-hypothesis")))
config.update("cache_dir", "off")
config.update("machine", "ice_lake")  # plans are the same everywhere
DRAWN_ANEW = os.environ.get("SPARSEJAX_SLICE") == "all"
if not DRAWN_ANEW:  # else hypothesis draws the examples of the share
    settings.register_profile("same examples", derandomize=True)
    settings.load_profile("same examples")
if importlib.util.find_spec("dask") is None:
    collect_ignore = ["sparsejax/dask"]
poison.install()
objects.install()
LOADED, COMPILED, EARLY = conversions.LOADED, conversions.COMPILED, passes.LOADED


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path):
    """Files without examples are not searched for them: a third of the collection, in every process."""
    found = yield
    if file_path.suffix == ".py" and b">>>" not in file_path.read_bytes():
        return [f for f in found if not isinstance(f, DoctestModule)]
    return found


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Before the fixtures of the test, of which those of its module may compile. Passes that ran before count for no test: the call from which on
    they are compiled would be in any of them, by the order of the tests."""
    objects.choose(item.nodeid)
    if isinstance(passes._few, passes.Learning):
        passes._few = passes.Learning(passes._many)
    # conversions of few entries, too, are loaded and compiled after so many calls
    code = getattr(getattr(item, "function", None), "__code__", None)
    counts = code is not None and "compile_count" in code.co_names
    conversions.COMPILED = dense_conversions.COMPILED = sys.maxsize if counts else COMPILED
    conversions.LOADED = dense_conversions.LOADED = sys.maxsize if counts else LOADED
    passes.LOADED = sys.maxsize if counts else EARLY
    if counts or "tables" in getattr(item, "fixturenames", ()):
        clear_caches()  # plans that other tests have called often may be planned again, and compile then; tables are made once


OPTIONAL = re.compile(r"^(?:import|from) (h5py|zarr|torch|jax|matplotlib|pandas|networkx|sparse|dask)\b", re.MULTILINE)
"""Libraries that examples in docstrings import, and that need not be installed."""


FIRST = (
    "tests/insum/",
    "tests/dask/",
    "tests/runtime/test_tuning",
    "tests/codegen/test_tiles",
    "tests/backend/test_kernel_memory",
    "tests/enumeration/",
    "tests/fuzz/",
    "tests/test_docs",
    "tests/examples/",
    "tests/autodiff/",
    "tests/formats/",
    "tests/export/",
    "tests/platforms/",
)
"""Files with tests of several seconds. A process steals from the end of what another one has left: where the last tests are short, all end
together, and files that share a cluster stay in one process."""


def pytest_collection_modifyitems(items):
    """Examples of libraries that are not installed are skipped; tests that take seconds come first; hypothesis draws the share of the commit."""
    items[:] = sorted(filter(rotation.present, items), key=lambda item: not item.nodeid.startswith(FIRST))
    for item in items:
        if not DRAWN_ANEW and getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            seed(rotation.slice_number() % rotation.EXAMPLES)(item.obj)
        if isinstance(item, DoctestItem):
            named = {name for e in item.dtest.examples for name in OPTIONAL.findall(e.source)}
            missing = sorted(name for name in named if importlib.util.find_spec(name) is None)
            if missing:
                item.add_marker(pytest.mark.skip(reason=f"{', '.join(missing)} not installed"))


@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc):
    """Of tests that rotate, a share runs."""
    rotation.leave(metafunc)


def pytest_collection_finish(session):
    settle()


SETTLED = 200
"""Tests after which what is left is settled."""
_left = SETTLED


def pytest_runtest_teardown(item):
    """Plans, kernels and types that are remembered grow with the run, and the garbage collector would look at all of them again and again: a tenth of
    the time of all tests."""
    global _left
    _left -= 1
    if not _left:
        _left = SETTLED
        settle()


def settle():
    """What is there now stays: the garbage collector need not look at it again. It looks at all of what comes after now and then only."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(1_000_000, 5, 1000)


def pytest_sessionfinish(session):
    if not hasattr(session.config, "workerinput"):  # once, where several processes run the tests
        objects.tidy()
