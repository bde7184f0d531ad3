"""Storages of small results that are used again: never while anybody sees them, and with nothing that was known of the result before."""

import gc
import random
import subprocess
import sys

import numpy as np
import pytest

import sparsejax as sj
from sparsejax import numpy as snp
from sparsejax.jit.backend import host
from sparsejax.jit.runtime.system import reuse
from tests.together import in_threads

used_again = pytest.mark.skipif(not host.has("recycling"), reason="memory of results is not used again here")

LOOKS = {
    "nnz": lambda y: y.nnz,
    "count": lambda y: int(snp.count_nonzero(y).item()),
    "csr": lambda y: y.asformat("csr") if y.ndim == 2 else y.asformat("csf"),
    "sum": lambda y: float(y.sum().item()),
    "max": lambda y: float(y.max().item()),
    "picked": lambda y: y[1:],
    "nonzero": lambda y: snp.nonzero(y),
    "todense": lambda y: y.todense(),
    "view": lambda y: np.asarray(y),
    "itself": lambda y: y,
    "mask": lambda y: y[y > 1.0],
    "coordinates": lambda y: y.asformat("coo") if y.ndim == 2 else snp.where(y > 1.0)[0],
}


def plain(value):
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    return np.asarray(value.todense() if isinstance(value, sj.Array) else value).copy()


def same(a, b):
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a.shape == b.shape and (a == b).all()


@pytest.mark.parametrize("shapes", [[(7,)], [(5, 4)], [(1, 1)], [(7,), (9,), (1,), (600,)], [(3, 4), (4, 3), (12, 1)]])
def test_nothing_is_known_of_the_result_before(shapes):
    """What is asked of results, of which some stay, is as of arrays that were made anew."""
    rng, draw, made = np.random.default_rng(3), random.Random(3), []
    f = sj.jit(lambda x: x * 2.0)
    for turn in range(300):
        shape = shapes[turn // draw.choice([1, 5, 20]) % len(shapes)]
        given = rng.integers(0, 3, shape) * 1.0
        at_once = turn % 2
        y = sj.array(given) * 2.0 if at_once else f(sj.array(given))
        if turn % 3 == 0:
            y = y + 0.0
        name = draw.choice(sorted(LOOKS))
        found = LOOKS[name](y)
        wanted = plain(LOOKS[name](sj.array(given * 2.0, copy=True)))
        assert same(plain(found), wanted), (name, turn)
        made.append((name, found, wanted))
        made = [m for m in made if draw.random() < 0.6]
        del y, found
        for kept, before, as_it_was in made:
            assert same(plain(before), as_it_was), kept


def test_results_of_many_threads():
    f, wrong = sj.jit(lambda x: (x + 1.0, x.sum())), []

    def work(number):
        draw, kept = random.Random(number), []
        for turn in range(400):
            value = float(number * 1000 + turn)
            x = sj.array(np.full(9, value))
            y, total = f(x)
            kept.append((x * 1.0, y, total, value))
            kept = [k for k in kept if draw.random() < 0.7]
            for one, other, sums, v in kept:
                if (np.asarray(one) != v).any() or (np.asarray(other) != v + 1).any() or sums.item() != 9 * v:
                    wrong.append((number, turn))

    in_threads(4, work)
    assert not wrong


@used_again
def test_two_storages_take_turns():
    f, y, seen = sj.jit(lambda x: x + 1.0), sj.array(np.zeros(5)), set()
    for _ in range(30):
        y = f(y)
        seen.add(id(y._storage))
    assert len(seen) <= 2 and (np.asarray(y) == 30).all()


@used_again
def test_what_was_found_out_goes_with_the_result():
    f, x = sj.jit(lambda x: x + 1.0), sj.array(np.arange(6.0))
    first, second = f(x), f(x)
    for y in (first, second):
        assert y.asformat("csf").nnz
        y._storage.cache["of this result"] = True
    del first, second, y
    gc.collect()
    for _ in range(4):
        y = f(x)
        assert set(y._storage.cache) == {"slots", "maker"}


@used_again
def test_what_keeps_little_counts_for_more():
    """Of many functions with small results, memory that is kept is bounded by what it takes with all that is noted."""
    assert reuse.Recycled()._weight(np.zeros(1)) == reuse.LEAST
    before = len(reuse._all._keepers)
    functions = [sj.jit(lambda x, k=k: x + float(k)) for k in range(5)]
    x = sj.array(np.zeros(3))
    for f in functions:
        f(x)
    assert len(reuse._all._keepers) <= max(before + 5, reuse.ALTOGETHER // reuse.LEAST)


@pytest.mark.parametrize("how", ["sys.settrace(look)", "sys.setprofile(look)"])
def test_results_stay_where_a_debugger_looked_at_the_import(how):
    """What looks at the variables of a frame refers to them: references are counted while it does."""
    code = f"""
import sys
def look(frame, event, arg):
    frame.f_locals
    return look
{how}
import sparsejax as sj
sys.settrace(None), sys.setprofile(None)
import numpy as np
f, step = sj.jit(lambda x: x + 1), sj.jit(lambda x: x + 1, donate_argnums=0)
for n in (1, 50, 2_000, 10_000):
    kept = []
    for k in range(12):
        y = f(np.full(n, float(k)))
        kept.append((np.asarray(y) if k % 2 else y, k + 1))
        if k % 3 == 0:
            held = np.asarray(z := f(np.full(n, float(k))))
            kept += [(held, k + 1), (step(z), k + 2)]
        del y
    assert all((np.asarray(y) == k).all() for y, k in kept), n
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
