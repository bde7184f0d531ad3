"""What every rewrite makes of a program for which it does something: statements before and after, as text.

    python -m tests.rewrite.programs          writes the texts anew (tests/rewrite/golden), for a look at the difference

Nothing here is compiled: programs are planned, and their statements rewritten pass by pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import config
from sparsejax.jit import pipeline
from sparsejax.jit.rewrite import concretize
from sparsejax.jit.runtime import kernels, plans
from sparsejax.jit.schedule import row_panels

GOLDEN = Path(__file__).with_name("golden")


def matrix(rows: int, cols: int, dtype: str = "f8", seed: int = 0) -> sj.Array:
    rng = np.random.default_rng(seed)
    return sj.array(sp.random_array((rows, cols), density=0.1, format="csr", rng=rng).astype(dtype))


def dense(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).random(shape)


def pairs() -> tuple[np.ndarray, ...]:
    """Factors, rows of a result, of an operand and matrices that a sum of products names, and both operands."""
    rng = np.random.default_rng(0)
    return rng.random(40), *(rng.integers(0, n, 40) for n in (20, 20, 3)), dense(20, 4), dense(3, 4, 8)


def PAIRS(V, X, Y, Z, In, W):
    text = "Out[X[p],m] += V[p] * In[Y[p],c] * W[Z[p],c,m]"
    return sj.insum(text, V=V, X=X, Y=Y, Z=Z, In=In, W=W, Out=snp.zeros((20, 8)))


PROGRAMS: dict[str, tuple[Callable[..., object], tuple[object, ...]]] = {
    "scatter_operands": (lambda A, B: (A @ B.T) * A, (matrix(300, 300), matrix(300, 300, seed=2))),
    "fission": (lambda A, B: (A + B).sum(axis=1), (matrix(30, 40, "i8"), matrix(30, 40, "i8", 2))),
    "vectorize": (lambda A, X: A @ X, (matrix(30, 40), dense(40, 8))),
    "tile": (lambda A, X: A @ X, (matrix(30, 40), dense(40, 8))),
    "tile held": (lambda A, X: A @ X, (matrix(30, 40).asformat("csc"), dense(40, 8))),
    "tile of blocks": (lambda A, X: A @ X, (sj.array(np.eye(6), format="bsr:3x2"), dense(6, 8))),
    "tile around blocks": (lambda A, X: A @ X, (sj.array(np.eye(6), format="bsr:3x2"), dense(6, 8))),
    "tile in strips": (lambda A, X: A @ X, (sj.array(np.eye(6), format="bsr:3x2"), dense(6, 8))),
    "tile of entries": (PAIRS, pairs()),
    "tile of cheap numbers": (
        lambda A, H, V: snp.maximum(A @ H, 0) @ V,
        (matrix(3000, 3000), dense(3000, 32), dense(32, 16)),
    ),
    "contract_arrays": (
        lambda A, H, W: snp.maximum(A @ (H @ W), 0),
        (matrix(3000, 3000), dense(3000, 32), dense(32, 16)),
    ),
    "assigned_once": (lambda A, X: A @ X, (matrix(30, 40), dense(40, 8))),
    "assigned_once after it is cleared": (lambda A, X: A @ X, (sj.array(np.eye(6), format="bsr:3x2"), dense(6, 8))),
    "over_result": (lambda A, x: snp.maximum(x @ A, 0), (matrix(30, 40), dense(30))),
    "exhaust": (lambda A: snp.any(A, axis=1), (matrix(30, 40),)),
    "pack": (lambda A, X: A @ X, (sj.array(np.eye(6), format="bsr:3x2"), dense(6, 50))),
    "single_valued": (
        lambda A, B: sj.einsum("ik,kj->ij", A, B, semiring="max_pair", out_format="csr"),
        (matrix(30, 40), matrix(40, 50)),
    ),
    "drained_masks": (
        lambda x, A, m: sj.einsum("i,ij->j", x, A, semiring="or_pair", mask=m, complement=True, out_format="coo"),
        (matrix(30, 1)[:, 0], matrix(30, 40), dense(40) < 0.5),
    ),
    "stores": (lambda A, X: A @ X, (matrix(30, 40), dense(40, 16))),
    "in_place": (sj.nn.softmax, (matrix(30, 40),)),
}
"""A function and its operands for every pass, which the first word names."""
CHOSEN = {
    "assigned_once after it is cleared": "sums=block",
    "pack": "columns=packed",
    "tile of blocks": "sums=block",
    "tile around blocks": "sums=walk",
    "tile in strips": "sums=block,strips=outside",
    "tile of entries": "panels=columns",
    "tile of cheap numbers": "fusion=together,products=kernel",
    "single_valued": "workspace=marks",
    "drained_masks": "workspace=marks,mask_tests=drained",
    "stores": "stores=past",
}
"""Alternatives without which a pass has nothing to do in a program this small."""


def changes(function: Callable[..., object], operands: tuple[object, ...]) -> Iterator[tuple[str, str, str]]:
    """Every pass that changes the program, with the text of it before and after."""
    traced = sj.jit(function).trace(*operands)
    storages = [sj.array(x, copy=True).storage for x in operands]
    plan = plans.planned(traced.jaxpr, storages)
    registers, number = plan.registers(storages), 0
    while not isinstance(plan.steps[number], kernels.KernelRunner):
        plan.step(number, registers)
        number += 1
    runner, inputs = plan.steps[number], [registers[k] for k in plan.reads[number]]
    nest, schedule = runner.planner.nest, runner.planner.schedule(runner.observe(inputs))[0]
    nest = nest if schedule.panels is None else row_panels.with_panels(nest, schedule.panels)
    nest, cut = pipeline.prepared(nest, schedule)
    program = concretize.concretize(nest, cut)
    for each in pipeline.STATEMENT_PASSES:
        changed = each.run(program, cut) if each.applies(program, cut) else program
        before, after = str(program), str(changed)
        if before != after:
            yield each.name, before, after
        program = changed


def text(name: str) -> str:
    """A program before and after the pass called `name`."""
    function, operands = PROGRAMS[name]
    settings: dict[str, object] = {"skip": {"masks", "gathers"}, "num_threads": 1, "choose": CHOSEN.get(name, "auto")}
    with config.using(**settings):  # the same text on every processor
        made = {done: (before, after) for done, before, after in changes(function, operands)}
    before, after = made[name.partition(" ")[0]]
    return f"before\n\n{before}\n\nafter\n\n{after}\n"


def file_of(name: str) -> Path:
    return GOLDEN / f"{name.replace(' ', '_')}.txt"


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for name in PROGRAMS:
        file_of(name).write_text(text(name))
