"""Parts of a loop order: which loops a decision is about."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from sparsejax.jit.backend import host
from sparsejax.jit.cost.memory import LINE
from sparsejax.jit.cost.price_table import Machine
from sparsejax.jit.ir import cin

ROWS, MANY_ROWS = 4, 8
"""Rows of a tile over two dense variables; and where there are 32 registers of a line each: two such vectors to a row are half of them, and what rows
share is read once for twice as many. Prices count four of these too."""
STRIP = int(2 * LINE)
"""Bytes of a strip that has several rows."""
WIDE, NARROW = int(16 * LINE), int(4 * LINE)
"""Bytes of a strip of one row, where registers are plenty and where not: four sums, which wait for each other no longer than one for its line."""
THREE = 3
"""Registers to a row of such a strip in panels of columns: lines in eight rows where there are 32 registers, halves of a line in four rows where there are
16 of these. Three quarters of the registers are sums, and fewer values are read for each."""


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
    while first and (order[first - 1] not in cin.bound_by(out) or is_dense(order[first - 1], (out, *reads))):
        first -= 1
    reductions = [k for k in range(first, len(order) - 1) if order[k] not in cin.bound_by(out)]
    if len(reductions) > 1 and reductions[0] and entries_are_rows(order[reductions[0] - 1 :], out, reads):
        return reductions[1]
    return reductions[0] if reductions else None


def run_below(var: cin.IndexVar, inner: cin.IndexVar, reads: Iterable[cin.Access]) -> cin.Access | None:
    """The only operand whose level over `var` is walked in runs, one for every coordinate, and whose last level, over `inner`, holds these."""
    found = []
    for access in dict.fromkeys(reads):
        form = access.tensor.format
        if access.tensor.policy is None and form.continues(len(access.indices) - 1) and not form.blocked:
            found += [access] if (access.level_index(-2), access.level_index(-1)) == (var, inner) else []
    return found[0] if len(found) == 1 else None


def entries_are_rows(order: Sequence[cin.IndexVar], out: cin.Access, reads: Sequence[cin.Access]) -> bool:
    """Whether the first two loops walk entries of two coordinates, the first that of a row of the result, the second reduced, and each entry may be
    a row of a tile: what is inside of them is a reduction of dense operands, some of which all entries share.

    Sums that are held over the second loop share nothing between entries; of entries that are rows, each adds its sums to the result.
    """
    if len(order) < 4 or order[0] not in out.indices or order[1] in cin.bound_by(out):
        return False
    walked = run_below(order[0], order[1], reads)
    others = [a for a in dict.fromkeys(reads) if a != walked]
    inner, along = order[2:-1], order[-1]
    if walked is None or not all(a.tensor.format.is_dense for a in (out, *others)):
        return False
    if any(v in cin.bound_by(out) for v in inner):
        return False
    return rows_share(order[:2], along, inner, (out, *others))


def block(order: Sequence[cin.IndexVar], first: int, out: cin.Access, reads: Sequence[cin.Access]) -> int | None:
    """Of tiles that begin at the reduction `first`, where the dense loops below its walks over entries begin, if these are a product of
    dense blocks of several rows: what is a tile of its own, whose sums a walk adds to the result. None where they are none."""
    used = (out, *reads)
    walks = [k for k in range(first, len(order) - 1) if not is_dense(order[k], used)]
    if not walks or any(order[k] in cin.bound_by(out) for k in range(first, walks[-1])):
        return None
    inside = order[walks[-1] + 1 : -1]
    rows = [v for v in inside if v in cin.bound_by(out)]
    return walks[-1] + 1 if rows and len(rows) < len(inside) else None


def blocks_pay(
    inside: Sequence[cin.IndexVar], out: cin.Access, extents: Mapping[cin.IndexVar, int], machine: Machine
) -> bool:
    """Whether tiles of a product of blocks pay, with `inside` its loops: each block adds its sums to the result once more; else, sums being held
    over the walk, what rows share is read by every tile of rows, a line here and there, from beyond the first cache. Of one line of a row, in nanoseconds."""
    summed = math.prod(extents[v] for v in inside[:-1] if v not in cin.bound_by(out))
    added = LINE / 8 * machine.lane
    again = summed / ROWS * machine.line[0]
    return added < again


def strips_pay(rows: cin.IndexVar, strip: cin.Forall, machine: Machine) -> bool:
    """Whether the loop over a strip pays outside of that over rows of a tile: either reads again what the first cache has lost meanwhile, so many bytes.
    Inside, all that rows share is read by every tile of rows; outside, what rows do not share is read for every strip. Walks over entries count as one
    entry, as nobody knows here how many they have."""
    (assign,) = (w for w in cin.writes(strip.body) if w.lhs.tensor.policy == "scalar")
    reads, inside = dict.fromkeys(cin.accesses(assign.rhs)), cin.loops(strip)
    extents = cin.extents(reads)

    def bytes_of(access: cin.Access) -> int:
        looped = (
            v for v in cin.bound_by(access) if v in extents and (v == rows or (v in inside and is_dense(v, [*reads])))
        )
        return math.prod(extents[v] for v in looped) * access.dtype.itemsize

    shared = sum(bytes_of(a) for a in reads if strip.var in a.indices and rows not in cin.bound_by(a))
    own = sum(bytes_of(a) for a in reads if strip.var not in a.indices and rows in cin.bound_by(a))
    width = max((extents[strip.var] * a.dtype.itemsize for a in reads if strip.var in a.indices), default=0)
    strips, tiles = max(1.0, width / STRIP), max(1.0, extents.get(rows, 1) / ROWS)
    within = (tiles - 1) * shared * machine.beyond(shared + own / tiles)[0]
    around = (strips - 1) * own * machine.beyond(shared / strips + own)[0]
    again = (tiles - 1) * shared * machine.beyond(shared / strips + own / tiles)[0]
    return within > around + again


def entry_rows(
    order: Sequence[cin.IndexVar],
    first: int,
    out: cin.Access,
    reads: Sequence[cin.Access],
    leaders: Sequence[cin.Access],
) -> bool:
    """Whether the entries that the loop just outside of tiles walks, which begin at the reduction `first`, may be rows of these
    (`loops/row_tiles`): each has a row of the result and reductions of dense operands, some of which all of them share."""
    if not first or len(leaders) != 1:
        return False
    if first > 1 and entries_are_rows(order[first - 2 :], out, reads):
        return True
    var, inner, along = order[first - 1], order[first:-1], order[-1]
    others = [a for a in reads if a not in leaders]
    dense = all(a.tensor.format.is_dense for a in (out, *others))
    if not dense or var not in out.indices or any(v in cin.bound_by(a) for a in (out, *leaders) for v in inner):
        return False
    return rows_share((var,), along, inner, (out, *others))


def rows_share(
    rows: Sequence[cin.IndexVar | None], along: cin.IndexVar, inner: Sequence[cin.IndexVar], dense: Sequence[cin.Access]
) -> bool:
    """Whether the rows of a tile, one for each coordinate of `rows`, run over the same coordinates, and some of the `dense` operands is the same for
    all of them."""
    if not all(is_dense(v, dense) for v in inner):
        return False
    return any(along in a.indices and not any(v in cin.bound_by(a) for v in rows) for a in dense)


def is_dense(var: cin.IndexVar, accesses: Sequence[cin.Access]) -> bool:
    """Whether `var` is neither a sparse level of what is read and written, nor above one."""
    for access in accesses:
        if var not in cin.bound_by(access):
            continue
        levels = [lv for lv in range(len(access.indices)) if access.level_index(lv) == var]
        if (
            cin.jumps(access, var)
            or len(levels) != 1
            or not all(lv.full for lv in access.tensor.format.levels[levels[0] :])
        ):
            return False
    return True


def strip_bytes() -> int:
    """Bytes of a strip of several rows in panels of columns."""
    return int(THREE * LINE / (1 if host.has_masks() else 2))
