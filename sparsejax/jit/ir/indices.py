"""Tensors, accesses, and what may stand as an index of an access; every question that is asked of an index is answered here.

    IndexVar     a variable: the axis is walked by the loop over it
    int          a fixed coordinate (0 on an axis of extent one that is broadcast)
    Position     where another access is stored (`shared_patterns`)
    Access       an entry of an array of integers: A[X[p,q],i]

    follows      the variable whose loop walks the axis, if any: the loop leads there, level by level
    fixed        the coordinate itself, if it is a constant
    variables_of the variables on which the coordinate depends
    accesses_of  the accesses that are resolved before the coordinate is known
    entries_of   those of them whose values are read for it
    distinct     whether other values of a variable are other coordinates
    jumps        whether an access moves with a variable in another way than along the axes that follow it
    known        whether the coordinate is known inside some loops
    coordinate   its value, where it is known
    renamed      the same with other variables
    moved        the same, read from other arrays
    fault        what is wrong with it inside some loops

Everything else in the compiler asks these, and never what kind of index it has. So a new kind of index is a case of each of them, and the
code that computes its value (docs/how-it-works/extending.md, section 4).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np

from sparsejax.cached import cached_property
from sparsejax.formats import Format

T = TypeVar("T")


class IndexVar(NamedTuple):
    """An index variable; its extent is that of every axis it indexes. (A named tuple: sets and dictionaries of variables are most of scheduling.)

    One that runs inside the blocks of `outer` has a constant extent, the `size` of a block; in the last block it runs below
    `rest` only, where that is not zero.
    """

    name: str
    outer: IndexVar | None = None
    size: int = 0
    rest: int = 0

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Position:
    """The position of `access` at its last sparse storage level `level`: the outermost index of arrays of values beside it."""

    access: Access
    level: int

    @property
    def moves(self) -> bool:
        """Whether values beside the access can be moved along with a copy of it: the entries of both are numbered alike."""
        form = self.access.tensor.format
        return form.packed and self.level + 2 >= form.ndim

    def __str__(self) -> str:
        return f"@{self.access}"


@dataclass(frozen=True)
class Constant:
    """The entries of an array that never changes (`static_products`): coordinates, and values as the bytes of an array of its dtype."""

    coordinates: tuple[tuple[int, ...], ...]
    values: bytes


class Units(NamedTuple):
    """Axes of extent one that an array has, stored as `format`, and a kernel does not know (`units`): their dimensions."""

    dimensions: tuple[int, ...]
    format: Format


class Tensor(NamedTuple):
    """A tensor or workspace: `shape` in dimension order, stored as `format`, with `fill_value` where nothing is stored.

    `result` is the format of the result that a workspace holds for a while: a dense one lacks no entries.

    Of a tensor whose format was `source` before it was split in blocks (`blocks`), the dimensions `inner` are those inside
    blocks, of constant extent; those of them in `paired` are one stored dense dimension together with the dimension before.

    `constant`: what it holds, where code is made for these entries alone. `units`: what the array has beside its dimensions.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    format: Format
    fill_value: Any
    policy: str | None = None
    result: Format | None = None
    source: Format | None = None
    inner: tuple[int, ...] = ()
    paired: tuple[int, ...] = ()
    constant: Constant | None = None
    units: Units | None = None

    @property
    def stored(self) -> Format:
        """The format of the array itself."""
        return self.source or (self.format if self.units is None else self.units.format)

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Tensor)
            and self.name == other.name
            and self.shape == other.shape
            and self.dtype == other.dtype
            and self.format == other.format
            and self.policy == other.policy
            and self.source == other.source
            and self.inner == other.inner
            and self.paired == other.paired
            and self.constant == other.constant
            and self.units == other.units
            and same_value(self.fill_value, other.fill_value)
        )

    def __ne__(self, other: object) -> bool:
        return not self == other

    def reshaped(self, shape: Sequence[int], form: Format) -> Tensor:
        """The same over other dimensions. What belongs to dimensions goes: those inside blocks, and what a constant holds."""
        return self._replace(
            shape=tuple(shape), format=form, source=None, inner=(), paired=(), constant=None, units=None
        )

    @property
    def lacks(self) -> bool:
        """Whether entries may be absent, rather than have the fill as their value."""
        return not (self.result or self.format).is_dense

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, init=False)
class Access:
    """`tensor[indices]`, indices in dimension order; `others`: the accesses that say where it is, those of its indices (`accesses_of`); `computed`:
    whether it has an index that is neither a variable nor a constant."""

    tensor: Tensor
    indices: tuple[Index, ...]
    _hash: int = field(init=False, repr=False, compare=False, default=0)
    others: tuple[Access, ...] = field(init=False, repr=False, compare=False, default=())
    computed: bool = field(init=False, repr=False, compare=False, default=False)

    def __init__(self, tensor: Tensor, indices: tuple[Index, ...]) -> None:
        made = self.__dict__  # in half of the time of attributes of a frozen class, which most of a compilation makes
        made["tensor"], made["indices"], made["_hash"] = tensor, indices, hash((tensor.name, indices))
        rest = [ix for ix in indices if type(ix) is not IndexVar and not isinstance(ix, int)]
        if rest:
            made["others"], made["computed"] = tuple([a for ix in rest for a in accesses_of(ix)]), True

    def __hash__(self) -> int:
        return self._hash

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.tensor.dtype

    @cached_property
    def bound(self) -> tuple[IndexVar, ...]:
        """See `cin.bound_by`."""
        if not self.computed:
            return tuple(dict.fromkeys(followed(self.indices)))
        return tuple(dict.fromkeys([v for ix in self.indices for v in variables_of(ix)]))

    @property
    def reads(self) -> tuple[Access, ...]:
        """See `cin.accesses`."""
        return (*self.others, self) if self.others else (self,)

    @property
    def entries(self) -> tuple[Access, ...]:
        """The accesses whose values are read to find its place."""
        return tuple([a for ix in self.indices for a in entries_of(ix)]) if self.others else ()

    def level_index(self, level: int) -> Index:
        """The index bound by storage level `level`."""
        return self.indices[self.tensor.format.order[level]]

    def __str__(self) -> str:
        return f"{self.tensor.name}[{','.join(map(str, self.indices))}]"


