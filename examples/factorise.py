"""Low-rank models of sparse tensors and matrices, fitted by alternating least squares and by gradient descent.

    python examples/factorise.py                                    handwritten digits: a tensor (images, rows, columns)
    python examples/factorise.py --tensor PATH/kinship.tns.gz       a tensor in FROSTT's text format
    python examples/factorise.py --matrix PATH/reuters_counts.npz   a csr matrix: data, indices, indptr, shape
    python examples/factorise.py --plot losses.png                  the loss curves as a picture (needs matplotlib)

    CP by least squares         X[i,j,k] ~ sum_r A[i,r] B[j,r] C[k,r]   each factor in turn, by MTTKRP
    CP by gradient descent      the same loss, minimised by Adam: the gradients are MTTKRPs too
    completion of a matrix      R[i,j] ~ sum_r U[i,r] V[j,r]            where R stores entries only, by SDDMM

Both losses of the tensor are over all of its entries, stored or not, and cost no more than the stored ones:
|X - M|^2 = |X|^2 - 2 <X, M> + |M|^2, where |M|^2 needs the Gram matrices of the factors only.

Source: Kolda and Bader, "Tensor Decompositions and Applications", SIAM Review, 2009, section 3.4.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import nn

Factors = tuple[Any, Any, Any]


def read_tensor(path: str) -> Any:
    """A tensor in FROSTT's format, compressed or not: lines of coordinates, counted from 1, and a value."""
    rows = np.loadtxt(path, comments="#", ndmin=2)
    coords = rows[:, :-1].astype(np.int64).T - 1
    if len(coords) != 3:
        raise ValueError(f"{path} has {len(coords)} dimensions, not 3")
    return sj.array((rows[:, -1], coords), shape=tuple(int(n) for n in coords.max(axis=1) + 1), format="csf")


def read_matrix(path: str) -> Any:
    """A csr matrix of an npz file, its values as log(1 + x)."""
    with np.load(path, allow_pickle=False) as parts:
        values = np.log1p(parts["data"].astype(np.float64))
        shape = tuple(int(n) for n in parts["shape"])
        return sj.array(sp.csr_array((values, parts["indices"], parts["indptr"]), shape=shape))


