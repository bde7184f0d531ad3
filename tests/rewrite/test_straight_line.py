"""Products with a constant whose entries are written out: random products, as statements that the interpreter runs, and as machine code, against
`numpy.einsum`; what is legal and what pays; derivatives, batches, threads, static arguments, and the keys of plans."""

import itertools
import pickle
import random
import re
from dataclasses import dataclass

import numpy as np
import pytest

import sparsejax as sj
from sparsejax.formats import Dense, Format
from sparsejax.jit import pipeline
from sparsejax.jit.ir import choices, cin, nest, static_products
from sparsejax.jit.rewrite import straight_line
from sparsejax.jit.runtime import plan_cache
from sparsejax.jit.schedule import schedules
from tests import interpret
from tests.fuzz.levels import INPUTS, random_format
from tests.golden import kernels as golden
from tests.prices import priced
from tests.rewrite import written_out

STATIC = "constants=static"
FIXED, LOOPS = "pijk", "buwv"
DTYPES = ("f4", "f8", "f8", "c8", "c16", "i4", "i8")


@dataclass
class Case:
    """A product: letters of the constant, of the factors and of the result, and their values."""

    seed: int
    constant: str
    factors: list
    out: str
    arrays: list
    format: Format
    fill: int = 0

    def __str__(self):
        return f"seed {self.seed}: {self.subscripts} {self.format} {[a.dtype.str for a in self.arrays]} {[a.shape for a in self.arrays]}"

    @property
    def subscripts(self):
        return f"{','.join([self.constant, *self.factors])}->{self.out}"

    @property
    def text(self):
        operands = " * ".join(
            f"A{k}[{','.join(ls)}]" if ls else f"A{k}" for k, ls in enumerate([self.constant, *self.factors])
        )
        return f"Out[{','.join(self.out)}] = {operands}"

    def expected(self):
        return np.einsum(self.subscripts, *self.arrays)

    def program(self):
        constant = sj.array(self.arrays[0], format=self.format, fill_value=self.fill)

        def run(*factors):
            return sj.insum(self.text, A0=constant, **{f"A{k}": x for k, x in enumerate(factors, 1)})

        return run


def case_of(seed):
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    fixed = rng.sample(FIXED, rng.randint(1, 4))
    loops = rng.sample(LOOPS, rng.randint(1, 3))
    extents = {v: rng.randint(1, 4) for v in fixed} | {v: rng.choice((1, 2, 3, 8, 9, 17, 20)) for v in loops}
    everything = [*fixed, *loops]
    factors = []
    for _ in range(rng.randint(1, 4)):
        own = rng.sample(everything, min(rng.choice((0, *(1, 2, 3) * 5)), len(everything)))
        if len(own) > 1 and own[0] in fixed and rng.random() < 0.1:
            own[1] = own[0]  # a diagonal
        factors.append("".join(own))
    constant = "".join(rng.sample(fixed, len(fixed)))
    if len(constant) < 4 and rng.random() < 0.1:
        constant += constant[0]
    used = [v for v in everything if v in constant or any(v in f for f in factors)]
    out = "".join(rng.sample(used, rng.randint(0, min(4, len(used) - 1))))
    dtypes = [rng.choice(DTYPES)] * (len(factors) + 1)
    if rng.random() < 0.2:
        dtypes = [rng.choice(DTYPES) for _ in dtypes]

    def array(letters, dtype, density=1.0):
        shape = [extents[v] for v in letters]
        made = numbers.integers(-3, 4, shape) + (1j * numbers.integers(-2, 3, shape) if dtype[0] == "c" else 0)
        return np.where(numbers.random(shape) < density, made, 0).astype(dtype)

    density = rng.choice((0.0, 0.1, 0.4, 0.8, 1.0))
    arrays = [array(constant, dtypes[0], density), *(array(f, d) for f, d in zip(factors, dtypes[1:], strict=True))]
    blocks = [rng.choice((1, 1, 2, 3)) for _ in constant] if rng.random() < 0.3 else None
    form = random_format(rng, len(constant), [lv for lv in INPUTS if lv.unique], blocks)
    fill = rng.choice((0, 0, 0, 0, 0, 0, 0, 2)) if not form.is_dense else 0
    return Case(seed, constant, factors, out, arrays, form, fill)


# ------------------------------------------------------------------------------------------------------------ statements


