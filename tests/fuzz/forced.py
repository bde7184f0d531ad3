"""Cases under forced alternatives: the compiler takes any legal one at every choice, and does without some passes.

    check(seed)                the cheapest alternatives
    every(check)(seed)         alternatives drawn by the seed; every second seed also skips some passes, and what only some computers offer
    half(check)(seed)          the same for half of the seeds

Faults say under which settings they were found: `with config.using(choose="random:7", skip={"tile"})` finds them again.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from sparsejax import config
from sparsejax.alternatives import HOST, PASSES

Result = TypeVar("Result")
SKIPPED = sorted({*PASSES, *HOST} - config.FIXED - {"loader"})
"""What may be skipped in any process at any time; linking by LLVM leaks memory, which long runs would notice."""
SHARE = 0.2
"""Of these, in the cases that skip any."""


@contextmanager
def alternatives(seed: int) -> Iterator[None]:
    """Inside the block, alternatives are drawn by the seed."""
    rng = random.Random(seed)
    skipped = {name for name in SKIPPED if rng.random() < SHARE} if rng.random() < 0.5 else set()
    with config.using(choose=f"random:{seed}", skip=config.skip() | skipped):
        yield


def settings() -> str:
    """What is forced, for reports; nothing where nothing is."""
    skipped = sorted(config.skip())
    text = "" if config.choose() == "auto" else f" choose={config.choose()!r}"
    return f"{text} skip={set(skipped)}" if skipped else text


def every(check: Callable[..., Result], share: int = 1) -> Callable[..., Result]:
    """`check(seed)` with alternatives drawn by the seed, of every `share`-th pair of seeds."""

    @functools.wraps(check)
    def checked(seed: int, *args: Any, **options: Any) -> Result:
        if (seed // 2 + 1) % share:
            return check(seed, *args, **options)
        with alternatives(seed):
            try:
                return _noted(check(seed, *args, **options))
            except Exception as error:
                error.add_note(f"seed {seed},{settings()}")
                raise

    return checked


half = functools.partial(every, share=2)


def _noted(found: Any) -> Any:
    """What a check found, with the settings beside what is wrong: text, or text behind a count."""
    if isinstance(found, tuple):
        return (*found[:-1], _noted(found[-1]))
    return f"{found}\nunder{settings()}" if isinstance(found, str) else found
