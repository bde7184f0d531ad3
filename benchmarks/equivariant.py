"""Products of equivariant networks beside e3nn, torch and NumPy: float32 on one thread, processor time.

    OMP_NUM_THREADS=1 python -m benchmarks.equivariant [--degrees 1,2,3] [--channels 16,32,64] [--batch 10000] [--per-sample 1000] [--rounds 7]

Features X (batch, components, u), harmonics Y (batch, components), weights W: shared (paths, u, w), or one set per sample. Ours is one `insum`
(or `einsum`) whose Clebsch-Gordan coefficients are a constant. Peers: e3nn's FullyConnectedTensorProduct; and for torch and for NumPy the faster of two
programs, coefficient by coefficient and path by path in matrix products. Those that are not installed are left out. All results but e3nn's, which
orders components and weights in its own way, are compared first. Every round runs all once, in a random order; a ratio is the median of the
rounds' ratios. Coefficients are made by `coefficients` (real Wigner 3j symbols of even parity), which needs NumPy alone.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import sparsejax as sj
from sparsejax import config

SHARED = "Out[b,k,w] = C[p,i,j,k] * X[b,i,u] * Y[b,j] * W[p,u,w]"
SAMPLES = SHARED.replace("W[p", "W[b,p")
Run = Callable[[], Any]


def module(name: str) -> Any:
    """A module; None where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _complex(l1: int, l2: int, l3: int) -> np.ndarray:
    """Clebsch-Gordan coefficients <l1 m1 l2 m2 | l3 m3> by Racah's formula."""
    f, made = math.factorial, np.zeros((2 * l1 + 1, 2 * l2 + 1, 2 * l3 + 1))
    for m1, m2 in itertools.product(range(-l1, l1 + 1), range(-l2, l2 + 1)):
        m3 = m1 + m2
        if abs(m3) > l3:
            continue
        total = 0.0
        for k in range(l1 + l2 - l3 + 1):
            terms = (k, l1 + l2 - l3 - k, l1 - m1 - k, l2 + m2 - k, l3 - l2 + m1 + k, l3 - l1 - m2 + k)
            if min(terms) >= 0:
                total += (-1) ** k / math.prod(map(f, terms))
        root = (2 * l3 + 1) * f(l3 + l1 - l2) * f(l3 - l1 + l2) * f(l1 + l2 - l3) / f(l1 + l2 + l3 + 1)
        root *= f(l3 + m3) * f(l3 - m3) * f(l1 - m1) * f(l1 + m1) * f(l2 - m2) * f(l2 + m2)
        made[l1 + m1, l2 + m2, l3 + m3] = math.sqrt(root) * total
    return made


def _real(degree: int) -> np.ndarray:
    """From complex to real spherical harmonics."""
    made = np.zeros((2 * degree + 1, 2 * degree + 1), complex)
    for m in range(-degree, degree + 1):
        if m < 0:
            made[degree + m, degree - abs(m)], made[degree + m, degree + abs(m)] = 1j, -1j * (-1) ** m
        elif m > 0:
            made[degree + m, degree - abs(m)], made[degree + m, degree + abs(m)] = 1, (-1) ** m
        else:
            made[degree, degree] = math.sqrt(2)
    return made / math.sqrt(2)


def coefficients(most: int) -> np.ndarray:
    """All paths (l1, l2, l3) of even sum with degrees up to `most`: (paths, D, D, D) with D = (most + 1)**2."""
    size, made = (most + 1) ** 2, []
    for l1, l2, l3 in itertools.product(range(most + 1), repeat=3):
        if abs(l1 - l2) <= l3 <= l1 + l2 and (l1 + l2 + l3) % 2 == 0:
            q1, q2, q3 = map(_real, (l1, l2, l3))
            real = np.einsum("ai,bj,ck,ijk->abc", q1, q2, q3.conj(), _complex(l1, l2, l3))
            real = real.real if np.abs(real.real).max() > np.abs(real.imag).max() else real.imag
            path = np.zeros((size,) * 3)
            path[tuple(slice(n * n, (n + 1) ** 2) for n in (l1, l2, l3))] = np.where(np.abs(real) > 1e-9, real, 0)
            made.append(path)
    return np.stack(made)


