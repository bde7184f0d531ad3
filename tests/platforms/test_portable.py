"""What other systems and processors have to do without, done without here: the same programs, in fresh processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparsejax import config
from sparsejax.jit.backend import host
from tests.platforms import programs

pytestmark = pytest.mark.rotating(24)

ROOT = Path(__file__).resolve().parents[2]
HOST = config.SKIPPABLE["host"]


SOME = [
    "spmm",
    "long_rows",
    "spgemm",
    "results_that_grow",
    "results_that_stay",
    "sums_with_all_digits",
    "gradients",
    "donation_and_reuse",
]
"""Programs that use all of it."""


def used(skipped, programs, folder):
    """What the programs use of this computer where they all are right."""
    environment = os.environ | {"SPARSEJAX_SKIP": ",".join(skipped), "SPARSEJAX_CACHE_DIR": str(folder)}
    command = [sys.executable, "-m", "tests.platforms.programs", *programs]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=900)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.rpartition("with")[2].split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Objects that several of these processes share: what is skipped makes other plans, and few other texts."""
    return tmp_path_factory.mktemp("objects")


@pytest.mark.parametrize("names", ["loader", "futex", "mremap", "masks gathers fma recycling", "entry"])
def test_without(names, folder):
    skipped = set(names.split())
    left = {name for name in HOST if not {name, host.NEEDS.get(name)} & skipped and host.has(name)}
    assert used(skipped, SOME, folder) == left


EVERY = list(dict.fromkeys(f.__name__ for f in programs.PROGRAMS + programs.SERIAL))


@pytest.mark.rotating(4)
@pytest.mark.parametrize("start", range(4))
def test_without_all_of_them(start, folder):
    assert used(HOST, EVERY[start::4], folder) == set()
