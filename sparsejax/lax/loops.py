"""`cond`, `switch`, `while_loop`, `fori_loop` and `scan`: the names, arguments and errors of JAX.

The functions are traced once and compiled once, also outside `jit`; what they close over may be arrays or traced values. Where a result
must have the type of another value (a carry, the first branch), it is converted to its format. Python numbers are weakly typed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sparsejax import dtypes, tree_util
from sparsejax.core.array import Array
from sparsejax.core.avals import Aval, scalar_aval
from sparsejax.core.jaxpr import ClosedJaxpr, Jaxpr, Var
from sparsejax.core.primitive import asarray, weak_scalar
from sparsejax.core.symbolic import SymbolicDim
from sparsejax.core.trace import is_python_scalar
from sparsejax.formats import Format, ingest
from sparsejax.formats.parts import stacking
from sparsejax.formats.structural import same_bits
from sparsejax.lax.control import cond_p, plain, scan_p, while_p
from sparsejax.lax.elementwise import convert_element_type, elementwise, strong
from sparsejax.lax.structural import convert_format, refill
from sparsejax.transforms import staging

# -------------------------------------------------------------------------------------------------- traced functions


class Traced:
    """A function of leaves as a jaxpr whose first inputs are what it closes over."""

    def __init__(self, function: Callable[..., Sequence[Any]], avals: Sequence[Aval]) -> None:
        closed = staging.trace_to_jaxpr(function, avals)
        self.jaxpr = closed.jaxpr
        self.consts = list(closed.consts)

    @property
    def closed(self) -> ClosedJaxpr:
        return closed_over(self, self.consts)

    @property
    def out_avals(self) -> list[Aval]:
        return [plain(a.aval) for a in self.jaxpr.outputs]


def closed_over(traced: Traced, consts: Sequence[Any]) -> ClosedJaxpr:
    """The jaxpr with an input for each of `consts`, among which are those that the function closes over; then its own."""
    given = {id(c): v for c, v in zip(traced.consts, traced.jaxpr.consts, strict=True)}
    first = tuple(given.get(id(c)) or Var(c.aval) for c in consts)
    jaxpr = traced.jaxpr
    return staging.interned(Jaxpr((*first, *jaxpr.inputs), (), jaxpr.eqns, jaxpr.outputs))


def together(functions: Sequence[Traced]) -> tuple[list[Any], tuple[ClosedJaxpr, ...]]:
    """What functions close over, and their jaxprs as functions of all of it."""
    consts = list({id(c): c for f in functions for c in f.consts}.values())
    return consts, tuple(closed_over(f, consts) for f in functions)


def _leaf(value: Any, what: str) -> Any:
    return weak_scalar(value) if is_python_scalar(value) else asarray(value, what)


def leaves_of(tree: Any, what: str) -> tuple[list[Any], tree_util.PyTreeDef]:
    """The leaves of a pytree as arrays, and its structure; TypeError, naming `what`, for a leaf that is none."""
    leaves, treedef = tree_util.tree_flatten(tree)
    return [_leaf(x, f"a leaf of {what}") for x in leaves], treedef


def check_callable(function: Any, what: str) -> None:
    """TypeError, naming `what`, for what is no function."""
    if not callable(function):
        raise TypeError(f"{what} must be a function, but is of type {type(function).__name__}")


def _paths(tree: tree_util.PyTreeDef, name: str) -> list[str]:
    whole = tree_util.tree_unflatten(tree, range(tree.num_leaves))
    return [f"{name}{path}" for path, _ in tree_util.leaves_with_paths(whole)]


class Mismatch(Exception):
    """A value that cannot take a type: what differs, and the mend."""


def fit(value: Any, aval: Aval) -> Any:
    """`value` with the type `aval`, but for weak types: converted to its format, over its fill where that is an equal number (-0.0 and 0.0). Mismatch
    where shape, dtype or fill differ."""
    found: Aval = value.aval
    if found.shape != aval.shape:
        raise Mismatch(f"has shape {found.shape} instead of {aval.shape}", "return an array of that shape")
    if found.dtype != aval.dtype:
        if not found.weak_type or dtypes.result_type((aval.dtype, False), (found.dtype, True)) != aval.dtype:
            raise Mismatch(
                f"has dtype {found.dtype} instead of {aval.dtype}", f"convert it with .astype('{aval.dtype}')"
            )
        value = convert_element_type(value, aval.dtype)
    if not aval.format.is_dense:
        fill = aval.dtype.type(0) if found.format.is_dense else value.fill_value
        if fill != aval.fill_value and not same_bits(fill, aval.fill_value):
            raise Mismatch(
                f"has fill {fill} instead of {aval.fill_value}",
                "give both the same fill with sparsejax.lax.refill, or make one dense with .asformat('dense')",
            )
    value = convert_format(value, aval.format)
    if not aval.format.is_dense and not same_bits(value.fill_value, aval.fill_value):
        value = refill(value, aval.fill_value)
    return strong(value) if value.aval.weak_type and not aval.weak_type else value


def promoted(given: Aval, found: Aval) -> Aval:
    """The type of a weakly typed value that must hold values of type `found` too, as in JAX: it takes their dtype."""
    if not given.weak_type or given.shape != found.shape:
        return given
    dtype = dtypes.result_type((given.dtype, given.weak_type), (found.dtype, found.weak_type))
    if dtype == given.dtype and found.weak_type:
        return given
    return Aval(given.shape, dtype, given.format, given.fill_value, found.weak_type)


# ------------------------------------------------------------------------------------------------------ cond, switch


def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """`branches[index](*operands)`, an index out of range taken as the nearest: only that branch runs.

    All branches return pytrees of one structure and equal shapes, dtypes and fills; formats are those of the first branch.

    >>> import sparsejax as sj
    >>> sj.jit(lambda k, x: switch(k, [lambda x: x + 1, lambda x: x * 10], x))(1, 4.0)
    Array(40., dtype=float64)
    """
    branches = list(branches)
    if not branches:
        raise ValueError("Empty branch sequence")
    for k, branch in enumerate(branches):
        check_callable(branch, f"branch {k} of switch")
    k = _leaf(index, "the index of switch")
    if k.shape != ():
        raise TypeError(f"Branch index must be scalar, got an array of shape {k.shape}.")
    if k.dtype.kind not in "iu":
        raise TypeError(f"Index type must be an integer, got {k.dtype}.")
    if len(branches) == 1:
        return branches[0](*operands)
    return _branched("switch", k, branches, operands, [f"branch {n}" for n in range(len(branches))])


def cond(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], *operands: Any) -> Any:
    """`true_fun(*operands)` where the scalar `pred` holds, else `false_fun(*operands)`: only one of them runs.

    Both return pytrees of one structure and equal shapes, dtypes and fills; formats are those of `true_fun`.

    >>> import sparsejax as sj
    >>> sj.jit(lambda x: cond(x > 0, lambda x: x, lambda x: -x, x))(-3.0)
    Array(3., dtype=float64)
    """
    check_callable(true_fun, "true_fun of cond")
    check_callable(false_fun, "false_fun of cond")
    p = _leaf(pred, "the predicate of cond")
    if p.shape != ():
        raise TypeError(f"Pred must be a scalar, got an array of shape {p.shape}.")
    p = p if p.dtype == np.bool_ else elementwise("not_equal", p, 0)
    return _branched("cond", p, [true_fun, false_fun], operands, ["true_fun", "false_fun"], [1, 0])


def _branched(
    name: str,
    index: Any,
    functions: Sequence[Callable[..., Any]],
    operands: Sequence[Any],
    names: Sequence[str],
    order: Sequence[int] | None = None,
) -> Any:
    """`order` are the functions by index; types follow the first of `functions`."""
    leaves, tree = leaves_of(tuple(operands), f"the operands of {name}")
    trees: list[tree_util.PyTreeDef] = []

    def flat(function: Callable[..., Any]) -> Callable[..., list[Any]]:
        def called(*xs: Any) -> list[Any]:
            outs, out_tree = leaves_of(function(*tree_util.tree_unflatten(tree, xs)), f"a result of {name}")
            trees.append(out_tree)
            return outs

        return called

    avals = [x.aval for x in leaves]
    made = [Traced(flat(f), avals) for f in functions]
    for label, other in zip(names[1:], trees[1:], strict=True):
        if other != trees[0]:
            raise TypeError(f"{names[0]} and {label} output must have same type structure, got {trees[0]} and {other}.")
    wanted = list(made[0].out_avals)
    for own in made[1:]:
        wanted = [promoted(a, b) for a, b in zip(wanted, own.out_avals, strict=True)]
    paths = _paths(trees[0], "")
    fitted = [
        _fitted(f, wanted, f"{name}: leaf {{}} of the result of {label}", paths)
        for f, label in zip(made, names, strict=True)
    ]
    fitted = [fitted[k] for k in order] if order else fitted
    consts, closed = together(fitted)
    return tree_util.tree_unflatten(trees[0], cond_p.bind(index, *consts, *leaves, branches=closed))


def _fitted(traced: Traced, wanted: Sequence[Aval], what: str, paths: Sequence[str]) -> Traced:
    """A traced function whose results have the wanted types; TypeError, naming the leaf, where they cannot."""
    if traced.out_avals == list(wanted) and not any(a.aval.is_literal for a in traced.jaxpr.outputs):
        return traced

    def converted(*xs: Any) -> list[Any]:
        outs = staging.bind_jaxpr(traced.jaxpr, traced.consts, xs)
        return [_checked(_leaf(o, what), a, what.format(p or "0")) for o, a, p in zip(outs, wanted, paths, strict=True)]

    return Traced(converted, [v.aval for v in traced.jaxpr.inputs])


def _checked(value: Any, aval: Aval, what: str) -> Any:
    try:
        return fit(value, aval)
    except Mismatch as error:
        problem, mend = error.args
        raise TypeError(f"{what} {problem}; {mend}") from None


# ------------------------------------------------------------------------------------------------------------- carries


def _carried(
    name: str,
    trace: Callable[[list[Aval]], tuple[Traced, tree_util.PyTreeDef]],
    init: list[Any],
    tree: tree_util.PyTreeDef,
) -> tuple[Traced, list[Any]]:
    """A traced body whose first results have the types of the carry, and the carry: weak types give way, as in JAX.

    `trace(types of the carry)` gives the body and the structure of the carry that it returns.
    """
    avals = [x.aval for x in init]
    while True:
        traced, found = trace(avals)
        if found != tree:
            raise TypeError(
                f"{name} body function carry input and carry output must have the same pytree structure, but they differ: the "
                f"input is {tree}, the output {found}; return the carry in the structure that it came in"
            )
        outs = traced.out_avals
        grown = [promoted(a, b) for a, b in zip(avals, outs, strict=False)]
        if grown == avals:
            break
        avals = grown
    wanted = [*avals, *(a.strong() if a.is_literal else a for a in outs[len(avals) :])]
    what = f"{name}: leaf {{}} of the carry that the body returns"
    fitted = _fitted(traced, wanted, what, [*_paths(tree, ""), *[""] * (len(outs) - len(avals))])
    return fitted, [_checked(x, a, name) if x.aval != a else x for x, a in zip(init, avals, strict=True)]


# ---------------------------------------------------------------------------------------------------------- while_loop


def while_loop(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any) -> Any:
    """`while cond_fun(val): val = body_fun(val)`, from `init_val`, a pytree: the last value.

    Every leaf keeps shape, dtype, fill and format (`body_fun`'s result is converted to it); its number of entries may change.
    Forward mode only; see `fori_loop` and `scan`.

    >>> import sparsejax as sj
    >>> while_loop(lambda x: x < 100, lambda x: x * 3, 1)
    Array(243, dtype=int64)
    """
    check_callable(cond_fun, "cond_fun of while_loop")
    check_callable(body_fun, "body_fun of while_loop")
    init, tree = leaves_of(init_val, "init_val of while_loop")

    def body(avals: list[Aval]) -> tuple[Traced, tree_util.PyTreeDef]:
        trees: list[tree_util.PyTreeDef] = []

        def flat(*xs: Any) -> list[Any]:
            outs, out_tree = leaves_of(body_fun(tree_util.tree_unflatten(tree, xs)), "the result of body_fun")
            trees.append(out_tree)
            return outs

        return Traced(flat, avals), trees[0]

    step, init = _carried("while_loop", body, init, tree)

    def going(*xs: Any) -> list[Any]:
        outs, out_tree = leaves_of(cond_fun(tree_util.tree_unflatten(tree, xs)), "the result of cond_fun")
        if out_tree != tree_util.tree_structure(0):
            raise TypeError(f"cond_fun must return a boolean scalar, but got pytree {out_tree}.")
        (out,) = outs
        if out.shape != () or out.dtype != np.bool_:
            raise TypeError(f"cond_fun must return a boolean scalar, but got output type {out.aval}.")
        return outs

    asked = Traced(going, [x.aval for x in init])
    outs = while_p.bind(
        *asked.consts,
        *step.consts,
        *init,
        cond=asked.closed,
        body=step.closed,
        counts=(len(asked.consts), len(step.consts)),
    )
    return tree_util.tree_unflatten(tree, outs)


# ---------------------------------------------------------------------------------------------------------------- scan


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> Any:
    """`(carry, ys)` of the loop `for x in xs: carry, y = f(carry, x)` from `carry = init`, where `ys` stacks every `y`.

    `xs` is a pytree of arrays of one extent along the first axis (None: `length` runs). Slices of a sparse array are sparse, with
    its other levels (`formats/parts/stacking`); sparse ys are stacked below a dense level. Every leaf of the carry keeps shape,
    dtype, fill and format (what `f` returns is converted to it); its number of entries may change. With `reverse` from the
    last to the first. `unroll` is accepted and has no effect.

    >>> import sparsejax as sj, numpy as np
    >>> scan(lambda total, x: (total + x, total * x), 0.0, np.arange(4.0))
    (Array(6., dtype=float64), Array([0., 0., 2., 9.], dtype=float64))
    """
    check_callable(f, "f of scan")
    return _scan("scan", f, init, xs, length, reverse)


def _scan(
    name: str, f: Callable[[Any, Any], Any], init: Any, xs: Any, length: int | None, reverse: bool, hidden: int = 0
) -> tuple[Any, Any]:
    """`scan` as what the user called, by `name`. The last values of the first `hidden` leaves of the carry are not asked for (None, or what
    they are); leaves that nothing is made from are left out of the loop."""
    carry, tree = leaves_of(init, f"init of {name}")
    scanned, xs_tree = leaves_of(xs, "xs of scan")
    count = _length(scanned, length, _paths(xs_tree, "xs"))
    scanned = [convert_format(x, stacking.stacked(stacking.slices(x.format))) for x in scanned]
    slices = [sliced_aval(x.aval) for x in scanned]
    trees: list[tree_util.PyTreeDef] = []

    def body(avals: list[Aval]) -> tuple[Traced, tree_util.PyTreeDef]:
        def flat(*values: Any) -> list[Any]:
            own, rest = values[: len(avals)], values[len(avals) :]
            made = f(tree_util.tree_unflatten(tree, own), tree_util.tree_unflatten(xs_tree, rest))
            if not isinstance(made, tuple) or len(made) != 2:
                raise TypeError(f"scan body output must be a pair, got {made}.")
            outs, out_tree = leaves_of(made[0], "the carry that f returns")
            ys, ys_tree = leaves_of(made[1], "the y that f returns")
            trees[:] = [out_tree, ys_tree]
            return [*outs, *(strong(y) for y in ys)]

        return Traced(flat, [*avals, *slices]), trees[0]

    step, carry = _carried(name, body, carry, tree)
    operands = [*step.consts, *carry, *scanned]
    params = {
        "body": step.closed,
        "length": count,
        "reverse": bool(reverse),
        "consts": len(step.consts),
        "carry": len(carry),
        "adjoint": None,
    }
    made = [True] * len(step.out_avals)
    if hidden and scan_p.prune is not None:
        read, made, params = scan_p.prune([False] * hidden + made[hidden:], **params)
        operands = list(itertools.compress(operands, read))
    results = iter(scan_p.bind(*operands, **params))
    outs = [next(results) if there else None for there in made]
    last = tree_util.tree_unflatten(tree, outs[: len(carry)])
    return last, tree_util.tree_unflatten(trees[1], outs[len(carry) :])


def sliced_aval(whole: Aval) -> Aval:
    """The type of a slice of a stack."""
    form = stacking.slices(whole.format)
    return Aval(whole.shape[1:], whole.dtype, form, 0 if form.is_dense else whole.fill_value, whole.weak_type)


def _length(scanned: Sequence[Any], length: Any, paths: Sequence[str]) -> Any:
    for x, path in zip(scanned, paths, strict=True):
        if not x.ndim:
            raise ValueError(f"scan got value with no leading axis to scan over: {path} has shape ().")
    extents = [x.shape[0] for x in scanned]
    if length is not None:
        try:
            count = length if isinstance(length, SymbolicDim) else int(length.__index__())
        except AttributeError:
            raise TypeError(f"length={length!r} of scan must be an integer") from None
        for n, path in zip(extents, paths, strict=True):
            if n != count:
                raise ValueError(
                    f"scan got `length` argument of {count} which disagrees with the leading axis of {path}, {n}."
                )
        if count < 0:
            raise ValueError(f"length={count} of scan must not be negative")
        return count
    if not extents:
        raise ValueError("scan got no values to scan over and `length` not provided.")
    if len(set(extents)) > 1:
        listed = ", ".join(f"{p}: {n}" for p, n in zip(paths, extents, strict=True))
        raise ValueError(f"scan got values with different leading axis sizes: {listed}.")
    return extents[0]


# ------------------------------------------------------------------------------------------------------------ fori_loop


def fori_loop(
    lower: Any, upper: Any, body_fun: Callable[[Any, Any], Any], init_val: Any, *, unroll: int | bool | None = None
) -> Any:
    """`for i in range(lower, upper): val = body_fun(i, val)`, from `init_val`, a pytree: the last value.

    With bounds that are known while tracing it is a `scan`, which reverse mode differentiates; else a `while_loop`. Whatever the integer types of the
    bounds, `i` has 64 bits. Every leaf keeps shape, dtype, fill and format. Memory does not grow with the rounds, but for what reverse mode keeps.

    >>> import sparsejax as sj
    >>> fori_loop(0, 5, lambda i, total: total + i, 0)
    Array(10, dtype=int64)
    """
    check_callable(body_fun, "body_fun of fori_loop")
    for what, bound in (("lower", lower), ("upper", upper)):
        kind = "i" if isinstance(bound, SymbolicDim) else ""
        if is_python_scalar(bound):
            kind = np.result_type(bound).kind
        elif not kind:
            kind = getattr(getattr(bound, "dtype", None), "kind", "")
        if kind not in ("i", "u") or (not isinstance(bound, SymbolicDim) and np.shape(bound) != ()):
            raise TypeError(f"{what} of fori_loop must be an integer scalar, got {bound!r}")
    known = all(isinstance(b, int | np.integer | np.ndarray | Array) for b in (lower, upper))
    if known and max(abs(int(lower)), abs(int(upper))) < 1 << 63:
        first, rounds = int(lower), max(0, int(upper) - int(lower))
        if rounds <= SCANNED:
            counter = _counter(first, rounds)
            return _scan("fori_loop", lambda val, i: (body_fun(i, val), None), init_val, counter, None, False)[0]
        return _counted(first, rounds, body_fun, init_val)
    if isinstance(lower, int) and isinstance(upper, SymbolicDim):
        return _counted(lower, max(0, upper - lower), body_fun, init_val)

    def body(state: Any) -> Any:
        i, val = state
        return i + 1, body_fun(i, val)

    start, stop = _leaf(lower, "lower of fori_loop"), _leaf(upper, "upper of fori_loop")
    if not start.aval.weak_type:  # whatever the width of the bounds, as where they are known
        both = np.result_type(start.dtype, stop.dtype)
        start = convert_element_type(start, both if both == np.uint64 else np.int64)
    return while_loop(lambda state: state[0] < stop, body, (start, init_val))[1]


def _counted(first: int, rounds: Any, body_fun: Callable[[Any, Any], Any], init_val: Any) -> Any:
    """A `fori_loop` of so many rounds whose counter goes around."""

    def body(state: Any, _: Any) -> Any:
        i, val = state
        return (i + 1, body_fun(i, val)), None

    return _scan("fori_loop", body, (first, init_val), None, rounds, False, hidden=1)[0][1]


SCANNED = 1 << 16
"""Rounds up to which the counter of a `fori_loop` is an array that is scanned, half a megabyte: with more it goes around, which takes one
more kernel in every round."""


def _counter(first: int, rounds: int) -> Array:
    """So many integers from `first` on, weakly typed like Python's."""
    one = scalar_aval(0, is_literal=False)
    numbers = np.arange(first, first + rounds, dtype=one.dtype)
    aval = Aval(numbers.shape, one.dtype, Format.parse("dense", 1), 0, True)
    return Array(ingest.as_storage(numbers, copy=False), aval)
