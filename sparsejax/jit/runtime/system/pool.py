"""A pool of native threads that run the rows of a table: `function(row)` for every row, in any order, by any thread.

    ticket     generation (32 bits) | rows (16) | next row (16)      taken by compare-and-swap
    done       rows that have returned
    home       the processor of the caller
    bell       a futex on which workers sleep; rung when somebody sleeps and a job, or several in a row, have taken `patience`
    patience   nanoseconds: what waking has taken lately, from the bell to the first worker that runs
    since      when the first of several jobs in a row came; `ended`: when the last one was over

To wake a thread takes 5 microseconds on some machines and 300 on others (virtual ones, whose idle processors are given back), much of which the
caller spends. So the caller begins alone, and rings once it has worked for as long as waking takes: what is over by then never pays, and nothing
takes more than twice as long as with foreknowledge (ski rental; A. Karlin et al., "Competitive Snoopy Caching", 1988). Of a few rows each is
long, so that it rings at once. Workers stay awake for a while, so that of jobs in a row all but the first find them.

A worker that wakes on the processor of its caller moves to another one, and stays away from it until it meets a caller elsewhere: systems wake
threads where the waker runs, and may leave them there, both taking turns (measured on two virtual machines: a job of 2.9 milliseconds every 5 takes
2.7 on two threads, and 1.7 with this).

Everything but starting threads is machine code, the same function for workers and caller. The caller takes rows too and waits only for
rows that a worker has taken, never for a worker that has not started. A worker reads what to run before it takes a row:
where the job is over meanwhile, all its rows are taken, and taking fails. The caller returns to Python now and then between two
rows, so that signals are handled.

Threads are created by the C library and never meet the interpreter; they sleep, block all signals, and end with the process.
Linux only (futex). Source: the measured variants of reference section "Threads"; futexes as in U. Drepper, "Futexes Are Tricky".
"""

from __future__ import annotations

import ctypes
import functools
import platform
import signal
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.jit.backend import compiler
from sparsejax.jit.backend.builder import OK, Val
from sparsejax.jit.backend.llvm import LLVMBuilder
from sparsejax.jit.runtime.system import result_memory

_MACHINES: dict[str, tuple[int, int, int, str, tuple[Val, ...]]] = {
    "x86_64": (202, 203, 204, "llvm.x86.sse2.pause", ()),
    "aarch64": (98, 122, 123, "llvm.aarch64.hint", (Val("1", "i32"),)),
}
"""The numbers of the system calls futex, sched_setaffinity and sched_getaffinity, and the instruction with which a waiting processor
yields."""

MOST_ROWS = 2**15
"""Rows of a table at most: 16 bits of a ticket count those that are taken, and askers count past the last."""
SLICE = 50_000_000
"""Nanoseconds after which the caller looks for signals."""
SPINS = 1 << 14
"""Turns that a thread waits awake, about 200 microseconds: several calls in a row find their workers awake."""
PAUSE = 200_000
"""Nanoseconds between two jobs in a row."""
PATIENT = 500_000
"""Nanoseconds that patience is at most: after these it pays to look again how long waking takes."""

_TICKET, _BELL, _SLEEPERS, _DONE, _FUNCTION, _BASE, _STRIDE, _STATUS, _HOME = 0, 8, 9, 16, 24, 25, 26, 27, 28
_PATIENCE, _RUNG, _SINCE, _ENDED = 10, 11, 29, 30
"""Where the words of the state are; those that different threads write lie on lines of their own."""
_STATE_WORDS = 32
_MASK, _CPUS = 128, "[128 x i8]"
"""Bytes of a set of processors: 1024 of them. Where there are more, nobody steps aside."""
_WORKER, _POST, _GO_ON, _CANCEL = range(4)
_MORE, CANCELLED = 1, 2
_WAIT, _WAKE, _NEVER, _ROWS = 128, 129, 2**63 - 1, 2**16 - 1
"""What a futex is asked for; no time; the bits of a ticket that count rows."""


def compiled() -> compiler.Kernel:
    """The machine code of workers."""
    return compiler.compile_written("the pool of threads", text)


