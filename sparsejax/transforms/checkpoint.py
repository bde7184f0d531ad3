"""`checkpoint`: a function whose intermediate values are computed again for its derivative, not kept.

    b = checkpoint[f] a        stands for the jaxpr of f
    t = checkpoint[df] a s     its tangent: from the operands alone, linear in s

Transposed, the tangent computes what it needs from `barrier a`, which nothing before the backward pass has computed.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from sparsejax import tree_util
from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import ClosedJaxpr, evaluate
from sparsejax.core.primitive import Primitive, asarray, weak_scalar
from sparsejax.core.tangents import Linear
from sparsejax.core.trace import current, is_python_scalar
from sparsejax.lax.control import plain
from sparsejax.lax.linear import keep
from sparsejax.lax.loops import Traced
from sparsejax.lax.rules.control_batch import batched_call
from sparsejax.lax.structural import convert_format
from sparsejax.transforms import ad

Values = list[Any]

barrier_p = Primitive(
    "barrier",
    typing=plain,
    reference=lambda x: x,
    call=lambda x, out_aval: x,
    jvp=lambda primals, tangents, out: tangents[0],
    transpose=lambda ct, x: [keep(ct, x)],
)
barrier_p.batch = lambda size, x: barrier_p.bind(x.value)


def _typing(*avals: Aval, body: ClosedJaxpr) -> tuple[Aval, ...]:
    return tuple(plain(a) for a in body.out_avals)


def _jvp(primals: Values, tangents: Values, outs: Values, body: ClosedJaxpr) -> Values:
    lin = ad.linearized(body, [t is not None for t in tangents])
    moved = [t is not None for t in lin.out_tangents]
    count = len(primals)

    def linear(*args: Any) -> Values:
        env, results = ad.known_values(lin, args[:count])
        found = ad.forward(lin, env, args[count:])
        return [ad.finished_tangent(o, t) for o, t in zip(results, found, strict=True) if t is not None]

    traced = Traced(linear, [*body.in_avals, *(v.aval for v in lin.tangents)])
    moving = (t for t in tangents if t is not None)
    ts = [convert_format(t, v.aval.format) for v, t in zip(lin.tangents, moving, strict=True)]
    made = iter(checkpoint_p.bind(*traced.consts, *primals, *ts, body=traced.closed))
    return [next(made) if moves else None for moves in moved]


def _transpose(cts: Values, *operands: Any, body: ClosedJaxpr) -> Values:
    lin = ad.linearized(body, [isinstance(x, Linear) for x in operands])
    point = [convert_format(x.pattern, x.format) if isinstance(x, Linear) else barrier_p.bind(x) for x in operands]
    env, _ = ad.known_values(lin, point)
    made = iter(ad.backward(lin, env, cts))
    return [next(made) if isinstance(x, Linear) else None for x in operands]


def _batch(size: int, *operands: Any, body: ClosedJaxpr) -> Values:
    values, closed = batched_call(size, operands, body)
    return list(checkpoint_p.bind(*values, body=closed))


checkpoint_p = Primitive(
    "checkpoint",
    typing=_typing,
    reference=lambda *xs, body: list(evaluate(body, *xs)),
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    inline=lambda body: body.jaxpr,
    bodies=lambda body: (body,),
    describe=lambda body: "",
    multiple=True,
)


def checkpoint(function: Any = None, *, static_argnums: int | Sequence[int] = ()) -> Any:
    """`function` (pytrees in, pytrees out) with derivatives that compute its intermediate values again instead of keeping them: less
    memory, more time. `static_argnums` are arguments that are not arrays. Also called `remat`.

    >>> import sparsejax as sj, sparsejax.numpy as snp
    >>> sj.grad(checkpoint(lambda x: snp.sin(snp.sin(x))))(0.0)
    Array(1., dtype=float64)
    """
    if function is None:
        return functools.partial(checkpoint, static_argnums=static_argnums)
    if not callable(function):
        raise TypeError(f"checkpoint expects a function, but got {type(function).__name__}")
    numbers = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)

    @functools.wraps(function)
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        if current() is None:
            return function(*args, **kwargs)
        static = {n % len(args): args[n] for n in numbers}
        dynamic = [x for k, x in enumerate(args) if k not in static]
        leaves, tree = tree_util.tree_flatten((dynamic, kwargs))
        values = [_leaf(x, "an argument") for x in leaves]
        trees: list[tree_util.PyTreeDef] = []

        def flat(*xs: Any) -> Values:
            own, named = tree_util.tree_unflatten(tree, xs)
            rest = iter(own)
            outs, out_tree = tree_util.tree_flatten(
                function(*(static[k] if k in static else next(rest) for k in range(len(args))), **named)
            )
            trees.append(out_tree)
            return [_leaf(x, "a result") for x in outs]

        traced = Traced(flat, [x.aval for x in values])
        outs = checkpoint_p.bind(*traced.consts, *values, body=traced.closed)
        return tree_util.tree_unflatten(trees[0], outs)

    return checkpointed


def _leaf(value: Any, what: str) -> Any:
    return weak_scalar(value) if is_python_scalar(value) else asarray(value, f"{what} of a checkpointed function")


remat = checkpoint
