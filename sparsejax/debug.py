"""`sparsejax.debug`: looking at values inside traced functions: `print`, and `callback` for anything else."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from sparsejax import tree_util
from sparsejax.core.array import Array
from sparsejax.core.primitive import asarray
from sparsejax.core.trace import current, is_python_scalar
from sparsejax.lax.library.callbacks import handed, observe

__all__ = ["callback", "print"]


def __dir__() -> list[str]:
    return __all__


def callback(callback: Callable[..., Any], *args: Any, ordered: bool = False, **kwargs: Any) -> None:
    """Call `callback(*args, **kwargs)` with values whenever this point of a program is reached, also where nobody reads a result of it.

    Dense arrays are handed over as NumPy's, sparse ones as ours. Under `vmap` there is a call for every element. Calls are in the order
    of the program, whatever `ordered` says; what is differentiated may be run again, and so may its callbacks.

    >>> import sparsejax as sj
    >>> @sj.jit
    ... def f(x):
    ...     callback(lambda v: builtins.print("x is", v), x)
    ...     return x + 1
    >>> f(1.0)
    x is 1.0
    Array(2., dtype=float64)
    """
    leaves, tree = tree_util.tree_flatten((args, kwargs))

    def call(*values: Any) -> None:
        given, named = tree_util.tree_unflatten(tree, values)
        callback(*given, **named)

    if current() is None:
        call(*(handed(x._storage) if isinstance(x, Array) else x for x in leaves))
        return
    fixed = [is_python_scalar(x) or isinstance(x, str) or x is None for x in leaves]
    moving = [asarray(x, "an argument of debug.callback") for x, own in zip(leaves, fixed, strict=True) if not own]

    def filled(*values: Any) -> None:
        rest = iter(values)
        call(*(x if own else next(rest) for x, own in zip(leaves, fixed, strict=True)))

    observe(getattr(callback, "__name__", "callback"), filled, moving)


def print(fmt: str, *args: Any, ordered: bool = False, **kwargs: Any) -> None:
    """Print `fmt.format(*args, **kwargs)` with values whenever this point of a program is reached; see `callback`.

    >>> import sparsejax as sj
    >>> sj.jit(lambda x: print("x = {}, twice {y}", x, y=2 * x))(3.0)
    x = 3.0, twice 6.0
    """
    callback(lambda *a, **k: builtins.print(fmt.format(*a, **k)), *args, ordered=ordered, **kwargs)
