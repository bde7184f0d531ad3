"""A process may fork while other threads compile: the child compiles and runs kernels."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import os, sys, threading, time
import numpy as np, sparsejax as sj

x = np.arange(12.0).reshape(3, 4) % 5
a = sj.array(x, format="csr", copy=True)
stop = False

def compile_more():
    k = 0
    while not stop:
        k += 1
        f = sj.jit(lambda a: sum([a * float(n) for n in range(k % 5 + 2)], a))
        f(a)
        sj.jit(lambda a, k=k: a @ sj.array(np.ones((4, k)), copy=True))(a)

threads = [threading.Thread(target=compile_more, daemon=True) for _ in range(3)]
for t in threads:
    t.start()
for n in range(6):
    time.sleep(0.02 * n)
    child = os.fork()
    if child == 0:
        good = np.array_equal(sj.jit(lambda a: a * (n + 2.0) + a * a)(a).todense(), x * (n + 2.0) + x * x)
        os._exit(0 if good else 1)
    for _ in range(600):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.05)
    else:
        os.kill(child, 9)
        raise SystemExit("the child hangs")
    assert status == 0, status
stop = True
print("forked")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_compiles_while_the_parent_did():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", SCRIPT], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0 and "forked" in done.stdout, done.stderr[-2000:]
