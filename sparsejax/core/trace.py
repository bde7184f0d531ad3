"""Tracing: running a function on tracers and writing down what it does.

Traces form a stack per thread; dispatch looks at the stack alone, never at the data (`primitive.bind`). Concrete arrays
that a traced function closes over become constants of its jaxpr.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from sparsejax import errors
from sparsejax.core import source
from sparsejax.core.array import Array
from sparsejax.core.avals import Aval, scalar_aval
from sparsejax.core.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from sparsejax.core.methods import ArrayBase
from sparsejax.core.source import user_line

_OF_ARRAYS = frozenset(dir(Array)) - frozenset(dir(ArrayBase))
"""What arrays have that traced values have not."""


class Tracer(ArrayBase):
    """A stand-in for an array while a function is traced: it has a type, but no data."""

    __slots__ = ("_aval", "_trace", "source", "variable")

    _aval: Aval
    _trace: Trace
    variable: Var
    source: str

    def __init__(self, trace: Trace, var: Var) -> None:
        put = object.__setattr__
        put(self, "_aval", var.aval)
        put(self, "_trace", trace)
        put(self, "variable", var)
        put(self, "source", user_line())

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"traced values are immutable; cannot set attribute {name!r}")

    def __copy__(self) -> Tracer:
        return self

    def __deepcopy__(self, memo: Any) -> Tracer:
        return self

    def __reduce__(self) -> NoReturn:
        self._fail(errors.ConcretizationTypeError, "Attempted to pickle", "Pickle the function's results instead.")

    @property
    def aval(self) -> Aval:
        return self._aval

    @property
    def maker(self) -> Trace:
        """The trace that made the value."""
        return self._trace

    def __repr__(self) -> str:
        return f"Tracer<{self._aval}>"

    def _fail(self, error: type[Exception], what: str, mend: str) -> NoReturn:
        if not self._trace.open:
            leaked(self)
        raise error(
            f"{what} a traced value of type {self._aval} at {user_line()}.\n"
            f"The value was made at {self.source} while a function was being traced: it has a type, but no data yet. {mend}"
        )

    def __getattr__(self, name: str) -> NoReturn:
        if name in _OF_ARRAYS:
            self._fail(
                AttributeError,
                f"Attempted to read .{name} of",
                "Arrays have it outside of traced functions: return the array and read it there, or use functions of sparsejax.numpy.",
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __bool__(self) -> bool:
        self._fail(
            errors.TracerBoolConversionError,
            "Attempted boolean conversion of",
            "Use sparsejax.numpy.where to choose between values, or mark the argument static with static_argnums.",
        )

    def __int__(self) -> int:
        self._fail(
            errors.ConcretizationTypeError, "Attempted int() of", "Compute it outside jit, or mark the argument static."
        )

    def __float__(self) -> float:
        self._fail(
            errors.ConcretizationTypeError,
            "Attempted float() of",
            "Compute it outside jit, or mark the argument static.",
        )

    def __complex__(self) -> complex:
        self._fail(
            errors.ConcretizationTypeError,
            "Attempted complex() of",
            "Compute it outside jit, or mark the argument static.",
        )

    def __index__(self) -> int:
        self._fail(
            errors.TracerIntegerConversionError,
            "Attempted to use as a Python integer",
            "Mark the argument static with static_argnums.",
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if source.in_scipy_operator():
            return source.as_object(self)
        self._fail(
            errors.TracerArrayConversionError,
            "Attempted conversion to a NumPy array of",
            "Use sparsejax.numpy instead of numpy.",
        )

    def __iter__(self) -> Iterator[Any]:
        """The parts along the first dimension: Python's loops are unrolled, as in JAX. ConcretizationTypeError without dimensions."""
        if not self._aval.shape:
            self._fail(
                errors.ConcretizationTypeError, "Attempted to iterate over", "Write the loop as an array operation."
            )
        return iter([self[k] for k in range(self._aval.shape[0])])

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError("sparsejax arrays are immutable; x.at[key].set(values) gives a new array")

    def item(self) -> Any:
        self._fail(
            errors.ConcretizationTypeError, "Attempted .item() of", "Return the value from the traced function instead."
        )

    def todense(self) -> Any:
        self._fail(
            errors.TracerArrayConversionError,
            "Attempted .todense() of",
            "Inside a traced function use .asformat('dense'), or call .todense() on the result.",
        )

    @property
    def nnz(self) -> int:
        self._fail(
            errors.ConcretizationTypeError,
            "Attempted to read .nnz of",
            "How many entries are stored is known at run time: sparsejax.lax.entries(A) gives it as a traced number.",
        )

    @property
    def nbytes(self) -> int:
        self._fail(
            errors.ConcretizationTypeError, "Attempted to read .nbytes of", "Read it outside the traced function."
        )

    @property
    def storage(self) -> Any:
        self._fail(
            errors.ConcretizationTypeError,
            "Attempted to read .storage of",
            "Read it outside the traced function; sparsejax.lax.pattern(A) has ones where A stores entries.",
        )

    def to_scipy(self, copy: bool = False) -> Any:
        self._fail(
            errors.TracerArrayConversionError,
            "Attempted .to_scipy() of",
            "Call it on the result of the traced function.",
        )