def nest_of(case):
    """The kernel of a case, with its constant."""
    dtype = np.result_type(*case.arrays)
    factors = []
    for k, (array, letters) in enumerate(zip(case.arrays, [case.constant, *case.factors], strict=True)):
        form = Format((Dense(),) * array.ndim)
        tensor = cin.Tensor(f"A{k}", array.shape, array.dtype, form, array.dtype.type(0))
        if k == 0:
            held = static_products.constant_of(sj.array(array, format="coo").storage)
            tensor = tensor._replace(constant=held)
        access = cin.Access(tensor, tuple(map(cin.IndexVar, letters)))
        factors.append(access if array.dtype == dtype else cin.Call("cast", (access,), dtype))
    rhs = factors[0]
    for factor in factors[1:]:
        rhs = cin.Call("multiply", (rhs, factor), dtype)
    sizes = dict(zip("".join([case.constant, *case.factors]), (n for a in case.arrays for n in a.shape), strict=True))
    shape = tuple(sizes[v] for v in case.out)
    output = cin.Tensor("out", shape, dtype, Format((Dense(),) * len(shape)), dtype.type(0))
    return nest.of_definition(output, cin.Definition(tuple(map(cin.IndexVar, case.out)), "add", rhs))


def in_blocks(array, tensor):
    """An array as a tensor whose dimensions are read as two has it, padded with zeros."""
    shape, pads, dimension = [], [], 0
    for d, n in enumerate(tensor.shape):
        if d + 1 in tensor.paired:
            size = tensor.shape[d + 1]
            pads.append((0, n * size - array.shape[dimension]))
        elif d not in tensor.paired:
            pads.append((0, 0))
        dimension += d not in tensor.paired
        shape.append(n)
    return np.pad(array, pads).reshape(shape) if array.ndim else array


@pytest.mark.rotating(3)
@pytest.mark.parametrize("seed", range(400))
def test_the_interpreter_runs_the_statement(seed):
    case = case_of(seed)
    if not case.arrays[0].ndim:
        pytest.skip("a number")
    kernel = nest_of(case)
    program = straight_line.program(kernel)
    if program is None:
        return
    cin.check(program.stmt)
    arrays = {t.name: in_blocks(a, t) for t, a in zip(program.inputs, case.arrays, strict=True)}
    got = interpret.interpret(program.stmt, arrays, program.output, "add")
    shape = case.expected().shape
    full = []
    for d, n in enumerate(program.output.shape):
        if d in program.output.paired:
            full[-1] *= n
        else:
            full.append(n)
    got = got.reshape(full)[tuple(slice(0, n) for n in shape)]
    np.testing.assert_array_equal(got, case.expected().astype(got.dtype))
    names = {a.tensor.name for a in cin.accesses(program.stmt)}
    assert "A0" not in names  # nothing of the constant is loaded


def paths_of(seed):
    """A product over paths between groups of components, of one to five, in which a path may be cheaper in other steps than the next."""
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    groups = np.cumsum([0, *rng.sample((1, 2, 3, 5), rng.randint(2, 3))])
    spans, dtype = [slice(a, b) for a, b in itertools.pairwise(groups)], rng.choice(("f4", "f8", "c8", "i4"))
    extents = {"p": rng.randint(3, 6), "i": groups[-1], "j": rng.randint(1, 3), "k": groups[-1]}
    extents |= {"b": rng.choice((3, 10, 13, 24)), "u": rng.choice((8, 9)), "w": rng.choice((8, 16))}

    def array(letters):
        return numbers.integers(-3, 4, [extents[v] for v in letters]).astype(dtype)

    constant = np.zeros([extents[v] for v in "pijk"], dtype)
    for path in constant:
        i, k = rng.choice(spans), rng.choice(spans)
        path[i, :, k] = np.where(numbers.random(path[i, :, k].shape) < 0.9, array("pijk")[0][i, :, k], 0)
    subscripts = rng.choice(
        ("biu,bj,puw->bkw", "biu,bj,bpuw->bkw", "biu,bj,puw->bkw", "bi,bj,p->bk", "bkw,bj,puw->biu", "ubi,jb,wup->wkb")
    )
    factors, out = subscripts.split("->")
    own = factors.split(",")
    rng.shuffle(own)
    return Case(seed, "pijk", own, out, [constant, *map(array, own)], Format.parse("coo", 4))


def parts_in(case):
    """In how many ways the entries of a case are contracted, by what is found cheapest."""
    product = static_products.product_of(nest_of(case))
    return 0 if product is None else len(static_products.parts(product))


