"""An index of an access may be an expression: an entry of an array of integers, to any depth. What is asked of indices (`ir/indices.py`) is
enough for the scheduler and the rewrites: statements with such indices are scheduled in every loop order, rewritten, and interpreted; then as
machine code."""

from dataclasses import replace

import numpy as np
import pytest

from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Var
from sparsejax.formats import Format, convert
from sparsejax.jit import pipeline
from sparsejax.jit.cost import statistics
from sparsejax.jit.graph import fuse
from sparsejax.jit.ir import blocks, cin, infer_formats, nest
from sparsejax.jit.rewrite import iteration, parallelize
from sparsejax.jit.runtime import plan_cache
from sparsejax.jit.schedule import schedules, search
from tests import interpret
from tests.fuzz import definitions

SIZES = {"i": 3, "n": 4, "p": 5, "q": 2, "r": 6}
i, n, p, q, r = (cin.IndexVar(name) for name in SIZES)


def tensor(name, *shape, dtype="f8", format="dense"):
    dtype = np.dtype(dtype)
    return cin.Tensor(name, shape, dtype, Format.parse(format, len(shape)), dtype.type(0))


def read(name, *indices, rows=None, dtype="f8", format="dense"):
    """An access; what is no variable indexes `rows` coordinates."""
    shape = [SIZES[ix.name] if isinstance(ix, cin.IndexVar) else rows for ix in indices]
    return cin.Access(tensor(name, *shape, dtype=dtype, format=format), indices)


def product(*factors):
    made = factors[0]
    for factor in factors[1:]:
        made = cin.Call("multiply", (made, factor), made.dtype)
    return made


def numbers(name, *indices, rows=None):
    return read(name, *indices, rows=rows, dtype="i8")


X, Y, R, K = numbers("X", p, q), numbers("Y", q), numbers("R", p), numbers("K", p)
Z = numbers("Z", p, Y, rows=2)  # an index of an index


def arrays_of(kernel, seed=0):
    """Values for all inputs; the coordinates in an index array are within what they index."""
    rng, limits, made = np.random.default_rng(seed), {}, {}
    for access in (*kernel.reads, cin.Access(kernel.output, kernel.indices)):
        for size, index in zip(access.tensor.shape, access.indices, strict=True):
            if isinstance(index, cin.Access):
                limits[index.tensor.name] = min(size, limits.get(index.tensor.name, size))
    for t in kernel.inputs:
        if t.name in limits:
            made[t.name] = rng.integers(0, limits[t.name], t.shape)
        else:
            made[t.name] = rng.integers(-3, 4, t.shape).astype("f8") * (rng.random(t.shape) < (0.5 if t.lacks else 1))
    return made


def added(shape, place, values, op=np.add, start=0.0):
    made = np.full(shape, start)
    op.at(made, place, values)
    return made


P, Q = np.arange(5)[:, None], np.arange(2)[None, :]
CASES = {
    "gather": ((p, q, i), None, read("A", X, i, rows=7), lambda A, X: A[X]),
    "gathered sum": ((p, i), "add", read("A", X, i, rows=7), lambda A, X: A[X].sum(1)),
    "to any depth": ((p, i), "add", read("A", Z, i, rows=7), lambda A, Z, Y: A[Z[P, Y[Q]]].sum(1)),
    "two axes": ((p, q), None, read("A", R, Y, rows=6), lambda A, R, Y: A[R[:, None], Y[None]]),
    "one entry": ((i,), None, read("A", numbers("k"), i, rows=7), lambda A, k: A[k]),
    "two gathers": (
        (p,),
        "add",
        product(read("B", R, n, rows=7), read("B", K, n, rows=7)),
        lambda B, R, K: (B[R] * B[K]).sum(1),
    ),
    "its value too": (
        (p,),
        None,
        product(cin.Call("cast", (R,), np.dtype("f8")), read("a", R, rows=7)),
        lambda R, a: R * a[R],
    ),
    "sparse factor": (
        (r, i),
        "add",
        product(read("S", r, p, format="csr"), read("A", R, i, rows=7)),
        lambda S, R, A: S @ A[R],
    ),
    "sparse operand": (
        (p,),
        "add",
        product(read("S", R, n, rows=7, format="csr"), read("b", n)),
        lambda S, R, b: S[R] @ b,
    ),
    "scatter": (
        (R, n),
        "add",
        product(read("V", p), read("B", K, n, rows=7)),
        lambda V, B, K, R: added((8, 4), R, V[:, None] * B[K]),
    ),
    "scatter of what is no operand": ((R,), "add", read("V", q), lambda V, R: added((8,), R, V.sum())),
    "scatter at two indices": (
        (X, i),
        "add",
        read("A", p, i),
        lambda A, X: added((8, 3), X, np.broadcast_to(A[:, None], (5, 2, 3))),
    ),
    "scattered maximum": ((R,), "maximum", read("V", p), lambda V, R: added((8,), R, V, np.maximum, -np.inf)),
}


