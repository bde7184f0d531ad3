"""Plans, LLVM text and machine code that travel with an exported program.

    kernels   = [{"processor": words, "package": hash, "records": [[name, place of its bytes]]}]          one entry per kind of processor

Records are those of `jit.backend.records`: machine code under the name of its LLVM text, plans (which hold that text) and decisions under the names of what was
planned. Names say everything that a record depends on, so that one that does not fit is never found; the words and the hash are there to say why.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sparsejax.export.errors import LayoutError
from sparsejax.jit.backend import records
from sparsejax.jit.runtime.system import allocator, pool
from sparsejax.utilities import clear_caches


@dataclass(frozen=True)
class Records:
    """What one kind of processor needs, by name; a source of records that takes none."""

    processor: str
    package: str
    """The sources of the package that made them, by content."""
    version: str
    known: dict[str, bytes]

    def load(self, name: str) -> bytes | None:
        """The record of a name, or None."""
        return self.known.get(name)

    def store(self, name: str, record: bytes) -> None:
        """Nothing is added."""

    def claim(self, name: str) -> bytes | None:
        """As `load`: nobody makes others."""
        return self.known.get(name)

    def release(self, name: str) -> None:
        """Nothing is held."""


def version() -> str:
    """The version of this package."""
    return str(sys.modules["sparsejax"].__version__)


def recorded(run: Callable[[], Any]) -> Records:
    """What a program needs that `run` runs: all that it plans and compiles, as in a new process."""
    clear_caches()
    with records.recorded() as known:
        run()
        allocator.compiled()  # loaded already, and needed in every process
        pool.compiled()
    return Records(records.identity(), records.package(), version(), known)


def use(found: Sequence[Records]) -> None:
    """Look for records there too, in this process. LayoutError, saying why, where none are for this processor and these sources."""
    here = next((r for r in found if r.processor == records.identity()), None)
    if here is None:
        listed = "; ".join(r.processor for r in found)
        raise LayoutError(
            f"machine code for other processors: {listed}. Here: {records.identity()}. Load it without trusted=True, and it is compiled here"
        )
    if here.package != records.package():
        raise LayoutError(
            f"machine code of sparsejax {here.version} with other sources or libraries than those of {version()} here. Load it without "
            "trusted=True, and it is compiled here"
        )
    records.add(here)


def encoded(made: Records, stored: Callable[[bytes], Any]) -> dict[str, Any]:
    """As JSON; `stored` keeps bytes and tells their place."""
    listed = [[name, stored(record)] for name, record in sorted(made.known.items())]
    return {"processor": made.processor, "package": made.package, "version": made.version, "records": listed}


def decoded(about: dict[str, Any], body: memoryview) -> Records:
    """What `encoded` wrote."""
    known = {}
    for name, (offset, length, _) in about["records"]:
        known[str(name)] = bytes(body[int(offset) : int(offset) + int(length)])
        if len(known[name]) != length or len(str(name)) != hashlib.sha256().digest_size * 2:
            raise LayoutError("an exported program whose kernels are damaged")
    return Records(str(about["processor"]), str(about["package"]), str(about["version"]), known)