class Pool:
    """Workers for one job at a time."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._turn = threading.Lock()
        self._code = compiled()
        compiler.keep(self._code)
        # never freed: workers sleep on it until the process ends
        self._state = _libc().calloc(_STATE_WORDS + 8, 8)
        if not self._state:
            raise MemoryError("sparsejax: no memory for threads")
        self._state = -(-self._state // 64) * 64
        self._started = [_start(self._code.address, self._state) for _ in range(workers)]

    def run(self, function: int, table: NDArray[np.int64]) -> int | None:
        """Call the machine function on every row of `table`; the status of a row that failed, or OK. None while another job runs.

        An interrupt between two rows skips the others and is raised once the running ones have returned.
        """
        if not self._turn.acquire(blocking=False):
            return None
        try:
            seat = np.array(
                [self._state, _POST, function, result_memory.address_of(table), table.strides[0], len(table), SLICE],
                np.int64,
            )
            drive, address = self._code.run_at, result_memory.address_of(seat)
            try:
                while drive(address) == _MORE:
                    seat[1] = _GO_ON
            except BaseException:
                seat[1] = _CANCEL
                drive(address)
                raise
            return self._word(_STATUS)
        finally:
            self._turn.release()

    def _word(self, number: int) -> int:
        return ctypes.c_int64.from_address(self._state + 8 * number).value


def _start(code: int, state: int) -> Any:
    """A detached thread that runs `code` as a worker; signals go to others."""
    seat = (ctypes.c_int64 * 2)(state, _WORKER)
    compiler.keep(seat)
    handle = ctypes.c_void_p()
    old = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        status = _libc().pthread_create(ctypes.byref(handle), None, ctypes.c_void_p(code), seat)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)
    if status:
        raise OSError(status, "sparsejax: a thread cannot be started")
    _libc().pthread_detach(handle)


@functools.cache
def _libc() -> Any:
    found = ctypes.CDLL(None)
    found.calloc.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
    found.calloc.restype = ctypes.c_void_p
    return found


@functools.cache
def text() -> str:
    """The LLVM text of `kernel(ptr seat)`: seats are described in `Pool.run`; a worker's holds the state and its role only."""
    b = LLVMBuilder()
    _Crew(b).run()
    return b.finish(lambda: None)


