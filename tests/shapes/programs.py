"""Twenty programs, with operands of any sizes: what users write over data whose extents change from call to call."""

import numpy as np

import sparsejax as sj
import sparsejax.numpy as snp


def sparse(rng, *shape, format="csr"):
    """About six entries per row."""
    found = rng.random(shape) < 6 / shape[-1]
    return sj.array(np.where(found, rng.standard_normal(shape), 0), format=format)


def dense(rng, *shape):
    return sj.array(rng.standard_normal(shape))


def matrix(rng, n, m, k):
    return (sparse(rng, n, m),)


def with_vector(rng, n, m, k):
    return sparse(rng, n, m), dense(rng, m)


def with_features(rng, n, m, k):
    return sparse(rng, n, m), dense(rng, m, 16)


def two(rng, n, m, k):
    return sparse(rng, n, m), sparse(rng, n, m)


def chain(rng, n, m, k):
    return sparse(rng, n, m), sparse(rng, m, k)


def graph(rng, n, m, k):
    return sparse(rng, n, n), dense(rng, n, 8), dense(rng, 8, 5)


def sampled(rng, n, m, k):
    return sparse(rng, n, m), dense(rng, n, 4), dense(rng, m, 4)


def tensor(rng, n, m, k):
    n, m, k = 20 + n % 40, 20 + m % 40, 20 + k % 40
    return sparse(rng, n, m, k, format="csf"), dense(rng, m, 8), dense(rng, k, 8)


def vector(rng, n, m, k):
    return (dense(rng, n),)


def stacked(rng, n, m, k):
    return sparse(rng, n, m), sparse(rng, k, m)


def indexed(rng, n, m, k):
    return dense(rng, n, 8), sj.array(rng.integers(-n, n, k)), dense(rng, k, 8)


def labelled(rng, n, m, k):
    k = 500 + k % 250
    return dense(rng, k, 8), sj.array(rng.integers(0, 7, k))


def spring(rng, n, m, k):
    """A chain of springs between n places, and a weight at each."""
    rows = np.arange(n)
    ends = np.concatenate([rows, rows[1:], rows[:-1]]), np.concatenate([rows, rows[:-1], rows[1:]])
    return sj.array((np.repeat([4.0, -1.0], [n, 2 * n - 2]), ends), shape=(n, n), format="csr"), dense(rng, n)


def softmax(A):
    e = sj.lax.pattern(A) * snp.exp(A - A.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def gcn(A, X, W):
    return snp.maximum(A @ (X @ W), 0).sum()


def sweep(A, x):
    def step(carry, _):
        carry = A @ carry / A.shape[0]
        return carry, carry.sum()

    return sj.lax.scan(step, x, None, length=3)


PROGRAMS = {
    "spmv": (with_vector, lambda A, x: A @ x),
    "spmm": (with_features, lambda A, X: A @ X),
    "spgemm": (chain, lambda A, B: A @ B),
    "sddmm": (sampled, lambda A, X, Y: A * (X @ Y.T)),
    "softmax": (matrix, softmax),
    "gcn": (graph, gcn),
    "gcn and its gradient": (graph, lambda A, X, W: sj.value_and_grad(gcn, argnums=2)(A, X, W)),
    "sum of two": (two, lambda A, B: A + 2 * B),
    "rows": (matrix, lambda A: A[3:-2]),
    "columns": (matrix, lambda A: A[:, 2 : A.shape[1] // 2]),
    "last row": (matrix, lambda A: A[-1]),
    "row sums": (matrix, lambda A: A.sum(axis=1)),
    "column means": (matrix, lambda A: A.mean(axis=0)),
    "row maxima": (matrix, lambda A: A.max(axis=1)),
    "concatenation": (stacked, lambda A, B: snp.concatenate([A, B])),
    "gram": (matrix, lambda A: A.T @ A),
    "reshape": (vector, lambda x: x.reshape((x.shape[0], 1)) * 2),
    "arange": (vector, lambda x: x + snp.arange(x.shape[0]) / x.shape[0]),
    "zeros": (vector, lambda x: snp.zeros((2, x.size)) + x),
    "padding": (matrix, lambda A: snp.pad(A, ((0, 2), (1, 0)))),
    "diagonal": (graph, lambda A, X, W: A.diagonal()),
    "normalised": (matrix, lambda A: A / snp.sqrt((A * A).sum(axis=1, keepdims=True) + 1)),
    "variance": (matrix, lambda A: A.var(axis=0)),
    "fills": (matrix, lambda A: snp.exp(A).sum(axis=1)),
    "taken rows": (indexed, lambda X, rows, V: X[rows] * V),
    "scattered rows": (indexed, lambda X, rows, V: X.at[rows].add(V)),
    "taken, and its gradient": (indexed, lambda X, rows, V: sj.grad(lambda X: (X[rows] * V).sum())(X)),
    "indirect": (
        indexed,
        lambda X, rows, V: sj.insum("C[R[p],x] += X[R[p],x] * V[p,x]", C=snp.zeros_like(X), R=rows, X=X, V=V),
    ),
    "pairs": (indexed, lambda X, rows, V: X[rows, rows % X.shape[1]]),
    "segments": (labelled, lambda V, ids: sj.nn.segment_sum(V, ids, 7)),
    "means of segments": (labelled, lambda V, ids: sj.nn.segment_mean(V, ids, 7)),
    "softmax of segments": (labelled, lambda V, ids: sj.nn.segment_softmax(V, ids, 7)),
    "mttkrp": (tensor, lambda X, B, C: snp.einsum("ijk,jr,kr->ir", X, B, C)),
    "set columns": (
        lambda rng, n, m, k: (dense(rng, 40, n), sj.array(rng.integers(-n, n, k)), dense(rng, 40, k)),
        lambda X, columns, V: X.at[:, columns].set(V).at[:, columns].max(-V),
    ),
    "equations": (spring, lambda A, b: sj.scipy.sparse.linalg.cg(A, b, rtol=1e-12)),
    "scan": (lambda rng, n, m, k: (sparse(rng, n, n), dense(rng, n)), sweep),
}
