"""Running out of memory inside a kernel is an exception, and the process goes on."""

import subprocess
import sys

from tests.limits import needs_limits

SCRIPT = """
import resource
import numpy as np
import sparsejax as sj

x = sj.array(np.ones(40_000), format="csf", copy=True)
product = sj.jit(lambda x, y: sj.einsum("i,j->ij", x, y))
small = sj.array(np.ones(3), format="csf", copy=True)
assert float(product(small, small).sum()) == 9
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), used + (1 << 30)))
for _ in range(3):  # a leak of the failed buffers would make the small product fail too
    try:
        product(x, x)
    except MemoryError as error:
        assert "does not fit in memory" in str(error)
    else:
        raise SystemExit("no MemoryError")
assert float(product(small, small).sum()) == 9
print("survived")
"""


@needs_limits
def test_failed_growth_raises_and_frees():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "survived" in done.stdout, done.stderr[-2000:]
