"""`custom_jvp`, `custom_vjp` and `stop_gradient`: functions with derivatives of their own.

    b = custom_jvp[f] a             stands for the jaxpr of f; its tangent is what the user's rule makes of (a, t)
    b = custom_vjp[f] a             stands for the jaxpr of f; when differentiated, it is replaced by the user's fwd, and
    t = custom_vjp_tangent[f] r s   is its tangent from residuals r and tangents s: it can be transposed (by the user's bwd) only

Outside traced functions the function itself runs.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from sparsejax import tree_util
from sparsejax.core.avals import Aval
from sparsejax.core.batching import Batched
from sparsejax.core.jaxpr import ClosedJaxpr, Jaxpr, evaluate
from sparsejax.core.primitive import Primitive, asarray, weak_scalar
from sparsejax.core.tangents import Linear, tangent_aval
from sparsejax.core.trace import Tracer, current, is_python_scalar
from sparsejax.lax.linear import empty, keep, refilled, zeros, zeros_like
from sparsejax.lax.reduce import reduce
from sparsejax.lax.rules.batching import batch_jaxpr, spread
from sparsejax.transforms import staging

# -------------------------------------------------------------------------------------------------------- primitives


class Call:
    """A traced function with its own derivative: `jvp(primals, tangents)` or `fwd(primals)` and `bwd(residuals, cts)` on leaves."""

    def __init__(self, name: str, closed: ClosedJaxpr, constants: int, rules: dict[str, Callable[..., Any]]) -> None:
        self.name = name
        self.jaxpr = Jaxpr((*closed.jaxpr.consts, *closed.jaxpr.inputs), (), closed.jaxpr.eqns, closed.jaxpr.outputs)
        self.constants = constants
        self.rules = rules

    def __repr__(self) -> str:
        return self.name


def _typing(*avals: Aval, call: Call) -> tuple[Aval, ...]:
    return tuple(a.aval for a in call.jaxpr.outputs)


def _reference(*args: Any, call: Call) -> list[Any]:
    return list(evaluate(ClosedJaxpr(call.jaxpr, ()), *args))


def _own(primals: Sequence[Any], tangents: Sequence[Any], call: Call) -> tuple[list[Any], list[Any]]:
    if any(t is not None for t in tangents[: call.constants]):
        raise TypeError(
            f"the function {call.name} with a derivative of its own reads a value that derivatives are taken by from around it; "
            "pass it as an argument"
        )
    return list(primals[call.constants :]), list(tangents[call.constants :])


def _custom_jvp(primals: list[Any], tangents: list[Any], outs: list[Any], call: Call) -> list[Any]:
    xs, ts = _own(primals, tangents, call)
    found: list[Any] = call.rules["jvp"](xs, ts)
    return found


def _custom_vjp(primals: list[Any], tangents: list[Any], outs: list[Any], call: Call) -> list[Any]:
    xs, ts = _own(primals, tangents, call)
    residuals = call.rules["fwd"](xs)
    moving = [t for t in ts if t is not None]
    wanted = tuple(t is not None for t in ts)
    return list(custom_vjp_tangent_p.bind(*xs, *residuals, *moving, call=call, count=len(residuals), wanted=wanted))


def _tangent_typing(*avals: Aval, call: Call, count: int, wanted: tuple[bool, ...]) -> tuple[Aval, ...]:
    made = [(tangent_aval(a.aval), a.aval) for a in call.jaxpr.outputs]
    return tuple(second if first is None else first.strong() for first, second in made)


def _tangent_transpose(cts: list[Any], *operands: Any, call: Call, count: int, wanted: tuple[bool, ...]) -> list[Any]:
    xs, rest = operands[: len(wanted)], operands[len(wanted) :]
    residuals, moving = rest[:count], iter(rest[count:])
    full = []
    for ct, atom in zip(cts, call.jaxpr.outputs, strict=True):
        full.append(empty(tangent_aval(atom.aval) or atom.aval) if ct is None else ct)
    found = call.rules["bwd"](xs, residuals, full)
    made = [
        None if ct is None else keep(typed(ct, to), to)
        for ct, to in ((ct, next(moving)) for ct, want in zip(found, wanted, strict=True) if want)
    ]
    return [None] * (len(wanted) + count) + made


def typed(ct: Any, to: Linear) -> Any:
    return refilled(ct) if ct.format == to.format else ct


def _unreachable(*args: Any, **params: Any) -> Any:
    raise TypeError("can't apply forward-mode differentiation (jvp) to a custom_vjp function.")


# ------------------------------------------------------------------------------------------------------------ batches
#
# A batch of calls is one call of the batched function, whose rules are the batched rules.


def _operands(values: Sequence[Any], avals: Sequence[Aval | None]) -> list[Any]:
    """Values of a batched rule as operands: those with one dimension more than an element are `Batched`."""
    return [
        x if a is None or x is None or x.ndim == a.ndim else Batched(x, a) for x, a in zip(values, avals, strict=True)
    ]


def _mapped(function: Callable[..., list[Any]], size: int, operands: Sequence[Any]) -> list[Any]:
    """`function` of elements, which may return None, on operands: results are `Batched`, shared or None."""
    present = [k for k, x in enumerate(operands) if x is not None]
    kept: list[bool] = []

    def flat(*values: Any) -> list[Any]:
        full = [None] * len(operands)
        for k, value in zip(present, values, strict=True):
            full[k] = value
        made = function(*full)
        kept[:] = [x is not None for x in made]
        return [x for x in made if x is not None]

    closed = staging.trace_to_jaxpr(flat, [operands[k].aval for k in present])
    made = iter(batch_jaxpr(closed, size, [operands[k] for k in present]))
    return [next(made) if keep else None for keep in kept]


def _batched_call(size: int, operands: Sequence[Any], call: Call, rules: dict[str, Callable[..., Any]]) -> Call:
    """The call for a batch; every result is batched."""

    def flat(*values: Any) -> list[Any]:
        inputs = _operands(values, [x.aval for x in operands])
        return [spread(x, size) for x in batch_jaxpr(ClosedJaxpr(call.jaxpr, ()), size, inputs)]

    values = [x.value if isinstance(x, Batched) else x for x in operands]
    closed = staging.trace_to_jaxpr(flat, [x.aval for x in values])
    return Call(call.name, closed, call.constants + len(closed.consts), rules)


def _custom_jvp_batch(size: int, *operands: Any, call: Call) -> list[Any]:
    own = [x.aval for x in operands[call.constants :]]

    def rule(xs: list[Any], ts: list[Any]) -> list[Any]:
        inputs = [*_operands(xs, own), *_operands(ts, own)]
        made = _mapped(lambda *v: call.rules["jvp"](list(v[: len(own)]), list(v[len(own) :])), size, _moving(inputs))
        return [spread(t, size) for t in made]

    batched = _batched_call(size, operands, call, {"jvp": rule})
    return list(custom_jvp_p.bind(*(x.value if isinstance(x, Batched) else x for x in operands), call=batched))


def _moving(operands: list[Any]) -> list[Any]:
    """Tangents have the type of tangents."""
    count = len(operands) // 2
    made = []
    for x in operands[count:]:
        aval = tangent_aval(x.aval) if isinstance(x, Batched) else None
        made.append(x if aval is None else Batched(x.value, aval))
    return [*operands[:count], *made]


def _custom_vjp_batch(size: int, *operands: Any, call: Call) -> list[Any]:
    own = [x.aval for x in operands[call.constants :]]
    outs = [a.aval for a in call.jaxpr.outputs]
    residual_avals: list[Any] = []

    def fwd(xs: list[Any]) -> list[Any]:
        made = _mapped(lambda *v: call.rules["fwd"](list(v)), size, _operands(xs, own))
        residual_avals[:] = [x.aval for x in made]
        return [x.value if isinstance(x, Batched) else x for x in made]

    def bwd(xs: Sequence[Any], residuals: Sequence[Any], cts: list[Any]) -> list[Any]:
        """A value that all elements share has the sum of their cotangents."""
        a, b = len(own), len(own) + len(residual_avals)
        inputs = [
            *_operands(xs, own),
            *_operands(residuals, residual_avals),
            *_operands(cts, [tangent_aval(o) or o for o in outs]),
        ]
        made = _mapped(lambda *v: call.rules["bwd"](v[:a], v[a:b], list(v[b:])), size, inputs)
        return [
            None
            if ct is None
            else spread(ct, size)
            if isinstance(x, Batched)
            else reduce("sum", spread(ct, size), axis=-1, dtype=ct.aval.dtype)
            for ct, x in zip(made, inputs, strict=False)
        ]

    batched = _batched_call(size, operands, call, {"fwd": fwd, "bwd": bwd})
    return list(custom_vjp_p.bind(*(x.value if isinstance(x, Batched) else x for x in operands), call=batched))


custom_jvp_p = Primitive(
    "custom_jvp",
    typing=_typing,
    reference=_reference,
    multiple=True,
    jvp=_custom_jvp,
    batch=_custom_jvp_batch,
    inline=lambda call: call.jaxpr,
)
custom_vjp_p = Primitive(
    "custom_vjp",
    typing=_typing,
    reference=_reference,
    multiple=True,
    jvp=_custom_vjp,
    batch=_custom_vjp_batch,
    inline=lambda call: call.jaxpr,
)
custom_vjp_tangent_p = Primitive(
    "custom_vjp_tangent",
    typing=_tangent_typing,
    reference=_unreachable,
    multiple=True,
    transpose=_tangent_transpose,
    jvp=_unreachable,
    inline=_unreachable,
    bodies=lambda call, count, wanted: (),
    describe=lambda call, count, wanted: str(call),
)

# ----------------------------------------------------------------------------------------------------------- surface


class _Custom:
    """A function whose derivative is given."""

    def __init__(self, function: Callable[..., Any], nondiff_argnums: Sequence[int] = ()) -> None:
        if not callable(function):
            raise TypeError(f"{type(self).__name__} expects a function, but got {type(function).__name__}")
        functools.update_wrapper(self, function)
        self.function = function
        self.nondiff_argnums = tuple(nondiff_argnums)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Arguments by position, with defaults, as JAX resolves them."""
        try:
            bound = inspect.signature(self.function).bind(*args, **kwargs)
        except ValueError:
            return args
        bound.apply_defaults()
        if bound.kwargs:
            raise TypeError(
                f"keyword-only arguments of {self.__name__} cannot be differentiated; pass them by position"
            )
        return bound.args

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        full = self._bound(args, kwargs)
        if current() is None:
            return self.function(*full)
        self._defined()
        count = len(full)
        static = {n % count: full[n % count] for n in self.nondiff_argnums}
        dynamic = [x for k, x in enumerate(full) if k not in static]
        leaves, tree = tree_util.tree_flatten(dynamic)
        arrays = [_leaf(x) for x in leaves]
        trees: list[tree_util.PyTreeDef] = []

        def flat(*xs: Any) -> list[Any]:
            rest = iter(tree_util.tree_unflatten(tree, xs))
            made = self.function(*(static[k] if k in static else next(rest) for k in range(count)))
            outs, out_tree = tree_util.tree_flatten(made)
            trees[:] = [out_tree]
            return [_leaf(x) for x in outs]

        closed = staging.trace_to_jaxpr(flat, [x.aval for x in arrays])
        rules = self._rules([static[k] for k in sorted(static)], static, count, tree, trees[0])
        call = Call(self.__name__, closed, len(closed.consts), rules)
        outs = self._primitive.bind(*closed.consts, *arrays, call=call)
        return tree_util.tree_unflatten(trees[0], outs)

    __name__: str
    _primitive: Primitive

    def _defined(self) -> None:
        raise NotImplementedError

    def _rules(self, nondiff: list[Any], static: dict[int, Any], count: int, tree: Any, out_tree: Any) -> Any:
        raise NotImplementedError