def digits() -> np.ndarray:
    """1,797 images of 8 x 8 pixels."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        sys.exit("this data set needs scikit-learn: pip install 'sparsejax[examples]', or pass --tensor and --matrix")
    return np.asarray(load_digits().images) / 16


# ---------------------------------------------------------------------------------------------------------- tensors


PRODUCTS = ("ijk,jr,kr->ir", "ijk,ir,kr->jr", "ijk,ir,jr->kr")


@functools.partial(sj.jit, static_argnums=2)
def mttkrp(X: Any, factors: Factors, mode: int) -> Any:
    """The tensor, matricised along `mode`, times the Khatri-Rao product of the other factors."""
    return sj.einsum(PRODUCTS[mode], X, *(f for k, f in enumerate(factors) if k != mode))


@sj.jit
def relative_error(X: Any, factors: Factors) -> Any:
    """|X - M| / |X| for the model M of the factors."""
    size = snp.square(X).sum()
    return snp.sqrt(snp.maximum(squared_error(X, factors), 0) / size)


def squared_error(X: Any, factors: Factors) -> Any:
    """|X - M|^2, over all entries."""
    A, B, C = factors
    grams = (A.T @ A) * (B.T @ B) * (C.T @ C)
    return snp.square(X).sum() - 2 * sj.einsum("ijk,ir,jr,kr->", X, A, B, C) + grams.sum()


def start(shape: tuple[int, ...], rank: int, seed: int) -> tuple[Any, ...]:
    """Random factors, one per dimension."""
    keys = sj.random.split(sj.random.key(seed), len(shape))
    return tuple(sj.random.uniform(key, (n, rank), maxval=0.5) for key, n in zip(keys, shape, strict=True))


def least_squares(X: Any, rank: int, sweeps: int, seed: int = 0) -> tuple[list[Any], list[float]]:
    """Factors by alternating least squares, and the relative error after every sweep."""
    factors, losses = list(start(X.shape, rank, seed)), []
    for _ in range(sweeps):
        for mode in range(3):
            grams = [f.T @ f for k, f in enumerate(map(np.asarray, factors)) if k != mode]
            product = np.asarray(mttkrp(X, tuple(factors), mode))
            factors[mode] = sj.array(np.linalg.lstsq(grams[0] * grams[1], product.T)[0].T)
        losses.append(float(relative_error(X, tuple(factors)).todense()))
    return factors, losses


def descent(loss: Callable[..., Any], params: Any, rate: float) -> Callable[..., Any]:
    """A jitted step of Adam: (params, state, *data) -> (params, state, loss)."""
    optimizer = nn.adam(rate)

    @sj.jit
    def step(params: Any, state: Any, *data: Any) -> Any:
        value, grads = sj.value_and_grad(loss)(params, *data)
        updates, state = optimizer.update(grads, state, params)
        return nn.apply_updates(params, updates), state, value

    state = optimizer.init(params)

    def run(*data: Any) -> Any:
        nonlocal params, state
        params, state, value = step(params, state, *data)
        return params, value

    return run


def gradient_descent(X: Any, rank: int, steps: int, rate: float = 0.1, seed: int = 0) -> tuple[Any, list[float]]:
    """Factors by Adam on the squared error, and the relative error after every step."""
    step = descent(lambda factors, X: squared_error(X, factors) / X.size, start(X.shape, rank, seed), rate)
    losses = []
    for _ in range(steps):
        factors, _ = step(X)
        losses.append(float(relative_error(X, factors).todense()))
    return factors, losses


# --------------------------------------------------------------------------------------------------------- matrices


def completion_loss(params: Any, R: Any) -> Any:
    """The mean squared error over the stored entries of R, by a sampled product (SDDMM)."""
    U, V = params
    model = sj.einsum("ij,ir,jr->ij", sj.lax.pattern(R), U, V)
    return snp.square(R - model).sum() / sj.lax.pattern(R).sum() + 1e-5 * (snp.square(U).sum() + snp.square(V).sum())


def completion(R: Any, rank: int, steps: int, rate: float = 0.02, seed: int = 0) -> tuple[Any, list[float]]:
    """Factors U and V by Adam, and the loss at every step."""
    step = descent(completion_loss, start(R.shape, rank, seed), rate)
    losses = []
    for _ in range(steps):
        params, value = step(R)
        losses.append(float(value.todense()))
    return params, losses


def plot(path: str, curves: dict[str, list[float]]) -> None:
    """Loss curves, one panel each, as a picture."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        sys.exit("--plot needs matplotlib: pip install 'sparsejax[examples]'")
    figure = Figure(figsize=(4 * len(curves), 3), layout="constrained")
    for axes, (name, losses) in zip(np.atleast_1d(figure.subplots(1, len(curves))), curves.items(), strict=True):
        axes.plot(range(1, len(losses) + 1), losses)
        axes.set(title=name, xlabel="sweep" if "squares" in name else "step", ylabel="loss")
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tensor", help="a .tns or .tns.gz file of three dimensions (default: digits)")
    parser.add_argument("--matrix", help="a csr matrix as npz (default: digits)")
    parser.add_argument("--rank", type=int, default=10, help="of all models (default 10)")
    parser.add_argument("--plot", metavar="FILE", help="save the loss curves as a picture")
    parser.add_argument("--quick", action="store_true", help="a tenth of the sweeps and steps")
    options = parser.parse_args(arguments)
    if options.plot and not Path(options.plot).resolve().parent.is_dir():
        parser.error(f"--plot {options.plot}: no such folder")
    try:
        X = read_tensor(options.tensor) if options.tensor else sj.array(digits(), format="csf")
        R = read_matrix(options.matrix) if options.matrix else sj.array(digits().reshape(-1, 64), format="csr")
    except (OSError, KeyError, ValueError) as error:
        parser.error(f"the data cannot be read: {error}")
    print(
        f"Tensor {' x '.join(map(str, X.shape))}, {X.nnz} entries; matrix {R.shape[0]} x {R.shape[1]}, {R.nnz} entries"
    )
    less = 10 if options.quick else 1
    curves = {}
    for name, fit in (
        ("CP by least squares", lambda: least_squares(X, options.rank, 50 // less)),
        ("CP by gradient descent", lambda: gradient_descent(X, options.rank, 500 // less)),
        ("completion of a matrix", lambda: completion(R, options.rank, 500 // less)),
    ):
        before = time.process_time()
        curves[name] = fit()[1]
        each = 1e3 * (time.process_time() - before) / len(curves[name])
        print(
            f"{name}: loss {curves[name][0]:.4f} -> {curves[name][-1]:.4f}, {each:.2f} ms each of {len(curves[name])} (compilation included)"
        )
    if options.plot:
        plot(options.plot, curves)
        print(f"loss curves: {options.plot}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
