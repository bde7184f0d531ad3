"""The formats of results, and the reasons that are given for them, compared with a table that a reader can check."""

from tests.ir import formats


def test_golden():
    assert [*formats.lines()] == formats.GOLDEN.read_text().splitlines()
