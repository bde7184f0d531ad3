"""Abstract values: the type of an array. The number of stored entries is not part of it."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sparsejax import dtypes
from sparsejax.core.symbolic import NAMED, SymbolicDim
from sparsejax.formats import Format
from sparsejax.formats.validate import check_extents, checked_shape, is_shape

_kinds: dict[Any, int] = {}
_next_kind = itertools.count()
_known: dict[Any, Aval] = {}
"""A type of every structure that arrays have, with its number."""
_shaped: dict[int, dict[tuple[int, ...], Aval]] = {}
"""The types of arrays that were made lately, by number of the structure and by shape."""
SHAPES = 256
"""Types of one structure that are remembered."""


class _Fields:
    """The fields of an `Aval`."""

    __slots__ = (
        "_hash",
        "_key",
        "_kind",
        "_others",
        "dtype",
        "fill_value",
        "format",
        "is_literal",
        "shape",
        "weak_type",
    )


class _Open(_Fields):
    """A type while it is made, to which attributes can be assigned."""

    __slots__ = ()


class Aval(_Fields):
    """Shape, dtype, format and fill of a value; compared and hashed by value.

    `weak_type` marks Python scalars, which promote weakly as in NumPy 2. `is_literal` marks a static scalar, whose value is
    `fill_value`.

    >>> Aval((5, 7), np.dtype("f8"), Format.parse("csr", 2), 0.0)
    f64[5:d,7:c]
    """

    __slots__ = ()
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    format: Format
    fill_value: Any
    weak_type: bool
    is_literal: bool
    _key: tuple[object, ...]
    _hash: int
    _kind: int
    _others: dict[tuple[int, ...], Aval] | None

    def __init__(
        self,
        shape: Sequence[int],
        dtype: Any,
        format: Format,
        fill_value: Any = 0,
        weak_type: bool = False,
        is_literal: bool = False,
    ) -> None:
        put = object.__setattr__
        if not is_shape(shape):
            shape = tuple([n if type(n) is int else _extent(n) for n in shape])
            check_extents([n for n in shape if type(n) is int], "shape")
        put(self, "shape", shape)
        put(self, "dtype", np.dtype(dtype))
        put(self, "format", format)
        known = type(fill_value) is self.dtype.type
        put(self, "fill_value", fill_value if known else np.asarray(fill_value).astype(self.dtype)[()])
        put(self, "weak_type", weak_type)
        put(self, "is_literal", is_literal)
        fill = self.fill_value.tobytes()
        put(self, "_key", (self.shape, self.dtype.str, format, fill, weak_type, is_literal))
        put(self, "_hash", hash(self._key))
        put(self, "_kind", -1)
        put(self, "_others", None)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("an Aval cannot be changed")

    def __reduce__(self) -> Any:
        fields = (self.shape, self.dtype, self.format, self.fill_value, self.weak_type, self.is_literal)
        return Aval, fields

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Aval) and self._key == other._key)

    def __hash__(self) -> int:
        known = self._hash
        if known == -1:  # which no hash is
            known = hash(self._key)
            object.__setattr__(self, "_hash", known)
        return known

    @property
    def structure(self) -> tuple[object, ...]:
        """All but the extents: what types have in common that a plan for many shapes may serve."""
        return (len(self.shape), *self._key[1:])

    @property
    def kind(self) -> int:
        """A number for `structure`, which no other has in this process."""
        if self._kind < 0:
            kind = _kinds.get(self.structure)
            if kind is None:
                if len(_kinds) > 1 << 16:
                    _kinds.clear()  # numbers are not used again
                    _shaped.clear()
                kind = _kinds.setdefault(self.structure, next(_next_kind))
            object.__setattr__(self, "_kind", kind)
        return self._kind

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def is_dense(self) -> bool:
        return self.format.is_dense

    def resized(self, change: Callable[[Any], Any]) -> Aval:
        """The same type with every extent changed."""
        shape = tuple(map(change, self.shape))
        return self if all(map(operator.is_, shape, self.shape)) else self.shaped(shape)

    def shaped(self, shape: tuple[int, ...]) -> Aval:
        """The same type with other extents."""
        made: Any = _Open()  # attributes are assigned before it becomes an `Aval`, in half of the time
        made.shape, made.dtype, made.format, made.fill_value = shape, self.dtype, self.format, self.fill_value
        made.weak_type, made.is_literal, made._kind = self.weak_type, self.is_literal, self._kind
        made._key, made._hash, made._others = (shape, *self._key[1:]), -1, self._others
        made.__class__ = Aval
        return made  # type: ignore[no-any-return]

    def at(self, shape: tuple[int, ...]) -> Aval:
        """`shaped` for the extents of an array in memory, Python's integers: one object for all of a type that come one after the other, so that
        what is remembered by it is found again."""
        others = self._others
        if others is None:
            others = _shaped.setdefault(self.kind, {})
            object.__setattr__(self, "_others", others)
        found = others.get(shape)
        if found is None:
            for n in shape:
                if type(n) is not int:
                    return self.shaped(shape)
            if len(others) >= SHAPES:
                others.clear()
            found = others[shape] = self.shaped(shape)
        return found

    @staticmethod
    def of(shape: tuple[int, ...], dtype: np.dtype[Any], format: Format, fill_value: Any) -> Aval:
        """The type of an array in memory: `Aval(...)` in a third of the time."""
        if type(fill_value) is not dtype.type:
            return Aval(shape, dtype, format, fill_value)
        for n in shape:
            if type(n) is not int:
                return Aval(shape, dtype, format, fill_value)
        key = format, dtype, fill_value.tobytes(), len(shape)
        known = _known.get(key)
        if known is None:
            known = Aval(shape, dtype, format, fill_value)
            if known.kind >= 0:  # found once for all arrays of the structure
                if len(_known) > 4096:
                    _known.clear()
                _known[key] = known
        return known.at(shape)

    def strong(self) -> Aval:
        """The same type, not weak."""
        if not self.weak_type:
            return self
        return Aval(self.shape, self.dtype, self.format, 0 if self.is_literal else self.fill_value)

    def __repr__(self) -> str:
        form = self.format
        plain = form.order == Format(form.levels, None, form.blocks).order
        axes = [str(n) for n in self.shape]
        for number, (level, d) in enumerate(zip(form.levels, form.order, strict=True)):
            sign = f"/{form.blocks[d]}" if form.is_inner(number) else ":"
            numbered = "" if plain else f"_{number}" if level.spelling[-1].isdigit() else str(number)
            axes[d] += f"{sign}{level.spelling}{numbered}"
        fill = "" if self.is_dense or self.fill_value == 0 else f";fill={self.fill_value}"
        weak = "~" if self.weak_type else ""
        return f"{weak}{dtypes.short_name(self.dtype)}[{','.join(axes)}{fill}]"


def _extent(n: Any) -> Any:
    """An extent as types keep it: an integer of Python's, or one that is not known while a function is traced."""
    return n if isinstance(n, SymbolicDim) or (isinstance(n, int) and type(n) is not bool) else int(n)


