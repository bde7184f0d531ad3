"""`export`: a traced function as bytes, called elsewhere without the function and without tracing.

    file      = magic "SJXPROG" + version byte | length of the header, 8 bytes | CRC-32, 4 bytes | header | padding | buffers
    header    = JSON: {"version", "package": version of this package, "jaxpr" (see `layout`), "symbols": null | see `extents`, "tree", "out_tree",
                "consts": [array], "kernels": see `kernels`, "sha256": of the buffers}
    array     = {"format", "shape", "fill", "buffers": [[offset, length, dtype] of each level's buffers], "vals": [offset, length, dtype]}

Numbers are little-endian. The checksum is that of all bytes before the buffers but its own; that of the buffers is in the header. Both find damage, and
vouch for nobody: whoever writes a file can write them.

Buffers begin at multiples of 64 bytes. Nothing in a file is run when it is loaded, and operations that this version does not have, parameters of unknown
kinds and damaged buffers are refused. Plans and machine code are there where `with_kernels` put them, and used where the reader says that the
file is trusted.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sparsejax import tree_util
from sparsejax.core.array import Array
from sparsejax.core.avals import Aval, ShapeDtypeStruct
from sparsejax.core.jaxpr import ClosedJaxpr, Jaxpr, Var, check_jaxpr
from sparsejax.core.polynomials import told
from sparsejax.core.primitive import execute, extents_of
from sparsejax.core.symbolic import Scope, SymbolicDim
from sparsejax.export import extents, kernels, layout
from sparsejax.export.errors import LayoutError
from sparsejax.formats import Format
from sparsejax.formats.storage import Storage
from sparsejax.formats.validate import validate
from sparsejax.jit import api
from sparsejax.jit.function import JitFunction
from sparsejax.jit.graph import resize
from sparsejax.jit.inspect.ahead_of_time import as_leaf, struct
from sparsejax.jit.runtime import shapes
from sparsejax.jit.runtime.signature import Signature
from sparsejax.transforms import staging

MAGIC, VERSION = b"SJXPROG", 3
ALIGNED = 64
_LENGTH = len(MAGIC) + 1
_CHECKSUM = _LENGTH + 8
_HEADER = _CHECKSUM + 4
"""Where these begin in a file."""


_HOLDERS: dict[type, str] = {bool: "b", int: "iufc", float: "fc", complex: "c"}
"""The kinds of dtypes that hold numbers of Python's."""


def _of_type(x: Any, aval: Aval) -> Any:
    """A number of Python's as one of the dtype of an argument without dimensions; others as they are."""
    scalar = type(x) in _HOLDERS and not aval.shape and not aval.weak_type and aval.dtype.kind in _HOLDERS[type(x)]
    return aval.dtype.type(x) if scalar else x


