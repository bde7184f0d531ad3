"""What a kernel gathers and scatters where it lies, in words."""

from __future__ import annotations

from sparsejax.jit.ir import cin
from sparsejax.jit.ir.nest import Nest
from sparsejax.jit.schedule import row_panels
from sparsejax.jit.schedule.schedules import Schedule

REASONS = {
    "checked": "the bounds of an index array, looked at once per array",
    "pairs": "two index arrays sorted by the rows of the result and by what they share, once per array: panels of rows can have both",
    "positions": "an index array sorted by the rows that it names, once per array: one thread after the other has whole rows",
}
"""Why library calls stand before kernels with accesses as indices."""


def lines(nest: Nest, schedule: Schedule) -> tuple[str, ...]:
    """A sentence for every access whose coordinates are read from arrays, and how what leads to it is walked."""
    made, gathered = [], [a for a in nest.reads if a.entries]
    for access in gathered:
        where = " and ".join(str(a) for a in dict.fromkeys(access.entries))
        if access == nest.value or (
            nest.producers and access == nest.producers[0].rhs and nest.producers[0].op is None
        ):
            made.append(f"{access} is copied, at {where}: not in place, because it is the result itself")
        else:
            made.append(f"{access} is gathered in place, at {where}: no copy of it is made")
    out = cin.Access(nest.output, nest.indices)
    if out.entries:
        where = " and ".join(str(a) for a in dict.fromkeys(out.entries))
        made.append(f"{out} is accumulated in place, at {where}; chunks of other threads have partial results")
    return (*made, _walk(nest, schedule)) if gathered and nest.producers else tuple(made)


def _walk(nest: Nest, schedule: Schedule) -> str:
    """Whether the array that leads to gathered rows is copied in panels, with both prices, or why that was not considered."""
    own = f"{schedule.cost.total / 1e6:.3g} ms expected"
    found = row_panels.considered(nest)
    if isinstance(found, str):
        return f"index arrays are walked as they are stored, not in panels of rows: {found}"
    if schedule.panels is not None:
        name, form = schedule.panels
        rows = max(form.blocks)
        other = "" if schedule.against is None else f", {schedule.against / 1e6:.3g} ms as it is stored"
        return f"{name} is copied in panels of {rows} rows, column by column, once per array: {own}{other}"
    other = (
        "panels cannot be walked" if schedule.against is None else f"{schedule.against / 1e6:.3g} ms in panels of rows"
    )
    return f"{found[0]} is walked as it is stored: {own}, {other}"
