"""`sparsejax.interop.scipy`: functions and estimators that know SciPy's sparse arrays, of ours.

scipy(f)(A, x)         f(view of A as SciPy's, NumPy's x), results as ours
scipy(estimator)       its methods in the same way
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from sparsejax.core.array import Array
from sparsejax.core.trace import Tracer
from sparsejax.formats import scipy_io
from sparsejax.numpy.making import array

__all__ = ["from_theirs", "scipy", "to_theirs"]


def to_theirs(value: Any, copy: bool = False) -> Any:
    """Our arrays in `value`, also in lists, tuples and dictionaries, as SciPy's sparse and NumPy's dense arrays over the same memory
    (read-only), or in memory of their own with `copy`.

    Sparse vectors are SciPy's coo; other formats than csr, csc, coo, bsr and dia become csr.
    """
    if isinstance(value, Tracer):
        raise TypeError(
            "a traced value has no data to hand to SciPy: call the function outside jit, or through sparsejax.pure_callback"
        )
    if isinstance(value, Array):
        if value.format.is_dense:
            return value.todense().copy() if copy else value.todense()
        return value.to_scipy(copy=copy)
    if isinstance(value, dict):
        return {k: to_theirs(v, copy) for k, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)(to_theirs(v, copy) for v in value)
    if isinstance(value, Adapted):
        return value.adapted
    return value


def from_theirs(value: Any) -> Any:
    """SciPy's sparse arrays and NumPy's arrays of numbers in `value`, also in lists, tuples and dictionaries, as ours; anything else as it
    is. Arrays that nobody else has are not copied."""
    if scipy_io.is_scipy(value):
        return array(value)
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc" and value.dtype != np.longdouble:
        return array(value)
    if isinstance(value, dict):
        return {k: from_theirs(v) for k, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)(from_theirs(v) for v in value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(from_theirs, value))
    return value


def scipy(target: Any, copy: bool = False) -> Any:
    """A function, class or estimator of scikit-learn, `scipy.sparse.csgraph`, networkx or anndata, that takes our arrays and gives ours.

    Sparse arrays are handed over as SciPy's over the same buffers, dense ones as NumPy's: read-only, so that code which writes to its
    arguments raises; `copy=True` hands copies over. Results, and attributes of estimators, that are arrays are ours.

    >>> import sparsejax as sj
    >>> from scipy.sparse.csgraph import connected_components
    >>> graph = sj.array(np.array([[0.0, 1, 0], [1, 0, 0], [0, 0, 0]]), format="csr")
    >>> count, labels = scipy(connected_components)(graph)
    >>> count, labels
    (2, Array([0, 0, 1], dtype=int32))

    Raises TypeError for traced values: these go through `sparsejax.pure_callback`.
    """
    if isinstance(target, Adapted):
        return target
    is_function = callable(target) and not isinstance(target, type) and not hasattr(target, "fit")
    return _function(target, copy) if is_function else Adapted(target, copy)


def _function(function: Callable[..., Any], copy: bool) -> Callable[..., Any]:
    @functools.wraps(function, updated=())
    def adapted(*args: Any, **kwargs: Any) -> Any:
        made = function(*to_theirs(args, copy), **to_theirs(kwargs, copy))
        return made if made is None else _back(made, copy)

    return adapted


def _back(value: Any, copy: bool) -> Any:
    """A result, or an attribute, as ours; an estimator, as `fit` returns it and `best_estimator_` is one, as one that takes our arrays."""
    return Adapted(value, copy) if hasattr(value, "fit") and not isinstance(value, type) else from_theirs(value)


class Adapted:
    """An object, or a class, whose methods take our arrays and give ours; `adapted` is the object itself."""

    def __init__(self, adapted: Any, copy: bool = False) -> None:
        object.__setattr__(self, "adapted", adapted)
        object.__setattr__(self, "_copy", copy)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        made = self.adapted(*to_theirs(args, self._copy), **to_theirs(kwargs, self._copy))
        return Adapted(made, self._copy) if isinstance(self.adapted, type) else _back(made, self._copy)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        found = getattr(self.adapted, name)
        if callable(found) and not isinstance(found, type):
            return _method(self, found)
        return _back(found, self._copy)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.adapted, name, to_theirs(value, self._copy))

    def __repr__(self) -> str:
        return f"scipy({self.adapted!r})"


def _method(owner: Adapted, method: Callable[..., Any]) -> Callable[..., Any]:
    call = _function(method, owner._copy)

    @functools.wraps(method, updated=())
    def adapted(*args: Any, **kwargs: Any) -> Any:
        made = call(*args, **kwargs)
        return owner if isinstance(made, Adapted) and made.adapted is owner.adapted else made

    return adapted
