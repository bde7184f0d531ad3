"""Lists of (key, value) entries: parallel arrays that grow; sorting, reducing and merging them.

    sort      LSD radix sort over the bits in which the keys differ; insertion sort for short lists; nothing for sorted ones
    reduce    entries with equal keys become one, combined in order
    merge     two sorted lists without duplicates become one

All are routines of the kernel: written once, whatever number of places need them. Source: "Compilation of Modular and
General Sparse Workspaces", section 6 (insert, sort, merge), with packed keys instead of a comparison sort of structs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sparsejax.jit.backend.builder import Builder, Val, Var
from sparsejax.jit.codegen import emit
from sparsejax.jit.codegen.kernel_memory import allocate, clear, free, null, release, resize
from sparsejax.jit.codegen.workspaces.keys import Key, less, same

SHORT = 32  # insertion sort up to here
DIGIT, MANY = 11, 4096  # bits of a radix digit, eight for lists shorter than MANY
FIRST = 64  # entries that a list makes room for at first


@dataclass(frozen=True)
class Pointers:
    """The addresses of a list's arrays at one point of the kernel."""

    keys: tuple[Val, ...]
    vals: Val

    def __iter__(self) -> Iterator[Val]:
        return iter((*self.keys, self.vals))


@dataclass(frozen=True)
class Lists:
    """The arrays of a list: one per word of the key, one of values, and the number of entries they have room for."""

    keys: tuple[Var, ...]
    vals: Var
    room: Var

    @property
    def state(self) -> list[Var]:
        return [*self.keys, self.vals, self.room]

    def at(self, b: Builder) -> Pointers:
        return Pointers(tuple(b.get(k) for k in self.keys), b.get(self.vals))


