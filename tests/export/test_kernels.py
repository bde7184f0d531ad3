"""Plans and machine code in exported programs: nothing is planned or compiled where they are trusted, and what does not fit is refused."""

import random
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.export import LayoutError, deserialize, export
from sparsejax.jit.backend import compiler, records

S = sp.random_array((50, 40), density=0.2, format="csr", rng=0)
A, X = sj.array(S), np.random.default_rng(0).normal(size=(40, 3))


def program(A, X):
    """A loop, a sum of two sparse arrays, a product of two: what runs several kernels, and runs them in a body."""
    H = sj.lax.fori_loop(0, 2, lambda k, H: snp.maximum(A.T @ (A @ H), 0), X)
    return (A + A * 2) @ H, A.T @ A


@pytest.fixture(scope="module")
def data():
    n, m = "n", "m"
    types = sj.ShapeDtypeStruct((n, m), "float64", format="csr"), sj.ShapeDtypeStruct((m, 3), "float64")
    return export(sj.jit(program))(*types).with_kernels(A, X).serialize()


def test_another_process_compiles_nothing(data, tmp_path):
    (tmp_path / "program").write_bytes(data)
    sj.save_npz(tmp_path / "A.npz", A)
    np.save(tmp_path / "X.npy", X)
    text = """if True:
        import numpy as np, sparsejax as sj, sys
        from sparsejax.export import deserialize
        from sparsejax.jit.backend import compiler
        made = deserialize(open("program", "rb").read(), trusted=sys.argv[1] == "trusted")
        A, X = sj.load_npz("A.npz"), np.load("X.npy")
        y, G = made.call(A, X)
        np.save("y.npy", y.todense())
        print(compiler.compile_count(), "llvmlite" in sys.modules)
    """
    found = {}
    for how in ("trusted", "not"):
        done = subprocess.run(
            [sys.executable, "-c", text, how], check=True, cwd=tmp_path, capture_output=True, text=True
        )
        found[how] = done.stdout.split()
        np.testing.assert_allclose(np.load(tmp_path / "y.npy"), deserialize(data).call(A, X)[0].todense(), rtol=1e-12)
    assert found["trusted"] == ["0", "False"]
    assert int(found["not"][0]) > 0


def test_other_processors_and_versions_are_refused(data, monkeypatch):
    monkeypatch.setattr(records, "package", lambda: "others")
    with pytest.raises(LayoutError, match="with other sources or libraries"):
        deserialize(data, trusted=True)
    monkeypatch.setattr(records, "identity", lambda: "Linux | another processor")
    with pytest.raises(LayoutError, match=r"machine code for other processors: .*Here: Linux \\| another processor"):
        deserialize(data, trusted=True)
    before = compiler.compile_count()
    back = deserialize(data)
    assert len(back.processors) == 1 and compiler.compile_count() == before
    both = back.with_kernels(A, X)  # made here, as if this were another computer
    assert both.processors == (*back.processors, "Linux | another processor")
    assert deserialize(both.serialize()).processors == both.processors


def test_damage_is_refused(data):
    draws = random.Random(0)
    start = 20 + int.from_bytes(data[8:16], "little")
    for _ in range(20):
        bad = bytearray(data)
        bad[draws.randrange(start + 64, len(bad))] ^= 1 << draws.randrange(8)
        with pytest.raises(LayoutError, match="damaged"):
            deserialize(bad)


def test_kernels_for_more_data(data):
    once = deserialize(data)
    more = once.with_kernels(A[:9], X)
    (one,), (two,) = once._records.values(), more._records.values()
    assert set(one.known) < set(two.known)


def test_recording_leaves_nothing_behind():
    made = export(sj.jit(lambda A: A * 2))(A).with_kernels(A)
    assert not records.recording() and len(made.processors) == 1
    np.testing.assert_array_equal(made.call(A).todense(), S.toarray() * 2)
    with pytest.raises(TypeError, match="exported for arguments"):
        made.with_kernels(X)
