"""The LLVM side of compilation: text to an object, to assembly, and into memory where `loader` cannot do it.

Two passes: SROA turns stack slots into registers, then instructions are simplified, without which minima, comparisons and arithmetic with
constants take up to 1.4 of the time. Simplification of the control flow made nothing faster; the O2 pipeline is slow and leaks. What runs
seldom and has no loop worth it (`plain`: the allocator, whose sixteen small functions cost 1 ms each, where no object of it is at hand)
takes no passes and LLVM's fastest code generator: 4 ms instead of 30. llvmlite is imported when the first kernel is compiled, never for
kernels that come from the object cache.
"""

from __future__ import annotations

import functools
from typing import Any

from sparsejax.cached import cached_property
from sparsejax.jit.backend import loader

PIPELINE = "sroa, instcombine; opt 2; pic; plain: opt 0"
"""What `Engine.object` does with a text: part of the identity of objects on disk, to be changed with it."""

RUNS_PER_PIPELINE = 128
"""How many functions one pass pipeline handles: making one leaks about 3 KB inside llvmlite, and every run adds callbacks to its
builder that slow down all later runs (by 0.2 ms after a thousand)."""


class Engine:
    """LLVM for this host, or for every processor of a kind: one target machine, one pass pipeline, and a linker session if it is ever needed."""

    def __init__(self, processor: str = "") -> None:
        import llvmlite.binding as llvm

        self.llvm = llvm
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self._processor = processor
        self.machine = self._target_machine()
        self._runs = RUNS_PER_PIPELINE
        self._passes: Any = None
        self._builder: Any = None
        self._jit: Any = None
        self._links = 0

    def _target_machine(self, opt: int = 2) -> Any:
        return self.llvm.Target.from_default_triple().create_target_machine(
            cpu=self._processor or self.llvm.get_host_cpu_name(),
            features="" if self._processor else self.llvm.get_host_cpu_features().flatten(),
            opt=opt,
            reloc="pic",
            codemodel="default",
        )

    @cached_property
    def _plain(self) -> Any:
        return self._target_machine(opt=0)

    def object(self, text: str, plain: bool = False) -> bytes:
        """The object file of LLVM text, without any optimisation where `plain`; RuntimeError where the text is malformed."""
        if plain:
            return bytes(self._plain.emit_object(self.llvm.parse_assembly(text)))
        return bytes(self.machine.emit_object(self._simplified(text)))

    def assembly(self, text: str) -> str:
        """The same machine code as assembly."""
        return str(self.machine.emit_assembly(self._simplified(text)))

    def _simplified(self, text: str) -> Any:
        module = self.llvm.parse_assembly(text)
        for function in module.functions:
            if not function.is_declaration:
                self._simplify(function)
        return module

    def _simplify(self, function: Any) -> None:
        if self._runs == RUNS_PER_PIPELINE:
            self._runs = 0
            self._builder = self.llvm.create_pass_builder(self.machine, self.llvm.create_pipeline_tuning_options())
            self._passes = self.llvm.create_new_function_pass_manager()
            self._passes.add_sroa_pass()
            self._passes.add_instruction_combine_pass()
        self._runs += 1
        self._passes.run(function, self._builder)

    def link(self, image: bytes) -> tuple[int, Any]:
        """The address of `kernel` in an object that LLVM's linker puts into memory, and what keeps it there.

        RuntimeError for an object with symbols that this process does not have.
        """
        if self._jit is None:
            self._jit = self.llvm.create_lljit_compiler(
                self._target_machine(), use_jit_link=False, suppress_errors=False
            )
        library = self.llvm.JITLibraryBuilder().add_object_img(image).add_current_process().export_symbol("kernel")
        for name, address in loader.PROVIDED.items():
            if b"%s\0" % name.encode() in image:  # some systems put an underscore in front
                library.import_symbol(name, address())  # which may link what is provided, and so come by here
        self._links += 1
        tracker = library.link(self._jit, f"sparsejax{self._links}")
        return int(tracker["kernel"]), tracker


@functools.cache
def engine() -> Engine:
    """The engine of this process, started at the first use."""
    return Engine()
