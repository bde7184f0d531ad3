"""Jaxprs as text: JSON that names operations, types and parameters, and holds no code.

    jaxpr   = {"inputs": [aval], "consts": [aval], "eqns": [eqn], "outputs": [atom]}
    eqn     = [primitive, [atom], {parameter: value}, [aval of each result], source]
    atom    = number of a variable | {"literal": value, "aval": aval}          variables are numbered as they are defined: consts, inputs, results
    aval    = [[extent], dtype, format, fill, weak]
    extent  = 5 | {"extent": "2*n + 1"}            an expression of the program's symbols (`extents`)
    value   = null | true | 1 | "text" | {"float": hex} | {"tuple": [...]} | {"dtype": ...} | {"format": ...} | {"range": [...]} | {"ring": [...]}
            | {"number": [dtype, hex bytes]} | {"complex": [hex, hex]} | {"jaxpr": jaxpr} | {"list": [...]} | {"dict": [[key, value]]}
            | {"record": [class, field, ...]} | {"extent": text} | {"span": [start, stop, step]} | {"operator": ...} | {"expression": ...}    (`defined`)

An operation is named by the module and the variable that hold it ("sparsejax.lax.contract:contract_p"), or an entry of a table there
("sparsejax.lax.elementwise:primitives:add"). A parameter that is a function cannot be written down: such programs are refused.
"""

from __future__ import annotations

import json
import sys
from dataclasses import fields
from typing import Any

import numpy as np

from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Atom, ClosedJaxpr, Eqn, Jaxpr, Literal, Var
from sparsejax.core.primitive import Primitive
from sparsejax.core.symbolic import Scope, Span, SymbolicDim, span
from sparsejax.export import defined, extents
from sparsejax.export.errors import LayoutError
from sparsejax.formats import Format
from sparsejax.jit.ir import cin
from sparsejax.lax.indirect.statements import Apply, Number, Ref, Statement
from sparsejax.lax.semiring import Ring
from sparsejax.transforms import staging

MOST_DIMENSIONS = 64
"""Of an array; more are damage, and their levels would take time and memory."""
RECORDS: dict[str, Any] = {kind.__name__: kind for kind in (Ref, Number, Apply, Statement)}
"""What indirect einsums are made of, by name."""

# --------------------------------------------------------------------------------------------------------- operations

_names: dict[Primitive, str] = {}


def name_of(primitive: Primitive) -> str:
    """Where an operation is found. LayoutError for one that no module of this package holds."""
    if primitive not in _names:
        for module in [m for n, m in list(sys.modules.items()) if n.startswith("sparsejax.") and m is not None]:
            for key, value in list(vars(module).items()):
                if isinstance(value, Primitive):
                    _names.setdefault(value, f"{module.__name__}:{key}")
                elif key == "primitives" and isinstance(value, dict):
                    for inner, held in value.items():
                        if isinstance(held, Primitive):
                            _names.setdefault(held, f"{module.__name__}:{key}:{inner}")
    try:
        return _names[primitive]
    except KeyError:
        raise LayoutError(f"the operation {primitive.name} is not one of this package") from None


def primitive_named(name: str) -> Primitive:
    """The operation of a name; only names in modules of this package that are loaded are looked at."""
    module, _, rest = name.partition(":")
    held: Any = sys.modules.get(module) if module.startswith("sparsejax.") else None
    for part in rest.split(":"):
        held = held.get(part) if isinstance(held, dict) else getattr(held, part, None)
    if not isinstance(held, Primitive):
        raise LayoutError(f"this version of sparsejax has no operation {name}")
    return held


# ------------------------------------------------------------------------------------------------------------- values


def _scalar(value: np.generic) -> Any:
    return {"number": [value.dtype.str, value.tobytes().hex()]}


def encode(value: Any, lines: bool = True) -> Any:
    """A parameter as JSON, with the lines of its equations or without. LayoutError for functions and other objects."""
    if isinstance(value, np.generic):
        return _scalar(value)
    if isinstance(value, str) and defined.is_defined(value):
        return {"operator": defined.encoded(value)}
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, complex):
        return {"complex": [value.real.hex(), value.imag.hex()]}
    if type(value) is tuple:
        return {"tuple": [encode(v, lines) for v in value]}
    if isinstance(value, list):
        return {"list": [encode(v, lines) for v in value]}
    if isinstance(value, dict):
        return {"dict": [[encode(k), encode(v, lines)] for k, v in value.items()]}
    if isinstance(value, np.dtype):
        return {"dtype": value.str}
    if isinstance(value, Format):
        return {"format": [str(value), value.ndim]}
    if isinstance(value, range):
        return {"range": [value.start, value.stop, value.step]}
    if isinstance(value, SymbolicDim):
        return {"extent": value.code}
    if isinstance(value, Span):
        return {"span": [encode(value.start), encode(value.stop), encode(value.step)]}
    if isinstance(value, Ring):
        return {"ring": [encode(value.add), encode(value.mul), encode(value.zero)]}
    if isinstance(value, Ref | Number | Apply | Statement):
        return {"record": [type(value).__name__, *(encode(getattr(value, f.name)) for f in fields(value))]}
    if isinstance(value, ClosedJaxpr):
        if value.consts:
            raise LayoutError("a body with constants of its own")
        return {"jaxpr": encode_jaxpr(value.jaxpr, lines)}
    if isinstance(value, cin.Access | cin.Call | cin.Literal):
        return {"expression": defined.expression_text(value)}
    raise LayoutError(f"a parameter of type {type(value).__name__} cannot be written down")


