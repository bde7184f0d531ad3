"""What products with a constant cost whose entries are written out."""

from __future__ import annotations

from sparsejax.jit.cost import machine
from sparsejax.jit.ir import static_products
from sparsejax.jit.ir.nest import Nest
from sparsejax.jit.schedule.schedules import Cost, Schedule


def schedule(nest: Nest) -> Schedule | None:
    """The schedule of a product with a constant, in nanoseconds of one call; None of another kernel."""
    product = static_products.product_of(nest)
    if product is None:
        return None
    times = sum(
        static_products.multiplications(product.only(own), steps) for steps, own in static_products.parts(product)
    )
    cost = Cost(times * machine.current().multiply, 0.0, 0.0, 0.0)
    return Schedule(nest.variables, (), cost, reason=static_products.described(product))