class Case:
    """One cell of the table."""

    def __init__(self, degree: int, channels: int, batch: int, shared: bool) -> None:
        self.C = coefficients(degree).astype("f4")
        paths, size, *_ = self.C.shape
        self.degree, self.channels, self.batch, self.shared = degree, channels, batch, shared
        rng = np.random.default_rng(0)
        self.X = rng.standard_normal((batch, size, channels), np.float32)
        self.Y = rng.standard_normal((batch, size), np.float32)
        leading = () if shared else (batch,)
        self.W = rng.standard_normal((*leading, paths, channels, channels), np.float32) / np.float32(channels**0.5)
        self.spans = [
            [(int(own.min()), int(own.max()) + 1) for own in places] for places in (np.nonzero(path) for path in self.C)
        ]

    def ours(self) -> dict[str, Run]:
        C, text = sj.array(self.C, format="coo"), SHARED if self.shared else SAMPLES
        letters = "pijk,biu,bj,puw->bkw" if self.shared else "pijk,biu,bj,bpuw->bkw"
        product = sj.jit(lambda X, Y, W: sj.insum(text, C=C, X=X, Y=Y, W=W))
        same = sj.jit(lambda X, Y, W: sj.einsum(letters, C, X, Y, W))
        arrays = [sj.asarray(x) for x in (self.X, self.Y, self.W)]
        return {"insum": lambda: product(*arrays), "einsum": lambda: same(*arrays)}

    def numpy(self) -> dict[str, Run]:
        X, Y, W = self.X, self.Y, self.W

        def by_entries() -> Any:
            sums: dict[tuple[int, int], Any] = {}
            for p, i, j, k in zip(*np.nonzero(self.C), strict=True):
                term = (self.C[p, i, j, k] * Y[:, j, None]) * X[:, i]
                sums[p, k] = sums[p, k] + term if (p, k) in sums else term
            out = np.zeros_like(X)
            for (p, k), term in sums.items():
                out[:, k] += term @ W[p] if self.shared else np.matmul(term[:, None], W[:, p])[:, 0]
            return out

        def by_paths() -> Any:
            out = np.zeros_like(X)
            for p, ((i, i1), (j, j1), (k, k1)) in enumerate(self.spans):
                moved = np.tensordot(Y[:, j:j1], self.C[p, i:i1, j:j1, k:k1], ([1], [1])).transpose(0, 2, 1)
                out[:, k:k1] += self._weighted(np.matmul(moved, X[:, i:i1]), W, p)
            return out

        return {"NumPy by entries": by_entries, "NumPy by paths": by_paths}

    def _weighted(self, made: Any, W: Any, path: int) -> Any:
        if not self.shared:
            return made @ W[:, path]
        return (made.reshape(-1, self.channels) @ W[path]).reshape(made.shape)

    def torch(self) -> dict[str, Run]:
        torch = module("torch")
        if torch is None:
            return {}
        torch.set_num_threads(1)
        C, X, Y, W = map(torch.from_numpy, (self.C, self.X, self.Y, self.W))
        places = {p: np.argwhere(path).tolist() for p, path in enumerate(self.C)}

        def by_entries() -> Any:
            out = torch.zeros_like(X)
            for p, own in places.items():
                k, k1 = self.spans[p][2]
                made = torch.zeros(self.batch, k1 - k, self.channels)
                for i, j, to in own:
                    made[:, to - k].addcmul_(X[:, i], Y[:, j, None], value=float(self.C[p, i, j, to]))
                out[:, k:k1] += self._weighted(made, W, p)
            return out

        def by_paths() -> Any:
            out = torch.zeros_like(X)
            for p, ((i, i1), (j, j1), (k, k1)) in enumerate(self.spans):
                moved = torch.einsum("ijk,bj->bki", C[p, i:i1, j:j1, k:k1], Y[:, j:j1])
                out[:, k:k1] += self._weighted(torch.bmm(moved, X[:, i:i1]), W, p)
            return out

        return {"torch by entries": by_entries, "torch by paths": by_paths}

    def e3nn(self) -> dict[str, Run]:
        torch, o3 = module("torch"), module("e3nn.o3")
        if torch is None or o3 is None:
            return {}

        def irreps(count: int) -> Any:
            return o3.Irreps([(count, (n, (-1) ** n)) for n in range(self.degree + 1)])

        product = o3.FullyConnectedTensorProduct(
            irreps(self.channels),
            irreps(1),
            irreps(self.channels),
            shared_weights=self.shared,
            internal_weights=False,
        )
        shape = (product.weight_numel,) if self.shared else (self.batch, product.weight_numel)
        x, y, w = torch.randn(self.batch, product.irreps_in1.dim), torch.from_numpy(self.Y), torch.randn(*shape)

        def run() -> Any:
            with torch.no_grad():
                return product(x, y, w)

        return {"e3nn": run}


def timed(runs: dict[str, Run], rounds: int) -> dict[str, list[float]]:
    """The processor seconds of each, round by round."""
    rng, times = np.random.default_rng(0), {name: list[float]() for name in runs}
    for _ in range(rounds):
        for name in rng.permutation(list(runs)):
            started = time.process_time()
            runs[name]()
            times[name].append(time.process_time() - started)
    return times


def compared(runs: dict[str, Run]) -> None:
    """Run each twice; all results but e3nn's must agree."""
    expected = None
    for name, run in runs.items():
        run()
        found = run()
        if name != "e3nn":
            dense = found.todense() if isinstance(found, sj.Array) else np.asarray(found)
            expected = dense if expected is None else expected
            worst = float(np.abs(dense - expected).max() / np.abs(expected).max())
            assert worst < 1e-4, f"{name} differs by {worst:.1e} of the largest value"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--degrees", default="1,2,3")
    parser.add_argument("--channels", default="16,32,64")
    parser.add_argument("--batch", type=int, default=10_000)
    parser.add_argument("--per-sample", type=int, default=1000, help="the batch where every sample has weights")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with config.using(num_threads=1):
        for shared in (True, False):
            batch = options.batch if shared else options.per_sample
            print(
                f"weights {'shared' if shared else 'per sample'}, batch {batch:,}: ms of insum; times of others over it"
            )
            logs: dict[str, list[float]] = {}
            for degree, channels in itertools.product(
                map(int, options.degrees.split(",")), map(int, options.channels.split(","))
            ):
                case = Case(degree, channels, batch, shared)
                runs = {**case.ours(), **case.numpy(), **case.torch(), **case.e3nn()}
                compared(runs)
                times = timed(runs, options.rounds)
                ratios = {
                    name: statistics.median(t / own for t, own in zip(took, times["insum"], strict=True))
                    for name, took in times.items()
                }
                ratios["best"] = min(r for name, r in ratios.items() if name not in ("insum", "einsum"))
                for name, ratio in ratios.items():
                    logs.setdefault(name, []).append(math.log(ratio))
                told = "  ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items() if name != "insum")
                print(
                    f"  l_max {degree}  {channels} channels  {1e3 * statistics.median(times['insum']):8.2f}  {told}",
                    flush=True,
                )
            means = "  ".join(f"{n} {math.exp(statistics.mean(own)):.2f}" for n, own in logs.items() if n != "insum")
            print(f"  geometric means: {means}")


if __name__ == "__main__":
    main()
