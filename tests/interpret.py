"""The oracle of CIN: run any concrete statement, loop by loop, on dense NumPy arrays.

Slow and obvious. It knows nothing of formats: a tensor is its dense array, a workspace an array over its variables that
starts at its fill whenever its `where` is entered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.jit.ir import cin, operators

Arrays = dict[str, NDArray[Any]]


def interpret(
    stmt: cin.Stmt | None,
    inputs: Mapping[str, NDArray[Any]],
    output: cin.Tensor,
    op: str | None,
    extents: Mapping[cin.IndexVar, int] | None = None,
) -> NDArray[Any]:
    """The dense result of `stmt` in `output`, which starts at its fill, or at the identity of `op` where it accumulates.

    `extents` holds variables that index nothing (a constant is reduced over them). Arrays may have the axes of extent one that their
    tensors no longer have (`ir/units`); the result has them.
    """
    start = output.fill_value if op is None else operators.get(op).identity(output.dtype)
    arrays: Arrays = {**inputs, output.name: np.full(output.shape, start, output.dtype)}
    if stmt is not None:
        every = (*cin.accesses(stmt), *(w.lhs for w in cin.writes(stmt)))
        for tensor in {a.tensor for a in every if a.tensor.units is not None and a.tensor.name in inputs}:
            arrays[tensor.name] = arrays[tensor.name].reshape(tensor.shape)
        with np.errstate(all="ignore"):
            _run(stmt, {}, arrays, {**(extents or {}), **cin.extents(every)})
    dropped = () if output.units is None else output.units.dimensions
    return np.expand_dims(arrays[output.name], tuple(dropped))


def _run(
    stmt: cin.Stmt,
    bound: dict[cin.IndexVar, int],
    arrays: Arrays,
    extents: dict[cin.IndexVar, int],
) -> None:
    match stmt:
        case cin.Forall(var, body, _):
            for coordinate in range(extents[var]):
                _run(body, {**bound, var: coordinate}, arrays, extents)
        case cin.Where(consumer, producer):
            for write in cin.writes(producer):
                tensor = write.lhs.tensor
                arrays[tensor.name] = np.full(tensor.shape, tensor.fill_value, tensor.dtype)
            _run(producer, bound, arrays, extents)
            _run(consumer, bound, arrays, extents)
        case cin.Assign(lhs, op, rhs):
            value = _value(rhs, bound, arrays)
            place = _place(lhs, bound, arrays)
            if op is not None:
                value = operators.get(op).numpy(arrays[lhs.tensor.name][place], value)
            arrays[lhs.tensor.name][place] = value
        case cin.Seq(stmts):
            for inner in stmts:
                _run(inner, bound, arrays, extents)


def _place(access: cin.Access, bound: dict[cin.IndexVar, int], arrays: Arrays) -> tuple[int, ...]:
    def place(at: cin.Position) -> int:
        raise ValueError(f"{at} is a place in memory, which dense arrays do not have")

    def entry(read: cin.Access) -> int:
        return int(_value(read, bound, arrays))

    return tuple(cin.coordinate(ix, bound, int, place, entry) for ix in access.indices)


def _value(expr: cin.Expr, bound: dict[cin.IndexVar, int], arrays: Arrays) -> Any:
    match expr:
        case cin.Literal(value, dtype):
            return np.asarray(value, dtype)[()]
        case cin.Access():
            return arrays[expr.tensor.name][_place(expr, bound, arrays)]
        case cin.Call("cast", (x,), dtype):
            return np.asarray(_value(x, bound, arrays)).astype(dtype)[()]
        case cin.Call(op, args, dtype):
            made = operators.get(op).numpy(*(_value(a, bound, arrays) for a in args))
            return np.asarray(made).astype(dtype)[()]
