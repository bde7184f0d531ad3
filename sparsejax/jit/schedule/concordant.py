"""The format of an operand whose storage order follows the loops."""

from __future__ import annotations

from collections.abc import Iterable

from sparsejax.formats import Compressed, Dense, Format, Level
from sparsejax.jit.cost.statistics import Facts
from sparsejax.jit.ir import cin


def concordant_format(access: cin.Access, order: tuple[cin.IndexVar, ...], facts: Facts) -> Format:
    """The format for `access` whose storage order follows the loops: dense levels below all sparse ones stay dense, the outermost
    is dense when its extent is in proportion to the entries and another is sparse, the others are compressed. What is stored stays the
    same."""
    tensor = access.tensor
    rank = {v: k for k, v in enumerate(order)}
    place = {d: max((rank.get(v, -1) for v in cin.variables_of(ix)), default=-1) for d, ix in enumerate(access.indices)}
    dims = tuple(sorted(range(len(access.indices)), key=lambda d: (place[d], tensor.format.order.index(d))))
    last = tensor.format.sparse[-1]
    block = set(tensor.format.order[last + 1 :])
    entries = facts[tensor.name][last]
    levels: list[Level] = []
    for k, d in enumerate(dims):
        located = k == 0 and tensor.shape[d] <= max(1024, 4 * entries) and not block.issuperset(dims[1:])
        if located or block.issuperset(dims[k:]):
            levels.append(Dense())
        else:
            levels.append(Compressed())
    return Format(tuple(levels), dims)


def unfolds(copied: Iterable[cin.Tensor]) -> bool:
    """Whether one of the operands that are copied is stored in runs: its copy has an entry for every coordinate in these."""
    return any(level.in_runs for tensor in copied for level in tensor.format.levels)
