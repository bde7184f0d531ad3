"""Does an installed sparsejax work? With nothing but what it depends on: python smoke.py --installed, outside of the
repository.

Compiles, differentiates, solves, saves and loads, and compares with NumPy and SciPy. Prints the versions that it ran with.
"""

import importlib.metadata
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp


def main() -> None:
    rng = np.random.default_rng(0)
    dense = np.where(rng.random((60, 60)) < 0.1, rng.random((60, 60)), 0.0)
    theirs = sp.csr_matrix(dense)
    A = sj.array(theirs)
    H, W = rng.random((60, 8)), rng.random((8, 3))

    @sj.jit
    def layer(A, H, W):
        return snp.maximum(A @ (H @ W) - 1, 0)

    np.testing.assert_allclose(layer(A, H, W).todense(), np.maximum(dense @ H @ W - 1, 0))
    product = sj.jit(lambda A: (A + A.T) @ A)(A)
    np.testing.assert_allclose(product.todense(), (dense + dense.T) @ dense)
    gradient = sj.grad(lambda A: (A * A).sum())(A)
    np.testing.assert_allclose(gradient.todense(), 2 * dense)
    sampled = sj.einsum("ij,ik,jk->ij", A, H, H)
    np.testing.assert_allclose(sampled.todense(), dense * (H @ H.T))
    batched = sj.vmap(lambda x: A @ x)(H.T)
    np.testing.assert_allclose(batched.todense(), (dense @ H).T)
    for name in ("csc", "coo", "dcsr", "ell", "groupcoo:2", "bitmap", "hash", "bsr:2x3"):
        np.testing.assert_array_equal(A.asformat(name).todense(), dense)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "a.npz")
        sj.save_npz(path, A)
        np.testing.assert_array_equal(sp.load_npz(path).toarray(), dense)
        np.testing.assert_array_equal(sj.load_npz(path).todense(), dense)
        sj.io.mmwrite(os.path.join(folder, "a.mtx.gz"), A)
        np.testing.assert_array_equal(sj.io.mmread(os.path.join(folder, "a.mtx.gz")).todense(), dense)
    assert "csr" in repr(A) and "<svg" in A._repr_html_()
    assert (Path(sj.__file__).parent / "py.typed").exists()
    if "--installed" in sys.argv:
        assert importlib.metadata.version("sparsejax") == sj.__version__
    versions = {"sparsejax": sj.__version__}
    versions |= {name: importlib.metadata.version(name) for name in ("numpy", "scipy", "llvmlite")}
    print(f"sparsejax works: Python {sys.version.split()[0]}, {', '.join(f'{k} {v}' for k, v in versions.items())}")


if __name__ == "__main__":
    main()
