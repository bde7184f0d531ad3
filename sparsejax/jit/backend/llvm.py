"""The builder that writes LLVM IR text.

Mutable variables are stack slots in the entry block; one SROA pass turns them into registers (see `runtime`). Loops
are rotated: tested once before the body and once at its end.
"""

from __future__ import annotations

import functools
import itertools
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

from sparsejax.jit.backend.builder import OK, Block, Body, Builder, Case, Formula, Val, Var
from sparsejax.jit.backend.types import lanes_of, scalar_of, vector_of

_FLOAT = ("float", "double")
_SHORT = {"float": "f32", "double": "f64", "i8": "i8", "i16": "i16", "i32": "i32", "i64": "i64"}
"""Types in the names of intrinsics."""
_ALIGNED = 64
"""Bytes of a line of the cache."""


_val = tuple.__new__
"""Makes a `Val` of a pair, without a call of Python's: every instruction has one."""


@functools.cache
def _integer(value: int) -> Val:
    return Val(str(int(value)), "i64")


@functools.cache
def _compared(type: str) -> tuple[str, str]:
    """How values of a type are compared, and the type of what comes out."""
    return "fcmp" if scalar_of(type) in _FLOAT else "icmp", vector_of("i1", lanes_of(type))


class LLVMBuilder(Builder):
    """See `builder.Builder`."""

    def __init__(self, name: str = "kernel") -> None:
        self._name = name
        self._entry: list[str] = []
        self._body: list[str] = []
        self._declared: dict[str, str] = {}
        self._metadata: dict[str, str] = {}
        self._routines: dict[str, list[str]] = {}
        self._numbers = itertools.count(1)
        self._flags = " contract"  # products may be fused with the sums that they go into
        self._set_open(True)
        self._status = self.var("status", self.const("i64", OK))

    # helpers
    def _set_open(self, open: bool) -> None:
        """Whether the present block still lacks its terminator: else nothing can be written."""
        self._open = open
        self._write: Callable[[str], object] = self._body.append if open else len

    def _fresh(self, stem: str = "t") -> str:
        return f"%{stem}.{next(self._numbers)}"  # w1 and 23 must not be w and 123

    def _emit(self, line: str) -> None:
        self._write("  " + line)

    def _value(self, text: str, type: str, stem: str = "t") -> Val:
        name = f"%{stem}.{next(self._numbers)}"
        self._write(f"  {name} = {text}")
        return _val(Val, (name, type))

    def _label(self, label: str) -> None:
        self._write(f"  br label %{label}")
        self._body.append(f"{label}:")
        self._set_open(True)

    def _jump(self, text: str) -> None:
        self._emit(text)
        self._set_open(False)

    def _new_label(self, stem: str) -> str:
        return f"{stem}{next(self._numbers)}"

    # values
    def const(self, type: str, value: int | float) -> Val:
        if type == "i64":
            return _integer(int(value))
        if type in _FLOAT:
            single = struct.unpack("f", struct.pack("f", float(value)))[0] if type == "float" else float(value)
            return Val(f"0x{struct.unpack('<Q', struct.pack('<d', single))[0]:016X}", type)
        if type == "i1":
            return Val("true" if value else "false", type)
        return Val(str(int(value)), type)

    def i64(self, value: int) -> Val:
        return _integer(value)

    def binary(self, op: str, a: Val, b: Val) -> Val:
        ref, type = a
        if op in ("fadd", "fsub", "fmul"):
            op += self._flags
        return self._value(f"{op} {type} {ref}, {b.ref}", type)

    def compare(self, predicate: str, a: Val, b: Val) -> Val:
        ref, type = a
        kind, truth = _compared(type)
        return self._value(f"{kind} {predicate} {type} {ref}, {b.ref}", truth)

    def select(self, condition: Val, yes: Val, no: Val) -> Val:
        text = f"select {condition.type} {condition.ref}, {yes.type} {yes.ref}, {no.type} {no.ref}"
        return self._value(text, yes.type)

    def convert(self, op: str, a: Val, type: str) -> Val:
        return a if a.type == type else self._value(f"{op} {a.type} {a.ref} to {type}", type)

    def call(self, function: str, returns: str, args: Sequence[Val]) -> Val:
        if function not in self._declared and function not in self._routines:
            signature = ", ".join([a.type for a in args])
            self._declared[function] = f"declare {returns} @{function}({signature})"
        return self._called(f"@{function}", returns, args)

    def call_at(self, address: Val, returns: str, args: Sequence[Val]) -> Val:
        """A call of the function at an address."""
        return self._called(address.ref, returns, args)

    def _called(self, function: str, returns: str, args: Sequence[Val]) -> Val:
        text = f"call {returns} {function}({', '.join([f'{a.type} {a.ref}' for a in args])})"
        if returns == "void":
            self._emit(text)
            return Val("", "void")
        return self._value(text, returns)

    # memory
    def _address(self, pointer: Val, index: Val, type: str) -> str:
        if index.ref == "0":
            return pointer.ref
        return self._value(f"getelementptr {scalar_of(type)}, ptr {pointer.ref}, i64 {index.ref}", "ptr", "a").ref

    def load(self, pointer: Val, index: Val, type: str, name: str = "t") -> Val:
        address = self._address(pointer, index, type)
        if lanes_of(type) == 1:
            return self._value(f"load {type}, ptr {address}", type, name)
        if self.mask is not None:
            return self._masked("load", type, f"ptr {address}, {self._lanes_in_memory(type)}, {type} {_ones(type)}")
        return self._value(f"load {type}, ptr {address}, align {_alignment(type)}", type, name)

    def gather(self, pointer: Val, indices: Val, type: str, name: str = "t") -> Val:
        intrinsic, places = f"llvm.masked.gather.{_overload(type)}", self._places(pointer, indices, type)
        self._declared[intrinsic] = f"declare {type} @{intrinsic}({places.type}, i32, {_flags(type)}, {type})"
        args = f"{places.type} {places.ref}, i32 {_alignment(type)}, {self._touched(type)}, {type} {_ones(type)}"
        return self._value(f"call {type} @{intrinsic}({args})", type, name)

    def scatter(self, pointer: Val, indices: Val, value: Val) -> None:
        ref, type = value
        intrinsic, places = f"llvm.masked.scatter.{_overload(type)}", self._places(pointer, indices, type)
        self._declared[intrinsic] = f"declare void @{intrinsic}({type}, {places.type}, i32, {_flags(type)})"
        args = f"{type} {ref}, {places.type} {places.ref}, i32 {_alignment(type)}, {self._touched(type)}"
        self._emit(f"call void @{intrinsic}({args})")

    def _places(self, pointer: Val, indices: Val, type: str) -> Val:
        """The addresses of `pointer[indices]`."""
        text = f"getelementptr {scalar_of(type)}, ptr {pointer.ref}, {indices.type} {indices.ref}"
        return self._value(text, f"<{lanes_of(type)} x ptr>", "a")

    def _touched(self, type: str) -> str:
        """The argument that says which lanes are touched."""
        every = f"<{', '.join(['i1 true'] * lanes_of(type))}>" if self.mask is None else self.mask.ref
        return f"{_flags(type)} {every}"

    def store(self, pointer: Val, index: Val, value: Val) -> None:
        ref, type = value
        address = self._address(pointer, index, type)
        if lanes_of(type) == 1:
            self._emit(f"store {type} {ref}, ptr {address}")
        elif self.mask is not None:
            self._masked("store", type, f"{type} {ref}, ptr {address}, {self._lanes_in_memory(type)}")
        else:
            self._emit(f"store {type} {ref}, ptr {address}, align {_alignment(type)}")

    def store_past(self, pointer: Val, index: Val, value: Val) -> None:
        address, (ref, type) = self._address(pointer, index, value.type), value
        self._emit(f"store {type} {ref}, ptr {address}, align {_ALIGNED}, !nontemporal !0")
        self._metadata["!0"] = "!{i32 1}"

    def fence(self) -> None:
        self._emit("fence seq_cst")

    def _lanes_in_memory(self, type: str) -> str:
        """The arguments of a masked load or store that say how memory is aligned, and which lanes there are."""
        assert self.mask is not None and lanes_of(self.mask.type) == lanes_of(type)
        return f"i32 {_alignment(type)}, {self.mask.type} {self.mask.ref}"

    def _masked(self, what: str, type: str, args: str) -> Val:
        lanes, scalar = lanes_of(type), scalar_of(type)
        name = f"llvm.masked.{what}.v{lanes}{_SHORT[scalar]}.p0"
        flags = f"i32, <{lanes} x i1>"
        if what == "store":
            self._declared[name] = f"declare void @{name}({type}, ptr, {flags})"
            self._emit(f"call void @{name}({args})")
            return Val("", "void")
        self._declared[name] = f"declare {type} @{name}(ptr, {flags}, {type})"
        return self._value(f"call {type} @{name}({args})", type)

    def place(self, pointer: Val, index: int | Val, type: str = "i64") -> Val:
        """The address of `pointer[index]`."""
        return Val(self._address(pointer, self._int(_integer(0), index), type), "ptr")

    def slot_place(self, number: int) -> Val:
        """The address of a slot."""
        return self.place(Val("%args", "ptr"), number)

    def symbol(self, name: str, type: str) -> Val:
        """The address of a variable that another object has."""
        self._declared[name] = f"@{name} = external global {type}"
        return Val(f"@{name}", "ptr")

    # what other threads see
    def shared(self, place: Val, type: str = "i64", order: str = "monotonic") -> Val:
        """What is at a place that other threads write."""
        return self._value(f"load atomic {type}, ptr {place.ref} {order}, align {_alignment(type)}", type)

    def share(self, place: Val, value: Val, order: str = "monotonic") -> None:
        """Write to a place that other threads read."""
        self._emit(f"store atomic {value.type} {value.ref}, ptr {place.ref} {order}, align {_alignment(value.type)}")

    def exchange(self, op: str, place: Val, value: Val) -> Val:
        """What was at a place, which is changed in the same moment: `xchg`, `add` or `sub`."""
        return self._value(f"atomicrmw {op} ptr {place.ref}, {value.type} {value.ref} seq_cst", value.type)

    def replaced(self, place: Val, old: Val, new: Val) -> Val:
        """Whether `new` took the place of `old`, which was there."""
        pair = f"{{ {old.type}, i1 }}"
        text = f"cmpxchg ptr {place.ref}, {old.type} {old.ref}, {new.type} {new.ref} seq_cst seq_cst"
        return self.member(self._value(text, pair), 1, "i1")

    def slot(self, number: int, type: str, name: str) -> Val:
        return self.load(Val("%args", "ptr"), self.i64(number), type, name)

    def set_slot(self, number: int, value: Val) -> None:
        self.store(Val("%args", "ptr"), self.i64(number), value)

    # variables
    def var(self, name: str, init: Val) -> Var:
        var = Var(self._fresh(f"v.{name}"), init.type)
        # zero at entry: an early failure may reach the epilogue before the variable is set
        self._entry.append(f"  {var.name} = alloca {init.type}")
        self._entry.append(f"  store {init.type} zeroinitializer, ptr {var.name}")
        self.set(var, init)
        return var

    def lasting(self, name: str, init: Val) -> Var:
        var = Var(self._fresh(f"v.{name}"), init.type)
        self._entry.append(f"  {var.name} = alloca {init.type}")
        self._entry.append(f"  store {init.type} {init.ref}, ptr {var.name}")
        return var

    def get(self, var: Var) -> Val:
        return self._value(f"load {var.type}, ptr {var.name}", var.type)

    def set(self, var: Var, value: Val) -> None:
        self._emit(f"store {value.type} {value.ref}, ptr {var.name}")

    # vectors
    def splat(self, value: Val, lanes: int) -> Val:
        type = vector_of(value.type, lanes)
        one = self._value(f"insertelement {type} poison, {value.type} {value.ref}, i64 0", type)
        return self._value(f"shufflevector {type} {one.ref}, {type} poison, <{lanes} x i32> zeroinitializer", type)

    def extract(self, vector: Val, lane: int) -> Val:
        return self._value(f"extractelement {vector.type} {vector.ref}, i64 {lane}", scalar_of(vector.type))

    def insert(self, vector: Val, lane: int, value: Val) -> Val:
        text = f"insertelement {vector.type} {vector.ref}, {value.type} {value.ref}, i64 {lane}"
        return self._value(text, vector.type)

    def shuffle(self, x: Val, y: Val, lanes: Sequence[int]) -> Val:
        chosen = f"<{len(lanes)} x i32> <{', '.join(f'i32 {lane}' for lane in lanes)}>"
        type = vector_of(scalar_of(x.type), len(lanes))
        return self._value(f"shufflevector {x.type} {x.ref}, {y.type} {y.ref}, {chosen}", type)

    def below(self, lanes: int, count: Val) -> Val:
        numbers = ", ".join(f"i64 {lane}" for lane in range(lanes))
        every = self.splat(count, lanes)
        return self.compare("slt", Val(f"<{numbers}>", every.type), every)

    def member(self, pair: Val, number: int, type: str) -> Val:
        return self._value(f"extractvalue {pair.type} {pair.ref}, {number}", type)

    # control
    def for_(self, lo: Val, hi: Val, name: str = "i", step: int = 1, some: bool = False) -> AbstractContextManager[Val]:
        counter = self.var(name, lo)
        loop = self.while_(lambda: self.lt(self.get(counter), hi), some)
        loop.__enter__()
        index = self.get(counter)

        def end() -> None:
            self.set(counter, self.binary("add", index, self.i64(step)))
            loop.__exit__(None, None, None)

        return Block(index, end)

    def while_(self, condition: Callable[[], Val], some: bool = False) -> AbstractContextManager[None]:
        body, done = self._new_label("loop"), self._new_label("done")
        self._jump(f"br label %{body}" if some else f"br i1 {condition().ref}, label %{body}, label %{done}")
        self._label(body)

        def end() -> None:
            if self._open:
                self._jump(f"br i1 {condition().ref}, label %{body}, label %{done}")
            self._label(done)

        return Block(None, end)

    def if_(self, condition: Val) -> AbstractContextManager[None]:
        yes, done = self._new_label("then"), self._new_label("endif")
        self._jump(f"br i1 {condition.ref}, label %{yes}, label %{done}")
        self._label(yes)
        return Block(None, lambda: self._label(done))

    def if_else(self, condition: Val, yes: Callable[[], object], no: Callable[[], object] | None = None) -> None:
        if no is None:
            with self.if_(condition):
                yes()
            return
        self.first_of([(lambda: condition, yes)], no)

    def first_of(self, cases: Sequence[Case], no: Callable[[], object]) -> None:
        ends = []
        for condition, yes in cases:
            then, other, done = self._new_label("then"), self._new_label("else"), self._new_label("endif")
            self._jump(f"br i1 {condition().ref}, label %{then}, label %{other}")
            self._label(then)
            yes()
            if self._open:
                self._jump(f"br label %{done}")
            self._label(other)
            ends.append(done)
        no()
        for done in reversed(ends):
            self._label(done)

    def mark(self, label: str) -> None:
        """What follows has a name that others may go on at."""
        self._label(label)

    def go(self, label: str) -> None:
        """Go on at a name."""
        self._jump(f"br label %{label}")

    def branch(self, condition: Val, yes: str, no: str) -> None:
        """Go on at one of two names."""
        self._jump(f"br i1 {condition.ref}, label %{yes}, label %{no}")

    def switch(self, number: Val, labels: Mapping[int, str], other: str) -> None:
        """Go on at the name of a number."""
        cases = " ".join(f"i64 {k}, label %{label}" for k, label in labels.items())
        self._jump(f"switch i64 {number.ref}, label %{other} [ {cases} ]")

    def fail(self, status: int | Val) -> None:
        self._fail(self.i64(status) if isinstance(status, int) else status)

    def _fail(self, status: Val) -> None:
        self.set(self._status, status)
        self._jump("br label %leave")

    def routine(self, name: str, state: Sequence[Var], args: Mapping[str, Val], body: Body) -> None:
        result = f"{{ {', '.join(('i64', *(v.type for v in state)))} }}"
        if name not in self._routines:
            self._routines[name] = self._define(name, result, state, args, body)
        passed = [*(self.get(v) for v in state), *args.values()]
        given = ", ".join(f"{v.type} {v.ref}" for v in passed)
        made = self._value(f"call {result} @{_symbol(name)}({given})", result)
        for k, var in enumerate(state, 1):
            self.set(var, self.member(made, k, var.type))
        status = self.member(made, 0, "i64")
        with self.if_(self.ne(status, OK)):
            self._fail(status)

    def _define(self, name: str, result: str, state: Sequence[Var], args: Mapping[str, Val], body: Body) -> list[str]:
        """The lines of a routine: state and arguments come in by value, status and state go out together."""
        kept = self._entry, self._body, self._open, self._status
        self._entry, self._body = [], []
        self._set_open(True)
        self._status = self.var("status", self.const("i64", OK))
        stems = [v.name.removeprefix("%v.").rsplit(".", 1)[0] for v in state]
        types = [v.type for v in state] + [v.type for v in args.values()]
        given = [Val(self._fresh("in"), type) for type in types]
        own = [self.var(stem, value) for stem, value in zip(stems, given, strict=False)]
        body(self, own, given[len(own) :])
        self._label("leave")
        made = Val("undef", result)
        for k, var in enumerate([self._status, *own]):
            value = self.get(var)
            made = self._value(f"insertvalue {result} {made.ref}, {value.type} {value.ref}, {k}", result)
        self._emit(f"ret {result} {made.ref}")
        head = f"define internal {result} @{_symbol(name)}({', '.join(f'{v.type} {v.ref}' for v in given)}) nounwind {{"
        lines = [head, "entry:", *self._entry, *self._body, "}"]
        self._entry, self._body, open, self._status = kept
        self._set_open(open)
        return lines

    def function(self, name: str, x: Val, formula: Formula) -> Val:
        symbol = f"{name}.{scalar_of(x.type)}.{lanes_of(x.type)}"
        return self.inner(symbol, x.type, [x], lambda given: formula(self, given))

    def inner(self, symbol: str, returns: str, args: Sequence[Val], body: Callable[..., Val | None]) -> Val:
        """Call the function `symbol`, which `body(*args)` writes at the first call, with its own variables; it may use nothing else of the
        kernel but constants."""
        if symbol not in self._routines:
            self._routines[symbol] = self.defined(f"internal {returns} @{symbol}", [a.type for a in args], body)
        return self.call(symbol, returns, args)

    def defined(self, head: str, types: Sequence[str], body: Callable[..., Val | None]) -> list[str]:
        """The lines of a function whose arguments have these types."""
        kept = self._entry, self._body, self._open, self._flags
        self._entry, self._body, self._flags = [], [], ""
        self._set_open(True)
        given = [Val(self._fresh("x"), type) for type in types]
        made = body(*given)
        self._emit("ret void" if made is None else f"ret {made.type} {made.ref}")
        head = f"define {head}({', '.join(f'{x.type} {x.ref}' for x in given)}) nounwind {{"
        lines = [head, "entry:", *self._entry, *self._body, "}"]
        self._entry, self._body, open, self._flags = kept
        self._set_open(open)
        return lines

    def finish(self, epilogue: Callable[[], None]) -> str:
        self._label("leave")
        epilogue()
        self._emit(f"ret i64 {self.get(self._status).ref}")
        head = f"define i64 @{self._name}(ptr noundef %args) nounwind {{\nentry:"
        return self.module([head, *self._entry, *self._body, "}"])

    def module(self, lines: Sequence[str]) -> str:
        """The text of a function, with the others that it calls."""
        routines = [line for text in self._routines.values() for line in text]
        told = [f"{name} = {what}" for name, what in self._metadata.items()]
        return "\n".join([*sorted(self._declared.values()), *routines, *lines, *told]) + "\n"


def _symbol(name: str) -> str:
    """The name as LLVM may write it: other characters by their code points."""
    return "".join(c if c.isascii() and (c.isalnum() or c == "_") else f".{ord(c):x}." for c in name)


def _overload(type: str) -> str:
    """The types in the names of intrinsics that gather and scatter vectors."""
    return f"v{lanes_of(type)}{_SHORT[scalar_of(type)]}.v{lanes_of(type)}p0"


def _flags(type: str) -> str:
    """The type of truth values for the lanes of a vector."""
    return f"<{lanes_of(type)} x i1>"


def _ones(type: str) -> str:
    """A vector of ones."""
    one = f"{scalar_of(type)} {'1.0' if scalar_of(type) in _FLOAT else '1'}"
    return f"<{', '.join([one] * lanes_of(type))}>"


@functools.cache
def _alignment(type: str) -> int:
    return {"i8": 1, "i16": 2, "i32": 4, "float": 4, "i64": 8, "double": 8}[scalar_of(type)]