@pytest.mark.rotating(6)
@pytest.mark.parametrize("seed", range(60))
def test_entries_in_steps_of_their_own(seed):
    case = paths_of(seed)
    product = static_products.product_of(nest_of(case))
    if product is None:
        return
    found = static_products.parts(product)
    assert sorted(n for part in found for n in part.numbers) == list(range(len(product.entries)))
    every = [static_products.multiplications(product.only(own), steps) for steps, own in found]
    assert sum(every) <= static_products.multiplications(product, static_products.steps(product))
    for way in ("one", "apart"):
        with sj.config.using(choose=f"{STATIC},steps={way}"):
            program = straight_line.program(nest_of(case))
            cin.check(program.stmt)
            arrays = {t.name: in_blocks(a, t) for t, a in zip(program.inputs, case.arrays, strict=True)}
            got = interpret.interpret(program.stmt, arrays, program.output, "add").reshape(-1)[: case.expected().size]
            if not program.output.paired:
                np.testing.assert_array_equal(got, case.expected().reshape(-1))
            made = sj.jit(case.program())(*case.arrays[1:])
        np.testing.assert_array_equal(made.todense(), case.expected(), err_msg=f"{case} {way}")


def test_many_products_over_paths_take_several_steps():
    assert sum(parts_in(paths_of(seed)) > 1 for seed in range(60)) > 12


def test_rows_that_are_fewer_before_are_multiplied_before():
    """One number becomes a vector: its row is multiplied by the weights once. A vector becomes a number: one sum is."""
    dense = np.zeros((2, 4, 4, 4))
    dense[0, 0, 1:, 1:], dense[1, 1:, 1:, 0] = np.eye(3), np.eye(3)
    case = Case(
        0,
        "pijk",
        ["biu", "bj", "puw"],
        "bkw",
        [dense, *map(np.ones, ((30, 4, 8), (30, 4), (2, 8, 8)))],
        Format.parse("coo", 4),
    )
    text = static_products.described(static_products.product_of(nest_of(case)))
    assert "(A0 * A1 * A2) * A3 for 3" in text and "A0 * A2 * (A1 * A3) for 3" in text, text
    with sj.config.using(choose=STATIC):
        cin_text = sj.jit(case.program()).lower(*case.arrays[1:]).as_text("cin")
    assert "where z:" in cin_text and "where zh:" in cin_text


def test_most_random_products_are_written_out():
    found = [straight_line.program(nest_of(case_of(seed))) for seed in range(400)]
    assert sum(p is not None for p in found) > 200
    text = "\n".join(str(p) for p in found if p is not None)
    for part in ("where z", "where z1", "(tile)", "(vector)", "where t1"):
        assert part in text, part


# ---------------------------------------------------------------------------------------------------------- machine code


@pytest.mark.parametrize("seed", range(120))
@pytest.mark.rotating(8)
def test_machine_code(seed):
    case = case_of(seed)
    run = sj.jit(case.program())
    expected = case.expected()
    if case.fill:
        expected = np.einsum(
            case.subscripts,
            sj.array(case.arrays[0], format=case.format, fill_value=case.fill).todense(),
            *case.arrays[1:],
        )
    choose = STATIC if seed % 3 else f"random:{seed}"
    with sj.config.using(choose=choose):
        got = run(*case.arrays[1:]).todense()
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5, err_msg=str(case))
    assert got.dtype == expected.dtype


@pytest.mark.parametrize("form", ["coo", "csf", "(c,d,d)", "(c,d,d)@(0,2,1)", "(q,d,d)@(1,2,0)"])
@pytest.mark.parametrize("subscripts", ["pjk,k,j->", "pjk,k,bj->kb", "pjk,b->b"])
def test_axes_that_the_constant_alone_has(form, subscripts):
    """A kernel that asks for no coordinates runs over positions: not one whose constant is known by its coordinates."""
    letters, out = subscripts.split("->")
    constant, *factors = letters.split(",")
    sizes, rng = {"p": 3, "j": 4, "k": 2, "b": 5}, np.random.default_rng(0)
    arrays = [rng.integers(-3, 4, [sizes[v] for v in own]).astype("i4") for own in (constant, *factors)]
    arrays[0][1] = 0
    case = Case(0, constant, factors, out, arrays, Format.parse(form, 3))
    with sj.config.using(choose=STATIC):
        np.testing.assert_array_equal(sj.jit(case.program())(*arrays[1:]).todense(), case.expected())
    assert written(case.program(), *arrays[1:]) == 1


