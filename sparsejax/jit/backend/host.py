"""This computer: what machine code depends on besides its LLVM text (the processor, the code generator, and how we drive it), and what it
offers, of which every kernel has an alternative: `has`, which heeds `config.skip`."""

from __future__ import annotations

import functools
import importlib.util
import os
import platform
import sys
from collections.abc import Callable, Sequence

from sparsejax import config
from sparsejax.jit.backend import engine

_CPU_FIELDS = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags")
_LINUX = sys.platform == "linux" and sys.maxsize > 2**32
NEEDS = {"entry": "loader"}
"""What is made of something else."""


def has(name: str) -> bool:
    """Whether this computer offers what group "host" of `config.SKIPPABLE` names, and is not told to do without it.

    >>> with config.using(skip={"masks"}):
    ...     has("masks")
    False
    """
    return name not in config.skip() and _offers(name) and (name not in NEEDS or has(NEEDS[name]))


@functools.cache
def _offers(name: str) -> bool:
    match name:
        case "loader":
            return _LINUX and platform.machine() == "x86_64"
        case "futex":
            return _LINUX and platform.machine() in ("x86_64", "aarch64")
        case "mremap":
            return _LINUX
        case "masks":
            return "avx512vl" in _features()
        case "fma":
            return platform.machine() in ("x86_64", "AMD64") and "fma" in _features()
        case "gathers":
            return any(feature.startswith("amx") for feature in _features())
        case "recycling":
            return _one_at_a_time()
        case "entry":
            return _one_at_a_time()
    raise KeyError(name)


def _one_at_a_time() -> bool:
    """Whether this is CPython where one thread runs at a time: there `sys.getrefcount` tells that nobody else refers to an object."""
    locked: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
    return sys.implementation.name == "cpython" and locked()


@functools.cache
def identity() -> str:
    """A line for everything that decides which machine code a text becomes here: system, processor with its features, llvmlite and
    its LLVM, pass pipeline. Found without loading LLVM where this process can do without it.
    """
    parts = [platform.system(), platform.machine(), processor(), _code_generator(), engine.PIPELINE]
    return " | ".join(parts)


def has_masks() -> bool:
    """Whether the processor loads and stores some lanes of a vector as fast as all of them."""
    return has("masks")


def has_gathers() -> bool:
    """Whether one load from as many places as a vector has lanes is faster than as many loads: on Intel's servers since Sapphire Rapids,
    which are those with units for matrices (by a third, rows of six to sixty entries). Before, gathers were slowed down for safety; on
    AMD's Zen 4 they take several times as long."""
    return has_masks() and has("gathers")


@functools.cache
def _features() -> frozenset[str]:
    """The features of the processor, by the names that the kernel and LLVM share."""
    reported = _reported()
    if reported is not None:
        return frozenset(reported["flags"].split())
    return frozenset(name for name, there in engine.engine().llvm.get_host_cpu_features().items() if there)


@functools.cache
def processor() -> str:
    """Name and features of the processor: as the kernel reports them, or as LLVM does."""
    reported = _reported()
    if reported is not None:
        return ", ".join(reported[name] for name in _CPU_FIELDS)
    llvm = engine.engine().llvm
    return f"{llvm.get_host_cpu_name()}, {llvm.get_host_cpu_features().flatten()}"


@functools.cache
def _reported() -> dict[str, str] | None:
    """What Linux says about an x86-64 processor; None elsewhere, or where it does not say all of it."""
    if not (_LINUX and platform.machine() == "x86_64"):
        return None
    try:
        first = _first_record("/proc/cpuinfo")
    except OSError:
        return None
    fields = dict(line.partition(":")[::2] for line in first.splitlines())
    known = {name.strip(): value.strip() for name, value in fields.items()}
    return known if all(known.get(name) for name in _CPU_FIELDS) else None


def _first_record(path: str) -> str:
    """The text of a file up to its first empty line: reading on costs a system with many processors milliseconds."""
    with open(path, "rb", buffering=0) as file:
        text = b""
        while b"\n\n" not in text and (more := file.read(4096)):
            text += more
    return text.split(b"\n\n")[0].decode("ascii", "replace")


def _code_generator() -> str:
    """llvmlite and its LLVM, by the size and the time of the library that holds both; importing it for its version takes half a
    millisecond."""
    found = []
    for folder in _code_generator_folders():
        with os.scandir(os.path.join(folder, "binding")) as entries:
            for entry in entries:
                if "llvmlite." in entry.name:
                    status = entry.stat()
                    found.append((entry.name, status.st_size, status.st_mtime_ns))
    return f"llvmlite {sorted(found)}"


def _code_generator_folders() -> Sequence[str]:
    """Where llvmlite is: looked for as a folder first, as the machinery of imports lists all that is installed, which takes longer."""
    for place in sys.path:
        folder = os.path.join(place, "llvmlite")
        if os.path.isfile(os.path.join(folder, "__init__.py")):
            return (folder,)
    spec = importlib.util.find_spec("llvmlite")
    return () if spec is None else spec.submodule_search_locations or ()