class custom_jvp(_Custom):
    """A function with its own forward derivative, which reverse mode transposes.

    `f.defjvp(rule)` sets `rule(*nondiff, primals, tangents) -> (result, tangent of the result)`, linear in the tangents;
    `f.defjvps(*rules)` one `rule(tangent, result, *primals)` per argument (None: no derivative).

    >>> import sparsejax as sj, sparsejax.numpy as snp
    >>> @custom_jvp
    ... def f(x):
    ...     return snp.sin(x)
    >>> @f.defjvp
    ... def f_jvp(primals, tangents):
    ...     return f(*primals), 10 * tangents[0]
    >>> sj.grad(f)(0.0)
    Array(10., dtype=float64)
    """

    _primitive = custom_jvp_p
    jvp: Callable[..., Any] | None = None

    def defjvp(self, jvp: Callable[..., Any]) -> Callable[..., Any]:
        """Set the rule; usable as a decorator."""
        self.jvp = jvp
        return jvp

    def defjvps(self, *jvps: Callable[..., Any] | None) -> None:
        """Set one rule per argument."""

        def jvp(primals: Any, tangents: Any) -> Any:
            out = self(*primals)
            parts = [None if r is None else r(t, out, *primals) for r, t in zip(jvps, tangents, strict=True)]
            used = [p for p in parts if p is not None]
            return out, functools.reduce(lambda a, b: tree_util.tree_map(lambda x, y: x + y, a, b), used)

        self.defjvp(jvp)

    def _defined(self) -> None:
        if self.jvp is None:
            raise AttributeError(f"No JVP defined for custom_jvp function {self.__name__} using defjvp.")

    def _rules(self, nondiff: list[Any], static: dict[int, Any], count: int, tree: Any, out_tree: Any) -> Any:
        def rule(xs: list[Any], ts: list[Any]) -> list[Any]:
            assert self.jvp is not None
            full = [_zero_tangent(x) if t is None else t for x, t in zip(xs, ts, strict=True)]
            primals, tangents = (tuple(tree_util.tree_unflatten(tree, v)) for v in (xs, full))
            made = self.jvp(*nondiff, primals, tangents)
            if not isinstance(made, tuple | list) or len(made) != 2:
                raise TypeError(
                    f"Custom JVP rule {getattr(self.jvp, '__name__', self.jvp)} for function {self.__name__} must produce a pair "
                    f"(list or tuple of length two) representing primal and tangent outputs, but got {made}."
                )
            found, given = tree_util.tree_flatten(made[1])
            if given != out_tree:
                raise TypeError(
                    f"Custom JVP rule for function {self.__name__} must produce primal and tangent outputs with equal container "
                    f"(pytree) structures, but got {out_tree} and {given} respectively."
                )
            return [_leaf(t) for t in found]

        return {"jvp": rule}


