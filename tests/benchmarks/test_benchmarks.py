"""The benchmark's own parts: rows are kept and taken up again, tables compare with the best library, points lie under their roof."""

import json
from argparse import Namespace

import numpy as np
import pytest
import scipy.sparse as sp

from benchmarks import harness, native_walk, roofline, slopes, store, summary
from benchmarks.libraries import comparable, sparsejax_runs
from benchmarks.matrices import random_tensor, uniform
from benchmarks.operations import OPERATIONS, agree, baseline, operands


def row(operation="spmv", matrix="m", **seconds):
    return {
        "operation": operation,
        "matrix": matrix,
        "dtype": "f8",
        "threads": 1,
        "asked": list(seconds),
        "seconds": seconds,
        "faults": {},
        "cost": {"flops": 4e9, "bytes": 8e9},
    }


def test_rows_are_kept_and_measured_again_only_for_other_libraries(tmp_path):
    name = str(tmp_path / "rows.json")
    first = store.Store(name)
    first.add(row(scipy=2.0, sparsejax=1.0))
    first.add(row(matrix="other", scipy=2.0, sparsejax=1.0))
    again = store.Store(name)
    assert again.rows() == first.rows() and len(again.rows()) == 2
    key = "spmv", "m", "f8", 1
    assert again.known(key, ["scipy"]) and not again.known(key, ["scipy", "torch"])
    assert again.known((*key[:3], 2), []) is None
    again.add(row(scipy=2.0, sparsejax=1.0, torch=3.0))
    assert len(store.Store(name).rows()) == 2 and store.Store(name).known(key, ["torch"])
    assert [path.name for path in tmp_path.iterdir()] == ["rows.json"] and json.loads(
        (tmp_path / "rows.json").read_text()
    )


def test_a_run_that_was_stopped_is_taken_up_again(tmp_path, monkeypatch, capsys):
    options = Namespace(
        ops="spmv,rowsum",
        matrices="tiny",
        peers="",
        threads=1,
        dtype="f4",
        seconds=0.001,
        quick=True,
        json=str(tmp_path / "rows.json"),
        again=False,
    )
    assert harness.run(options) == 0
    printed = capsys.readouterr().out
    assert "| rowsum | f4 | 1 | 1 |" in printed
    made = store.Store(options.json).rows()
    assert {(r["operation"], r["dtype"]) for r in made} == {("spmv", "f4"), ("rowsum", "f4")}
    assert all(set(r["seconds"]) == {"scipy", "sparsejax"} and not r["faults"] and r["cost"]["flops"] for r in made)
    monkeypatch.setattr(harness, "measured_row", lambda *args: pytest.fail("measured again"))
    assert harness.run(options) == 0


def test_the_best_library_is_compared_with_row_by_row():
    rows = [row(scipy=4.0, sparsejax=1.0, torch=2.0, numba=0.5), row(matrix="n", scipy=2.0, sparsejax=1.0, torch=9.0)]
    assert summary.ratios(rows[0]) == {"scipy": 4.0, "library": 2.0, "reference": 0.5}
    assert summary.ratios(rows[1]) == {"scipy": 2.0, "library": 2.0}
    assert summary.ratios(row(scipy=1.0)) == {}
    text = summary.tables([*rows, row(matrix="slow", scipy=1.0, sparsejax=2.0)])
    assert "| spmv | f8 | 1 | 3 | 1.59 | 1.26 | 0.50 | 0.50 | 1.15 |" in text
    assert "| spmv | slow | f8 | 1 | 2000 | scipy | 0.50 |  |" in text and "| spmv | n |" not in text
    assert "| spmv | n |" in summary.tables(rows, every=True)
    assert (
        summary.chosen(rows, "spmv") == rows
        and not summary.chosen(rows, "spmm")
        and not summary.chosen(rows, threads=2)
    )


def test_places_under_the_roof():
    roof = 1e10, 1e11
    assert roofline.place(row(sparsejax=1.0), roof) == (0.5, 4e9, pytest.approx(0.8))
    assert roofline.place(row(scipy=1.0), roof) is None


def test_slopes():
    assert slopes.slope([1, 10, 100], [3.0, 300.0, 30_000.0]) == pytest.approx(2)
    assert set(slopes.OPERATIONS) <= {o.name for o in OPERATIONS}


@pytest.mark.parametrize("name", ["softmax", "sddmm_sum32", "spmm_csc32", "bspmm32", "nd_mul", "nd_sum"])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_operations_compute_what_the_baseline_does(name, dtype):
    operation = next(o for o in OPERATIONS if o.name == name)
    small = random_tensor((9, 9, 9), 200, 1.0) if operation.kind == "tensor" else uniform(40, 40, 200)
    d = operands(operation, small, dtype)
    expected, made = baseline(operation.stem, d)(), sparsejax_runs(operation.stem, d)()
    assert expected.dtype == np.dtype(dtype)
    assert agree(operation, d, comparable(made), comparable(expected))


@pytest.mark.parametrize(("given", "expected"), [("i8", "f4"), ("f8", "f4"), ("c16", "c8")])
def test_operands_have_the_precision_asked_for(given, expected):
    matrix = uniform(40, 40, 200).astype(given)
    for operation in OPERATIONS:
        if operation.kind not in ("tensor", "pattern"):
            made = operands(operation, matrix, "f4")
            assert made["A"].dtype == np.dtype(expected)
            assert all(value.dtype == np.float32 for key, value in made.items() if key not in "AB")


@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_results_that_differ_are_found_in_both_precisions(dtype):
    operation = next(o for o in OPERATIONS if o.name == "spmm32")
    d = operands(operation, uniform(40, 40, 200), dtype)
    expected = baseline("spmm", d)()
    assert expected.dtype == np.dtype(dtype) and agree(operation, d, expected, expected)
    wrong = expected.copy()
    wrong[3, 5] += 1e-2
    assert not agree(operation, d, wrong, expected)


def test_walks_in_c_are_the_product(tmp_path, capsys):
    """Rows without entries among them, and a last row whose fetches would go past the end."""
    library = native_walk.compiled(tmp_path)
    if library is None:
        assert "skipped" in capsys.readouterr().out
        pytest.skip("no C compiler")
    rng = np.random.default_rng(0)
    dense = np.where(rng.random((30, 40)) < 0.2, rng.integers(1, 9, (30, 40)), 0).astype("f4")
    dense[[3, 17]] = 0
    made, out = native_walk.aligned((40, native_walk.COLUMNS)), native_walk.aligned((30, native_walk.COLUMNS))
    made[:] = rng.integers(-8, 8, made.shape)
    for name, run in native_walk.walks_of(library, sp.csr_array(dense), made, out).items():
        out[:] = np.nan
        np.testing.assert_array_equal(run(), dense @ made, err_msg=name)
