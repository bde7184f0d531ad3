"""From LLVM text to a callable, and the memory that kernels hand back.

Compilation: parse, one light pass pipeline (SROA turns stack slots into registers, then CFG clean-up; the O2 pipeline is slow and
leaks), machine code, one ORC JIT per process. llvmlite is imported at the first compile. Objects are cached in memory
by the hash of their text.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import struct
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax import config

log = logging.getLogger("sparsejax")

SMALL = 1 << 14
"""Bytes up to which copying a result is cheaper than an object that owns foreign memory."""


class Kernel:
    """A compiled kernel: call it with packed 8-byte slots."""

    def __init__(self, address: int, text: str, assembly: Any) -> None:
        self.text = text
        self._keep = assembly
        self._function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(address)

    def run_packed(self, slots: bytes) -> int:
        """Run the kernel on packed slots that it only reads (a dense output); the status code."""
        status: int = self._function(slots)
        return status

    def __call__(self, slots: bytes) -> tuple[int, tuple[int, ...]]:
        """Run the kernel on packed slots; the status code and the slots afterwards. The interpreter lock is released meanwhile."""
        array = ctypes.create_string_buffer(slots, len(slots))
        status: int = self._function(array)
        return status, struct.unpack(f"{len(slots) // 8}q", array)


class _Engine:
    """The process's JIT: one target machine, one linker session."""

    def __init__(self) -> None:
        import llvmlite.binding as llvm

        self.llvm = llvm
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        features = llvm.get_host_cpu_features().flatten()
        target = llvm.Target.from_default_triple()
        self.machine = target.create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=features, opt=2, reloc="pic", codemodel="default"
        )
        self.jit = llvm.create_lljit_compiler(
            target.create_target_machine(
                cpu=llvm.get_host_cpu_name(), features=features, opt=2, reloc="pic", codemodel="default"
            ),
            use_jit_link=False,
            suppress_errors=False,
        )
        self.builder = llvm.create_pass_builder(self.machine, llvm.create_pipeline_tuning_options())
        self.count = 0

    def object(self, text: str) -> bytes:
        module = self.llvm.parse_assembly(text)
        passes = self.llvm.create_new_function_pass_manager()
        passes.add_sroa_pass()
        passes.add_simplify_cfg_pass()
        passes.add_instruction_combine_pass()
        for function in module.functions:
            if not function.is_declaration:
                passes.run(function, self.builder)
        return bytes(self.machine.emit_object(module))

    def assembly(self, text: str) -> str:
        module = self.llvm.parse_assembly(text)
        return str(self.machine.emit_assembly(module))

    def link(self, image: bytes) -> tuple[int, Any]:
        self.count += 1
        library = self.llvm.JITLibraryBuilder().add_object_img(image).add_current_process().export_symbol("kernel")
        tracker = library.link(self.jit, f"sparsejax{self.count}")
        return int(tracker["kernel"]), tracker


_lock = threading.Lock()
_kernels: dict[str, Kernel] = {}
_compiled = 0

REMEMBERED = 4096
"""How many kernels stay although no plan may use them any more; the oldest go first."""


@functools.cache
def _engine() -> _Engine:
    return _Engine()


def compile_text(text: str) -> Kernel:
    """The kernel for LLVM text, from the cache in memory or compiled now."""
    global _compiled
    key = hashlib.sha256(text.encode()).hexdigest()
    kernel = _kernels.get(key)
    if kernel is not None:
        return kernel
    with _lock:
        kernel = _kernels.get(key)
        if kernel is None:
            started = time.perf_counter()
            engine = _engine()
            address, tracker = engine.link(engine.object(text))
            kernel = _kernels[key] = Kernel(address, text, tracker)
            _compiled += 1
            while len(_kernels) > REMEMBERED:
                del _kernels[next(iter(_kernels))]
            if config.log_compiles():
                log.warning(
                    "compiled a kernel of %d lines in %.1f ms", text.count("\n"), 1e3 * (time.perf_counter() - started)
                )
    return kernel


def compile_seconds(text: str) -> float:
    """The time it takes to compile LLVM text, never from the cache; the machine code is dropped."""
    with _lock:
        engine = _engine()
        started = time.perf_counter()
        engine.link(engine.object(text))
        return time.perf_counter() - started


def assembly(text: str) -> str:
    """The machine code of LLVM text, as assembly."""
    return _engine().assembly(text)


def compile_count() -> int:
    """How many kernels this process has compiled."""
    return _compiled


class _Owned:
    """Memory from the C heap that NumPy arrays refer to; freed with the last of them."""

    def __init__(self, address: int, count: int, dtype: np.dtype[Any]) -> None:
        self._address = address
        self.__array_interface__ = {
            "version": 3,
            "shape": (count,),
            "typestr": dtype.str,
            "data": (address, True),
        }

    def __del__(self) -> None:
        _free(self._address)


_libc = ctypes.CDLL(None)
_libc.free.argtypes = [ctypes.c_void_p]
_libc.free.restype = None
_free = _libc.free


def adopt(address: int, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """A read-only array over `count` elements that a kernel allocated; the array owns the memory (or a copy, when small)."""
    if address == 0 or count == 0:
        if address:
            _free(address)
        empty = np.empty(0, dtype)
        empty.flags.writeable = False
        return empty
    size = count * dtype.itemsize
    if size <= SMALL:
        copied = np.frombuffer(ctypes.string_at(address, size), dtype)
        _free(address)
        return copied
    return np.asarray(_Owned(address, count, dtype))


def release(addresses: Sequence[int]) -> None:
    """Free what a failed kernel left behind."""
    for address in addresses:
        if address:
            _free(address)


def check(status: int) -> None:
    """Raise for a status code that is not OK."""
    if status == 1:
        raise MemoryError("sparsejax: the result or a workspace of this operation does not fit in memory")
    if status:
        raise RuntimeError(f"sparsejax: a kernel stopped with status {status}")
