"""Quick compilation: the code generator without optimisation, kernels forgotten after use, and many kernels in one LLVM module.

What is under test is the text that the compiler emits; without optimisation a case takes a third of the time. The kernels of one of 31 tests,
drawn anew for every commit, are optimised all the same, as wrong results may come of the optimiser alone.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import importlib
import math
import re
import struct
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar, cast
from unittest import mock

from sparsejax import config
from sparsejax.jit.backend import compiler, engine, host, loader
from sparsejax.jit.backend.builder import Builder
from sparsejax.jit.backend.llvm import LLVMBuilder
from sparsejax.jit.codegen import lower
from sparsejax.jit.codegen.constants import Numbers
from sparsejax.jit.cost import statistics
from sparsejax.jit.graph import reassociate
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.program import Program
from sparsejax.jit.runtime import plan_cache
from tests import objects

TOGETHER = 64
"""Kernels that are compiled as one module: half of the time for a small one is spent per module."""
KEPT = 4096
"""Programs and kernels that are remembered."""


@contextmanager
def quick() -> Iterator[None]:
    """Compile without optimisation, and keep nothing on disk, inside the block; a few kernels of a run of the tests as users have them (`objects.shipped`)."""
    shipped = engine.engine()
    made, folder = shipped.object, config.cache_dir()
    shipped.object = lambda text, plain=True: made(text, not objects.shipped())
    config.update("cache_dir", "off")
    compiler.forget()
    plan_cache.forget()
    try:
        yield
    finally:
        shipped.object = made
        config.update("cache_dir", folder)
        compiler.forget()
        plan_cache.forget()


Check = TypeVar("Check", bound=Callable[..., object])


def crowded(check: Check) -> Check:
    """`check(seed)` of whom odd seeds take every level for one of many entries: its segments are computed in blocks (`loops/row_blocks`,
    `loops/distributed`), of few rows; half of them as on a processor with masked lanes, whatever this one has."""

    @functools.wraps(check)
    def checked(seed: int, *args: object, **options: object) -> object:
        if seed % 2 == 0:
            return check(seed, *args, **options)
        offers = host._offers
        masks = mock.patch.object(host, "_offers", lambda name: (name == "masks" and seed % 4 == 1) or offers(name))
        many, block = (mock.patch.object(statistics, name, count) for name, count in (("MANY", 1), ("BLOCK", 64)))
        with masks, many, block:
            return check(seed, *args, **options)

    return cast(Check, checked)


@contextmanager
def associated() -> Iterator[None]:
    """Inside the block, products of three operands are associated in another way than they are written, whatever that costs, and small
    dense products are kernels."""
    contract = importlib.import_module("sparsejax.lax.contract")
    kept = reassociate.SURE, contract.MANY
    reassociate.SURE, contract.MANY = math.inf, 0
    try:
        yield
    finally:
        reassociate.SURE, contract.MANY = kept


def forget() -> None:
    """Drop compiled kernels, so that memory does not grow with the number of cases."""
    compiler.forget()
    plan_cache.forget()


@contextmanager
def garbage_by_hand() -> Iterator[Callable[[], object]]:
    """Collect young cycles when what this yields is called, and at no other time, inside the block."""
    kept = gc.get_freeze_count()  # by who runs the tests, for whom it stays so
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield lambda: gc.collect(1)
    finally:
        gc.enable()
        if not kept:
            gc.unfreeze()


# ------------------------------------------------------------------------------------------------- many at a time


@contextmanager
def batched() -> Iterator[None]:
    """Lower equal programs once, and compile kernels when the first of a batch is called, inside the block.

    Only for callers that plan many kernels before they call one.
    """
    for address in loader.PROVIDED.values():
        address()  # compiled alone: not in the batch of what needs it
    lowered, compiled = lower.lower, compiler.compile_text
    texts: dict[Hashable, str] = {}
    lower.lower = partial(_lowered_once, lowered, texts)
    compiler.compile_text = _Batches().kernel
    try:
        yield
    finally:
        lower.lower, compiler.compile_text = lowered, compiled


def program_key(program: Program) -> Hashable:
    """Everything about a program but extents, which kernels read when they run, unless they are zero."""
    chunking = program.chunking
    marks = (bool(chunking.count), chunking.partial)
    return _key((program.stmt, program.inputs, program.output, tuple(program.extents.items()), marks))


def _key(node: object) -> Hashable:
    match node:
        case tuple():
            return tuple(map(_key, node))
        case cin.Tensor():
            made = [v for name, v in vars(node).items() if name not in ("shape", "fill_value")]
            return (*made, str(node.fill_value), tuple(n == 0 for n in node.shape))
        case cin.Literal():
            return (node.dtype, node.absent, str(node.value))
        case cin.Access():
            return (_key(node.tensor), node.indices)
        case cin.Call() | cin.Assign() | cin.Forall() | cin.Where() | cin.Seq():
            return (type(node), *(_key(getattr(node, name)) for name, f in node.__dataclass_fields__.items() if f.init))
    return node


def _lowered_once(
    real: Callable[..., str],
    texts: dict[Hashable, str],
    program: Program,
    builder: Builder,
    numbers: Numbers | None = None,
) -> str:
    if numbers is not None or not isinstance(builder, LLVMBuilder):
        return real(program, builder, numbers)
    key = program_key(program), config.planning()
    if key not in texts:
        if len(texts) >= KEPT:
            texts.clear()
        texts[key] = real(program, builder)
    return texts[key]


class _Batches:
    """Kernels by their texts, in batches."""

    def __init__(self) -> None:
        self._known: dict[str, _Pending] = {}
        self._open = _Batch()

    def kernel(self, text: str) -> _Pending:
        if text not in self._known:
            if len(self._known) >= KEPT:
                self._known.clear()
            if len(self._open.texts) >= TOGETHER or self._open.kernels:
                self._open = _Batch()
            self._known[text] = _Pending(self._open, len(self._open.texts))
            self._open.texts.append(text)
        return self._known[text]


class _Batch:
    def __init__(self) -> None:
        self.texts: list[str] = []
        self.kernels: list[compiler.Kernel | None] = []

    def kernel(self, number: int) -> compiler.Kernel:
        """The kernel of a text; where the module of all is malformed, every text becomes its own, so that the culprit alone fails."""
        if not self.kernels:
            try:
                self.kernels = [*self._compiled()]
            except RuntimeError:
                self.kernels = [None] * len(self.texts)
        found = self.kernels[number]
        if found is None:
            found = self.kernels[number] = compiler.Kernel(*compiler.place(engine.engine().object(self.texts[number])))
        return found

    def _compiled(self) -> Iterator[compiler.Kernel]:
        entry = compiler.Kernel(*compiler.place(engine.engine().object(joined(self.texts))))
        table = ctypes.create_string_buffer(8 * len(self.texts))
        entry.run_at(ctypes.addressof(table))
        for (address,) in struct.iter_unpack("q", table.raw):
            yield compiler.Kernel(address, entry)


class _Pending(compiler.Kernel):
    """A kernel that is compiled, with its batch, when it is called."""

    def __init__(self, batch: _Batch, number: int) -> None:
        self._batch, self._number = batch, number

    def __getattr__(self, name: str) -> object:
        """Its address and function."""
        vars(self).update(vars(self._batch.kernel(self._number)))
        return vars(self)[name]


def joined(texts: Sequence[str]) -> str:
    """One module of the kernels of all texts; its own `kernel` writes their addresses into a table.

    It is `nounwind`: a module with unwind tables is not one that our own linker takes (`backend/loader`).
    """
    declared: dict[str, None] = {}
    bodies, table = [], []
    for n, text in enumerate(texts):
        own = ["kernel", *re.findall(r"^define internal .*? @([\w.]+)\(", text, re.MULTILINE)]
        text = re.sub(rf"@({'|'.join(map(re.escape, own))})\(", rf"@\1.{n}(", text)
        head, _, body = text.partition("define ")
        declared.update(dict.fromkeys(head.splitlines()))
        bodies.append(f"define {body}".replace(f"define i64 @kernel.{n}(", f"define internal i64 @kernel.{n}("))
        table += [f"  %p{n} = getelementptr ptr, ptr %table, i64 {n}", f"  store ptr @kernel.{n}, ptr %p{n}"]
    entry = ["define i64 @kernel(ptr %table) nounwind {", *table, "  ret i64 0", "}"]
    return "\n".join([*declared, *bodies, *entry]) + "\n"
