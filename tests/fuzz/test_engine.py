"""Many kernels in one module are the kernels by themselves, and programs that are lowered once have one text."""

import pytest

from sparsejax import config
from sparsejax.jit.backend import compiler
from sparsejax.jit.backend import engine as backend
from sparsejax.jit.backend.llvm import LLVMBuilder
from sparsejax.jit.codegen import lower
from sparsejax.jit.runtime.kernels import KernelRunner
from tests import objects
from tests.enumeration import cases, run
from tests.fuzz import definitions, engine
from tests.fuzz.tally import Tally


def block_numbers(words, operator, reduction):
    """The cases of a block."""
    wanted = cases.Block(cases.canonical(words.split()), operator, reduction)
    return next(r for k, r in enumerate(cases.numbers("with")) if cases.blocks()[k] == wanted)


def program_of(n):
    case = cases.case(n)
    step, inputs, _, _ = definitions.step_of(case)
    with config.using(workspace=case.workspace):
        runner = KernelRunner.of(step)
        return runner.planner.schedule(runner.observe(inputs))[1]


def test_programs_that_are_lowered_once_have_one_text():
    texts, repeated = {}, 0
    for n in block_numbers("ij kji ik", "multiply", "add"):
        program = program_of(n)
        text = lower.lower(program, LLVMBuilder())
        known = texts.setdefault(engine.program_key(program), text)
        repeated += known is not text
        assert known == text
    assert repeated > 8


def test_a_batch_compiles_once():
    numbers = block_numbers("ij ij ij", "subtract", None)[:60]
    assert list(run.run(numbers[:1]))  # what every kernel uses is compiled alone
    before = compiler.compile_count()
    tally = Tally()
    assert len(list(run.run(numbers, tally))) == 1
    assert tally.run == 60 and not tally.faults
    assert compiler.compile_count() == before


def test_the_malformed_kernel_of_a_batch_fails_alone(monkeypatch):
    numbers = block_numbers("i i i", "add", None)[:4]
    real, made = LLVMBuilder.finish, []

    def finish(self, epilogue):
        made.append(real(self, epilogue))
        return made[-1] + ("rubbish\n" if len(made) == 2 else "")

    monkeypatch.setattr(LLVMBuilder, "finish", finish)
    tally = Tally()
    assert list(run.run(numbers, tally))
    assert len(made) == 4
    assert [f.split(":")[0] for f in tally.unsupported] == [f"case {numbers[1]}"]
    assert not tally.mismatches


def test_routines_of_kernels_in_one_module_are_their_own():
    text = "declare ptr @malloc(i64)\ndefine internal {{ i64 }} @grow(i64 %a) nounwind {{\nentry:\n  ret {{ i64 }} {{ i64 {n} }}\n}}\n"
    text += (
        "define i64 @kernel(ptr noundef %args) nounwind {{\nentry:\n  %r = call {{ i64 }} @grow(i64 1)\n"
        "  %s = extractvalue {{ i64 }} %r, 0\n  ret i64 %s\n}}\n"
    )
    with engine.batched():
        kernels = [compiler.compile_text(text.format(n=n)) for n in (5, 7, 9)]
        assert [k.run_packed(bytes(8)) for k in kernels] == [5, 7, 9]
        assert compiler.compile_text(text.format(n=7)) is kernels[1]


@pytest.mark.parametrize("diagonals", ["with", "without", "only"])
def test_numbers_of_a_shuffled_run_are_those_of_a_run(diagonals):
    chosen = list(run.chosen(0, 30000, diagonals))
    shuffled = list(run.chosen(0, 30000, diagonals, shuffle=1))
    assert chosen == sorted(shuffled) != shuffled
    assert len(chosen) == len(set(chosen))


def test_cases_without_diagonals():
    assert sum(map(len, cases.numbers("without"))) == 842399
    assert sum(map(len, cases.numbers("only"))) == cases.count() - 842399


def test_kernels_of_tests_that_are_drawn_are_optimised(monkeypatch):
    seen = []
    monkeypatch.setattr(backend.engine(), "object", lambda text, plain=False: seen.append(plain))
    for drawn in (False, True):
        monkeypatch.setitem(objects._state, "drawn", drawn)
        with engine.quick():
            backend.engine().object("; a kernel")
    assert seen == [True, False]
