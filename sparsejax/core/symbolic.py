"""Extents that are not known while a function is traced: integers that compute, and remember what was asked of them.

    n = A.shape[0]          a `SymbolicDim`, where `A` may have any number of rows
    n + 1, 2 * n, n // 2    expressions of symbols, kept as polynomials of symbols and of quotients, remainders
    n == m, n > 10          answered for the shapes at hand; the answer becomes a guard: for other shapes it must be the same
    range(n), float(n)      the number at hand; the guard is that it stays the same

A trace holds for all shapes for which its guards hold. Nothing else is assumed but that symbols lie from 2 to 2^31 - 1: extents of 0 and 1
mean other programs (nothing is stored, or everything is broadcast), and are never symbols.

Source: backed symbols with guards are those of PyTorch 2 (Ansel et al., ASPLOS 2024, section 4); polynomials as normal form, those of JAX's
shape polymorphism.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from sparsejax.core.polynomials import Terms, divided, nested, plus, product, spelled, times
from sparsejax.core.source import by_user, user_line

LEAST, MOST = 2, 2**31 - 1
"""What symbols lie between."""


class Scope:
    """The symbols of one trace, with their values at hand, and what the trace asked of them."""

    def __init__(self, values: Mapping[str, int]) -> None:
        self.symbols = tuple(values)
        self.of_types = False
        """Whether some symbol was named by a type: there is no array, and so no number at hand."""
        self.guards: dict[str, str] = {}
        """Conditions, as Python spells them, with the lines that asked."""
        self.solved: dict[str, tuple[Terms, str]] = {}
        """Symbols that are not free: what the program asked says that they are these polynomials of others, with the lines that asked."""
        self.answered: dict[str, str] = {}
        """Quotients and remainders that were found to be some number, with the lines that asked: a guard says so, for as long as no shape has them."""
        self.born: dict[str, tuple[int, str]] = {}
        """Symbols for how often a number goes into another symbol whose remainder stays (`_narrow`): their values at hand, and that symbol."""
        self._values = dict(values)
        self._least: dict[str, int | None] = dict.fromkeys(values, LEAST)
        self._divided: dict[str, tuple[Terms, int]] = {}
        """What quotients and remainders divide, and by which number."""

    def named(self, name: str) -> SymbolicDim:
        """The symbol of that name, made when it is first asked for: a type names it, no array. Questions are answered for some large number."""
        if not name.isidentifier():
            raise ValueError(f"the extent {name!r} must be a name such as 'n', or an integer")
        if name not in self._values:
            self._values[name], self._least[name] = _some(len(self.symbols)), LEAST
            self.symbols = (*self.symbols, name)
            self.of_types = True
        return self.symbol(name)

    def symbol(self, name: str) -> SymbolicDim:
        return SymbolicDim(self, (((name,), 1),))

    def value(self, terms: Terms) -> int:
        """The value at hand of a polynomial."""
        return sum(c * math.prod(self._values[a] for a in atoms) for atoms, c in terms)

    def least(self, terms: Terms) -> int | None:
        """A lower bound of a polynomial, where one is known."""
        total = 0
        for atoms, c in terms:
            lows = [self._least[a] for a in atoms]
            if c < 0 and all(a in self.symbols for a in atoms):
                total += c * MOST ** len(atoms)
                continue
            if atoms and (c < 0 or any(low is None or low < 0 for low in lows)):
                return None
            total += c * math.prod(low for low in lows if low is not None)
        return total

    def divided(self, dividend: Terms, sign: str, divisor: Terms) -> SymbolicDim:
        """A quotient or a remainder that is no polynomial, as a symbol of its own."""
        above, below = self.value(dividend), self.value(divisor)
        low, by = self.least(dividend), self.least(divisor)
        code = f"{nested(spelled(dividend))}{sign}{nested(spelled(divisor))}"
        self._values[code] = above // below if sign == "//" else above % below
        self._least[code] = 0 if low is not None and low >= 0 and by is not None and by > 0 else None
        if all(not atoms for atoms, _ in divisor):
            self._divided[code] = dividend, below
        return SymbolicDim(self, (((code,), 1),))

    def ask(self, terms: Terms, sign: str) -> bool:
        """Whether a polynomial is 0 ("=="), or less than 0 ("<"); the answer is guarded, unless it follows from bounds."""
        value, least = self.value(terms), self.least(terms)
        most = None if (low := self.least(times(terms, -1))) is None else -low
        if sign == "==" and ((least is not None and least > 0) or (most is not None and most < 0)):
            return False
        if sign == "<" and least is not None and least >= 0:
            return False
        if sign == "<" and most is not None and most < 0:
            return True
        answer = value == 0 if sign == "==" else value < 0
        code, line = f"{spelled(terms)} {sign} 0", user_line()
        self.guards.setdefault(code if answer else f"not {code}", line)
        if answer and sign == "==":
            self._solve(terms, line)
        return answer

    def _solve(self, terms: Terms, line: str) -> None:
        """Take down which symbol a polynomial that is 0 gives, if it gives one."""
        terms = self.put(terms, {name: found for name, (found, _) in self.solved.items()})
        for atoms, c in terms:
            (name,) = atoms if len(atoms) == 1 else ("",)
            rest = tuple(t for t in terms if t[0] != atoms)
            free = not any(re.search(rf"\b{name}\b", a) for others, _ in rest for a in others)
            if name in self.symbols and name not in self.solved and abs(c) == 1 and free:
                self.solved[name] = times(rest, -c), line
                return
        met = [atom for atoms, _ in terms for atom in atoms]
        if len(met) == 1 and met[0] not in self.symbols and not self.of_types:
            self.answered.setdefault(met[0], line)
            return
        self._narrow(terms, line)

    def settle(self, codes: Iterable[str]) -> None:
        """Take down that symbols keep their remainders, or their values, of which some extent of the program is made, one of these, that was found to be
        a number: shapes may have been taken to be equal for it."""
        for atom, line in self.answered.items():
            if any(atom in code for code in codes):
                self._narrow((((atom,), 1),), line)

    def _narrow(self, terms: Terms, line: str) -> None:
        """Take down what quotients and remainders in a polynomial ask of a symbol: that its remainder stays. n - n//2 == n//2 says that n is 2*h, of which
        all of these are polynomials, for a new symbol h. All symbols keep their values where they do not divide a single one by numbers."""
        found = [self._divided.get(a, ((), 0)) for atoms, _ in terms for a in atoms if a not in self.symbols]
        names = {a for dividend, _ in found for atoms, _ in dividend for a in atoms if len(dividend) <= 2}
        by, name = math.lcm(*(n for _, n in found)), next(iter(names), "")
        if any(parent == name for _, parent in self.born.values()):
            return  # the trace with that symbol will tell
        if self.of_types or by < 2 or len(names) != 1 or name not in self.symbols or name in self.solved:
            self._hold(terms, line)
            return
        often, rest = divmod(self._values[name], by)
        new = f"{name}_by_{by}"
        if new in self._values:
            self._hold(terms, line)
            return
        self.born[new] = often, name
        self.solved[name] = plus((((new,), by),), (((), rest),) if rest else ()), line

    def _hold(self, terms: Terms, line: str) -> None:
        """All symbols of a polynomial keep their values: rarely more than is needed."""
        for name in self.symbols:
            if any(re.search(rf"\b{name}\b", atom) for atoms, _ in terms for atom in atoms):
                self.solved[name] = (((), self._values[name]),), line

    def put(self, terms: Terms, known: Mapping[str, Terms]) -> Terms:
        """A polynomial of symbols with polynomials in the place of some."""
        made: Terms = ()
        for atoms, c in terms:
            part: Terms = (((), c),)
            for atom in atoms:
                part = product(part, self.put(known[atom], known) if atom in known else (((atom,), 1),))
            made = plus(made, part)
        return made

    def pin(self, terms: Terms, line: str = "") -> int:
        """The value of a polynomial, which has to stay, for this line of the user's, or for the one that runs."""
        value, line = self.value(terms), line or user_line()
        self.guards.setdefault(f"{spelled(terms)} == {value}", line)
        self._hold(terms, line)
        return value

    def compiled(self, codes: Sequence[str]) -> Callable[..., tuple[int, ...]]:
        """Expressions of the symbols as one function of their values."""
        text = f"lambda {', '.join(self.symbols)}: ({''.join(f'{c}, ' for c in codes)})"
        made: Callable[..., tuple[int, ...]] = eval(text)
        return made


