"""A sparse autoencoder of images: encoder 256 wide over sparse inputs, dense decoder, trained by Adam.

    python examples/sparse_autoencoder.py                                          scikit-learn's digits, 8 x 8
    python examples/sparse_autoencoder.py --data PATH/t10k-images-idx3-ubyte.gz    images in MNIST's format

Inputs are csr matrices: most pixels of a drawn digit are background. A training step is one jitted function. Inference is timed as in the
paper, conversion of the images to csr and the loss included, beside SciPy and, where it is installed, torch's sparse csr tensors. Exit code 1
if the losses differ by more than 1e-10 relative.

Model: Yan et al., "Scorch: A Library for Sparse Deep Learning", 2024, appendix E.3 and table 2: relu, sigmoid, mean squared error,
Adam 0.01, batches of 64, 10 epochs.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.special as special

import sparsejax as sj
from sparsejax import nn

HIDDEN, BATCH, RATE = 256, 64, 0.01
Params = dict[str, Any]


def digits() -> np.ndarray:
    """1,797 images of 64 pixels in [0, 1], a row each."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        sys.exit("this data set needs scikit-learn: pip install 'sparsejax[examples]', or pass --data PATH")
    return np.asarray(load_digits().data) / 16


def read_images(path: str) -> np.ndarray:
    """Images of an IDX file, as rows of pixels in [0, 1]."""
    with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
        raw = file.read()
    magic, count, rows, columns = np.frombuffer(raw, ">i4", 4)
    if magic != 0x803 or len(raw) != 16 + count * rows * columns:
        raise ValueError(f"{path} holds no images in IDX format")
    return np.frombuffer(raw, np.uint8, offset=16).reshape(count, rows * columns) / 255


def init(key: Any, inputs: int) -> Params:
    """Weights drawn uniformly as torch's linear layers draw them."""
    keys, parts = sj.random.split(key, 4), {}
    for k, (name, shape, fan) in enumerate(
        [
            ("W1", (inputs, HIDDEN), inputs),
            ("b1", (HIDDEN,), inputs),
            ("W2", (HIDDEN, inputs), HIDDEN),
            ("b2", (inputs,), HIDDEN),
        ]
    ):
        parts[name] = sj.random.uniform(keys[k], shape, minval=-(fan**-0.5), maxval=fan**-0.5)
    return parts


def loss(params: Params, X: Any, images: Any) -> Any:
    """The mean squared error of the reconstruction of images, which the encoder reads as a csr matrix `X`."""
    hidden = nn.relu(nn.linear(X, params["W1"], params["b1"]))
    return nn.mean_squared_error(nn.sigmoid(nn.linear(hidden, params["W2"], params["b2"])), images)


optimizer = nn.adam(RATE)


@sj.jit
def step(params: Params, state: Any, X: Any, images: Any) -> Any:
    """(params, state, X, images) -> (params, state, loss)"""
    value, grads = sj.value_and_grad(loss)(params, X, images)
    updates, state = optimizer.update(grads, state, params)
    return nn.apply_updates(params, updates), state, value


def train(images: np.ndarray, epochs: int, seed: int = 0, say: Callable[[str], Any] = print) -> Params:
    """Parameters after training on batches in random order; the last incomplete batch of an epoch is left out."""
    params = init(sj.random.key(seed), images.shape[1])
    state, rng = optimizer.init(params), np.random.default_rng(seed)
    X = sp.csr_array(images)
    for epoch in range(epochs):
        before, order, total = time.process_time(), rng.permutation(len(images)), []
        for k in range(0, len(images) - BATCH + 1, BATCH):
            batch = order[k : k + BATCH]
            params, state, value = step(params, state, sj.array(X[batch]), images[batch])
            total.append(float(value.todense()))
        spent = time.process_time() - before
        say(f"epoch {epoch + 1}: loss {statistics.mean(total):.5f}, {1e3 * spent / len(total):.2f} ms per batch")
    return params


# -------------------------------------------------------------------------------------------------------- inference


run = sj.jit(loss)


def contenders(params: Params) -> dict[str, Callable[[np.ndarray], float]]:
    """Functions of dense images: conversion to csr, forward pass and loss."""
    W1, b1, W2, b2 = (np.asarray(params[name]) for name in ("W1", "b1", "W2", "b2"))

    def scipy_loss(images: np.ndarray) -> float:
        hidden = np.maximum(sp.csr_array(images) @ W1 + b1, 0)
        return float(np.square(special.expit(hidden @ W2 + b2) - images).mean())

    found = {
        "sparsejax": lambda images: float(run(params, sj.array(images, format="csr"), images).todense()),
        "SciPy": scipy_loss,
    }
    if importlib.util.find_spec("torch"):
        import torch

        torch.set_num_threads(1)
        tensors = [torch.tensor(w) for w in (W1, b1, W2, b2)]

        def torch_loss(images: np.ndarray) -> float:
            dense = torch.from_numpy(images)
            hidden = torch.relu(torch.sparse.mm(dense.to_sparse_csr(), tensors[0]) + tensors[1])
            return float(torch.nn.functional.mse_loss(torch.sigmoid(hidden @ tensors[2] + tensors[3]), dense))

        found["torch"] = torch_loss
    return found


def compare(params: Params, images: np.ndarray, rounds: int) -> bool:
    """Prints losses and median processor times, interleaved; whether all losses agree."""
    functions = contenders(params)
    losses = {name: f(images) for name, f in functions.items()}
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, f in functions.items():
            before = time.process_time()
            f(images)
            times[name].append(time.process_time() - before)
    for name, value in losses.items():
        print(
            f"{name}: loss {value:.6f}, {1e3 * statistics.median(times[name]):.2f} ms for {len(images)} images, csr included"
        )
    return all(abs(value - losses["SciPy"]) <= 1e-10 * losses["SciPy"] for value in losses.values())


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="images in IDX format, compressed or not (default: scikit-learn's digits)")
    parser.add_argument("--epochs", type=int, default=10, help="training epochs (default 10)")
    parser.add_argument("--rounds", type=int, default=50, help="timed inferences (default 50)")
    parser.add_argument("--quick", action="store_true", help="512 images, 2 epochs, 3 timed inferences")
    options = parser.parse_args(arguments)
    try:
        images = read_images(options.data) if options.data else digits()
    except (OSError, ValueError) as error:
        parser.error(f"--data {options.data} cannot be read: {error}")
    epochs, rounds = (2, 3) if options.quick else (options.epochs, options.rounds)
    images = np.random.default_rng(0).permutation(images)[: 512 if options.quick else None]
    cut = len(images) * 4 // 5
    if cut < BATCH or epochs < 1 or rounds < 1:
        parser.error(f"at least {BATCH * 5 // 4} images, one epoch and one round are needed")
    print(
        f"{len(images)} images of {images.shape[1]} pixels, {100 * np.count_nonzero(images) / images.size:.0f} % not zero"
    )
    params = train(images[:cut], epochs)
    if not compare(params, np.ascontiguousarray(images[cut:]), rounds):
        print("the losses differ")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