Index = IndexVar | int | Position | Access


def same_value(a: Any, b: Any) -> bool:
    """Equal scalars of one dtype, NaN equal to NaN."""
    return bool(a == b) or bool(a != a and b != b)


# ---------------------------------------------------------------------------------------------------------- questions


def follows(index: Index) -> IndexVar | None:
    """The variable whose loop walks an axis with this index; None where the coordinate is not that of a loop."""
    return index if isinstance(index, IndexVar) else None


def followed(indices: Iterable[Index]) -> list[IndexVar]:
    """The variables that some indices follow, in order."""
    return [ix for ix in indices if type(ix) is IndexVar]


def are_variables(indices: Iterable[Index]) -> bool:
    """Whether every one of some indices follows a variable."""
    return all(isinstance(ix, IndexVar) for ix in indices)


def fixed(index: Index) -> int | None:
    """The coordinate of an index that is the same everywhere; None of others."""
    return index if isinstance(index, int) else None


def variables_of(index: Index) -> tuple[IndexVar, ...]:
    """The index variables that an index depends on: a position on those of the levels down to its own."""
    match index:
        case IndexVar():
            return (index,)
        case int():
            return ()
        case Position(access, level):
            return tuple(v for lv in range(level + 1) for v in variables_of(access.level_index(lv)))
        case Access():
            return index.bound


def accesses_of(index: Index) -> tuple[Access, ...]:
    """The accesses whose places say what the coordinate is, those that are needed first before the others."""
    match index:
        case IndexVar() | int():
            return ()
        case Position(access):
            return (*access.others, access)
        case Access():
            return (*index.others, index)


