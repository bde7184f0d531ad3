"""The builder that writes readable loops, for `as_text("loops")`.

Arithmetic stays nested in expressions; loads, calls and what would be `LONG` get names, in the order in which they run. So the text is linear
in the program, however often values are used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from sparsejax.jit.backend.builder import Body, Builder, Case, Formula, Val, Var
from sparsejax.jit.backend.types import lanes_of, scalar_of, vector_of

_SIGNS = {
    "add": "+", "fadd": "+", "sub": "-", "fsub": "-", "mul": "*", "fmul": "*", "sdiv": "/", "udiv": "/", "fdiv": "/",
    "srem": "%", "urem": "%", "frem": "%", "and": "&", "or": "|", "xor": "^", "shl": "<<", "ashr": ">>", "lshr": ">>",
}  # fmt: skip
_TESTS = {
    "eq": "==", "oeq": "==", "ne": "!=", "une": "!=", "slt": "<", "ult": "<", "olt": "<", "sle": "<=", "ule": "<=",
    "ole": "<=", "sgt": ">", "ugt": ">", "ogt": ">", "sge": ">=", "uge": ">=", "oge": ">=",
}  # fmt: skip


LONG = 160
"""Characters from which on an expression gets a name."""


class PrettyBuilder(Builder):
    """See `builder.Builder`."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 1
        self._count: dict[str, int] = {}
        self._routines: dict[str, list[str]] = {}

    def _line(self, text: str) -> None:
        self._lines.append("  " * self._depth + text)

    def _name(self, stem: str) -> str:
        self._count[stem] = self._count.get(stem, -1) + 1
        return stem if self._count[stem] == 0 else f"{stem}_{self._count[stem]}"

    def _made(self, text: str, type: str) -> Val:
        """The value of an expression; by name, where that is long."""
        if len(text) < LONG:
            return Val(text, type)
        name = self._name("part")
        self._line(f"{name} = {text}")
        return Val(name, type)

    def const(self, type: str, value: int | float) -> Val:
        return Val(str(value), type)

    def binary(self, op: str, a: Val, b: Val) -> Val:
        return self._made(f"({a.ref} {_SIGNS[op]} {b.ref})", a.type)

    def compare(self, predicate: str, a: Val, b: Val) -> Val:
        type = vector_of("i1", lanes_of(a.type))
        if predicate in ("uno", "ord"):
            return self._made(f"{'isnan' if predicate == 'uno' else 'notnan'}({a.ref})", type)
        return self._made(f"({a.ref} {_TESTS[predicate]} {b.ref})", type)

    def select(self, condition: Val, yes: Val, no: Val) -> Val:
        return self._made(f"({condition.ref} ? {yes.ref} : {no.ref})", yes.type)

    def convert(self, op: str, a: Val, type: str) -> Val:
        return a if a.type == type or op in ("sext", "zext") else self._made(f"({type}){a.ref}", type)

    def call(self, function: str, returns: str, args: Sequence[Val]) -> Val:
        text = f"{function.removeprefix('llvm.')}({', '.join(a.ref for a in args)})"
        if returns == "void":
            self._line(text)
            return Val("", "void")
        name = self._name("r")
        self._line(f"{name} = {text}")
        return Val(name, returns)

    def load(self, pointer: Val, index: Val, type: str, name: str = "t") -> Val:
        fresh = self._name(name)
        self._line(f"{fresh} = {pointer.ref}[{self._range(index, type)}]")
        return Val(fresh, type)

    def gather(self, pointer: Val, indices: Val, type: str, name: str = "t") -> Val:
        fresh = self._name(name)
        inside = "" if self.mask is None else f" {self.mask.ref}"
        self._line(f"{fresh} = {pointer.ref}[{indices.ref}{inside}]")
        return Val(fresh, type)

    def store(self, pointer: Val, index: Val, value: Val) -> None:
        self._line(f"{pointer.ref}[{self._range(index, value.type)}] = {value.ref}")

    def scatter(self, pointer: Val, indices: Val, value: Val) -> None:
        inside = "" if self.mask is None else f" {self.mask.ref}"
        self._line(f"{pointer.ref}[{indices.ref}{inside}] = {value.ref}")

    def store_past(self, pointer: Val, index: Val, value: Val) -> None:
        self._line(f"{pointer.ref}[{self._range(index, value.type)}] = {value.ref}, past the caches")

    def fence(self) -> None:
        self._line("fence")

    def _range(self, index: Val, type: str) -> str:
        inside = "" if self.mask is None or lanes_of(type) == 1 else f" {self.mask.ref}"
        return _range(index, type) + inside

    def named(self, name: str, value: Val) -> Val:
        if value.ref.replace("_", "").replace(".", "").isalnum():
            return value
        fresh = self._name(name)
        self._line(f"{fresh} = {value.ref}")
        return Val(fresh, value.type)

    def slot(self, number: int, type: str, name: str) -> Val:
        return Val(name, type)

    def set_slot(self, number: int, value: Val) -> None:
        self._line(f"return slot {number}: {value.ref}")

    def var(self, name: str, init: Val) -> Var:
        var = Var(self._name(name), init.type)
        self._line(f"{var.name} = {init.ref}")
        return var

    def lasting(self, name: str, init: Val) -> Var:
        var = Var(self._name(name), init.type)
        self._lines.insert(0, f"  {var.name} = {init.ref}")
        return var

    def get(self, var: Var) -> Val:
        return Val(var.name, var.type)

    def set(self, var: Var, value: Val) -> None:
        self._line(f"{var.name} = {value.ref}")

    def splat(self, value: Val, lanes: int) -> Val:
        return Val(value.ref, vector_of(value.type, lanes))

    def extract(self, vector: Val, lane: int) -> Val:
        return self._made(f"{vector.ref}[{lane}]", scalar_of(vector.type))

    def insert(self, vector: Val, lane: int, value: Val) -> Val:
        return self._made(f"({vector.ref} with [{lane}] = {value.ref})", vector.type)

    def shuffle(self, x: Val, y: Val, lanes: Sequence[int]) -> Val:
        both = x.ref if x == y else f"({x.ref}, {y.ref})"
        return self._made(f"{both}[{', '.join(map(str, lanes))}]", vector_of(scalar_of(x.type), len(lanes)))

    def below(self, lanes: int, count: Val) -> Val:
        return self._made(f"below {count.ref}", vector_of("i1", lanes))

    def member(self, pair: Val, number: int, type: str) -> Val:
        return self._made(f"{pair.ref}.{number}", type)

    @contextmanager
    def _block(self, head: str) -> Iterator[None]:
        self._line(head)
        self._depth += 1
        yield
        self._depth -= 1

    @contextmanager
    def for_(self, lo: Val, hi: Val, name: str = "i", step: int = 1, some: bool = False) -> Iterator[Val]:
        fresh = self._name(name)
        with self._block(f"for {fresh} in {lo.ref} .. {hi.ref}{'' if step == 1 else f' step {step}'}:"):
            yield Val(fresh, "i64")

    @contextmanager
    def while_(self, condition: Callable[[], Val], some: bool = False) -> Iterator[None]:
        with self._block(f"while {condition().ref}:"):
            yield

    @contextmanager
    def if_(self, condition: Val) -> Iterator[None]:
        with self._block(f"if {condition.ref}:"):
            yield

    def if_else(self, condition: Val, yes: Callable[[], object], no: Callable[[], object] | None = None) -> None:
        with self._block(f"if {condition.ref}:"):
            yes()
        if no is not None:
            with self._block("else:"):
                no()

    def first_of(self, cases: Sequence[Case], no: Callable[[], object]) -> None:
        with ExitStack() as inside:
            for condition, yes in cases:
                with self._block(f"if {condition().ref}:"):
                    yes()
                inside.enter_context(self._block("else:"))
            no()

    def fail(self, status: int) -> None:
        self._line(f"return {status}")

    def routine(self, name: str, state: Sequence[Var], args: Mapping[str, Val], body: Body) -> None:
        if name not in self._routines:
            kept = self._lines, self._depth, self._count
            self._lines, self._depth, self._count = [], 1, {}
            own = [Var(self._name(v.name.rstrip("0123456789_")), v.type) for v in state]
            given = [Val(self._name(key), value.type) for key, value in args.items()]
            body(self, own, given)
            changed = f"changes {', '.join(v.name for v in own)}"
            reads = f"; reads {', '.join(v.ref for v in given)}" if given else ""
            self._routines[name] = [f"{name}: {changed}{reads}", *self._lines]
            self._lines, self._depth, self._count = kept
        given = [self.get(v) for v in state] + list(args.values())
        self._line(f"{name}({', '.join(v.ref for v in given)})")

    def function(self, name: str, x: Val, formula: Formula) -> Val:
        return self.call(name, x.type, [x])

    def finish(self, epilogue: Callable[[], None]) -> str:
        epilogue()
        routines = [line for text in self._routines.values() for line in text]
        return "\n".join([*routines, "kernel:", *self._lines]) + "\n"


def _range(index: Val, type: str) -> str:
    return index.ref if lanes_of(type) == 1 else f"{index.ref} : +{lanes_of(type)}"