# ------------------------------------------------------------------------------------------------ programs with constants

PRODUCT = "Out[b,k,w] = C[p,i,j,k] * X[b,i,u] * Y[b,j] * W[p,u,w]"


def coefficients(paths=3, n=3, entries=14, seed=0, dtype="f8"):
    rng = np.random.default_rng(seed)
    made = np.zeros((paths, n, n, n), dtype)
    for p, i, j, k in zip(*(rng.integers(0, m, entries) for m in made.shape), strict=True):
        made[p, i, j, k] = rng.integers(1, 5)
    return made


def operands(batch=21, n=3, paths=3, channels=5, seed=1, dtype="f8"):
    rng = np.random.default_rng(seed)
    shapes = (batch, n, channels), (batch, n), (paths, channels, 4)
    return [rng.integers(-3, 4, s).astype(dtype) for s in shapes]


def written(function, *args):
    """The statements of a program's kernels that are written out."""
    with sj.config.using(choose=STATIC):
        text = str(sj.explain(function)(*args))
    return text.count("are written out")


@pytest.mark.parametrize("how", ["insum", "einsum"])
def test_derivatives_are_written_out_too(how):
    dense = coefficients(entries=120)
    C, (X, Y, W) = sj.array(dense, format="coo"), operands(batch=2000)

    def product(X, Y, W):
        if how == "einsum":
            return sj.einsum("pijk,biu,bj,puw->bkw", C, X, Y, W)
        return sj.insum(PRODUCT, C=C, X=X, Y=Y, W=W)

    G = np.random.default_rng(3).integers(-2, 3, (2000, 3, 4)).astype("f8")
    with sj.config.using(choose=STATIC):
        grads = sj.jit(sj.grad(lambda *xs: (product(*xs) * G).sum(), argnums=(0, 1, 2)))(X, Y, W)
    for got, subscripts, rest in zip(
        grads,
        ("pijk,bj,puw,bkw->biu", "pijk,biu,puw,bkw->bj", "pijk,biu,bj,bkw->puw"),
        ((Y, W), (X, W), (X, Y)),
        strict=True,
    ):
        np.testing.assert_array_equal(got.todense(), np.einsum(subscripts, dense, *rest, G))
    assert written(sj.grad(lambda *xs: (product(*xs) * G).sum(), argnums=(0, 1, 2)), X, Y, W) == 3
    with sj.config.using(choose=STATIC):
        _, moved = sj.jit(lambda *xs: sj.jvp(product, xs, xs))(X, Y, W)
    np.testing.assert_array_equal(moved.todense(), 3 * np.einsum("pijk,biu,bj,puw->bkw", dense, X, Y, W))


def test_derivatives_by_a_second_operand_run_over_the_batch():
    """A result that lies along a variable of the constant has no lanes: steps are kept for some samples, and summed along what is read."""
    rng = np.random.default_rng(0)
    dense = np.where(rng.random((2, 5, 4, 5)) < 0.4, rng.random((2, 5, 4, 5)), 0)
    C = sj.array(dense, format="coo")
    X, Y, W, G = (rng.random(shape) for shape in ((64, 5, 8), (64, 4), (2, 8, 8), (64, 5, 8)))

    def loss(X, Y, W, G):
        return (sj.insum("Out[b,k,w] = C[p,i,j,k] * X[b,i,u] * Y[b,j] * W[p,u,w]", C=C, X=X, Y=Y, W=W) * G).sum()

    with sj.config.using(choose=STATIC):
        slope = sj.jit(sj.grad(loss, argnums=1))
        text = slope.lower(X, Y, W, G).as_text("cin")
        made = slope(X, Y, W, G).todense()
    np.testing.assert_allclose(made, np.einsum("pijk,biu,puw,bkw->bj", dense, X, W, G), rtol=1e-12)
    assert "where z" in text and "out[io,ii," in text, text


@pytest.mark.parametrize("axes", [(0, None, None), (0, 0, None), (2, 1, 0), (None, None, 1)])
def test_batches(axes):
    dense = coefficients()
    C, arrays = sj.array(dense, format="csf"), operands()
    stacked = [x if a is None else np.stack([x, 2 * x, -x], a) for x, a in zip(arrays, axes, strict=True)]

    def product(X, Y, W):
        return sj.insum(PRODUCT, C=C, X=X, Y=Y, W=W)

    with sj.config.using(choose=STATIC):
        got = sj.jit(sj.vmap(product, in_axes=axes))(*stacked).todense()
    one = np.einsum("pijk,biu,bj,puw->bkw", dense, *arrays)
    times = sum(a is not None for a in axes)
    np.testing.assert_array_equal(got, np.stack([one, 2**times * one, (-1) ** times * one]))


