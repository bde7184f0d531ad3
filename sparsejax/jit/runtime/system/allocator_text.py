"""The machine code of `allocator`: one function `(old, size, what)`.

    (null, size, what)     take        (block, 0, _)          give
    (block, size, what)    resize      (block, size, SETTLE)  settle
    (null, -1, _)          drop

The state, another symbol, holds: the limit, the bytes that are free, the number of the next entry, how many free blocks there are; from word 8 on the
sizes of free blocks, which only tell where looking is worth it, then where they are, or 0; and for every kind of size (eight for each power
of two, as sizes are rounded) how many free blocks it has, and where the last of them went. So nobody searches for what is not there: with a list of
1,000 blocks of other sizes, taking one and giving it back took 25 microseconds, and 0.3 with this.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from sparsejax.jit.backend.builder import Val
from sparsejax.jit.backend.llvm import LLVMBuilder
from sparsejax.jit.codegen.abi import PLAIN, SETTLE, SPARSE, STATE, ZERO

SMALLEST = 32 << 10
"""Bytes from which blocks are recycled here: segments that threads fill have some 50 KB, which the C library gives back to the system every time."""
HUGE = 3 << 19
"""Bytes from which on huge pages are asked for: 64 MB are touched in 4.3 ms instead of 33, and sums at random places of 1.6 MB take 0.88 of the time. A block
of fewer bytes would leave too much of a huge page unused; one of more than 2 MB that would leave more than an eighth unused ends in small pages."""
SLOTS = 1 << 10
"""Entries for free blocks: lists of a bucket workspace are 512."""
FULL = SLOTS * 7 // 8
"""Free blocks that are kept at most, so that an entry for the next one is found at once."""
KINDS = 8 * (48 - 15)
"""Of sizes: eight for each power of two from `SMALLEST` on."""
COPIED = 1 << 20
"""Bytes up to which a block that grows moves into a free one: that costs less than the faults of fresh pages behind it."""
LEAST = 896
"""Bytes beyond which blocks of the C heap are kept, too: up to there the C library has a list for every thread, beyond it takes ten times as long."""
WAYS, CLASSES = 4, 4 * 6 + 1
"""Blocks of the C heap that are kept of one size, and sizes: four for each power of two."""
WORDS = 8 + 2 * SLOTS + 2 * KINDS + WAYS * CLASSES
"""Of the state."""
_PAGE, _HUGE_PAGE = 4096, 2 << 20
_LIMIT, _HELD, _NEXT, _FREE, _SIZES, _PLACES, _KIND_WORDS = 0, 1, 2, 3, 8, 8 + SLOTS, 8 + 2 * SLOTS
_KEPT_PLACES = _KIND_WORDS + 2 * KINDS
"""Where what is in the state."""
_SIZE, _WEIGHT, _KEPT, _RAW, _DATA = 0, 1, 2, 3, 8
"""Words of a block: its size, the bytes that may be resident, whether it goes to the list, on the C heap what that gave; then its data."""
_NULL = Val("null", "ptr")


_PORTABLE = """\
declare ptr @realloc(ptr, i64)
declare ptr @calloc(i64, i64)
declare void @free(ptr)

