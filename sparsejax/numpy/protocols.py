"""What NumPy's own functions do with our arrays: `__array_ufunc__` and `__array_function__`.

NumPy's functions that `sparsejax.numpy` has are ours, and so are their results. Others take dense arrays as NumPy's; those that are
not (sparse ones, and traced values) raise a TypeError that names the way out. Arrays of ours are not written to: `out=` is refused.
NumPy's own are, with dense operands, so that `y += x` adds to an array of NumPy's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sparsejax.core.array import Array
from sparsejax.core.methods import ArrayBase
from sparsejax.core.trace import Tracer
from sparsejax.formats import scipy_io
from sparsejax.lax.elementwise import aval_of, convert_element_type
from sparsejax.lax.elementwise import where as _where
from sparsejax.lax.library.cumulative import cumulative
from sparsejax.lax.reduce import result_dtype
from sparsejax.lax.structural import reshape
from sparsejax.numpy import reductions
from sparsejax.numpy.making import own

functions: dict[str, Callable[..., Any]] = {}
"""Our functions by the names of NumPy's ("linalg.norm") and SciPy's ufuncs ("erf")."""

_SAME = {"true_divide": "divide", "conj": "conjugate", "mod": "remainder", "abs": "absolute"}
_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "add": reductions.sum,
    "multiply": reductions.prod,
    "maximum": reductions.max,
    "minimum": reductions.min,
    "logical_or": reductions.any,
    "logical_and": reductions.all,
}
_RUNNING = {"multiply": "prod", "maximum": "max", "minimum": "min"}
_IGNORED = {"order", "subok", "like", "casting", "overwrite_input", "check_finite"}
"""Arguments about memory, which has no order to choose here."""
_MEANT = {"can_cast": {"casting"}, "reshape": {"order"}, "ravel": {"order"}}
"""Such arguments that say what the result is: of `reshape`, what entries follow each other."""
_LIKE = {"asarray", "array"}
"""What makes arrays of sequences: called with `like=` one of ours they make NumPy's, which work with ours and can be written to."""
_CONVERTING = {"atleast_1d", "atleast_2d", "atleast_3d"}
"""What SciPy calls to make NumPy's arrays of what it is given, before its compiled code takes them: these are NumPy's of dense arrays."""


def register(named: Mapping[str, Callable[..., Any]]) -> None:
    """Provide the functions that NumPy's are redirected to."""
    functions.update(named)


def _refuse_out(name: str, kwargs: dict[str, Any]) -> None:
    out = kwargs.pop("out", None)
    if isinstance(out, tuple):
        out = None if all(o is None for o in out) else out
    if out is not None:
        raise TypeError(
            f"{name}: out= is refused, since sparsejax arrays are immutable: use the result, `y = y + x` instead of `y += x`; an array "
            "of NumPy's takes results of dense arrays, np.asarray(x.todense()) of sparse ones"
        )


def _writes_to_numpy(kwargs: dict[str, Any], inputs: Any) -> bool:
    """Whether the results of dense arrays are written to arrays of NumPy's, as in `y += x`."""
    out = kwargs.get("out")
    given = [o for o in (out if isinstance(out, tuple) else (out,)) if o is not None]
    return bool(given) and all(isinstance(o, np.ndarray) for o in given) and _all_dense(inputs, kwargs)


# ------------------------------------------------------------------------------------------------------------ ufuncs


