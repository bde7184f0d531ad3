"""Formats as values, and the level protocol: what a level assembles, it expands again, and finds sound."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsejax.errors import FormatError
from sparsejax.formats import Compressed, Coordinate, Dense, Format, Level
from tests.formats import strategies


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_text_round_trip_and_value_equality(data):
    form = data.draw(strategies.formats(data.draw(st.integers(0, 6))))
    again = Format.parse(str(form), form.ndim)
    assert again == form and hash(again) == hash(form) and again is not form
    assert form != Format((*form.levels, Dense()))
    axes = data.draw(st.permutations(range(form.ndim)))
    back = [axes.index(d) for d in range(form.ndim)]
    assert form.transposed(axes).transposed(back) == form
    covered = [k for first, stop in form.runs for k in range(first, stop)]
    assert covered == list(range(form.ndim))


def test_names():
    assert Format((Dense, Compressed), order=(1, 0)) == Format.parse("csc", 2)
    assert str(Format((Compressed,) * 3)) == "csf" and str(Format(())) == "dense"
    assert str(Format((Dense, Compressed, Dense), (0, 2, 1))) == "(d,c,d)@(0,2,1)"
    assert Format.parse(" CSR ", 2) == Format.parse("(d,c)", 2)
    assert Format.parse("csr", 2) != "csr"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Format((Dense, Dense), (0, 0)), "permutation"),
        (lambda: Format((Dense,), (0, 1)), "permutation"),
        (lambda: Format((Dense, Dense), (0.0, 1.5)), "dimension number"),
        (lambda: Format((Compressed(unique=False), Dense)), "only the last"),
        (lambda: Format((int,)), "must be a level"),
        (lambda: Format("dc"), "must be a level"),
        (lambda: Format.parse(5, 2), "must be a name"),
        (lambda: Format.parse(Format((Dense,)), 2), "1 levels"),
        (lambda: Format.parse("(d,c", 3), "2 levels"),
    ],
)
def test_combinations_that_make_no_sense(make, message):
    with pytest.raises(FormatError, match=message):
        make()


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_levels_expand_what_they_assemble(data):
    kind, length = data.draw(st.sampled_from([(Dense(), 1), (Compressed(), 1), (Coordinate(), 1), (Coordinate(), 3)]))
    parents, size = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 12))
    extents = [data.draw(st.integers(1, 4)) for _ in range(length)]
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    parent = rng.integers(0, parents, size)
    keys = [rng.integers(0, n, size) for n in extents]
    order = np.lexsort([*keys[::-1], parent])
    parent, keys = parent[order], [key[order] for key in keys]
    buffers, position, count = kind.assemble(parent, parents, keys, extents, distinct=False)
    assert kind.check(buffers, parents, extents, [f"level {k}" for k in range(length)]) == count
    assert [len(b) for b in buffers] == [len(kind.buffer_names(k > 0)) for k in range(length)]
    above, coordinates = kind.expand(buffers, parents, extents)
    assert len(above) == count
    np.testing.assert_array_equal(above[position], parent)
    for found, key in zip(coordinates, keys, strict=True):
        np.testing.assert_array_equal(found[position], key)
    assert kind.full or count == len(set(zip(parent.tolist(), *[k.tolist() for k in keys], strict=True)))


def test_levels_that_define_nothing_say_so():
    for call in (
        lambda: Level().buffer_names(False),
        lambda: Level().expand((), 1, (2,)),
        lambda: Level().assemble(np.zeros(0), 1, [], [], True),
        lambda: Level().check((), 1, (2,), ("x",)),
    ):
        with pytest.raises(TypeError, match="Level"):
            call()