def test_threads_have_the_same_bits():
    C = sj.array(coefficients(dtype="f4"), format="coo")
    X, Y, W = (np.random.default_rng(0).standard_normal(x.shape).astype("f4") for x in operands(batch=77))
    G = np.random.default_rng(3).standard_normal((77, 3, 4)).astype("f4")
    results = []
    for threads in (1, 2):
        with sj.config.using(choose=STATIC, num_threads=threads, parallel_work=0):
            run = sj.jit(lambda X, Y, W: sj.insum(PRODUCT, C=C, X=X, Y=Y, W=W))
            loss = sj.jit(sj.grad(lambda X, Y, W: (sj.insum(PRODUCT, C=C, X=X, Y=Y, W=W) * G).sum(), argnums=(0, 1, 2)))
            results.append([run(X, Y, W).todense(), *(g.todense() for g in loss(X, Y, W))])
    for one, two in zip(*results, strict=True):
        np.testing.assert_array_equal(one.view("u4"), two.view("u4"))


def test_static_arguments_hold_bytes():
    first, second = (sj.array(coefficients(seed=s), format="coo") for s in (0, 7))
    traced = []

    @sj.jit(static_argnames="C")
    def product(X, Y, W, C):
        traced.append(C.nnz)
        return sj.insum(PRODUCT, C=C, X=X, Y=Y, W=W)

    arrays = operands()
    with sj.config.using(choose=STATIC):
        for C in (first, second, sj.array(first.todense(), format="coo")):
            expected = np.einsum("pijk,biu,bj,puw->bkw", C.todense(), *arrays)
            np.testing.assert_array_equal(product(*arrays, C=C).todense(), expected)
    assert len(traced) == 2  # the third holds what the first does
    with pytest.raises(ValueError, match="not hashable"):
        product(*arrays, C=first.todense())


def test_other_shapes_and_batches_of_one_program():
    dense = coefficients()
    C = sj.array(dense, format="coo")
    product = sj.jit(lambda X, Y, W: sj.insum(PRODUCT, C=C, X=X, Y=Y, W=W))
    with sj.config.using(choose=STATIC):
        for batch in (16, 5, 1, 33, 16, 40):
            arrays = operands(batch=batch)
            expected = np.einsum("pijk,biu,bj,puw->bkw", dense, *arrays)
            np.testing.assert_array_equal(product(*arrays).todense(), expected)


def test_what_is_around_a_product():
    """Functions of operands and of the result are kernels of their own; views are read as they lie."""
    dense = coefficients()
    C, (X, Y, W) = sj.array(dense, format="coo"), operands(batch=40)

    def layer(X, Y, W):
        Z = sj.insum(PRODUCT, C=C, X=sj.numpy.transpose(X, (2, 0, 1)), Y=Y * 2, W=W)
        return sj.numpy.maximum(Z, 0) + 1

    moved = np.ascontiguousarray(np.transpose(X, (1, 2, 0)))
    expected = np.maximum(2 * np.einsum("pijk,biu,bj,puw->bkw", dense, X, Y, W), 0) + 1
    with sj.config.using(choose=STATIC):
        np.testing.assert_array_equal(sj.jit(layer)(moved, Y, W).todense(), expected)
    assert written(layer, moved, Y, W) == 1


def test_the_key_of_a_plan_holds_the_constant():
    case = case_of(0)
    made = nest_of(case)
    (name,) = {a.tensor.name for a in made.reads if a.tensor.constant is not None}
    assert name == "A0"
    other = case_of(0)
    other.arrays[0] = other.arrays[0] + (other.arrays[0] != 0)
    assert plan_cache.key(made) != plan_cache.key(nest_of(other))
    assert plan_cache.key(made) == plan_cache.key(nest_of(case_of(0)))


def test_programs_are_pickled_with_their_constants():
    dense = coefficients()
    C, arrays = sj.array(dense, format="coo"), operands()
    product = sj.jit(lambda X, Y, W: sj.insum(PRODUCT, C=C, X=X, Y=Y, W=W))
    with sj.config.using(choose=STATIC):
        again = pickle.loads(pickle.dumps(product))
        np.testing.assert_array_equal(again(*arrays).todense(), product(*arrays).todense())


