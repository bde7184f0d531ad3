"""Batches of programs: the rules of `core.batching` applied to whole jaxprs, and what the rules share.

{ lambda ; A x. let y = contract[ij,j->i] A x in (y,) }
{ lambda ; A x. let y = contract[ij,jk->ik] A x in (y,) }           batched along x: k is the batch
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparsejax.core.avals import Aval
from sparsejax.core.batching import Batched, batched_format
from sparsejax.core.jaxpr import Atom, ClosedJaxpr, Eqn
from sparsejax.core.primitive import asarray
from sparsejax.core.trace import is_python_scalar
from sparsejax.lax.structural import broadcast_to, convert_format, expand_dims, transpose
from sparsejax.transforms import staging

# ---------------------------------------------------------------------------------------------------------- programs


def batch_jaxpr(closed: ClosedJaxpr, size: int, operands: Sequence[Any]) -> list[Any]:
    """The results of a jaxpr, for a batch of `size`, recorded in the current trace or run at once. Operands and results are
    `Batched`, or values that all elements share. NotImplementedError for a primitive that has no rule."""
    jaxpr = closed.jaxpr
    env: dict[Atom, Any] = dict(zip((*jaxpr.consts, *jaxpr.inputs), (*closed.consts, *operands), strict=True))
    for eqn in jaxpr.eqns:
        made = batch_eqn(eqn, size, [staging.read(env, a) for a in eqn.inputs])
        env.update(zip(eqn.outputs, made, strict=True))
    return [staging.read(env, a) for a in jaxpr.outputs]


def batch_eqn(eqn: Eqn, size: int, operands: Sequence[Any]) -> list[Any]:
    """The results of one equation."""
    primitive, params = eqn.primitive, eqn.param_dict
    if not any(isinstance(x, Batched) for x in operands):
        made = primitive.bind(*operands, **params)
        return list(made) if primitive.multiple else [made]
    if primitive.batch is None:
        raise NotImplementedError(
            f"Batching rule for '{primitive.name}' not implemented ({eqn.source or 'unknown line'})"
        )
    made = primitive.batch(size, *operands, **params)
    return [settled(x, v.aval) for x, v in zip(made if primitive.multiple else [made], eqn.outputs, strict=True)]


def settled(value: Any, aval: Aval) -> Any:
    """A result of a rule as an operand: `Batched`, dense where an element is a dense array, or shared by all elements."""
    if value.ndim == aval.ndim:
        return value
    if aval.is_dense and aval.ndim and not value.format.is_dense:
        value = convert_format(value, "dense")
    elif not aval.is_dense and value.format.is_dense:
        value = convert_format(value, batched_format(aval.format, True))
    return Batched(value, aval)


# ------------------------------------------------------------------------------------------- operands, in rules


def element(x: Any) -> Any:
    """The type of an operand, for one element; a Python number as it is."""
    return x.aval if isinstance(x, Batched) or not is_python_scalar(x) else x


def faithful(x: Any) -> Any:
    """An operand whose entries are stored where an element's are: numbers are all present."""
    if isinstance(x, Batched) and x.aval.is_dense and not x.value.format.is_dense:
        return Batched(convert_format(x.value, "dense"), x.aval)
    return x


def ragged(operands: Sequence[Any]) -> bool:
    """Whether some operand has a pattern for every element."""
    return any(isinstance(x, Batched) and x.is_ragged for x in operands)


def aligned(x: Any) -> Any:
    """The value of an operand as NumPy broadcasts it in a result that has the batch as its last dimension."""
    if isinstance(x, Batched):
        return x.value
    return x if is_python_scalar(x) or not x.ndim else expand_dims(x, x.ndim)


def spread(x: Any, size: int) -> Any:
    """The value of an operand with the batch as its last dimension: one that elements share is repeated, a sparse one as values
    under its pattern."""
    if isinstance(x, Batched):
        return x.value
    x = asarray(x)
    made = broadcast_to(expand_dims(x, x.ndim), (*x.shape, size))
    return made if x.format.is_dense else convert_format(made, batched_format(x.format, False))


def moved(x: Any, source: int, destination: int) -> Any:
    """`x` with one axis elsewhere, over the same buffers."""
    axes = [d for d in range(x.ndim) if d != source]
    axes.insert(destination, source)
    return transpose(x, axes)
