"""Tests that run out of memory on purpose: in processes that limit their own address space."""

import subprocess
import sys

import pytest

TRIAL = """
import mmap, resource
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
try:
    mmap.mmap(-1, 2 << 30)
except OSError:
    print("limited")
"""


def _can_limit() -> bool:
    """Whether limits hold: QEMU takes no notice of those of the programs that it emulates."""
    if sys.platform != "linux":
        return False
    return "limited" in subprocess.run([sys.executable, "-c", TRIAL], capture_output=True, text=True).stdout


needs_limits = pytest.mark.skipif(not _can_limit(), reason="no process can limit its own address space here")
