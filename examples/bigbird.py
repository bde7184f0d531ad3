"""A BigBird classifier of long texts: transformer layers whose attention is block-sparse.

    python examples/bigbird.py --data PATH/movie_reviews.jsonl.gz       reviews of films: {"text": ..., "label": 0 or 1} in each line
    python examples/bigbird.py                                          texts of two made-up vocabularies
    python examples/bigbird.py --memory                                 peak memory of a training step for 1k to 16k tokens

Tokens are hashes of words. A block of 16 tokens attends to 2 global, 2 random and 2 neighbouring blocks besides itself, and the global blocks to
all: the mask is an array in format bsr:16x16, shared by all layers, heads and texts. A training step is one jitted function. Before training,
sparse attention is compared with dense attention under the same mask: exit code 1 if they differ by more than 1e-10.

Model: Zaheer et al., "Big Bird: Transformers for Longer Sequences", 2020, with the sizes of table 3 of Yan et al., "Scorch: A Library for
Sparse Deep Learning", 2024: embedding 128, 4 heads, 2 layers, intermediate 256, gelu, AdamW 0.001.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import statistics
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import nn

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

Params = Any


@dataclass(frozen=True)
class Sizes:
    """What the paper's table 3 lists."""

    width: int = 128
    heads: int = 4
    layers: int = 2
    inner: int = 256
    vocabulary: int = 8192
    classes: int = 2
    block: int = 16


# --------------------------------------------------------------------------------------------------------- the data


def tokens(text: str, length: int, vocabulary: int) -> np.ndarray:
    """Hashes of the first words; -1, which embeds as zeros, where the text has ended."""
    found = [zlib.crc32(word.encode()) % vocabulary for word in text.split()[:length]]
    return np.array(found + [-1] * (length - len(found)), np.int64)


def read_texts(path: str) -> tuple[list[str], np.ndarray]:
    """Texts and labels of a file of JSON lines."""
    with gzip.open(path, "rt") if path.endswith(".gz") else open(path) as file:
        rows = [json.loads(line) for line in file]
    return [row["text"] for row in rows], np.array([row["label"] for row in rows])


def made_up(count: int, length: int) -> tuple[list[str], np.ndarray]:
    """Texts of which a tenth of the words tells the label."""
    rng, texts = np.random.default_rng(0), []
    labels = rng.integers(0, 2, count)
    for label in labels:
        words = rng.integers(0, 500, length).astype(str)
        telling = rng.random(length) < 0.1
        words[telling] = np.char.add(f"label{label}_", rng.integers(0, 20, telling.sum()).astype(str))
        texts.append(" ".join(words))
    return texts, labels


def block_mask(length: int, block: int, seed: int = 0) -> Any:
    """Which tokens attend to which, as blocks: 2 global, 2 random, and the neighbours on both sides."""
    if length % block:
        raise ValueError(f"length={length} must be a multiple of the block size {block}")
    count, rng = length // block, np.random.default_rng(seed)
    rows, columns = [], []
    for i in range(count):
        near = [j for j in (i - 1, i, i + 1) if 0 <= j < count]
        chosen = np.arange(count) if i < 2 else np.unique([0, 1, *near, *rng.integers(0, count, 2)])
        rows += [i] * len(chosen)
        columns += list(chosen)
    order = np.lexsort((columns, rows))
    blocks = np.ones((len(rows), block, block), np.float32)
    indptr = np.searchsorted(np.array(rows)[order], np.arange(count + 1))
    return sj.array(sp.bsr_array((blocks, np.array(columns)[order], indptr), shape=(length, length)))


# -------------------------------------------------------------------------------------------------------- the model


