"""For which operands a trace with symbols in place of extents holds, and what their extents come to: written out as functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sparsejax.core.symbolic import LEAST, MOST


class Domain(NamedTuple):
    """For which operands a trace holds, and the extents in it."""

    symbols: tuple[str, ...]
    stands: tuple[int | str, ...]
    """What stands at every extent of the operands: a number, or an expression of symbols, as Python spells it."""
    guards: tuple[str, ...]
    codes: tuple[str, ...]
    """Every extent that depends on symbols, as an expression."""
    shape: tuple[int | str, ...]
    """That of the first result."""


def numbers_of(domain: Domain) -> tuple[Callable[[Sequence[int]], Any], Callable[[Sequence[int]], Any]]:
    """A function from the extents of operands to the values of `codes`, with the bits of each, and the shape of the result; to None where the trace
    does not hold for them. And one to the last two alone."""
    spelled, codes = list(map(str, domain.stands)), domain.codes
    at = {name: spelled.index(name) for name in domain.symbols if name in spelled}
    told = dict(_multiple(name, spelled) for name in domain.symbols if name not in at)
    asked = [f"_at{k} == {n}" for k, n in enumerate(domain.stands) if not isinstance(n, str)]
    asked += [f"{LEAST} <= {name} <= {MOST}" for name in domain.symbols]
    asked += [
        f"_at{k} == {code}" for k, code in enumerate(spelled) if isinstance(domain.stands[k], str) and at.get(code) != k
    ]
    asked += [f"({g})" for g in domain.guards] + [f"0 <= {c} <= {MOST}" for c in codes if c not in domain.symbols]
    own = {k: name for name, k in at.items()}
    given = "".join(f"{own.get(k, f'_at{k}')}, " for k in range(len(spelled))) or "()"
    values, bits = (", ".join(f"({c}){end}" for c in codes) for end in ("", ".bit_length()"))
    values, bits = f"({values},)" if codes else "()", f"({bits},)" if codes else "()"
    shape = "(" + "".join(f"{n}, " for n in domain.shape) + ")"
    known: dict[str, Any] = {}
    others = "".join(f"    {name} = {value}\n" for name, value in told.items())
    for name, found in ("numbers", f"{values}, {bits}, {shape}"), ("lengths", f"{bits}, {shape}"):
        condition = " and ".join(asked) or "True"
        exec(f"def {name}(_e):\n    {given} = _e\n{others}    return ({found}) if {condition} else None\n", known)
    return known["numbers"], known["lengths"]


def _multiple(name: str, spelled: Sequence[str]) -> tuple[str, str]:
    """A symbol that stands nowhere by itself, and its value by an extent that is a multiple of it and a remainder."""
    for k, code in enumerate(spelled):
        found = re.fullmatch(rf"(\d+)\*{name}(?: \+ (\d+))?", code)
        if found is not None:
            return name, f"(_at{k} - {found[2] or 0}) // {found[1]}"
    raise ValueError(f"no extent tells {name}")
