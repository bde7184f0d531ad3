"""What products with a constant cost whose entries are written out, and whether they pay."""

from __future__ import annotations

from sparsejax.jit.cost import machine
from sparsejax.jit.ir import static_products
from sparsejax.jit.ir.nest import Nest
from sparsejax.jit.ir.static_products import Product
from sparsejax.jit.schedule.schedules import Cost, Schedule

CALLS = 1000
"""Calls of a kernel that pay for its compilation."""
LINE = 2e5
"""Nanoseconds that code for one entry takes to compile."""


def cost(product: Product) -> Cost:
    """The nanoseconds of one call."""
    here = machine.current()
    return Cost(static_products.multiplications(product, static_products.steps(product)) * here.multiply, 0.0, 0.0, 0.0)


def pays(product: Product) -> bool:
    """Whether the multiplications that one call saves are worth a part of compiling a line for every entry."""
    saved = static_products.saved(product) * machine.current().iterate
    return saved * CALLS > machine.current().compile + LINE * len(product.entries)


def schedule(nest: Nest) -> Schedule | None:
    """The schedule of a product with a constant; None of another kernel."""
    product = static_products.product_of(nest)
    return None if product is None else Schedule(nest.variables, (), cost(product))
