"""Pictures of the gallery: each is drawn from what the example itself computes, on data small enough for a second or two."""

import numpy as np
import scipy.sparse as sp
from matplotlib.figure import Figure

import sparsejax as sj
import sparsejax.numpy as snp

BLUE, ORANGE = "#0b7fab", "#e08e2b"


def bigbird(axes, example):
    mask = example.block_mask(256, 16)
    axes.imshow(mask.todense() != 0, cmap="Blues", interpolation="nearest", vmin=0, vmax=1.4)
    axes.set(xlabel="token", ylabel="token attends to", title="Mask of attention, 256 tokens")


def centred_pca(axes, example):
    A = example.counts(1500, 300, 0.2)
    scores, _ = example.ours(A, 3)
    kinds = np.random.default_rng(0).integers(0, 5, 1500)  # as `counts` draws them
    axes.scatter(scores[:, -1], scores[:, -2], c=kinds, cmap="tab10", s=5)
    axes.set(xlabel="first component", ylabel="second", title="Cells by kind")


def crossvalidation(axes, example):
    rng = np.random.default_rng(0)
    matrix, topics = example.documents(300, 120, rng)
    X, weights = sj.array(matrix), example.expected(matrix, topics, 40)
    for topic, color in ((0, BLUE), (1, ORANGE)):
        axes.hist((X @ weights).todense()[topics == topic], bins=30, color=color, alpha=0.7, label=f"topic {topic}")
    axes.legend()
    axes.set(xlabel="score", ylabel="documents", title="Scores of 300 documents")


def dask_atlas(axes, example):
    import sparsejax.dask as sd

    A, _ = example.atlas(2000, 400, 4, 40)
    A = sd.shard(sp.csr_array(A[np.argsort(np.diff(A.indptr))]), rows=6)
    for k, (a, b) in enumerate(zip(A.cuts[0], A.cuts[0][1:], strict=False)):
        axes.barh(k, b - a, color=BLUE, alpha=0.4 + 0.1 * k)
        axes.text(b - a, k, f" {A.counts[k, 0]:,} entries", va="center", fontsize=8)
    axes.set(xlabel="rows of the shard", ylabel="shard", title="Six shards of as many entries", xlim=(0, 620))


def dask_pagerank(axes, example):
    A = sj.array(example.power_law(2000, 20))
    rank = sj.jit(
        lambda A: sj.lax.fori_loop(0, 20, lambda k, x: 0.85 * (A @ x) + 0.15 / 2000, np.full(2000, 1 / 2000))
    )(A)
    axes.loglog(np.arange(1, 2001), np.sort(rank.todense())[::-1], color=BLUE)
    axes.set(xlabel="place", ylabel="rank", title="PageRank of 2,000 nodes")


def factorise(axes, example):
    X = sj.array(example.digits(), format="csf")
    for rank, color in ((5, "#9ecae1"), (10, BLUE), (20, ORANGE)):
        _, losses = example.least_squares(X, rank, 12)
        axes.plot(range(1, 13), losses, color=color, label=f"rank {rank}")
    axes.legend()
    axes.set(xlabel="sweep", ylabel="relative error", title="CP of 1,797 digits")


def gcn(axes, example):
    graph = example.digits()
    order = np.argsort(graph.labels, kind="stable")
    sj.plot.spy(sj.array(sp.csr_array(graph.adjacency[order][:, order])), ax=axes)
    axes.set(title="Neighbours, by digit", xlabel="image", ylabel="image")


def graphs(axes, example):
    graph = example.generated(400, 1600)
    levels = example.bfs(sj.array(graph), 0).todense()
    axes.bar(*np.unique(levels, return_counts=True), color=BLUE)
    axes.set(xlabel="edges from node 0 (-1: not reached)", ylabel="nodes", title="Breadth-first search")


def insum_blocks(axes, example):
    stored = sj.array(example.blocks(256, 16, 0.2, np.random.default_rng(0)), format="bsr:16x16")
    R, K, _ = sj.formats.to_groupcoo(stored)
    for group, (row, columns) in enumerate(zip(R, K, strict=True)):
        axes.scatter(columns, [row] * len(columns), marker="s", s=34, color=(BLUE, ORANGE)[group % 2])
    axes.set(xlabel="column of blocks", ylabel="row of blocks", title="Blocks in groups", ylim=(15.5, -0.5))


