"""Parts of a loop order: which loops a decision is about."""

from __future__ import annotations

from collections.abc import Sequence

from sparsejax.formats import Dense
from sparsejax.jit.ir import cin


def depth(access: cin.Access, var: cin.IndexVar, order: Sequence[cin.IndexVar]) -> int | None:
    """Inside how many loops of `order` the fibers of `access` over `var`, the next loop, can be scattered so that they are read again
    and again; None where they cannot, or where they are read once."""
    others = [v for v in access.indices if v != var]
    if var.outer is not None or not others or len(others) + 1 < len(access.indices):
        return None
    if not access.tensor.format.levels[-1].listed:
        return None
    if any(v not in order for v in others):
        return None
    made = 1 + max(k for k, v in enumerate(order) if v in others)
    return made if made < len(order) else None


def region(order: Sequence[cin.IndexVar], out: cin.Access, reads: Sequence[cin.Access]) -> int | None:
    """Where in a loop order that ends with a vector loop the loops begin that become tiles, the first of them a reduction; None where there
    are none."""
    first = len(order) - 1
    if order[first] not in out.indices:
        return None
    while first and (order[first - 1] not in cin.bound_by(out) or _is_dense(order[first - 1], (out, *reads))):
        first -= 1
    reductions = (k for k in range(first, len(order) - 1) if order[k] not in cin.bound_by(out))
    return next(reductions, None)


def _is_dense(var: cin.IndexVar, accesses: Sequence[cin.Access]) -> bool:
    """Whether `var` is neither a sparse level of what is read and written, nor above one."""
    for access in accesses:
        if var not in cin.bound_by(access):
            continue
        if var.outer is not None and access.tensor.policy is None and not _paired(access, var):
            return False
        levels = [lv for lv in range(len(access.indices)) if access.level_index(lv) == var]
        if (
            cin.jumps(access, var)
            or len(levels) != 1
            or not all(isinstance(lv, Dense) for lv in access.tensor.format.levels[levels[0] :])
        ):
            return False
    return True


def _paired(access: cin.Access, var: cin.IndexVar) -> bool:
    """Whether the blocks that `var` runs inside of are no blocks in memory."""
    return all(d in access.tensor.paired for d, ix in enumerate(access.indices) if ix == var)
