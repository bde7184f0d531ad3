"""Arrays as chunks of `dask.array`: what Dask asks of a type, registered with it once it is imported.

Most of what Dask does to chunks goes through NumPy's protocols (`numpy.protocols`), its names of arrays through `__dask_tokenize__`, and its
messages through pickle, so that arrays of ours are chunks without any registration. What must be registered is, by `register`: when this package is
imported after Dask (as it is where a worker reads the first array), when Dask first names an array, or by `import sparsejax.dask`. This package never
imports Dask.

A few functions of Dask's write into what chunks have given them, and arrays here never change. `register` puts functions in front of them that
hand them NumPy's own copy of a dense result (`argmax` of whole arrays), or make a new array (`x[key] = value`, `vindex`). Others guess the `meta` of a result
from that of its operand, as arrays of NumPy's have no format; theirs is what our operation returns (`a[i]`, `max`, `cumsum`).
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sparsejax import forks
from sparsejax.core.array import Array
from sparsejax.core.digest import digest
from sparsejax.core.methods import register_surface, surface
from sparsejax.lax.contract import einsum

_lock = threading.Lock()
forks.anew(__name__, _lock=threading.Lock)
_replaced: dict[str, Callable[..., Any]] = {}
"""Functions of Dask's by name, as they were."""


def token(x: Array) -> tuple[str, str]:
    """What Dask makes names of: equal for equal content, computed once (`core.digest`)."""
    register()
    return "sparsejax.Array", digest(x._storage)


register_surface({"dask_token": token})


def size_of(x: Array) -> int:
    """Bytes of the buffers, as Dask counts for NumPy's arrays."""
    return x.nbytes


def register() -> None:
    """Make arrays known to Dask, where `dask.array` is imported. Calls after the first do nothing."""
    if "dask.array" not in sys.modules or _replaced:
        return
    dask: Any = importlib.import_module("dask.array")
    dispatch: Any = importlib.import_module("dask.array.dispatch")
    sizes: Any = importlib.import_module("dask.sizeof")
    with _lock:
        if _replaced:
            return
        for module, name, ours in _INSTEAD:
            owner = importlib.import_module(module)
            for part in name.split(".")[:-1]:
                owner = getattr(owner, part)
            _replaced[name] = getattr(owner, name.split(".")[-1])
            setattr(owner, name.split(".")[-1], ours)
    dask.register_chunk_type(Array)
    sizes.sizeof.register(Array, size_of)
    dispatch.concatenate_lookup.register(Array, concatenate)
    dispatch.tensordot_lookup.register(Array, tensordot)
    dispatch.einsum_lookup.register(Array, contraction)
    dispatch.take_lookup.register(Array, take)
    dispatch.percentile_lookup.register(Array, percentile)


# ------------------------------------------------------------------------------------------------------ lookups


def concatenate(arrays: Sequence[Any], axis: int = 0) -> Any:
    """`numpy.concatenate` of chunks, in the format that they share."""
    return surface["concatenate"](list(arrays), axis)


def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """`numpy.tensordot` of chunks."""
    return surface["tensordot"](a, b, axes)


def contraction(subscripts: str, *operands: Any, dtype: Any = None, optimize: Any = None, **kwargs: Any) -> Any:
    """`numpy.einsum` of chunks: `casting` and `order` have no meaning here."""
    made = einsum(subscripts, *operands)
    return made if dtype is None or made.dtype == dtype else made.astype(dtype)


def take(x: Any, indices: Any, axis: int = 0) -> Any:
    """`numpy.take` of a chunk."""
    return surface["take"](x, indices, axis)


def percentile(a: Any, q: Any, method: str = "linear") -> Any:
    """Percentiles of a dense chunk; TypeError for a sparse one, which would have to be sorted with all that it does not store."""
    found = importlib.import_module("dask.array.percentile")
    return found._percentile(np.asarray(a), q, method)


# ---------------------------------------------------------------------------------------- functions that write


def _original(name: str) -> Callable[..., Any]:
    """A function of Dask's as it was. A process that only reads a task may be asked for it first."""
    if name not in _replaced:
        importlib.import_module("dask.array")
        register()
    return _replaced[name]


