"""`export`: a traced function as bytes, called elsewhere without the function and without tracing.

    file      = magic "SJXPROG" + version byte | length of the header, 8 bytes, little-endian | header | padding | buffers
    header    = JSON: {"version", "package", "jaxpr" (see `layout`), "tree", "out_tree", "consts": [array], "sha256" of the buffers}
    array     = {"format", "shape", "fill", "buffers": [[offset, length, dtype] of each level's buffers], "vals": [offset, length, dtype]}

Buffers begin at multiples of 64 bytes. Nothing in the file is code: loading it runs none, and operations that this version does not have, parameters
of unknown kinds and damaged buffers are refused.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sparsejax import tree_util
from sparsejax.core.array import Array
from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import ClosedJaxpr, Jaxpr, Var, check_jaxpr
from sparsejax.core.primitive import execute
from sparsejax.export import layout
from sparsejax.export.layout import LayoutError
from sparsejax.formats import Format
from sparsejax.formats.storage import Storage
from sparsejax.formats.validate import validate
from sparsejax.jit import api
from sparsejax.jit.inspect.ahead_of_time import as_leaf, leaf_aval
from sparsejax.transforms import staging

MAGIC, VERSION = b"SJXPROG", 1
ALIGNED = 64


class Exported:
    """A traced function without its source: `call(*args)` runs it, `serialize()` writes it down."""

    def __init__(self, closed: ClosedJaxpr, in_tree: tree_util.PyTreeDef, out_tree: tree_util.PyTreeDef) -> None:
        self._closed, self._in_tree, self._out_tree = closed, in_tree, out_tree

    @property
    def jaxpr(self) -> ClosedJaxpr:
        """What is computed."""
        return self._closed

    @property
    def in_avals(self) -> tuple[Aval, ...]:
        """The types of the leaves of the arguments."""
        return self._closed.in_avals

    @property
    def out_avals(self) -> tuple[Aval, ...]:
        """The types of the leaves of the results."""
        return self._closed.out_avals

    def call(self, *args: Any) -> Any:
        """The results for arguments of the types that it was exported for; TypeError for others. Nothing is traced."""
        found, tree = tree_util.tree_flatten(list(args))
        if tree != self._in_tree:
            raise TypeError(f"exported for arguments of the structure {self._in_tree}, but called with {tree}")
        leaves = [as_leaf(x, args) for x in found]
        avals = tuple(leaf_aval(x) for x in leaves)
        if avals != self.in_avals:
            raise TypeError(
                f"exported for arguments of types {list(self.in_avals)}, but called with {list(avals)}; export again for these"
            )
        return tree_util.tree_unflatten(self._out_tree, execute(self._closed, leaves))

    def serialize(self) -> bytes:
        """The program as bytes. LayoutError where an operation holds a function (`pure_callback`)."""
        body = bytearray()

        def stored(x: Any) -> list[Any]:
            body.extend(bytes(-len(body) % ALIGNED))
            start = len(body)
            body.extend(np.ascontiguousarray(x).tobytes())
            return [start, len(x), x.dtype.str]

        consts = []
        for const in self._closed.consts:
            s = const._storage
            consts.append(
                {
                    "format": layout.encode(s.format),
                    "shape": list(s.shape),
                    "fill": layout.encode(s.dtype.type(s.fill_value)),
                    "weak": const.aval.weak_type,
                    "buffers": [[stored(b) for b in level] for level in s.buffers],
                    "vals": stored(s.vals),
                }
            )
        jaxpr = staging.clean(self._closed.jaxpr)
        header = {
            "version": VERSION,
            "jaxpr": layout.encode_jaxpr(jaxpr),
            "tree": _tree(self._in_tree),
            "out_tree": _tree(self._out_tree),
            "consts": consts,
            "sha256": hashlib.sha256(body).hexdigest(),
        }
        text = json.dumps(header, separators=(",", ":")).encode()
        first = MAGIC + bytes([VERSION]) + len(text).to_bytes(8, "little") + text
        return first + bytes(-len(first) % ALIGNED) + bytes(body)


def _tree(tree: tree_util.PyTreeDef) -> Any:
    """A structure of lists, tuples, dictionaries with text keys and None as JSON."""

    def drawn(node: Any) -> Any:
        if isinstance(node, int):
            return "*"
        if node is None:
            return None
        if type(node) in (list, tuple):
            return {type(node).__name__: [drawn(c) for c in node]}
        if type(node) is dict and all(isinstance(k, str) for k in node):
            return {"dict": [[k, drawn(v)] for k, v in node.items()]}
        raise LayoutError(
            f"arguments and results of the type {type(node).__name__} cannot be written down; use tuples, lists and dictionaries"
        )

    return drawn(tree_util.tree_unflatten(tree, range(tree.num_leaves)))


def _structure(drawn: Any) -> tree_util.PyTreeDef:
    def made(node: Any) -> Any:
        if node == "*" or node is None:
            return None if node is None else 0
        ((kind, inner),) = node.items()
        if kind == "dict":
            return {k: made(v) for k, v in inner}
        return [made(v) for v in inner] if kind == "list" else tuple(made(v) for v in inner)

    return tree_util.tree_structure(made(drawn))


def export(function: Any) -> Callable[..., Exported]:
    """`export(jit(f))(*types)`: the function traced for arrays or `ShapeDtypeStruct`s, ready to be written down.

    >>> import numpy as np, sparsejax as sj
    >>> from sparsejax.export import deserialize, export
    >>> types = sj.ShapeDtypeStruct((3, 3), "float64", format="csr"), sj.ShapeDtypeStruct((3,), "float64")
    >>> program = export(sj.jit(lambda A, x: A @ x))(*types).serialize()
    >>> deserialize(program).call(sj.array(np.eye(3), format="csr"), np.ones(3))
    Array([1., 1., 1.], dtype=float64)
    """
    jitted = function if isinstance(function, api.JitFunction) else api.jit(function)

    def exported(*types: Any) -> Exported:
        traced = jitted.trace(*types)
        _, tree = tree_util.tree_flatten(list(types))
        return Exported(traced.jaxpr, tree, tree_util.tree_structure(traced.out_info))

    return exported


def deserialize(data: bytes | bytearray | memoryview) -> Exported:
    """The program that bytes hold. LayoutError for what is no program, damaged, or written by a version with another layout. Runs no code of the file."""
    view = memoryview(data).cast("B")
    if bytes(view[: len(MAGIC)]) != MAGIC or len(view) < len(MAGIC) + 9:
        raise LayoutError("these bytes are no exported program of sparsejax")
    if view[len(MAGIC)] != VERSION:
        raise LayoutError(
            f"an exported program of layout {view[len(MAGIC)]}; this version of sparsejax reads layout {VERSION}: export it again"
        )
    start = len(MAGIC) + 9
    length = int.from_bytes(view[start - 8 : start], "little")
    try:
        header = json.loads(bytes(view[start : start + length]))
        body = view[start + length + -(start + length) % ALIGNED :]
        if hashlib.sha256(body).hexdigest() != header["sha256"]:
            raise LayoutError("an exported program whose buffers are damaged")
        jaxpr = layout.decode_jaxpr(header["jaxpr"])
        check_jaxpr(jaxpr)
        consts = tuple(_const(c, body) for c in header["consts"])
        _check_consts(jaxpr.consts, consts)
        closed = ClosedJaxpr(Jaxpr(jaxpr.inputs, jaxpr.consts, jaxpr.eqns, jaxpr.outputs), consts)
        return Exported(closed, _structure(header["tree"]), _structure(header["out_tree"]))
    except LayoutError:
        raise
    except (KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
        raise LayoutError(f"an exported program whose header is damaged: {type(error).__name__}: {error}") from error


def _const(about: dict[str, Any], body: memoryview) -> Array:
    def buffer(place: Sequence[Any]) -> Any:
        offset, count, dtype = place
        return np.frombuffer(body, np.dtype(dtype), int(count), int(offset)) if count else np.zeros(0, np.dtype(dtype))

    form: Format = layout.decode(about["format"])
    buffers = tuple(tuple(buffer(b) for b in level) for level in about["buffers"])
    storage = Storage(form, tuple(about["shape"]), layout.decode(about["fill"]), buffers, buffer(about["vals"]))
    validate(storage)
    return Array(storage, Aval(storage.shape, storage.dtype, form, storage.fill_value, about["weak"]))


def _check_consts(wanted: Sequence[Var], given: Sequence[Array]) -> None:
    if any(v is None or x is None or v.aval != x.aval for v, x in itertools.zip_longest(wanted, given)):
        raise LayoutError("an exported program whose constants are not of the types that its equations read")