class _Crew:
    """Writes what workers and caller do."""

    def __init__(self, b: LLVMBuilder) -> None:
        self.b = b
        self.futex, self.set_affinity, self.get_affinity, self.pause, self.hint = _MACHINES[platform.machine()]
        self.clock, self.mask = (self._array(name, type) for name, type in (("clock", "[2 x i64]"), ("mask", _CPUS)))
        self.avoided = b.var("avoided", b.const("i32", -1))
        self.state, self.role = (b.slot(k, type, "seat") for k, type in enumerate(("ptr", "i64")))
        self.is_worker = b.eq(self.role, _WORKER)
        self.limit, self.turns = b.var("limit", b.i64(0)), b.var("turns", b.i64(0))

    def _array(self, name: str, type: str) -> Val:
        return Val(self.b.var(name, Val("zeroinitializer", type)).name, "ptr")

    def word(self, number: int) -> Val:
        return self.b.place(self.state, number)

    def system(self, number: int, *args: Val | int) -> Val:
        """A system call."""
        b = self.b
        given = [b.i64(x) if isinstance(x, int) else b.convert("ptrtoint", x, "i64") for x in (number, *args, 0, 0, 0)]
        return b.call("syscall", "i64", given[:5])

    def now(self) -> Val:
        """Nanoseconds."""

        def read(clock: Val) -> Val:
            b.call("clock_gettime", "i32", [b.const("i32", 1), clock])
            return b.add(b.mul(b.load(clock, b.i64(0), "i64"), 1_000_000_000), b.load(clock, b.i64(1), "i64"))

        b = self.b
        return b.inner("nanoseconds", "i64", [self.clock], read)

    def run(self) -> None:
        b = self.b
        with b.if_(b.eq(self.role, _POST)):
            self.post()
        with b.if_(b.eq(self.role, _CANCEL)):
            b.share(self.word(_STATUS), b.i64(CANCELLED), "seq_cst")
        with b.if_(b.eq(self.is_worker, 0)):  # when to return to Python
            now = self.now()
            b.set(self.limit, b.select(b.eq(self.role, _CANCEL), b.i64(_NEVER), b.add(now, b.slot(6, "i64", "slice"))))
            self.wake(now)
        with b.while_(lambda: b.const("i1", 1)):
            seen = b.shared(self.word(_TICKET), order="seq_cst")
            row, rows = b.and_(seen, b.i64(_ROWS)), self.rows_of(seen)
            some = b.compare("ult", row, rows)
            b.if_else(some, lambda: self.take(seen, row, rows), lambda: self.idle(seen, rows))

    def rows_of(self, ticket: Val) -> Val:
        return self.b.and_(self.b.binary("lshr", ticket, self.b.i64(16)), self.b.i64(_ROWS))

    def post(self) -> None:
        """A new job: all words first, the ticket last."""
        b = self.b
        for word, slot in ((_FUNCTION, 2), (_BASE, 3), (_STRIDE, 4)):
            b.share(self.word(word), b.slot(slot, "i64", "given"))
        b.share(self.word(_STATUS), b.i64(0))
        b.share(self.word(_DONE), b.const("i32", 0))
        b.share(self.word(_HOME), b.call("sched_getcpu", "i32", []))
        generation = b.add(b.binary("lshr", b.shared(self.word(_TICKET)), b.i64(32)), 1)
        rows = b.binary("shl", b.slot(5, "i64", "rows"), b.i64(16))
        b.share(self.word(_TICKET), b.binary("or", b.binary("shl", generation, b.i64(32)), rows), "seq_cst")
        posted = self.now()
        gap = b.sub(posted, b.load(self.word(_ENDED), b.i64(0), "i64"))
        with b.if_(b.compare("ugt", gap, b.i64(PAUSE))):  # the first of several jobs in a row
            b.store(self.word(_SINCE), b.i64(0), posted)

    def wake(self, time: Val) -> None:
        """The caller: whether it is time to ring."""

        def ring(state: Val, time: Val) -> None:
            asleep = b.shared(b.place(state, _SLEEPERS), order="seq_cst")
            with b.if_(b.compare("sgt", asleep, b.i64(0))):
                worked = b.sub(time, b.load(b.place(state, _SINCE), b.i64(0), "i64"))
                long = b.compare("uge", worked, b.shared(b.place(state, _PATIENCE)))
                rows = self.rows_of(b.shared(b.place(state, _TICKET)))
                whole = b.compare("ule", rows, b.add(asleep, 1))  # a row for everybody: each is long
                silent = b.eq(b.shared(b.place(state, _RUNG)), 0)  # nobody is being woken
                with b.if_(b.and_(b.binary("or", long, whole), silent)):
                    b.share(b.place(state, _RUNG), time, "seq_cst")
                    b.exchange("add", b.place(state, _BELL), b.const("i32", 1))
                    most = b.call("llvm.umin.i64", "i64", [asleep, rows])
                    self.system(self.futex, b.place(state, _BELL), _WAKE, most)

        b = self.b
        b.inner("wake", "void", [self.state, time], ring)

    def take(self, seen: Val, row: Val, rows: Val) -> None:
        """Run a row, if nobody else has taken it."""
        b = self.b
        code, base, stride = (b.shared(self.word(k)) for k in (_FUNCTION, _BASE, _STRIDE))
        b.set(self.turns, b.i64(0))
        with b.if_(b.replaced(self.word(_TICKET), seen, b.add(seen, 1))):
            with b.if_(b.eq(b.shared(self.word(_STATUS)), 0)):
                at = b.convert("inttoptr", b.add(base, b.mul(row, stride)), "ptr")
                result = b.call_at(b.convert("inttoptr", code, "ptr"), "i64", [at])
                with b.if_(b.ne(result, 0)):
                    b.share(self.word(_STATUS), result)
            after = b.add(b.convert("zext", b.exchange("add", self.word(_DONE), b.const("i32", 1)), "i64"), 1)

            def worked() -> None:
                with b.if_(b.eq(after, rows)):
                    self.system(self.futex, self.word(_DONE), _WAKE, 1)

            def called() -> None:
                now = self.now()
                with b.if_(b.compare("sgt", now, b.get(self.limit))):
                    b.fail(_MORE)
                self.wake(now)

            b.if_else(self.is_worker, worked, called)

    def idle(self, seen: Val, rows: Val) -> None:
        b = self.b
        with b.if_(b.eq(self.is_worker, 0)):
            self.leave_if_done(rows)

        def sleep() -> None:
            b.set(self.turns, b.i64(0))
            b.if_else(self.is_worker, lambda: self.sleep(seen), lambda: self.wait(rows))

        def spin() -> None:
            b.call(self.pause, "void", self.hint)
            b.increment(self.turns)

        b.if_else(b.compare("ult", b.get(self.turns), b.i64(SPINS)), spin, sleep)

    def leave_if_done(self, rows: Val) -> Val:
        """The caller leaves if all rows have returned; how many have."""
        b = self.b
        done = b.shared(self.word(_DONE), "i32", "seq_cst")
        with b.if_(b.compare("uge", b.convert("zext", done, "i64"), rows)):
            b.store(self.word(_ENDED), b.i64(0), self.now())
            b.fail(OK)
        return done

    def wait(self, rows: Val) -> None:
        """The caller sleeps until a row returns, and goes back to Python for a look at signals."""
        b = self.b
        done = self.leave_if_done(rows)
        b.store(self.clock, b.i64(0), b.i64(0))
        b.store(self.clock, b.i64(1), b.i64(SLICE))
        self.system(self.futex, self.word(_DONE), _WAIT, b.convert("zext", done, "i64"), self.clock)
        with b.if_(b.ne(b.get(self.limit), _NEVER)):
            self.leave_if_done(rows)
            b.fail(_MORE)

    def sleep(self, seen: Val) -> None:
        """A worker sleeps until the bell rings. What was rung for before is over: else nobody would ring again."""
        b = self.b
        heard = b.convert("zext", b.shared(self.word(_BELL), "i32", "seq_cst"), "i64")
        b.share(self.word(_RUNG), b.i64(0), "seq_cst")
        b.exchange("add", self.word(_SLEEPERS), b.i64(1))
        with b.if_(b.eq(b.shared(self.word(_TICKET), order="seq_cst"), seen)):
            self.system(self.futex, self.word(_BELL), _WAIT, heard)
        b.exchange("sub", self.word(_SLEEPERS), b.i64(1))
        called = b.exchange("xchg", self.word(_RUNG), b.i64(0))
        with b.if_(b.ne(called, 0)):  # the first one that is up: patience follows what waking takes
            took = b.call("llvm.umin.i64", "i64", [b.sub(self.now(), called), b.i64(PATIENT)])
            four = b.add(b.mul(b.shared(self.word(_PATIENCE)), 3), took)
            b.share(self.word(_PATIENCE), b.binary("lshr", four, b.i64(2)))
        self.step_aside()

    def step_aside(self) -> None:
        """From the processor of the caller to any other one, and back to where the worker was away from before."""
        b = self.b
        here = b.call("sched_getcpu", "i32", [])
        with b.if_(b.eq(here, b.shared(self.word(_HOME), "i32"))):
            size = self.system(self.get_affinity, 0, _MASK, self.mask)
            with b.if_(b.compare("sgt", size, b.i64(0))):
                old = b.get(self.avoided)
                with b.if_(b.compare("sge", old, b.const("i32", 0))):
                    self.allow(old, 1)
                self.allow(here, 0)
                with b.if_(b.eq(self.system(self.set_affinity, 0, size, self.mask), 0)):
                    b.set(self.avoided, here)

    def allow(self, cpu: Val, yes: int) -> None:
        """A processor, or (0) not."""

        def change(mask: Val, cpu: Val, yes: Val) -> None:
            at = b.convert("zext", b.binary("lshr", cpu, b.const("i32", 3)), "i64")
            number = b.convert("trunc", b.and_(cpu, b.const("i32", 7)), "i8")
            others = b.binary("xor", b.binary("shl", b.const("i8", 1), number), b.const("i8", -1))
            kept = b.and_(b.load(mask, at, "i8"), others)
            b.store(mask, at, b.binary("or", kept, b.binary("shl", yes, number)))

        b = self.b
        b.inner("allow", "void", [self.mask, cpu, b.const("i8", yes)], change)
