"""`sparse_jacobian` and `sparse_hessian`: the pattern of the derivative, a colouring, and one derivative per colour.

    pattern P    from the jaxpr (`patterns`)                         out[i,j] is not zero only where P stores an entry
    colours K    K[j,c] = 1 for the colour c of column j (`coloring`)
    C = J K      one batch of tangents: vmap of jvp                  C[i,c] = sum_j J[i,j] K[j,c]
    J[i,j]       = P[i,j] * sum_c C[i,c] K[j,c]                      a contraction at the pattern

Where rows need fewer colours than columns, the same with cotangents. Of a Hessian, which is symmetric, J[i,j] may be read as J[j,i],
from C[j,c] K[i,c], so that it needs fewer colours. Source: Curtis, Powell and Reid 1974.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsejax import tree_util
from sparsejax.core.array import Array
from sparsejax.core.jaxpr import ClosedJaxpr
from sparsejax.core.primitive import asarray
from sparsejax.core.trace import Tracer
from sparsejax.errors import ConcretizationTypeError
from sparsejax.formats import Format, convert
from sparsejax.lax.contract import contract
from sparsejax.lax.elementwise import elementwise
from sparsejax.lax.loops import Traced
from sparsejax.lax.structural import convert_format, reshape
from sparsejax.transforms import pattern_loops, pattern_rules, staging  # noqa: F401  (rules)
from sparsejax.transforms.coloring import Colors, alone, color_columns, color_symmetric
from sparsejax.transforms.gradients import grad, jvp, partial_at, vjp
from sparsejax.transforms.patterns import Place, derivative_pattern
from sparsejax.transforms.vmap import vmap

MODES = ("auto", "forward", "reverse")


def sparse_jacobian(
    function: Callable[..., Any], argnums: int | Sequence[int] = 0, mode: str = "auto"
) -> Callable[..., Any]:
    """A function that returns the Jacobian of `function` as a sparse array: csr, or coo where it has more or fewer than two dimensions.

    Values are those of `jacfwd`: shape `result.shape + argument.shape`, a tuple of them where `argnums` is one. `function` takes the
    differentiated arguments as dense real arrays, and returns one array. Every entry that may be non-zero is stored.

    The pattern follows from the operations and from the patterns of sparse operands; columns that share no row are computed
    together, as one batch of tangents, so that a tridiagonal Jacobian takes three. `mode` "auto" takes cotangents where these are
    fewer; "forward" or "reverse" forbid it. Patterns and colours are kept for calls with the same sparse arguments; inside `jit` they
    are computed while tracing, and sparse operands must be constants there.

    >>> import numpy as np
    >>> J = sparse_jacobian(lambda x: x[1:] * x[:-1])(np.array([1.0, 2.0, 3.0]))
    >>> J.format, J.todense()
    (Format('csr'), array([[2., 1., 0.],
           [0., 3., 2.]]))

    Raises TypeError for arguments and results of other types, ValueError for other modes.
    """
    if mode not in MODES:
        raise ValueError(f"sparse_jacobian: mode {mode!r} must be one of {', '.join(MODES)}")
    return _derivative(function, argnums, mode)


def _derivative(function: Callable[..., Any], argnums: int | Sequence[int], mode: str) -> Callable[..., Any]:
    """`sparse_jacobian`, also in mode "symmetric"."""

    @functools.wraps(function)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        if np.ndim(argnums):
            numbers: Sequence[int] = argnums  # type: ignore[assignment]
            return tuple(_derivative(function, int(n), mode)(*args, **kwargs) for n in numbers)
        leaves, tree = tree_util.tree_flatten((args, kwargs))
        leaves = [asarray(x, "an argument of sparse_jacobian") for x in leaves]
        args, kwargs = tree_util.tree_unflatten(tree, leaves)
        call, (x,) = partial_at(function, argnums, args, kwargs)
        if not isinstance(x, Array | Tracer) or not x.format.is_dense or x.dtype.kind != "f":
            found = getattr(x, "aval", type(x).__name__)
            raise TypeError(
                f"sparse_jacobian takes derivatives by one dense real array, but argument {argnums} is {found}; pass dense arrays, "
                "and sparse ones as other arguments"
            )
        traced = Traced(lambda x: [_result(call(x))], [x.aval])
        given = {id(leaf) for leaf in leaves}
        key = _Key(traced.closed, tuple(_fixed(c, id(c) in given) for c in traced.consts), mode)
        plan = _planned(key)

        def program(x: Any) -> list[Any]:
            def f(x: Any) -> Any:
                return staging.bind_jaxpr(traced.jaxpr, traced.consts, [x])[0]

            return [plan.evaluate(f, x)]

        return staging.at_once(program, [x])[0]

    return jacobian


def sparse_hessian(function: Callable[..., Any], argnums: int = 0) -> Callable[..., Array]:
    """A function that returns the matrix of second derivatives of a scalar `function` as a sparse array: `sparse_jacobian(grad(function))`,
    forward over reverse, with a star colouring where that has fewer colours.

    >>> import numpy as np
    >>> H = sparse_hessian(lambda x: (x[1:] * x[:-1] ** 2).sum())(np.array([1.0, 2.0, 3.0]))
    >>> H.todense(), H.nnz
    (array([[4., 2., 0.],
           [2., 6., 4.],
           [0., 4., 0.]]), 6)
    """
    return _derivative(grad(function, argnums), argnums, "symmetric")


def _result(made: Any) -> Any:
    if not isinstance(made, Array | Tracer):
        raise TypeError(f"sparse_jacobian expects a function that returns one array, but it returned {made!r}")
    return made


# --------------------------------------------------------------------------------------------------------------- plans


def _fixed(value: Any, argument: bool) -> Array | None:
    """A value that the pattern may be computed from; None for dense real numbers that the next call may change."""
    if isinstance(value, Tracer):
        if not value.format.is_dense:
            raise ConcretizationTypeError(
                f"sparse_jacobian needs the pattern of an operand of type {value.aval}, which is traced at {value.source}; let the "
                "jitted function close over it, or call it outside jit"
            )
        return None
    return None if argument and value.format.is_dense and value.dtype.kind in "fc" else value


class _Key:
    """A program and the values that its pattern is computed from: arrays are immutable, so the same ones have the same pattern."""

    def __init__(self, closed: ClosedJaxpr, values: tuple[Array | None, ...], mode: str) -> None:
        self.closed, self.values, self.mode = closed, values, mode
        self._key = (closed, mode, *(id(v) for v in values))

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self._key == other._key


@dataclass(frozen=True, eq=False)
class Plan:
    """The pattern of a Jacobian, flattened to a matrix, and colours of its columns, or of its rows where `reverse`."""

    out: tuple[int, ...]
    argument: tuple[int, ...]
    pattern: Array
    colors: Colors
    reverse: bool
    mirrored: Array | None = None
    """The entries, besides those of `pattern`, that are read from their other place in a symmetric matrix."""

    @property
    def count(self) -> int:
        return int(self.colors.max(initial=0)) + 1

    def evaluate(self, function: Callable[[Any], Any], x: Any) -> Any:
        seeds = np.zeros((len(self.colors), self.count), x.dtype)
        seeds[np.arange(len(self.colors)), self.colors] = 1
        if self.reverse:
            _, pull = vjp(function, x)
            made = vmap(lambda ct: pull(ct)[0], -1, -1)(seeds.reshape(*self.out, self.count))
        else:
            made = vmap(lambda t: jvp(function, (x,), (t,))[1], -1, -1)(seeds.reshape(*self.argument, self.count))
        size = self.pattern.shape[1 if self.reverse else 0]
        compressed = reshape(made, (size, self.count), None if made.format.is_dense else self.pattern.format)
        picked = Array(_one_hot(self.colors, self.count, x.dtype))
        moved, fixed = ((1, 2), (0, 2)) if self.reverse else ((0, 2), (1, 2))
        flat = contract([self.pattern, compressed, picked], [(0, 1), moved, fixed], (0, 1), self.pattern.format)
        if self.mirrored is not None:
            other = contract([self.mirrored, compressed, picked], [(0, 1), fixed, moved], (0, 1), self.pattern.format)
            flat = convert_format(elementwise("add", flat, other), self.pattern.format)
        shape = (*self.out, *self.argument)
        if len(shape) == 2:
            return convert_format(flat, "csr") if flat.shape == shape else reshape(flat, shape, "csr")
        return reshape(flat, shape, "coo" if shape else "dense")


def _one_hot(colors: Colors, count: int, dtype: Any) -> Any:
    coords = np.stack([np.arange(len(colors)), colors])
    return convert.from_coords(coords, np.ones(len(colors), dtype), (len(colors), count), Format.parse("csr", 2), 0)


@functools.lru_cache(maxsize=32)
def _planned(key: _Key) -> Plan:
    """Detection and colouring, kept for the next calls."""
    (out,) = key.closed.out_avals
    if out.dtype.kind not in "fc":
        raise TypeError(f"sparse_jacobian: the function must return real or complex numbers, but returns {out}")
    backward = out.format.is_dense and out.dtype.kind == "f"
    if key.mode == "reverse" and not backward:
        raise TypeError(f"sparse_jacobian: mode 'reverse' needs a dense real result, but the function returns {out}")
    argument = key.closed.in_avals[-1]
    place, rows = derivative_pattern(key.closed, key.values)
    pattern = _matrix(place, rows, int(np.prod(out.shape)), out.dtype, out.format.is_dense)
    columns = color_columns(rows)
    if key.mode == "symmetric" and out.format.is_dense and _is_symmetric(rows):
        star = color_symmetric(rows)
        if star is not None and star.max(initial=0) < columns.max(initial=0):
            own = alone(rows, star)
            first, second = (_matrix(place, _part(rows, keep), rows.shape[0], out.dtype, True) for keep in (own, ~own))
            return Plan(out.shape, argument.shape, first, star, False, second)
    fewest = int(np.bincount(rows.indices, minlength=1).max(initial=0))
    if key.mode == "reverse" or (key.mode == "auto" and backward and columns.max(initial=0) + 1 > fewest):
        colors = color_columns(rows.T)
        if key.mode == "reverse" or colors.max(initial=0) < columns.max(initial=0):
            return Plan(out.shape, argument.shape, pattern, colors, True)
    return Plan(out.shape, argument.shape, pattern, columns, False)


def _is_symmetric(rows: Any) -> bool:
    return bool(rows.shape[0] == rows.shape[1] and (rows != rows.T).nnz == 0)


def _part(rows: Any, keep: Any) -> Any:
    """Some of the entries of a matrix in csr."""
    import scipy.sparse as sp  # here: the import of this package does not wait for it

    entries = rows.tocoo()
    return sp.coo_array((entries.data[keep], (entries.row[keep], entries.col[keep])), shape=rows.shape)


def _matrix(place: Place, rows: Any, count: int, dtype: Any, dense: bool) -> Array:
    """One for every entry of the Jacobian; compressed rows where the result is sparse."""
    entries = rows.tocoo()
    coords = np.stack([place.numbers[entries.row], entries.col]).astype(np.int64)
    form = Format.parse("csr" if dense else "dcsr", 2)
    return Array(convert.from_coords(coords, np.ones(rows.nnz, dtype), (count, rows.shape[1]), form, 0))