def insum_graphs(axes, example):
    counts = np.diff(example.power_law(5000, np.random.default_rng(0)).indptr)
    sizes = 2 ** np.arange(8)
    axes.semilogx(sizes, [g * np.ceil(counts / g).sum() / counts.sum() for g in sizes], "o-", color=BLUE, base=2)
    axes.set(xlabel="entries of a group", ylabel="slots for an entry", title="Groups of edges, 5,000 nodes")


def insum_pointcloud(axes, example):
    rng = np.random.default_rng(0)
    voxels = example.occupied(example.surface(4000, rng), 0.05)
    N = example.neighbours(example.numbers(voxels), *example.around(voxels))
    count = example.convolution(N, np.ones((len(voxels), 1), np.float32), np.ones((27, 1, 1), np.float32)).todense()
    shown = axes.scatter(voxels[:, 0], voxels[:, 1], c=count[:, 0], cmap="viridis", s=6, marker="s")
    axes.figure.colorbar(shown)
    axes.set(xlabel="x", ylabel="y", title="Occupied voxels around each")


def insum_equivariant(axes, example):
    cg = example.coefficients()
    axes.imshow(np.hstack(cg.reshape(5, 4, 16).swapaxes(1, 2)).T, cmap="RdBu", vmin=-1, vmax=1)
    axes.set(xlabel="j and k", ylabel="paths and i", title="Clebsch-Gordan coefficients, l up to 1")


def minibatches(axes, example):
    rng = np.random.default_rng(0)
    graph = example.power_law(5000, rng)
    found = [
        example.sampled(graph, rng.choice(5000, n, replace=False), 5, rng)[0].shape for n in rng.integers(32, 512, 60)
    ]
    axes.scatter(*np.array(found).T, s=14, color=BLUE)
    axes.set(xlabel="nodes of the batch", ylabel="nodes that they reach", title="60 batches, one compiled program")


def refinement(axes, example):
    nodes = np.linspace(0, 1, 9)
    while len(nodes) < 70:
        A, b = example.assembled(nodes)
        u = np.concatenate([[0], example.solved(A, b).todense(), [0]])
        shown, nodes = (nodes, u), example.refined(nodes, u)
    axes.plot(*shown, "o-", color=BLUE, markersize=3)
    axes.set(xlabel="x", ylabel="solution", title=f"{len(shown[0])} nodes where it bends")


def streaming(axes, example):
    total, sizes = snp.zeros((1, 1), format="csr"), []
    for values, users, items in example.points(30, 300, np.random.default_rng(0)):
        shape = max(total.shape[0], int(users.max()) + 1), max(total.shape[1], int(items.max()) + 1)
        total = example.grown(total, shape) + sj.array((values, (users, items)), shape=shape, format="csr")
        sizes.append((*shape, total.nnz))
    for column, label, color in zip(
        np.array(sizes).T, ("users", "items", "entries"), (BLUE, ORANGE, "#555555"), strict=True
    ):
        axes.semilogy(range(1, 31), column, color=color, label=label)
    axes.legend()
    axes.set(xlabel="batch", title="A matrix that grows")


def sparse_autoencoder(axes, example):
    images = example.digits()
    params = example.train(images, 4, say=lambda text: None)
    shown = images[:10]
    hidden = snp.maximum(sj.array(sp.csr_array(shown)) @ params["W1"] + params["b1"], 0)
    made = sj.nn.sigmoid(hidden @ params["W2"] + params["b2"]).todense()
    rows = [
        np.hstack([np.pad(x.reshape(8, 8), 1) for x in part]) for part in (shown[:5], made[:5], shown[5:], made[5:])
    ]
    axes.imshow(np.vstack(rows), cmap="gray_r")
    axes.set(title="Digits, and what the network makes of them", xticks=[], yticks=[])


def draw(example, name, path):
    """Draw the picture of one example."""
    figure = Figure(figsize=(4.4, 3.3), layout="constrained")
    globals()[name](figure.subplots(), example)
    figure.savefig(path, dpi=110)
