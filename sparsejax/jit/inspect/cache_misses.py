"""Why a call traced anew: what differs from the closest signature that is known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sparsejax.core.avals import Aval

Signature = tuple[Any, tuple[Any, ...], tuple[Aval, ...]]
"""Structure of the arguments (None: positional arrays alone), static arguments, types of the leaves."""


def signature(key: Any) -> Signature:
    """The parts of a key of the trace cache."""
    if key and isinstance(key[-1], tuple):
        return key  # type: ignore[no-any-return]
    return None, (), tuple(key)


def reason(name: str, key: Any, known: Iterable[Any], paths: Sequence[str]) -> str:
    """Why `name` is traced for `key`, although it was for `known`; `paths` name the leaves of the arguments."""
    wanted = signature(key)
    compared = [differences(wanted, signature(k), paths) for k in known]
    if not compared:
        return f"{name} is traced for the first time"
    closest = min(compared, key=len)
    return f"{name} is traced anew: {'; '.join(closest)} ({len(compared)} signatures are known, this is against the closest)"


def differences(wanted: Signature, known: Signature, paths: Sequence[str]) -> list[str]:
    """What differs between two signatures, one sentence each."""
    found = []
    tree, statics, avals = wanted
    known_tree, known_statics, known_avals = known
    if len(avals) != len(known_avals):
        found.append(f"there are {len(avals)} arrays instead of {len(known_avals)}")
    elif tree is not None and known_tree is not None and tree != known_tree:
        found.append(f"the structure is {tree} instead of {known_tree}")
    else:
        for number, (new, old) in enumerate(zip(avals, known_avals, strict=True)):
            if new != old:
                place = paths[number] if number < len(paths) else f"argument {number}"
                found.append(f"{place} is {new} instead of {old} ({', '.join(_parts(new, old))})")
    before = dict(known_statics)
    for which, value in statics:
        if which not in before:
            found.append(f"static argument {which!r} is given")
        elif before[which] != value:
            found.append(f"static argument {which!r} is {value[-1]!r} instead of {before[which][-1]!r}")
    found += [f"static argument {which!r} is not given" for which in before if which not in dict(statics)]
    return found or ["the structure of its arguments differs"]


def _parts(new: Aval, old: Aval) -> list[str]:
    parts = ("shape", "dtype", "format", "fill_value", "weak_type")
    return [p.replace("_", " ") for p in parts if not _same(getattr(new, p), getattr(old, p))]


def _same(a: Any, b: Any) -> bool:
    return bool(a == b) or (a != a and b != b)
