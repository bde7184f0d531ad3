"""Sequences of insertions into every policy: order, duplicates, key widths, growth, memory, and failure."""

import subprocess
import sys
import threading

import numpy as np
import pytest
import scipy.sparse

import sparsejax as sj
from sparsejax import config
from sparsejax.core.array import Array
from sparsejax.formats import Compressed, Coordinate, Format, convert, validate
from sparsejax.jit import pipeline
from sparsejax.jit.backend import compiler
from sparsejax.jit.backend.llvm import LLVMBuilder
from sparsejax.jit.backend.pretty import PrettyBuilder
from sparsejax.jit.codegen import lower
from sparsejax.jit.cost import workspace_choice, workspace_price
from sparsejax.jit.inspect import forecast
from sparsejax.jit.ir import cin, operators, policies
from sparsejax.jit.ir.nest import Nest, Producer
from sparsejax.jit.runtime import binding, plans
from sparsejax.jit.schedule import schedules
from tests import interpret
from tests.limits import needs_limits

pytestmark = pytest.mark.rotating(20)

POLICIES = list(policies.SPARSE)
HUGE = 2**40
VARIABLES = [cin.IndexVar(n) for n in "pijkl"]


def identity_of(op, dtype):
    return operators.get(op).identity(np.dtype(dtype))


def program_of(shape, dtype, op, policy, form=None):
    """out[i,j,..] op= X[p,i,j,..]: the entries of X are inserted in the order of p."""
    ndim = len(shape)
    indices = tuple(VARIABLES[1 : ndim + 1])
    identity = identity_of(op, dtype)
    source = cin.Tensor("X", (HUGE, *shape), dtype, Format((Compressed(), *(Coordinate(),) * ndim)), identity)
    form = form or Format((Coordinate(),) * ndim)
    target = cin.Access(cin.Tensor("t", shape, dtype, form, identity), indices)
    reading = cin.Access(source, (VARIABLES[0], *indices))
    output = cin.Tensor("out", shape, dtype, form, identity)
    nest = Nest(output, indices, (Producer(target, op, reading),), target)
    return pipeline.in_order(nest, schedules.unpriced((VARIABLES[0], *indices), policy)), source


def insert_all(coords, vals, shape, op, policy, form=None):
    """The storage that `policy` makes of entries inserted one by one."""
    program, source = program_of(shape, vals.dtype, op, policy, form)
    n = vals.size
    every = np.concatenate([np.arange(n)[None], coords.reshape(len(shape), n)])
    stored = convert.from_coords(every, vals, source.shape, source.format, source.fill_value)
    kernel = compiler.compile_text(lower.lower(program, LLVMBuilder()))
    return binding.Binding(kernel, program.output, op).run([stored])


def combined(coords, vals, op):
    """The sorted distinct coordinates and their combined values, by NumPy."""
    unique, where = np.unique(coords, axis=1, return_inverse=True)
    made = np.full(unique.shape[1], identity_of(op, vals.dtype), vals.dtype)
    {"add": np.add, "maximum": np.maximum}[op].at(made, where.reshape(-1), vals)
    return unique, made