def test_what_is_not_written_out_and_why():
    B, rng = np.ones((40, 2000)), np.random.default_rng(0)
    A = sj.array(np.where(rng.random((40, 40)) < 0.1, 1.0, 0.0), format="csr")
    many = sj.array(np.ones((40, 40)), format="csr")

    def told(function, *args):
        return str(sj.explain(function)(*args))

    assert "are written out" in told(lambda B: B @ A, B.T.copy())
    assert "fewer than" in told(lambda B: A @ B, B)  # the loops have lanes, too
    C = sj.array(np.cross(np.eye(3)[:, None], np.eye(3)), format="coo")
    crossed = "O[b,k,u] = C[i,j,k] * X[b,i,u] * Y[b,j]"  # loops multiply by the entries of C, which are 1 and -1
    for count, words in ((3000, "are written out"), (100, "fewer than")):
        X, Y = np.ones((count, 3, 16)), np.ones((count, 3))
        assert words in told(lambda X, Y: sj.insum(crossed, C=C, X=X, Y=Y), X, Y)
    assert "stores more than 1,024 entries" in told(lambda B: B @ many, B.T.copy())
    assert "no product" in told(lambda B: A + B, np.ones((40, 40)))
    assert "constant" not in told(lambda A, B: B @ A, A, B.T.copy())  # data that changes


def test_steps_are_told_in_words():
    """Entries that are contracted in other steps, and what a step makes before the next one takes it."""
    paths = np.zeros((2, 4, 4, 4))
    paths[0, 0, 1:, 1:], paths[1, 1:, 1:, 0] = np.eye(3), np.eye(3)
    constant = sj.array(paths, format="coo")
    operands = np.ones((3, 4, 4)), np.ones((3, 4)), np.ones((2, 4, 4))

    def product(X, Y, W):
        return sj.einsum("pijk,biu,bj,puw->bkw", constant, X, Y, W)

    with sj.config.using(choose=STATIC):
        told = str(sj.explain(product)(*operands))
    assert "6 entries of A are written out: A * C * (B * D) for 3, (A * B * C) * D for 3" in told


def test_infinities_meet_entries_alone():
    C = sj.array(np.array([[0.0, 2.0], [0.0, 0.0]]), format="csr")
    X = np.array([[np.inf, 1.0], [np.nan, 3.0]])
    with sj.config.using(choose=STATIC):
        np.testing.assert_array_equal(sj.jit(lambda X: X @ C)(X).todense(), [[0, np.inf], [0, np.nan]])


def test_both_alternatives_are_taken():
    before = choices.TAKEN["constants", "static"], choices.TAKEN["constants", "loops"]
    A, x = sj.array(np.eye(3), format="csr"), np.ones((4, 3))
    for seed in range(12):
        with sj.config.using(choose=f"random:{seed}"):
            np.testing.assert_array_equal(sj.jit(lambda x: x @ A)(x).todense(), x)
    assert choices.TAKEN["constants", "static"] > before[0] and choices.TAKEN["constants", "loops"] > before[1]


def test_code_for_many_entries_is_made_quickly():
    """The statement of 611 entries; compiling it takes about 1.5 s of processor time."""
    rng = np.random.default_rng(0)
    places = np.stack([rng.integers(0, n, 700) for n in (34, 16, 16, 16)])
    C = np.zeros((34, 16, 16, 16), "f4")
    C[tuple(places[:, :611])] = 1
    shapes = (1000, 16, 16), (1000, 16), (34, 16, 16)
    case = Case(
        0, "pijk", ["biu", "bj", "puw"], "bkw", [C, *(np.zeros(s, "f4") for s in shapes)], Format((Dense(),) * 4)
    )
    kernel = nest_of(case)
    program = pipeline.program_of(kernel, schedules.unpriced(kernel.variables))
    assert program.literal and len(cin.writes(program.stmt)) < 2000


