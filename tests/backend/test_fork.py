"""A process may fork while other threads compile: the child compiles and runs kernels."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import sparsejax

ENDED = """
import os, time

def ended(child):
    for _ in range(1200):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert status == 0, status
            return
        time.sleep(0.05)
    os.kill(child, 9)
    raise SystemExit("the child hangs")
"""
"""Waits for a child that must end well."""


def forked(script):
    """Run a script that forks, in a process of its own, to its end."""
    command = [sys.executable, "-W", "ignore", "-c", ENDED + script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0 and "forked" in done.stdout, done.stderr[-2000:]


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
    ended(child)
stop = True
print("forked")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_compiles_while_the_parent_did():
    forked(SCRIPT)


HELD = """
import os, threading, time
import numpy as np, sparsejax as sj
from sparsejax import forks

x = np.arange(12.0).reshape(3, 4) % 5
a = sj.array(x, format="csr", copy=True)
f = sj.jit(lambda a: a * 2.0 + a)
f(a)
f(sj.array(x[:2], format="csr", copy=True))
lock = type(threading.Lock()), type(threading.RLock()), threading.Condition
held, ready, free = [], threading.Event(), threading.Event()

def hold():
    for found, made in list(forks._made.values()):
        for name in made:
            what = getattr(found(), name)
            if isinstance(what, lock) and what.acquire(timeout=5):
                held.append(what)
    ready.set()
    free.wait()

threading.Thread(target=hold, daemon=True).start()
ready.wait()
assert len(held) > 15, len(held)
child = os.fork()
if child == 0:
    good = np.array_equal(f(sj.array(x[1:], format="csr", copy=True)).todense(), 3 * x[1:])
    good &= np.array_equal(sj.jit(lambda a: a * 3.0 + a * a)(a).todense(), x * 3.0 + x * x)
    good &= np.array_equal((a @ a.T).todense(), x @ x.T)
    os._exit(0 if good else 1)
ended(child)
print("forked")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_waits_for_no_lock_of_the_parent():
    """Another thread holds all locks at the fork."""
    forked(HELD)


FREED = {"jit/function.py": 1, "jit/runtime/system/pool.py": 1, "jit/runtime/system/threads.py": 1}
"""Locks that belong to something that a child makes anew as a whole."""
AROUND = {"jit/backend/compiler.py", "jit/runtime/kernels.py"}
"""Who holds its lock during a fork."""


def test_every_lock_is_made_anew():
    """A lock that a module or object makes stands in a call of `forks.anew`; `functools.cached_property` has one under Python 3.11."""
    root = Path(sparsejax.__file__).parent
    for path in sorted(root.rglob("*.py")):
        name, tree = path.relative_to(root).as_posix(), ast.parse(path.read_text())
        if name == "forks.py" or name in AROUND:
            continue
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        made = sum(ast.unparse(c.func) in ("threading.Lock", "threading.RLock", "threading.Condition") for c in calls)
        anew = [k.value for c in calls if ast.unparse(c.func) == "forks.anew" for k in c.keywords]
        assert made == sum(ast.unparse(v).startswith("threading.") for v in anew) + FREED.get(name, 0), name
        used = (node for node in ast.walk(tree) if isinstance(node, (ast.Attribute, ast.ImportFrom)))
        for node in used:
            assert ast.unparse(node) not in ("functools.cached_property", "from functools import cached_property"), name
