"""Names of values in LLVM text."""

import re

from sparsejax.jit.backend import compiler
from sparsejax.jit.backend.llvm import LLVMBuilder


def test_names_of_values_never_clash():
    """Workspaces are called w, w1, w2, …, and values carry a running number: w1 and 23 must not be w and 123."""
    b = LLVMBuilder()
    pointer = b.slot(0, "ptr", "values")
    for k in range(600):
        b.load(pointer, b.i64(k), "double", "w1")
        b.load(pointer, b.i64(k), "double", "w")
    text = b.finish(lambda: None)
    defined = re.findall(r"^\s*(%\S+) =", text, re.MULTILINE)
    assert len(set(defined)) == len(defined) > 1200
    compiler.assembly(text)