@dataclass(frozen=True)
class Entries:
    """What the entries of a workspace look like: words of a key, dtype of a value, operator that combines equal keys
    (None: the later one stays)."""

    words: int
    dtype: emit.DType
    op: str | None

    @property
    def _tag(self) -> str:
        return f"{self.words}_{self.dtype.itemsize}"

    @property
    def raw(self) -> emit.DType:
        """The dtype by which values are moved."""
        return np.dtype(np.complex128) if self.dtype.itemsize == 16 else np.dtype(f"u{self.dtype.itemsize}")

    def make(self, b: Builder, name: str) -> Lists:
        """An empty list, without memory."""
        keys = tuple(b.var(f"{name}_keys", null(b)) for _ in range(self.words))
        return Lists(keys, b.var(f"{name}_vals", null(b)), b.var(f"{name}_room", b.i64(0)))

    def view(self, state: Sequence[Var]) -> Lists:
        """The list whose `state` this is."""
        return Lists(tuple(state[: self.words]), state[self.words], state[self.words + 1])

    def pointers(self, values: Sequence[Val]) -> Pointers:
        return Pointers(tuple(values[: self.words]), values[self.words])

    # entries
    def key(self, b: Builder, pointers: Pointers, position: Val) -> Key:
        return tuple(b.load(p, position, "i64", "key") for p in pointers.keys)

    def put_key(self, b: Builder, pointers: Pointers, position: Val, key: Key) -> None:
        for pointer, word in zip(pointers.keys, key, strict=True):
            b.store(pointer, position, word)

    def value(self, b: Builder, pointers: Pointers, position: Val) -> emit.Num:
        return emit.load(b, pointers.vals, position, self.dtype, 1, "v")

    def put(self, b: Builder, pointers: Pointers, position: Val, key: Key, value: emit.Num) -> None:
        self.put_key(b, pointers, position, key)
        emit.store(b, pointers.vals, position, value)

    def combine(self, b: Builder, old: emit.Num, new: emit.Num) -> emit.Num:
        return new if self.op is None else emit.apply(b, self.op, [old, new], self.dtype)

    def move(self, b: Builder, source: Pointers, at: Val, target: Pointers, to: Val) -> None:
        """`target[to] = source[at]`."""
        self.put_key(b, target, to, self.key(b, source, at))
        emit.store(b, target.vals, to, emit.load(b, source.vals, at, self.raw, 1, "v"))

    # memory
    def reserve(self, b: Builder, lists: Lists, needed: Val, keep: bool = True) -> None:
        """Make room for `needed` entries, keeping those there are or not."""
        needed = b.named("needed", needed)
        with b.if_(b.lt(b.get(lists.room), needed)):
            name = f"{'grow' if keep else 'renew'}_{self._tag}"
            b.routine(name, lists.state, {"needed": needed}, self._grow if keep else self._renew)

    def _grow(self, b: Builder, state: list[Var], args: list[Val]) -> None:
        lists = self.view(state)
        grown = b.named("grown", b.max(b.mul(b.get(lists.room), 2), b.max(args[0], b.i64(FIRST))))
        for keys in lists.keys:
            resize(b, keys, grown, 8)
        resize(b, lists.vals, grown, self.dtype.itemsize)
        b.set(lists.room, grown)

    def _renew(self, b: Builder, state: list[Var], args: list[Val]) -> None:
        lists = self.view(state)
        grown = b.named("grown", b.max(b.mul(b.get(lists.room), 2), b.max(args[0], b.i64(FIRST))))
        b.set(lists.room, b.i64(0))
        for pointer in (*lists.keys, lists.vals):
            release(b, pointer)
        for keys in lists.keys:
            b.set(keys, allocate(b, grown, 8, zero=False))
        b.set(lists.vals, allocate(b, grown, self.dtype.itemsize, zero=False))
        b.set(lists.room, grown)

    # the three routines
    def sort(self, b: Builder, lists: Lists, spare: Lists, count: Val) -> None:
        """Sort the first `count` entries of `lists`; entries with equal keys keep their order. Swaps with `spare`."""
        b.routine(f"sort_{self._tag}", [*lists.state, *spare.state], {"count": count}, self._sort)

    def _sort(self, b: Builder, state: list[Var], args: list[Val]) -> None:
        lists, spare = self.view(state[: len(state) // 2]), self.view(state[len(state) // 2 :])
        count = args[0]
        disorder = b.var("disorder", b.const("i1", 0))
        differ = [b.var("differ", b.i64(0)) for _ in range(self.words)]
        with b.if_(b.lt(b.i64(1), count)):
            here = lists.at(b)
            before = [b.var("before", word) for word in self.key(b, here, b.i64(0))]
            with b.for_(b.i64(1), count, "p") as p:
                old, key = tuple(b.get(word) for word in before), self.key(b, here, p)
                b.set(disorder, b.binary("or", b.get(disorder), less(b, key, old)))
                for bits, last, x, y in zip(differ, before, old, key, strict=True):
                    b.set(bits, b.binary("or", b.get(bits), b.binary("xor", x, y)))
                    b.set(last, y)

        def arrange() -> None:
            b.if_else(
                b.lt(b.i64(SHORT), count),
                lambda: self._radix(b, lists, spare, count, differ),
                lambda: self._insertion(b, lists, count),
            )

        b.if_else(b.get(disorder), arrange)

    def _insertion(self, b: Builder, lists: Lists, count: Val) -> None:
        here = lists.at(b)
        with b.for_(b.i64(1), count, "p") as p:
            key = self.key(b, here, p)
            value = emit.load(b, here.vals, p, self.raw, 1, "v")
            at = b.var("at", p)
            going = b.var("going", less(b, key, self.key(b, here, b.sub(p, 1))))
            with b.while_(lambda: b.get(going)):
                low = b.named("low", b.sub(b.get(at), 1))
                self.move(b, here, low, here, b.get(at))
                b.set(at, low)
                under = self.key(b, here, b.max(b.sub(low, 1), b.i64(0)))
                b.set(going, b.and_(b.lt(b.i64(0), low), less(b, key, under)))
            self.put_key(b, here, b.get(at), key)
            emit.store(b, here.vals, b.get(at), value)

    def _radix(self, b: Builder, lists: Lists, spare: Lists, count: Val, differ: list[Var]) -> None:
        self.reserve(b, spare, count, keep=False)
        counts = allocate(b, b.i64(1 << DIGIT), 8, zero=False)
        for word in reversed(range(self.words)):
            bits = b.get(differ[word])
            with b.if_(b.ne(bits, 0)):
                low = b.call("llvm.cttz.i64", "i64", [bits, b.const("i1", 1)])
                high = b.call("llvm.ctlz.i64", "i64", [bits, b.const("i1", 1)])
                span = b.named("span", b.sub(b.sub(b.i64(64), high), low))
                widest = b.named("widest", b.select(b.lt(count, MANY), b.i64(8), b.i64(DIGIT)))
                passes = b.named("passes", _divide_up(b, span, widest))
                width = b.named("width", _divide_up(b, span, passes))
                size = b.named("size", b.binary("shl", b.i64(1), width))
                mask = b.named("mask", b.sub(size, 1))
                with b.for_(b.i64(0), passes, "turn") as turn:
                    shift = b.named("shift", b.add(low, b.binary("mul", turn, width)))
                    with b.if_(b.ne(b.and_(b.binary("lshr", bits, shift), mask), 0)):
                        self._pass(b, lists, spare, count, counts, word, (shift, size, mask))
                        swap(b, lists, spare)
        free(b, counts)

    def _pass(
        self,
        b: Builder,
        lists: Lists,
        spare: Lists,
        count: Val,
        counts: Val,
        word: int,
        digit: tuple[Val, Val, Val],
    ) -> None:
        shift, size, mask = digit
        source, target = lists.at(b), spare.at(b)

        def digit_of(p: Val) -> Val:
            key = b.load(source.keys[word], p, "i64", "key")
            return b.named("digit", b.and_(b.binary("lshr", key, shift), mask))

        clear(b, counts, b.i64(0), size, 8)
        with b.for_(b.i64(0), count, "p") as p:
            d = digit_of(p)
            b.store(counts, d, b.add(b.load(counts, d, "i64", "n"), 1))
        total = b.var("total", b.i64(0))
        with b.for_(b.i64(0), size, "d") as d:
            n = b.load(counts, d, "i64", "n")
            b.store(counts, d, b.get(total))
            b.increment(total, n)
        with b.for_(b.i64(0), count, "p") as p:
            d = digit_of(p)
            to = b.load(counts, d, "i64", "to")
            b.store(counts, d, b.add(to, 1))
            self.move(b, source, p, target, to)

    def reduce(self, b: Builder, pointers: Pointers, count: Var) -> None:
        """Combine neighbours with equal keys in place; `count` becomes the number of entries left."""
        args = dict(zip((*(f"keys{w}" for w in range(self.words)), "vals"), pointers, strict=True))
        b.routine(f"reduce_{self.words}_{self.dtype}_{self.op}", [count], args, self._reduce)

    def _reduce(self, b: Builder, state: list[Var], args: list[Val]) -> None:
        (count,), here = state, self.pointers(args)
        with b.if_(b.lt(b.i64(1), b.get(count))):
            last = b.var("last", b.i64(0))
            with b.for_(b.i64(1), b.get(count), "p") as p:
                key = self.key(b, here, p)
                at = b.get(last)

                def combine(p: Val = p, at: Val = at) -> None:
                    value = self.combine(b, self.value(b, here, at), self.value(b, here, p))
                    emit.store(b, here.vals, at, value)

                def keep(p: Val = p, at: Val = at) -> None:
                    self.move(b, here, p, here, b.add(at, 1))
                    b.increment(last)

                b.if_else(same(b, key, self.key(b, here, at)), combine, keep)
            b.set(count, b.add(b.get(last), 1))

    def merge(self, b: Builder, left: Lists, n: Var, right: Pointers, m: Val, target: Lists) -> None:
        """Merge `n` entries of `left` with `m` of `right` into `target`, which has room; `left` and `target` change
        places and `n` becomes their number."""
        names = [f"{side}_{what}" for side in "abc" for what in (*(f"keys{w}" for w in range(self.words)), "vals")]
        pointers = (*left.at(b), *right, *target.at(b))
        args = {**dict(zip(names, pointers, strict=True)), "m": m}
        b.routine(f"merge_{self.words}_{self.dtype}_{self.op}", [n], args, self._merge)
        swap(b, left, target)

    def _merge(self, b: Builder, state: list[Var], args: list[Val]) -> None:
        (number,), each = state, self.words + 1
        left, right, out = (self.pointers(args[k * each : (k + 1) * each]) for k in range(3))
        n, m = b.get(number), args[-1]
        p, q, r = (b.var(name, b.i64(0)) for name in "pqr")
        with b.while_(lambda: b.and_(b.lt(b.get(p), n), b.lt(b.get(q), m))):
            x, y = self.key(b, left, b.get(p)), self.key(b, right, b.get(q))

            def both(x: Key = x) -> None:
                made = self.combine(b, self.value(b, left, b.get(p)), self.value(b, right, b.get(q)))
                self.put(b, out, b.get(r), x, made)
                b.increment(p)
                b.increment(q)

            def one(x: Key = x, y: Key = y) -> None:
                below = less(b, x, y)
                step = b.convert("zext", below, "i64")
                pointers = Pointers(
                    tuple(b.select(below, s, t) for s, t in zip(left.keys, right.keys, strict=True)),
                    b.select(below, left.vals, right.vals),
                )
                self.move(b, pointers, b.select(below, b.get(p), b.get(q)), out, b.get(r))
                b.increment(p, step)
                b.increment(q, b.sub(b.i64(1), step))

            b.if_else(same(b, x, y), both, one)
            b.increment(r)
        for source, at, end in ((left, p, n), (right, q, m)):
            with b.for_(b.get(at), end, "s") as s:
                self.move(b, source, s, out, b.get(r))
                b.increment(r)
        b.set(number, b.get(r))


def swap(b: Builder, x: Lists, y: Lists) -> None:
    """Exchange the memory of two lists."""
    for p, q in zip(x.state, y.state, strict=True):
        old = b.var("old", b.get(p))
        b.set(p, b.get(q))
        b.set(q, b.get(old))


def _divide_up(b: Builder, x: Val, y: Val) -> Val:
    return b.binary("sdiv", b.sub(b.add(x, y), 1), y)
