"""The builder: the one interface through which the compiler writes machine code.

    types   i1 i8 i16 i32 i64 float double ptr, and vectors "<8 x double>"
    values  Val(ref, type), immutable
    Var     a mutable local variable: var, get, set

Two implementations: `llvm.LLVMBuilder` writes LLVM IR as text, `pretty.PrettyBuilder` readable loops. Control flow is
structured (`for_`, `while_`, `if_`, `if_else`), so that both read the same program. A kernel returns a status code:
`fail` leaves it early, after the epilogue has written every output pointer back. What is long and needed in several
places (sorting, growing) is a `routine`: a function of its own, written once per kernel. So are mathematical functions
(`function`), once for each number of lanes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple, TypeVar

from sparsejax.jit.backend import host

OK, OUT_OF_MEMORY, NEGATIVE_EXPONENT = 0, 1, 2


class Val(NamedTuple):
    """A value: its text and its type. (A named tuple: a kernel makes thousands, three times as fast as data classes are.)"""

    ref: str
    type: str


class Var(NamedTuple):
    """A mutable local variable."""

    name: str
    type: str


SIZES = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "float": 4, "double": 8, "ptr": 8}


Made = TypeVar("Made")


class Block(AbstractContextManager[Made]):
    """A with block that has begun; `end` ends it. (For what occurs most: half the time that `contextmanager` takes.)"""

    __slots__ = ("_end", "_made")

    def __init__(self, made: Made, end: Callable[[], None]) -> None:
        self._made, self._end = made, end

    def __enter__(self) -> Made:
        return self._made

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._end()


Body = Callable[["Builder", list[Var], list[Val]], None]
Formula = Callable[["Builder", Val], Val]
Case = tuple[Callable[[], Val], Callable[[], object]]


class Builder(ABC):
    """Writes one kernel `i64 kernel(ptr args)`; `args` is an array of 8-byte slots."""

    # values ---------------------------------------------------------------------------------------------------
    @abstractmethod
    def const(self, type: str, value: int | float) -> Val:
        """A constant."""

    @abstractmethod
    def binary(self, op: str, a: Val, b: Val) -> Val:
        """An LLVM binary instruction: add sub mul sdiv udiv srem urem and or xor shl ashr lshr fadd fsub fmul fdiv frem."""

    @abstractmethod
    def compare(self, predicate: str, a: Val, b: Val) -> Val:
        """icmp (eq ne slt sle sgt sge ult ule ugt uge) or fcmp (oeq une olt ole ogt oge uno ord) by the type of `a`."""

    @abstractmethod
    def select(self, condition: Val, yes: Val, no: Val) -> Val:
        """`condition ? yes : no`."""

    @abstractmethod
    def convert(self, op: str, a: Val, type: str) -> Val:
        """An LLVM conversion: sext zext trunc sitofp uitofp fptosi fptoui fpext fptrunc inttoptr ptrtoint bitcast."""

    @abstractmethod
    def call(self, function: str, returns: str, args: Sequence[Val]) -> Val:
        """A call of an external C function or an LLVM intrinsic ("llvm.…"); `returns` may be "void"."""

    # memory ---------------------------------------------------------------------------------------------------
    @abstractmethod
    def load(self, pointer: Val, index: Val, type: str, name: str = "t") -> Val:
        """`pointer[index]` as `type`; the index counts elements (of the scalar type, for a vector)."""

    @abstractmethod
    def gather(self, pointer: Val, indices: Val, type: str, name: str = "t") -> Val:
        """`pointer[indices]`: a vector, from the places that another vector says, as many lanes of it as are touched."""

    @abstractmethod
    def store(self, pointer: Val, index: Val, value: Val) -> None:
        """`pointer[index] = value`."""

    @abstractmethod
    def scatter(self, pointer: Val, indices: Val, value: Val) -> None:
        """`pointer[indices] = value`: as many lanes of it as are touched; places that occur twice get the later lane."""

    @abstractmethod
    def store_past(self, pointer: Val, index: Val, value: Val) -> None:
        """The same past the caches: lanes that begin where a line does. What follows `fence` sees it."""

    @abstractmethod
    def fence(self) -> None:
        """Wait until what was stored past the caches is in memory."""

    @abstractmethod
    def slot(self, number: int, type: str, name: str) -> Val:
        """Argument slot `number`."""

    @abstractmethod
    def set_slot(self, number: int, value: Val) -> None:
        """Write an argument slot back."""

    # variables ------------------------------------------------------------------------------------------------
    @abstractmethod
    def var(self, name: str, init: Val) -> Var:
        """A new variable, set to `init` here."""

    @abstractmethod
    def lasting(self, name: str, init: Val) -> Var:
        """A new variable, set to the constant `init` where the function begins: what one pass of a loop puts there, the next one finds."""

    @abstractmethod
    def get(self, var: Var) -> Val:
        """The variable's present value."""

    @abstractmethod
    def set(self, var: Var, value: Val) -> None:
        """Assign the variable."""

    # vectors --------------------------------------------------------------------------------------------------
    @abstractmethod
    def splat(self, value: Val, lanes: int) -> Val:
        """A vector with `value` in every lane."""

    @abstractmethod
    def extract(self, vector: Val, lane: int) -> Val:
        """One lane of a vector."""

    @abstractmethod
    def insert(self, vector: Val, lane: int, value: Val) -> Val:
        """The vector with another value in one lane."""

    @abstractmethod
    def shuffle(self, x: Val, y: Val, lanes: Sequence[int]) -> Val:
        """The vector of these lanes of `x` and `y`, those of `y` being counted behind those of `x`."""

    @abstractmethod
    def below(self, lanes: int, count: Val) -> Val:
        """A truth value for each of so many lanes: those below `count` are true."""

    @abstractmethod
    def member(self, pair: Val, number: int, type: str) -> Val:
        """One member of a pair that a call returned."""

    # control --------------------------------------------------------------------------------------------------
    @abstractmethod
    def for_(self, lo: Val, hi: Val, name: str = "i", step: int = 1, some: bool = False) -> AbstractContextManager[Val]:
        """`for (name = lo; name < hi; name += step)`; not tested before the first time where `some` says that there is one."""

    @abstractmethod
    def while_(self, condition: Callable[[], Val], some: bool = False) -> AbstractContextManager[None]:
        """`while (condition())`, or `do ... while` for `some`; the condition is emitted anew for every test."""

    @abstractmethod
    def if_(self, condition: Val) -> AbstractContextManager[None]:
        """`if (condition) { … }`."""

    @abstractmethod
    def if_else(self, condition: Val, yes: Callable[[], object], no: Callable[[], object] | None = None) -> None:
        """`if (condition) yes() else no()`."""

    @abstractmethod
    def first_of(self, cases: Sequence[Case], no: Callable[[], object]) -> None:
        """What follows the first condition that holds, else `no()`: as `if_else` inside of `if_else`, of any number of cases."""

    @abstractmethod
    def fail(self, status: int) -> None:
        """Leave the kernel with a status code."""

    @abstractmethod
    def routine(self, name: str, state: Sequence[Var], args: Mapping[str, Val], body: Body) -> None:
        """Call the routine `name`, which changes the variables `state` and reads `args`.

        `body(builder, state, args)` writes it at the first call, with its own variables and values; it may use nothing else of
        the kernel but constants. Where it fails, `state` is as the routine left it and the kernel fails too.
        """

    @abstractmethod
    def function(self, name: str, x: Val, formula: Formula) -> Val:
        """The function `name` of `x`, of the same type; `formula(builder, x)` writes it at the first call for that type.

        It may use nothing else of the kernel but constants. Its operations are rounded one by one: elsewhere, a product may be fused
        with the sum that it goes into.
        """

    @abstractmethod
    def finish(self, epilogue: Callable[[], None]) -> str:
        """The kernel's text; `epilogue` is emitted once, where every path leaves the kernel."""

    # shared ---------------------------------------------------------------------------------------------------
    def has_masks(self) -> bool:
        """Whether strips end in a vector of which some lanes are masked."""
        return host.has_masks()

    mask: Val | None = None
    """The lanes that loads and stores of vectors touch; others are read as one, of which every function has a value. None: all."""

    @contextmanager
    def masked(self, lanes: int, count: Val) -> Iterator[None]:
        """Touch memory in the first `count` of so many lanes only, inside the block."""
        with self.under(self.below(lanes, count)):
            yield

    @contextmanager
    def under(self, mask: Val | None) -> Iterator[None]:
        """Touch memory in the lanes of `mask` only, inside the block."""
        before, self.mask = self.mask, mask
        yield
        self.mask = before

    def named(self, name: str, value: Val) -> Val:
        """`value`; printed loops give it a name here instead of repeating its text."""
        return value

    def i64(self, value: int) -> Val:
        return self.const("i64", value)

    def add(self, a: Val, b: Val | int) -> Val:
        if isinstance(b, Val):
            return b if a.ref == "0" else self.binary("add", a, b)
        return a if b == 0 else self.binary("add", a, self.const(a.type, b))

    def sub(self, a: Val, b: Val | int) -> Val:
        if isinstance(b, Val):
            return self.binary("sub", a, b)
        return a if b == 0 else self.binary("sub", a, self.const(a.type, b))

    def mul(self, a: Val, b: Val | int) -> Val:
        if isinstance(b, Val):
            return b if a.ref == "1" else a if b.ref == "1" else self.binary("mul", a, b)
        return a if b == 1 else self.binary("mul", a, self.const(a.type, b))

    def lt(self, a: Val, b: Val | int) -> Val:
        return self.compare("slt", a, self._int(a, b))

    def eq(self, a: Val, b: Val | int) -> Val:
        return self.compare("eq", a, self._int(a, b))

    def ne(self, a: Val, b: Val | int) -> Val:
        return self.compare("ne", a, self._int(a, b))

    def and_(self, a: Val, b: Val) -> Val:
        return self.binary("and", a, b)

    def min(self, a: Val, b: Val) -> Val:
        return self.select(self.lt(a, b), a, b)

    def max(self, a: Val, b: Val) -> Val:
        return self.select(self.lt(a, b), b, a)

    @contextmanager
    def bits_of(self, word: Val) -> Iterator[Val]:
        """A loop over the bits of an i64 that are set, by number, lowest first."""
        left = self.var("left", word)
        with self.while_(lambda: self.ne(self.get(left), 0)):
            yield self.call("llvm.cttz.i64", "i64", [self.get(left), self.const("i1", 1)])
            self.set(left, self.and_(self.get(left), self.sub(self.get(left), 1)))

    def increment(self, var: Var, by: Val | int = 1) -> None:
        self.set(var, self.add(self.get(var), by))

    def _int(self, like: Val, value: Val | int) -> Val:
        return value if isinstance(value, Val) else self.const(like.type, value)