class custom_vjp(_Custom):
    """A function with its own reverse derivative.

    `f.defvjp(fwd, bwd)`: `fwd(*args) -> (result, residuals)` and `bwd(*nondiff, residuals, ct) -> one cotangent per argument`
    (None: zero). Forward mode is not available.

    >>> import sparsejax as sj, sparsejax.numpy as snp
    >>> @custom_vjp
    ... def f(x):
    ...     return snp.sin(x)
    >>> f.defvjp(lambda x: (f(x), x), lambda x, ct: (10 * ct,))
    >>> sj.grad(f)(0.0)
    Array(10., dtype=float64)
    """

    _primitive = custom_vjp_p
    fwd: Callable[..., Any] | None = None
    bwd: Callable[..., Any] | None = None

    def defvjp(self, fwd: Callable[..., Any], bwd: Callable[..., Any]) -> None:
        """Set both rules."""
        self.fwd, self.bwd = fwd, bwd

    def _defined(self) -> None:
        if self.fwd is None or self.bwd is None:
            raise AttributeError(f"No VJP defined for custom_vjp function {self.__name__} using defvjp.")

    def _rules(self, nondiff: list[Any], static: dict[int, Any], count: int, tree: Any, out_tree: Any) -> Any:
        trees: list[tree_util.PyTreeDef] = []

        def fwd(xs: list[Any]) -> list[Any]:
            assert self.fwd is not None
            rest = iter(tree_util.tree_unflatten(tree, xs))
            made = self.fwd(*(static[k] if k in static else next(rest) for k in range(count)))
            if not isinstance(made, tuple | list) or len(made) != 2:
                raise TypeError(
                    f"Custom VJP fwd rule for function {self.__name__} must produce a pair (list or tuple of length two) representing "
                    f"primal outputs and residuals, but got {made}."
                )
            residuals, residual_tree = tree_util.tree_flatten(made[1])
            trees[:] = [residual_tree]
            return [_leaf(x) for x in residuals]

        def bwd(xs: Sequence[Any], residuals: Sequence[Any], cts: list[Any]) -> list[Any]:
            assert self.bwd is not None
            made = self.bwd(
                *nondiff, tree_util.tree_unflatten(trees[0], residuals), tree_util.tree_unflatten(out_tree, cts)
            )
            given = tuple(made) if isinstance(made, tuple | list) else made
            parts = tree_util.tree_unflatten(tree, [None] * tree.num_leaves)
            if not isinstance(given, tuple) or len(given) != len(parts):
                raise TypeError(
                    f"Custom VJP bwd rule for function {self.__name__} must produce a tuple of one cotangent per argument "
                    f"({len(parts)}), but got {made}."
                )
            found: list[Any] = []
            for part, ct in zip(_subtrees(tree), given, strict=True):
                found += [None] * part.num_leaves if ct is None else part.flatten_up_to(ct)
            leaves = [None if ct is None else _leaf(ct) for ct in found]
            for x, ct in zip(xs, leaves, strict=True):
                if ct is not None and ct.shape != x.shape:
                    raise ValueError(
                        f"Custom VJP bwd rule for function {self.__name__} must produce cotangents of the shapes of its arguments, but got "
                        f"one of shape {ct.shape} for an argument of shape {x.shape}."
                    )
            return leaves

        return {"fwd": fwd, "bwd": bwd}


