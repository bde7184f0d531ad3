"""Sparse arrays that a program closes over, and that have few entries: whether code is written out for these.

before:  c = contract C X Y W            a kernel of seven loops; C is an operand like any other
after:   c = contract C X Y W            a kernel by itself, whose C is a constant: `rewrite/straight_line` makes a statement of it

Legal where a contraction only multiplies a constant of at most 1,024 entries, and a fill of 0, with dense operands, into a dense result
(`ir/static_products`). Taken where the multiplications that are saved in one call are worth a part of the time that it takes to compile the code.
The constant is part of the nest, and so of the keys of its plans: another one is another kernel.
"""

from __future__ import annotations

from collections.abc import Mapping

from sparsejax.core.jaxpr import Var
from sparsejax.formats.storage import Storage
from sparsejax.jit.ir import choices, cin, static_products
from sparsejax.jit.ir.nest import of_definition


def of(constants: Mapping[Var, Storage]) -> dict[Var, cin.Constant]:
    """The constants of a program that are sparse and have few entries. O(entries)."""
    held = ((var, static_products.constant_of(storage)) for var, storage in constants.items())
    return {var: constant for var, constant in held if constant is not None}


def written_out(
    made: cin.Definition, out: Var, variables: Mapping[str, Var], constants: Mapping[Var, cin.Constant]
) -> cin.Definition | None:
    """The definition of `out` with its constant, where code is written out for that; None where it is a kernel like any other."""
    if not constants:
        return None
    aval, read = out.aval, {a.tensor.name for a in cin.accesses(made.rhs)}
    tensor = cin.Tensor("out", aval.shape, aval.dtype, aval.format, aval.fill_value)
    by_name = {name: constants[variables[name]] for name in read if variables[name] in constants}
    changed = static_products.found(tensor, made, by_name)
    if changed is None:
        return None
    product = static_products.product_of(of_definition(tensor, changed))
    assert product is not None
    way = choices.pick("constants", ("loops", "static"), "static" if static_products.pays(product) else "loops")
    return changed if way == "static" else None