def leaked(value: Tracer) -> NoReturn:
    """Raise for a tracer outside its function."""
    state = "of another trace" if value.maker.open else "whose trace has ended"
    raise errors.UnexpectedTracerError(
        f"Encountered a traced value of type {value.aval} {state} at {user_line()}.\n"
        f"It was made at {value.source} and has leaked out of its function, perhaps through a global, a list or an "
        "attribute. Return it from the function instead."
    )


class Trace:
    """One function being traced. One that `captures` may read values of the traces around it: they become constants."""

    def __init__(self, captures: bool = False) -> None:
        self.eqns: list[Eqn] = []
        self.open = True
        self.captures = captures
        self._consts: dict[int, tuple[Var, Array | Tracer]] = {}

    def input(self, aval: Aval) -> Tracer:
        return Tracer(self, Var(aval))

    def atom(self, value: Any) -> Atom:
        """`value` (tracer, array or Python scalar) as an atom of this trace."""
        if isinstance(value, Tracer):
            if value.maker is not self:
                if not (self.captures and value.maker in stack.traces):
                    leaked(value)
                return self._const(value)
            return value.variable
        if isinstance(value, Array):
            return self._const(value)
        return Literal(value, scalar_aval(value, is_literal=True))

    def _const(self, value: Array | Tracer) -> Var:
        if id(value) not in self._consts:
            self._consts[id(value)] = (Var(value.aval), value)
        return self._consts[id(value)][0]

    def finish(self, inputs: list[Tracer], outputs: list[Any]) -> tuple[Jaxpr, tuple[Any, ...]]:
        """The jaxpr and its constants: arrays, and values of the traces around this one."""
        self.open = False
        outs = tuple(self.atom(o) for o in outputs)
        pairs = list(self._consts.values())
        jaxpr = Jaxpr(tuple(t.variable for t in inputs), tuple(v for v, _ in pairs), tuple(self.eqns), outs)
        return jaxpr, tuple(a for _, a in pairs)


class _Stack(threading.local):
    def __init__(self) -> None:
        self.traces: list[Trace] = []


stack = _Stack()


def current() -> Trace | None:
    """The innermost trace of this thread, or None when running eagerly."""
    return stack.traces[-1] if stack.traces else None


@contextmanager
def tracing(captures: bool = False) -> Iterator[Trace]:
    """Make a new trace the current one."""
    trace = Trace(captures)
    stack.traces.append(trace)
    try:
        yield trace
    finally:
        stack.traces.pop()
        trace.open = False


@contextmanager
def eagerly() -> Iterator[None]:
    """Run with no current trace, e.g. while a compiled function executes inside a callback."""
    saved, stack.traces = stack.traces, []
    try:
        yield
    finally:
        stack.traces = saved


class _Plain(list[Any]):
    """A stack of traces that is never empty for those who ask, so that jitted functions run as they are written."""

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(key) if len(self) else None


@contextmanager
def disable_jit(disable: bool = True) -> Iterator[None]:
    """Inside the `with` block, in this thread, jitted functions run as they are written, operation by operation, so that values can be
    printed and Python's debugger be used; derivatives and batches still trace.

    >>> with disable_jit():
    ...     pass
    """
    if not disable:
        yield
        return
    saved, stack.traces = stack.traces, _Plain(stack.traces)
    try:
        yield
    finally:
        stack.traces = saved


def is_traced(value: Any) -> bool:
    """Whether `value` is a tracer of a function that is being traced now, in this thread."""
    return isinstance(value, Tracer) and value.maker in stack.traces


def is_python_scalar(value: Any) -> bool:
    """Whether `value` is a plain Python number (weakly typed), not a NumPy scalar."""
    return isinstance(value, bool | int | float | complex) and not isinstance(value, np.generic)