def test_constants_of_loops_are_written_out_in_their_bodies():
    """What `scan`, `fori_loop` and `cond` close over is a constant of their bodies, and each program has its own."""
    rng = np.random.default_rng(0)
    X, Y = rng.random((2000, 9, 16)), rng.random((2000, 9))
    for scale in (1.0, -2.0):
        D = np.zeros(729)
        D[rng.choice(729, 80, replace=False)] = scale * rng.random(80)
        C = sj.array(D.reshape(9, 9, 9), format="coo")

        def step(x, C=C):
            return sj.insum("Out[b,k,u] = C[i,j,k] * X[b,i,u] * Y[b,j]", C=C, X=x, Y=Y)

        want = np.einsum("ijk,biu,bj->bku", D.reshape(9, 9, 9), X, Y)
        scanned = sj.jit(lambda X, step=step: sj.lax.scan(lambda x, _: (step(x), None), X, None, length=1)[0])
        repeated = sj.jit(lambda X, step=step: sj.lax.fori_loop(0, 1, lambda k, x: step(x), X))
        branched = sj.jit(lambda X, step=step: sj.lax.cond(np.True_, step, lambda x: x, X))
        for f in (scanned, repeated, branched):
            np.testing.assert_allclose(f(X).todense(), want)
        assert "are written out" in str(sj.explain(scanned)(X))


@pytest.mark.parametrize("columns", [8, 16, 33, 64, 70])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_strips_are_as_wide_as_what_one_loop_adds_to_leaves_room_for(columns, dtype):
    """One sum in a loop and three in the next: six half vectors of sums each, where all four sums would leave room for one vector."""
    dense = np.zeros((2, 4, 4, 4), dtype)
    dense[0, 0, 0, 0], dense[1, 0, 1, 1], dense[1, 0, 2, 2], dense[1, 0, 3, 3] = 1, 2, 3, 4
    rng, C = np.random.default_rng(columns), sj.array(dense, format="coo")
    X, Y, W = (rng.integers(-3, 4, s).astype(dtype) for s in ((13, 4, 20), (13, 4), (13, 2, 20, columns)))
    expected = np.einsum("pijk,biu,bj,bpuw->bkw", dense, X, Y, W)
    for masks in (False, True):
        with golden.processor(masks), sj.config.using(choose=STATIC):
            plan_cache.forget()
            f = sj.jit(lambda X, Y, W: sj.insum(PRODUCT.replace("W[", "W[b,"), C=C, X=X, Y=Y, W=W))
            got, text = f(X, Y, W), f.lower(X, Y, W).as_text("loops")
        np.testing.assert_array_equal(got.todense(), expected)
        lanes = 64 // np.dtype(dtype).itemsize
        wide = any(f"step {n * lanes}:" in text for n in (2, 4))
        assert wide == (columns >= 2 * lanes), text
    plan_cache.forget()


def per_sample(batch=13, columns=33, dtype="f4", deep=20):
    """A constant with seven sums that read one matrix, and operands with a matrix for every sample."""
    dense = np.zeros((3, 8, 4, 8), dtype)
    for k in range(7):
        dense[1, k, k % 4, k] = k + 1
    dense[0, 0, 0, 7], dense[2, 1, 1, 7], dense[2, 2, 1, 7] = 1, 2, 3
    rng = np.random.default_rng(columns)
    X, Y, W = (rng.integers(-3, 4, s).astype(dtype) for s in ((batch, 8, deep), (batch, 4), (batch, 3, deep, columns)))
    return sj.array(dense, format="coo"), (X, Y, W), np.einsum("pijk,biu,bj,bpuw->bkw", dense, X, Y, W)


def text_of(C, arrays, kind):
    f = sj.jit(lambda X, Y, W: sj.insum(PRODUCT.replace("W[", "W[b,"), C=C, X=X, Y=Y, W=W))
    return f.lower(*arrays).as_text(kind), f(*arrays)


@pytest.mark.parametrize("columns", [0, 1, 16, 33, 64, 70])
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "i4"])
@pytest.mark.parametrize("masks", [False, True], ids=["plain", "masks"])
def test_matrices_of_samples_are_fetched_ahead(columns, dtype, masks):
    """Behind the last row nothing lies: what is fetched there is not read."""
    with golden.processor(masks), sj.config.using(choose=f"prefetch=ahead,{STATIC}"):
        plan_cache.forget()
        C, arrays, expected = per_sample(columns=columns, dtype=dtype)
        np.testing.assert_array_equal(text_of(C, arrays, "cin")[1].todense(), expected)
    plan_cache.forget()


@pytest.mark.parametrize(("cache", "ahead"), [(4 << 10, True), (1 << 20, False)])
def test_matrices_that_the_second_cache_does_not_hold_are_fetched_ahead(cache, ahead):
    """13 * 3 matrices of 20 x 64 numbers, 200 kB; a matrix that all samples share is read again and again, and is not."""
    C, (X, Y, W), _ = per_sample(columns=64)
    with priced(caches=(1 << 10, cache, 1 << 22)), sj.config.using(choose=STATIC):
        plan_cache.forget()
        text, _ = text_of(C, (X, Y, W), "cin")
        assert ("in steps, prefetch" in text) == ahead
        shared = sj.jit(lambda X, Y, W: sj.insum(PRODUCT, C=C, X=X, Y=Y, W=W)).lower(X, Y, W[0]).as_text("cin")
        assert "in steps, prefetch" not in shared
    plan_cache.forget()


