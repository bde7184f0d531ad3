"""The stages of a function that is compiled ahead of its calls: `Traced`, `Lowered`, `Compiled`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from sparsejax import tree_util
from sparsejax.core import primitive, trace
from sparsejax.core.array import Array
from sparsejax.core.avals import Aval, ShapeDtypeStruct
from sparsejax.core.jaxpr import ClosedJaxpr
from sparsejax.core.symbolic import SymbolicDim
from sparsejax.core.trace import Tracer
from sparsejax.errors import ConcretizationTypeError
from sparsejax.formats import scipy_io
from sparsejax.jit.inspect import report, stages
from sparsejax.jit.runtime import plans
from sparsejax.jit.runtime.signature import Signature


@dataclass(frozen=True)
class Call:
    """A function traced for one signature: the trace, the leaves of its arguments, their tree, the numbers of those that are donated."""

    traced: Signature
    leaves: list[Any]
    tree: tree_util.PyTreeDef
    donated: tuple[int, ...]


class Traced:
    """A function traced for one signature."""

    def __init__(self, call: Call) -> None:
        self._call, self._traced, self._leaves = call, call.traced, call.leaves

    @property
    def jaxpr(self) -> ClosedJaxpr:
        return self._traced.closed

    @property
    def out_info(self) -> Any:
        """Types of the results, in their tree."""
        return tree_util.tree_unflatten(self._traced.out_tree, [struct(a) for a in self._traced.closed.out_avals])

    def lower(self) -> Lowered:
        """Planned; with types that name extents, as far as its jaxpr."""
        return Lowered(self._call)


class Lowered:
    """A function planned for one signature."""

    def __init__(self, call: Call) -> None:
        self._call, self._traced, self._leaves = call, call.traced, call.leaves

    def as_text(self, stage: str = "cin") -> str:
        """What a stage of the compiler made of the function: "jaxpr", "plan", "cin", "loops", "llvm" or "asm".

        All but "jaxpr" depend on the arrays' statistics, so the function must have been lowered with arrays.
        """
        stages.check(stage)
        if stage != "jaxpr" and not has_data((*self._leaves, *self._traced.closed.consts)):
            raise ValueError(
                f"stage {stage!r} depends on the data's statistics; lower with arrays instead of types or traced values"
            )
        closed = self._traced.closed
        return stages.as_text(closed, lambda: stages.parts_on(closed, self._leaves), stage)

    def cost_analysis(self) -> dict[str, float]:
        """What the function costs on the arrays it was lowered with, under JAX's names: "flops", "bytes accessed", and the expected
        "entries" of its results (see `report`). The function runs once. ValueError when it was lowered with types.

        >>> import numpy as np, sparsejax as sj
        >>> A = sj.array(np.eye(10), format="csr", copy=True)
        >>> sj.jit(lambda A, X: A @ X).lower(A, np.ones((10, 4))).cost_analysis()["flops"]  # 10 entries, 4 columns, * and +
        80.0
        """
        return self._report().cost()

    def _report(self) -> report.Report:
        if not has_data((*self._leaves, *self._traced.closed.consts)):
            raise ValueError("costs depend on the data; lower with arrays instead of types or traced values")
        return report.report(self._traced.closed, self._leaves)

    def compile(self) -> Compiled:
        """Ready to run. ValueError for types that name extents: plans are for numbers."""
        named = [n for x in self._leaves for n in x.shape if isinstance(n, SymbolicDim)]
        if named:
            raise ValueError(f"plans depend on data: lower with numbers in place of the extents {named}")
        return Compiled(self._call)


class Compiled:
    """A function ready to run on arguments of the types and the structure it was compiled for (without the static ones)."""

    def __init__(self, call: Call) -> None:
        traced, leaves = call.traced, call.leaves
        if not has_data(traced.closed.consts):
            raise ConcretizationTypeError(
                "a function that reads values of a traced function around it cannot be compiled alone; pass them as arguments"
            )
        self._traced, self._tree, self._donated = traced, call.tree, call.donated
        self._avals = [x.aval for x in leaves]
        self._report = report.report(traced.closed, leaves) if has_data(leaves) else None

    def __copy__(self) -> Compiled:
        return self

    def __deepcopy__(self, memo: Any) -> Compiled:
        return self

    def __reduce__(self) -> Any:
        raise TypeError(
            "machine code belongs to its process: pickle the jitted function, which is compiled again where it is loaded"
        )

    def as_text(self, stage: str = "asm") -> str:
        """The machine code of its kernels, as assembly, or what another stage of the compiler made of them: "jaxpr", "plan", "cin",
        "loops" or "llvm", as `Lowered.as_text`. ValueError for other stages, and for all but "jaxpr" when it was compiled for types.

        >>> import numpy as np, sparsejax as sj
        >>> A = sj.array(np.eye(10), format="csr", copy=True)
        >>> compiled = sj.jit(lambda A, x: A @ x).lower(A, np.ones(10)).compile()
        >>> "ret" in compiled.as_text()
        True
        >>> print(compiled.as_text("jaxpr"))
        { lambda ; a:f64[10:d,10:c] b:f64[10:d]. let
            c:f64[10:d] = contract[ij,j->i] a b
          in (c,) }
        """
        stages.check(stage)
        return stages.as_text(self._traced.closed, lambda: self._known_report(f"stage {stage!r} depends").parts, stage)

    def cost_analysis(self) -> dict[str, float]:
        """As `Lowered.cost_analysis`."""
        return self._known_report().cost()

    def memory_analysis(self) -> report.MemoryStats:
        """Bytes of arguments, results and temporaries on the arrays it was compiled for; results and temporaries of kernels as
        forecast. ValueError when it was compiled for types.
        """
        return self._known_report().memory()

    def _known_report(self, what: str = "costs depend") -> report.Report:
        if self._report is None:
            raise ValueError(f"{what} on the data; compile for arrays instead of types")
        return self._report

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        found, tree = tree_util.tree_flatten((list(args), kwargs))
        if tree != self._tree:
            raise TypeError(f"compiled for arguments of the structure {self._tree}, but called with {tree}")
        leaves = [as_leaf(x, args, kwargs) for x in found]
        avals = [x.aval for x in leaves]
        if avals != self._avals:
            raise TypeError(
                f"compiled for arguments of types {self._avals}, but called with {avals}; compile again for these"
            )
        self._traced.check(leaves)
        given = once((n, found[n]) for n in self._donated)
        return tree_util.tree_unflatten(self._traced.out_tree, plans.execute(self._traced.closed, leaves, given))


def once(leaves: Iterable[tuple[int, Any]]) -> list[int]:
    """The numbers of those leaves that are arrays of ours, each array once."""
    return list({id(leaf): number for number, leaf in leaves if isinstance(leaf, Array)}.values())


def has_data(values: Sequence[Any]) -> bool:
    return all(isinstance(x, Array) for x in values)


def viewed(
    value: np.ndarray[Any, Any], function: Callable[..., Any], number: int, positional: int, names: Sequence[str]
) -> Array:
    """An array of NumPy's that is an argument of `function`, the first ones given by position, the others by these names.

    TypeError, which calls it as the user does, for a dtype that is not supported.
    """
    try:
        return primitive.view(value)
    except TypeError as error:
        name = names[number - positional] if number >= positional else _parameter(function, number)
        raise TypeError(f"argument {name}: {error}") from None


def _parameter(function: Callable[..., Any], number: int) -> str:
    try:
        parameters = [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):  # functions of C
        return str(number)
    one = number < len(parameters) and parameters[number].kind.name.startswith("POSITIONAL_O")
    return parameters[number].name if one else str(number)


def _place(leaf: Any, args: Sequence[Any], kwargs: Mapping[str, Any], function: Callable[..., Any] | None) -> str:
    """Which argument a leaf is in, as the user calls it, and where."""
    given = [(str(k) if function is None else _parameter(function, k), a) for k, a in enumerate(args)]
    for name, argument in (*given, *kwargs.items()):
        for place, x in tree_util.leaves_with_paths(argument, name):
            if x is leaf:
                return place
    return ""


def as_leaf(
    leaf: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] = MappingProxyType({}),
    function: Callable[..., Any] | None = None,
) -> Any:
    """A leaf of the arguments of `function` as an Array (weakly typed for Python numbers)."""
    if isinstance(leaf, Array):
        return leaf
    if isinstance(leaf, Tracer):
        trace.leaked(leaf)
    if trace.is_python_scalar(leaf):
        return primitive.weak_scalar(leaf)
    try:
        if isinstance(leaf, np.ndarray | np.generic) or scipy_io.is_scipy(leaf):
            return primitive.view(leaf)
    except TypeError as error:  # a dtype that is not supported
        raise TypeError(f"argument {_place(leaf, args, kwargs, function)}: {error}") from None
    place = _place(leaf, args, kwargs, function)
    if isinstance(leaf, ShapeDtypeStruct):
        raise TypeError(f"argument {place} is a {leaf}, which has no data; use .trace, .lower or eval_shape with types")
    raise TypeError(
        f"argument {place} is of type {type(leaf).__name__}; jit takes arrays, numbers and pytrees of these. "
        "Mark other arguments static with static_argnums or static_argnames."
    )


def struct(aval: Aval) -> ShapeDtypeStruct:
    return ShapeDtypeStruct(aval.shape, aval.dtype, format=aval.format, fill_value=aval.fill_value)
