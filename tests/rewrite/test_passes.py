"""Every rewrite on a program for which it does something: the statement before and after, compared with a text that a reader can check."""

import pytest

from sparsejax.alternatives import PASSES
from sparsejax.jit import pipeline
from tests.rewrite import programs


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_golden(name):
    assert programs.text(name) == programs.file_of(name).read_text()


def test_every_pass_has_a_program():
    assert {name.partition(" ")[0] for name in programs.PROGRAMS} == {
        each.name for each in pipeline.STATEMENT_PASSES
    } & PASSES.keys()
