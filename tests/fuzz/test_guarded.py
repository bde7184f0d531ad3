"""Kernels read nothing outside of their operands: random definitions, each buffer between pages that nobody may touch, in a process of their own."""

import os
import subprocess
import sys

import pytest

BATCH = 60


def ran(*code):
    return subprocess.run([sys.executable, *code], capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.rotating(12)
@pytest.mark.parametrize("start", range(0, 2400, BATCH))
def test_nothing_outside_of_operands_is_read(start):
    done = ran("-m", "tests.fuzz.guarded", f"{start}:{start + BATCH}")
    assert done.returncode == 0, f"after seed {done.stdout.split()[-1:]}: {done.stderr[-2000:]}"
    assert done.stdout.split() == [str(seed) for seed in range(start, start + BATCH)]


@pytest.mark.skipif(os.name != "posix", reason="the system has no mprotect")
@pytest.mark.parametrize("at_end", [False, True])
def test_one_element_too_many_ends_the_process(at_end):
    read = f"""
import numpy as np
from tests.fuzz.guarded import between
made = between(np.arange(5.0), {at_end})
assert made.tolist() == [0, 1, 2, 3, 4]
place = made.ctypes.data + ({at_end} and made.nbytes or -8)
print("alive", flush=True)
import ctypes
ctypes.c_double.from_address(place).value
print("read", flush=True)
"""
    done = ran("-c", read)
    assert done.stdout == "alive\n" and done.returncode < 0
