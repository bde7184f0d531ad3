"""Results of every level type: what a kernel writes is what a conversion makes of the same entries."""

import numpy as np
import pytest

import sparsejax as sj
from sparsejax.formats import Format, convert, validate
from tests.fuzz.levels import OUTPUTS, fits

WRITTEN = [level for level in OUTPUTS if not level.unwritten and not level.settled and level.group != 2]
OPERATIONS = {
    "scaled": lambda a, b: a * 2,
    "merged": lambda a, b: a + b,
    "intersected": lambda a, b: a * b,
    "cancelled": lambda a, b: sj.numpy.where(a > 0, a + b, a),
}


def drawn(seed, shape, format, density=0.3, dtype="f8"):
    rng = np.random.default_rng(seed)
    dense = np.where(rng.random(shape) < density, rng.integers(1, 3, shape), 0).astype(dtype)
    dense[: shape[0] // 4] = 0  # segments without entries
    return sj.array(dense, format=format), dense


def same(made, format):
    """That a result is valid, and stored as a conversion stores its entries; tables may have their entries in other slots."""
    validate.validate(made.storage)
    assert made.format == format
    again = convert.from_coords(*convert.to_coords(made.storage), made.shape, format, made.fill_value)
    assert [len(b) for level in made.storage.buffers for b in level] == [
        len(b) for level in again.buffers for b in level
    ]
    if all(level.ordered for level in format.levels):
        for one, other in zip(sum(made.storage.buffers, ()), sum(again.buffers, ()), strict=True):
            np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(made.storage.vals, again.vals)


def formats():
    for level in WRITTEN:
        for above in ("d", "c", ""):
            for below in ("", "d"):
                names = [*above, None, *below]
                levels = [level if n is None else Format.parse(f"({n})", 1).levels[0] for n in names]
                if fits(levels):
                    yield Format(levels)


@pytest.mark.rotating(12)
@pytest.mark.parametrize("format", list(formats()), ids=str)
@pytest.mark.parametrize("threads", [1, 2])
def test_kernels_write_it(format, threads):
    shape = {1: (70,), 2: (23, 70), 3: (23, 70, 3), 4: (11, 35, 3, 2)}[format.ndim]
    (a, x), (b, y) = drawn(0, shape, format), drawn(1, shape, format, 0.1)
    with sj.config.using(num_threads=threads, parallel_work=1):
        for name, ours in OPERATIONS.items():
            theirs = OPERATIONS[name] if name != "cancelled" else lambda a, b: np.where(a > 0, a + b, a)
            f = sj.jit(ours)
            for _ in range(2):  # room for the first guess, and for what that made
                made = f(a, b)
            np.testing.assert_array_equal(made.todense(), theirs(x, y))
            if made.format == format:
                same(made, format)


@pytest.mark.rotating(3)
@pytest.mark.parametrize("dtype", ["?", "i1", "f4", "c8", "c16"])
@pytest.mark.parametrize("level", WRITTEN, ids=lambda level: level.spelling)
def test_values_of_every_size(level, dtype):
    format = Format([Format.parse("(d)", 1).levels[0], level])
    a, x = drawn(2, (9, 80), format, dtype=dtype)
    made = sj.einsum("ij,jk->ik", a, sj.array(np.eye(80, dtype=dtype), format="csr"), out_format=format)
    np.testing.assert_array_equal(made.todense(), x)
    same(made, format)


def test_products_are_written_from_workspaces():
    for level in WRITTEN:
        format = Format([Format.parse("(d)", 1).levels[0], level])
        (a, x), (b, y) = drawn(4, (30, 40), "csr"), drawn(5, (40, 50), "csr")
        made = sj.jit(lambda a, b, form=format: sj.einsum("ij,jk->ik", a, b, out_format=form))(a, b)
        np.testing.assert_array_equal(made.todense(), x @ y)
        same(made, format)


def test_explain_says_which_results_are_converted_and_why():
    for level in OUTPUTS:
        if level.relative or level.full:
            continue
        format = Format([Format.parse("(d)", 1).levels[0], level])
        a, _ = drawn(6, (8, 9), "csr")
        text = str(sj.explain(lambda a, form=format: sj.einsum("ij,i->ij", a, np.ones(8), out_format=form))(a))
        assert (f"conversion out: csr -> {format}" in text) == bool(level.unwritten)
        assert level.unwritten in text


def test_large_grids_are_left_to_conversions():
    form = Format.parse("bitmap", 2)
    assert form.as_written((1 << 20, 1 << 20), 8) == Format.parse("csr", 2)
    assert form.as_written((1 << 10, 1 << 10), 8) == form


@pytest.mark.rotating(2)
@pytest.mark.parametrize("level", WRITTEN, ids=lambda level: level.spelling)
@pytest.mark.parametrize("above", ["d", "c"])
def test_chunks_make_what_one_thread_makes(level, above):
    format = Format([Format.parse(f"({above})", 1).levels[0], level])
    (a, x), (b, y) = drawn(7, (300, 70), format), drawn(8, (300, 70), format)
    ours = OPERATIONS["scaled" if level.fills else "merged"]
    f = sj.jit(ours)
    alone = f(a, b)
    assert alone.format == format or level.fills
    with sj.config.using(num_threads=2, parallel_work=1):
        text = str(sj.explain(ours)(a, b))
        made = f(a, b)
    np.testing.assert_array_equal(made.todense(), ours(x, y))
    assert "chunks, about" in text or level.fills
    for one, other in zip(sum(made.storage.buffers, ()), sum(alone.storage.buffers, ()), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(made.storage.vals, alone.storage.vals)
