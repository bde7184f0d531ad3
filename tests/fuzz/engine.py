"""Quick compilation: the code generator without optimisation, and kernels forgotten after use.

What is under test is the text that the compiler emits; without optimisation a case takes a third of the time. Some cases of
each suite run with the shipped pipeline.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sparsejax.jit import engine, runtime


@contextmanager
def quick() -> Iterator[None]:
    """Compile without optimisation inside the block."""
    shipped = engine.engine()
    llvm = shipped.llvm
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=0,
        reloc="pic",
        codemodel="default",
    )
    made = shipped.object
    shipped.object = lambda text: bytes(machine.emit_object(llvm.parse_assembly(text)))
    runtime.forget()
    try:
        yield
    finally:
        shipped.object = made
        runtime.forget()


def forget() -> None:
    """Drop compiled kernels, so that memory does not grow with the number of cases."""
    runtime.forget()
