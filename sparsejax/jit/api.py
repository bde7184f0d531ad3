"""`jit`, `make_jaxpr`, `eval_shape` and `explain`."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, overload

import numpy as np

from sparsejax import config
from sparsejax.core.jaxpr import ClosedJaxpr
from sparsejax.jit.function import JitFunction, Result
from sparsejax.jit.inspect.explain import explained as explain_traced
from sparsejax.jit.inspect.explanation import Explanation


@overload
def jit(
    function: Callable[..., Result],
    *,
    static_argnums: Any = (),
    static_argnames: Any = (),
    donate_argnums: Any = (),
    dynamic: bool | dict[str, Any] = True,
    autotune: bool | str | None = None,
) -> JitFunction[Result]: ...


@overload
def jit(
    function: None = None,
    *,
    static_argnums: Any = (),
    static_argnames: Any = (),
    donate_argnums: Any = (),
    dynamic: bool | dict[str, Any] = True,
    autotune: bool | str | None = None,
) -> Callable[[Callable[..., Result]], JitFunction[Result]]: ...


def jit(
    function: Any = None,
    *,
    static_argnums: Any = (),
    static_argnames: Any = (),
    donate_argnums: Any = (),
    dynamic: bool | dict[str, Any] = True,
    autotune: bool | str | None = None,
) -> Any:
    """Compile `function`: it is traced once per signature, fused, scheduled and turned into machine code.

    Arguments may be arrays (ours, NumPy's, SciPy's sparse ones), Python numbers, and pytrees of these. Static arguments
    must be hashable; a new value means a new trace. The function must be pure: it is not run again for a signature it
    has seen. Inside another traced function, it is inlined.

    Arrays in the arguments `donate_argnums` are given up, also where they are given by name: dense results of their dtypes and sizes may be
    written where they were, and they are deleted (`donation`). Memory that was borrowed, or that another array or view refers to, is never written.

    A second shape of the same rank traces the function once more, with symbols for the extents that changed: integers that compute and compare
    (docs/guide/shapes.md). Further shapes run without being traced, scheduled or compiled. `dynamic=False` traces every shape by itself;
    `dynamic={"A": ("n", 4)}` makes the first extent of the parameter `A` a symbol from the first call on; the second is 4, or ValueError.

    With `autotune=True` (or "exact"), the first call of a signature times legal alternatives that are priced within three times the cheapest plan and have
    results of equal bits, and keeps the fastest, on disk too: from then on, the function is planned so in every process. "any" takes part whatever
    the rounding. None: as `config` says ("autotune"). Such functions are traced for every shape; those with callbacks or donated arguments are not timed.

    >>> import numpy as np
    >>> import sparsejax as sj
    >>> double = sj.jit(lambda x: x + x)
    >>> double(np.arange(3.0))
    Array([0., 2., 4.], dtype=float64)
    """
    if function is None:
        return functools.partial(
            jit,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
            donate_argnums=donate_argnums,
            dynamic=dynamic,
            autotune=autotune,
        )
    if not callable(function):
        raise TypeError(f"jit expects a function, but got {type(function).__name__}")
    nums = _sequence(static_argnums, int, "static_argnums")
    names = _sequence(static_argnames, str, "static_argnames")
    if not isinstance(dynamic, bool | dict):
        raise TypeError(f"dynamic={dynamic!r} must be True, False, or names of axes by parameter")
    if autotune is not None:
        autotune = config.measures(autotune)
    return JitFunction(function, nums, names, _sequence(donate_argnums, int, "donate_argnums"), dynamic, autotune)


def make_jaxpr(function: Callable[..., Any], static_argnums: Any = ()) -> Callable[..., ClosedJaxpr]:
    """A function that returns the jaxpr of `function` for given arguments.

    >>> import numpy as np
    >>> print(make_jaxpr(lambda x: x + x)(np.zeros(3)))
    { lambda ; a:f64[3:d]. let
        b:f64[3:d] = add a a
      in (b,) }
    """
    compiled = jit(function, static_argnums=static_argnums)

    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> ClosedJaxpr:
        jaxpr: ClosedJaxpr = compiled.trace(*args, **kwargs).jaxpr
        return jaxpr

    return traced


def eval_shape(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The types of the results of `function`, as ShapeDtypeStructs, without computing anything.

    >>> import sparsejax as sj
    >>> eval_shape(lambda A: A.T, sj.ShapeDtypeStruct((2, 3), "float32", format="csr"))
    ShapeDtypeStruct(f32[3:c1,2:d0])
    """
    return jit(function).trace(*args, **kwargs).out_info


def explain(function: Callable[..., Any]) -> Callable[..., Explanation]:
    """A function that explains how `function` is compiled for given arguments, instead of returning its result.

    The explanation holds, per kernel: operands with observed facts, candidate loop orders with their costs, the chosen
    order, workspaces, conversions, why the output has its format, a memory forecast, and compile times; and the library
    calls between kernels. The function runs once, since later kernels depend on the data that earlier ones make.
    Compile times are measured anew, never read from a cache. Up to 5 variables all loop orders are listed, O(v! v).
    TypeError for a ShapeDtypeStruct: decisions depend on data.

    >>> import numpy as np, scipy.sparse as sp
    >>> A = sp.random_array((500, 500), density=0.05, format="csr", rng=0)
    >>> told = explain(lambda A, B: A @ B)(A, A)
    >>> told.kernels[0].order
    ('i', 'k', 'j')
    >>> for workspace in told.kernels[0].workspaces:
    ...     print(workspace.name, workspace.variables, workspace.loops)
    w ('j',) ('i',)
    """
    known = function if isinstance(function, JitFunction) else None

    @functools.wraps(function)
    def explained(*args: Any, **kwargs: Any) -> Explanation:
        fresh = JitFunction(function, (), (), ()) if known is None else known.anew()
        started = time.perf_counter()
        traced = fresh.trace(*args, **kwargs)
        return explain_traced(traced, time.perf_counter() - started)

    return explained


def _sequence(value: Any, kind: type, name: str) -> tuple[Any, ...]:
    """`static_argnums`, `static_argnames` or `donate_argnums` as a tuple; TypeError unless they are of `kind`."""
    listed = (value,) if isinstance(value, np.integer | int | str) or not np.iterable(value) else value
    made = tuple(int(v) if isinstance(v, np.integer) else v for v in listed)
    if not all(isinstance(v, kind) for v in made):
        raise TypeError(f"{name}={value!r} must be {'integers' if kind is int else 'strings'}")
    return made