class Exported:
    """A traced function without its source: `call(*args)` runs it, `serialize()` writes it down."""

    def __init__(
        self,
        closed: ClosedJaxpr,
        in_tree: tree_util.PyTreeDef,
        out_tree: tree_util.PyTreeDef,
        scope: Scope | None = None,
        records: dict[str, kernels.Records] | None = None,
    ) -> None:
        self._closed, self._in_tree, self._out_tree, self._scope = closed, in_tree, out_tree, scope
        self._records = records or {}
        self._signature = Signature(closed, out_tree)
        self._member = None if scope is None else _member(closed, scope)

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

    @property
    def processors(self) -> tuple[str, ...]:
        """The processors that it has plans and machine code for."""
        return tuple(self._records)

    def call(self, *args: Any) -> Any:
        """The results for arguments of the types that it was exported for; TypeError for others. Nothing is traced.

        A number of Python's is one of the dtype of its argument, if that holds numbers of its kind. Types print as `f64[]`, those of numbers
        that programs were exported for as `~f64[]`.
        """
        leaves = self._leaves(args)
        return tree_util.tree_unflatten(self._out_tree, execute(self._for(leaves), leaves))

    def _leaves(self, args: tuple[Any, ...]) -> list[Any]:
        found, tree = tree_util.tree_flatten(list(args))
        if tree != self._in_tree:
            raise TypeError(f"exported for arguments of the structure {self._in_tree}, but called with {tree}")
        leaves = [as_leaf(_of_type(x, aval), args) for x, aval in zip(found, self.in_avals, strict=True)]
        avals = tuple(x.aval for x in leaves)
        alike = [a.structure for a in avals] == [a.structure for a in self.in_avals]
        if not alike or (self._member is None and avals != self.in_avals):
            weak = " (~: a number of Python's)" if any(a.weak_type for a in (*avals, *self.in_avals)) else ""
            raise TypeError(
                f"exported for arguments of types {list(self.in_avals)}, but called with {list(avals)}{weak}; export again for these"
            )
        self._signature.check(leaves)
        return leaves

    def _for(self, leaves: Sequence[Any]) -> Any:
        """The jaxpr for arguments of these extents."""
        if self._member is None:
            return self._closed
        values = self._member.find(extents_of(leaves))
        if values is None:
            asked = ", ".join(map(told, self._member.domain.guards))
            raise TypeError(
                f"exported for arguments of types {list(self.in_avals)}, but called with {[x.aval for x in leaves]}: extents of one name "
                f"must be equal, and at least 2{asked and f'; and it must hold that {asked}'}"
            )
        try:
            return self._member.at(values, leaves)
        except shapes.Refused:  # a pass of the compiler needs numbers: each shape is planned by itself
            numbers = dict(zip(self._member.codes, values, strict=True))
            change = lambda n: numbers[n.code] if isinstance(n, SymbolicDim) else n  # noqa: E731
            return ClosedJaxpr(resize.resized(self._member.closed.jaxpr, change), self._closed.consts)

    def with_kernels(self, *args: Any) -> Exported:
        """The same program, with the plans, LLVM text and machine code that a call with these arguments takes here: `serialize` writes them down, beside
        those for other processors that are there already. A process that loads them as trusted neither plans nor compiles.

        Plans depend on what was observed of the data (its extents and entries, by powers of four): call it again for data of another kind.

        The program runs once, and what else this process has planned is planned anew when it is next called.
        """
        self._leaves(args)
        data = Exported(self._closed, self._in_tree, self._out_tree, self._scope).serialize()
        made = kernels.recorded(lambda: deserialize(data).call(*args))
        known = self._records.get(made.processor)
        if known is not None and known.package == made.package:
            made = replace(made, known={**known.known, **made.known})
        records = {**self._records, made.processor: made}
        return Exported(self._closed, self._in_tree, self._out_tree, self._scope, records)

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
            "package": kernels.version(),
            "jaxpr": layout.encode_jaxpr(jaxpr),
            "symbols": None if self._scope is None else extents.encoded(self._scope),
            "tree": _tree(self._in_tree),
            "out_tree": _tree(self._out_tree),
            "consts": consts,
            "kernels": [
                kernels.encoded(r, lambda b: stored(np.frombuffer(b, np.uint8))) for r in self._records.values()
            ],
            "sha256": hashlib.sha256(body).hexdigest(),
        }
        text = json.dumps(header, separators=(",", ":")).encode()
        return headed(text) + bytes(body)


def headed(text: bytes) -> bytes:
    """What stands in a file before its buffers: `text` is the header."""
    first = MAGIC + bytes([VERSION]) + len(text).to_bytes(8, "little")
    behind = text + bytes(-(_HEADER + len(text)) % ALIGNED)
    return first + zlib.crc32(behind, zlib.crc32(first)).to_bytes(4, "little") + behind


def _member(closed: ClosedJaxpr, scope: Scope) -> shapes.Member:
    """What finds the program for given extents. LayoutError where the program depends on an extent itself."""
    _open(scope)
    stands = [n for a in closed.in_avals for n in a.shape]
    try:
        made = shapes.Member.of(closed, scope, stands, None)
    except (shapes.Refused, ValueError) as error:
        raise LayoutError(
            f"the program cannot serve many shapes: {error}; export it with numbers as extents"
        ) from error
    _open(scope)
    return made