def init(key: Any, sizes: Sizes, length: int) -> Params:
    """Random parameters of dtype float32."""
    made = iter(sj.random.split(key, 3 + 6 * sizes.layers))

    def matrix(*shape: int, scale: float | None = None) -> Any:
        return sj.random.normal(next(made), shape, np.float32) * (shape[0] ** -0.5 if scale is None else scale)

    def norm() -> Params:
        return {"scale": np.ones(sizes.width, np.float32), "shift": np.zeros(sizes.width, np.float32)}

    def layer() -> Params:
        parts = {name: matrix(sizes.width, sizes.width) for name in ("query", "key", "value", "out")}
        first, second = matrix(sizes.width, sizes.inner), matrix(sizes.inner, sizes.width)
        return {**parts, "first": first, "second": second, "norm1": norm(), "norm2": norm()}

    return {
        "words": matrix(sizes.vocabulary, sizes.width, scale=0.1),
        "places": matrix(length, sizes.width, scale=0.1),
        "head": matrix(sizes.width, sizes.classes),
        "layers": [layer() for _ in range(sizes.layers)],
    }


def normalised(p: Params, x: Any) -> Any:
    """Layer normalisation along the last axis."""
    gap = x - x.mean(axis=-1, keepdims=True)
    return gap / snp.sqrt(snp.square(gap).mean(axis=-1, keepdims=True) + 1e-5) * p["scale"] + p["shift"]


def split_heads(x: Any, heads: int) -> Any:
    """(texts, tokens, width) -> (texts, heads, tokens, width / heads)"""
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def attention(p: Params, x: Any, mask: Any, heads: int) -> Any:
    """Attention of every token to those that the mask names."""
    q, k, v = (split_heads(x @ p[name], heads) for name in ("query", "key", "value"))
    return nn.dot_product_attention(q, k, v, mask).transpose(0, 2, 1, 3).reshape(*x.shape) @ p["out"]


def logits(params: Params, ids: Any, mask: Any, heads: int, key: Any = None, rate: float = 0.1) -> Any:
    """A row of logits for every text: (texts, tokens) -> (texts, classes). With dropout where there is a key."""
    keys = None if key is None else iter(sj.random.split(key, 2 * len(params["layers"])))

    def dropped(x: Any) -> Any:
        return x if keys is None else nn.dropout(next(keys), x, rate)

    x = nn.embed(params["words"], ids) + params["places"]
    for p in params["layers"]:
        x = normalised(p["norm1"], x + dropped(attention(p, x, mask, heads)))
        x = normalised(p["norm2"], x + dropped(nn.gelu(x @ p["first"]) @ p["second"]))
    present = snp.asarray(ids >= 0).astype(np.float32)
    return sj.einsum("btd,bt->bd", x, present / present.sum(axis=1, keepdims=True)) @ params["head"]


def training_step(sizes: Sizes, optimizer: nn.Optimizer) -> Callable[..., Any]:
    """(params, state, key, ids, labels, mask) -> (params, state, key, loss), as one jitted function."""

    def loss(params: Params, key: Any, ids: Any, labels: Any, mask: Any) -> Any:
        made = logits(params, ids, mask, sizes.heads, key)
        return nn.softmax_cross_entropy_with_integer_labels(made, labels).mean()

    @sj.jit
    def step(params: Params, state: Any, key: Any, ids: Any, labels: Any, mask: Any) -> Any:
        key, use = sj.random.split(key)
        value, grads = sj.value_and_grad(loss)(params, use, ids, labels, mask)
        updates, state = optimizer.update(grads, state, params)
        return nn.apply_updates(params, updates), state, key, value

    return step


# ---------------------------------------------------------------------------------------------------------- checks