def decode(value: Any, scope: Scope | None = None) -> Any:
    """What `encode` wrote; extents are of the symbols of `scope`."""
    if not isinstance(value, dict):
        if isinstance(value, list):
            raise LayoutError("a list where a value should be")
        return value
    if len(value) != 1:
        raise LayoutError(f"a value with the fields {sorted(value)}")
    ((kind, inner),) = value.items()
    match kind:
        case "number":
            return np.frombuffer(bytes.fromhex(inner[1]), np.dtype(inner[0]))[0]
        case "float":
            return float.fromhex(inner)
        case "complex":
            return complex(float.fromhex(inner[0]), float.fromhex(inner[1]))
        case "tuple":
            return tuple(decode(v, scope) for v in inner)
        case "list":
            return [decode(v, scope) for v in inner]
        case "dict":
            return {decode(k): decode(v, scope) for k, v in inner}
        case "dtype":
            return np.dtype(inner)
        case "format":
            if not 0 <= int(inner[1]) <= MOST_DIMENSIONS:
                raise LayoutError(f"a format of {inner[1]} dimensions")
            return Format.parse(inner[0], inner[1]) if inner[1] else Format(())
        case "extent":
            return extents.parsed(inner, scope)
        case "span":
            return span(*(decode(v, scope) for v in inner))
        case "range":
            return range(*inner)
        case "record":
            return RECORDS[inner[0]](*(decode(v, scope) for v in inner[1:]))
        case "ring":
            return Ring(*map(decode, inner))
        case "expression":
            return defined.expression(inner)
        case "operator":
            return defined.decoded(inner)
        case "jaxpr":
            return staging.interned(decode_jaxpr(inner, scope))
    raise LayoutError(f"a value of the unknown kind {kind!r}")


def encode_aval(aval: Aval) -> Any:
    """A type as JSON."""
    return [
        [encode(n) for n in aval.shape],
        aval.dtype.str,
        encode(aval.format),
        _scalar(aval.fill_value),
        aval.weak_type,
    ]


def decode_aval(value: Any, scope: Scope | None = None) -> Aval:
    """What `encode_aval` wrote."""
    shape, dtype, form, fill, weak = value
    return Aval([decode(n, scope) for n in shape], np.dtype(dtype), decode(form), decode(fill), weak)


# ------------------------------------------------------------------------------------------------------------- jaxprs


def encode_jaxpr(jaxpr: Jaxpr, lines: bool = True) -> Any:
    """A jaxpr as JSON; its constants are inputs like others, and their values are kept elsewhere. Without `lines`, equal equations are equal
    wherever they stand in the user's program."""
    numbers: dict[Var, int] = {}
    for var in (*jaxpr.consts, *jaxpr.inputs):
        numbers[var] = len(numbers)

    def atom(a: Atom) -> Any:
        if isinstance(a, Var):
            return numbers[a]
        return {"literal": encode(a.value), "weak": a.aval.weak_type, "dtype": a.aval.dtype.str}

    eqns = []
    for eqn in jaxpr.eqns:
        inputs = [atom(a) for a in eqn.inputs]
        try:
            params = {key: encode(value, lines) for key, value in eqn.params}
        except LayoutError as error:
            raise LayoutError(f"{eqn.primitive.name} at {eqn.source or 'an unknown line'}: {error}") from None
        for out in eqn.outputs:
            numbers[out] = len(numbers)
        source = eqn.source if lines else ""
        eqns.append([name_of(eqn.primitive), inputs, params, [encode_aval(v.aval) for v in eqn.outputs], source])
    return {
        "consts": [encode_aval(v.aval) for v in jaxpr.consts],
        "inputs": [encode_aval(v.aval) for v in jaxpr.inputs],
        "eqns": eqns,
        "outputs": [atom(a) for a in jaxpr.outputs],
    }


def decode_jaxpr(value: Any, scope: Scope | None = None) -> Jaxpr:
    """What `encode_jaxpr` wrote. LayoutError for an operation that this version does not have."""
    consts = tuple(Var(decode_aval(v, scope)) for v in value["consts"])
    inputs = tuple(Var(decode_aval(v, scope)) for v in value["inputs"])
    known: list[Var] = [*consts, *inputs]

    def atom(a: Any) -> Atom:
        if isinstance(a, int):
            return known[a]
        number = decode(a["literal"])
        return Literal(number, Aval((), np.dtype(a["dtype"]), Format(()), number, a["weak"], True))

    eqns = []
    for name, ins, params, outs, source in value["eqns"]:
        operands = tuple(atom(a) for a in ins)
        results = tuple(Var(decode_aval(v, scope)) for v in outs)
        known += results
        eqns.append(
            Eqn(
                primitive_named(name),
                operands,
                tuple((k, decode(v, scope)) for k, v in params.items()),
                results,
                source,
            )
        )
    return Jaxpr(inputs, consts, tuple(eqns), tuple(atom(a) for a in value["outputs"]))


def dumps(jaxpr: Jaxpr, lines: bool = True) -> str:
    """A jaxpr as text, the same for the same equations: of the same lines, or (without `lines`) of any."""
    return json.dumps(encode_jaxpr(jaxpr, lines), separators=(",", ":"))


def loads(text: str) -> Jaxpr:
    """The jaxpr of a text."""
    return decode_jaxpr(json.loads(text))