def apply_ufunc(ufunc: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`__array_ufunc__`: the call, with `dtype=`, `where=` (entries elsewhere are 0) and `casting=`; reduce, accumulate, outer."""
    name = _SAME.get(ufunc.__name__, ufunc.__name__)
    kwargs = dict(kwargs)
    if _writes_to_numpy(kwargs, inputs):
        return through_numpy(getattr(ufunc, method), f"{name}", inputs, kwargs)
    _refuse_out(f"np.{name}", kwargs)
    if method == "__call__":
        return _called(ufunc, name, inputs, kwargs)
    if method == "reduce":
        return _reduced(ufunc, name, *inputs, **kwargs)
    if method == "accumulate":
        return _accumulated(ufunc, name, *inputs, **kwargs)
    if method == "outer":
        a, b = (x if isinstance(x, ArrayBase) else np.asarray(x) for x in inputs)
        return _called(ufunc, name, (reshape(a, (*a.shape, *[1] * b.ndim)), b), kwargs)
    if method == "at":
        raise TypeError(
            f"np.{name}.at writes to its argument, but sparsejax arrays are immutable: x.at[indices].add(values)"
        )
    return through_numpy(getattr(ufunc, method), f"{name}.{method}", inputs, kwargs)


def _called(ufunc: Any, name: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    mask, dtype = kwargs.pop("where", True), kwargs.pop("dtype", None)
    casting, signature = kwargs.pop("casting", "same_kind"), kwargs.pop("signature", None)
    for key in ("order", "subok"):
        kwargs.pop(key, None)
    if kwargs:
        raise TypeError(f"np.{name} of sparsejax arrays takes no {', '.join(kwargs)}")
    if dtype is not None or signature is not None or casting != "same_kind":
        inputs, dtype = _cast(ufunc, inputs, signature or (*[None] * ufunc.nin, dtype), casting)
    ours = functions.get(name)
    made = _entries(ufunc, name, inputs) if ours is None else ours(*inputs)
    if dtype is not None and not isinstance(made, tuple) and made.dtype != dtype:
        made = convert_element_type(made, dtype)
    return made if mask is True else _where(mask, made, 0)


def _cast(ufunc: Any, inputs: tuple[Any, ...], signature: Any, casting: str) -> tuple[tuple[Any, ...], np.dtype[Any]]:
    """Operands in the dtypes of the loop that NumPy chooses, and the dtype of its result."""
    python: dict[type, type] = {bool: bool, int: int, float: float, complex: complex}
    given = tuple(python.get(type(x)) or aval_of(x).dtype for x in inputs)
    wanted = tuple(None if s is None else np.dtype(s) for s in signature)
    loop = ufunc.resolve_dtypes((*given, *[None] * ufunc.nout), signature=wanted, casting=casting)
    operands = [convert_element_type(x, d) if aval_of(x).dtype != d else x for x, d in zip(inputs, loop, strict=False)]
    return tuple(operands), loop[-1]


def _entries(ufunc: Any, name: str, inputs: tuple[Any, ...]) -> Any:
    """A ufunc that we do not have: of dense arrays by NumPy; of one sparse array, of what it stores and of its fill."""
    if len(inputs) == 1 and ufunc.nout == 1 and type(inputs[0]) is Array and not inputs[0].format.is_dense:
        storage = inputs[0]._storage
        vals = np.asarray(ufunc(storage.vals))
        return Array(storage.with_values(vals, np.asarray(ufunc(storage.fill_value))[()]))
    made = through_numpy(ufunc, name, inputs, {})
    return tuple(map(_ours, made)) if isinstance(made, tuple) else _ours(made)


def _ours(x: Any) -> Any:
    return own(np.asarray(x)) if np.asarray(x).dtype.kind in "biufc" else x


def _reduced(
    ufunc: Any,
    name: str,
    x: Any,
    axis: Any = 0,
    dtype: Any = None,
    keepdims: bool = False,
    initial: Any = np._NoValue,
    where: Any = True,
) -> Any:
    ours = _REDUCTIONS.get(name)
    given = {} if initial is np._NoValue or initial is None else {"initial": initial}
    masked = {} if where is True else {"where": where}
    if ours is None:
        return through_numpy(
            ufunc.reduce, f"{name}.reduce", (x,), {"axis": axis, "keepdims": keepdims, **given, **masked}
        )
    if name in ("maximum", "minimum", "logical_or", "logical_and"):
        x = x if dtype is None else convert_element_type(x, dtype)
        return ours(x, axis=axis, keepdims=keepdims, **given, **masked)
    return ours(x, axis=axis, dtype=dtype, keepdims=keepdims, **given, **masked)


def _accumulated(ufunc: Any, name: str, x: Any, axis: int = 0, dtype: Any = None) -> Any:
    if name == "add":
        return reductions.cumsum(x, axis, dtype)
    if name in _RUNNING:
        wanted = result_dtype(_RUNNING[name], aval_of(x).dtype, dtype)
        return cumulative(_RUNNING[name], convert_element_type(x, wanted), axis)
    return _ours(through_numpy(ufunc.accumulate, f"{name}.accumulate", (x,), {"axis": axis, "dtype": dtype}))


# --------------------------------------------------------------------------------------------------- other functions


def apply_function(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`__array_function__`: ours where we have it and it takes these arguments; else NumPy's, of dense arrays."""
    module = getattr(func, "__module__", None) or "numpy"
    prefix = module.removeprefix("numpy").removeprefix(".").removeprefix("_core").lstrip(".")
    name = f"{prefix}.{func.__name__}" if prefix in ("linalg", "fft") else func.__name__
    ours = functions.get(name)
    if name == "put_along_axis":  # ours gives a new array, which NumPy's callers do not look at
        raise TypeError(
            "np.put_along_axis: sparsejax arrays are immutable; sparsejax.numpy.put_along_axis gives a new array"
        )
    if ours is None or (name in _CONVERTING and _all_dense(args, kwargs)):
        return through_numpy(func, name, args, kwargs)
    if _writes_to_numpy(kwargs, args):
        return through_numpy(func, name, args, kwargs)
    _refuse_out(f"np.{name}", kwargs := dict(kwargs))
    if name in _LIKE and not any(isinstance(x, ArrayBase) for x in _leaves(args)):
        return func(*args, **kwargs)
    ignored = _IGNORED - _MEANT.get(name, set())
    clean = {k: v for k, v in kwargs.items() if v is not np._NoValue and k not in ignored}
    clean = {_RENAMED.get((name, k), k): v for k, v in clean.items() if k != "where" or v is not True}
    clean = {k: v for k, v in clean.items() if k != "initial" or v is not None}
    try:
        inspect.signature(ours).bind(*args, **clean)
    except TypeError as error:
        if _all_dense(args, kwargs):
            return through_numpy(func, name, args, kwargs)
        raise TypeError(f"np.{name} of sparsejax arrays: {error}; see sparsejax.numpy.{name}") from None
    return ours(*args, **clean)


_RENAMED = {("clip", "a_min"): "min", ("clip", "a_max"): "max"}


def _all_dense(*parts: Any) -> bool:
    return all(not _refused(x) for x in _leaves(parts))


def _refused(x: Any) -> bool:
    return isinstance(x, Tracer) or (isinstance(x, Array) and not x.format.is_dense) or scipy_io.is_scipy(x)


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [leaf for part in value for leaf in _leaves(part)]
    return [value]


def through_numpy(func: Any, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
    """A function of NumPy's or SciPy's on dense arrays as theirs. TypeError for sparse arrays and traced values, which it cannot take."""
    for x in _leaves((args, kwargs)):
        if isinstance(x, Tracer):
            raise TypeError(
                f"np.{name} does not take traced values of sparsejax: sparsejax.numpy has what can be traced, sparsejax.pure_callback "
                "calls the rest"
            )
        if isinstance(x, Array) and not x.format.is_dense:
            raise TypeError(
                f"np.{name} does not take an array in format {x.format}, and sparsejax.numpy has no such function: pass "
                "x.to_scipy() to functions of SciPy's, np.asarray(x.todense()) to those of dense arrays"
            )
    return func(*_plain(args), **{k: _plain(v) for k, v in kwargs.items()})


def _plain(value: Any) -> Any:
    """Our arrays as NumPy's, in containers too."""
    if isinstance(value, Array):
        return np.asarray(value)
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_plain(v) for v in value)
    return value
