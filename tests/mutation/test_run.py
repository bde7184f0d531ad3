"""The lists of the mutation run name files that are there."""

from tests.mutation import run


def test_the_lists_name_files():
    for tests in (run.TESTS, *run.NEAR.values()):
        assert all((run.TREE / "tests" / file).is_file() for file in tests), tests
    for name in run.NEAR:
        assert (run.ROOT / "jit" / name).with_suffix(".py").is_file(), name
