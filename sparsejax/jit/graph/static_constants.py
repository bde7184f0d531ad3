"""Sparse arrays that a program closes over, and that have few entries: whether code is written out for these.

before:  c = contract C X Y W            a kernel of seven loops; C is an operand like any other
after:   c = contract C X Y W            a kernel by itself, whose C is a constant: `rewrite/straight_line` makes a statement of it

Legal where a contraction only multiplies a constant of at most 1,024 entries, and a fill of 0, with dense operands, into a dense result
(`ir/static_products`). Taken where the multiplications that are saved in one call are worth a part of the time that it takes to compile the code.
The constant is part of the nest, and so of the keys of its plans: another one is another kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sparsejax.core.jaxpr import Var
from sparsejax.formats.storage import Storage
from sparsejax.jit.ir import choices, cin, static_products
from sparsejax.jit.ir.nest import of_definition


def is_constant(storage: Storage) -> bool:
    """Whether code may be written out for the entries of an array that never changes. O(entries)."""
    return static_products.constant_of(storage) is not None


@dataclass(frozen=True)
class Constants:
    """The sparse constants of a program: what those of few entries hold, and why others are operands like any other."""

    held: Mapping[Var, cin.Constant] = field(default_factory=dict)
    refused: Mapping[Var, str] = field(default_factory=dict)

    @staticmethod
    def of(constants: Mapping[Var, Storage]) -> Constants:
        """The constants among some arrays. O(entries)."""
        held: dict[Var, cin.Constant] = {}
        refused: dict[Var, str] = {}
        for var, storage in constants.items():
            if not storage.format.is_dense:
                constant = static_products.constant_of(storage)
                if constant is not None:
                    held[var] = constant
                else:
                    refused[var] = static_products.refusal(storage) or ""
        return Constants(held, refused)

    def written_out(
        self, made: cin.Definition, out: Var, variables: Mapping[str, Var]
    ) -> tuple[cin.Definition | None, tuple[str, ...]]:
        """The definition of `out` with its constant, where code is written out for that, and else why not; None where it is a kernel like any
        other."""
        aval, read = out.aval, {a.tensor.name: variables[a.tensor.name] for a in cin.accesses(made.rhs)}
        notes = tuple(f"a constant {self.refused[v]}: it is walked" for v in read.values() if v in self.refused)
        by_name = {name: self.held[v] for name, v in read.items() if v in self.held}
        if not by_name:
            return None, notes
        tensor = cin.Tensor("out", aval.shape, aval.dtype, aval.format, aval.fill_value)
        changed = static_products.found(tensor, made, by_name)
        if changed is None:
            return None, (
                *notes,
                "a constant is walked: this is no product of it with dense operands, into a dense result",
            )
        product = static_products.product_of(of_definition(tensor, changed))
        assert product is not None
        lacking = static_products.lacking(product)
        way = choices.pick("constants", ("loops", "static"), "loops" if lacking else "static")
        if way == "static":
            return changed, notes
        return None, (*notes, f"a constant is walked: code for its entries {lacking or 'is not asked for'}")