def sequence(kind, n, shape, rng):
    """Coordinates of n insertions."""
    if kind == "random":
        return np.stack([rng.integers(0, e, n) for e in shape])
    if kind == "few":
        return np.stack([rng.integers(0, min(e, 9), n) for e in shape])
    if kind == "same":
        return np.stack([np.full(n, e - 1) for e in shape])
    place = np.linspace(0, 1, n) if kind == "ascending" else np.linspace(1, 0, n)
    first = (place * (shape[0] - 1)).astype(np.int64)
    return np.stack([first, *(np.full(n, e // 2) for e in shape[1:])])


SHAPES = [(5000,), (60, 70), (17, 3, 900), (HUGE,), (HUGE, HUGE), (2**31, 5, 2**33), (2**20, HUGE, 2**62, 3)]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sequences(policy, shape):
    if policy in workspace_choice.DENSE and max(shape) >= 2**20:
        pytest.skip("a bitmap holds every coordinate")
    rng = np.random.default_rng(3)
    for kind in ("random", "few", "same", "ascending", "descending"):
        for n in (0, 1, 2, 31, 33, 700, 20_000):
            for op, dtype in (("add", "i8"), ("maximum", "i2")):
                coords = sequence(kind, n, shape, rng)
                vals = rng.integers(-9, 9, n).astype(dtype)
                made = insert_all(coords, vals, shape, op, policy)
                validate.validate(made)
                got_coords, got_vals = convert.to_coords(made)
                want_coords, want_vals = combined(coords, vals, op)
                assert np.array_equal(got_coords, want_coords), (kind, n, op)
                assert np.array_equal(got_vals, want_vals), (kind, n, op)


COUNTS = (0, 3, 16, 17, 60, 96, 97, 300, 2000, 1, 780, 785, 5, 50_000, 96, 120)


def test_bitmaps_are_drained_in_every_way_and_left_empty():
    """Rows of a product, one use each: few keys, many, and between, among a hundred thousand."""
    extent, rng = 100_000, np.random.default_rng(5)
    columns = [np.sort(rng.choice(extent, n, replace=False)) for n in COUNTS]
    vals = rng.random(sum(COUNTS))
    rows = scipy.sparse.csr_array(
        (vals, np.concatenate(columns), np.append(0, np.cumsum(COUNTS))), (len(COUNTS), extent)
    )
    moved = scipy.sparse.csr_array(
        (rng.random(extent), rng.permutation(extent), np.arange(extent + 1)), (extent, extent)
    )
    with config.using(workspace="bitmap"):
        made = (sj.array(rows) @ sj.array(moved)).to_scipy()
    want = rows @ moved
    want.sort_indices()
    for ours, theirs in ((made.indptr, want.indptr), (made.indices, want.indices), (made.data, want.data)):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("n", COUNTS)
def test_bitmaps_of_several_variables(n):
    rng = np.random.default_rng(n)
    coords, vals = sequence("random", n, (300, 4000), rng), rng.random(n)
    got_coords, got_vals = convert.to_coords(insert_all(coords, vals, (300, 4000), "maximum", "bitmap"))
    want_coords, want_vals = combined(coords, vals, "maximum")
    np.testing.assert_array_equal(got_coords, want_coords)
    np.testing.assert_array_equal(got_vals, want_vals)


def test_words():
    assert workspace_price.words_of((2**62,)) == (0,)
    assert workspace_price.words_of((2**31, 2**32)) == (0, 0)
    assert workspace_price.words_of((2**32, 2**32)) == (0, 1)
    assert workspace_price.words_of((2**20, HUGE, 2**62, 3)) == (0, 0, 1, 2)
    assert workspace_price.words_of((1, 1, 0)) == (0, 0, 0)


def test_the_reference_can_fail():
    coords, vals = np.array([[1, 1, 0]]), np.array([1, 2, 3])
    unique, made = combined(coords, vals, "add")
    assert unique.tolist() == [[0, 1]] and made.tolist() == [3, 3]


def test_policies_are_chosen_per_call():
    """Inside `using`, a function that has run already is planned anew, once per policy; its result stays."""
    rng = np.random.default_rng(0)
    coords = rng.integers(0, 2000, (2, 6000))
    made = scipy.sparse.csr_array((rng.integers(1, 5, 6000).astype(np.float64), tuple(coords)), shape=(2000, 2000))
    a, b, expected = sj.array(made, format="csc"), sj.array(made, format="csr"), (made @ made).todense()
    product = sj.jit(lambda a, b: sj.einsum("ik,kj->ij", a, b, out_format="coo"))
    assert "as configured" not in product.lower(a, b).as_text("plan")
    for policy in [*POLICIES, *POLICIES]:
        with config.using(workspace=policy):
            assert f"workspace {policy}: as configured" in product.lower(a, b).as_text("plan")
            assert np.array_equal(product(a, b).todense(), expected)
    assert "as configured" not in product.lower(a, b).as_text("plan")
    (runner,) = plans.plan_of(product.trace(a, b).jaxpr).steps
    assert sorted(key[0] for key in runner.plans) == sorted(["auto", *POLICIES])


@pytest.mark.parametrize("choose", ["auto", "loop_order=dearest"])
@pytest.mark.parametrize("policy", POLICIES)
def test_another_policy_stands_in_where_one_cannot_hold_a_workspace(policy, choose):
    """A bitmap or marks of 2^40 places; blocks under dense levels fit both. Where the loop order was given, there was no plan."""
    coords = np.random.default_rng(0).integers(0, HUGE, (2, 20))
    few = Array(convert.from_coords(coords, np.arange(20.0), (HUGE, HUGE), Format((Compressed(),) * 2), np.float64(0)))
    tensor, weights = sj.array(np.arange(24.0).reshape(2, 3, 4), format="(q,d,c)@(0,1,2)"), sj.array(np.ones(3))

    def fill_in(A, x):
        return sj.einsum("ijk,j->ijk", A, x, out_format="(b,l,d)@(2,1,0)")

    def squared(A):
        return sj.einsum("ki,kj->ij", A, A)

    with config.using(workspace=policy, choose=choose):
        product = squared(few)
        assert np.array_equal(fill_in(tensor, weights).todense(), tensor.todense())
        text = str(sj.explain(squared)(few))
    order = np.lexsort(coords[[1]])
    assert np.array_equal(product.to_scipy().tocoo().col, coords[1, order])
    assert (f"{policy} is configured and cannot hold it" in text) == (policy in workspace_choice.DENSE)


def test_flag_chooses_the_policy():
    a = sj.array(scipy.sparse.eye_array(5000), format="csr")
    config.update("workspace", "bucket")
    try:
        assert "workspace bucket" in sj.jit(lambda a: a @ a).lower(a).as_text("plan")
        with config.using(workspace="hash"):
            assert "workspace hash" in sj.jit(lambda a: a @ a).lower(a).as_text("plan")
    finally:
        config.update("workspace", "auto")


def test_scopes_nest_and_stay_in_their_thread():
    seen = []
    with config.using(workspace="hash", dense_limit=5):
        with config.using(workspace="coordinate"):
            thread = threading.Thread(target=lambda: seen.append(config.workspace()))
            thread.start()
            thread.join()
            seen += [config.workspace(), config.dense_limit()]
        seen.append(config.workspace())
        with pytest.raises(KeyError), config.using(workspace="bucket"):
            raise KeyError
        seen.append(config.workspace())
    assert seen == ["auto", "coordinate", 5, "hash", "hash"] and config.workspace() == "auto"


def test_unknown_policy():
    with pytest.raises(ValueError, match="takes one of auto"):
        config.update("workspace", "heap")
    with pytest.raises(ValueError, match="takes one of auto"), config.using(workspace="heap"):
        pass
    with pytest.raises(ValueError, match="there is no flag"), config.using(policy="hash"):
        pass


@pytest.mark.parametrize("policy", POLICIES)
def test_loops_can_be_read(policy):
    program, _ = program_of((60, 70), np.dtype("f8"), "add", policy)
    text = lower.lower(program, PrettyBuilder())
    assert "kernel:" in text
    assert policy in workspace_choice.DENSE or "sort_1_8" in text


@pytest.mark.parametrize("policy", POLICIES)
def test_interpreter_knows_every_policy(policy):
    program, _ = program_of((3, 2), np.dtype("f8"), "add", policy)
    x = np.arange(24.0).reshape(4, 3, 2)
    small = {VARIABLES[0]: 4}
    stmt = program.stmt
    assert stmt is not None and small
    resized = cin.map_values(stmt, lambda e: _resized(e, x.shape))
    assert np.array_equal(interpret.interpret(resized, {"X": x}, program.output, "add"), x.sum(0))


def _resized(expr, shape):
    if isinstance(expr, cin.Access) and expr.tensor.name == "X":
        old = expr.tensor
        return cin.Access(cin.Tensor("X", shape, old.dtype, old.format, old.fill_value), expr.indices)
    return expr


SCRIPT = """
import resource, sys
import numpy as np
from tests.codegen.workspaces import test_policies as t
policy, room, n = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rng = np.random.default_rng(0)
small = np.stack([rng.integers(0, 2**40, 100) for _ in range(2)])
shape = (2**40, 2**40)
t.insert_all(small, np.ones(100), shape, "add", policy)
coords = np.stack([rng.integers(0, 2**40, n) for _ in range(2)])
vals = np.ones(n)
program, source = t.program_of(shape, vals.dtype, "add", policy)
stored = t.convert.from_coords(np.concatenate([np.arange(n)[None], coords]), vals, source.shape, source.format, source.fill_value)
kernel = t.compiler.compile_text(t.lower.lower(program, t.LLVMBuilder()))
run = t.binding.Binding(kernel, program.output, "add").run
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + room, used + room))
for _ in range(3):  # a leak of a failed call's memory would make the small one fail too
    try:
        run([stored])
    except MemoryError as error:
        assert "does not fit in memory" in str(error)
        print("no memory")
    else:
        print("fits")
assert len(t.insert_all(small, np.ones(100), shape, "add", policy).vals) == 100
print("survived")
"""


def limited(policy, room, n):
    command = [sys.executable, "-c", SCRIPT, policy, str(room), str(n)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "survived" in done.stdout, done.stderr[-2000:]
    return done.stdout


@needs_limits
@pytest.mark.parametrize("policy", [p for p in POLICIES if p not in workspace_choice.DENSE])
def test_memory_follows_the_entries(policy):
    """300,000 entries of 24 bytes over 2^80 coordinates fit into twice what inputs, result and workspace are declared to take;
    with less than the entries need, the call fails cleanly."""
    n = 300_000
    keys = Format((Coordinate(),) * 2)
    declared = forecast.workspace_bytes(cin.Tensor("w", (HUGE, HUGE), np.dtype("f8"), keys, 0.0, policy), n, n)
    assert declared < 200 * n
    inputs = result = 24 * n
    assert "no memory" not in limited(policy, 2 * (inputs + result + declared) - inputs, n)
    assert "fits" not in limited(policy, 14 << 20, n)


def test_bitmaps_do_not_follow_the_extents():
    """A product of few entries over 300,000 x 300,000 once asked for a bitmap of all places."""
    n = 300_000
    coords = np.random.default_rng(0).integers(0, n, (2, 1000))
    a = scipy.sparse.csr_array((np.ones(1000), tuple(coords)), shape=(n, n))
    made = sj.array(a) @ sj.array(a).T
    assert np.array_equal(made.to_scipy().sorted_indices().indices, (a @ a.T).sorted_indices().indices)
    assert workspace_choice.fits((2048, 2048), 8, 1.0) and not workspace_choice.fits((n, n), 8, 1e4)
    assert workspace_choice.choose((n, n), 8, 1e4, 1e4, 1.0).policy not in workspace_choice.DENSE
    assert workspace_choice.fits((n, n), 8, 1e11)