def _writable(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What `function` returns; a dense array of ours as one of NumPy's own."""
    made = function(*args, **kwargs)
    return np.array(made.todense()) if isinstance(made, Array) and made.format.is_dense else made


def arg_chunk(func: Any, argfunc: Any, x: Any, axis: Any, offset_info: Any) -> Any:
    """The largest (smallest) value of a chunk and where it is, which Dask moves by where the chunk is."""
    if isinstance(x, Array):
        func, argfunc = (functools.update_wrapper(functools.partial(_writable, f), f) for f in (func, argfunc))
    return _original("arg_chunk")(func, argfunc, x, axis, offset_info)


def setitem(x: Any, v: Any, indices: Any) -> Any:
    """`x[indices] = v` for a chunk: a new array in its format."""
    if not isinstance(x, Array):
        return _original("setitem")(x, v, indices)
    if 0 in np.shape(v):
        return x
    key = []
    for index, extent in zip(indices, x.shape, strict=True):
        if isinstance(index, np.ndarray) and index.dtype != np.bool_:
            index = index[index < extent]  # Dask writes the extent for what is in other chunks
        key.append(index)
    made = x.at[tuple(key)].set(v)
    return made if made.format == x.format else made.asformat(x.format)


def vindex_merge(locations: Any, values: Any) -> Any:
    """Parts of points, put into one order."""
    parts = list(values)
    if not any(isinstance(part, Array) for part in parts):
        return _original("_vindex_merge")(locations, parts)
    order = np.concatenate([np.asarray(list(place), np.int64) for place in locations])
    return concatenate(parts, 0)[np.argsort(order, kind="stable")]


# ------------------------------------------------------------------------------------------ what results will be


def _extreme(name: str) -> Callable[..., Any]:
    """The extreme of a chunk: of an empty one (of which `meta` is), nothing in the format of others' extremes."""

    def chunk(x: Any, axis: Any = None, keepdims: Any = None) -> Any:
        if isinstance(x, Array) and x.size == 0:
            return surface["zeros"]((0,) * x.ndim, x.dtype)
        return _original(name)(x, axis=axis, keepdims=keepdims)

    chunk.__name__ = chunk.__qualname__ = name
    return chunk


chunk_max, chunk_min = _extreme("chunk_max"), _extreme("chunk_min")


def cumreduction(func: Any, binop: Any, ident: Any, x: Any, axis: Any = None, dtype: Any = None, **kwargs: Any) -> Any:
    """Running sums and products."""
    made = _original("cumreduction")(func, binop, ident, x, axis=axis, dtype=dtype, **kwargs)
    if isinstance(getattr(x, "_meta", None), Array) and kwargs.get("out") is None:
        made._meta = func(x._meta, axis=0 if axis is None else axis, dtype=made.dtype)
    return made


def getitem(self: Any, index: Any) -> Any:
    """`a[index]` of an array of Dask's."""
    made = _original("Array.__getitem__")(self, index)
    if isinstance(self._meta, Array) and made is not self:
        kinds = tuple(map(_kind, index if isinstance(index, tuple) else (index,)))
        found = _selected(self._meta.aval, kinds)
        if found is not None and found.ndim == made.ndim and found.dtype == made.dtype:
            made._meta = found
    return made


def _kind(index: Any) -> Any:
    """How an index selects, whatever it selects."""
    if index is None or index is Ellipsis:
        return index
    if isinstance(index, slice):
        return "slice"
    if np.ndim(index) == 0:
        return "number"
    return "mask", np.ndim(index) if getattr(index, "dtype", None) == np.bool_ else 0


@functools.lru_cache(maxsize=512)
def _selected(aval: Any, kinds: tuple[Any, ...]) -> Any:
    """What indices of these kinds return, of an array of this type, without entries; None where they are not for it."""
    index: list[Any] = []
    for kind in kinds:
        if isinstance(kind, tuple):
            index.append(np.ones((1,) * kind[1], bool) if kind[1] else np.zeros(1, np.int64))
        else:
            index.append({"slice": slice(None), "number": 0}.get(kind, kind))
    one = surface["full"]((1,) * aval.ndim, aval.fill_value, aval.dtype).asformat(aval.format)
    try:
        made = one[tuple(index)]
    except (IndexError, TypeError):
        return None
    return made[(slice(0, 0),) * made.ndim] if made.ndim else made


_INSTEAD: list[tuple[str, str, Callable[..., Any]]] = [
    ("dask.array.reductions", "chunk_max", chunk_max),
    ("dask.array.reductions", "chunk_min", chunk_min),
    ("dask.array.reductions", "cumreduction", cumreduction),
    ("dask.array.core", "Array.__getitem__", getitem),
    ("dask.array.reductions", "arg_chunk", arg_chunk),
    ("dask.array.slicing", "setitem", setitem),
    ("dask.array.core", "_vindex_merge", vindex_merge),
]

register()
