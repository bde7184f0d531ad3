"""Long lists of cases: a run takes a share of them, and which one changes with the package and the tests, so that a list of n shares is tested by n commits.

    @pytest.mark.rotating(4)                     a sixteenth of the cases of this parametrised test: `FINER` times as many shares
    pytestmark = pytest.mark.rotating(4)         the same for every parametrised test of a file
    @pytest.mark.rotating(4, exactly=True)       a quarter, where a run must have so many cases
    share(cases, 4)                              the same of a list inside a test
    @settings(max_examples=examples(400))        a quarter of the examples that hypothesis draws

SPARSEJAX_SLICE=k chooses the k-th share, SPARSEJAX_SLICE=all takes every case.
"""

from __future__ import annotations

import functools
import os
import subprocess
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import pytest

T = TypeVar("T")


@functools.cache
def content() -> str:
    """What the commit has of the package and its tests, in hexadecimal digits; empty outside of a repository."""
    run = ["git", "rev-parse", "HEAD:sparsejax", "HEAD:tests"]
    found = subprocess.run(run, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return "" if found.returncode else f"{int(found.stdout.replace(chr(10), ''), 16) % ((1 << 48) - 59):012x}"


def slice_number() -> int:
    """The share of this run: chosen, else drawn by what is tested: a commit that changes documents alone, or is made anew, has the share of the
    one before."""
    chosen = os.environ.get("SPARSEJAX_SLICE")
    return int(content() or "0", 16) if chosen in (None, "all") else int(chosen or "0")


def share(cases: Sequence[T], parts: int, after: int = 0) -> Sequence[T]:
    """One of `parts` shares of some cases, the one `after` so many others: with all, every case."""
    return cases if os.environ.get("SPARSEJAX_SLICE") == "all" else cases[(slice_number() + after) % parts :: parts]


EXAMPLES = 4
"""Hypothesis draws one of so many shares of its examples: each has a seed, and as many commits draw all."""


def examples(count: int) -> int:
    """How many examples hypothesis draws in this run, where `count` are all."""
    return count if os.environ.get("SPARSEJAX_SLICE") == "all" else max(1, count // EXAMPLES)


FINER = 4
"""Shares are so many times smaller than their markers say, down to one case: a commit runs fewer, and as many more commits run all."""
_without = set[str]()
"""Tests of whose cases this share has none."""


def shares_of(marker: pytest.Mark, cases: int) -> int:
    """How many shares a list of so many cases has."""
    named = int(marker.args[0])
    return named if marker.kwargs.get("exactly") else max(named, min(FINER * named, cases))


def taken(name: str, marker: pytest.Mark, every: Sequence[T], number: int) -> Sequence[T]:
    """Those of all cases of a test, by name, that the share with a number has."""
    shares = shares_of(marker, len(every))
    start = zlib.crc32(name.encode())  # so that no share has the first case of every test
    return every[(number - start) % shares :: shares]


def leave(metafunc: pytest.Metafunc) -> None:
    """Of the cases of a parametrised test, those of this run: others are never made, which takes longer than to run many of them. Each case runs that
    is named on the command line."""
    marker = metafunc.definition.get_closest_marker("rotating")
    if (
        marker is None
        or os.environ.get("SPARSEJAX_SLICE") == "all"
        or any("::" in str(a) for a in metafunc.config.args)
    ):
        return
    name, every = metafunc.definition.nodeid, metafunc._calls
    metafunc._calls = list(taken(name, marker, every, slice_number()))
    if every and not metafunc._calls:
        _without.add(name)  # without any case pytest would make a test without parameters


def present(item: pytest.Item) -> bool:
    """Whether this run has a case of the test."""
    return item.nodeid not in _without
