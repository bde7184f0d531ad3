"""Formats as values, and the level protocol: what a level assembles, it expands again, and finds sound."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsejax.errors import FormatError
from sparsejax.formats import (
    Banded,
    Bitmap,
    Compressed,
    Coordinate,
    Dense,
    Diagonal,
    Ell,
    Format,
    Grouped,
    Hash,
    Level,
    LooseCompressed,
    RunLength,
)
from sparsejax.formats.levels.segments import ROOT, Above
from tests import rotation
from tests.formats import strategies


@settings(max_examples=rotation.examples(200), deadline=None)
@given(st.data())
def test_text_round_trip_and_value_equality(data):
    form = data.draw(strategies.formats(data.draw(st.integers(0, 6))))
    again = Format.parse(str(form), form.ndim)
    assert again == form and hash(again) == hash(form) and again is not form
    assert form != Format((Dense(), *form.levels))
    axes = data.draw(st.permutations(range(form.ndim)))
    back = [axes.index(d) for d in range(form.ndim)]
    assert form.transposed(axes).transposed(back) == form
    covered = [k for first, stop in form.runs for k in range(first, stop)]
    assert covered == list(range(len(form.levels)))


def test_names():
    assert Format((Dense, Compressed), order=(1, 0)) == Format.parse("csc", 2)
    assert str(Format((Compressed,) * 3)) == "csf" and str(Format(())) == "dense"
    assert str(Format((Dense, Compressed, Dense), (0, 2, 1))) == "(d,c,d)@(0,2,1)"
    assert Format.parse(" CSR ", 2) == Format.parse("(d,c)", 2)
    assert Format.parse("csr", 2) != "csr"


def test_blocks():
    bsr = Format((Dense, Compressed, Dense, Dense), (0, 1, 0, 1), (2, 3))
    assert bsr == Format.parse("bsr:2x3", 2) == Format.parse("(d,c,d,d)/(2,3)", 2) and str(bsr) == "bsr:2x3"
    assert bsr.ndim == 2 and bsr.blocked and not bsr.is_dense
    assert bsr.level_extents((4, 7)) == (2, 3, 2, 3) and bsr.pads((4, 7)) and not bsr.pads((4, 9))
    assert str(bsr.transposed((1, 0))) == "(d,c,d,d)@(1,0,1,0)/(3,2)"
    assert bsr.unblocked() == Format.parse("csr", 2) == Format.parse("bsr:1x1", 2)
    assert str(Format.parse("bsr:1x4", 2)) == "bsr:1x4" and len(Format.parse("bsr:1x4", 2).levels) == 3
    tiles = Format((Dense,) * 4, None, (2, 3))
    assert not tiles.is_dense and str(tiles) == "(d,d,d,d)@(0,1,0,1)/(2,3)" and tiles.unblocked().is_dense
    assert bsr != Format(bsr.levels, bsr.order, (2, 4)) and bsr != Format(bsr.levels)


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("ell", Ell),
        ("groupcoo:4", Grouped(4)),
        ("dia", Diagonal),
        ("banded", Banded),
        ("bitmap", Bitmap),
        ("hash", Hash),
        ("rle", RunLength),
        ("lil", LooseCompressed),
    ],
)
def test_names_of_matrices(name, level):
    form = Format((Dense, level))
    assert Format.parse(name, 2) == form and str(form) == name and repr(form) == f"Format({name!r})"
    assert str(form.transposed((1, 0))) == f"(d,{form.levels[1].spelling})@(1,0)"
    with pytest.raises(FormatError, match="for matrices"):
        Format.parse(name, 3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Format((Dense, Dense), (0, 0)), "permutation"),
        (lambda: Format((Dense,), (0, 1)), "permutation"),
        (lambda: Format((Dense, Dense), (0.0, 1.5)), "dimension number"),
        (lambda: Format((Compressed(unique=False), Dense)), "only the last"),
        (lambda: Format((RunLength(), Dense())), "share positions; only the last"),
        (lambda: Format((Diagonal(), Dense())), "cannot be the outermost"),
        (lambda: Format.parse("(o)", 1), "cannot be the outermost"),
        (lambda: Format((int,)), "must be a level"),
        (lambda: Format("dc"), "must be a level"),
        (lambda: Format.parse(5, 2), "must be a name"),
        (lambda: Format.parse(Format((Dense,)), 2), "for 1 dimensions"),
        (lambda: Format((Dense, Grouped)), r"give Grouped\(4\)"),
        (lambda: Grouped(0), "from 1 to 65536"),
        (lambda: Grouped(1.5), "must be an integer"),
        (lambda: Format.parse("(d,g)", 2), "not a level letter"),
        (lambda: Format.parse("(d,g99999999999)", 2), "from 1 to 65536"),
        (lambda: Format.parse("groupcoo", 2), r"group_size\(A\)"),
        (lambda: Format.parse("blockgroupcoo:2x2", 2), r"as in 'blockgroupcoo:4x4:4'.*group_size"),
        (lambda: Format.parse("groupcoo:4", 3), "for matrices"),
        (lambda: Format.parse("(d,c", 3), "for 2 dimensions"),
        (lambda: Format((Dense, Dense), None, (2, 2)), "takes 4 levels"),
        (lambda: Format((Dense, Dense), (0, 1), (2,)), r"must hold each of 1 dimensions once, and \[0\] twice"),
        (lambda: Format((Dense, Dense), None, (0, 1)), "at least 1"),
        (lambda: Format((Dense,), None, (1.5,)), "block size per dimension"),
        (lambda: Format.parse("bsr", 2), "rows and columns of a block"),
        (lambda: Format.parse("bsr:2x0", 2), "at least 1"),
        (lambda: Format.parse("bsr:2x2", 3), "for matrices"),
    ],
)
def test_combinations_that_make_no_sense(make, message):
    with pytest.raises(FormatError, match=message):
        make()


@settings(max_examples=rotation.examples(600), deadline=None)
@given(st.data())
def test_levels_expand_what_they_assemble(data):
    """With entries at all positions above, or at some of them in some order of positions."""
    kind = data.draw(st.sampled_from([*strategies.LEVELS, Compressed(unique=False)]))
    length = data.draw(st.sampled_from([1, 3])) if isinstance(kind, Coordinate) else 1
    parents, size = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 12))
    extents = [data.draw(st.sampled_from([1, 2, 4, 70, 2**40])) for _ in range(length)]
    if data.draw(st.booleans()):
        extents = [min(n, 70) for n in extents]  # also where a dense level fits
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    parent = rng.integers(0, parents, size)
    keys = [rng.integers(0, min(n, 90), size) + (rng.integers(0, 2, size) * (n - 90) if n > 90 else 0) for n in extents]
    row = rng.integers(0, 5, parents)  # the coordinates of the positions above
    if kind.shared or not kind.unique:  # last levels: their entries are distinct
        entries = sorted(set(zip(parent.tolist(), *[k.tolist() for k in keys], strict=True)))
        parent, *keys = np.array(entries, np.int64).reshape(-1, 1 + length).T
        size = len(parent)
    order = np.lexsort([*keys[::-1], parent])
    parent, keys = parent[order], [key[order] for key in keys]
    vals = rng.integers(0, 2, size).astype(float)
    above = Above(parent, parents, row[parent])
    try:
        buffers, position, count = kind.assemble(above, keys, extents, False, vals)
    except FormatError as error:
        assert "positions" in str(error) and max(extents) > 70
        return
    names = [f"level {k}" for k in range(length)]
    for k in range(length):
        assert len(buffers[k]) == len(kind.buffer_names(k > 0))
        kind.check_types(buffers[k], k > 0, extents[k], names[k])
    assert kind.check(buffers, parents, extents, names) == count == kind.positions(buffers, parents, extents)
    position = np.arange(size) if position is None else position
    assert position.dtype.kind == "i" and (not size or 0 <= position.min() <= position.max() < count)
    given = set(zip(parent.tolist(), *[k.tolist() for k in keys], position.tolist(), strict=True))
    if max(extents) > 70 and isinstance(kind, Banded):
        return
    stored = np.unique(parent)
    subset = rng.permutation(stored)
    for at in (None, stored, subset):
        known = Above(at, parents, row if at is None else row[at])
        owner, coordinates, where = kind.expand(buffers, known, extents)
        assert len(owner) == kind.count(buffers, known, extents)
        assert at is not None or where is not None or len(owner) == count
        slots = np.arange(len(owner)) if where is None else where
        owners = owner if at is None else at[owner]
        found = list(zip(owners.tolist(), *[c.tolist() for c in coordinates], slots.tolist(), strict=True))
        assert len(found) == len(set(found)) and given <= set(found)
        if not isinstance(kind, Dense | Banded | Diagonal):
            assert set(found) == given
        used = kind.used(buffers, known, extents)
        np.testing.assert_array_equal(np.unique(slots), np.arange(count) if used is None else np.sort(used))
    if kind.shared:
        for one, other in itertools.pairwise(range(size)):
            joined = parent[one] == parent[other] and keys[0][one] + 1 == keys[0][other] and vals[one] == vals[other]
            assert (position[one] == position[other]) == joined
    elif not kind.unique:
        assert count == size


def test_levels_that_define_nothing_say_so():
    for call in (
        lambda: Level().buffer_names(False),
        lambda: Level().buffer_types(),
        lambda: Level().positions((), 1, (2,)),
        lambda: Level().expand((), ROOT, (2,)),
        lambda: Level().assemble(ROOT, [], [], True, np.zeros(0)),
        lambda: Level().check((), 1, (2,), ("x",)),
    ):
        with pytest.raises(TypeError, match="Level"):
            call()
