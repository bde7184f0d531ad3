"""Extents by number: what is known by the places of its extents among those of its operands is the same for operands of any extents.

own = (5, 7, 5)      7 is ~1, 5 is ~0; 9, which is none of them, is ~3, the first of the others
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


class Numbered:
    """Called with an extent, ~k: where it is among those of operands, or of the `others`, which are counted behind these, first of all that are as large.
    What is less than two, or no number, stays."""

    def __init__(self, own: Sequence[int]) -> None:
        self.own = tuple(own)
        self._first: dict[int, int] = {}
        for k, n in enumerate(own):
            self._first.setdefault(n, ~k)
        self._others: list[int] = []

    def __call__(self, n: Any) -> Any:
        if type(n) is not int or n < 2:
            return n
        known = self._first.get(n)
        if known is None:
            known = self._first[n] = ~(len(self.own) + len(self._others))
            self._others.append(n)
        return known

    @property
    def others(self) -> tuple[int, ...]:
        """The extents that are none of operands."""
        return tuple(self._others)


def at(extents: Sequence[Any]) -> Callable[[Any], Any]:
    """What gives an extent for its number."""
    return lambda n: extents[~n] if type(n) is int and n < 0 else n