class ShapeDtypeStruct:
    """The shape, dtype, format and fill of an array, to trace with instead of data.

    >>> ShapeDtypeStruct((5, 7), "float32", format="csr").aval
    f32[5:d,7:c]

    An extent may be a name, for functions of any extent; equal names are equal extents.

    >>> import sparsejax as sj
    >>> A = ShapeDtypeStruct(("n", "m"), "float32", format="csr")
    >>> sj.eval_shape(lambda A: sj.numpy.concatenate([A, A[1:]]), A)
    ShapeDtypeStruct(f32[2*n - 1:d,m:c])
    """

    def __init__(
        self, shape: Sequence[int], dtype: Any, *, format: str | Format | None = None, fill_value: Any = 0
    ) -> None:
        shape = tuple(shape) if any(isinstance(n, str | SymbolicDim) for n in shape) else checked_shape(shape)
        shape = tuple([NAMED.named(n) if isinstance(n, str) else n for n in shape])
        form = Format.parse("dense" if format is None else format, len(shape))
        self.aval = Aval(shape, dtypes.canonical(dtype), form, fill_value)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.aval.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.aval.dtype

    @property
    def format(self) -> Format:
        return self.aval.format

    @property
    def fill_value(self) -> Any:
        return self.aval.fill_value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShapeDtypeStruct) and self.aval == other.aval

    def __hash__(self) -> int:
        return hash(self.aval)

    def __repr__(self) -> str:
        return f"ShapeDtypeStruct({self.aval})"


_PYTHON: list[tuple[type, np.dtype[Any]]] = [
    (bool, np.dtype("bool")),
    (int, np.dtype("int64")),
    (float, np.dtype("float64")),
    (complex, np.dtype("complex128")),
]
_RUN_TIME: dict[np.dtype[Any], Aval] = {}
_SCALAR = Format(())


def scalar_aval(value: Any, is_literal: bool) -> Aval:
    """The weak type of a Python scalar; integers from 2^63 to 2^64 are uint64."""
    dtype = next(d for kind, d in _PYTHON if isinstance(value, kind))
    if dtype == np.int64 and not -(2**63) <= value < 2**63:
        if not 0 <= value < 2**64:
            raise OverflowError(f"Python integer {value} has more than 64 bits; pass it as a float")
        dtype = np.dtype("uint64")
    if not is_literal:
        known = _RUN_TIME.get(dtype)
        if known is None:
            known = _RUN_TIME[dtype] = Aval((), dtype, _SCALAR, 0, True)
        return known
    return Aval((), dtype, _SCALAR, value if is_literal else 0, True, is_literal)