def test_matrices_of_samples_are_read_once_and_in_order():
    """Seven sums that read one matrix run at once where there are 32 registers; of the pieces that read others, the one whose matrix comes first is first."""
    with golden.processor(True), sj.config.using(choose=STATIC):
        plan_cache.forget()
        C, arrays, _ = per_sample()
        text, _ = text_of(C, arrays, "cin")
    plan_cache.forget()
    loops = re.findall(r"forall \w+   # range[^\n]*\n((?:\s+t\d\[\] \+= [^\n]*\n)+)", text)
    read = [set(re.findall(r"[A-Z]\w*\[\w+,(\d),\w+,\w+\]", loop)) for loop in loops]
    assert [int(min(matrices)) for matrices in read] == [0, 1, 2], text
    assert loops[1].count("+=") == 7


def test_factors_without_indices():
    """Scalars, and derivatives of a number, whose cotangent has no axes."""
    C, (X, Y, W) = sj.array(coefficients(), format="coo"), operands(batch=50)
    dense = C.todense()

    def energy(X, Y, W):
        return sj.einsum("pijk,biu,bj,puw->", C, X, Y, W)

    with sj.config.using(choose=STATIC):
        made = sj.jit(lambda s, X, Y, W: sj.insum(PRODUCT.replace("* X", "* s * X"), C=C, s=s, X=X, Y=Y, W=W))(
            2.0, X, Y, W
        )
        gradients = sj.jit(sj.grad(energy, (0, 1, 2)))(X, Y, W)
    np.testing.assert_array_equal(made.todense(), 2 * np.einsum("pijk,biu,bj,puw->bkw", dense, X, Y, W))
    for got, subscripts, others in (
        (gradients[0], "pijk,bj,puw->biu", (Y, W)),
        (gradients[1], "pijk,biu,puw->bj", (X, W)),
        (gradients[2], "pijk,biu,bj->pu", (X, Y)),
    ):
        expected = np.einsum(subscripts, dense, *others)
        np.testing.assert_array_equal(
            got.todense(),
            np.broadcast_to(expected.reshape(*expected.shape, *(1,) * (got.ndim - expected.ndim)), got.shape),
        )


@pytest.mark.parametrize("entries", [64, 65, 500, 1000])
def test_sums_of_many_entries(entries):
    """More than expressions may nest."""
    D, a = sj.array(np.ones((entries, 1)), format="coo"), np.arange(entries * 20.0).reshape(entries, 20)
    f = sj.jit(lambda a: sj.einsum("ip,ib->bp", D, a))
    with sj.config.using(choose=STATIC):
        np.testing.assert_array_equal(f(a).todense()[:, 0], a.sum(0))
        assert "entries of A are written out" in str(sj.explain(f)(a))


# ------------------------------------------------------------------------------------------------------------ texts


@pytest.mark.parametrize("name", written_out.PRODUCTS)
def test_golden(name):
    """Steps, statements, blocks and formats, compared with texts that a reader can check."""
    assert written_out.text(name) == written_out.file_of(name).read_text()


def test_every_text_has_a_product():
    assert {written_out.file_of(name) for name in written_out.PRODUCTS} == set(written_out.GOLDEN.glob("written_out_*"))


BLOCKS = {24: 12, 20: 10, 16: 8, 12: 12, 11: 8, 7: 7, 2: 2, 1: 1, 60: 12, 40: 10}
"""Samples, and for how many of them at a time steps keep what they make: twelve, ten or eight if these leave none over."""


@pytest.mark.parametrize("samples", BLOCKS)
def test_blocks_of_samples(samples):
    rows, sums = (
        straight_line.program(written_out.kernel(written_out.PRODUCTS[name], b=samples)).stmt
        for name in ("rows times a matrix", "sums over a batch")
    )
    size, rest = BLOCKS[samples], samples % BLOCKS[samples]
    assert written_out.blocks(rows) == [f"bi of bo: {size}, {rest} in the last"]
    assert written_out.blocks(sums) == [f"bi of bo: {min(samples, 32)}, {samples % min(samples, 32)} in the last"]