def kernel_of(name):
    indices, op, rhs, _ = CASES[name]
    out = read("out", *indices, rows=8).tensor
    return nest.of_definition(out, cin.Definition(indices, op, rhs))


def check(name, program, kernel, arrays):
    cin.check(program.stmt)
    got = interpret.interpret(program.stmt, arrays, program.output, kernel.op)
    np.testing.assert_array_equal(got, CASES[name][3](**arrays))


@pytest.mark.parametrize("name", CASES)
def test_every_loop_order(name):
    kernel = kernel_of(name)
    arrays = arrays_of(kernel)
    found = set()
    for order in nest.orders(kernel):
        try:
            program = pipeline.in_order(kernel, schedules.unpriced(order))
        except NotImplementedError:
            continue
        found.add(cin.as_text(program.stmt))
        check(name, program, kernel, arrays)
    assert found


@pytest.mark.parametrize("name", CASES)
def test_machine_code_in_every_loop_order(name):
    indices, op, rhs, meaning = CASES[name]
    kernel = kernel_of(name)
    arrays = arrays_of(kernel)
    storages = {t.name: convert.from_dense(arrays[t.name], t.format, t.fill_value) for t in kernel.inputs}
    for order in (None, *nest.orders(kernel)):
        definition = cin.Definition(indices, op, rhs)
        case = definitions.Case(0, definition, read("out", *indices, rows=8).tensor, arrays, storages, {}, order)
        np.testing.assert_array_equal(convert.to_dense(definitions.run(case)), meaning(**arrays))


def facts_of(kernel, entries=1.0):
    return statistics.Facts({t.name: (entries,) * t.format.ndim for t in kernel.inputs})


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("entries", [1.0, 1e5])
def test_the_scheduler_takes_it(name, entries):
    kernel = kernel_of(name)
    facts = facts_of(kernel, entries)
    chosen = search.choose(kernel, facts)
    program = iteration.planned(pipeline.program_of(kernel, chosen, facts))
    check(name, program, kernel, arrays_of(kernel, 1))


@pytest.mark.parametrize("name", CASES)
def test_names_and_arrays_change_inside_indices(name):
    """A kernel of which every variable and every array has another name, those inside indices too, computes the same."""
    kernel = kernel_of(name)
    variables = {t.name: Var(Aval(t.shape, t.dtype, t.format, t.fill_value)) for t in kernel.inputs}
    step = fuse.canonical(
        kernel, Var(Aval(kernel.output.shape, kernel.output.dtype, kernel.output.format, 0.0)), variables
    )
    arrays = arrays_of(kernel)
    given = {id(v): arrays[n] for n, v in variables.items()}
    moved = {t.name: given[id(v)] for t, v in zip(step.nest.inputs, step.arguments, strict=True)}
    assert not set(map(str, step.nest.variables)) - set("ijklmn")
    order = step.nest.variables
    program = pipeline.in_order(step.nest, schedules.unpriced(order))
    cin.check(program.stmt)
    got = interpret.interpret(program.stmt, moved, program.output, step.nest.op)
    np.testing.assert_array_equal(got, CASES[name][3](**arrays))


# ---------------------------------------------------------------------------------------------------------- questions


