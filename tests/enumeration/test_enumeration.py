"""Every kernel over up to two operands and three variables against dense NumPy: a slice of the enumeration that rotates with the
commit, all of it with the marker `slow`.

SPARSEJAX_SLICE=k chooses the k-th slice; SPARSEJAX_ENUMERATE=first:last (or all) what the slow run covers.
"""

import itertools
import os

import pytest

from sparsejax.formats import Compressed, Coordinate, Dense
from sparsejax.jit.backend.llvm import LLVMBuilder
from sparsejax.jit.codegen import coiterate, lower
from sparsejax.jit.rewrite import iteration
from sparsejax.jit.runtime.kernels import KernelRunner
from tests.enumeration import cases, run
from tests.fuzz import definitions, forced
from tests.fuzz.tally import Tally
from tests.rotation import slice_number

SLICE, BATCHES = 96, 4
"""Cases of a slice, some four seconds of work, and the tests that share them."""


def sliced(batch: int) -> range:
    """The numbers of a batch of the slice: every n-th case, so that each slice meets all kinds."""
    stride = cases.count() // SLICE + 1
    return range(slice_number() % stride, cases.count(), stride)[batch::BATCHES]


def assert_right(numbers, optimise=False, under=None):
    tally = Tally()
    for _ in run.run(numbers, tally, optimise, under):
        pass
    assert tally.run == len(numbers)
    assert not tally.faults, f"{tally}\n\n" + "\n\n".join(tally.faults[:10])


@pytest.mark.parametrize("batch", range(BATCHES))
def test_rotating_slice(batch):
    """Half of the batches under alternatives that are drawn."""
    assert_right(sliced(batch), under=forced.alternatives if batch % 2 else None)


def test_part_of_the_slice_with_optimisation():
    assert_right(sliced(0)[::4], optimise=True)


@pytest.mark.slow
def test_everything():
    first, last = run.bounds(os.environ.get("SPARSEJAX_ENUMERATE", "all"))
    assert_right(range(first, last))


# ------------------------------------------------------------------------------------------- the enumeration itself


def test_number_of_cases():
    assert cases.count() == 10104674
    assert len(cases.blocks()) == 17323
    assert cases.count() == sum(b.size for b in cases.blocks())
    with pytest.raises(IndexError):
        cases.case(cases.count())


def test_every_small_kernel_is_counted_once():
    """By brute force: all words of at most two letters over two variables, and all formats, equal up to a symmetry."""
    words = ["".join(w) for n in range(3) for w in itertools.product("ij", repeat=n)]
    outputs = ["", "i", "j", "ij", "ji"]
    found = set()
    for a, b, out, operator in itertools.product(words, words, outputs, cases.OPERATORS):
        reductions = cases.REDUCTIONS if (set(a) | set(b)) - set(out) else (None,)
        lists = [cases.levels_of(len(w)) for w in (a, b, out)]
        for op, (x, y, z) in itertools.product(reductions, itertools.product(*lists)):
            keys = [(cases.canonical((a, b, out)), x, y, z)]
            if operator != "subtract":
                keys.append((cases.canonical((b, a, out)), y, x, z))
            found.add((operator, op, min(keys, key=str)))
    counted = [
        b
        for b in cases.blocks()
        if b.operator and all(len(w) <= 2 for w in b.words) and max(itertools.chain((0,), *b.words)) <= 1
    ]
    assert sum(b.size for b in counted) == len(found)


def test_formats_of_a_block_are_distinct():
    mirrored = next(b for b in cases.blocks() if b.mirrored and len(b.words[0]) == 3 and len(b.words[2]) == 1)
    plain = next(b for b in cases.blocks() if b.operator and not b.mirrored and len(b.words[0]) == 2)
    for block in (mirrored, plain):
        assert len({block.formats(n) for n in range(block.size)}) == block.size
    pairs = {frozenset((x, y)) for x, y, _ in map(mirrored.formats, range(mirrored.size))}
    assert len(pairs) == 13 * 14 // 2


def test_cases_are_reproducible_and_varied():
    n = cases.count() - 12345
    assert str(cases.case(n)) == str(cases.case(n))
    orders = {a.format.order for n in range(0, cases.count(), 40007) for a in cases.case(n).storages.values()}
    assert len([o for o in orders if len(o) == 3]) == 6


def kernel_text(block: cases.Block, formats, seed: int) -> str:
    step, inputs, _, _ = definitions.step_of(cases.build(block, formats, seed))
    runner = KernelRunner.of(step)
    _, program = runner.planner.schedule(runner.observe(inputs))
    return lower.lower(program, LLVMBuilder())


@pytest.mark.parametrize("words", ["ij j i", "ij jk ik", "ijk k ij", "ij ij ij", "ji ik kj"])
def test_a_lone_coordinate_level_is_a_compressed_level(words):
    """Why these formats are not counted apart: buffers and code are the same, as operand and as output."""
    lone = {Coordinate(): Compressed()}
    canonical = cases.canonical(words.split())
    for operator, reduction in (("multiply", "add"), ("add", "add")):
        reduction = reduction if cases._reductions(canonical) != (None,) else None
        block = cases.Block(canonical, operator, reduction)
        for seed, single in enumerate(itertools.product((Dense(), Coordinate()), repeat=3)):
            formats = [
                [single[k] if lv == k % len(w) else Dense() for lv in range(len(w))] for k, w in enumerate(canonical)
            ]
            same = [[lone.get(level, level) for level in levels] for levels in formats]
            assert kernel_text(block, formats, seed) == kernel_text(block, same, seed)


def test_the_check_can_fail(monkeypatch):
    real = iteration.find_cases
    monkeypatch.setattr(iteration, "find_cases", lambda body, leaders: dict(list(real(body, leaders).items())[:1]))
    tally = Tally()
    for _ in run.run(range(18363, 20363, 50), tally):
        pass
    assert tally.mismatches


def test_an_exception_counts_as_unsupported(monkeypatch):
    def refuse(*_):
        raise NotImplementedError("no")

    monkeypatch.setattr(coiterate, "forall", refuse)
    tally = Tally()
    for _ in run.run(range(18363, 18463, 10), tally):
        pass
    assert tally.unsupported
