"""Parts of records as JSON, and back: numbers by their bits, formats by their names, types, tensors, parameters."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsejax.core.array import Array
from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Eqn, Var
from sparsejax.core.primitive import named
from sparsejax.core.symbolic import Span, span
from sparsejax.errors import FormatError
from sparsejax.formats import Format, ingest
from sparsejax.formats.storage import Storage
from sparsejax.jit.graph import partition
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.bounded import Bounded

CONSTANT = 1 << 16
"""Bytes of a constant that is part of a record at most."""

Fields = dict[str, Any]
"""A part of a record."""


class Unkept(Exception):
    """There is no record of this."""


def of_number(value: Any) -> tuple[str, Any]:
    """A number with its type and its bits."""
    if isinstance(value, np.generic):
        return value.dtype.str, value.tobytes().hex()
    if type(value) is int:
        return "", value
    raise Unkept


def number(dtype: str, value: Any) -> Any:
    return np.frombuffer(bytes.fromhex(value), dtype)[0] if dtype else value


def literal(dtype: str, value: str) -> Storage:
    made = number(dtype, value)
    return Storage(Format(()), (), made.dtype.type(0), (), made.reshape(1))


def of_constant(array: Array) -> tuple[Any, ...]:
    """A small dense array."""
    if not array.format.is_dense or array.format.order != tuple(range(array.ndim)) or array.nbytes > CONSTANT:
        raise Unkept
    return array.shape, array.dtype.str, array._storage.vals.tobytes().hex()


def constant(shape: Sequence[int], dtype: str, vals: str) -> Array:
    return Array(ingest.as_storage(np.frombuffer(bytes.fromhex(vals), dtype).reshape(shape)))


@functools.lru_cache(maxsize=256)
def of_format(form: Format) -> str:
    """The name of a format; Unkept where it does not say all, as of levels that are not this package's."""
    name = str(form)
    try:
        known = Format.parse(name, form.ndim) == form
    except FormatError:
        known = False
    if not known:
        raise Unkept
    return name


def of_shape(shape: Sequence[int]) -> list[Any]:
    """Extents: numbers, or bounds with their names."""
    if not all(type(n) is int or type(n) is Bounded for n in shape):
        raise Unkept
    return [(n.name, int(n)) if isinstance(n, Bounded) else n for n in shape]


def shape(fields: Sequence[Any]) -> tuple[int, ...]:
    return tuple([Bounded.named(*n) if type(n) is list else n for n in fields])


def _of_type(shape: Sequence[int], dtype: np.dtype[Any], form: Format, fill: Any) -> tuple[Any, ...]:
    return of_shape(shape), dtype.str, of_format(form), of_number(fill)


def of_aval(aval: Aval) -> tuple[Any, ...]:
    if aval.is_literal:
        raise Unkept
    return *_of_type(aval.shape, aval.dtype, aval.format, aval.fill_value), aval.weak_type


def aval(fields: Sequence[Any]) -> Aval:
    extents, dtype, form, fill, weak = fields
    return Aval(shape(extents), np.dtype(dtype), Format.parse(form, len(extents)), number(*fill), weak)


def of_tensor(tensor: cin.Tensor) -> tuple[Any, ...]:
    """A tensor of a program; Unkept of a workspace, and where more is known of it."""
    if cin.Tensor(tensor.name, tensor.shape, tensor.dtype, tensor.format, tensor.fill_value) != tensor:
        raise Unkept
    return tensor.name, *_of_type(tensor.shape, tensor.dtype, tensor.format, tensor.fill_value)


def tensor(fields: Sequence[Any]) -> cin.Tensor:
    name, extents, dtype, form, fill = fields
    return cin.Tensor(name, shape(extents), np.dtype(dtype), Format.parse(form, len(extents)), number(*fill))


def of_call(eqn: Eqn) -> tuple[Any, ...]:
    """A library call of one result."""
    primitive = eqn.primitive
    if not primitive.is_known or primitive.multiple or primitive.effect or primitive.asks or eqn.bodies:
        raise Unkept
    params = [(name, _of_param(value)) for name, value in eqn.params]
    return primitive.name, params, [of_aval(a.aval) for a in eqn.inputs], of_aval(eqn.outputs[0].aval)


def call(name: str, params: Sequence[Any], inputs: Sequence[Any], out: Sequence[Any]) -> partition.CallStep:
    given, made = tuple([Var(aval(a)) for a in inputs]), (Var(aval(out)),)
    found = tuple([(key, _param(*value)) for key, value in params])
    return partition.CallStep(Eqn(named(name), given, found, made))


def _of_param(value: Any) -> tuple[str, Any]:
    if type(value) in (bool, int, str, type(None)):
        return "", value
    if type(value) is Bounded:
        return "bounded", (value.name, int(value))
    if type(value) is tuple:
        return "tuple", [_of_param(v) for v in value]
    if type(value) is range or type(value) is Span:
        return "range", [_of_param(n) for n in (value.start, value.stop, value.step)]
    if isinstance(value, np.dtype) and value.names is None:
        return "dtype", value.str
    if type(value) is Format:
        return "format", (of_format(value), value.ndim)
    raise Unkept


def _param(kind: str, value: Any) -> Any:
    match kind:
        case "":
            return value
        case "bounded":
            return Bounded.named(*value)
        case "tuple":
            return tuple([_param(*v) for v in value])
        case "range":
            return span(*[_param(*n) for n in value])
        case "dtype":
            return np.dtype(value)
        case "format":
            return Format.parse(*value)
    raise ValueError(kind)


def tupled(value: Any) -> Any:
    """Lists as tuples, all the way down."""
    return tuple([tupled(v) for v in value]) if type(value) is list else value
