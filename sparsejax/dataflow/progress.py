"""A progress bar for what takes longer than ten seconds, with tqdm (an optional extra); nothing without it."""

from __future__ import annotations

import importlib
import time
from typing import Any

AFTER = 10.0


class Progress:
    """Counts steps; shows a bar from `AFTER` seconds on."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.started, self.steps = time.monotonic(), 0
        self.bar: Any = None
        self.missing = False

    def step(self) -> None:
        self.steps += 1
        if self.bar is None and not self.missing and time.monotonic() - self.started > AFTER:
            try:
                tqdm = importlib.import_module("tqdm")
            except ModuleNotFoundError:
                self.missing = True
                return
            self.bar = tqdm.tqdm(desc=self.what, initial=self.steps - 1, unit=" shapes")
        if self.bar is not None:
            self.bar.update()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()
