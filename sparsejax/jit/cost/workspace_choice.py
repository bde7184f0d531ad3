"""Which workspace policy to use: the cheapest for the expected numbers of insertions and entries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sparsejax.formats import Format
from sparsejax.jit.cost import workspace_price
from sparsejax.jit.cost.workspace_price import bits_of, words_of

DENSE = ("bitmap", "marks")
"""Policies whose memory follows the extents."""


SMALL = 16  # bits of the largest bitmap workspace where nothing is known about the operands


AMPLE, ROOM = 1 << 26, 4.0
"""A bitmap is taken up to AMPLE bytes, or ROOM times those of the entries: beyond, memory would follow the extents."""


FEWEST = 1000.0  # a forecast of fewer insertions is taken for this many: coordinates that cluster meet more often than expected


COMPILE = (
    1e4  # sorting, growing and merging double the code: 20 to 32 ms of compilation (measured), over two thousand calls
)


UNEVEN = 1.5
"""What policies that sort cost more than their price, which is that of uses that are all as long as each other: sorting and growing take more than twice as
long for twice the entries. Of products of eight public graphs and meshes priced within this factor, a bitmap took 0.26 to 1.0 of the time."""


@dataclass(frozen=True)
class Choice:
    """A policy, its expected cost in nanoseconds, and why it was chosen."""

    policy: str
    cost: float
    reason: str
    inserted: tuple[float, float]
    """The insertions that were expected, in how many times that it is filled."""


def default(shape: Sequence[int]) -> str:
    """The policy for a workspace of `shape` when nothing is known about the operands.

    >>> default((100,)), default((2**40, 2**40))
    ('bitmap', 'hash')
    """
    return "bitmap" if sum(map(bits_of, shape)) <= SMALL else "hash"


def dense_below(form: Format) -> int:
    """How many dense levels an output of format `form` has below its last sparse one.

    >>> dense_below(Format.parse("(d,c,d,d)", 4))
    2
    """
    dense = [level.full for level in form.levels]
    return next((k for k, full in enumerate(reversed(dense)) if not full), len(dense))


def choose(
    shape: Sequence[int],
    itemsize: int,
    inserts: float,
    entries: float,
    uses: float,
    wanted: str = "auto",
    below: int = 0,
    constants: workspace_price.Terms = workspace_price.NANOSECONDS,
) -> Choice:
    """The policy for a workspace, the cheapest unless one is `wanted` that can hold it.

    Policies but the dense ones cost their compilation too, and more where uses are uneven (`UNEVEN`); dense ones out of proportion to the entries are left
    out (`fits`).
    The last `below` variables are dense in the output.

    >>> choose((2**40, 2**40), 8, 1e4, 1e4, 1.0).policy
    'coordinate'
    >>> choose((2**40, 2**40), 8, 1e4, 1e4, 1.0, "hash").reason
    'as configured'
    >>> choose((2**40, 2**40), 8, 1e4, 1e4, 1.0, "bitmap").reason[:47]
    'bitmap is configured and cannot hold it; 1e+04 '
    """
    expected = workspace_price.costs(workspace_price.terms(shape, itemsize, inserts, entries, uses, below), constants)
    if wanted in expected:
        return Choice(wanted, expected[wanted], "as configured", (inserts, uses))
    instead = "" if wanted == "auto" else f"{wanted} is configured and cannot hold it; "
    found = expected
    if inserts < FEWEST:
        fewest = min(FEWEST, math.prod(map(float, shape)))
        found = workspace_price.costs(
            workspace_price.terms(shape, itemsize, FEWEST, max(entries, fewest), uses, below), constants
        )
    found = {name: cost if name in DENSE else cost * UNEVEN for name, cost in found.items()}
    code = {name: 0.0 if name in DENSE else COMPILE for name in found}
    ranked = sorted(
        (name for name in found if name not in DENSE or fits(shape, itemsize, entries)),
        key=lambda name: found[name] + code[name],
    )
    policy = ranked[0]
    listed = ", ".join(f"{name} {found[name] + code[name]:.3g}" for name in ranked)
    total = f"{inserts:.3g} insertions, {entries:.3g} entries, filled {uses:.3g} times"
    return Choice(policy, expected[policy] + code[policy], f"{instead}{total}; costs {listed}", (inserts, uses))


def policies(
    shape: Sequence[int], itemsize: int, inserts: float, entries: float, uses: float, below: int = 0
) -> tuple[str, ...]:
    """The policies that can hold a workspace, without memory out of proportion to its entries.

    >>> policies((2**40, 2**40), 8, 1e4, 1e4, 1.0)
    ('hash', 'coordinate', 'bucket')
    """
    found = workspace_price.terms(shape, itemsize, inserts, entries, uses, below)
    return tuple(name for name in found if name not in DENSE or fits(shape, itemsize, entries))


def fits(shape: Sequence[int], itemsize: int, entries: float) -> bool:
    """Whether a bitmap over `shape` is in proportion to the entries that it will hold, or small.

    >>> fits((1000, 1000), 8, 1.0), fits((300_000, 300_000), 8, 4.0)
    (True, False)
    """
    bits = sum(map(bits_of, shape))
    return 2.0**bits * (itemsize + 1) <= max(AMPLE, ROOM * entries * (8 * (1 + words_of(shape)[-1]) + itemsize))
