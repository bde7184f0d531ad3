"""Sparse arrays that a program closes over, and that have few entries: whether code is written out for these.

before:  c = contract C X Y W            one kernel of seven loops, or a path of contractions; C is an operand like any other
after:   c = contract C X Y W            a kernel by itself, whose C is a constant: `rewrite/straight_line` makes a statement of it

Legal where a contraction only multiplies a constant of at most 1,024 entries, and a fill of 0, with dense operands, into a dense result
(`static_products`). Taken where the multiplications that are saved in one call are worth some of the time that it takes to compile the code.
The constant is part of the nest, and so of the keys of its plans: another one is another kernel.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sparsejax.core.jaxpr import Var
from sparsejax.formats import convert
from sparsejax.formats.storage import Storage
from sparsejax.jit.ir import choices, cin, nest, static_products
from sparsejax.jit.schedule import static_cost


def of(constants: Mapping[Var, Storage]) -> dict[Var, cin.Constant]:
    """The constants of a program that are sparse and have few entries. O(entries)."""
    made: dict[Var, cin.Constant] = {}
    for var, storage in constants.items():
        if storage.format.is_dense or storage.ndim == 0 or len(storage.vals) > 64 * static_products.MOST:
            continue
        if storage.vals.dtype.kind not in "iufc" or storage.fill_value != 0 or storage.nnz > static_products.MOST:
            continue
        coordinates, values = convert.to_coords(storage)
        places = tuple(map(tuple, np.asarray(coordinates).T.tolist()))
        made[var] = cin.Constant(places, np.ascontiguousarray(values).tobytes())
    return made


def written_out(
    made: cin.Definition, out: Var, variables: Mapping[str, Var], constants: Mapping[Var, cin.Constant]
) -> cin.Definition | None:
    """The definition of `out` with its constant, where code is written out for that; None where it is a kernel like any other."""
    held: dict[cin.Access, cin.Expr] = {}
    for access in cin.accesses(made.rhs):
        constant = constants.get(variables[access.tensor.name])
        if constant is not None:
            held[access] = cin.Access(access.tensor._replace(constant=constant), access.indices)
    if not held or made.op != "add":
        return None
    changed = cin.Definition(made.indices, made.op, cin.substitute(made.rhs, held))
    aval = out.aval
    tensor = cin.Tensor("out", aval.shape, aval.dtype, aval.format, aval.fill_value)
    product = static_products.product_of(nest.of_definition(tensor, changed))
    if product is None:
        return None
    way = choices.pick("constants", ("loops", "static"), "static" if static_cost.pays(product) else "loops")
    return changed if way == "static" else None
