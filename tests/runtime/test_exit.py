"""What outlives the interpreter's modules: arrays that are freed last, and finalizers that call compiled functions."""

import subprocess
import sys

SCRIPT = """
import builtins, codecs, sys
import numpy as np
import sparsejax as sj

class Last:
    def __init__(self, *held):
        self.f, self.x, self.y, self.C = held

    def __del__(self):
        shapes.append((self.f(self.x) + self.y).shape)  # compiled before; large enough for threads

builtins.shapes = []
x = np.ones(1 << 20)
f = sj.jit(lambda x: x + 1)
y = f(x)
A = sj.array(np.ones((300, 300)), format="csr")
C = A @ A
kept = Last(f, x, y + y, C)
sys.kept = Last(f, x, y, C)
cycle = Last(f, x, y, C)
cycle.me = cycle
builtins.kept = f(x), A @ A
codecs.kept = f(x), A @ A
"""


def test_the_end_of_the_interpreter_is_quiet():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
