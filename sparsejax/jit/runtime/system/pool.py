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
from sparsejax.jit.runtime.system import result_memory

_MACHINES = {
    "x86_64": (202, 203, 204, "llvm.x86.sse2.pause", ""),
    "aarch64": (98, 122, 123, "llvm.aarch64.hint", "i32 1"),
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
_MASK = 128
"""Bytes of a set of processors: 1024 of them. Where there are more, nobody steps aside."""
_WORKER, _POST, _GO_ON, _CANCEL = range(4)
_MORE, CANCELLED = 1, 2


class Pool:
    """Workers for one job at a time."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._turn = threading.Lock()
        self._code = compiler.compile_text(text())
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


def text() -> str:
    """The LLVM text of `kernel(ptr seat)`: seats are described in `Pool.run`; a worker's holds the state and its role only."""
    futex, set_affinity, get_affinity, pause, hint = _MACHINES[platform.machine()]
    kind = hint.split(" ")[0] if hint else ""
    words = {"ticket": _TICKET, "bell": _BELL, "sleepers": _SLEEPERS, "done": _DONE}
    words |= {"function": _FUNCTION, "base": _BASE, "stride": _STRIDE, "status": _STATUS, "home": _HOME}
    words |= {"patience": _PATIENCE, "rung": _RUNG, "since": _SINCE, "ended": _ENDED}
    places = "\n".join(f"  %{name} = getelementptr i64, ptr %state, i64 {at}" for name, at in words.items())
    return _TEXT.format(
        places=places,
        futex=futex,
        set_affinity=set_affinity,
        get_affinity=get_affinity,
        mask=_MASK,
        pause=f"@{pause}({hint})",
        declare=f"@{pause}({kind})",
        spins=SPINS,
        pause_between=PAUSE,
        patient=PATIENT,
        stop=CANCELLED,
        cancel=_CANCEL,
        post=_POST,
        more=_MORE,
    )


_TEXT = """\
declare i64 @syscall(i64, ...)
declare i32 @clock_gettime(i32, ptr)
declare i32 @sched_getcpu()
declare i64 @llvm.umin.i64(i64, i64)
declare void {declare}

define internal i64 @nanoseconds(ptr %clock) nounwind alwaysinline {{
  %told = call i32 @clock_gettime(i32 1, ptr %clock)
  %second = load i64, ptr %clock
  %nano.at = getelementptr i64, ptr %clock, i64 1
  %nano = load i64, ptr %nano.at
  %nanos = mul i64 %second, 1000000000
  %now = add i64 %nanos, %nano
  ret i64 %now
}}

define internal void @allow(ptr %mask, i32 %cpu, i8 %yes) nounwind {{      ; a processor, or (0) not
  %byte = lshr i32 %cpu, 3
  %at = getelementptr i8, ptr %mask, i32 %byte
  %number = and i32 %cpu, 7
  %number.byte = trunc i32 %number to i8
  %bit = shl i8 1, %number.byte
  %others = xor i8 %bit, -1
  %allowed = load i8, ptr %at
  %without = and i8 %allowed, %others
  %own = shl i8 %yes, %number.byte
  %set = or i8 %without, %own
  store i8 %set, ptr %at
  ret void
}}

define i64 @kernel(ptr noundef %seat) nounwind {{
entry:
  %clock = alloca [2 x i64]
  %mask = alloca [{mask} x i8], align 8
  %avoided = alloca i32
  store i32 -1, ptr %avoided
  %state = load ptr, ptr %seat
{places}
  %role.at = getelementptr i64, ptr %seat, i64 1
  %role = load i64, ptr %role.at
  switch i64 %role, label %begin [ i64 0, label %look i64 {post}, label %post i64 {cancel}, label %cancel ]

post:                                                    ; a new job: all words first, the ticket last
  %s2 = getelementptr i64, ptr %seat, i64 2
  %s3 = getelementptr i64, ptr %seat, i64 3
  %s4 = getelementptr i64, ptr %seat, i64 4
  %s5 = getelementptr i64, ptr %seat, i64 5
  %given.function = load i64, ptr %s2
  %given.base = load i64, ptr %s3
  %given.stride = load i64, ptr %s4
  %rows = load i64, ptr %s5
  store atomic i64 %given.function, ptr %function monotonic, align 8
  store atomic i64 %given.base, ptr %base monotonic, align 8
  store atomic i64 %given.stride, ptr %stride monotonic, align 8
  store atomic i64 0, ptr %status monotonic, align 8
  store atomic i32 0, ptr %done monotonic, align 8
  %here = call i32 @sched_getcpu()
  store atomic i32 %here, ptr %home monotonic, align 8
  %old = load atomic i64, ptr %ticket monotonic, align 8
  %old.generation = lshr i64 %old, 32
  %generation = add i64 %old.generation, 1
  %high = shl i64 %generation, 32
  %middle = shl i64 %rows, 16
  %fresh = or i64 %high, %middle
  store atomic i64 %fresh, ptr %ticket seq_cst, align 8
  %posted = call i64 @nanoseconds(ptr %clock)
  %ended.at = load i64, ptr %ended
  %gap = sub i64 %posted, %ended.at
  %alone = icmp ugt i64 %gap, {pause_between}
  br i1 %alone, label %first, label %begin
first:                                                   ; of several jobs in a row
  store i64 %posted, ptr %since
  br label %begin

cancel:
  store atomic i64 {stop}, ptr %status seq_cst, align 8
  br label %begin
begin:                                                   ; the caller: when to return to Python
  %s6 = getelementptr i64, ptr %seat, i64 6
  %slice = load i64, ptr %s6
  %now = call i64 @nanoseconds(ptr %clock)
  %soon = add i64 %now, %slice
  %cancelled = icmp eq i64 %role, {cancel}
  %until = select i1 %cancelled, i64 9223372036854775807, i64 %soon
  br label %wake

wake:                                                    ; the caller: whether it is time to ring
  %time = phi i64 [ %now, %begin ], [ %now.again, %caller.done ]
  %limit.kept = phi i64 [ %until, %begin ], [ %limit, %caller.done ]
  %asleep = load atomic i64, ptr %sleepers seq_cst, align 8
  %somebody = icmp sgt i64 %asleep, 0
  br i1 %somebody, label %consider, label %waked
consider:
  %began = load i64, ptr %since
  %worked.for = sub i64 %time, %began
  %needed = load atomic i64, ptr %patience monotonic, align 8
  %long = icmp uge i64 %worked.for, %needed
  %posted.rows = load atomic i64, ptr %ticket monotonic, align 8
  %posted.shifted = lshr i64 %posted.rows, 16
  %posted.count = and i64 %posted.shifted, 65535
  %everybody = add i64 %asleep, 1
  %whole = icmp ule i64 %posted.count, %everybody        ; a row for everybody: each is long
  %worth = or i1 %long, %whole
  %rung.at = load atomic i64, ptr %rung monotonic, align 8
  %silent = icmp eq i64 %rung.at, 0                      ; nobody is being woken
  %rings = and i1 %worth, %silent
  br i1 %rings, label %ring, label %waked
ring:
  store atomic i64 %time, ptr %rung seq_cst, align 8
  %bells = atomicrmw add ptr %bell, i32 1 seq_cst
  %needed.most = call i64 @llvm.umin.i64(i64 %asleep, i64 %posted.count)
  %woken = call i64 (i64, ...) @syscall(i64 {futex}, ptr %bell, i64 129, i64 %needed.most)
  br label %waked
waked:
  br label %look

look:
  %limit = phi i64 [ 0, %entry ], [ %limit.kept, %waked ], [ %limit, %take ], [ %limit, %worked ], [ %limit, %spin ], [ %limit, %slept ]
  %turns = phi i64 [ 0, %entry ], [ 0, %waked ], [ 0, %take ], [ 0, %worked ], [ %turn, %spin ], [ 0, %slept ]
  %seen = load atomic i64, ptr %ticket seq_cst, align 8
  %next = and i64 %seen, 65535
  %shifted = lshr i64 %seen, 16
  %count = and i64 %shifted, 65535
  %some = icmp ult i64 %next, %count
  br i1 %some, label %take, label %idle

take:
  %f = load atomic i64, ptr %function monotonic, align 8
  %start = load atomic i64, ptr %base monotonic, align 8
  %step = load atomic i64, ptr %stride monotonic, align 8
  %wanted = add i64 %seen, 1
  %pair = cmpxchg ptr %ticket, i64 %seen, i64 %wanted seq_cst seq_cst
  %mine = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %mine, label %mine.now, label %look
mine.now:
  %stopped = load atomic i64, ptr %status monotonic, align 8
  %going = icmp eq i64 %stopped, 0
  br i1 %going, label %run, label %finished
run:
  %far = mul i64 %next, %step
  %where = add i64 %start, %far
  %row = inttoptr i64 %where to ptr
  %code = inttoptr i64 %f to ptr
  %result = call i64 %code(ptr %row)
  %failed = icmp ne i64 %result, 0
  br i1 %failed, label %fail, label %finished
fail:
  store atomic i64 %result, ptr %status monotonic, align 8
  br label %finished
finished:
  %before = atomicrmw add ptr %done, i32 1 seq_cst
  %after = add i32 %before, 1
  %after.wide = zext i32 %after to i64
  %worker = icmp eq i64 %role, 0
  br i1 %worker, label %worker.done, label %caller.done
worker.done:
  %last = icmp eq i64 %after.wide, %count
  br i1 %last, label %tell, label %worked
tell:
  %told.caller = call i64 (i64, ...) @syscall(i64 {futex}, ptr %done, i64 129, i64 1)
  br label %worked
caller.done:
  %now.again = call i64 @nanoseconds(ptr %clock)
  %late = icmp sgt i64 %now.again, %limit
  br i1 %late, label %more, label %wake
more:
  ret i64 {more}
worked:
  br label %look

idle:
  %is.worker = icmp eq i64 %role, 0
  br i1 %is.worker, label %worker.idle, label %caller.idle

caller.idle:
  %so.far = load atomic i32, ptr %done seq_cst, align 8
  %so.far.wide = zext i32 %so.far to i64
  %all = icmp uge i64 %so.far.wide, %count
  br i1 %all, label %over, label %caller.wait
over:
  %over.at = call i64 @nanoseconds(ptr %clock)
  store i64 %over.at, ptr %ended
  ret i64 0
caller.wait:
  %patient = icmp ult i64 %turns, {spins}
  br i1 %patient, label %spin, label %caller.sleep
caller.sleep:
  store i64 0, ptr %clock
  %fifty.at = getelementptr i64, ptr %clock, i64 1
  store i64 50000000, ptr %fifty.at
  %slept.caller = call i64 (i64, ...) @syscall(i64 {futex}, ptr %done, i64 128, i32 %so.far, ptr %clock)
  %forever = icmp eq i64 %limit, 9223372036854775807
  br i1 %forever, label %slept, label %caller.check
caller.check:
  %at.last = load atomic i32, ptr %done seq_cst, align 8
  %at.last.wide = zext i32 %at.last to i64
  %ready = icmp uge i64 %at.last.wide, %count
  br i1 %ready, label %over, label %more

worker.idle:
  %bored = icmp uge i64 %turns, {spins}
  br i1 %bored, label %worker.sleep, label %spin
worker.sleep:                                            ; what was rung for before is over: else nobody would ring again
  %heard = load atomic i32, ptr %bell seq_cst, align 8
  store atomic i64 0, ptr %rung seq_cst, align 8
  %up = atomicrmw add ptr %sleepers, i64 1 seq_cst
  %new = load atomic i64, ptr %ticket seq_cst, align 8
  %same = icmp eq i64 %new, %seen
  br i1 %same, label %worker.wait, label %worker.up
worker.wait:
  %slept.worker = call i64 (i64, ...) @syscall(i64 {futex}, ptr %bell, i64 128, i32 %heard, ptr null)
  br label %worker.up
worker.up:
  %down = atomicrmw sub ptr %sleepers, i64 1 seq_cst
  %called.at = atomicrmw xchg ptr %rung, i64 0 seq_cst
  %called = icmp ne i64 %called.at, 0
  br i1 %called, label %learn, label %where.am.i
learn:                                                   ; the first one that is up: patience follows what waking takes
  %up.at = call i64 @nanoseconds(ptr %clock)
  %took = sub i64 %up.at, %called.at
  %counts = call i64 @llvm.umin.i64(i64 %took, i64 {patient})
  %so.long = load atomic i64, ptr %patience monotonic, align 8
  %three = mul i64 %so.long, 3
  %four = add i64 %three, %counts
  %mean = lshr i64 %four, 2
  store atomic i64 %mean, ptr %patience monotonic, align 8
  br label %where.am.i
where.am.i:
  %mine.cpu = call i32 @sched_getcpu()
  %caller.cpu = load atomic i32, ptr %home monotonic, align 8
  %crowded = icmp eq i32 %mine.cpu, %caller.cpu
  br i1 %crowded, label %aside, label %slept
aside:                                                   ; to any other processor, and away from this one
  %size = call i64 (i64, ...) @syscall(i64 {get_affinity}, i64 0, i64 {mask}, ptr %mask)
  %known = icmp sgt i64 %size, 0
  br i1 %known, label %leave, label %slept
leave:
  %old.cpu = load i32, ptr %avoided
  %avoids = icmp sge i32 %old.cpu, 0
  br i1 %avoids, label %return, label %move
return:                                                  ; to where it was away from before
  call void @allow(ptr %mask, i32 %old.cpu, i8 1)
  br label %move
move:
  call void @allow(ptr %mask, i32 %mine.cpu, i8 0)
  %moved = call i64 (i64, ...) @syscall(i64 {set_affinity}, i64 0, i64 %size, ptr %mask)
  %gone = icmp eq i64 %moved, 0
  br i1 %gone, label %gone.now, label %slept
gone.now:
  store i32 %mine.cpu, ptr %avoided
  br label %slept
slept:
  br label %look

spin:
  call void {pause}
  %turn = add i64 %turns, 1
  br label %look
}}
"""
