"""What runs in a task: the equations of a stage on one block each, as one compiled program; parts of blocks; partial results put together.

Programs travel as text without code (`export.layout`). A process reads each text once, and one trace serves blocks of all shapes: extents of axes that are
cut are symbols from the first block on (`runtime.shapes`). Which block comes first depends on the worker, and bits must not: blocks with another number of
entries per row, rounded, have a program of their own.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

from sparsejax import config, forks
from sparsejax.core.array import Array
from sparsejax.core.jaxpr import Var
from sparsejax.core.primitive import asarray
from sparsejax.dask import assembled
from sparsejax.dask.axes import CONTROL, Classes, bind
from sparsejax.dask.plan import FAN
from sparsejax.dask.sharded import assemble, part
from sparsejax.export import layout
from sparsejax.jit.api import jit
from sparsejax.jit.backend import records
from sparsejax.jit.cost import statistics
from sparsejax.lax.elementwise import elementwise
from sparsejax.lax.structural import convert_format
from sparsejax.transforms.staging import read

Layout = tuple[int, ...] | None
"""How an operand comes: as one array, or as blocks in a grid."""


class Program:
    """The equations of a stage as a function of blocks.

    `text` is the jaxpr; `dims` has the dimensions of the grid of every axis of every operand, `sized` those of axes whose extents are
    parameters; both -1 where an axis is whole.
    """

    def __init__(self, text: str, dims: Sequence[Sequence[int]], sized: dict[int, Sequence[int]]) -> None:
        self.jaxpr = layout.loads(text)
        self.dims, self.sized = dims, sized
        self._loops = any(eqn.primitive in CONTROL for eqn in self.jaxpr.eqns)
        self.run = self._jitted()

    def _jitted(self) -> Any:
        """The program for blocks, of which the axis that is cut along dimension k of the grid has the symbol `dk`."""
        made = [v.aval for v in self.jaxpr.inputs] + [v.aval for eqn in self.jaxpr.eqns for v in eqn.outputs]
        # extents of formats of blocks are no symbols, and bodies of loops are traced for the extents of their part
        cut = not self._loops and not any(n > 1 for aval in made for n in aval.format.blocks)
        return _many_shapes(self._bound, [[f"d{k}" if cut and k >= 0 else None for k in own] for own in self.dims], 1)

    def _bound(self, extents: tuple[tuple[int, int], ...], *blocks: Any) -> list[Any]:
        parts: dict[int, Any] = dict(extents)
        for block, own in zip(blocks, self.dims, strict=True):
            parts.update({k: n for k, n in zip(own, block.shape, strict=True) if k >= 0})
        env: dict[Any, Any] = dict(zip(self.jaxpr.inputs, blocks, strict=True))
        if self._loops:
            bind(self.jaxpr, env, parts, self._dims())
        else:
            bind(self.jaxpr, env, parts, lambda var, axis: None, self.sized)
        return [asarray(read(env, a)) for a in self.jaxpr.outputs]

    def _dims(self) -> Callable[[Var, int], int | None]:
        """Along which dimension of the grid an axis is cut, in bodies too: those of the class of an operand's axis that is."""
        classes = Classes(self.jaxpr)
        pairs = zip(self.jaxpr.inputs, self.dims, strict=True)
        known = {classes.of(v, d): k for v, own in pairs for d, k in enumerate(own) if k >= 0}
        return lambda var, axis: known.get(classes.of(var, axis))


def _many_shapes(function: Any, symbols: Sequence[Sequence[str | None]], static: int = 0) -> Any:
    """`function`, jitted, with these symbols for the extents of its operands, after static arguments."""

    def run(*args: Any) -> Any:
        return function(*args)

    words = {f"operand{n}": tuple(own) for n, own in enumerate(symbols)}
    only = inspect.Parameter.POSITIONAL_ONLY
    names = [*(f"static{n}" for n in range(static)), *words]
    run.__signature__ = inspect.Signature([inspect.Parameter(n, only) for n in names])  # type: ignore[attr-defined]
    named = {name: own for name, own in words.items() if any(own)}
    return jit(run, static_argnums=tuple(range(static)), dynamic=named or False)


