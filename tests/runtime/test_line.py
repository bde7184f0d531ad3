"""What warm calls run (`jit.line`, `jit.library_call`, `Binding.quick`): the same results, into memory that nobody else refers to."""

import dataclasses
import gc
import math
import weakref

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import lax
from sparsejax.formats import Format
from sparsejax.formats.storage import Storage
from sparsejax.jit.ir.bounded import Bounded
from sparsejax.jit.runtime import kernels, library_call, sequence
from sparsejax.jit.runtime.system import result_memory
from tests.together import in_threads


@pytest.fixture
def layer():
    rng = np.random.default_rng(0)
    A = np.where(rng.random((60, 60)) < 0.1, rng.standard_normal((60, 60)), 0)
    return A, rng.standard_normal((60, 16)), rng.standard_normal((16, 16))


def plan_of(function):
    (traced,) = function._cache.values()
    return traced.closed.cache["plan"]


def relu(A, H, W):
    return snp.maximum(A @ (H @ W), 0)


@pytest.mark.parametrize("rows", [40, 400, 4000])
def test_products_of_dense_arrays_begin_with_a_line(rows):
    """Their readers read whole lines, whether memory is kept, NumPy's or the allocator's."""
    X, W = np.ones((rows, 16)), np.eye(16)
    product = sj.jit(lambda X, W: X @ W)
    for _ in range(3):
        made = product(X, W)
        assert np.asarray(made.storage.vals).ctypes.data % 64 == 0
        np.testing.assert_array_equal(made.todense(), X)


def test_memory_between_steps_is_used_again(layer):
    A, H, W = (sj.array(x, format=f) for x, f in zip(layer, ("csr", "dense", "dense"), strict=True))
    function, wanted = sj.jit(relu), np.maximum(layer[0] @ (layer[1] @ layer[2]), 0)
    made = [function(A, H, W) for _ in range(4)]
    (step,) = (s for s in plan_of(function)._line.steps if isinstance(s, library_call.NumPyCall))
    product = step
    assert len(product._recycled.kept) == 1
    seen = product._recycled.kept[0][0]
    made.append(function(A, H, W))
    assert len(product._recycled.kept) == 2, "memory that somebody looks at was used again"
    del seen
    for y in made:
        np.testing.assert_allclose(y.todense(), wanted)


def test_results_keep_their_memory(layer):
    """A value that is also a result, or seen through a view that is one, is never overwritten by a later call."""
    A, H, W = (sj.array(x, format=f) for x, f in zip(layer, ("csr", "dense", "dense"), strict=True))
    functions = {
        "returned": lambda A, H, W: (lambda X: (X, A @ X))(H @ W),
        "viewed": lambda A, H, W: (lambda X: (X.reshape(-1), A @ X))(H @ W),
        "transposed": lambda A, H, W: (lambda X: (X.T, A @ X))(H @ W),
        "kernels": lambda A, H, W: (lambda X: (X, snp.exp(X).sum(axis=0) @ W))(A @ H),
    }
    for name, function in functions.items():
        compiled = sj.jit(function)
        first = compiled(A, H, W)
        seen = [x.todense().copy() for x in first]
        for k in range(3):
            compiled(A, sj.array(layer[1] * (k + 2)), W)
        for x, y in zip(first, seen, strict=True):
            np.testing.assert_array_equal(x.todense(), y, err_msg=name)


def test_threads_share_no_memory_between_steps(layer):
    A, _, W = (sj.array(x, format=f) for x, f in zip(layer, ("csr", "dense", "dense"), strict=True))
    function, wrong = sj.jit(relu), []

    def work(seed):
        H = np.random.default_rng(seed).standard_normal((60, 16))
        wanted = np.maximum(layer[0] @ (H @ layer[2]), 0)
        for _ in range(200):
            if not np.allclose(function(A, H, W).todense(), wanted):
                wrong.append(seed)

    in_threads(4, work)
    assert not wrong


def test_products_of_dense_matrices_in_every_order():
    rng = np.random.default_rng(1)
    for dtype in ("f8", "f4", "c16", "i8", "?"):
        X, Y = ((rng.random(s) * 4).astype(dtype) for s in ((5, 7), (7, 3)))
        for left in (X, X.T.copy()):
            for right in (Y, Y.T.copy()):
                for out in ("ij", "ji"):
                    terms = f"{'ik' if left is X else 'ki'},{'kj' if right is Y else 'jk'}->{out}"
                    made = sj.jit(lambda a, b, terms=terms: sj.einsum(terms, a, b))(left, right)
                    np.testing.assert_allclose(made.todense(), np.einsum(terms, left, right), rtol=1e-5)
    for shapes in (((3, 0), (0, 4)), ((0, 3), (3, 4)), ((3, 0), (0,)), ((2, 3), (3,))):
        a, b = (rng.random(s) for s in shapes)
        np.testing.assert_allclose(sj.jit(lambda a, b: a @ b)(a, b).todense(), a @ b)


