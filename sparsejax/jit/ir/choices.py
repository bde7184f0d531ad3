"""Decisions of the compiler as named alternatives: the cheapest one by default, any legal one where that is asked for.

    how = choices.pick("workspace", legal, cheapest)

`config.choose` says how: "auto" takes what the caller found cheapest, "random:SEED" any legal alternative, "workspace=hash" that one where it is
legal. Random choices are drawn by the seed and by what is planned (`drawing`), so that the same program is planned in the same way in
every process. `TAKEN` counts what was taken, so that tests know that small programs reach every alternative.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TypeVar

from sparsejax import config
from sparsejax.alternatives import CHOICES

TAKEN: Counter[tuple[str, str]] = Counter()
"""How often every alternative of every choice was taken in this process."""
_source: ContextVar[random.Random | None] = ContextVar("sparsejax_choices", default=None)
_priced: ContextVar[bool] = ContextVar("sparsejax_pricing", default=False)
_heard: ContextVar[dict[tuple[str, str], None] | None] = ContextVar("sparsejax_heard", default=None)
_asking: ContextVar[bool] = ContextVar("sparsejax_asking", default=False)
_T = TypeVar("_T")


@contextmanager
def _with(variable: ContextVar[_T], value: _T) -> Iterator[None]:
    """Inside the block a variable has a value."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


@contextmanager
def drawing(*what: object) -> Iterator[None]:
    """Choices inside the block are about `what`, whose text tells it from others."""
    if not free():
        yield
        return
    with _with(_source, random.Random(f"{config.choosing()[0]} {' '.join(map(str, what))}")):
        yield


def pricing() -> AbstractContextManager[None]:
    """Inside the block nothing is decided, only priced: every choice is the cheapest, whatever is asked for, and none is counted."""
    return _with(_priced, True)


def listening(ways: dict[tuple[str, str], None]) -> AbstractContextManager[None]:
    """Inside the block, what else would be legal at every choice is noted in `ways`."""
    return _with(_heard, ways)


def asking() -> AbstractContextManager[None]:
    """Inside the block every pass is asked, whether its condition holds or not."""
    return _with(_asking, True)


def applies(wanted: bool) -> bool:
    """Whether to ask a pass or a choice whose condition holds, or not. Where anything may be taken all are asked, so that what is drawn does not
    depend on conditions."""
    return wanted or _asking.get() or free()


def free() -> bool:
    """Whether anything but the cheapest may be taken here."""
    return config.choose() != "auto" and not _priced.get()


def pick(choice: str, legal: Sequence[str] | Callable[[], Sequence[str]], cheapest: str) -> str:
    """The alternative of `choice` to take, of those that are `legal`, the cheapest among them; they may be given by a function that finds them,
    which is called where it matters.

    >>> pick("workspace", ("hash", "bucket"), "bucket")
    'bucket'
    >>> with config.using(choose="workspace=hash"):
    ...     pick("workspace", ("hash", "bucket"), "bucket")
    'hash'
    """
    if _priced.get():
        return cheapest
    taken = cheapest
    heard = _heard.get()
    if heard is not None:
        heard.update({(choice, way): None for way in (legal() if callable(legal) else legal) if way != cheapest})
    if free():
        seed, wanted = config.choosing()
        source = None if seed is None else _source.get()
        if (
            choice in wanted or source is not None
        ):  # else nobody asks for another, and finding out what is legal takes planning
            ways = list(legal() if callable(legal) else legal)
            assert cheapest in ways, f"{cheapest} is not legal for {choice}: {ways}"
            if choice in wanted:
                taken = wanted[choice] if wanted[choice] in ways else cheapest
            elif source is not None:
                taken = source.choice(ways)
    assert taken in CHOICES[choice], f"{taken} is no alternative of {choice}"
    TAKEN[choice, taken] += 1
    return taken


def one_of(ways: Sequence[_T]) -> _T:
    """One of the ways that an alternative stands for: drawn where choices are drawn, else the first."""
    source = _source.get()
    return ways[0] if source is None or _priced.get() else source.choice(ways)


def does(name: str) -> bool:
    """Whether a pass of the compiler is done (`config.skip`)."""
    return name not in config.skip()
