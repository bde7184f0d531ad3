"""`vmap`: functions of one element become functions of a batch; the name, arguments and errors of JAX.

The function is traced on the types of one element; every operation then gets one more index variable (`lax.rules.batching`).
"""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from sparsejax import tree_util
from sparsejax.core.avals import Aval
from sparsejax.core.batching import Batched, element_format
from sparsejax.core.jaxpr import ClosedJaxpr
from sparsejax.core.primitive import asarray, weak_scalar
from sparsejax.core.trace import is_python_scalar
from sparsejax.lax.rules.batching import batch_jaxpr, moved, spread
from sparsejax.transforms import alike, staging

Result = TypeVar("Result")


def vmap(
    function: Callable[..., Result], in_axes: Any = 0, out_axes: Any = 0, axis_size: int | None = None
) -> Callable[..., Result]:
    """A function that applies `function` to every element of a batch, as one program.

    `in_axes` says along which axis the arguments are batched: an integer, None for arguments that all elements share, or a tuple of
    these, one for each argument (for an argument that is a pytree: a pytree that is a prefix of it). Keyword arguments are batched
    along axis 0. `out_axes` says in the same way where the results have the batch; None for results that are not batched.
    `axis_size` is needed where no argument is batched.

    Sparse arrays may be batched along any axis, whatever its level. Dense levels below sparse ones are values under one pattern,
    which is walked once; a level above a sparse one makes a batch of patterns, without padding. An element is an array without that
    axis and its level. Results are over the buffers that were computed, with the batch in its place: only types are transposed.

    Raises TypeError for `in_axes` of other types, ValueError where it does not fit the arguments, or for extents that differ.

    >>> import sparsejax as sj, numpy as np
    >>> A = sj.array(np.eye(3), format="csr")
    >>> vmap(lambda x: A @ x)(np.ones((2, 3)))
    Array([[1., 1., 1.],
           [1., 1., 1.]], dtype=float64)
    >>> vmap(lambda x, y: x @ y, in_axes=(None, 1), out_axes=1)(A, np.ones((3, 2))).shape
    (3, 2)
    >>> vmap(lambda w: A * w)(np.arange(2.0)).format
    Format('(d,c,d)@(1,2,0)')
    """
    if not callable(function):
        raise TypeError(f"Expected a callable value, got {function}")
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    if not (in_axes is None or type(in_axes) in (int, tuple)):
        raise TypeError(
            "vmap in_axes must be an int, None, or a tuple of entries corresponding to the positional arguments passed to the "
            f"function, but got {in_axes}."
        )
    for name, axes in (("in_axes", in_axes), ("out_axes", out_axes)):
        if not all(type(leaf) is int for leaf in tree_util.tree_leaves(axes)):
            raise TypeError(
                f"vmap {name} must be an int, None, or (nested) container with those types as leaves, but got {axes}."
            )

    @functools.wraps(function)
    def batched(*args: Any, **kwargs: Any) -> Any:
        if isinstance(in_axes, tuple) and len(in_axes) != len(args):
            raise ValueError(
                "vmap in_axes must be an int, None, or a tuple of entries corresponding to the positional arguments passed to the "
                f"function, but got len(in_axes)={len(in_axes)}, len(args)={len(args)}"
            )
        leaves, tree = tree_util.tree_flatten((args, kwargs))
        if not leaves and axis_size is None:
            raise ValueError(
                "vmap wrapped function must be passed at least one argument containing an array, got empty "
                f"*args={args} and **kwargs={kwargs}"
            )
        arrays = [weak_scalar(x) if is_python_scalar(x) else asarray(x, "an argument of vmap") for x in leaves]
        axes = [*_prefix("vmap in_axes", in_axes, args), *_prefix("vmap in_axes", 0, kwargs)]
        names = [name for name, _ in _named(function, args, kwargs)]
        placed = [_axis(a, x, "argument") for a, x in zip(axes, arrays, strict=True)]
        size = _size(placed, arrays, names, axis_size)
        trees: list[tree_util.PyTreeDef] = []

        def flat(*elements: Any) -> list[Any]:
            inner, named = tree_util.tree_unflatten(tree, elements)
            outs, out_tree = tree_util.tree_flatten(function(*inner, **named))
            trees[:] = [out_tree]
            return [
                weak_scalar(x) if is_python_scalar(x) else asarray(x, "a result of the function of vmap") for x in outs
            ]

        closed = staging.trace_to_jaxpr(flat, _elements([x.aval for x in arrays], placed))
        closed = ClosedJaxpr(staging.dead_code(staging.common_subexpressions(closed.jaxpr)), closed.consts)
        count = len(closed.jaxpr.outputs)
        wanted = _prefix("vmap out_axes", out_axes, tree_util.tree_unflatten(trees[0], [0] * count))

        def program(closed: ClosedJaxpr, *values: Any) -> list[Any]:
            avals = _elements([x.aval for x in values], placed)
            operands = [
                x if a is None else Batched(moved(x, a, x.ndim - 1), aval)
                for x, a, aval in zip(values, placed, avals, strict=True)
            ]
            sizes = [x.shape[a] for x, a in zip(values, placed, strict=True) if a is not None]
            results = batch_jaxpr(closed, sizes[0] if sizes else size, operands)
            return [_result(x, axis, sizes[0] if sizes else size) for x, axis in zip(results, wanted, strict=True)]

        about = "vmap", *placed, "to", *wanted, None if any(a is not None for a in placed) else size
        made = alike.derived(about, closed, arrays, program, lambda avals: _elements(avals, placed))
        return tree_util.tree_unflatten(trees[0], made)

    return batched


