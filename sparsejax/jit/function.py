"""Functions that are compiled when they are called, once per signature: what `jit` makes."""

from __future__ import annotations

import functools
import logging
import pickle
import sys
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import cloudpickle
import numpy as np

from sparsejax import cached, config, forks, tree_util
from sparsejax.core import again, primitive, roads, trace
from sparsejax.core.array import Array, made
from sparsejax.core.avals import Aval, ShapeDtypeStruct
from sparsejax.core.jaxpr import ClosedJaxpr
from sparsejax.core.trace import Tracer
from sparsejax.formats.storage import Storage
from sparsejax.jit.inspect import cache_misses
from sparsejax.jit.inspect.ahead_of_time import Call, Lowered, Traced, as_leaf, once, viewed
from sparsejax.jit.runtime import plans, signature, tuning
from sparsejax.jit.runtime.call_cache import Shapes, Shortcut
from sparsejax.jit.runtime.kept import programs
from sparsejax.jit.runtime.shapes import Family
from sparsejax.jit.runtime.signature import Signature
from sparsejax.lax.elementwise import strong
from sparsejax.transforms.staging import trace_to_jaxpr

primitive.set_executor(plans.execute)
primitive.set_families(Family)
primitive.set_records(programs)
primitive.set_direct(plans.directly)
again.set_compiler(lambda function, name: JitFunction(function, (), (), (), True, "off", name))

SIGNATURES = 1024
"""Signatures that a jitted function remembers, about 60 KB each with their plans; of more, the quarter that was called longest ago is
forgotten, and traced again when it is called again."""

log = logging.getLogger("sparsejax")
_stack, _LEAF, _NUMBERS = trace.stack, tree_util.tree_structure(0), frozenset([bool, int, float, complex])
_PLAIN: tuple[Any, list[Any]] = (_LEAF, [])
"""What is known of a trace with one result, which reads no integers of Python's."""
Result = TypeVar("Result")