def _open(scope: Scope) -> None:
    """LayoutError where an extent with a name is none that may be of any size."""
    if scope.solved:
        name, (terms, line) = next(iter(scope.solved.items()))
        number = all(not atoms for atoms, _ in terms)
        needs = "is needed itself" if number else f"must be {SymbolicDim(scope, terms)}"
        raise LayoutError(f"the extent {name} {needs} at {line}; export the program with numbers in its place")


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

    Extents may have names; the program then serves all shapes for which what it asked of them while it was traced holds.

    >>> types = sj.ShapeDtypeStruct(("n", "m"), "float64", format="csr"), sj.ShapeDtypeStruct(("m",), "float64")
    >>> program = export(sj.jit(lambda A, x: A @ x))(*types)
    >>> program.call(sj.array(np.eye(5)[:2], format="csr"), np.ones(5))
    Array([1., 1.], dtype=float64)
    """
    jitted = function if isinstance(function, JitFunction) else api.jit(function)

    def exported(*types: Any) -> Exported:
        leaves, tree = tree_util.tree_flatten(list(types))
        known = extents.named([x.aval for x in leaves if isinstance(x, ShapeDtypeStruct)])
        scope = None
        if known is not None:
            scope, avals = known[0], iter(known[1])
            leaves = [struct(next(avals)) if isinstance(x, ShapeDtypeStruct) else x for x in leaves]
            types = tuple(tree_util.tree_unflatten(tree, leaves))
        try:
            traced = jitted.trace(*types)
        except Exception:
            if scope is not None and scope.solved:  # the program failed for want of a number
                _open(scope)
            raise
        return Exported(traced.jaxpr, tree, tree_util.tree_structure(traced.out_info), scope)

    return exported


def deserialize(data: bytes | bytearray | memoryview, *, trusted: bool = False) -> Exported:
    """The program that bytes hold. LayoutError for what is no program, damaged, or written by a version with another layout. Runs no code of the file.

    With `trusted`, plans and machine code of the file are used: machine code can do anything, so only for files of your own. LayoutError where
    it has some and none for this processor, or they are of another version of this package.
    """
    view = memoryview(data).cast("B")
    if bytes(view[: len(MAGIC)]) != MAGIC or len(view) < _HEADER:
        raise LayoutError("these bytes are no exported program of sparsejax")
    if view[len(MAGIC)] != VERSION:
        raise LayoutError(
            f"an exported program of layout {view[len(MAGIC)]}; this version of sparsejax reads layout {VERSION}: export it again"
        )
    end = _HEADER + int.from_bytes(view[_LENGTH:_CHECKSUM], "little")
    behind = end + -end % ALIGNED
    checksum = int.from_bytes(view[_CHECKSUM:_HEADER], "little")
    if len(view) < behind or zlib.crc32(view[_HEADER:behind], zlib.crc32(view[:_CHECKSUM])) != checksum:
        raise LayoutError("an exported program whose header is damaged, or cut short: its checksum is another one")
    try:
        header, body = json.loads(bytes(view[_HEADER:end])), view[behind:]
        if hashlib.sha256(body).hexdigest() != header["sha256"]:
            raise LayoutError("an exported program whose buffers are damaged")
        scope = None if header["symbols"] is None else extents.decoded(header["symbols"])
        jaxpr = layout.decode_jaxpr(header["jaxpr"], scope)
        check_jaxpr(jaxpr)
        consts = tuple(_const(c, body) for c in header["consts"])
        _check_consts(jaxpr.consts, consts)
        closed = ClosedJaxpr(Jaxpr(jaxpr.inputs, jaxpr.consts, jaxpr.eqns, jaxpr.outputs), consts)
        found = [kernels.decoded(k, body) for k in header["kernels"]]
        made = Exported(
            closed, _structure(header["tree"]), _structure(header["out_tree"]), scope, {r.processor: r for r in found}
        )
    except LayoutError:
        raise
    except (
        KeyError,
        ValueError,
        TypeError,
        IndexError,
        AttributeError,
        OverflowError,
        SyntaxError,
        RecursionError,
    ) as error:
        raise LayoutError(f"an exported program whose header is damaged: {type(error).__name__}: {error}") from error
    if trusted and found:
        kernels.use(found)
    return made


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
