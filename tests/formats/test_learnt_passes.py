"""When passes over few entries turn from NumPy to machine code."""

import numpy as np
import pytest

from sparsejax.formats import passes
from sparsejax.jit.backend import compiler
from sparsejax.jit.backend.llvm import LLVMBuilder
from sparsejax.jit.runtime.passes import pass_kernels


class Noted(passes.Passes):
    """Passes that are known from a certain time on."""

    def __init__(self, known):
        self.known, self.asked, self.ran = known, 0, 0

    def loaded(self, name, args):
        self.asked += 1
        return getattr(self, name)(*args) if self.known else None

    def take(self, column, index):
        self.ran += 1
        return super().take(column, index)


@pytest.mark.parametrize("known", [True, False])
def test_what_is_known_is_loaded_long_before_it_would_be_compiled(known):
    many = Noted(known)
    few = passes.Learning(many, often=passes.LOADED + 10)
    column, index = np.arange(9.0), np.array([8, 0, 3])
    for number in range(1, passes.LOADED + 20):
        np.testing.assert_array_equal(few.take(column, index), column[index])
        assert many.asked == (number >= passes.LOADED)
        first = passes.LOADED if known else passes.LOADED + 11
        assert many.ran == max(0, number - first + 1)


def test_a_pass_that_would_be_compiled_gives_nothing_and_compiles_nothing(monkeypatch):
    monkeypatch.setattr(compiler, "known_text", lambda text: None)
    before, many = compiler.compile_count(), passes._many
    assert pass_kernels.loaded(lambda: pass_kernels.compiled(_odd())) is None
    assert compiler.compile_count() == before
    np.testing.assert_array_equal(many.owners(np.array([0, 2, 2, 3])), [0, 0, 2])  # asked for as usual, it runs


def _odd():
    b = LLVMBuilder()
    b.slot(0, "i64", "unused")
    return b
