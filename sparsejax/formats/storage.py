"""Storage: the buffers of one array. Never changed once made; shared freely between arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sparsejax.formats import entries, passes
from sparsejax.formats.format import Format

Template = tuple[Format, tuple[int, ...], Any, tuple[tuple[NDArray[Any], ...], ...]]
_new: Any = object.__new__


@dataclass(eq=False)  # not frozen: that would double the time it takes to make one
class Storage:
    """Buffers of an array of `shape` (dimension order) stored as `format`.

    `buffers[l]` belongs to level `l`, in the order of `format.buffer_names(l)`; `vals` holds one value per position of the last
    level, the fill where a position is unused. Positions are int64; coordinates int32 where the extent allows, else int64.
    """

    format: Format
    shape: tuple[int, ...]
    fill_value: Any
    buffers: tuple[tuple[NDArray[Any], ...], ...]
    vals: NDArray[Any]
    cache: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What was derived from the buffers once: addresses, statistics, converted copies."""
    ours: ClassVar[bool] = False
    """Whether `vals` is memory that a kernel was given for its result."""

    def __post_init__(self) -> None:
        for array in (*(a for level in self.buffers for a in level), self.vals):
            if array.flags.writeable:
                array.setflags(write=False)

    @staticmethod
    def dense(template: Template, vals: NDArray[Any], cache: dict[Any, Any]) -> Storage:
        """The storage of a dense array, on the shortest road (results of small calls).

        `template` holds the other fields, see `dense_template`; `vals` is read-only, or a view for one call.
        """
        made: Storage = _new(Storage)
        made.format, made.shape, made.fill_value, made.buffers = template
        made.vals, made.cache = vals, cache
        return made

    @staticmethod
    def result(template: Template, vals: NDArray[Any], cache: dict[Any, Any]) -> Storage:
        """The same over memory that a kernel was given for its result (`ours`)."""
        made = Storage.dense(template, vals, cache)
        made.ours = True  # type: ignore[misc]
        return made

    @staticmethod
    def of_frozen(
        format: Format,
        shape: tuple[int, ...],
        fill_value: Any,
        buffers: tuple[tuple[NDArray[Any], ...], ...],
        vals: NDArray[Any],
    ) -> Storage:
        """The storage of buffers that are read-only already."""
        made: Storage = _new(Storage)
        made.format, made.shape, made.fill_value, made.buffers = format, shape, fill_value, buffers
        made.vals, made.cache = vals, {}
        return made

    def with_values(self, vals: NDArray[Any], fill_value: Any) -> Storage:
        """Other values over the same pattern: the same index buffers, and what is known of them."""
        if vals.flags.writeable:
            vals.setflags(write=False)
        made = Storage.of_frozen(self.format, self.shape, fill_value, self.buffers, vals)
        made.cache["pattern"] = self.cache.setdefault("pattern", {})
        for known in ("lines", "positions"):
            if known in self.cache:
                made.cache[known] = self.cache[known]
        return made

    def exposed(self) -> Storage:
        """The same storage for others to look at: fresh views that cannot be made writeable, over the same memory."""
        made: Storage = _new(Storage)
        buffers = tuple(tuple(sealed(b) for b in level) for level in self.buffers)
        made.__dict__.update(self.__dict__, buffers=buffers, vals=sealed(self.vals), ours=False)
        return made

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.vals.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nnz(self) -> int:
        """The number of stored entries: O(1), or counted once where positions are not entries."""
        return len(self.vals) if self.packed else self.counts[-1]

    @property
    def packed(self) -> bool:
        """Whether entry k is at position k, and there is no other position."""
        return self.format.packed and not self.format.pads(self.shape)

    @property
    def counts(self) -> list[int]:
        """The number of stored entries of every level, outermost first; counted once."""
        known: list[int] | None = self.cache.get("counts")
        if known is None:
            known = self.cache["counts"] = entries.counts(self.format, self.shape, self.buffers)
        return known

    def expand(self) -> tuple[list[NDArray[Any]], NDArray[Any]]:
        """The coordinates of every stored entry, one array per dimension, in storage order; and its value."""
        walked = entries.walks(self)
        if walked is not None:
            return walked
        columns, position = entries.expand(self.format, self.shape, self.buffers)
        return columns, self.vals if position is None else passes.over(len(position)).take(self.vals, position)

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for level in self.buffers for a in level) + self.vals.nbytes


def dense_template(format: Format, shape: tuple[int, ...], zero: Any) -> Template:
    """The fields of a dense array's storage that do not change from one result to the next."""
    return format, shape, zero, ((),) * len(format.levels)


def sealed(array: NDArray[Any]) -> NDArray[Any]:
    """A read-only view of a contiguous array that cannot be made writeable, nor can its bases.

    NumPy lets a read-only array become writeable again if it owns its memory, and its views with it; not through a buffer.

    >>> x = sealed(np.zeros(3))
    >>> x.flags.writeable = True
    Traceback (most recent call last):
    ...
    ValueError: cannot set WRITEABLE flag to True of this array
    """
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    if owner.base is not None or not array.size:
        return array.view()
    return np.frombuffer(array.data.toreadonly(), array.dtype)
