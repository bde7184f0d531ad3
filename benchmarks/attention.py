"""A training step of the BigBird classifier of examples/bigbird.py beside the same network with dense masked attention in torch.

    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python -m benchmarks.attention [--lengths 512 1024 2048] [--batch 4] [--rounds 5]

Processor time per step on one thread, interleaved; float32, dropout 0.1, AdamW, the sizes of the example. torch computes attention by
`scaled_dot_product_attention` under the mask as a dense array, which is what it has on a processor.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

import sparsejax as sj
from benchmarks.training import in_turn
from examples import bigbird
from sparsejax import nn

Step = Callable[[], Any]


def ours(sizes: bigbird.Sizes, params: Any, ids: Any, labels: Any, mask: Any) -> Step:
    optimizer = nn.adamw(1e-3)
    step = bigbird.training_step(sizes, optimizer)
    held = [params, optimizer.init(params), sj.random.key(0)]
    data = sj.array(ids), sj.array(labels), mask

    def run() -> None:
        held[0], held[1], held[2], _ = step(*held, *data)

    return run


def torch_step(sizes: bigbird.Sizes, params: Any, ids: Any, labels: Any, mask: Any) -> Step:
    import torch
    from torch.nn import functional

    torch.set_num_threads(1)
    leaves: list[Any] = []

    def parameters(tree: Any) -> Any:
        if isinstance(tree, dict):
            return {name: parameters(part) for name, part in tree.items()}
        if isinstance(tree, list):
            return [parameters(part) for part in tree]
        leaves.append(torch.nn.Parameter(torch.tensor(np.asarray(tree))))
        return leaves[-1]

    p = parameters(params)
    optimizer = torch.optim.AdamW(leaves, 1e-3)
    words, target, allowed = torch.tensor(ids), torch.tensor(labels), torch.tensor(mask.todense() != 0)
    batch, length = words.shape

    def heads(x: Any) -> Any:
        return x.view(batch, length, sizes.heads, -1).transpose(1, 2)

    def normalised(norm: Any, x: Any) -> Any:
        return functional.layer_norm(x, (sizes.width,), norm["scale"], norm["shift"])

    def run() -> None:
        x = functional.embedding(words, p["words"]) + p["places"]
        for layer in p["layers"]:
            q, k, v = (heads(x @ layer[name]) for name in ("query", "key", "value"))
            seen = functional.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
            seen = seen.transpose(1, 2).reshape(batch, length, -1) @ layer["out"]
            x = normalised(layer["norm1"], x + functional.dropout(seen, 0.1))
            inner = functional.gelu(x @ layer["first"], approximate="tanh") @ layer["second"]
            x = normalised(layer["norm2"], x + functional.dropout(inner, 0.1))
        optimizer.zero_grad()
        functional.cross_entropy(x.mean(dim=1) @ p["head"], target).backward()
        optimizer.step()

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 1024, 2048])
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    sizes, rng = bigbird.Sizes(), np.random.default_rng(0)
    for length in options.lengths:
        mask = bigbird.block_mask(length, sizes.block)
        params = bigbird.init(sj.random.key(0), sizes, length)
        ids, labels = rng.integers(0, sizes.vocabulary, (options.batch, length)), rng.integers(0, 2, options.batch)
        steps = {
            name: make(sizes, params, ids, labels, mask) for name, make in (("sparsejax", ours), ("torch", torch_step))
        }
        first, second = in_turn(steps, options.rounds).values()
        print(
            f"{length} tokens, mask {100 * mask.nnz / length**2:.1f} %: sparsejax {1e3 * first:.0f} ms, dense attention in torch "
            f"{1e3 * second:.0f} ms per step of {options.batch} texts ({second / first:.2f} x)",
            flush=True,
        )


if __name__ == "__main__":
    main()
