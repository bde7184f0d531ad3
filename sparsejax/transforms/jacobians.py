"""`jacfwd`, `jacrev` and `hessian`: the linearised function, or its transpose, of a batch of all unit vectors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sparsejax import tree_util
from sparsejax.core.primitive import asarray
from sparsejax.formats import Compressed, Dense, Format
from sparsejax.lax import extents as sizes
from sparsejax.lax.contract import contract
from sparsejax.lax.linear import share
from sparsejax.lax.structural import convert_format, pattern, reshape, transpose
from sparsejax.transforms.gradients import check_reverse_input, check_reverse_output, linearize, partial_at, vjp
from sparsejax.transforms.vmap import vmap


def jacfwd(
    function: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable[..., Any]:
    """A function that returns the Jacobian of `function` in forward mode: one column per element of the arguments `argnums`.

    For every leaf of the result a tree like the arguments, of arrays of shape `result.shape + argument.shape`. With respect to a
    sparse array, the last dimensions have its pattern. Time: the derivative, times the elements (whether stored or not).

    >>> import numpy as np, sparsejax.numpy as snp
    >>> jacfwd(snp.square)(np.array([1.0, 2.0]))
    Array([[2., 0.],
           [0., 4.]], dtype=float64)
    """

    @functools.wraps(function)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        call, chosen = partial_at(function, argnums, args, kwargs)
        leaves, tree = _arrays(chosen)
        for x in leaves:
            _check_forward_input(x.dtype, holomorphic)
        made = linearize(call, *tree_util.tree_unflatten(tree, leaves), has_aux=has_aux)
        outs, out_tree = tree_util.tree_flatten(made[0])
        _check_outputs(outs, holomorphic, check_forward=True)

        def columns(k: int) -> list[Any]:
            def column(unit: Any) -> list[Any]:
                moving = [unit if n == k else _zeros(y) for n, y in enumerate(leaves)]
                return tree_util.tree_leaves(made[1](*tree_util.tree_unflatten(tree, moving)))

            return _for_all(column, leaves[k], len(outs))

        found = [columns(k) for k in range(len(leaves))]
        blocks = [
            tree_util.tree_unflatten(tree, [_block(x, out, c[n], False) for c, x in zip(found, leaves, strict=True)])
            for n, out in enumerate(outs)
        ]
        return _result(blocks, out_tree, argnums, made, has_aux)

    return jacobian


def jacrev(
    function: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[..., Any]:
    """A function that returns the Jacobian of `function` in reverse mode: one row per element of the result; see `jacfwd`.

    >>> import numpy as np, sparsejax.numpy as snp
    >>> jacrev(snp.sum)(np.array([1.0, 2.0]))
    Array([1., 1.], dtype=float64)
    """

    @functools.wraps(function)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        call, chosen = partial_at(function, argnums, args, kwargs)
        leaves, tree = _arrays(chosen)
        for x in leaves:
            check_reverse_input(x.dtype, holomorphic, allow_int, "jacrev")
        made = vjp(call, *tree_util.tree_unflatten(tree, leaves), has_aux=has_aux)
        outs, out_tree = tree_util.tree_flatten(made[0])
        _check_outputs(outs, holomorphic, check_forward=False)
        blocks = []
        for n, out in enumerate(outs):

            def row(unit: Any, n: int = n) -> list[Any]:
                cts = [unit if k == n else _zeros(y) for k, y in enumerate(outs)]
                return tree_util.tree_leaves(made[1](tree_util.tree_unflatten(out_tree, cts)))

            rows = _for_all(row, out, len(leaves))
            found = [_block(x, out, r, True) for x, r in zip(leaves, rows, strict=True)]
            blocks.append(tree_util.tree_unflatten(tree, found))
        return _result(blocks, out_tree, argnums, made, has_aux)

    return jacobian


def hessian(
    function: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable[..., Any]:
    """A function that returns the matrix of second derivatives: `jacfwd(jacrev(function))`.

    >>> import numpy as np
    >>> hessian(lambda x: (x * x * x).sum())(np.array([1.0, 2.0]))
    Array([[ 6.,  0.],
           [ 0., 12.]], dtype=float64)
    """
    return jacfwd(jacrev(function, argnums, has_aux, holomorphic), argnums, has_aux, holomorphic)


def _arrays(chosen: tuple[Any, ...]) -> tuple[list[Any], tree_util.PyTreeDef]:
    leaves, tree = tree_util.tree_flatten(chosen)
    return [asarray(x, "an argument of a Jacobian") for x in leaves], tree


def _for_all(derivative: Callable[[Any], list[Any]], x: Any, count: int) -> list[Any]:
    """`derivative` of all unit vectors of the shape of `x` as one batch: `count` arrays with the batch in front (None without any).
    At the pattern of `x`, the units of entries that are not stored are zero."""
    if not x.size:
        return [None] * count
    if sizes.is_known(x.shape):
        units = asarray(np.eye(x.size, dtype=x.dtype).reshape(x.size, *x.shape))
    else:
        units = convert_format(sizes.unit((x.size, x.size), 0, x.dtype, Format.parse("csr", 2)), "dense").reshape(
            (x.size, *x.shape)
        )
    return list(vmap(derivative)(units))


def _zeros(x: Any) -> Any:
    return asarray(np.zeros(x.shape, x.dtype)) if x.dtype.kind in "fc" else np.zeros(x.shape, [("float0", np.void, 0)])


def _block(x: Any, out: Any, parts: Any, rows: bool) -> Any:
    """Derivatives of `out` by `x`, from its rows (each like `x`) or its columns (each like `out`)."""
    shape = (*out.shape, *x.shape)
    if parts is None:
        return asarray(np.zeros(shape, x.dtype if rows else out.dtype))
    dense = convert_format(parts, "dense")
    if not rows:
        dense = transpose(dense, [*range(1, dense.ndim), 0])
    made = convert_format(reshape(dense, shape), "dense")
    return made if x.format.is_dense else _at_pattern(made, out, x)


def _at_pattern(jacobian: Any, out: Any, x: Any) -> Any:
    """A Jacobian at the pattern of a sparse `x`, for every entry of `out` (that it stores). Runs of equal values, and duplicates, are
    single entries in front."""
    if not out.ndim:
        return share(jacobian, x)
    labels = tuple(range(jacobian.ndim))
    outer = tuple(range(out.ndim))
    left = Format([Dense()] * out.ndim) if out.format.is_dense else out.format
    right = x.format
    order = (*left.order, *(out.ndim + d for d in right.order))
    front = (level if level.unique and not level.shared else Compressed() for level in left.levels)
    form = Format((*front, *right.levels), order, (*left.blocks, *right.blocks))
    rows = [] if out.format.is_dense else [pattern(out, jacobian.dtype)]
    return contract([jacobian, *rows], [labels, *(outer for _ in rows)], labels, form, mask=x)


def _check_forward_input(dtype: np.dtype[Any], holomorphic: bool) -> None:
    if holomorphic and dtype.kind != "c":
        raise TypeError(f"jacfwd with holomorphic=True requires inputs with complex dtype, but got {dtype.name}.")
    if not holomorphic and dtype.kind != "f":
        raise TypeError(
            f"jacfwd requires real-valued inputs (input dtype that is a sub-dtype of np.floating), but got {dtype.name}. For "
            "holomorphic differentiation, pass holomorphic=True. For differentiation of non-holomorphic functions involving "
            "complex inputs or integer inputs, use jvp directly."
        )


def _check_outputs(outs: list[Any], holomorphic: bool, check_forward: bool) -> None:
    for out in outs:
        if not check_forward:
            check_reverse_output(out.dtype, holomorphic, "jacrev")
        elif holomorphic and out.dtype.kind != "c":
            raise TypeError(
                f"jacfwd with holomorphic=True requires outputs with complex dtype, but got {out.dtype.name}."
            )


def _result(blocks: list[Any], out_tree: Any, argnums: Any, made: tuple[Any, ...], has_aux: bool) -> Any:
    single = np.ndim(argnums) == 0
    found = tree_util.tree_unflatten(out_tree, [b[0] if single else b for b in blocks])
    return (found, made[2]) if has_aux else found
