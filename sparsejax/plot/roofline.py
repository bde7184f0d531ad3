"""The roofline of a function: operations per second against operations per byte, under what memory and processor allow.

    roof(intensity) = min(peak, bandwidth * intensity)        intensity: operations per byte of operands and results

Bandwidth is that of a triad a = b + s c in a kernel of our own, peak that of a dense product in BLAS, both with the threads that are configured. Source:
"Roofline: an insightful visual performance model for multicore architectures" (Williams, Waterman, Patterson, 2009).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sparsejax import tree_util
from sparsejax.core.array import Array
from sparsejax.jit.api import jit
from sparsejax.numpy.making import array
from sparsejax.optional import optional

ROUNDS = 5


class Roof(NamedTuple):
    """What a machine allows: bytes and operations per second."""

    bandwidth: float
    peak: float

    def at(self, intensity: float) -> float:
        """Operations per second that are possible at so many operations per byte."""
        return min(self.peak, self.bandwidth * intensity)


class Standing(NamedTuple):
    """Where a function stands: operations per byte and per second, its share of the roof above it, the roof, and the axes."""

    intensity: float
    speed: float
    share: float
    roof: Roof
    ax: Any


def measured_roof(dtype: Any = np.float64, *, nbytes: int = 64 << 20, order: int = 1024) -> Roof:
    """Measure this machine: a triad over three arrays of `nbytes` each, and a dense product of matrices of `order`; the best of some rounds."""
    kind = np.dtype(dtype)
    n = max(1, nbytes // kind.itemsize)
    b, c = array(np.ones(n, kind)), array(np.ones(n, kind))
    triad = jit(lambda a, b, c: b + c * a[0], donate_argnums=0)
    made = [triad(b + c, b, c)]

    def once() -> None:
        made[0] = triad(made[0], b, c)

    x = np.ones((order, order), kind)
    return Roof(3 * n * kind.itemsize / _seconds(once), 2 * order**3 / _seconds(lambda: x @ x))


def roofline(
    function: Callable[..., Any], *args: Any, roof: Roof | None = None, ax: Any = None, label: str | None = None
) -> Standing:
    """Run `function` on `args`, and draw where it stands under the roofline of this machine; several functions may share `ax` and `roof`.

    Operations and bytes are those of `jit(function).lower(*args).cost_analysis()`, where every operand and result counts once: a function whose
    operands fit into caches may stand above the roof. The function is compiled, run once, and then timed for some rounds; without `roof`, the
    machine is measured first (`measured_roof`, about a second). ValueError for a function that computes nothing, whose intensity is no number.
    """
    pyplot = optional("matplotlib.pyplot", "plot")
    given = [array(leaf) if isinstance(leaf, np.ndarray) else leaf for leaf in tree_util.tree_leaves(args)]
    compiled = jit(function)
    cost = compiled.lower(*args).cost_analysis()
    operations, nbytes = cost["flops"], cost["bytes accessed"]
    if not operations or not nbytes:
        raise ValueError(
            f"the function does {operations:g} operations on {nbytes:g} bytes, which has no place under a roofline"
        )
    if roof is None:
        kinds = [leaf.dtype for leaf in given if isinstance(leaf, Array)]
        roof = measured_roof(np.float32 if kinds and all(kind == np.float32 for kind in kinds) else np.float64)
    compiled(*args)
    intensity, speed = operations / nbytes, operations / _seconds(lambda: compiled(*args))
    ax = _drawn(pyplot, roof) if ax is None else ax
    ax.plot(intensity, speed / 1e9, "o", label=label or getattr(function, "__name__", "function"))
    ax.legend(loc="lower right", frameon=False)
    return Standing(intensity, speed, speed / roof.at(intensity), roof, ax)


def _drawn(pyplot: Any, roof: Roof) -> Any:
    """Axes with the roof."""
    ax = pyplot.subplots()[1]
    ridge = roof.peak / roof.bandwidth
    at = np.geomspace(min(1e-2, ridge / 100), max(1e2, ridge * 10), 200)
    ax.loglog(at, [roof.at(intensity) / 1e9 for intensity in at], color="black")
    ax.set_xlabel("operations per byte")
    ax.set_ylabel("GFLOP/s")
    ax.set_title(f"{roof.bandwidth / 1e9:.3g} GB/s, {roof.peak / 1e9:.3g} GFLOP/s", fontsize="medium")
    return ax


def _seconds(run: Callable[[], object]) -> float:
    """The shortest of some rounds."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)