def dense_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Attention in NumPy under a dense mask."""
    scores = np.where(mask != 0, q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1]), -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True) @ v)


def attention_gap(length: int, sizes: Sizes) -> float:
    """The largest difference between sparse and dense attention of random operands."""
    q, k, v = np.random.default_rng(1).normal(size=(3, 2, sizes.heads, length, sizes.width // sizes.heads))
    mask = block_mask(length, sizes.block)
    made = sj.jit(nn.dot_product_attention)(q, k, v, mask).todense()
    return float(np.abs(made - dense_attention(q, k, v, mask.todense())).max())


def peak_memory(length: int, sizes: Sizes) -> tuple[float, int]:
    """MiB that the process has held at most after a training step on one text, and the entries of the mask."""
    mask, key = block_mask(length, sizes.block), sj.random.key(0)
    optimizer = nn.adamw(1e-3)
    params = init(key, sizes, length)
    ids, labels = np.arange(length)[None] % sizes.vocabulary, np.zeros(1, np.int64)
    state, step = optimizer.init(params), training_step(sizes, optimizer)
    step(params, state, key, ids, labels, mask)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB, on macOS bytes
    return most / (1 << 20 if sys.platform == "darwin" else 1 << 10), mask.nnz


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="texts as JSON lines, compressed or not (default: made up)")
    parser.add_argument("--length", type=int, default=512, help="tokens of a text, a multiple of 16 (default 512)")
    parser.add_argument("--batch", type=int, default=16, help="texts per training step (default 16; the paper: 64)")
    parser.add_argument("--epochs", type=int, default=5, help="training epochs (default 5)")
    parser.add_argument("--texts", type=int, help="use the first ones only")
    parser.add_argument("--memory", action="store_true", help="measure memory instead of training")
    parser.add_argument("--quick", action="store_true", help="small layers, 48 short texts, 2 epochs")
    options = parser.parse_args(arguments)
    sizes = Sizes(16, 2, 1, 32, 512) if options.quick else Sizes()
    length, batch, epochs = (128, 8, 2) if options.quick else (options.length, options.batch, options.epochs)
    if options.memory:
        if resource is None:
            parser.error("--memory needs Python's module resource, which this system lacks")
        start = peak_memory(2 * sizes.block, sizes)[0]  # the interpreter, the compiler, the vocabulary
        for n in (64,) if options.quick else (1024, 2048, 4096, 8192, 16384):
            peak, entries = peak_memory(n, sizes)
            peak -= start
            print(f"{n} tokens: mask of {entries} entries, {peak:.1f} MiB, {1024 * peak / n:.2f} KiB per token")
        return 0
    if length < 2 * sizes.block or length % sizes.block:
        parser.error(f"--length {length} must be a multiple of {sizes.block}, at least {2 * sizes.block}")
    try:
        texts, labels = read_texts(options.data) if options.data else made_up(200, length)
    except (OSError, KeyError, ValueError) as error:
        parser.error(f"--data {options.data} cannot be read: {error}")
    order = np.random.default_rng(0).permutation(len(texts))[: 48 if options.quick else options.texts]
    ids, labels = np.stack([tokens(texts[k], length, sizes.vocabulary) for k in order]), labels[order]
    cut = len(ids) * 4 // 5 // batch * batch
    if not cut:
        parser.error(f"{len(ids)} texts are too few for batches of {batch}")

    gap = attention_gap(length, sizes)
    mask = block_mask(length, sizes.block)
    print(
        f"sparse and dense attention differ by {gap:.1e}; the mask stores {100 * mask.nnz / length**2:.1f} % of {length} x {length}"
    )
    if gap > 1e-10:
        return 1
    key, optimizer = sj.random.key(0), nn.adamw(1e-3)
    params = init(key, sizes, length)
    state, step = optimizer.init(params), training_step(sizes, optimizer)
    predict = sj.jit(lambda params, ids, mask: logits(params, ids, mask, sizes.heads))
    for epoch in range(epochs):
        losses, times = [], []
        for k in np.random.default_rng(epoch).permutation(cut).reshape(-1, batch):
            before = time.process_time()
            params, state, key, value = step(params, state, key, ids[k], labels[k], mask)
            times.append(time.process_time() - before)
            losses.append(float(value.todense()))
        rest = [
            predict(params, ids[k : k + batch], mask).todense().argmax(1) == labels[k : k + batch]
            for k in range(cut, len(ids), batch)
        ]
        print(
            f"epoch {epoch + 1}: loss {statistics.mean(losses):.4f}, accuracy on other texts {100 * np.concatenate(rest).mean():.1f} %, "
            f"{1e3 * statistics.median(times):.0f} ms per step of {batch} texts"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
