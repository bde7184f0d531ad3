"""How kernels are planned for operands of which only types and sizes are known, compared with texts that a reader can check: loop order,
workspaces, conversions, chunks, and the statement with how its loops run."""

import pytest

from tests.golden import kernels


@pytest.mark.parametrize("name", kernels.PROGRAMS)
def test_golden(name):
    assert kernels.text(name) == kernels.file_of(name).read_text()


def test_every_text_has_a_program():
    assert {kernels.file_of(name) for name in kernels.PROGRAMS} == set(kernels.GOLDEN.iterdir())