def test_a_plan_for_other_facts_takes_the_place_of_the_last():
    """The shortest road is for the facts and settings of the last plan alone."""
    rng = np.random.default_rng(2)
    product, x = sj.jit(lambda A, x: A @ x), rng.standard_normal(300)
    dense = [np.where(rng.random((300, 300)) < p, 1.0, 0) for p in (0.001, 0.3)]
    arrays = [sj.array(d, format="csr") for d in dense]
    for k in (0, 1, 0, 1, 1):
        np.testing.assert_allclose(product(arrays[k], x).todense(), dense[k] @ x)
    runner = product._last.kernel
    assert isinstance(runner, kernels.KernelRunner)
    assert len(runner.plans) == 2
    with sj.config.using(workspace="hash"):
        np.testing.assert_allclose(product(arrays[1], x).todense(), dense[1] @ x)
    assert len(runner.plans) == 3


def test_several_results_constants_and_trees_take_the_shortcut(layer):
    A, H, W = (sj.array(x, format=f) for x, f in zip(layer, ("csr", "dense", "dense"), strict=True))
    for function in (
        lambda H: A @ H,
        lambda H: (A @ H, H.sum()),
        lambda H: {"a": A @ H, "b": [H + 1, H]},
        lambda H: (A @ H, (H @ W, None)),
    ):
        compiled = sj.jit(function)
        wanted, again = compiled(H), compiled(H)
        assert compiled._last is not None
        assert sj.tree_util.tree_structure(wanted) == sj.tree_util.tree_structure(again)
        for x, y in zip(sj.tree_util.tree_leaves(wanted), sj.tree_util.tree_leaves(again), strict=True):
            np.testing.assert_array_equal(x.todense(), y.todense())


def test_results_that_are_operands_of_one_call_are_copies():
    """NumPy's arrays are viewed for the call alone, also on the shortest road."""
    same, mixed = sj.jit(lambda x: x.reshape(2, 2)), sj.jit(lambda x: (x, x + 1))
    for _ in range(3):
        x = np.arange(4.0)
        y, (z, _) = same(x), mixed(x)
        x[:] = -1
        np.testing.assert_array_equal(y.todense().ravel(), np.arange(4.0))
        np.testing.assert_array_equal(z.todense(), np.arange(4.0))


def test_memory_is_not_kept_where_it_is_large():
    rng = np.random.default_rng(3)
    n = result_memory.SMALLEST // 8 // 16 + 1
    A, H, W = sj.array(np.eye(n), format="csr"), sj.array(rng.random((n, 16))), sj.array(rng.random((16, 16)))
    function = sj.jit(relu)
    for _ in range(3):
        np.testing.assert_allclose(function(A, H, W).todense(), H.todense() @ W.todense())
    assert not any(s._recycled for s in plan_of(function)._line.steps if isinstance(s, library_call.NumPyCall))
    gc.collect()


def test_conversions_outside_jit_give_what_the_compiler_gives():
    dense = np.where(np.random.default_rng(4).random((9, 7)) < 0.4, 2.0, 1.0)
    A = sj.array(dense, format="coo", fill_value=1.0)
    for form in ("csr", "csc", "dense", "ell"):
        eager, staged = A.asformat(form), sj.jit(lambda A, form=form: A.asformat(form))(A)
        assert eager.aval == staged.aval
        np.testing.assert_array_equal(eager.todense(), dense)
        np.testing.assert_array_equal(staged.todense(), dense)


def test_plans_are_freed_at_once(layer):
    """Nothing in a plan refers to itself, so that machine code goes with its function, without the garbage collector."""
    A, H, W = (sj.array(x, format=f) for x, f in zip(layer, ("csr", "dense", "dense"), strict=True))
    gc.collect()
    gc.disable()
    try:
        function = sj.jit(lambda A, H, W: lax.cond(H[0, 0] > 100, lambda: W, lambda: W * 2) + snp.sum(relu(A, H, W)))
        for _ in range(2):
            function(A, H, W)
        plan = weakref.ref(plan_of(function))
        runners = [weakref.ref(s) for s in plan().steps if isinstance(s, kernels.KernelRunner)]
        assert runners
        del function
        assert plan() is None
        assert all(r() is None for r in runners)
    finally:
        gc.enable()


class Noted:
    """A step whose results spell what it read, and the shape that it was told."""

    def __init__(self, name, several, tried):
        self.name, self.several, self.tried = name, several, tried

    def first(self, inputs, shape):
        self.tried += 1
        return self.result(0, inputs, shape) if self.tried % 2 else None

    def call(self, inputs, *sized):
        assert not sized or sized[1](BOUND) == EXTENTS["n"]
        made = [self.result(k, inputs, *sized[:1]) for k in range(max(1, self.several))]
        return made if self.several else made[0]

    def result(self, number, inputs, *shape):
        return f"{self.name}.{number}({','.join(map(str, inputs))}){shape}"