define ptr @kernel(ptr %old, i64 %size, i64 %what) nounwind {
  %none = icmp sle i64 %size, 0
  br i1 %none, label %give, label %some
give:
  call void @free(ptr %old)
  ret ptr null
some:
  switch i64 %what, label %move [ i64 1, label %clear i64 2, label %keep i64 3, label %clear i64 4, label %move ]
keep:
  ret ptr %old
clear:
  %zeros = call ptr @calloc(i64 %size, i64 1)
  ret ptr %zeros
move:
  %moved = call ptr @realloc(ptr %old, i64 %size)
  ret ptr %moved
}
"""


@functools.cache
def text(mremap: bool = True) -> str:
    """The LLVM text, for systems that have `mremap` or for the C heap."""
    if not mremap:
        return _PORTABLE
    b = LLVMBuilder()
    return b.module(b.defined("ptr @kernel", ("ptr", "i64", "i64"), lambda old, size, what: _block(b, old, size, what)))


def _function(returns: str) -> Callable[[Callable[..., Val | None]], Callable[..., Val]]:
    """A function of the machine code, which is called where its writer is; numbers are passed as constants."""

    def of(body: Callable[..., Val | None]) -> Callable[..., Val]:
        def call(b: LLVMBuilder, *args: Val | int) -> Val:
            given = [b.i64(x) if isinstance(x, int) else x for x in args]
            return b.inner(body.__name__.strip("_"), returns, given, functools.partial(body, b))

        return call

    return of


def _state(b: LLVMBuilder, word: Val | int) -> Val:
    return b.place(b.symbol(STATE, f"[{WORDS} x i64]"), word)


def _get(b: LLVMBuilder, block: Val, word: int) -> Val:
    return b.load(block, b.i64(word), "i64")


def _set(b: LLVMBuilder, block: Val, word: int, value: Val) -> None:
    b.store(block, b.i64(word), value)


def _ge(b: LLVMBuilder, x: Val, y: Val | int) -> Val:
    return b.compare("sge", x, y if isinstance(y, Val) else b.i64(y))


def _multiple(b: LLVMBuilder, x: Val, unit: Val | int) -> Val:
    """`x` less what is over multiples of a power of two."""
    return b.and_(x, b.sub(b.i64(0), unit) if isinstance(unit, Val) else b.i64(-unit))


@_function("ptr")
def _kind(b: LLVMBuilder, size: Val) -> Val:
    """Of a size: how many free blocks it has, and where the last one went."""
    zeros = b.call("llvm.ctlz.i64", "i64", [size, b.const("i1", 0)])
    eighth = b.and_(b.binary("lshr", size, b.sub(b.i64(60), zeros)), b.i64(7))
    number = b.add(b.mul(b.sub(b.i64(64 - SMALLEST.bit_length()), zeros), 8), eighth)
    known = b.call("llvm.umin.i64", "i64", [number, b.i64(KINDS - 1)])
    return _state(b, b.add(b.mul(known, 2), _KIND_WORDS))


@_function("void")
def _count(b: LLVMBuilder, block: Val, size: Val, one: Val) -> None:
    """A free block more, or one less."""
    b.exchange("add", _state(b, _HELD), size)
    b.exchange("add", _kind(b, _get(b, block, _SIZE)), one)
    b.exchange("add", _state(b, _FREE), one)


@_function("ptr")
def _pull(b: LLVMBuilder, k: Val) -> Val:
    """The free block k, or null; no longer in the list."""
    block = b.convert("inttoptr", b.exchange("xchg", _state(b, b.add(k, _PLACES)), b.i64(0)), "ptr")
    with b.if_(b.ne(block, _NULL)):
        _count(b, block, b.sub(b.i64(0), _get(b, block, _WEIGHT)), -1)
    return block


@_function("void")
def _unmap(b: LLVMBuilder, block: Val) -> None:
    with b.if_(b.ne(block, _NULL)):
        b.call("munmap", "i32", [block, _get(b, block, _SIZE)])


@_function("void")
def _put(b: LLVMBuilder, block: Val) -> None:
    """To the end of the list; the oldest go while too much is free."""
    weight, limit = _get(b, block, _WEIGHT), b.shared(_state(b, _LIMIT))
    heavy = b.compare("sgt", weight, limit)
    b.if_else(heavy, lambda: _unmap(b, block), lambda: _append(b, block, weight, limit))


@_function("void")
def _append(b: LLVMBuilder, block: Val, weight: Val, limit: Val) -> None:
    _count(b, block, weight, 1)
    tries, placed = b.var("tries", b.exchange("add", _state(b, _NEXT), b.i64(1))), b.var("placed", b.const("i1", 0))
    last = b.add(b.get(tries), SLOTS - 1)
    size, address = _get(b, block, _SIZE), b.convert("ptrtoint", block, "i64")

    def note(number: Val) -> None:
        b.share(_state(b, b.add(number, _SIZES)), size)
        b.share(b.place(_kind(b, size), 1), number)

    def over() -> Val:
        return b.binary("or", b.get(placed), b.compare("sgt", b.get(tries), last))

    with b.while_(lambda: b.eq(over(), 0), some=True):  # the next entry that is empty
        number = b.binary("urem", b.get(tries), b.i64(SLOTS))
        place = _state(b, b.add(number, _PLACES))
        with b.if_(b.eq(b.shared(place), 0)):
            b.set(placed, b.replaced(place, b.i64(0), address))
        b.if_else(b.get(placed), lambda: note(number), lambda: b.increment(tries))
    with b.if_(b.eq(b.get(placed), 0)):  # others were faster everywhere
        _count(b, block, b.sub(b.i64(0), weight), -1)
        _unmap(b, block)
    first = b.add(b.get(tries), 1)
    k = b.var("k", first)

    def much() -> Val:
        heavy = b.compare("sgt", b.shared(_state(b, _HELD), order="seq_cst"), limit)
        many = b.compare("sgt", b.shared(_state(b, _FREE), order="seq_cst"), b.i64(FULL))
        return b.and_(b.binary("or", heavy, many), b.lt(b.get(k), b.add(first, SLOTS)))

    with b.while_(much):  # the oldest first
        _unmap(b, _pull(b, b.binary("urem", b.get(k), b.i64(SLOTS))))
        b.increment(k)


@_function("void")
def _drop(b: LLVMBuilder) -> None:
    with b.for_(b.i64(0), b.i64(SLOTS)) as k:
        _unmap(b, _pull(b, k))
    with b.for_(b.i64(0), b.i64(WAYS * CLASSES)) as k:
        _freed(b, b.convert("inttoptr", b.exchange("xchg", _state(b, b.add(k, _KEPT_PLACES)), b.i64(0)), "ptr"))


@_function("void")
def _freed(b: LLVMBuilder, block: Val) -> None:
    """To the C heap."""
    with b.if_(b.ne(block, _NULL)):
        b.call("free", "void", [b.load(block, b.i64(_RAW), "ptr")])


def _quarter(b: LLVMBuilder, size: Val) -> Val:
    """The logarithm of a quarter of the power of two in a size."""
    return b.sub(b.i64(61), b.call("llvm.ctlz.i64", "i64", [size, b.const("i1", 0)]))


@_function("ptr")
def _class(b: LLVMBuilder, size: Val) -> Val:
    """Where blocks of the C heap of a size are kept, one in `WAYS` words; the size is one that blocks are rounded to."""
    shift = _quarter(b, size)
    number = b.add(b.mul(b.sub(shift, LEAST.bit_length() - 3), 4), b.and_(b.binary("lshr", size, shift), b.i64(3)))
    return _state(b, b.add(b.mul(number, WAYS), _KEPT_PLACES))


@_function("i64")
def _rounded(b: LLVMBuilder, size: Val) -> Val:
    """With the first line, to an eighth of a power of two, in whole pages; in huge ones, where these leave no more than an eighth unused, and one always."""
    whole = b.add(size, 63)
    shift = b.sub(b.i64(60), b.call("llvm.ctlz.i64", "i64", [whole, b.const("i1", 0)]))
    unit = b.max(b.binary("shl", b.i64(1), shift), b.i64(_PAGE))
    small, huge = (_multiple(b, b.add(whole, step), step) for step in (unit, b.max(unit, b.i64(_HUGE_PAGE))))
    full = _ge(b, huge, b.mul(b.sub(huge, whole), 8))
    one = b.and_(_ge(b, whole, HUGE), b.eq(huge, _HUGE_PAGE))
    return b.select(b.binary("or", full, one), huge, small)


@_function("ptr")
def _fresh(b: LLVMBuilder, room: Val, sparse: Val) -> Val:
    """Pages of the system, or null; huge ones unless few will be touched."""
    huge = b.and_(_ge(b, room, HUGE), b.eq(sparse, 0))
    slack = b.select(huge, b.i64(_HUGE_PAGE), b.i64(0))
    flags = [b.const("i32", n) for n in (3, 34, -1)]
    start = b.convert("ptrtoint", b.call("mmap", "ptr", [_NULL, b.add(room, slack), *flags, b.i64(0)]), "i64")
    block = b.var("block", start)

    def mapped() -> None:
        with b.if_(huge):
            aligned = _multiple(b, b.add(start, _HUGE_PAGE - 1), _HUGE_PAGE)
            head = b.sub(aligned, start)
            for at, size in ((start, head), (b.add(aligned, room), b.sub(slack, head))):
                with b.if_(b.ne(size, 0)):
                    b.call("munmap", "i32", [b.convert("inttoptr", at, "ptr"), size])
            b.set(block, aligned)
            _advised(b, b.convert("inttoptr", aligned, "ptr"), room, 14)
        made = b.convert("inttoptr", b.get(block), "ptr")
        for word, value in ((_SIZE, room), (_WEIGHT, room), (_KEPT, b.convert("zext", b.eq(sparse, 0), "i64"))):
            _set(b, made, word, value)

    b.if_else(b.eq(start, -1), lambda: b.set(block, b.i64(0)), mapped)
    return b.convert("inttoptr", b.get(block), "ptr")


def _advised(b: LLVMBuilder, start: Val, size: Val, advice: int) -> None:
    b.call("madvise", "i32", [start, size, b.const("i32", advice)])


@_function("ptr")
def _newest(b: LLVMBuilder, first: Val, last: Val) -> Val:
    """Of kinds of sizes, that of the free block that was given back last; `first` where there is none."""
    kind, found, least = b.var("kind", first), b.var("found", first), b.var("least", b.i64(SLOTS))
    end = b.sub(b.shared(_state(b, _NEXT)), 1)
    with b.while_(lambda: b.compare("ule", b.get(kind), last), some=True):
        age = b.and_(b.sub(end, b.shared(b.place(b.get(kind), 1))), b.i64(SLOTS - 1))
        some = b.compare("sgt", b.shared(b.get(kind)), b.i64(0))
        with b.if_(b.and_(some, b.lt(age, b.get(least)))):
            b.set(least, age)
            b.set(found, b.get(kind))
        b.set(kind, b.place(b.get(kind), 2))
    return b.get(found)


@_function("ptr")
def _recycled(b: LLVMBuilder, room: Val, exact: Val, lately: Val) -> Val:
    """The smallest free block with room, the newest first, or null. Where one is to be that was used `lately`, the newest of all: what it holds may
    still be in the second cache, and two sizes in turns have the same memory."""
    tight = b.and_(exact, b.eq(lately, 0))
    most = b.select(tight, b.add(room, b.binary("lshr", room, b.i64(2))), b.mul(room, 2))
    first, last = _kind(b, room), _kind(b, most)
    kind, found, open_ = b.var("kind", first), b.var("found", _NULL), b.var("open", b.const("i1", 1))

    def look(newest: Val, k: Val) -> None:
        slot = b.and_(b.sub(newest, k), b.i64(SLOTS - 1))
        size = b.shared(_state(b, b.add(slot, _SIZES)))
        with (
            b.if_(b.and_(_ge(b, size, room), b.compare("sle", size, most))),
            b.if_(b.eq(_kind(b, size), b.get(kind))),
            b.if_(b.ne(b.shared(_state(b, b.add(slot, _PLACES))), 0)),
        ):
            block = _pull(b, slot)
            with b.if_(b.ne(block, _NULL)):
                b.set(open_, b.const("i1", 0))
                true_size = _get(b, block, _SIZE)  # the entry may have changed meanwhile

                def take() -> None:
                    b.share(b.place(b.get(kind), 1), b.and_(b.sub(slot, 1), b.i64(SLOTS - 1)))
                    _set(b, block, _WEIGHT, true_size)
                    b.set(found, block)

                b.if_else(_ge(b, true_size, room), take, lambda: _put(b, block))

    again = b.var("again", lately)
    with b.if_(lately):
        b.set(kind, _newest(b, first, last))
    with b.while_(lambda: b.and_(b.get(open_), b.compare("ule", b.get(kind), last)), some=True):
        with b.if_(b.compare("sgt", b.shared(b.get(kind)), b.i64(0))):
            newest, k = b.shared(b.place(b.get(kind), 1)), b.var("k", b.i64(0))
            with b.while_(lambda: b.and_(b.get(open_), b.lt(b.get(k), SLOTS)), some=True):
                look(newest, b.get(k))
                b.increment(k)
        following = b.select(b.get(again), first, b.place(b.get(kind), 2))
        b.set(kind, b.select(b.get(open_), following, b.get(kind)))
        b.set(again, b.const("i1", 0))
    return b.get(found)


def _insisted(b: LLVMBuilder, make: Callable[[], Val], failed: Val) -> Val:
    """What is made; if that fails, once more after all free blocks went back to the system."""
    made = b.var("made", make())
    with b.if_(b.eq(b.get(made), failed)):
        _drop(b)
        b.set(made, make())
    return b.get(made)


@_function("ptr")
def _take(b: LLVMBuilder, size: Val, what: Val) -> Val:
    few = b.eq(what, SPARSE)
    zero, block = b.binary("or", b.eq(what, ZERO), few), b.var("block", _NULL)

    def heap() -> None:
        room, unit = b.var("room", size), b.binary("shl", b.i64(1), b.max(_quarter(b, b.max(size, b.i64(1))), b.i64(0)))
        with b.if_(b.lt(b.i64(LEAST), size)):
            b.set(room, _multiple(b, b.sub(b.add(size, unit), 1), unit))
            places = _class(b, b.get(room))
            for way in range(WAYS):
                place = b.place(places, way)
                with b.if_(b.and_(b.eq(b.get(block), _NULL), b.ne(b.shared(place), 0))):
                    b.set(block, b.convert("inttoptr", b.exchange("xchg", place, b.i64(0)), "ptr"))
        b.if_else(b.eq(b.get(block), _NULL), lambda: fresh_heap(b.get(room)), clear)

    def fresh_heap(room: Val) -> None:
        raw = _insisted(b, lambda: b.call("malloc", "ptr", [b.add(room, 127)]), _NULL)
        with b.if_(b.ne(raw, _NULL)):
            start = b.convert("ptrtoint", raw, "i64")
            made = b.convert("inttoptr", _multiple(b, b.add(start, 63), 64), "ptr")
            b.set(block, made)
            _set(b, made, _SIZE, b.i64(0))
            _set(b, made, _RAW, start)
            _set(b, made, _WEIGHT, room)
            clear()

    def clear() -> None:
        with b.if_(zero):
            b.call("memset", "ptr", [b.place(b.get(block), _DATA), b.const("i32", 0), size])

    def pages() -> None:
        with b.if_(b.lt(size, 1 << 60)):
            room = _rounded(b, size)
            sparse = b.and_(_ge(b, room, HUGE), few)
            with b.if_(b.eq(sparse, 0)):
                exact = b.ne(what, PLAIN)
                lately = b.and_(b.eq(few, 0), b.lt(room, HUGE))
                b.set(block, _recycled(b, room, exact, b.and_(exact, lately)))
            fresh = functools.partial(_fresh, b, room, sparse)
            unknown = b.eq(b.get(block), _NULL)
            b.if_else(unknown, lambda: b.set(block, _insisted(b, fresh, _NULL)), clear)

    b.if_else(b.lt(size, SMALLEST), heap, pages)
    return _data(b, b.get(block))


def _data(b: LLVMBuilder, block: Val) -> Val:
    return b.select(b.eq(block, _NULL), _NULL, b.place(block, _DATA))


@_function("void")
def _give(b: LLVMBuilder, data: Val) -> None:
    block = b.place(data, -_DATA)

    def pages() -> None:
        system = b.eq(_get(b, block, _KEPT), 0)
        b.if_else(system, lambda: _unmap(b, block), lambda: _put(b, block))

    def heap() -> None:
        room, placed = _get(b, block, _WEIGHT), b.var("placed", b.const("i1", 0))
        limit, address = b.shared(_state(b, _LIMIT)), b.convert("ptrtoint", block, "i64")
        with b.if_(b.and_(b.lt(b.i64(LEAST), room), b.ne(limit, 0))):
            places = _class(b, room)
            for way in range(WAYS):
                place = b.place(places, way)
                with b.if_(b.and_(b.eq(b.get(placed), b.const("i1", 0)), b.eq(b.shared(place), 0))):
                    b.set(placed, b.replaced(place, b.i64(0), address))
        with b.if_(b.eq(b.get(placed), b.const("i1", 0))):
            _freed(b, block)

    b.if_else(b.eq(_get(b, block, _SIZE), 0), heap, pages)


@_function("ptr")
def _resized(b: LLVMBuilder, data: Val, size: Val) -> Val:
    block, made = b.place(data, -_DATA), b.var("made", data)
    room = _get(b, block, _SIZE)

    def move(to: Val, count: Val) -> None:
        """What was there goes to another block."""
        b.set(made, to)
        with b.if_(b.ne(to, _NULL)):
            b.call("memcpy", "ptr", [to, data, count])
            _give(b, data)

    def heap() -> None:
        asked = _get(b, block, _WEIGHT)
        with b.if_(b.lt(asked, size)):
            move(_take(b, size, PLAIN), asked)

    def grow(needed: Val) -> None:
        b.set(made, _NULL)
        with b.if_(b.compare("sle", needed, b.i64(COPIED))):
            move(_data(b, _recycled(b, needed, b.const("i1", 0), b.const("i1", 0))), b.sub(room, 8 * _DATA))
        with b.if_(b.eq(b.get(made), _NULL)):
            extend(needed)

    def extend(needed: Val) -> None:
        sparse = b.eq(_get(b, block, _KEPT), 0)
        args, failed = [block, room, needed, b.const("i32", 1)], b.convert("inttoptr", b.i64(-1), "ptr")
        there = _insisted(b, lambda: b.call("mremap", "ptr", args), failed)
        with b.if_(b.ne(there, failed)):
            _set(b, there, _SIZE, needed)
            _set(b, there, _WEIGHT, needed)
            with b.if_(b.and_(_ge(b, needed, HUGE), b.eq(sparse, 0))):
                _advised(b, there, needed, 14)
            b.set(made, b.place(there, _DATA))

    def pages() -> None:
        sane = b.lt(size, 1 << 60)
        needed = _rounded(b, b.select(sane, size, b.i64(1)))
        with b.if_(b.eq(sane, 0)):
            b.set(made, _NULL)
        with b.if_(b.and_(sane, b.lt(room, needed))):
            grow(needed)

    b.if_else(b.eq(room, 0), heap, pages)
    return b.get(made)


@_function("ptr")
def _settled(b: LLVMBuilder, data: Val, size: Val) -> Val:
    """The block without the pages behind what is used, where they are more than that, or huge: those of a recycled block are touched again soon, at a
    fault each."""
    block = b.place(data, -_DATA)
    room = _get(b, block, _SIZE)
    huge = _ge(b, room, HUGE)
    unit = b.select(huge, b.i64(_HUGE_PAGE), b.i64(_PAGE))
    used = _multiple(b, b.add(b.add(size, 63), unit), unit)
    with b.if_(b.compare("sgt", b.sub(room, used), b.select(huge, b.i64(0), used))):
        _set(b, block, _WEIGHT, used)
        _advised(b, b.place(block, used, "i8"), b.sub(room, used), 4)
    return data


def _block(b: LLVMBuilder, old: Val, size: Val, what: Val) -> Val:
    made, some = b.var("made", _NULL), b.compare("sgt", size, b.i64(0))

    def new() -> None:
        with b.if_(some):
            b.set(made, _take(b, size, what))
        with b.if_(b.eq(size, -1)):
            _drop(b)

    def keep() -> None:
        settle = b.eq(what, SETTLE)
        b.if_else(settle, lambda: b.set(made, _settled(b, old, size)), lambda: b.set(made, _resized(b, old, size)))

    def there() -> None:
        b.if_else(some, keep, lambda: _give(b, old))

    b.if_else(b.eq(old, _NULL), new, there)
    return b.get(made)