_lock = threading.Lock()
forks.anew(__name__, _lock=threading.Lock)


@functools.lru_cache(maxsize=4096)
def _program(text: str, facts: tuple[tuple[float, ...], ...]) -> Program:
    about = json.loads(text)
    return Program(about["jaxpr"], about["dims"], {int(k): v for k, v in about["sized"].items()})


def program(text: str, operands: Sequence[Array]) -> Program:
    """The program of a text for blocks of all shapes that have about as many entries per row as these, read once per process."""
    facts = tuple(statistics.rates(x._storage) for x in operands)
    with _lock:
        return _program(text, facts)


def run(text: str, lines: str, layouts: Sequence[Layout], extents: tuple[tuple[int, int], ...], *refs: Any) -> Any:
    """A stage at one point of its grid: its results, or its only one. An error gets a note with the lines of the user's program."""
    operands, place = [], 0
    try:
        with config.using(num_threads=1), _turn(text, refs):  # Dask runs as many tasks as a worker has cores
            for grid in layouts:
                count = math.prod(grid or ())
                parts = list(refs[place : place + count])
                operands.append(parts[0] if grid is None else _together(parts, tuple(grid)))
                place += count
            made = program(text, operands).run(extents, *operands)
    except Exception as error:
        error.add_note(f"in a task of these lines: {lines}")
        raise
    return made[0] if len(made) == 1 else tuple(made)


_seen: set[Any] = set()


@contextmanager
def _turn(text: str, operands: Sequence[Any]) -> Iterator[None]:
    """First runs of programs on blocks of these types take turns on this computer, so that each loads what another has compiled (where
    kernels are kept on disk). The lock is the system's: it goes with its process."""
    key = text, tuple(x.aval.structure for x in operands if isinstance(x, Array))
    shared = config.cache_dir() != "off" and not records.exchanged()
    lock = _locked() if shared and key not in _seen else None
    try:
        yield
        _seen.add(key)
    finally:
        if lock is not None:
            os.close(lock)


def _locked() -> int | None:
    """The lock of this computer and user, once it is free; None where the system has none."""
    if fcntl is None:
        return None
    path = os.path.join(tempfile.gettempdir(), f"sparsejax-{os.getuid()}.lock")
    try:
        lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError:
        return None
    return lock


def _together(parts: list[Any], grid: tuple[int, ...]) -> Any:
    """Blocks as one array: once per process for all tasks that read the same blocks, since a worker hands each of them the same objects."""
    return assembled.found(parts, grid, lambda: assemble(parts, grid))


def cut(block: Any, ranges: Sequence[tuple[int, int]]) -> Any:
    """A part of a block, before it is sent."""
    with config.using(num_threads=1), _turn("cut", [block]):
        return part(block, ranges)


def gather(grid: tuple[int, ...], *parts: Any) -> Any:
    """Many blocks as one array."""
    with config.using(num_threads=1), _turn("gather", parts[:1]):
        return assemble(list(parts), grid)


def pick(results: Sequence[Any], number: int) -> Any:
    """One result of a stage."""
    return results[number]


def combine(text: str, *parts: Any) -> Any:
    """Partial results as one, in order: ((a op b) op c) op d, with the operator of a text."""
    op = layout.decode(json.loads(text))
    with config.using(num_threads=1), _turn(op, parts):
        first = FAN if len(parts) == FAN else 2  # so that there are two programs, however many parts
        made = _combined(op, first)(*parts[:first])
        for other in parts[first:]:
            made = _combined(op, 2)(made, other)
        return made


@functools.lru_cache(maxsize=256)
def _combined(op: str, count: int) -> Any:
    def folded(*parts: Any) -> Any:
        made = parts[0]
        for other in parts[1:]:
            made = elementwise(op, made, other)
        return made if made.format == parts[0].format else convert_format(made, parts[0].format)

    return jit(folded, dynamic=False)