BOUND, EXTENTS = Bounded.named("n", 300), {"n": 260, "m": 33}


def random_layout(rng, sized):
    """Steps that read random registers, some with several results, some tried first, with the registers that die after each."""
    operands, literals, count = (int(n) for n in rng.integers((0, 0, 1), (4, 3, 20)))
    several = [int(rng.integers(1, 4)) if rng.random() < 0.2 else 0 for _ in range(count)]
    first, reads, made = operands + literals, [], []
    for n in several:
        reads.append(tuple(rng.integers(0, first, rng.integers(0, 4)).tolist()) if first else ())
        made.append(tuple(range(first, first + max(1, n))))
        first += max(1, n)
    results = tuple(rng.integers(operands + literals, first, rng.integers(1, 4)).tolist())
    last = {k: n for n, read in enumerate(reads) for k in read}
    dead = [
        tuple(k for k in dict.fromkeys(read) if k >= operands + literals and last[k] == n and k not in results)
        for n, read in enumerate(reads)
    ]
    extents = [BOUND, 3, Bounded.named("m", 40)]
    shapes = tuple(tuple(extents[k] for k in rng.integers(0, 3, rng.integers(0, 3))) for _ in range(count))
    tried = frozenset(k for k in range(count) if sized and not several[k] and rng.random() < 0.5)
    checks = ((),) * count
    flags = tuple(n > 0 for n in several)
    layout = sequence.Layout(operands, literals, tuple(reads), tuple(made), flags, tuple(dead), results, checks)
    return dataclasses.replace(layout, shapes=shapes, tried=tried) if sized else layout, several


@pytest.mark.parametrize("sized", [False, True])
def test_steps_written_out_read_the_same_registers(sized):
    """Random rows of steps, called until they are written out, against the loop over registers."""
    rng = np.random.default_rng(0)
    change = [lambda n: EXTENTS[n.name] if type(n) is Bounded else n] if sized else []
    for _ in range(200):
        layout, several = random_layout(rng, sized)
        steps = [Noted(f"s{k}", n, int(k % 2)) for k, n in enumerate(several)]
        given, held = [f"x{k}" for k in range(layout.operands)], [f"c{k}" for k in range(layout.literals)]
        line = sequence.Line(layout, steps, held)
        wanted = layout.run(steps, [*given, *held], change)
        looped = line.call
        for _ in range(sequence.LOOPED):
            assert line.call(given, *change) == wanted
            assert line.call is looped
        for _ in range(4):
            assert line.call(given, *change) == wanted
        assert line.call is not looped


@pytest.mark.parametrize("sized", [False, True])
def test_values_are_looked_at_before_the_step_that_needs_them(sized):
    """Looped over or written out, a line gives None where a value is not moderate, as soon as it is there."""
    form, rng = Format.parse("dense", 1), np.random.default_rng(1)

    class Doubled:
        def __init__(self, log):
            self.log = log

        def call(self, inputs, *sized):
            self.log.append(len(inputs))
            with np.errstate(over="ignore"):
                return Storage(form, (2,), np.float64(0), ((),), inputs[0].vals * 2)

    layout = sequence.Layout(
        1, 0, ((0,), (1,)), ((1,), (2,)), (False, False), ((), (1,)), (2,), ((), ((1, 0.0, 2), (0, math.inf, 2)))
    )
    if sized:
        layout = dataclasses.replace(layout, shapes=((2,), (2,)))
    change = [lambda n: n] if sized else []
    log = []
    line = sequence.Line(layout, [Doubled(log), Doubled(log)], [])
    for _ in range(2 * sequence.LOOPED + 3):
        wrong = rng.random() < 0.5
        log.clear()
        vals = np.array([1.0, rng.choice([np.nan, np.inf, 1e308]) if wrong else 3.0])
        found = line.call([Storage(form, (2,), np.float64(0), ((),), vals)], *change)
        assert (found is None) == wrong
        assert len(log) == (1 if wrong else 2)
        assert wrong or found.vals.tolist() == [4.0, 12.0]


@pytest.mark.parametrize("name", ["several", "one of several", "branches"])
def test_steps_of_several_results_come_back(name):
    """Steps that make lists are never written out as if they made one value."""
    functions = {
        "several": lambda A: snp.nonzero(A)[0] + snp.nonzero(A)[1],
        "one of several": lambda A: (
            snp.unique(A.todense() if isinstance(A, np.ndarray) else A.asformat("dense"))[:1] * 2
        ),
        "branches": lambda A: lax.cond(A.sum() > 0, lambda x: x * 2, lambda x: x * 3, A.sum(axis=0)),
    }
    rng = np.random.default_rng(3)
    dense = np.where(rng.random((20, 20)) < 0.3, rng.integers(1, 9, (20, 20)), 0).astype(float)
    A, function = sj.array(dense, format="csr"), functions[name]
    wanted = np.asarray(function(A))
    for _ in range(sequence.LOOPED + 4):
        np.testing.assert_array_equal(function(A), wanted)
