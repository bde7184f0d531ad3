"""`jit`, `make_jaxpr`, `eval_shape`, and the stages of ahead-of-time compilation."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from sparsejax import tree_util
from sparsejax.core import primitive, trace
from sparsejax.core.array import Array
from sparsejax.core.avals import Aval, ShapeDtypeStruct
from sparsejax.core.jaxpr import ClosedJaxpr
from sparsejax.core.trace import Tracer
from sparsejax.formats import ingest, scipy_io
from sparsejax.jit import pipeline
from sparsejax.transforms.staging import trace_to_jaxpr

primitive.set_executor(pipeline.execute)


class _Traced:
    """A traced signature: the jaxpr and the tree of its result."""

    __slots__ = ("closed", "out_tree")

    def __init__(self, closed: ClosedJaxpr, out_tree: tree_util.PyTreeDef) -> None:
        self.closed = closed
        self.out_tree = out_tree


class JitFunction:
    """A function compiled per signature: types of the arrays, values of the static arguments, structure of the arguments."""

    def __init__(
        self, function: Callable[..., Any], static_argnums: Sequence[int], static_argnames: Sequence[str]
    ) -> None:
        self.__name__ = "function"
        functools.update_wrapper(self, function)
        self._function = function
        self._argnums, self._argnames = _statics(function, static_argnums, static_argnames)
        self._cache: dict[Any, _Traced] = {}
        self._lock = threading.Lock()

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if trace.current() is not None:
            return self._function(*args, **kwargs)
        leaves, key = self._flatten(args, kwargs)
        traced = self._cache.get(key)
        if traced is None:
            traced = self._trace(key, leaves, args, kwargs)
        outs = pipeline.execute(traced.closed, leaves)
        return tree_util.tree_unflatten(traced.out_tree, outs)

    def _flatten(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], Any]:
        """Array leaves, and the cache key of the call."""
        if not kwargs and not self._argnums:
            for a in args:
                if type(a) is not Array:
                    break
            else:
                return list(args), tuple([a._aval for a in args])
        dynamic, statics = self._split(args, kwargs)
        leaves, tree = tree_util.tree_flatten(dynamic)
        arrays = [leaf if type(leaf) is Array else _as_leaf(leaf, dynamic) for leaf in leaves]
        return arrays, (tree, statics, tuple([_leaf_aval(a) for a in arrays]))

    def _split(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, tuple[Any, ...]]:
        dynamic = [a for k, a in enumerate(args) if k not in self._argnums]
        named = {n: v for n, v in kwargs.items() if n not in self._argnames}
        statics: list[tuple[int | str, Any]] = [(k, args[k]) for k in sorted(self._argnums) if k < len(args)]
        statics += [(n, kwargs[n]) for n in sorted(self._argnames) if n in kwargs]
        for name, value in statics:
            if not isinstance(value, Hashable) or isinstance(value, Array | Tracer):
                raise ValueError(
                    f"static argument {name!r} of {self.__name__} is of type {type(value).__name__}, which is not hashable; "
                    "static arguments must be hashable values such as numbers, strings or tuples"
                )
        return (dynamic, named), tuple(statics)

    def _trace(self, key: Any, leaves: Sequence[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Traced:
        (positional, named), _ = self._split(args, kwargs)
        _, tree = tree_util.tree_flatten((positional, named))
        out_trees: list[tree_util.PyTreeDef] = []

        def flat(*tracers: Any) -> list[Any]:
            positional, named = tree_util.tree_unflatten(tree, tracers)
            fixed = iter(positional)
            full = [args[k] if k in self._argnums else next(fixed) for k in range(len(args))]
            named = {**named, **{n: kwargs[n] for n in self._argnames if n in kwargs}}
            outs, out_tree = tree_util.tree_flatten(self._function(*full, **named))
            out_trees.append(out_tree)
            return [_checked_output(o, self.__name__) for o in outs]

        closed = trace_to_jaxpr(flat, [_leaf_aval(x) for x in leaves])
        traced = _Traced(closed, out_trees[0])
        with self._lock:
            return self._cache.setdefault(key, traced)

    def _traced(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[_Traced, list[Any]]:
        dynamic, statics = self._split(args, kwargs)
        leaves, tree = tree_util.tree_flatten(dynamic)
        found = [x if isinstance(x, Array | ShapeDtypeStruct) else _as_leaf(x, dynamic) for x in leaves]
        key = (tree, statics, tuple(_leaf_aval(x) for x in found))
        known = self._cache.get(key)
        return known or self._trace(key, found, args, kwargs), found

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """Trace for these arguments (arrays or ShapeDtypeStructs) without running."""
        traced, leaves = self._traced(args, kwargs)
        return Traced(traced, leaves)

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Trace and plan for these arguments."""
        return self.trace(*args, **kwargs).lower()


class Traced:
    """A function traced for one signature."""

    def __init__(self, traced: _Traced, leaves: list[Any]) -> None:
        self._traced = traced
        self._leaves = leaves

    @property
    def jaxpr(self) -> ClosedJaxpr:
        return self._traced.closed

    @property
    def out_info(self) -> Any:
        """Types of the results, in their tree."""
        return tree_util.tree_unflatten(self._traced.out_tree, [_struct(a) for a in self._traced.closed.out_avals])

    def lower(self) -> Lowered:
        return Lowered(self._traced, self._leaves)


