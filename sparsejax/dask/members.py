"""What a task of a gang does: all tasks of one worker, in their order; results that others read are sent to them as soon as they are there.

    member 0                             member 1
    y0 = A0 @ x                          y1 = A1 @ x
    sends y0, waits for y1       <-->    sends y1, waits for y0
    z0 = A0 @ (y0, y1)                   z1 = A1 @ (y0, y1)

Results pass over the comms of Dask's workers, between processes of one computer by what `lending` has. Members ask the scheduler once a second whether all are
still there and wanted (`meetings`); where one is lost, all begin anew. One that finds nobody gives its thread back, so that the others can run on the same
worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sparsejax import forks
from sparsejax.dask import assembled
from sparsejax.dask.commons import Common, Commons
from sparsejax.dask.lending import Post
from sparsejax.dask.meetings import LOOK
from sparsejax.optional import optional

AT_ONCE, PATIENCE, ANSWER = 0.2, 20.0, 60.0
"""Seconds that a member waits for the others with its thread, between questions after that, and for an answer of the scheduler."""
SHARING = 10.0
"""Seconds that members wait for memory that all have: others may be busy, or have no memory to give."""

RESULT, MEMORY, READY = "result", "memory", "ready"
"""What members send each other."""
HELD = "held"
"""In place of a key: nothing may be put into the memory that all have any more."""


class InPlace:
    """In place of a result: it is in the memory that all have."""


class Broken(Exception):
    """A member of the gang is lost or has begun anew."""


@dataclass
class Step:
    """A task of a member: its key, what it computes, the parts that read its result, and what nobody reads afterwards."""

    key: Any
    node: Any
    readers: tuple[int, ...] = ()
    done: tuple[Any, ...] = ()


_boxes: dict[tuple[str, int, int], dict[Any, Any]] = {}
_changed = threading.Condition()
"""Results that have come: by gang, meeting and part."""
forks.anew(__name__, _changed=threading.Condition)
_posts: dict[tuple[str, int], Post] = {}
"""Of the members that run here: by gang and part."""


async def take(gang: str, number: int, part: int, key: bytes, block: Any) -> None:
    """A result comes from another worker."""
    _put((gang, number, part), pickle.loads(key), block)


def _put(box: tuple[str, int, int], key: Any, block: Any) -> None:
    """For a member that may wait for it."""
    with _changed:
        _boxes.setdefault(box, {})[key] = block
        _changed.notify_all()
        post = _posts.get((box[0], box[2]))
    if post is not None:
        post.wake()


def member(
    gang: str,
    part: int,
    keys: Sequence[Any],
    steps: bytes,
    commons: Sequence[Common],
    wanted: Sequence[Any],
    names: Any,
    *given: Any,
) -> Any:
    """All tasks of a part: what is wanted of their results."""
    try:
        worker = optional("distributed", "dask").get_worker()
    except ValueError:
        raise RuntimeError(
            "tasks that pass results to each other run on the workers of a cluster; call compute(scheduler=...) of the array itself"
        ) from None
    program: list[Step] = pickle.loads(steps)
    with contextlib.closing(Member(worker, gang, part, keys, commons)) as own:
        while True:
            own.meet()
            try:
                made = own.run(program, dict(zip(names, given, strict=True)))
                return tuple(made[k] for k in wanted)
            except Broken:
                continue
            except Exception as error:
                own.fail(error)
                raise
            finally:
                own.forget()


class Member:
    """One member while it runs."""

    def __init__(self, worker: Any, gang: str, part: int, keys: Sequence[Any], commons: Sequence[Common] = ()) -> None:
        self._worker, self._gang, self._part, self._keys = worker, gang, part, list(keys)
        self._number: int | None = None
        self._peers: list[tuple[str, str]] = []
        self._sent: list[Any] = []
        self._post = Post()
        self._planned, self._commons = commons, Commons(())
        self._ready: set[tuple[int, int]] = set()
        """Who has the memory of which meeting."""
        with _changed:
            _posts[gang, part] = self._post

    def close(self) -> None:
        """Be no member any more."""
        with _changed:
            if _posts.get((self._gang, self._part)) is self._post:
                del _posts[self._gang, self._part]
        self._commons.close()
        self._post.close()

    def meet(self) -> None:
        """Wait for all others."""
        patience, seceded, asked = AT_ONCE, False, None
        while True:
            own = {"worker": self._worker.address, "place": self._post.place}
            number, peers, wrong = self._ask(
                "meet", part=self._part, keys=self._keys, asked=asked, patience=patience, **own
            )
            if wrong:
                raise RuntimeError(f"results that are made together cannot be made again: {wrong}")
            asked = number
            if peers is not None:
                self._number, self._peers = number, [(worker, place) for worker, place in peers]
                return
            if not seceded:
                optional("distributed", "dask").secede()  # another part may wait for this thread
                seceded, patience = True, PATIENCE if PATIENCE < LOOK else LOOK

    def run(self, steps: Sequence[Step], values: dict[Any, Any]) -> dict[Any, Any]:
        """Results of all steps that nobody is done with."""
        self._share()
        looked = time.monotonic()
        for step in steps:
            if time.monotonic() - looked > LOOK:  # nobody may want it any more
                self._look()
                looked = time.monotonic()
            for key in step.node.dependencies:
                if key not in values:
                    values[key] = self._wait(key)
            values[step.key] = made = self._made(step, values)
            for key in step.done:
                del values[key]
            if self._post.place:
                self._take(0)  # queues are short
            if self._commons.done(values):
                self._told_held()
            placed = bool(step.readers) and not self._held() and self._commons.write(step.key, made)
            for reader in step.readers:
                self._send(reader, step.key, InPlace() if placed else made)
        self._all_arrived()
        return values

    def _made(self, step: Step, values: dict[Any, Any]) -> Any:
        for whole, array in self._commons.whole(step.node.dependencies):
            assembled.keep([values[k] for k in whole.keys], whole.grid, array)
        return step.node(values)

    def _held(self) -> bool:
        with _changed:
            return HELD in _boxes.get((self._gang, self._number or 0, self._part), ())

    def _told_held(self) -> None:
        """Tell all others before anything else that nothing may be put into the memory any more."""
        for reader in range(len(self._peers)):
            if reader != self._part:
                self._send(reader, HELD, None)
        self._all_arrived()

    def _share(self) -> None:
        """Have memory in common with all others, where all are on this computer."""
        self._commons.close()
        self._commons = Commons(self._planned)
        own, others = self._number or 0, [k for k in range(len(self._peers)) if k != self._part]
        if not self._planned or not all(self._post.reaches(self._peers[k][1]) for k in others):
            return
        told = True
        if self._part == 0:
            file = self._commons.created()
            told = all(self._post.give(self._peers[k][1], (MEMORY, self._gang, own), file) for k in others)
            self._ready.add((own, 0))
        until = time.monotonic() + SHARING
        while told and len([k for k in range(len(self._peers)) if (own, k) in self._ready]) < len(self._peers):
            if not self._take(LOOK):
                if time.monotonic() > until:
                    return
                self._look()
        self._commons.ready = told

    def fail(self, error: Exception) -> None:
        """Tell the others."""
        try:
            packed = pickle.dumps(error)
            pickle.loads(packed)
        except Exception:  # of a class that cannot be sent
            packed = pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
        self._ask("fail", number=self._number, error=packed)

    def forget(self) -> None:
        """Let go of what has come."""
        self._sent = []
        with _changed:
            for box in [b for b in _boxes if b[0] == self._gang and b[2] == self._part and b[1] <= (self._number or 0)]:
                del _boxes[box]

    def _send(self, reader: int, key: Any, block: Any) -> None:
        box, (address, place) = (self._gang, self._number or 0, reader), self._peers[reader]
        if address == self._worker.address:
            _put(box, key, block)
            return
        if self._post.send(place, (RESULT, box, key), block):
            return
        wrapped = optional("distributed.protocol", "dask").to_serialize(block)
        names = {"gang": box[0], "number": box[1], "part": box[2], "key": pickle.dumps(key), "block": wrapped}
        sending = _sending(self._worker.rpc(address), names)
        self._sent.append(asyncio.run_coroutine_threadsafe(sending, self._worker.loop.asyncio_loop))

    def _all_arrived(self) -> None:
        for future in self._sent:
            self._arrived(future)
        self._sent = []

    def _arrived(self, future: Any) -> None:
        """A result is with its reader."""
        while True:
            try:
                future.result(LOOK)
                return
            except TimeoutError:
                self._look()
            except OSError:
                self._look()
                raise Broken from None

    def _wait(self, key: Any) -> Any:
        box = self._gang, self._number or 0, self._part
        while True:
            with _changed:
                if not self._post.place:
                    _changed.wait_for(lambda: key in _boxes.get(box, ()), LOOK)
                if key in _boxes.get(box, ()):
                    found = _boxes[box].pop(key)
                    return self._commons.block(key) if isinstance(found, InPlace) else found
            if not self._post.place or not self._take(LOOK):
                self._look()

    def _take(self, seconds: float) -> bool:
        """Take what others have sent here, or send in so many seconds; whether something has come, over comms too."""
        came, woken = self._post.receive(seconds)
        for (what, *about), block in came:
            if what == MEMORY:
                self._given(about[0], about[1], block)
            elif what == READY:
                self._ready.add((about[0], about[1]))
            elif about[0][0] == self._gang and about[0][2] == self._part:
                with _changed:
                    _boxes.setdefault(about[0], {})[about[1]] = block
        return woken

    def _given(self, gang: str, number: int, file: int) -> None:
        """Memory of a meeting has come: tell the others."""
        if gang != self._gang or number != self._number:
            os.close(file)
            return
        self._commons.have(file)
        self._ready |= {(number, 0), (number, self._part)}
        for k, (_, place) in enumerate(self._peers):
            if k != self._part:
                self._post.send(place, (READY, number, self._part), None)

    def _look(self) -> None:
        """Broken where a member is not there any more, and its error where it has failed."""
        told = self._ask("whole", number=self._number)
        if told == "broken":
            raise Broken
        if isinstance(told, str):
            raise RuntimeError(f"results that are made together cannot be made: {told}")
        if told is not None:
            raise pickle.loads(told)

    def _ask(self, what: str, **arguments: Any) -> Any:
        scheduler = getattr(self._worker.scheduler, f"sparsejax_{what}")
        ask = optional("distributed.utils", "dask").sync
        return ask(self._worker.loop, scheduler, callback_timeout=ANSWER, gang=self._gang, **arguments)


async def _sending(rpc: Any, names: dict[str, Any]) -> None:
    await rpc.sparsejax_take(**names)
