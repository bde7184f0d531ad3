"""Products with small constants, as statements in which the constants are written out: steps, statements, blocks and formats, as text.

    python -m tests.rewrite.written_out       writes the texts anew (tests/rewrite/golden), for a look at the difference

Nothing is compiled or run.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import sparsejax as sj
from sparsejax.formats import Dense, Format
from sparsejax.jit.ir import cin, nest, static_products
from sparsejax.jit.rewrite import straight_line

GOLDEN = Path(__file__).with_name("golden")
PRODUCTS = {
    "rows": "ijk,biu,bj->bku",
    "rows times a matrix": "ijk,biu,bj,uw->bkw",
    "sums over a batch": "ijk,biu,bj,bkw->uw",
    "paths": "pijk,biu,bj,puw->bkw",
    "paths of a batch": "pijk,biu,bj,bpuw->bkw",
    "by a second operand": "pijk,biu,puw,bkw->bj",
    "by the matrices": "pijk,biu,bj,bkw->puw",
    "in other orders": "pijk,uib,jb,wup->wkb",
    "without lanes": "pijk,bi,bj,p->bk",
    "without a batch": "ijk,iu,j->ku",
    "rows of two operands": "ijk,biu,bjw,uwv->bkv",
    "in pieces": "ijk,biu,bj,uw->bkw",
}
"""Letters of the constant, of the factors and of the result."""
EXTENTS = {"p": 2, "i": 4, "j": 3, "k": 4, "b": 20, "u": 8, "v": 24, "w": 16}
LARGER = {"in pieces": {"u": 100, "w": 200}}
"""Extents with which what steps keep for the next outgrows the first cache."""


def constant(letters: str) -> np.ndarray:
    """Two groups of components, of one and three: entries of a path lead from one of them to one."""
    rng = np.random.default_rng(0)
    made = np.zeros((2, 4, 3, 4))
    made[0, :1, 1:, 1:], made[1, 1:, 0, :1] = rng.integers(1, 5, (1, 2, 3)), rng.integers(1, 5, (3, 1))
    return made if "p" in letters else made.sum(axis=0)


def kernel(letters: str, **extents: int) -> nest.Nest:
    """The kernel of a product with dense factors, of float64."""
    sizes, dtype = EXTENTS | extents, np.dtype("f8")
    given, out = letters.split("->")

    def access(name: str, text: str) -> cin.Access:
        shape = tuple(sizes[v] for v in text)
        tensor = cin.Tensor(name, shape, dtype, Format((Dense(),) * len(shape)), dtype.type(0))
        return cin.Access(tensor, tuple(map(cin.IndexVar, text)))

    first, *rest = (access(f"A{k}", text) for k, text in enumerate(given.split(",")))
    held = static_products.constant_of(sj.array(constant(given), format="coo").storage)
    rhs: cin.Expr = cin.Access(first.tensor._replace(constant=held), first.indices)
    for factor in rest:
        rhs = cin.Call("multiply", (rhs, factor), dtype)
    target = access("out", out)
    return nest.of_definition(target.tensor, cin.Definition(target.indices, "add", rhs))


def blocks(stmt: cin.Stmt) -> list[str]:
    """The loops inside of blocks, with the coordinates of one, and of the last one."""
    found = {v for w in cin.writes(stmt) for a in (w.lhs, *cin.accesses(w.rhs)) for v in cin.bound_by(a) if v.size}
    return [f"{v} of {v.outer}: {v.size}, {v.rest} in the last" for v in sorted(found)]


def text(name: str) -> str:
    """How a product is contracted, in the steps that are found cheapest; its statement; and formats of operands that are not as they were."""
    made = kernel(PRODUCTS[name], **LARGER.get(name, {}))
    product, program = static_products.product_of(made), straight_line.program(made)
    assert product is not None and program is not None and program.stmt is not None
    formats = [f"{t.name}: {t.format}" for t in program.inputs if t.format != Format((Dense(),) * len(t.format.levels))]
    parts = [PRODUCTS[name], static_products.described(product), *formats, *blocks(program.stmt)]
    return "\n".join([*parts, "", str(program), ""])


def file_of(name: str) -> Path:
    return GOLDEN / f"written_out_{name.replace(' ', '_')}.txt"


if __name__ == "__main__":
    for each in PRODUCTS:
        file_of(each).write_text(text(each))