def test_questions():
    S = read("S", p, q, format="csr")
    place = cin.position_of(S)
    table = [  # index, follows, fixed, variables_of, accesses_of, entries_of, distinct variables
        (p, p, None, (p,), (), (), {p}),
        (2, None, 2, (), (), (), set()),
        (place, None, None, (p, q), (S,), (), {p, q}),
        (X, None, None, (p, q), (X,), (X,), set()),
        (Z, None, None, (p, q), (Y, Z), (Y, Z), set()),
    ]
    for index, walked, at, depends, accesses, entries, apart in table:
        assert (cin.follows(index), cin.fixed(index)) == (walked, at)
        assert cin.variables_of(index) == depends
        assert (cin.accesses_of(index), cin.entries_of(index)) == (accesses, entries)
        assert {v for v in (p, q, i) if cin.distinct(index, v)} == apart
        assert cin.known(index, depends) and not any(cin.known(index, depends[:k]) for k in range(len(depends)))
        assert cin.fault(index, depends) is None
    assert cin.followed([p, 2, place, X, q]) == [p, q]
    assert cin.extents([read("A", X, i, rows=7), X]) == {i: 3, p: 5, q: 2}


def test_known_once_its_arrays_are_reached():
    levels = {X: 1, Z: 2, Y: 1}

    def reached(access, level):
        return levels[access] > level

    assert not cin.known(X, {p, q}, reached)
    assert cin.known(Z, {p, q}, reached)
    levels[X] = 2
    assert cin.known(X, (), reached)


def test_reads_and_variables():
    access = read("A", Z, i, rows=7)
    assert str(access) == "A[Z[p,Y[q]],i]"
    assert cin.accesses(access) == (Y, Z, access)
    assert set(cin.variables(access)) == set(cin.bound_by(access)) == {p, q, i}
    write = cin.Assign(read("C", X, rows=8), "add", read("V", i))
    assert write.reads == (read("V", i), X)
    assert set(nest.patterns(access)) == {Y, Z}
    assert access != read("A", X, i, rows=7) and hash(access) == hash(read("A", Z, i, rows=7))


def test_renamed_and_moved_inside():
    access = read("A", Z, i, rows=7)
    assert str(cin.rename(access, {q: r})) == "A[Z[p,Y[r]],i]"
    assert str(cin.rename(access, {Z: p})) == "A[p,i]"
    assert str(cin.substitute(access, {Y: numbers("W", q)})) == "A[Z[p,W[q]],i]"
    with pytest.raises(AssertionError, match="read from an array"):
        cin.substitute(access, {Y: product(Y, Y)})
    beside = cin.Access(tensor("v", 9), (cin.position_of(read("S", p, q, format="csr")),))
    assert str(cin.rename(beside, {q: r})) == "v[@S[p,r]]"


def test_faults():
    def loops(index, *order):
        return cin.around(order, cin.Assign(read("out", p), None, read("a", index, rows=7)))

    cin.check(loops(X, p, q))
    with pytest.raises(ValueError, match=r"a\[X\[p,q\]\]: index variable q is not bound"):
        cin.check(loops(X, p))
    with pytest.raises(ValueError, match="its dtype is float64"):
        cin.check(loops(read("x", p), p))


def test_plans_are_told_apart_by_their_indices():
    one, other = kernel_of("gather"), kernel_of("gathered sum")
    texts = [plan_cache.spell(k) for k in (one, replace(one, value=cin.rename(one.value, {p: r})), other)]
    assert (len(set(texts)) == 3 and "Access('X'" in texts[0].replace("Tensor", "")) or "X" in texts[0]


def test_chunks_that_write_anywhere_have_partial_results():
    program = pipeline.in_order(kernel_of("scatter"), schedules.unpriced((p, n)))
    assert parallelize._partial(program) == "output"
    program = pipeline.in_order(kernel_of("gather"), schedules.unpriced((p, q, i)))
    assert parallelize._partial(program) == ""


def test_blocks():
    """The index array is split with its variables; what is read at computed coordinates is read without blocks."""
    bsr = read("S", i, n, format="bsr:3x2")
    rows = read("B", numbers("N", n), p, rows=6, format="bsr:3x5")
    kernel = nest.of_definition(read("out", i, p).tensor, cin.Definition((i, p), "add", product(bsr, rows)))
    made = blocks.split(blocks.adapted(kernel))
    assert str(made.reads[-1]) == "B[N[no,ni],p]"
    assert not any(t.format.blocked for t in made.inputs)


def test_formats_of_results():
    for indices, op, rhs, _ in CASES.values():
        shape = tuple(SIZES.get(str(ix), 8) for ix in indices)
        form, fill = infer_formats.infer(cin.Definition(indices, op, rhs), shape, rhs.dtype)
        assert (form, fill) == (Format.parse("dense", len(shape)), 0.0)
