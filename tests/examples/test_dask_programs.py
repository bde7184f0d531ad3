"""The programs on Dask, small: they check their results themselves."""

import importlib

import pytest

pytest.importorskip("distributed", reason="distributed is not installed: pip install 'sparsejax[dask]'")


@pytest.mark.rotating(4)
@pytest.mark.parametrize("name", ["dask_atlas", "dask_pagerank"])
def test_a_small_run(name, capsys, tmp_path):
    program = importlib.import_module(f"examples.{name}")
    assert program.main(["--quick", "--workers", "1", "--folder", str(tmp_path / "shards")]) == 0
    told = capsys.readouterr().out
    assert "dashboard: http" in told and "Sharded(" in told
    if name == "dask_atlas":
        found, exact = (float(line.split("variance ")[1]) for line in told.splitlines() if "variance " in line)
        assert 0.95 * exact < found < 1.0001 * exact  # of six steps of the iteration
