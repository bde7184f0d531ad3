"""What machine code depends on besides its LLVM text: the processor, the code generator, and how we drive it."""

from __future__ import annotations

import functools
import importlib.util
import platform
from pathlib import Path

from sparsejax.jit import engine, loader

_CPU_FIELDS = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags")


@functools.cache
def identity() -> str:
    """A line for everything that decides which machine code a text becomes here: system, processor with its features, llvmlite and
    its LLVM, pass pipeline. Found without loading LLVM where this process can do without it.
    """
    parts = [platform.system(), platform.machine(), _processor(), _code_generator(), engine.PIPELINE]
    return " | ".join(parts)


def _processor() -> str:
    """Name and features of the processor: as the kernel reports them, or as LLVM does."""
    if loader.SUPPORTED:
        try:
            with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
                first = file.read(8192).split("\n\n")[0]
        except OSError:
            first = ""
        fields = dict(line.partition(":")[::2] for line in first.splitlines())
        known = {name.strip(): value.strip() for name, value in fields.items()}
        if all(known.get(name) for name in _CPU_FIELDS):
            return ", ".join(known[name] for name in _CPU_FIELDS)
    llvm = engine.engine().llvm
    return f"{llvm.get_host_cpu_name()}, {llvm.get_host_cpu_features().flatten()}"


def _code_generator() -> str:
    """The version of llvmlite, and of LLVM by the size of the library that holds it (its number is only known once it is loaded)."""
    import llvmlite

    spec = importlib.util.find_spec("llvmlite")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    sizes = [p.stat().st_size for f in folders for p in sorted(Path(f, "binding").glob("*llvmlite.*"))]
    return f"llvmlite {llvmlite.__version__} {sizes}"