class JitFunction(Generic[Result]):
    """A function compiled per signature: types of the arrays, values of the static arguments, structure of the arguments."""

    def __init__(
        self,
        function: Callable[..., Result],
        static_argnums: Sequence[int],
        static_argnames: Sequence[str],
        donate_argnums: Sequence[int],
        dynamic: Any = True,
        autotune: Any = None,
        known_as: Any = None,
    ) -> None:
        self.__name__ = "function"
        functools.update_wrapper(self, function)
        self._function = function
        self._options = tuple(static_argnums), tuple(static_argnames), tuple(donate_argnums), dynamic, autotune
        self._autotune, self._known_as = autotune, known_as
        self._argnums, self._argnames = signature.positions(function, static_argnums, static_argnames, "static")
        self._donated, self._donated_names = signature.positions(function, donate_argnums, (), "donate")
        both = sorted(self._argnums & self._donated)
        if both:
            raise ValueError(
                f"argument {both[0]} of {self.__name__} is both static and donated; a static one has no memory"
            )
        self._dynamic = dynamic
        self._cache: dict[Any, Signature] = {}
        self._simple = not (self._argnums or self._argnames or self._donated or self._donated_names)
        self._families: dict[Any, Family] = {}
        self._shapes = Shapes(self._families)
        self._structures: dict[tuple[int, tuple[str, ...]], Any] = {}
        """Structures of arguments that are arrays, by how many are given by position, and the names of the others."""
        self._last: Shortcut | None = None
        self._tracing: dict[Any, threading.RLock] = {}
        self._lock = threading.Lock()
        forks.anew(self, _lock=threading.Lock, _tracing=dict)
        cached.register(self)

    def clear_cache(self) -> None:
        """Forget all traces: the next call traces again."""
        self._cache.clear()
        self._shapes.clear()
        self._families.clear()
        self._structures.clear()
        self._last = None

    def anew(self) -> JitFunction[Result]:
        """The same function, which has not been called yet, without donated arguments."""
        return JitFunction(self._function, sorted(self._argnums), sorted(self._argnames), ())

    def __copy__(self) -> JitFunction[Result]:
        return self

    def __deepcopy__(self, memo: Any) -> JitFunction[Result]:
        return self

    def __reduce__(self) -> Any:
        """By name where the function's module has it, else by value, with cloudpickle."""
        name = getattr(self, "__qualname__", "")
        module = sys.modules.get(self.__module__) if self.__module__ != "__main__" else None
        if module is not None and getattr(module, name, None) is self:
            return name
        if self in _pickling.functions:
            raise pickle.PicklingError(f"the jitted function {self.__name__} refers to itself; put it into a module")
        _pickling.functions.append(self)
        try:
            return _unpickled, (cloudpickle.dumps(self._function), *self._options)
        finally:
            _pickling.functions.pop()

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Result:
        if _stack.traces:
            return tree_util.tree_map(_inlined, self._function(*args, **kwargs))
        last = self._last
        if (
            last is not None
            and len(args) == last.count
            and not config.forcing
            and (given := last.given(args, kwargs) if kwargs or last.names else args) is not None
        ):
            storages: list[Storage] = []
            for a, aval in zip(given, last.avals):
                kind = type(a)
                if kind is not Array:
                    if kind is np.ndarray:
                        template = last.templates[len(storages)]
                        viewed = None if template is None else primitive.view_as(a, aval, template)
                        if viewed is None:
                            break
                        storages.append(viewed)
                        continue
                    if kind not in _NUMBERS:
                        break
                    a = primitive.weak_scalar(a)
                if a._aval is not aval and a._aval._key != aval._key:
                    break
                storages.append(a._storage)
            else:
                if last.several is not None:
                    return last.several(storages)
                return made(last.kernel.call(storages), last.result)  # type: ignore[return-value]
        if not kwargs and self._simple and self._families and not config.forcing:
            found = self._shapes.quickly(args, (self._autotune or config.autotune()) == "off")
            if found is not None:
                self._last = found[1] or last
                return found[0]
        leaves, key, names = self._flatten(args, kwargs)
        traced = self._cache.get(key)
        if traced is None and not self._donated and self._varies:
            found = self._shapes.once(*signature.structured(key), [a._storage for a in leaves])
            if found is not None:
                return found[0]
        if traced is None:
            traced = self._known(key, leaves)
            # of a shape that may not come back, nothing more is prepared than the call needs
            comes_back = traced is None or signature.structured(key) in self._shapes.met
            traced = traced or self._trace_once(key, leaves, args, kwargs, run=True)
        else:
            comes_back = True
        tunes = self._tunes
        if tunes != "off" and not config.forcing and not self._donated:
            self._tune(traced, leaves, tunes == "any")
        traced.used = next(signature.clock)
        if traced.limits:
            traced.check(leaves)
        if self._donated:
            outs = plans.execute(traced.closed, leaves, once(self._donated_leaves(args, kwargs)))
        else:
            outs = plans.execute(traced.closed, leaves)
            if traced.keep is not None:
                traced.kept(leaves)
            avals = [a._aval for a in leaves]
            self._last = last = traced.shortcut(avals, names) if comes_back and not config.forcing else None
            if last is not None and self._simple and not names and self._families:
                self._shapes.keep(signature.structured(key), last)
        return tree_util.tree_unflatten(traced.out_tree, outs)

    @property
    def _tunes(self) -> str:
        """Whether plans are measured: "off", "exact" or "any"."""
        return config.autotune() if self._autotune is None else self._autotune

    @property
    def _varies(self) -> bool:
        """Whether a trace may serve several shapes: not where plans are measured, each on operands of its own."""
        return self._tunes == "off"

    def _tune(self, traced: Signature, leaves: Sequence[Any], any_bits: bool) -> None:
        """Give a trace the plan that is fastest on these operands."""
        closed = traced.closed
        if "tuned" in closed.cache or any(e.asks for e in closed.jaxpr.eqns):
            return
        if traced.limits:
            traced.check(leaves)
        found = tuning.settle(closed, [a._storage for a in (*closed.consts, *leaves)], any_bits)
        log.log(logging.WARNING if config.log_compiles() else logging.DEBUG, "tuned %s: %s", self.__name__, found)

    def tuned(self) -> list[tuning.Tuned]:
        """What was measured for the signatures that were called: the alternatives that each is planned with, and what they gain.

        >>> import numpy as np
        >>> import sparsejax as sj
        >>> double = sj.jit(lambda x: x + x, autotune=True)
        >>> _ = double(np.arange(3.0))
        >>> len(double.tuned())
        1
        """
        return [t.closed.cache["tuned"] for t in self._cache.values() if "tuned" in t.closed.cache]

    def quick(self, avals: tuple[Aval, ...]) -> Callable[[list[Storage]], Any] | None:
        """What a call of arrays of these types comes to, which was the last one; None where more is to be done than to run a plan."""
        last = self._last
        return last.run if last is not None and not last.names and last.avals == avals else None

    def _donated_leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[int, Any]]:
        """The leaves that are donated, with their numbers; those that are given by name come last, in the order of their names."""
        count = 0
        given = [(a, k in self._donated) for k, a in enumerate(args) if k not in self._argnums]
        given += [(kwargs[n], n in self._donated_names) for n in sorted(kwargs) if n not in self._argnames]
        for argument, donated in given:
            for leaf in tree_util.tree_leaves(argument):
                if donated:
                    yield count, leaf
                count += 1

    def _flatten(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Sequence[Any], Any, tuple[str, ...] | None]:
        """Array leaves, the cache key of the call, and the names that are given, in order; None in their place where arguments are not
        arrays and numbers alone."""
        if not self._argnums and not self._argnames:
            names = tuple(sorted(kwargs))
            found: list[Any] = []
            avals: list[Aval] = []
            for a in (*args, *[kwargs[n] for n in names]) if names else args:
                kind = type(a)
                if kind is Array:
                    pass
                elif kind is np.ndarray:
                    a = viewed(a, self._function, len(found), len(args), names)
                elif kind in _NUMBERS:
                    a = primitive.weak_scalar(a)
                else:
                    break
                found.append(a)
                avals.append(a._aval)
            else:
                if not names:
                    return found, tuple(avals), names
                structure = self._structures.get((len(args), names))
                if structure is None:
                    structure = signature.structure(tree_util.tree_structure((list(args), kwargs)))
                    with self._lock:
                        self._structures[len(args), names] = structure
                        primitive.forget(self._structures)
                return found, (structure, (), tuple(avals)), names
        dynamic, statics = self._split(args, kwargs)
        leaves, tree = tree_util.tree_flatten(dynamic)
        arrays = [leaf if type(leaf) is Array else as_leaf(leaf, args, kwargs, self._function) for leaf in leaves]
        return arrays, (signature.structure(tree), statics, tuple([a.aval for a in arrays])), None

    def _split(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, tuple[Any, ...]]:
        dynamic = [a for k, a in enumerate(args) if k not in self._argnums]
        named = {n: v for n, v in kwargs.items() if n not in self._argnames}
        statics: list[tuple[int | str, Any]] = [(k, args[k]) for k in sorted(self._argnums) if k < len(args)]
        statics += [(n, kwargs[n]) for n in sorted(self._argnames) if n in kwargs]
        for name, value in statics:
            if not isinstance(value, Hashable | Array) or isinstance(value, Tracer):
                raise ValueError(
                    f"static argument {name!r} of {self.__name__} is of type {type(value).__name__}, which is not hashable; "
                    "static arguments must be hashable values such as numbers, strings, tuples, or arrays of sparsejax"
                )
        return (dynamic, named), tuple([(name, signature.typed(value)) for name, value in statics])

    def _trace_once(
        self, key: Any, leaves: Sequence[Any], args: tuple[Any, ...], kwargs: dict[str, Any], run: bool = False
    ) -> Signature:
        """The trace of a signature; threads that ask for it at the same time wait for one of them."""
        if trace.current() is not None:
            return self._trace(key, leaves, args, kwargs, False)
        with self._lock:
            turn = self._tracing.setdefault(key, threading.RLock())
        with turn:
            traced = self._cache.get(key) or self._trace(key, leaves, args, kwargs, run)
        with self._lock:
            self._tracing.pop(key, None)
        return traced

    def _trace(
        self, key: Any, leaves: Sequence[Any], args: tuple[Any, ...], kwargs: dict[str, Any], run: bool
    ) -> Signature:
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

        def make(avals: Sequence[Aval]) -> tuple[ClosedJaxpr, Any]:
            closed = trace_to_jaxpr(flat, avals)
            return closed, (out_trees.pop(), signature.limits_of(closed.jaxpr))

        avals = [x.aval for x in leaves]
        alone = run and trace.current() is None and self._varies
        family = self._family(key, avals, args, kwargs) if alone and self._dynamic else None
        named = self._known_as if family is not None and (not key or isinstance(key[0], Aval)) else None
        traces = programs.of_shapes(named, False, _PLAIN) if named else None
        found = None if family is None else family.find(avals, leaves, make, traces)
        if config.explain_cache_misses():
            paths = self._paths(args, kwargs)
            told = "" if family is None else family.told(signature.axes(paths, avals))
            reason = cache_misses.reason(self.__name__, key, list(self._cache), paths)
            log.warning("%s%s", reason, f"; {told}" if told else "")
        record = programs.name((self._known_as, key)) if named and found is None else None
        if record is not None and (kept := programs.recall_function(record, self._function, leaves)):
            found = kept, _PLAIN
        closed, (out_tree, limits) = found or make(avals)
        traced = Signature(closed, out_tree, limits)
        if named and out_tree == _LEAF and not limits:
            traced.keep = functools.partial(programs.keep, record)
        elif not named and found is None and alone and not (self._donated or self._donated_names):
            record = programs.recall_traced(closed, leaves)
            traced.keep = None if record is None else functools.partial(programs.keep, record)
        if traced.is_inner:
            return traced
        return self._kept(key, traced)

    def _kept(self, key: Any, traced: Signature) -> Signature:
        """Remember a signature, and forget old ones."""
        with self._lock:
            if len(self._cache) >= SIGNATURES:
                for old in sorted(self._cache, key=lambda k: self._cache[k].used)[: max(1, SIGNATURES // 4)]:
                    del self._cache[old]
                    self._shapes.forget(signature.structured(old))
            if trace.current() is None:
                self._shapes.met[signature.structured(key)] = roads.FEW
            return self._cache.setdefault(key, traced)

    def _known(self, key: Any, leaves: Sequence[Any]) -> Signature | None:
        """A new signature of a shape that an earlier trace serves."""
        if trace.current() is not None or not self._varies:
            return None
        avals = [x.aval for x in leaves]
        family = self._families.get(signature.structure_of(key, avals))
        found = None if family is None else family.known(avals, leaves)
        if found is None:
            return None
        closed, (out_tree, limits) = found
        return self._kept(key, Signature(closed, out_tree, limits))

    def _family(self, key: Any, avals: Sequence[Aval], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Family:
        """The traces for operands that differ from these in their extents alone."""
        structure = signature.structure_of(key, avals)
        named = self._dynamic if isinstance(self._dynamic, dict) else {}
        words = signature.named(named, self._function, self._argnums, args, kwargs)
        if structure not in self._families:
            with self._lock:
                self._families.setdefault(structure, Family(words))
        return self._families[structure]

    def _paths(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
        """The names of the leaves of the arguments, in order."""
        (positional, named), _ = self._split(args, kwargs)
        return signature.paths([k for k in range(len(args)) if k not in self._argnums], positional, named)

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """Trace for these arguments (arrays, ShapeDtypeStructs, or values of a function being traced) without running."""
        dynamic, statics = self._split(args, kwargs)
        leaves, tree = tree_util.tree_flatten(dynamic)
        known = [
            x if isinstance(x, _TYPED) or trace.is_traced(x) else as_leaf(x, args, kwargs, self._function)
            for x in leaves
        ]
        avals = tuple([x.aval for x in known])
        key = (signature.structure(tree), statics, avals)
        plain = not kwargs and trace.current() is None
        traced = self._cache.get(key) or (signature.called(self._cache, args, leaves, avals) if plain else None)
        traced = traced or self._trace_once(key, known, args, kwargs)
        return Traced(Call(traced, known, tree, tuple(n for n, _ in self._donated_leaves(args, kwargs))))

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Trace and plan for these arguments."""
        return self.trace(*args, **kwargs).lower()


_TYPED = (Array, ShapeDtypeStruct)


class _Pickling(threading.local):
    def __init__(self) -> None:
        self.functions: list[JitFunction[Any]] = []


_pickling = _Pickling()


def _unpickled(
    function: bytes,
    static_argnums: Sequence[int],
    static_argnames: Sequence[str],
    donate_argnums: Sequence[int] = (),
    dynamic: Any = True,
    autotune: Any = None,
) -> JitFunction[Any]:
    return JitFunction(pickle.loads(function), static_argnums, static_argnames, donate_argnums, dynamic, autotune)


def _inlined(value: Any) -> Any:
    """A result of a jitted function inside another: strongly typed, as outside."""
    if trace.is_python_scalar(value):
        return primitive.asarray(value)
    return strong(value) if isinstance(value, Tracer) else value


def _checked_output(value: Any, name: str) -> Any:
    if isinstance(value, Array | Tracer) or trace.is_python_scalar(value):
        return value
    return primitive.asarray(value, f"a result of {name}")