class Lowered:
    """A function planned for one signature."""

    def __init__(self, traced: _Traced, leaves: list[Any]) -> None:
        self._traced = traced
        self._leaves = leaves

    def as_text(self, stage: str = "cin") -> str:
        """What a stage of the compiler made of the function: "jaxpr", "plan", "cin", "loops", "llvm" or "asm".

        All but "jaxpr" depend on the arrays' statistics, so the function must have been lowered with arrays.
        """
        if stage != "jaxpr" and any(isinstance(x, ShapeDtypeStruct) for x in self._leaves):
            raise ValueError(
                f"stage {stage!r} depends on the data's statistics; lower with arrays instead of ShapeDtypeStruct"
            )
        return pipeline.as_text(self._traced.closed, self._leaves, stage)

    def compile(self) -> Compiled:
        return Compiled(self._traced, self._leaves)


class Compiled:
    """A function ready to run on arguments of the types it was compiled for."""

    def __init__(self, traced: _Traced, leaves: list[Any]) -> None:
        self._traced = traced
        self._avals = [_leaf_aval(x) for x in leaves]
        if not any(isinstance(x, ShapeDtypeStruct) for x in leaves):
            pipeline.execute(traced.closed, leaves)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves = [_as_leaf(x, (args, kwargs)) for x in tree_util.tree_leaves((list(args), kwargs))]
        avals = [_leaf_aval(x) for x in leaves]
        if avals != self._avals:
            raise TypeError(
                f"compiled for arguments of types {self._avals}, but called with {avals}; compile again for these"
            )
        return tree_util.tree_unflatten(self._traced.out_tree, pipeline.execute(self._traced.closed, leaves))


def jit(function: Any = None, *, static_argnums: Any = (), static_argnames: Any = ()) -> Any:
    """Compile `function`: it is traced once per signature, fused, scheduled and turned into machine code.

    Arguments may be arrays (ours, NumPy's, SciPy's sparse ones), Python numbers, and pytrees of these. Static arguments
    must be hashable; a new value means a new trace. The function must be pure: it is not run again for a signature it
    has seen. Inside another traced function, it is inlined.

    >>> import numpy as np
    >>> import sparsejax as sj
    >>> double = sj.jit(lambda x: x + x)
    >>> double(np.arange(3.0))
    Array([0., 2., 4.], dtype=float64)
    """
    if function is None:
        return functools.partial(jit, static_argnums=static_argnums, static_argnames=static_argnames)
    if not callable(function):
        raise TypeError(f"jit expects a function, but got {type(function).__name__}")
    nums = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    return JitFunction(function, nums, names)


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
    def made(*args: Any, **kwargs: Any) -> ClosedJaxpr:
        jaxpr: ClosedJaxpr = compiled.trace(*args, **kwargs).jaxpr
        return jaxpr

    return made


def eval_shape(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The types of the results of `function`, as ShapeDtypeStructs, without computing anything.

    >>> import sparsejax as sj
    >>> eval_shape(lambda A: A.T, sj.ShapeDtypeStruct((2, 3), "float32", format="csr"))
    ShapeDtypeStruct(f32[3:c1,2:d0])
    """
    return jit(function).trace(*args, **kwargs).out_info


def _statics(
    function: Callable[..., Any], nums: Sequence[int], names: Sequence[str]
) -> tuple[frozenset[int], frozenset[str]]:
    """Static positions and names, each completed from the other through the function's signature."""
    try:
        parameters = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        parameters = []
    count = len(parameters)
    found = {n % count if n < 0 and count else n for n in nums}
    for name in names:
        if parameters and name not in parameters and "kwargs" not in parameters:
            raise ValueError(
                f"static_argnames names {name!r}, which is not a parameter; parameters are {', '.join(parameters)}"
            )
    positions = found | {parameters.index(n) for n in names if n in parameters}
    return frozenset(positions), frozenset({*names, *(parameters[k] for k in found if k < count)})


def _as_leaf(leaf: Any, whole: Any) -> Any:
    """A leaf of the arguments as an Array (weakly typed for Python numbers)."""
    if isinstance(leaf, Array | ShapeDtypeStruct):
        return leaf
    if isinstance(leaf, Tracer):
        trace.Trace().atom(leaf)
    if trace.is_python_scalar(leaf):
        return primitive.weak_scalar(leaf)
    if isinstance(leaf, np.ndarray | np.generic) or scipy_io.is_scipy(leaf):
        return Array(ingest.operand_storage(leaf))
    place = next((p for p, x in tree_util.leaves_with_paths(whole) if x is leaf), "")
    raise TypeError(
        f"argument {place} is of type {type(leaf).__name__}; jit takes arrays, numbers and pytrees of these. "
        "Mark other arguments static with static_argnums or static_argnames."
    )


def _leaf_aval(leaf: Any) -> Aval:
    aval: Aval = leaf.aval
    return aval


def _struct(aval: Aval) -> ShapeDtypeStruct:
    return ShapeDtypeStruct(aval.shape, aval.dtype, format=aval.format, fill_value=aval.fill_value)


def _checked_output(value: Any, name: str) -> Any:
    if isinstance(value, Array | Tracer) or trace.is_python_scalar(value):
        return value
    return primitive.asarray(value, f"a result of {name}")
