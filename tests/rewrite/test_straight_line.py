"""Products with a constant whose entries are written out: random products, as statements that the interpreter runs, and as machine code, against
`numpy.einsum`; what is legal and what pays; derivatives, batches, threads, static arguments, and the keys of plans."""

import pickle
import random
from dataclasses import dataclass

import numpy as np
import pytest

import sparsejax as sj
from sparsejax.formats import Dense, Format
from sparsejax.jit import pipeline
from sparsejax.jit.ir import choices, cin, interpret, nest, static_products
from sparsejax.jit.rewrite import straight_line
from sparsejax.jit.runtime import plan_cache
from sparsejax.jit.schedule import schedules
from tests.fuzz.levels import INPUTS, random_format

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
        operands = " * ".join(f"A{k}[{','.join(ls)}]" for k, ls in enumerate([self.constant, *self.factors]))
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
        own = rng.sample(everything, rng.randint(1, min(3, len(everything))))
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
    shape = case.expected().shape
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
    full, outer = [], 0
    for d, n in enumerate(program.output.shape):
        if d in program.output.paired:
            full[-1] *= n
        else:
            full.append(n)
    got = got.reshape(full)[tuple(slice(0, n) for n in shape)]
    np.testing.assert_array_equal(got, case.expected().astype(got.dtype))
    names = {a.tensor.name for a in cin.accesses(program.stmt)}
    assert "A0" not in names  # nothing of the constant is loaded


def test_most_random_products_are_written_out():
    found = [straight_line.program(nest_of(case_of(seed))) for seed in range(400)]
    assert sum(p is not None for p in found) > 200
    text = "\n".join(str(p) for p in found if p is not None)
    for part in ("where z", "where z1", "(tile)", "(vector)", "where t1"):
        assert part in text, part


# ---------------------------------------------------------------------------------------------------------- machine code


@pytest.mark.parametrize("seed", range(0, 120))
@pytest.mark.rotating(2)
def test_machine_code(seed):
    case = case_of(seed)
    case.arrays[1:] = [x for x in case.arrays[1:]]
    run = sj.jit(case.program())
    expected = case.expected()
    if case.fill:
        dense = np.where(case.arrays[0] == 0, case.fill, case.arrays[0])
        expected = np.einsum(case.subscripts, sj.array(case.arrays[0], format=case.format, fill_value=case.fill).todense(), *case.arrays[1:])
    choose = STATIC if seed % 3 else f"random:{seed}"
    with sj.config.using(choose=choose):
        got = run(*case.arrays[1:]).todense()
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5, err_msg=str(case))
    assert got.dtype == expected.dtype