def _elements(avals: Sequence[Aval], axes: Sequence[int | None]) -> list[Aval]:
    """The types of elements of a batch."""
    return [a if axis is None else _element(a, axis) for a, axis in zip(avals, axes, strict=True)]


def _element(aval: Aval, axis: int) -> Aval:
    """The type of an array without `axis`."""
    form = element_format(aval.format, axis)
    shape = (*aval.shape[:axis], *aval.shape[axis + 1 :])
    return Aval(shape, aval.dtype, form, 0 if form.is_dense else aval.fill_value)


def _result(x: Any, axis: int | None, size: int) -> Any:
    if axis is None:
        if isinstance(x, Batched):
            raise ValueError("vmap has mapped output but out_axes is None")
        return x
    value = spread(x, size)
    place = _axis(axis, value, "result")
    assert place is not None
    return moved(value, value.ndim - 1, place)


def _prefix(name: str, axes: Any, tree: Any) -> list[int | None]:
    """An axis for every leaf of `tree`, of which `axes` is a prefix."""
    found: list[int | None] = []

    def visit(axis: Any, part: Any) -> None:
        if axis is None or type(axis) is int:
            found.extend([axis] * len(tree_util.tree_leaves(part)))
            return
        heads, shape = tree_util.tree_flatten(axis, is_leaf=lambda x: x is None or (x is not axis))
        for head, rest in zip(heads, shape.flatten_up_to(part), strict=True):
            visit(head, rest)

    try:
        visit(axes, tree)
    except (ValueError, TypeError):
        raise ValueError(
            f"{name} specification must be a tree prefix of the corresponding value, got specification {axes} for value tree "
            f"{tree_util.tree_structure(tree)}."
        ) from None
    return found


def _axis(axis: int | None, x: Any, what: str) -> int | None:
    """`axis` counted from the front; ValueError for an array that has no such axis."""
    if axis is None:
        return None
    if not -x.ndim <= axis < x.ndim:
        least = axis + 1 if axis >= 0 else -axis
        raise ValueError(
            f"vmap was requested to map its {what} along axis {axis}, which implies that its rank should be at least {least}, "
            f"but is only {x.ndim} (its shape is {x.shape})"
        )
    return int(axis % x.ndim)


def _named(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The leaves with the names of their arguments and their paths, such as params['w']."""
    try:
        found = inspect.signature(function).parameters.values()
        known = [p.name for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    except (TypeError, ValueError):
        known = []
    for k, arg in enumerate(args):
        yield from tree_util.leaves_with_paths(arg, known[k] if k < len(known) else f"args[{k}]")
    for name in sorted(kwargs):
        yield from tree_util.leaves_with_paths(kwargs[name], name)


def _size(axes: Sequence[int | None], arrays: Sequence[Any], names: Sequence[str], axis_size: int | None) -> int:
    """The extent of the batch; ValueError where there is none, or several."""
    mapped = [(x.shape[a], a, name, x.aval) for x, a, name in zip(arrays, axes, names, strict=True) if a is not None]
    counts = Counter(n for n, *_ in mapped)
    if axis_size is not None and set(counts) <= {axis_size}:
        return axis_size
    if not counts:
        raise ValueError("vmap must have at least one non-None value in in_axes")
    if axis_size is None and len(counts) == 1:
        size: int = mapped[0][0]
        return size
    lines = ["vmap got inconsistent sizes for array axes to be mapped:"]
    if axis_size is not None:
        lines.append(f"  * axis_size is {axis_size}")
    for number, (n, count) in enumerate(counts.most_common()):
        _, axis, name, aval = next(m for m in mapped if m[0] == n)
        if count == 1:
            lines.append(f"  * one axis had size {n}: axis {axis} of argument {name} of type {aval}")
        else:
            many = "most" if number == 0 and len(counts) > 1 else "some"
            lines.append(
                f"  * {many} axes ({count} of them) had size {n}, e.g. axis {axis} of argument {name} of type {aval}"
            )
    raise ValueError(";\n".join(lines).replace(":;", ":"))
