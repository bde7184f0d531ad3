"""What a kernel gathers and scatters where it lies, in words."""

from __future__ import annotations

from sparsejax.jit.ir import cin
from sparsejax.jit.ir.nest import Nest

REASONS = {
    "checked": "the bounds of an index array, looked at once per array",
    "positions": "an index array sorted by the rows that it names, once per array: one thread after the other has whole rows",
}
"""Why library calls stand before kernels with accesses as indices."""


def lines(nest: Nest) -> tuple[str, ...]:
    """A sentence for every access whose coordinates are read from arrays."""
    made = []
    for access in nest.reads:
        if access.entries:
            where = " and ".join(str(a) for a in dict.fromkeys(access.entries))
            made.append(f"{access} is gathered in place, at {where}: no copy of it is made")
    out = cin.Access(nest.output, nest.indices)
    if out.entries:
        where = " and ".join(str(a) for a in dict.fromkeys(out.entries))
        made.append(f"{out} is accumulated in place, at {where}; chunks of other threads have partial results")
    return tuple(made)