class SymbolicDim:
    """An extent of a traced function that may be of any size: a polynomial over the symbols of its trace.

    It adds, multiplies, divides and compares like an integer (`Scope` says what becomes of comparisons). Where the number itself is needed
    (`range`, `int`, an index into a list, a key of a dict, a text), it is the one of the shapes at hand, and the trace holds for shapes with that
    number alone. This package itself hashes and prints the expression, and tells symbols from numbers; for all other code they are integers,
    unless a type named them (`ShapeDtypeStruct(("n",), ...)`).

    >>> scope = Scope({"n": 10})
    >>> n = scope.symbol("n")
    >>> 2 * n + 1, n * n - n * n, n > 1, n // 2 == 5
    (2*n + 1, 0, True, True)
    >>> list(scope.guards)
    ['(n//2) - 5 == 0']
    """

    __slots__ = ("_hash", "scope", "terms")
    __array_ufunc__ = None

    def __init__(self, scope: Scope, terms: Terms) -> None:
        self.scope, self.terms = scope, terms
        self._hash = hash((id(scope), terms))

    @property
    def code(self) -> str:
        """As Python spells it."""
        return spelled(self.terms)

    @property
    def hint(self) -> int:
        """The value at hand; what depends on it holds for other values only if it is a matter of taste."""
        return self.scope.value(self.terms)

    def _is_number(self, by_user: bool) -> bool:
        """Whether it is a number to who asks: to the user's code, where there is a number at hand."""
        return by_user and not self.scope.of_types

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return int if self._is_number(by_user()) else SymbolicDim

    def __hash__(self) -> int:
        return hash(self.scope.pin(self.terms)) if self._is_number(by_user()) else self._hash

    def __repr__(self) -> str:
        return self.code

    def __str__(self) -> str:
        return str(self.scope.pin(self.terms)) if self._is_number(by_user()) else self.code

    def __format__(self, spec: str) -> str:
        return format(self.scope.pin(self.terms), spec) if spec or self._is_number(by_user()) else self.code

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"the extent {self} belongs to a function that is being traced; it cannot be pickled")

    # ------------------------------------------------------------------------------------------------------ arithmetic
    def _other(self, other: Any) -> Terms | None:
        if isinstance(other, SymbolicDim):
            return other.terms if other.scope is self.scope else (((), other.__index__()),)
        if isinstance(other, int | np.integer) and not isinstance(other, bool):
            return (((), int(other)),) if other else ()
        return None

    def _made(self, terms: Terms) -> Any:
        if all(not atoms for atoms, _ in terms):
            return sum(c for _, c in terms)
        return SymbolicDim(self.scope, terms)

    def __add__(self, other: Any) -> Any:
        terms = self._other(other)
        return _as_value(self, other, "__add__") if terms is None else self._made(plus(self.terms, terms))

    def __sub__(self, other: Any) -> Any:
        terms = self._other(other)
        return _as_value(self, other, "__sub__") if terms is None else self._made(plus(self.terms, times(terms, -1)))

    def __mul__(self, other: Any) -> Any:
        terms = self._other(other)
        return _as_value(self, other, "__mul__") if terms is None else self._made(product(self.terms, terms))

    def __radd__(self, other: Any) -> Any:
        return _as_value(self, other, "__radd__") if self._other(other) is None else self + other

    def __rmul__(self, other: Any) -> Any:
        return _as_value(self, other, "__rmul__") if self._other(other) is None else self * other

    def __rsub__(self, other: Any) -> Any:
        return _as_value(self, other, "__rsub__") if self._other(other) is None else -self + other

    def __neg__(self) -> Any:
        return self._made(times(self.terms, -1))

    def __pos__(self) -> SymbolicDim:
        return self

    def __abs__(self) -> Any:
        return -self if self < 0 else self

    def __pow__(self, other: Any) -> Any:
        if isinstance(other, int) and other >= 0:
            return math.prod([self] * other)
        return _as_value(self, other, "__pow__")

    def _quotient(self, terms: Terms, sign: str) -> Any:
        """self // terms, or self % terms."""
        divisor = self._made(terms)
        if divisor == 0:
            raise ZeroDivisionError("an extent is divided by 0")
        common = divided(self.terms, terms)
        if common is not None:
            return self._made(common) if sign == "//" else 0
        if len(terms) == 1 and not terms[0][0]:  # (c*n + k) // c, of any n
            by, rest = terms[0][1], self.scope.value(tuple(t for t in self.terms if not t[0]))
            whole = divided(tuple(t for t in self.terms if t[0]), terms)
            if whole is not None:
                return self._made(plus(whole, (((), rest // by),) if rest // by else ())) if sign == "//" else rest % by
        return self.scope.divided(self.terms, sign, terms)

    def __floordiv__(self, other: Any) -> Any:
        terms = self._other(other)
        return _as_value(self, other, "__floordiv__") if terms is None else self._quotient(terms, "//")

    def __mod__(self, other: Any) -> Any:
        terms = self._other(other)
        return _as_value(self, other, "__mod__") if terms is None else self._quotient(terms, "%")

    def __rfloordiv__(self, other: Any) -> Any:
        terms = self._other(other)
        if terms is None:
            return _as_value(self, other, "__rfloordiv__")
        return SymbolicDim(self.scope, terms)._quotient(self.terms, "//")

    def __rmod__(self, other: Any) -> Any:
        terms = self._other(other)
        if terms is None:
            return _as_value(self, other, "__rmod__")
        return SymbolicDim(self.scope, terms)._quotient(self.terms, "%")

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __truediv__(self, other: Any) -> Any:
        return _as_value(self, other, "__truediv__")

    def __rtruediv__(self, other: Any) -> Any:
        return _as_value(self, other, "__rtruediv__")

    # ------------------------------------------------------------------------------------------------------ questions
    def _ask(self, other: Any, sign: str, swapped: bool = False) -> Any:
        terms = self._other(other)
        if terms is None:
            if not isinstance(other, float | bool):
                return NotImplemented
            value = self.__index__()
            return value == other if sign == "==" else other < value if swapped else value < other
        left, right = (terms, self.terms) if swapped else (self.terms, terms)
        return self.scope.ask(plus(left, times(right, -1)), sign)

    def __eq__(self, other: object) -> Any:
        if isinstance(other, SymbolicDim) and other.scope is self.scope and other.terms == self.terms:
            return True
        if isinstance(other, SymbolicDim) and other.scope is not self.scope:
            return False
        return self._ask(other, "==")

    def __ne__(self, other: object) -> Any:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    def __lt__(self, other: Any) -> Any:
        return self._ask(other, "<")

    def __gt__(self, other: Any) -> Any:
        return self._ask(other, "<", swapped=True)

    def __le__(self, other: Any) -> Any:
        more = self._ask(other, "<", swapped=True)
        return more if more is NotImplemented else not more

    def __ge__(self, other: Any) -> Any:
        less = self._ask(other, "<")
        return less if less is NotImplemented else not less

    def __bool__(self) -> bool:
        return not self.scope.ask(self.terms, "==")

    def __index__(self) -> int:
        return self.scope.pin(self.terms)

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.scope.pin(self.terms))


class Span:
    """A range of which some ends are not known: what `range` is for numbers. Made by `span`."""

    __slots__ = ("start", "step", "stop")

    def __init__(self, start: Any, stop: Any, step: Any) -> None:
        self.start, self.stop, self.step = start, stop, step

    def resized(self, change: Callable[[Any], Any]) -> Span | range:
        """The range with its ends changed; one of Python's where all are numbers."""
        made: Span | range = span(change(self.start), change(self.stop), change(self.step))
        return made

    def __eq__(self, other: object) -> Any:
        if not isinstance(other, Span | range):
            return NotImplemented
        return all(a == b for a, b in ((self.start, other.start), (self.stop, other.stop), (self.step, other.step)))

    def __hash__(self) -> int:
        return hash((self.start, self.stop, self.step))

    def __repr__(self) -> str:
        return f"{self.start}:{self.stop}:{self.step}"


def span(start: Any, stop: Any, step: Any = 1) -> Any:
    """`range(start, stop, step)`, where ends may be extents that are not known."""
    if type(start) is int and type(stop) is int and type(step) is int:
        return range(start, stop, step)
    return Span(start, stop, step)


def length(chosen: Any) -> Any:
    """How many coordinates a range has."""
    if isinstance(chosen, range):
        return len(chosen)
    gap = chosen.stop - chosen.start if chosen.step > 0 else chosen.start - chosen.stop
    if gap <= 0:
        return 0
    return gap if abs(chosen.step) == 1 else (gap + abs(chosen.step) - 1) // abs(chosen.step)


def sliced(part: slice, extent: Any) -> Any:
    """The coordinates that a slice takes of an axis: `range(*part.indices(extent))`, where numbers may not be known.

    >>> sliced(slice(None, -1), 5), sliced(slice(None, -1), Scope({"n": 5}).symbol("n"))
    (range(0, 4), 0:n - 1:1)
    """
    if not any(isinstance(n, SymbolicDim) for n in (part.start, part.stop, part.step, extent)):
        return range(*part.indices(extent))
    step = 1 if part.step is None else part.step
    if step == 0:
        raise ValueError("slice step cannot be zero")
    first, last = (0, extent) if step > 0 else (-1, extent - 1)

    def end(given: Any, default: Any) -> Any:
        if given is None:
            return default
        given = given if isinstance(given, SymbolicDim) else operator.index(given)
        if given < 0:
            given = extent + given
            return first if given < first else given
        return last if given > last else given

    return span(end(part.start, first if step > 0 else last), end(part.stop, last if step > 0 else first), step)


NAMED = Scope({})
"""The symbols of types that name extents (`ShapeDtypeStruct`)."""

_as_values: list[Callable[[SymbolicDim], Any]] = []


def set_value(rule: Callable[[SymbolicDim], Any]) -> None:
    """Install what makes an extent a value of the function that is being traced (a higher floor: it is an operation)."""
    _as_values[:] = [rule]


def as_value(dim: SymbolicDim) -> Any:
    """An extent as a number to compute with: a traced scalar."""
    return _as_values[0](dim)


def _as_value(dim: SymbolicDim, other: Any, method: str) -> Any:
    """Arithmetic with what is no integer: the extent is a value like others."""
    if isinstance(other, float | complex | np.generic | np.ndarray) or (
        "truediv" in method and isinstance(other, int | SymbolicDim)
    ):
        return getattr(as_value(dim), method)(as_value(other) if isinstance(other, SymbolicDim) else other)
    return NotImplemented


def known(extent: Any) -> Any:
    """An extent as it is kept: an integer, or an expression of symbols."""
    return extent if isinstance(extent, SymbolicDim) else int(extent)


def _some(k: int) -> int:
    """A number for the k-th symbol where there is none at hand."""
    return 1009 + 101 * k


def usual(extent: Any) -> int:
    """A number that an extent may be, whatever the shapes at hand: for what changes how a result is rounded, and nothing else of it."""
    if not isinstance(extent, SymbolicDim):
        return int(extent)
    numbers = map(_some, range(len(extent.scope.symbols)))
    return int(extent.scope.compiled([extent.code])(*numbers)[0])


def hint(extent: Any) -> int:
    """The number that an extent is for the shapes at hand: for what never changes what is computed."""
    return extent.hint if isinstance(extent, SymbolicDim) else int(extent)