def _subtrees(tree: tree_util.PyTreeDef) -> list[tree_util.PyTreeDef]:
    """The structure of every argument."""
    return [tree_util.tree_structure(x) for x in tree_util.tree_unflatten(tree, [0] * tree.num_leaves)]


def _leaf(value: Any) -> Any:
    return (
        weak_scalar(value) if is_python_scalar(value) else asarray(value, "an argument or result of a custom function")
    )


def _zero_tangent(x: Any) -> Any:
    aval = tangent_aval(x.aval)
    return zeros_like(x) if aval is None or not aval.is_dense else zeros(aval)


@functools.partial(custom_jvp)
def _stopped(x: Any) -> Any:
    return x


@_stopped.defjvp
def _stopped_jvp(primals: Any, tangents: Any) -> Any:
    return _stopped(*primals), _zero_tangent(primals[0])


def stop_gradient(x: Any) -> Any:
    """`x`, a pytree, as a constant: its derivatives are zero.

    >>> import sparsejax as sj
    >>> sj.grad(lambda x: x * stop_gradient(x))(3.0)
    Array(3., dtype=float64)
    """

    def stopped(leaf: Any) -> Any:
        return _stopped(leaf) if isinstance(leaf, Tracer) and leaf.dtype.kind in "fc" else leaf

    return tree_util.tree_map(stopped, x)
