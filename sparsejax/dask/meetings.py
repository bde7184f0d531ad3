"""Where the tasks of a gang find each other: the scheduler's side (`members` has the workers').

    member                                scheduler
    meet(gang, part, place)  ---------->  waits until all parts are there: a number for this time, and the workers and places (`lending`) of all
    whole(gang, number)  -------------->  None while all of them are there; "broken" where one is lost or has begun anew; the error of one that has failed
    fail(gang, number, error)  -------->  told to the others

Results of a gang are made together, and again together: where one is lost, its task runs again and comes to the meeting; the others, which are in memory, are
released, so that Dask runs them again too. Where one of them is not wanted any more, what waits for it fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from typing import Any

LOOK = 1.0
"""Seconds between looks at what members wait for."""
KEPT = 256
"""How many gangs are remembered."""


@dataclass
class Gang:
    """The tasks of one gang, by number."""

    keys: list[Any]
    number: int = 0
    """How often they have met, or tried to."""
    workers: dict[int, str] = field(default_factory=dict)
    """Of the parts that have come this time."""
    places: dict[int, str] = field(default_factory=dict)
    """Where they are on their computers, "" where that is not known."""
    error: bytes | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def whole(self) -> bool:
        return len(self.workers) == len(self.keys)

    def again(self) -> None:
        """Meet anew."""
        self.number, self.workers, self.error = self.number + 1, {}, None
        self.notify()

    def notify(self) -> None:
        """Wake those that wait."""
        self.changed.set()
        self.changed = asyncio.Event()


class Meetings:
    """All gangs of a scheduler."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._gangs: dict[str, Gang] = {}
        scheduler.handlers.update(
            {"sparsejax_meet": self.meet, "sparsejax_whole": self.whole, "sparsejax_fail": self.fail}
        )

    async def meet(
        self, gang: str, part: int, keys: list[Any], worker: str, place: str, asked: int | None, patience: float
    ) -> tuple[int, list[tuple[str, str]] | None, str]:
        """The number of this meeting, the workers and places of all parts, None where they are not there after `patience` seconds, and why they never
        will be."""
        made = self._gangs.pop(gang, None) or Gang([_key(k) for k in keys])
        self._gangs[gang] = made
        while len(self._gangs) > KEPT:
            del self._gangs[next(iter(self._gangs))]
        own = self._scheduler.tasks.get(made.keys[part])
        if own is None or own.processing_on is None or own.processing_on.address != worker:
            return made.number, None, "this task runs elsewhere by now"
        if made.whole and asked != made.number:
            made.again()
        if not made.whole:
            made.workers[part], made.places[part] = worker, place
            made.notify()
        number, until = made.number, time.monotonic() + patience
        while True:
            if made.number == number and made.whole:
                return number, [(made.workers[k], made.places[k]) for k in range(len(made.keys))], ""
            if made.number != number:
                return made.number, None, ""
            left = until - time.monotonic()
            if left <= 0:
                return number, None, self._missing(made)
            changed = made.changed
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(changed.wait(), min(left, LOOK))

    def _missing(self, gang: Gang) -> str:
        """Let those that are done run again; what is wrong with those that never come."""
        done = {}
        for part, key in enumerate(gang.keys):
            task = self._scheduler.tasks.get(key)
            if task is None or task.state in ("erred", "forgotten"):
                return f"part {part} is no longer wanted, or has failed"
            if part not in gang.workers and task.state in ("memory", "released"):
                done[key] = "released" if task.state == "memory" else "waiting"
        if done:
            self._scheduler.transitions(done, stimulus_id=f"sparsejax-gang-{time.time()}")
        return ""

    async def whole(self, gang: str, number: int) -> bytes | str | None:
        """See above."""
        made = self._gangs.get(gang)
        if made is None or made.number != number or not made.whole:
            return "broken"
        if made.error is None and (gone := [k for k in made.keys if k not in self._scheduler.tasks]):
            return f"part {made.keys.index(gone[0])} is no longer wanted"
        return made.error

    async def fail(self, gang: str, number: int, error: bytes) -> None:
        """A member raises this error."""
        made = self._gangs.get(gang)
        if made is not None and made.number == number and made.error is None:
            made.error = error

    def lost(self, worker: str) -> None:
        """A worker is gone: whole gangs with it meet anew, and others wait for its part."""
        for gang in self._gangs.values():
            if worker in gang.workers.values():
                if gang.whole:
                    gang.again()
                else:
                    gang.workers = {k: w for k, w in gang.workers.items() if w != worker}


def _key(key: Any) -> Any:
    """A key of Dask's, of which a message made a list."""
    return tuple(key) if isinstance(key, list) else key
