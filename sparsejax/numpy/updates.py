"""`x.at[key]`: arrays with other values at the places of a key.

x.at[key].set(v)    where(places of the key, v spread there, x)
x.at[key].add(v)    x + v spread to the places of the key, and so for other operators
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sparsejax import config
from sparsejax.core.again import again
from sparsejax.core.array import Array
from sparsejax.core.primitive import asarray
from sparsejax.core.symbolic import length, span
from sparsejax.core.trace import Tracer, current
from sparsejax.errors import SparseEfficiencyWarning
from sparsejax.formats import Format, selection
from sparsejax.lax import indexing
from sparsejax.lax.elementwise import check_fits, convert_element_type, elementwise, where
from sparsejax.lax.extents import coordinates, filled
from sparsejax.lax.indirect import rows
from sparsejax.lax.structural import broadcast_to, convert_format, reshape, squeeze, transpose
from sparsejax.numpy import at_once
from sparsejax.numpy.indexing import Index, concrete, getitem, parse, without_bools


def numbers(values: Any, dtype: np.dtype[Any]) -> Any:
    """Python's numbers, and numbers and arrays of NumPy's with the dtype, as an array of it; None for others."""
    if isinstance(values, bool | int | float):
        check_fits(values, dtype)
        return np.asarray(values).astype(dtype) if dtype.kind in "fc" or not isinstance(values, float) else None
    return np.asarray(values) if isinstance(values, np.generic | np.ndarray) and values.dtype == dtype else None


def cast(values: Any, dtype: np.dtype[Any]) -> Any:
    """Values as an array of this dtype; TypeError for complex ones beside a dtype without imaginary parts."""
    made = asarray(values)
    if made.dtype.kind == "c" and dtype.kind != "c":
        raise TypeError(
            f"values of {made.dtype} do not fit an array of {dtype}: take values.real, or make the array complex"
        )
    return convert_element_type(made, dtype)


def _fits(shape: tuple[int, ...], into: tuple[int, ...]) -> bool:
    """Whether an array of `shape` is repeated to `into` by NumPy's rules."""
    pairs = zip(reversed(shape), reversed(into), strict=False)
    return len(shape) <= len(into) and all(n in (1, m) for n, m in pairs)


FEW = 64
"""Entries that may be added though they equal the fill, before `set` warns."""


@dataclass(frozen=True)
class At:
    """`x.at`: functional updates of parts, `x.at[key].set(values)`; see `Ref`.

    >>> import sparsejax as sj
    >>> sj.array([1, 2, 3]).at[1].set(0)
    Array([1, 0, 3], dtype=int64)
    """

    x: Any

    def __getitem__(self, key: Any) -> Ref:
        x, key, added = without_bools(self.x, key)
        return Ref(x, parse(key, x.shape), key, self.x.format, tuple(added))


