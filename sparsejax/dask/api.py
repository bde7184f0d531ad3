"""`jit` and `explain`: functions over shards."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from sparsejax import tree_util
from sparsejax.core import trace
from sparsejax.dask.emit import Emitter, Placed, cleaned
from sparsejax.dask.sharded import Sharded, current_client, shard
from sparsejax.jit import api as compiler
from sparsejax.jit.inspect.ahead_of_time import struct


class ShardedFunction:
    """A function whose arguments may be in shards; see `jit`."""

    def __init__(self, function: Callable[..., Any], static_argnums: Any = (), static_argnames: Any = ()) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._jit = compiler.jit(function, static_argnums=static_argnums, static_argnames=static_argnames)
        self._static = {static_argnums} if isinstance(static_argnums, int) else set(static_argnums)
        self._named = {static_argnames} if isinstance(static_argnames, str) else set(static_argnames)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if trace.current() is not None:
            if any(hasattr(leaf, "__dask_graph__") for leaf in tree_util.tree_leaves((args, kwargs))):
                name = getattr(self, "__name__", "a function")
                raise TypeError(
                    f"{name} is called with an array in shards while it is traced, as by grad or vmap around it; put sparsejax.dask.jit outside: "
                    "jit(grad(f))"
                )
            return self._jit(*args, **kwargs)
        emitter, results, tree = self._emit(args, kwargs)
        return tree_util.tree_unflatten(tree, [emitter.sharded(r, alone=len(results) == 1) for r in results])

    def _emit(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Emitter, list[Placed], Any]:
        given: list[Any] = []

        def typed(leaf: Any) -> Any:
            if hasattr(leaf, "__dask_graph__") and not isinstance(leaf, Sharded):
                leaf = shard(leaf)
            given.append(leaf)
            return struct(leaf.aval) if isinstance(leaf, Sharded) else leaf

        types = [a if k in self._static else tree_util.tree_map(typed, a) for k, a in enumerate(args)]
        named = {k: v if k in self._named else tree_util.tree_map(typed, v) for k, v in sorted(kwargs.items())}
        traced = self._jit.trace(*types, **named)
        closed = traced.jaxpr
        current_client()  # so that the first tasks find what its cluster needs
        emitter = Emitter()
        values = [emitter.given(v) for v in (*closed.consts, *given)]
        results = emitter.jaxpr(cleaned(closed.jaxpr), values)
        return emitter, results, tree_util.tree_structure(traced.out_info)

    def explain(self, *args: Any, **kwargs: Any) -> str:
        """What a call would do: the cut of every operation, what is moved and why, and the size of the graph. Runs loops that depend on data."""
        emitter, results, _ = self._emit(args, kwargs)
        lines: list[str] = []
        for count, plan in _counted(emitter.plans):
            lines.append(f"plan ({count} times)" if count > 1 else "plan")
            for stage in plan.order:
                if not stage.outputs:  # others make for themselves what it does
                    continue
                grid = " x ".join(str(len(c) - 1) for c in stage.grid) or "1"
                lines.append(f"  stage {stage.number}: {grid} tasks")
                for choice in stage.choices:
                    moves = "; ".join(f"{what} {how} {_bytes(b)}" for what, how, b in choice.moves) or "nothing moves"
                    how = choice.told or (
                        "whole operands"
                        if choice.rule is None
                        else choice.text + (f", {choice.scheme}" if choice.scheme else "")
                    )
                    others = "".join(f", {s or 'whole'} {p / 1e6:.2f} ms" for s, p in choice.others)
                    source = f"   {choice.eqn.source}" if choice.eqn.source else ""
                    lines.append(
                        f"    {choice.eqn.primitive.name} [{how}]: {moves}; {choice.price / 1e6:.2f} ms{others and ' against' + others[1:]}{source}"
                    )
        tasks = len(emitter.graph)
        edges = sum(len(getattr(node, "dependencies", ())) for node in emitter.graph.values())
        lines.append(f"{tasks} nodes, {edges} edges, {_bytes(emitter.sent)} moved at most")
        if len(results) == 1 and (gang := emitter.sharded(results[0], alone=True).gang()) is not None:
            lines.append(
                f"gang: {gang.count} tasks in place of these, which pass {_bytes(gang.sent)} to each other and wait {gang.waits} times"
            )
        return "\n".join(lines)


def _counted(plans: list[Any]) -> list[tuple[int, Any]]:
    counts: dict[int, list[Any]] = {}
    for plan in plans:
        counts.setdefault(id(plan), [0, plan])[0] += 1
    return [(n, p) for n, p in counts.values()]


def _bytes(n: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000 or unit == "GB":
            return f"{n:.3g} {unit}"
        n /= 1000
    return ""


def jit(function: Any = None, *, static_argnums: Any = (), static_argnames: Any = ()) -> Any:
    """A function over arrays in shards: traced once per types, planned once per layout, one graph of Dask's per call.

    Arguments are `Sharded`, arrays of Dask's (their chunks are shards), arrays (ours, NumPy's, SciPy's: they are sent to whoever reads them), numbers,
    and pytrees of these. Results are `Sharded`: `.compute()` gathers one, `.persist()` keeps it on the workers, `dask.compute(*results)` gathers several.
    Every operation is cut along the variables for which it moves the fewest bytes (`explain`), equations with the same cut run in one task as one
    compiled program. The graph depends on the shards and not on the workers, and so do the bits of results.

    Put it outside `grad` and `vmap`: `jit(grad(f))`. Called inside a traced function it is inlined.

    >>> import numpy as np, sparsejax as sj, sparsejax.dask
    >>> A = sparsejax.dask.shard(sj.array(np.tri(4), format="csr"), rows=2)
    >>> sparsejax.dask.jit(lambda A, x: A @ x)(A, np.ones(4)).compute()
    Array([1., 2., 3., 4.], dtype=float64)
    """
    if function is None:
        return functools.partial(jit, static_argnums=static_argnums, static_argnames=static_argnames)
    if not callable(function):
        raise TypeError(f"jit expects a function, but got {type(function).__name__}")
    return ShardedFunction(function, static_argnums, static_argnames)


def explain(function: Any) -> Callable[..., str]:
    """What `jit(function)` would do with these arguments: `explain(f)(*args)`.

    >>> import numpy as np, sparsejax as sj, sparsejax.dask
    >>> A = sparsejax.dask.shard(sj.array(np.eye(4), format="csr"), rows=2)
    >>> print(sparsejax.dask.explain(lambda A: A * 2)(A).splitlines()[1])
      stage 0: 1 tasks
    """
    made: ShardedFunction = function if isinstance(function, ShardedFunction) else jit(function)
    return made.explain