def entries_of(index: Index) -> tuple[Access, ...]:
    """The accesses whose values are read to compute the coordinate, those that are needed first before the others."""
    match index:
        case IndexVar() | int():
            return ()
        case Position(access):
            return access.entries
        case Access():
            return (*index.entries, index)


def distinct(index: Index, var: IndexVar) -> bool:
    """Whether two iterations of the loop over `var` never have the same coordinate."""
    match index:
        case IndexVar():
            return index == var
        case int() | Access():  # an array may hold a number twice
            return False
        case Position():
            return var in variables_of(index)


def jumps(access: Access, var: IndexVar) -> bool:
    """Whether `access` moves with `var` in another way than along the axes that follow it."""
    return any(ix != var and var in variables_of(ix) for ix in access.indices) if access.computed else False


def known(index: Index, bound: Collection[Index], reached: Callable[[Access, int], bool] | None = None) -> bool:
    """Whether the coordinate of an index is known inside loops over the variables `bound`.

    `reached(access, level)` says whether an access has been resolved down to a level, and is sure to be stored there. Without it, accesses
    count as resolved once all variables are bound.
    """
    if reached is not None and isinstance(index, Position):
        return reached(index.access, index.level)
    if reached is not None and isinstance(index, Access):
        return reached(index, len(index.indices) - 1)
    return all(v in bound for v in variables_of(index))


def coordinate(
    index: Index,
    bound: Mapping[IndexVar, T],
    constant: Callable[[int], T],
    place: Callable[[Position], T],
    entry: Callable[[Access], T],
) -> T:
    """The value of an index that is known, where variables have the values `bound`; the rest is computed by those who ask."""
    match index:
        case IndexVar():
            return bound[index]
        case int():
            return constant(index)
        case Position():
            return place(index)
        case Access():
            return entry(index)


def renamed(index: Index, names: Mapping[Index, Index]) -> Index:
    """The index with other indices in place of variables, and of itself if it has a new name."""
    if index in names:
        return names[index]
    match index:
        case IndexVar() | int():
            return index
        case Position(access, level):
            return Position(renamed_access(access, names), level)
        case Access():
            return renamed_access(index, names)


def renamed_access(access: Access, names: Mapping[Index, Index]) -> Access:
    """`access` with its indices `renamed`."""
    made = tuple([renamed(ix, names) for ix in access.indices])
    return access if all(map(operator.is_, made, access.indices)) else Access(access.tensor, made)


def moved(index: Index, replace: Mapping[Access, object]) -> Index:
    """The index read from what replaces the accesses that it is read from: these must be accesses, too. A position stays where it is when an
    expression replaces what is stored there."""
    match index:
        case IndexVar() | int():
            return index
        case Position(access):
            made = replace.get(access)
            return position_of(made) if isinstance(made, Access) else index
        case Access():
            made = replace.get(index, index)
            assert isinstance(made, Access), f"{index} is an index: it is read from an array, not computed as {made}"
            return moved_access(made, replace)


def moved_access(access: Access, replace: Mapping[Access, object]) -> Access:
    """`access` with its indices `moved`."""
    return Access(access.tensor, tuple([moved(ix, replace) for ix in access.indices])) if access.others else access


def position_of(access: Access) -> Position:
    """Where `access` is stored, at its last sparse level."""
    return Position(access, access.tensor.format.sparse[-1])


def fault(index: Index, bound: Collection[IndexVar]) -> str | None:
    """What is wrong with an index inside loops over the variables `bound`."""
    unbound = next((v for v in variables_of(index) if v not in bound), None)
    if unbound is not None:
        return f"index variable {unbound} is not bound by a forall"
    if isinstance(index, Access) and index.dtype.kind not in "iu":
        return f"{index} is no index: its dtype is {index.dtype}"
    return None


def extents(accesses: Iterable[Access]) -> dict[IndexVar, int]:
    """The extent of every variable that some accesses follow, in order of first appearance."""
    found: dict[IndexVar, int] = {}
    for access in accesses:
        for size, index in zip(access.tensor.shape, access.indices, strict=True):
            if isinstance(index, IndexVar):
                found.setdefault(index, size)
    return found