@dataclass(frozen=True)
class Ref:
    """A part of `x`. Every method gives a new array of the shape, dtype, fill and format of `x`.

    Values broadcast to the shape of `x[key]` and are cast to the dtype of `x`; OverflowError for Python integers that do not fit, TypeError for complex
    values of an array that is not.
    A sparse `x` gains the entries that are written, even where their values are zero.
    """

    x: Any
    index: Index
    key: Any
    format: Format
    added: tuple[int, ...] = ()
    """The axes of `x` that the array does not have (single bools in the key)."""
    as_written: bool = False
    """Whether methods run as they are written: they are the program."""

    def get(self) -> Any:
        """`x[key]`."""
        return getitem(self.x, self.key)

    def set(self, values: Any) -> Any:
        """`x` with `values` there; of values for one coordinate, the last."""
        found = self._at_once("set", values)
        if found is not None:
            return found
        made = self._values(values)
        if self.index.given and self.x.format.is_dense and made.format.is_dense and made.size:
            key = self._vectors(), self._chosen(), self.index.single
            return self._whole(rows.replaced(self.x, made, *key))
        mask, spread = self._placed(made) if self.index.given else (self._mask(), self._spread(made))
        return self._whole(where(mask, spread, self.x))

    def _warn_of_fills(self, values: Any, made: Array) -> None:
        """Warn where as many entries as there were have been added that equal the fill."""
        added = made.nnz - self.x.nnz
        if added > max(self.x.nnz, FEW) and np.ndim(values) == 0 and np.asarray(values) == made.fill_value:
            warnings.warn(
                f"set stored {added} more entries that equal the fill {made.fill_value}, in an array of {self.x.nnz}; "
                "sparsejax.numpy.where(mask, fill, x) changes what is stored and adds nothing, and sparsejax.prune(x) drops such entries",
                SparseEfficiencyWarning,
                stacklevel=4,
            )

    def _is_there(self) -> bool:
        """Whether the array is there and nothing is traced."""
        return type(self.x) is Array and current() is None

    def _at_once(self, method: str, values: Any) -> Any:
        """`set`, or `add`, of values that are there on an array that is there, by the shortest way; None where that is no short one."""
        if not self._is_there() or isinstance(values, Tracer):
            return None
        add = method == "add"
        if self.x.format.is_dense:
            found = self._in_copy(values, add)
            return self._as_program(method, values) if found is None else found
        found = self._in_lists(values, add)
        if found is None:
            return None
        if not add:
            self._warn_of_fills(values, found)
        return self._whole(found)

    def _in_lists(self, values: Any, add: bool) -> Any:
        """`set`, or `add`, on a sparse array; else None. What is added is what `values` store."""
        x, index = self.x, self.index
        vectors = {d: concrete(a) for d, a in index.arrays.items()}
        if not x.ndim or any(v is None for v in vectors.values()):
            return None
        given = numbers(values, x.dtype)
        if given is None:
            other = cast(values, x.dtype)
            if add and not other.format.is_dense:
                return None
            given = other.todense()
        if given.shape != index.result:
            given = (
                np.broadcast_to(given, index.result)
                if _fits(given.shape, index.result)
                else broadcast_to(given, index.result)
            )
        vectors = {d: selection.numbers(v, x.shape[d], d) for d, v in vectors.items()}
        rest = [length(index.ranges[d]) for d in index.sliced]
        flat = [math.prod(index.advanced)] if index.given else []
        given = given.reshape([*rest[: index.first], *flat, *rest[index.first :]])
        return at_once.updated(x, index.ranges, vectors, index.first, index.single, given, add)

    def _in_copy(self, values: Any, add: bool) -> Any:
        """`set`, or `add`, at integers and slices of a dense array, of dense values that broadcast; else None."""
        x, index = self.x, self.index
        if index.given or self.added or config.forcing:
            return None
        given = numbers(values, x.dtype)
        if given is None:
            other = cast(values, x.dtype)
            if not other.format.is_dense:
                return None
            given = other.todense()
        return at_once.replaced(x, self.key, given, add) if _fits(given.shape, index.result) else None

    def add(self, values: Any) -> Any:
        """`x` with `values` added there; all of those for one coordinate."""
        found = self._at_once("add", values)
        if found is not None:
            return found
        made = self._values(values)
        spread = self._accumulated("add", made) if self._has_rows(made) else self._spread(made)
        return self._whole(elementwise("add", self.x, spread))

    def subtract(self, values: Any) -> Any:
        """`x` less `values` there; less all of those for one coordinate."""
        check_fits(values, self.x.dtype)
        return self.add(elementwise("negative", cast(values, self.x.dtype)))

    def multiply(self, values: Any) -> Any:
        """`x` times `values` there; times all of those for one coordinate."""
        return self._changed("multiply", "multiply", values)

    mul = multiply

    def divide(self, values: Any) -> Any:
        """`x` divided by `values` there, by all of those for one coordinate; the quotients are cast to the dtype of `x`."""
        return self._changed("divide", "multiply", values, "divide")

    def min(self, values: Any) -> Any:
        """`x` with the minimum of entries and `values` there."""
        return self._changed("min", "minimum", values)

    def max(self, values: Any) -> Any:
        """`x` with the maximum of entries and `values` there."""
        return self._changed("max", "maximum", values)

    def _changed(self, method: str, name: str, values: Any, apply: str = "") -> Any:
        """`x` changed by the operator `apply` (default: `name`) and what `name` makes of the values for each coordinate; what this `method` does."""
        found = self._as_program(method, values) if self._is_there() and self.x.format.is_dense else None
        if found is not None:
            return found
        made = self._values(values)

        def changed(other: Any) -> Any:
            return convert_element_type(elementwise(apply or name, self.x, other), self.x.dtype)

        if self._has_rows(made):
            return self._whole(changed(self._accumulated(name, made)))
        return self._whole(where(self._mask(), changed(self._spread(made, name)), self.x))

    def _as_program(self, method: str, values: Any) -> Any:
        """What a method makes of a dense array, at index arrays and slices of everything, as a program for any extents; else None."""
        x = self.x
        if type(values) not in _ARRAYS or self.added or self.as_written:
            return None
        key = self.key if type(self.key) is tuple else (self.key,)
        arrays = [k for k in key if type(k) in _ARRAYS and k.dtype.kind in "iu"]
        if not arrays or any(type(k) is not slice or k != _ALL for k in key if type(k) not in _ARRAYS):
            return None
        if len(arrays) < sum(type(k) in _ARRAYS for k in key):
            return None
        named = "".join("_" if type(k) is slice else "i" for k in key)
        return _program(len(arrays))(x, values, *arrays, method, named)

    def _whole(self, made: Any) -> Any:
        for axis in reversed(self.added):
            made = squeeze(made, axis)
        return convert_format(made, self.format)

    def _values(self, values: Any) -> Any:
        """`values` of the dtype of `x`, one axis for the index arrays in front."""
        index = self.index
        check_fits(values, self.x.dtype)
        made = cast(values, self.x.dtype)
        made = reshape(broadcast_to(made, index.result), index.plain)
        if not index.given:
            return made
        count = len(index.advanced)
        between = range(index.first, index.first + count)
        order = [*between, *(k for k in range(made.ndim) if k not in between)]
        rest = [length(index.ranges[d]) for d in index.sliced]
        return reshape(transpose(made, order), (math.prod(index.advanced), *rest))

    def _has_rows(self, values: Any) -> bool:
        """Whether dense values go to whole rows of a dense array that integers name."""
        index = self.index
        whole = all(index.ranges[d] == span(0, index.shape[d]) for d in index.sliced)
        dense = self.x.format.is_dense and values.format.is_dense
        return bool(index.given) and not index.single and whole and dense

    def _accumulated(self, op: str, values: Any) -> Any:
        return rows.accumulated(op, values, self._vectors(), self.index.shape)

    def _chosen(self) -> dict[int, Any]:
        """The coordinates that keys of integers and slices choose of a dimension."""
        made = dict[int, Any]()
        index = self.index
        for d, n in enumerate(index.shape):
            whole = length(index.ranges[d]) == n and index.ranges[d].step > 0 and d not in index.single
            if d not in index.given and not whole:
                made[d] = asarray(coordinates(index.ranges[d]))
        return made

    def _vectors(self) -> dict[int, Any]:
        return {d: asarray(i) for d, i in self.index.arrays.items()}

    def _spread(self, values: Any, op: str = "add") -> Any:
        """`values` at the coordinates of the key, nothing elsewhere."""
        index = self.index
        form = None if self.x.format.is_dense else Format.parse("coo", len(index.shape))
        return rows.accumulated(
            op, values, self._vectors(), index.shape, chosen=self._chosen(), without=index.single, format=form
        )

    def _mask(self) -> Any:
        shape = [length(self.index.ranges[d]) for d in self.index.sliced]
        if self.index.given:
            shape.insert(0, math.prod(self.index.advanced))
        return self._spread(asarray(filled(shape, True, bool)))

    def _placed(self, values: Any) -> tuple[Any, Any]:
        """Where the key is, and the values there, of those for one place the last."""
        index = self.index
        places = asarray(coordinates(span(0, math.prod(index.advanced))))
        vectors = dict(enumerate(self._vectors().values()))
        last = indexing.scatter(places, vectors, [index.shape[d] for d in index.given], "maximum")
        rest = list(index.given), index.shape, self._chosen(), index.single
        mask, made = rows.placed(None, last, *rest), rows.placed(values, last, *rest)
        return (
            (convert_format(mask, "dense"), convert_format(made, "dense")) if self.x.format.is_dense else (mask, made)
        )


_ARRAYS = (np.ndarray, Array)
_ALL = slice(None)


@functools.cache
def _program(count: int) -> Callable[..., Any]:
    """What updates at so many index arrays are at once: programs that serve any extents."""
    return again(2 + count, whole=True)(_updated)


def _updated(x: Any, values: Any, *rest: Any) -> Any:
    """`rest` are index arrays, the method, and the key, of which every letter is an index array or (_) a slice of everything."""
    *given, method, named = rest
    arrays = iter(given)
    key = tuple(_ALL if letter == "_" else next(arrays) for letter in named)
    return getattr(replace(At(x)[key], as_written=True), method)(values)
