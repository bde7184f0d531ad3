"""`jvp`, `linearize`, `vjp`, `grad` and Jacobians: the names, arguments and errors of JAX.

Derivatives are taken with respect to dense arrays and to the stored values of sparse arrays: a gradient with respect to a sparse
array has its format, its pattern and its index buffers. Functions are traced, so values that derivatives are taken by cannot
decide Python's control flow.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sparsejax import tree_util
from sparsejax.core.array import Array
from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import ClosedJaxpr
from sparsejax.core.primitive import asarray, weak_scalar
from sparsejax.core.tangents import tangent_aval
from sparsejax.core.trace import is_python_scalar
from sparsejax.formats import ingest
from sparsejax.transforms import ad, alike, staging

float0 = np.dtype([("float0", np.void, 0)])
"""The dtype of tangents of booleans and integers, which have no information, as in JAX."""

# ---------------------------------------------------------------------------------------------------- flat functions


def _leaf(value: Any, what: str) -> Any:
    """An argument as an array of its own memory; Python numbers are weakly typed."""
    return weak_scalar(value) if is_python_scalar(value) else asarray(value, what)


def _leaves(tree: Any, what: str) -> tuple[list[Any], tree_util.PyTreeDef]:
    leaves, treedef = tree_util.tree_flatten(tree)
    return [_leaf(x, what) for x in leaves], treedef


class _Flat:
    """A function of leaves: its jaxpr, the tree of its results, and the tree of its auxiliary data."""

    def __init__(self, call: Callable[..., Any], avals: Sequence[Aval], has_aux: bool) -> None:
        self.aux_tree: tree_util.PyTreeDef | None = None
        trees: list[tree_util.PyTreeDef] = []

        def flat(*leaves: Any) -> list[Any]:
            made = call(*leaves)
            aux: list[Any] = []
            if has_aux:
                made, extra = _pair(made)
                aux, self.aux_tree = tree_util.tree_flatten(extra)
            outs, tree = tree_util.tree_flatten(made)
            trees.append(tree)
            return [_leaf(x, "a result of the differentiated function") for x in (*outs, *aux)]

        closed = staging.trace_to_jaxpr(flat, avals)
        jaxpr = staging.dead_code(staging.common_subexpressions(closed.jaxpr))
        self.closed = ClosedJaxpr(jaxpr, closed.consts)
        self.tree = trees[0]
        self.count = self.tree.num_leaves

    @property
    def out_avals(self) -> tuple[Aval, ...]:
        return self.closed.out_avals[: self.count]

    def results(self, outs: Sequence[Any]) -> Any:
        return tree_util.tree_unflatten(self.tree, outs[: self.count])

    def aux(self, outs: Sequence[Any]) -> Any:
        assert self.aux_tree is not None
        return tree_util.tree_unflatten(self.aux_tree, outs[self.count : self.count + self.aux_tree.num_leaves])


def _pair(made: Any) -> tuple[Any, Any]:
    if not isinstance(made, tuple | list) or len(made) != 2:
        raise TypeError(f"expected function with aux output to return a two-element tuple, but got type {type(made)}")
    return made[0], made[1]


def _name(function: Any) -> str:
    return getattr(function, "__name__", repr(function))


def _callable(function: Any, what: str) -> None:
    if not callable(function):
        raise TypeError(f"{what} expects a function, but got {type(function).__name__}")


# -------------------------------------------------------------------------------------------------------- jvp, linearize


def jvp(function: Callable[..., Any], primals: Any, tangents: Any, has_aux: bool = False) -> Any:
    """`(function(*primals), tangents of the results)`, and the auxiliary data where `has_aux`: forward mode.

    `primals` and `tangents` are tuples of pytrees of one structure. The tangent of a sparse array has its format over fill 0, and
    counts where the array stores an entry. The tangent of an integer is of dtype float0 (`numpy.zeros(shape, float0)`).

    >>> import sparsejax as sj, sparsejax.numpy as snp
    >>> jvp(snp.sin, (0.0,), (2.0,))
    (Array(0., dtype=float64), Array(2., dtype=float64))
    """
    _callable(function, "jvp")
    if not isinstance(primals, tuple | list) or not isinstance(tangents, tuple | list):
        raise TypeError(
            "primal and tangent arguments to jvp must be tuples or lists; "
            f"found {type(primals).__name__} and {type(tangents).__name__}."
        )
    leaves, tree = _leaves(tuple(primals), "a primal of jvp")
    found, tangent_tree = tree_util.tree_flatten(tuple(tangents))
    if tree != tangent_tree:
        raise TypeError(
            "primal and tangent arguments to jvp must have the same tree structure; "
            f"primals have tree structure {tree} whereas tangents have tree structure {tangent_tree}."
        )
    wanted, moving = _tangents(leaves, found)
    flat = _Flat(_on_tree(function, tree), [x.aval for x in leaves], has_aux)

    def program(closed: ClosedJaxpr, *args: Any) -> list[Any]:
        lin = ad.linearized(closed, wanted)
        _check_forward(lin)
        env, outs = ad.known_values(lin, args[: len(leaves)])
        ts = ad.forward(
            lin, env, [ad.typed(t, x) for t, x in zip(args[len(leaves) :], _chosen(args, wanted), strict=True)]
        )
        kept = outs[: flat.count]
        return [
            *outs,
            *(ad.finished_tangent(o, t) for o, t in zip(kept, ts, strict=False) if tangent_aval(o.aval) is not None),
        ]

    made = alike.derived(("jvp", flat.count, *wanted), flat.closed, [*leaves, *moving], program)
    outs, ts = made[: len(flat.closed.out_avals)], iter(made[len(flat.closed.out_avals) :])
    filled = [next(ts) if tangent_aval(a) is not None else np.zeros(a.shape, float0) for a in flat.out_avals]
    pair = flat.results(outs), flat.results(filled)
    return (*pair, flat.aux(outs)) if has_aux else pair


def _chosen(args: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
    return [x for x, want in zip(args, wanted, strict=False) if want]


def _on_tree(function: Callable[..., Any], tree: tree_util.PyTreeDef) -> Callable[..., Any]:
    return lambda *leaves: function(*tree_util.tree_unflatten(tree, leaves))


def _tangents(leaves: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[bool], list[Any]]:
    """Which inputs move, and their tangents; TypeError and ValueError as JAX words them."""
    wanted, moving = [], []
    for x, t in zip(leaves, tangents, strict=True):
        void = isinstance(t, np.ndarray) and t.dtype == float0
        made = None if void else _leaf(t, "a tangent of jvp")
        dtype = float0 if made is None else made.dtype
        expected = float0 if tangent_aval(x.aval) is None else x.dtype
        weak = made is not None and (made.aval.weak_type or x.aval.weak_type)
        if dtype != expected and not (weak and expected != float0 and np.can_cast(dtype, expected, "same_kind")):
            raise TypeError(
                "primals and tangents arguments to jvp do not match; dtypes must be equal, or in case of int/bool primal dtype "
                f"the tangent dtype must be float0. Got primal dtype {x.dtype} and so expected tangent dtype "
                f"{'float0' if expected == float0 else expected}, but got tangent dtype {dtype} instead."
            )
        if np.shape(t) != x.shape:
            raise ValueError(
                f"jvp called with different primal and tangent shapes; Got primal shape {x.shape} and tangent shape as {np.shape(t)}"
            )
        wanted.append(made is not None)
        if made is not None:
            moving.append(made)
    return wanted, moving


def _check_forward(lin: ad.Linearized) -> None:
    for eqn in lin.linear:
        if eqn.primitive.name == "custom_vjp_tangent":
            raise TypeError("can't apply forward-mode differentiation (jvp) to a custom_vjp function.")


def linearize(function: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """`(function(*primals), f_jvp)`: the function `f_jvp(*tangents)` applies the derivative at the primals, whose non-linear part
    is computed once; and the auxiliary data where `has_aux`.

    >>> import sparsejax as sj, sparsejax.numpy as snp
    >>> y, f_jvp = linearize(snp.square, 3.0)
    >>> f_jvp(1.0)
    Array(6., dtype=float64)
    """
    _callable(function, "linearize")
    leaves, tree = _leaves(primals, "a primal of linearize")
    flat = _Flat(_on_tree(function, tree), [x.aval for x in leaves], has_aux)
    wanted = [tangent_aval(x.aval) is not None for x in leaves]
    inexact = [k for k, a in enumerate(flat.out_avals) if tangent_aval(a) is not None]
    moving, consts = _chosen(leaves, wanted), flat.closed.consts

    def prepared(closed: ClosedJaxpr) -> ad.Prepared:
        lin = ad.linearized(closed, [*(False for _ in consts), *wanted])
        _check_forward(lin)

        def rest(env: dict[Any, Any], args: list[Any]) -> list[Any]:
            ts = ad.forward(lin, env, args)
            return [ad.finished_tangent(staging.read(env, lin.outs[k]), ts[k]) for k in inexact]

        return ad.prepared(lin, [_tangent_type(x.aval) for x in moving], rest)

    split = alike.kept(("linearize", flat.count), flat.closed, prepared).run([*consts, *leaves])

    def f_jvp(*tangents: Any) -> Any:
        found, given = tree_util.tree_flatten(tangents)
        if given != tree:
            raise TypeError(
                f"linearized function called on tangent values of structure {given}, which does not match that of the primals, {tree}"
            )
        _, values = _tangents(leaves, found)
        ts = iter(split([ad.typed(t, x) for t, x in zip(values, moving, strict=True)]))
        filled = [next(ts) if k in inexact else np.zeros(a.shape, float0) for k, a in enumerate(flat.out_avals)]
        return flat.results(filled)

    out = flat.results(split.outs)
    return (out, f_jvp, flat.aux(split.outs)) if has_aux else (out, f_jvp)


def _tangent_type(aval: Aval) -> Aval:
    made = tangent_aval(aval)
    assert made is not None
    return made


# ------------------------------------------------------------------------------------------------------------------- vjp


def vjp(function: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """`(function(*primals), f_vjp)`: the function `f_vjp(ct)` takes a cotangent of the results to a tuple of cotangents of the
    primals: reverse mode; and the auxiliary data where `has_aux`.

    The cotangent of a sparse primal has its format, pattern and index buffers. That of an integer has dtype float0.

    >>> import sparsejax as sj, numpy as np
    >>> A = sj.array(np.eye(2), format="csr")
    >>> y, f_vjp = vjp(lambda A, x: A @ x, A, np.array([3.0, 4.0]))
    >>> f_vjp(np.ones(2))[0].todense()
    array([[3., 0.],
           [0., 4.]])
    """
    _callable(function, "vjp")
    leaves, tree = _leaves(primals, "a primal of vjp")
    flat = _Flat(_on_tree(function, tree), [x.aval for x in leaves], has_aux)
    wanted = [tangent_aval(x.aval) is not None for x in leaves]
    inexact = [k for k, a in enumerate(flat.out_avals) if tangent_aval(a) is not None]
    consts = flat.closed.consts

    def prepared(closed: ClosedJaxpr) -> ad.Prepared:
        lin = ad.linearized(closed, [*(False for _ in consts), *wanted])

        def rest(env: dict[Any, Any], args: list[Any]) -> list[Any]:
            cts: list[Any] = [None] * len(lin.outs)
            for k, ct in zip(inexact, args, strict=True):
                cts[k] = ct
            return ad.backward(lin, env, cts)

        return ad.prepared(lin, [_tangent_type(flat.out_avals[k]).strong() for k in inexact], rest)

    split = alike.kept(("vjp", flat.count), flat.closed, prepared).run([*consts, *leaves])

    def f_vjp(ct: Any) -> Any:
        found, given = tree_util.tree_flatten(ct)
        if given != flat.tree:
            raise ValueError(
                f"unexpected tree structure of argument to vjp function: got {given}, but expected to match {flat.tree}"
            )
        cts = [_cotangent(x, out, _name(function)) for x, out in zip(found, split.outs[: flat.count], strict=True)]
        made = iter(split([cts[k] for k in inexact]))
        filled = [next(made) if want else np.zeros(x.shape, float0) for x, want in zip(leaves, wanted, strict=True)]
        return tree_util.tree_unflatten(tree, filled)

    out = flat.results(split.outs)
    return (out, f_vjp, flat.aux(split.outs)) if has_aux else (out, f_vjp)


def _cotangent(value: Any, out: Any, name: str) -> Any:
    """A cotangent of a result; ValueError where it does not fit."""
    aval: Aval = out.aval
    expected = tangent_aval(aval)
    if expected is None:
        return None
    made = _leaf(value, "the argument of a vjp function")
    cast = made.dtype == aval.dtype or (made.aval.weak_type and np.can_cast(made.dtype, aval.dtype, "same_kind"))
    if made.shape != aval.shape or not cast:
        raise ValueError(
            f"unexpected type (e.g. shape/dtype) for argument to vjp function: got {made.aval}, but expected {expected} "
            f"because the corresponding output of the function {name} had type {aval}"
        )
    return ad.typed(made, out)


# ------------------------------------------------------------------------------------------------------------------ grad


def grad(
    function: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[..., Any]:
    """A function that returns the gradient of `function`, whose result must be a scalar; see `value_and_grad`.

    >>> import sparsejax as sj, numpy as np
    >>> A = sj.array(np.eye(3), format="csr")
    >>> grad(lambda A: (A * A).sum())(A)
    Array({(0, 0): 2., (1, 1): 2., (2, 2): 2.},
          shape=(3, 3), dtype=float64, format=csr, nnz=3, density=0.333, bytes=68)
    """
    both = value_and_grad(function, argnums, has_aux, holomorphic, allow_int)

    @functools.wraps(function)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, made = both(*args, **kwargs)
        return (made, value[1]) if has_aux else made

    return gradient


def value_and_grad(
    function: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[..., tuple[Any, Any]]:
    """A function that returns the value of `function` and its gradient with respect to the arguments `argnums` (a tuple of
    gradients where that is a sequence). With `has_aux`, `function` returns `(value, aux)`, which takes the value's place.

    The gradient of a sparse array has its format, its pattern and its index buffers. Complex arguments as in JAX: with `holomorphic`
    the complex derivative; else, of a real result, the conjugate of the direction of steepest ascent.

    Raises TypeError for results that are not real scalars and for arguments that are not inexact.
    """
    _callable(function, "grad")

    @functools.wraps(function)
    def both(*args: Any, **kwargs: Any) -> Any:
        call, dynamic = partial_at(function, argnums, args, kwargs)
        leaves, tree = _leaves(dynamic, "an argument of grad")
        for x in leaves:
            check_reverse_input(x.dtype, holomorphic, allow_int, "grad")
        wanted = [tangent_aval(x.aval) is not None for x in leaves]
        flat = _Flat(_on_tree(call, tree), [x.aval for x in leaves], has_aux)
        (aval,) = _scalar(flat, holomorphic)

        def program(closed: ClosedJaxpr, *xs: Any) -> list[Any]:
            lin = ad.linearized(closed, wanted)
            env, outs = ad.known_values(lin, xs)
            one = Array(ingest.as_storage(np.ones((), aval.dtype)))
            cts = [one] + [None] * (len(lin.outs) - 1)
            return [*outs, *ad.backward(lin, env, cts)]

        made = alike.derived(("grad", *wanted), flat.closed, leaves, program)
        count = len(flat.closed.out_avals)
        outs, gradients = made[:count], iter(made[count:])
        filled = [
            next(gradients) if want else np.zeros(x.shape, float0) for x, want in zip(leaves, wanted, strict=True)
        ]
        result = tree_util.tree_unflatten(tree, filled)
        value = flat.results(outs)
        return ((value, flat.aux(outs)) if has_aux else value), (result[0] if np.ndim(argnums) == 0 else result)

    return both


def partial_at(
    function: Callable[..., Any], argnums: int | Sequence[int], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """`function` of the arguments `argnums` alone, and these arguments. TypeError where there are fewer arguments."""
    nums = (int(argnums),) if np.ndim(argnums) == 0 else tuple(int(n) for n in argnums)  # type: ignore[arg-type, union-attr]
    count = len(args)
    wide = max((n + 1 if n >= 0 else -n) for n in nums) if nums else 0
    if wide > count:
        raise TypeError(
            f"differentiating with respect to argnums={nums if len(nums) > 1 else nums[0]} requires at least {wide} positional "
            f"arguments to be passed by the caller, but got only {count} positional arguments."
        )
    places = [n % count for n in nums]

    def call(*chosen: Any) -> Any:
        full = list(args)
        for place, value in zip(places, chosen, strict=True):
            full[place] = value
        return function(*full, **kwargs)

    return call, tuple(args[n] for n in places)


def _scalar(flat: _Flat, holomorphic: bool) -> tuple[Aval]:
    if flat.count != 1 or not flat.tree == tree_util.tree_structure(0):
        raise TypeError(f"Gradient only defined for scalar-output functions. Output was {flat.tree}.")
    (aval,) = flat.out_avals
    if aval.shape != ():
        raise TypeError(f"Gradient only defined for scalar-output functions. Output had shape: {aval.shape}.")
    check_reverse_output(aval.dtype, holomorphic, "grad")
    return (aval,)


def check_reverse_input(dtype: np.dtype[Any], holomorphic: bool, allow_int: bool, name: str) -> None:
    if holomorphic and dtype.kind != "c":
        raise TypeError(f"{name} with holomorphic=True requires inputs with complex dtype, but got {dtype.name}.")
    if not holomorphic and not allow_int and dtype.kind not in "fc":
        raise TypeError(
            f"{name} requires real- or complex-valued inputs (input dtype that is a sub-dtype of np.inexact), but got {dtype.name}. "
            "If you want to use Boolean- or integer-valued inputs, use vjp or set allow_int to True."
        )


def check_reverse_output(dtype: np.dtype[Any], holomorphic: bool, name: str) -> None:
    if holomorphic:
        if dtype.kind != "c":
            raise TypeError(f"{name} with holomorphic=True requires outputs with complex dtype, but got {dtype.name}.")
    elif dtype.kind == "c":
        raise TypeError(
            f"{name} requires real-valued outputs (output dtype that is a sub-dtype of np.floating), but got {dtype.name}. For "
            "holomorphic differentiation, pass holomorphic=True. For differentiation of non-holomorphic functions involving complex "
            "outputs, use vjp directly."
        )
    elif dtype.kind != "f":
        raise TypeError(
            f"{name} requires real-valued outputs (output dtype that is a sub-dtype of np.floating), but got {dtype.name}. For "
            "differentiation of functions with integer outputs, use vjp directly."
        )
