"""`insum`: from checked lines to statements of `lax.indirect`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sparsejax import dtypes
from sparsejax.core.again import again
from sparsejax.core.array import Array
from sparsejax.core.avals import Aval, scalar_aval
from sparsejax.core.primitive import asarray, weak_scalar
from sparsejax.core.roads import REMEMBERED
from sparsejax.core.symbolic import span
from sparsejax.core.trace import current, is_python_scalar
from sparsejax.formats import Format
from sparsejax.insum import check, functions, parse
from sparsejax.insum.parse import Constant, Line, Name, Node, Op, Whole
from sparsejax.jit.ir import operators
from sparsejax.lax.elementwise import BINARY, UNARY, convert_element_type, elementwise, loop_dtypes
from sparsejax.lax.extents import coordinates, extent, is_known
from sparsejax.lax.indirect import kernels, rules  # noqa: F401  (derivatives and batches)
from sparsejax.lax.indirect.statements import Apply, Expr, Index, Number, Ref, Statement
from sparsejax.lax.linear import empty, full
from sparsejax.lax.structural import convert_format

ALIASES = {
    "abs": "absolute",
    "acos": "arccos",
    "acosh": "arccosh",
    "asin": "arcsin",
    "asinh": "arcsinh",
    "atan": "arctan",
    "atan2": "arctan2",
    "atanh": "arctanh",
    "bitwise_invert": "invert",
    "bitwise_not": "invert",
    "bitwise_left_shift": "left_shift",
    "bitwise_right_shift": "right_shift",
    "conj": "conjugate",
    "mod": "remainder",
    "pow": "power",
    "true_divide": "divide",
}
SIGNS = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide", "neg": "negative"}
BOOLEAN = {"add": "logical_or", "maximum": "logical_or", "multiply": "logical_and", "minimum": "logical_and"}


def insum(text: str, /, *, returns: str | Sequence[str] | None = None, **operands: Any) -> Any:
    """Indirect einsums: loops over index variables, in which an index may be an entry of an array of integers.

        C[D[y],x] += A[y,E[r]] * B[r,x]          access op expr, op one of = += *= max= min=; a line each, # starts a comment

    For every combination of all variables of a line, the target `op=` the value of the whole right-hand side. `=` forgets the target and adds up
    from 0; a target that is not given starts from what the operator starts from (0, 1, or the least or largest number), and its axes are
    variables. Operands are never changed: the new target is returned, that of the last line; with `returns`, those that it names. Later
    lines see what earlier ones made.

    On the right stand + - * /, parentheses, numbers, elementwise functions of `sparsejax.numpy` by name, accesses, names of arrays of no
    dimensions, and variables (their value). An index is a variable, an integer, or an access of an array of integers, to any depth. A variable
    runs over the axes at which it stands directly, which must agree. Negative indices count from the end.

    Sparse operands mean what their dense forms mean; a sparse array of integers as an index visits only what it stores. A sparse target stays
    sparse. `op=` keeps the dtype of a target that is given; one that is not has that of the right-hand side.

    Raises ValueError, with a caret, for text that has another form, unknown names, numbers of axes, extents that differ, or a
    shape that nothing tells; TypeError for an operand that no line names, and dtypes that NumPy's in-place operators refuse; IndexError for
    index arrays that are no integers, and for indices out of bounds (of those that are read, and of all that are read).

    Work: the combinations of variables, of which sparse operands leave what they store. Nothing as large as gathered operands is stored.
    Source: "Insum: Sparse GPU Kernels Simplified and Optimized with Indirect Einsums".

    >>> import numpy as np
    >>> K, V = np.array([[1, 2], [0, 1]]), np.array([[5.0, 7.0], [1.0, 2.0]])
    >>> insum("C[p] = V[p,q] * x[K[p,q]]", K=K, V=V, x=np.array([1.0, 10.0, 100.0]))
    Array([750.,  21.], dtype=float64)
    >>> insum("hist[bin[n]] += 1", hist=np.zeros(3, int), bin=np.array([0, 2, 2]))
    Array([1, 0, 2], dtype=int64)
    """
    if type(text) is str and (type(returns) is str or returns is None):
        begun = {}
        if current() is None:
            begun = {n: x._aval for n, op in _begun(text) if type(x := operands.get(n)) is Array and _is_start(x, op)}
        names = tuple(sorted(n for n in operands if n not in begun) if begun else sorted(operands))
        return _remembered(text, returns, names, tuple(begun.items()))(*[operands[n] for n in names])
    return _insum(text, returns, operands)


@functools.lru_cache(REMEMBERED)
def _remembered(
    text: str, returns: str | None, names: tuple[str, ...], begun: tuple[tuple[str, Aval], ...]
) -> Callable[..., Any]:
    """A text as a function of the operands of these names: at once, a call with types that come back goes straight to its plan. The targets
    `begun` hold what their operators start from."""
    ops = dict(_begun(text)) if begun else {}

    def of_operands(*operands: Any) -> Any:
        made = {n: _start(aval, ops[n]) for n, aval in begun}
        return _insum(text, returns, {**dict(zip(names, operands, strict=True)), **made})

    return again(len(names))(of_operands)


@functools.lru_cache(REMEMBERED)
def _begun(text: str) -> tuple[tuple[str, str], ...]:
    """The names of a text that are targets and nothing else, each of one line, with the operators that accumulate there."""
    try:
        lines = parse.parse(text)
    except ValueError:
        return ()  # the fault is shown where the text is read
    read = [name.name for line in lines for a in (line.target, *check.accesses(line.value)) for name in check.nested(a)]
    read += [a.name for line in lines for a in check.accesses(line.value)]
    targets = [line.target.name for line in lines]
    return tuple(
        (line.target.name, parse.OPERATORS[line.op])
        for line in lines
        if line.op != "=" and line.target.name not in read and targets.count(line.target.name) == 1
    )


def _is_start(given: Array, op: str) -> bool:
    """Whether a target holds what its operator starts from, so that one program serves all of its type."""
    return _starts(given, BOOLEAN[op] if given.dtype.kind == "b" else op, each_once=False)


def _start(aval: Aval, op: str) -> Any:
    """A target of this type that holds what its operator starts from."""
    if not aval.format.is_dense:
        return empty(aval)
    nothing = operators.get(BOOLEAN[op] if aval.dtype.kind == "b" else op).identity(aval.dtype)
    return convert_format(full(aval, nothing), aval.format)


def _insum(text: str, returns: str | Sequence[str] | None, operands: Mapping[str, Any]) -> Any:
    lines = parse.parse(text)
    traced = current() is not None
    arrays = {k: _operand(k, x, traced) for k, x in operands.items()}
    _all_named(lines, arrays)
    made: dict[str, Any] = {}
    for line in lines:
        known = {**arrays, **made}
        made[line.target.name] = _Builder(check.check(line, known), known).run()
    if returns is None:
        return made[lines[-1].target.name]
    wanted = [returns] if isinstance(returns, str) else list(returns)
    for name in wanted:
        if name not in made:
            raise ValueError(f"returns={returns!r}: {name} is the target of no line; these are {', '.join(made)}")
    return made[wanted[0]] if isinstance(returns, str) else tuple(made[n] for n in wanted)


def _operand(name: str, x: Any, traced: bool) -> Any:
    """An operand as an array; TypeError, which names it, for what is none."""
    if is_python_scalar(x):
        return weak_scalar(x)
    try:
        return asarray(x, f"operand {name}", keep=traced)
    except TypeError as error:
        said = str(error)
        raise TypeError(said if name in said.split() else f"argument {name}: {said}") from None


def _all_named(lines: Sequence[Line], arrays: Mapping[str, Any]) -> None:
    named: set[str] = set()
    for line in lines:
        for name in (line.target, *check.accesses(line.value)):
            named |= {name.name, *(n.name for n in check.nested(name)), *(v.name for v in check.variables(name))}
    for operand in arrays:
        if operand not in named:
            known = set(arrays)
            for line in lines:  # what it was meant for may be written in another way
                check.known(line, known)
                known.add(line.target.name)
            text = "".join(f"\n  {line.text}" for line in lines)
            raise TypeError(f"insum() got an operand {operand!r} that the text does not name{text}")


class _Builder:
    """One line over arrays."""

    def __init__(self, checked: check.Checked, arrays: Mapping[str, Any]) -> None:
        self.checked = checked
        self.line = checked.line
        self.known = arrays
        self.names = list(arrays)
        self.arrays = [arrays[n] for n in self.names]
        self.places = dict.fromkeys(self.names, "")
        self.iotas: dict[str, int] = {}
        self.sparse: dict[Ref, None] = {}

    def run(self) -> Any:
        line, given = self.line, self.known.get(self.line.target.name)
        op = parse.OPERATORS[line.op]
        value, aval = self.value(line.value)
        value = self.cast(value, aval, aval.dtype)
        sparse = given is not None and not given.format.is_dense
        target = self.target(sparse)
        dtype = aval.dtype if given is None else self.kept(op, given, aval)
        if dtype.kind == "c" and op in ("maximum", "minimum"):
            parse.fault(
                line.text, line.target.at, f"{line.op} orders no complex numbers: the dtype is {dtype}", TypeError
            )
        op = BOOLEAN[op] if dtype.kind == "b" else op
        statement = Statement(
            op,
            target,
            self.checked.shape,
            value,
            tuple(self.sparse),
            tuple(self.checked.extents.items()),
            dtype,
            given.format if given is not None and sparse else None,
        )
        read = given is not None and line.op != "=" and not _starts(given, op, statement.each_once())
        if given is not None and not read and op == "add":  # a sparse result would be converted behind the kernel
            statement = statement.with_(format=given.format)
        names = [kernels.Label(n, self.places.get(n, "")) for n in self.names]
        made = kernels.insum(self.arrays, statement, names, line.target.name)
        if given is None:
            return made
        if line.op == "=":
            return convert_format(made, given.format)
        if read:
            made = elementwise(op, given, made)
        return convert_format(convert_element_type(made, dtype), given.format)

    def kept(self, op: str, given: Any, aval: Aval) -> np.dtype[Any]:
        """The dtype of a target that is given; TypeError where NumPy's operator would not keep it."""
        own: np.dtype[Any] = given.dtype
        _, made = loop_dtypes(op, (_scalar(own), aval)) if self.line.op != "=" else ((), aval.dtype)
        if aval.weak_type and self.line.op == "=" and np.can_cast(type(_zero(aval.dtype)), own, "same_kind"):
            return own
        if not np.can_cast(made, own, "same_kind"):
            message = f"{self.line.target.name} is of {own}, and the right-hand side of {aval.dtype}, which {self.line.op} does not cast to it"
            parse.fault(self.line.text, self.line.target.at, message, TypeError)
        return own

    def target(self, sparse: bool) -> tuple[Index, ...]:
        """The indices of the target, none a constant where it is sparse; a variable that stands there again is read from an array that holds its values."""
        made: list[Index] = []
        for index, size in zip(self.line.target.indices or (), self.checked.shape, strict=True):
            found = self.index(index, size)
            if isinstance(found, int) and sparse:
                self.arrays.append(asarray(np.asarray(found)))
                self.names.append(f"{found}")
                found = Ref(len(self.arrays) - 1, ())
            made.append(Ref(self.iota(found), (found,)) if isinstance(found, str) and found in made else found)
        return tuple(made)

    def index(self, index: Name | Whole, size: int) -> Index:
        if isinstance(index, Whole):
            return index.value if index.value >= 0 else self.from_end(index.value, size)
        if index.indices is None:
            return index.name
        made = self.ref(index)
        if not self.arrays[made.array].format.is_dense:
            self.sparse[made] = None
        return made

    def from_end(self, value: int, size: int) -> Index:
        """A negative constant as an index: a number, or an operand that holds it where an extent is a symbol."""
        if is_known((size,)):
            return value + size
        name = f"{value} of {size}"
        if name not in self.names:
            self.arrays.append(asarray(extent(size) + value))
            self.names.append(name)
        return Ref(self.names.index(name), ())

    def ref(self, name: Name) -> Ref:
        number = self.names.index(name.name)
        self.places[name.name] = self.places[name.name] or parse.pointer(self.line.text, name.at)
        shape = self.arrays[number].shape
        return Ref(number, tuple(self.index(ix, n) for ix, n in zip(name.indices or (), shape, strict=True)))

    def iota(self, var: str) -> int:
        """The operand that holds the values of a variable."""
        if var not in self.iotas:
            self.iotas[var] = len(self.arrays)
            self.arrays.append(asarray(coordinates(span(0, self.checked.extents[var]))))
            self.names.append(f"{var}'")
        return self.iotas[var]

    def value(self, node: Node) -> tuple[Expr, Aval]:
        """An expression with its type: that of a number, or an array of no dimensions."""
        if isinstance(node, Constant):
            aval = scalar_aval(node.value, is_literal=True)
            return Number(aval.dtype.type(node.value), aval.dtype), aval
        if isinstance(node, Name):
            if node.indices is None and node.name in self.checked.extents:
                return Ref(self.iota(node.name), (node.name,)), _scalar(np.dtype(np.int64))
            made = self.ref(node)
            array = self.arrays[made.array]
            return made, _scalar(array.dtype, array.aval.weak_type)
        return self.call(node)

    def call(self, node: Op) -> tuple[Expr, Aval]:
        op = SIGNS.get(node.op) or ALIASES.get(node.op, node.op)
        if op in functions.NAMES:
            made = [self.value(a) for a in node.args]
            try:
                found, aval = functions.applied(op, [x for x, _ in made], [a for _, a in made])
            except TypeError as error:
                parse.fault(self.line.text, node.at, f"{op}: {error}", TypeError)
            return found, _scalar(aval.dtype, aval.weak_type)
        arity = 3 if op == "where" else 1 if op in UNARY else 2 if op in BINARY else 0
        if not arity:
            parse.fault(
                self.line.text,
                node.at,
                f"unknown function {node.op}: elementwise functions of sparsejax.numpy are known",
            )
        if len(node.args) != arity:
            parse.fault(
                self.line.text, node.at, f"{node.op} takes {arity} argument{'s' * (arity > 1)}, not {len(node.args)}"
            )
        made = [self.value(a) for a in node.args]
        avals = [a for _, a in made]
        weak = all(a.weak_type for a in avals[-2:])
        if op == "where":
            dtype = dtypes.result_type(*((a.dtype, a.weak_type) for a in avals[1:]))
            wanted: Sequence[np.dtype[Any]] = (np.dtype(np.bool_), dtype, dtype)
        else:
            try:
                wanted, dtype = loop_dtypes(op, tuple(avals))
            except TypeError as error:
                parse.fault(self.line.text, node.at, str(error), TypeError)
        args = tuple(self.cast(x, a, d) for (x, a), d in zip(made, wanted, strict=True))
        return Apply(op, args, dtype), _scalar(dtype, weak)

    def cast(self, expr: Expr, aval: Aval, dtype: np.dtype[Any]) -> Expr:
        if isinstance(expr, Number):
            return Number(dtype.type(expr.value), dtype)
        return expr if aval.dtype == dtype else Apply("cast", (expr,), dtype)


PIECE = 1 << 14
"""Elements of a target that are looked at together: of most targets, these tell."""


def _starts(given: Any, op: str, each_once: bool) -> bool:
    """Whether a target that is given is known, and holds nothing but what its operator starts from: it need not be read then.

    Zeros and no sum are not nothing: 0.0 + -0.0 is 0.0. O(elements) where it is, once per array.
    """
    if type(given) is not Array or (op == "add" and each_once and given.dtype.kind in "fc"):
        return False
    nothing, storage = operators.get(op).identity(given.dtype), given._storage
    if not given.format.is_dense:
        return not storage.nnz and bool(given.fill_value == nothing)
    key = "starts", op
    if key not in storage.cache:
        pieces = (storage.vals[k : k + PIECE] for k in range(0, len(storage.vals), PIECE))
        bits = op == "add"  # of zeros, those that have a sign keep it where nothing is added
        storage.cache[key] = all(not p.view(np.uint8).any() if bits else (p == nothing).all() for p in pieces)
    return bool(storage.cache[key])


def _scalar(dtype: np.dtype[Any], weak: bool = False) -> Aval:
    return Aval((), dtype, Format(()), 0, weak)


def _zero(dtype: np.dtype[Any]) -> Any:
    return dtype.type(0).item()
