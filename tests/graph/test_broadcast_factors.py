"""Products of what was broadcast are those of what it was made of, for operands, masks and results of any kind."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.jit import pipeline
from tests import rotation

EXTENTS = {"i": 5, "j": 4, "k": 6, "l": 3}


def drawn(seed):
    """A contraction, the arrays that its operands are broadcast from, and its mask."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 5))
    terms = ["".join(rng.permutation(list(EXTENTS))[: rng.integers(1, 4)]) for _ in range(count)]
    known = sorted(set("".join(terms)))
    output = "".join(rng.permutation(known)[: rng.integers(0, min(3, len(known)) + 1)])
    sources, forms = [], []
    for term in terms:
        kind = str(rng.choice(["broadcast", "dense", "sparse", "twice"], p=[0.5, 0.2, 0.2, 0.1]))
        shape = [EXTENTS[x] for x in term]
        if kind in ("broadcast", "twice"):
            first = int(rng.integers(0, len(term) + 1))
            shape = [n if rng.random() < 0.5 else 1 for n in shape[first:]]
        elif rng.random() < 0.2:
            shape[int(rng.integers(len(shape)))] = 1
        whole = 0.5 + rng.random(shape)
        sources.append(np.where(rng.random(shape) < 0.4, whole, 0) if kind == "sparse" else whole)
        forms.append(kind)
    mask = None
    if len(output) == 2 and rng.random() < 0.6:
        mask = np.where(rng.random([EXTENTS[x] for x in output]) < 0.5, 1.0, 0.0)
    return terms, output, sources, forms, mask


def program(terms, output, forms, mask):
    def run(*operands):
        made = []
        for x, term, kind in zip(operands, terms, forms, strict=True):
            shape = tuple(EXTENTS[c] for c in term)
            if kind == "twice":
                x = snp.broadcast_to(x, shape[len(shape) - x.ndim :])
            made.append(snp.broadcast_to(x, shape) if kind in ("broadcast", "twice") else x)
        text = f"{','.join(terms)}->{output}"
        first = sj.einsum(text, *made) if mask is None else sj.einsum(text, *made, mask=mask)
        return first, (first.sum() if first.ndim < 2 else (first @ snp.ones((first.shape[-1], 2))).sum())

    return run


@pytest.mark.parametrize("seed", rotation.share(range(400), 20))
def test_contractions(seed):
    terms, output, sources, forms, mask = drawn(seed)
    operands = [
        sj.array(x, format="coo" if x.ndim > 2 else "csr" if x.ndim == 2 else "(c)")
        if kind == "sparse"
        else snp.asarray(x)
        for x, kind in zip(sources, forms, strict=True)
    ]
    full = [
        np.broadcast_to(x, [EXTENTS[c] for c in term]) if kind in ("broadcast", "twice") else x
        for x, term, kind in zip(sources, terms, forms, strict=True)
    ]
    wanted = np.einsum(f"{','.join(terms)}->{output}", *full)
    mask = mask if mask is None or mask.shape == wanted.shape else None
    sparse = None if mask is None else sj.array(mask, format="csr")
    run = program(terms, output, forms, sparse)
    wanted = wanted if mask is None else np.where(mask != 0, wanted, 0)
    for choose in ("auto", f"random:{seed}"):
        with sj.config.using(choose=choose):
            made, total = sj.jit(run)(*operands)
        np.testing.assert_allclose(made.todense() if not made.format.is_dense else np.asarray(made), wanted, rtol=1e-12)
        np.testing.assert_allclose(total, wanted.sum() * (2 if wanted.ndim > 1 else 1), rtol=1e-12)


def test_nothing_is_spread_out():
    """The cotangent of a sum is read as one number by every product, however many there are in a row."""
    A = sj.array(np.eye(7), format="csr")
    X = np.ones((7, 3))
    for loss in (
        lambda A, X: (A.T @ (A @ X)).sum(),
        lambda A, X: (A @ (A @ X)).mean(),
        lambda A, X: ((A @ X).sum(0) ** 2).sum(),
    ):
        jaxpr = pipeline.cleaned(sj.make_jaxpr(sj.grad(loss, (0, 1)))(A, X).jaxpr)
        wide = {e.outputs[0] for e in jaxpr.eqns if e.primitive.name == "broadcast_to"}
        assert not any(a in wide for e in jaxpr.eqns if e.primitive.name == "contract" for a in e.inputs), str(jaxpr)


def test_what_stays():
    """An axis that what was broadcast alone has is counted by it."""
    x = np.arange(3.0)
    rows = sj.jit(lambda x: sj.einsum("ij->i", snp.broadcast_to(x[:, None], (3, 4))))(x)
    np.testing.assert_allclose(np.asarray(rows), 4 * x)
    both = sj.jit(lambda x: sj.einsum("ji,ij->", snp.broadcast_to(x, (4, 3)), snp.broadcast_to(x[:, None], (3, 4))))(x)
    np.testing.assert_allclose(both, 4 * (x * x).sum())
    units = sj.jit(lambda x, y: sj.einsum("ij,ij->i", snp.broadcast_to(x[:, None], (3, 4)), y))(x, np.ones((3, 1)))
    np.testing.assert_allclose(np.asarray(units), 4 * x)
