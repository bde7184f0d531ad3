"""What JAX's users look for at the top: callbacks, devices, caches; and SciPy's constructors of sparse arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sparsejax import cached, tree_util
from sparsejax.core import primitive
from sparsejax.core.array import Array
from sparsejax.core.avals import Aval, ShapeDtypeStruct
from sparsejax.core.methods import DEVICE, ArrayBase
from sparsejax.core.primitive import asarray
from sparsejax.core.trace import Tracer, current
from sparsejax.formats import Format
from sparsejax.jit.backend import compiler
from sparsejax.jit.runtime import plan_cache
from sparsejax.lax.indirect import kernels as indirect_kernels
from sparsejax.lax.library.callbacks import called
from sparsejax.numpy.making import array, zeros
from sparsejax.transforms import alike, staging

__all__ = [
    "block_until_ready",
    "clear_caches",
    "coo_array",
    "csc_array",
    "csr_array",
    "device_put",
    "devices",
    "pure_callback",
]


def pure_callback(
    callback: Callable[..., Any], result_shape_dtypes: Any, *args: Any, vmap_method: str | None = None, **kwargs: Any
) -> Any:
    """What the Python function `callback(*args, **kwargs)` returns, inside traced functions too: arrays of the types that the pytree
    `result_shape_dtypes` of `ShapeDtypeStruct`s (or arrays) promises.

    The function is given NumPy arrays for dense operands, our arrays for sparse ones. It must have no side effects: it may be called
    once, twice, or not at all where nobody reads its results. Under `vmap` it is called for every element ("sequential", the only
    method). It has no derivative: give it one with `custom_jvp` or `custom_vjp`.

    >>> import numpy as np, sparsejax as sj
    >>> f = sj.jit(lambda x: pure_callback(np.sort, sj.ShapeDtypeStruct((3,), float), x) * 2)
    >>> f(np.array([3.0, 1.0, 2.0]))
    Array([2., 4., 6.], dtype=float64)

    Raises ValueError for results of other shapes.
    """
    if vmap_method not in (None, "sequential"):
        raise ValueError(
            f"vmap_method={vmap_method!r} is not provided: elements are called one after the other, 'sequential'"
        )
    leaves, tree = tree_util.tree_flatten((args, kwargs))
    types, out_tree = tree_util.tree_flatten(result_shape_dtypes)
    avals = [_promised(t) for t in types]

    def flat(*values: Any) -> list[Any]:
        given, named = tree_util.tree_unflatten(tree, values)
        made, made_tree = tree_util.tree_flatten(callback(*given, **named))
        if made_tree != out_tree:
            raise ValueError(f"the callback returned the structure {made_tree}, but {out_tree} was promised")
        return made

    xs = [asarray(x, "an argument of pure_callback") for x in leaves]
    return tree_util.tree_unflatten(out_tree, called(getattr(callback, "__name__", "callback"), flat, xs, avals))


def _promised(value: Any) -> Aval:
    if isinstance(value, ShapeDtypeStruct | ArrayBase):
        return value.aval.strong()
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return ShapeDtypeStruct(value.shape, value.dtype).aval
    raise TypeError(f"result_shape_dtypes must hold ShapeDtypeStructs or arrays, not {type(value).__name__}")


def block_until_ready(x: Any) -> Any:
    """`x`: values are there when an operation returns."""
    return x


def devices(backend: str | None = None) -> list[str]:
    """All devices: the processor."""
    return [DEVICE]


def device_put(x: Any, device: Any = None) -> Any:
    """The leaves of `x` as arrays: there is one device, "cpu". ValueError for another."""
    if device not in (None, DEVICE):
        raise ValueError(f"device={device!r} is not known here; arrays are on the device {DEVICE!r}")
    return tree_util.tree_map(lambda leaf: leaf if isinstance(leaf, ArrayBase) else array(leaf), x)


def clear_caches() -> None:
    """Forget all traces, plans and kernels in memory (files of the compile cache stay): the next calls trace and load again."""
    if current() is not None:
        raise RuntimeError("clear_caches must not be called while a function is traced")
    primitive.clear_caches()
    staging.clear_caches()
    alike.clear_caches()
    indirect_kernels.clear_caches()
    plan_cache.forget()
    for function in cached.remembering():
        function.clear_cache()
    compiler.forget()


# ------------------------------------------------------------------------------------------------ SciPy's constructors


def _constructed(format: str, arg: Any, shape: Any, dtype: Any) -> Any:
    import scipy.sparse as sp

    if isinstance(arg, tuple) and all(isinstance(n, int) for n in arg):
        return zeros(arg, dtype, format)
    if isinstance(arg, tuple) and len(arg) == 3:
        data, indices, indptr = (x.todense() if isinstance(x, Array) else x for x in arg)
        if format == "coo":
            raise TypeError("coo_array takes (data, coords), not (data, indices, indptr)")
        if any(isinstance(x, Tracer) for x in arg):
            return _compressed(format, data, indices, indptr, shape, dtype)
        made = (sp.csr_array if format == "csr" else sp.csc_array)((data, indices, indptr), shape=shape)
        return array(made, dtype, format=format)
    if isinstance(arg, tuple) and len(arg) == 2:
        return array(arg, dtype, format=format, shape=shape)
    made = array(arg, dtype, shape=shape)
    return made if made.format == Format.parse(format, made.ndim) else made.asformat(format)


def _compressed(format: str, data: Any, indices: Any, indptr: Any, shape: Any, dtype: Any) -> Any:
    """A csr or csc array of traced values; where the rows end is known."""
    if isinstance(indptr, Tracer):
        raise TypeError(
            f"indptr of {format}_array is traced, but must be known: close over it, or pass (data, (rows, columns))"
        )
    lines = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    coords = (lines, indices) if format == "csr" else (indices, lines)
    if shape is None and not isinstance(indices, Tracer):
        extents = len(indptr) - 1, int(np.max(indices)) + 1 if len(indices) else 0
        shape = extents if format == "csr" else extents[::-1]
    return array((data, coords), dtype, format=format, shape=shape)


def csr_array(arg1: Any, shape: Any = None, dtype: Any = None) -> Array:
    """A csr array from what `scipy.sparse.csr_array` takes: an array, a shape, `(data, (rows, columns))`, `(data, indices, indptr)`.

    >>> csr_array(([1.0, 2.0], [1, 0], [0, 1, 2])).todense()
    array([[0., 1.],
           [2., 0.]])
    """
    return _constructed("csr", arg1, shape, dtype)


def csc_array(arg1: Any, shape: Any = None, dtype: Any = None) -> Array:
    """A csc array from what `scipy.sparse.csc_array` takes; see `csr_array`."""
    return _constructed("csc", arg1, shape, dtype)


def coo_array(arg1: Any, shape: Any = None, dtype: Any = None) -> Array:
    """A coo array from what `scipy.sparse.coo_array` takes: an array, a shape, `(data, coords)`; any number of dimensions."""
    return _constructed("coo", arg1, shape, dtype)
