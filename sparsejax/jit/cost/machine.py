"""The machine that kernels are priced for (`price_table.Machine`).

`python -m benchmarks.calibrate` measures a machine and prints its table; `machines` holds those that are shipped. `config.machine` says which one
counts: "auto" (the shipped one whose caches are most like those that the system reports, with these in their place), a name, or a JSON file that
`benchmarks.calibrate --write` made.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sparsejax import config
from sparsejax.jit.cost.machines import MACHINES
from sparsejax.jit.cost.price_table import Levels, Machine

CACHE = 1 << 20
"""Bytes of the second-level cache of the machine that the tables of workspaces and conversions were fitted on."""


def missed(size: float) -> float:
    """The fraction of accesses to random places among `size` bytes that miss that cache."""
    return min(1.0, max(0.0, math.log2(max(1.0, size / CACHE)) / 4))


FAR = 1 << 18
"""Entries from which prefetching pays: fewer stay in the caches."""


UNEVEN = 8
"""A segment this many times longer than the other is searched instead of walked."""


SHIPPED = MappingProxyType({m.name: m for m in MACHINES})
"""Machines by name."""


def current() -> Machine:
    """The machine that kernels are priced for."""
    return _chosen(config.machine())


@functools.lru_cache(maxsize=16)
def _chosen(name: str) -> Machine:
    if name == "auto":
        return nearest(caches_here())
    if name in SHIPPED:
        return SHIPPED[name]
    if not Path(name).exists():
        known = ", ".join(SHIPPED)
        raise ValueError(f'there is no machine {name!r}: it is neither "auto", nor one of {known}, nor a file')
    return read(name)


def nearest(caches: Levels | None) -> Machine:
    """The shipped machine with the caches that are most alike, by their ratios, with `caches` in place of its own; the first one that is shipped,
    where nothing is known.

    >>> nearest((32 << 10, 1 << 20, 32 << 20)).name
    'zen4'
    """
    known = list(SHIPPED.values())
    if caches is None:
        return known[0]
    return dataclasses.replace(min(known, key=lambda m: _unlike(m.caches, caches)), caches=caches)


def _unlike(one: Levels, other: Levels) -> float:
    return sum(abs(math.log(a / b)) for a, b in zip(one, other, strict=True))


def caches_here() -> Levels | None:
    """Bytes of the first, second and third-level caches of data, as Linux reports them; None where it does not."""
    try:
        found = {
            int(_line(entry, "level")): _line(entry, "size")
            for entry in _CACHES.glob("index*")
            if _line(entry, "type") != "Instruction"
        }
        first, second, third = (float(found[level].removesuffix("K")) * 1024 for level in (1, 2, 3))
    except (KeyError, ValueError, OSError):
        return None
    return (first, second, third) if min(first, second, third) > 0 else None


_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def _line(entry: Path, name: str) -> str:
    return (entry / name).read_text().strip()


def read(path: str) -> Machine:
    """A machine from a JSON file. ValueError where a price is missing, unknown, or no positive number."""
    with open(path, encoding="utf-8") as file:
        fields = json.load(file)
    like = dataclasses.asdict(MACHINES[0])
    if not isinstance(fields, dict) or set(fields) != set(like):
        wrong = sorted(set(like).symmetric_difference(fields)) if isinstance(fields, dict) else "no table"
        raise ValueError(
            f"{path} is no table of a machine: {wrong}; make one with python -m benchmarks.calibrate --write"
        )
    made: dict[str, Any] = {n: tuple(x) if isinstance(x, list) else x for n, x in fields.items()}
    for name, value in made.items():
        if name != "name" and not _alike(value, like[name]):
            raise ValueError(f"{path}: {name} is {value!r}, where nanoseconds or bytes must be, as in {like[name]}")
    return Machine(**made)


def _alike(value: object, like: object) -> bool:
    """Whether a price is a number, or one per level, as another one is."""
    if isinstance(like, tuple):
        return isinstance(value, tuple) and len(value) == len(like) and all(_alike(x, 0.0) for x in value)
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
