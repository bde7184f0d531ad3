"""Decisions of the compiler as named alternatives: the cheapest one by default, any legal one where that is asked for.

    how = choices.pick("workspace", legal, cheapest)

`config.choose` says how: "auto" takes what the caller found cheapest, "random:SEED" any legal alternative, "workspace=hash" that one where it is
legal. Random choices are drawn by the seed and by what is planned (`drawing`), so that the same program is planned in the same way in
every process. `TAKEN` counts what was taken, so that tests know that small programs reach every alternative.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from sparsejax import config
from sparsejax.alternatives import CHOICES

TAKEN: Counter[tuple[str, str]] = Counter()
"""How often every alternative of every choice was taken in this process."""
_source: ContextVar[random.Random | None] = ContextVar("sparsejax_choices", default=None)


@contextmanager
def drawing(what: object) -> Iterator[None]:
    """Choices inside the block are about `what`, whose text tells it from others."""
    how = config.choose()
    if not how.startswith("random:"):
        yield
        return
    token = _source.set(random.Random(f"{how} {what}"))
    try:
        yield
    finally:
        _source.reset(token)


def pick(choice: str, legal: Sequence[str], cheapest: str) -> str:
    """The alternative of `choice` to take, of those that are `legal`.

    >>> pick("workspace", ("hash", "tree"), "tree")
    'tree'
    >>> with config.using(choose="workspace=hash"):
    ...     pick("workspace", ("hash", "tree"), "tree")
    'hash'
    """
    how, taken = config.choose(), cheapest
    if how.startswith("random:"):
        source = _source.get()
        taken = cheapest if source is None else source.choice(legal)
    elif how != "auto":
        wanted = dict(pair.split("=") for pair in how.replace(" ", "").split(","))
        taken = wanted[choice] if wanted.get(choice) in legal else cheapest
    assert taken in CHOICES[choice], f"{taken} is no alternative of {choice}"
    TAKEN[choice, taken] += 1
    return taken


def forced() -> bool:
    """Whether anything but the cheapest may be taken: else nobody has to know what else is legal."""
    return config.choose() != "auto"


def does(name: str) -> bool:
    """Whether a pass of the compiler is done (`config.skip`)."""
    return name not in config.skip()
