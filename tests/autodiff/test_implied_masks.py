"""Gradients by sparse arrays of what products, sums and functions of them come to: those of dense arrays at the entries, and no pattern of a product is
asked for where masks imply it."""

import itertools

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.jit import pipeline
from tests import rotation

FORMS = ["csr", "csc", "coo", "dcsr", "(c,d)", "bitmap", "ell"]
N = 9
RNG = np.random.default_rng(0)
V, U, X = 0.5 + RNG.random(N), 0.5 + RNG.random(N), 0.5 + RNG.random((N, 3))
TWICE = 0.5 + RNG.random(2 * N)


def sparse(seed):
    rng = np.random.default_rng(seed)
    return np.where(rng.random((N, N)) < 0.3, 0.25 + rng.random((N, N)), 0.0)


def program(seed):
    """A random function of two matrices."""
    rng = np.random.default_rng(seed)
    two = {
        "@": lambda a, b: a @ b,
        "+": lambda a, b: a + b,
        "-": lambda a, b: a - b,
        "*": lambda a, b: a * b,
        "maximum": snp.maximum,
    }
    one = {
        "T": lambda a: a.T,
        "rows": lambda a: a * V[:, None],
        "columns": lambda a: a * U,
        "half": lambda a: a / 2,
        "symmetric": lambda a: a + a.T,
        "abs": lambda a: snp.abs(a) * a,
        "negative": lambda a: -a,
        "degrees": lambda a: a * a.sum(axis=1)[:, None],
        "both degrees": lambda a: a * (d := a.sum(axis=1))[:, None] * d[None, :],
        "rows of length one": lambda a: a / snp.sqrt(1 + (a * a).sum(axis=1))[:, None],
        "columns of length one": lambda a: a / snp.sqrt(1 + (a * a).sum(axis=0)),
        "tile": lambda a: snp.tile(a, (2, 2))[4 : 4 + N, 3 : 3 + N],
        "repeat": lambda a: snp.repeat(snp.repeat(a, 2, axis=0), 3, axis=1)[5 : 5 + N, 7 : 7 + N],
    }
    last = {
        "@ v": lambda a: (a @ V).sum(),
        "v @": lambda a: ((V @ a) * U).sum(),
        "sum": lambda a: a.sum(),
        "weighted": lambda a: (a * (X @ X.T)).sum(),
        "@ X": lambda a: ((a @ X) ** 2).sum(),
        "squares": lambda a: (a * a).sum(),
        "rows": lambda a: (a.sum(axis=1) * V).sum(),
        "v @ v": lambda a: V @ a @ U,
        "a.T @ (a @ X)": lambda a: (a.T @ (a @ X)).sum(),
        "tile": lambda a: (snp.tile(a, (1, 2)) @ TWICE).sum() + (snp.tile(a, (2, 1)) @ V * TWICE).sum(),
        "repeat": lambda a: (snp.repeat(a, 2, axis=1) @ TWICE).sum() + (snp.repeat(a, 2, axis=0) @ V * TWICE).sum(),
        "largest of rows": lambda a: ((a * a).max(axis=1) * V).sum(),
        "smallest of columns": lambda a: ((-a * a).min(axis=0) * V).sum(),
        "diagonal": lambda a: (snp.diagonal(a) * V).sum() + (snp.diagonal(a, 1) * V[1:]).sum(),
        "softmax": lambda a: (
            (e := snp.exp(a / (1 + (a * a).sum())) * (a * a)) / (1 + e.sum(axis=1))[:, None] @ V
        ).sum(),
    }
    tree = [
        rng.choice([*two, *one], p=[0.3, 0.15, 0.05, 0.1, 0.05, *[0.35 / len(one)] * len(one)])
        for _ in range(int(rng.integers(1, 5)))
    ]
    picks = rng.integers(0, 2, 20)
    end = str(rng.choice(list(last)))

    def loss(A, B):
        values = [A, B]
        for k, name in enumerate(tree):
            a = values[-1] if k or picks[k] else A
            values.append(two[name](a, values[picks[2 * k + 1]]) if name in two else one[name](a))
        return last[end](values[-1])

    return loss, [*map(str, tree), end]


@pytest.mark.parametrize(("form", "seed"), rotation.share(list(itertools.product(FORMS, range(150))), 60))
def test_programs(form, seed):
    loss, names = program(seed)
    dense = sparse(2 * seed), sparse(2 * seed + 1)
    A, B = (sj.array(x, format=form) for x in dense)
    wanted = sj.grad(loss, argnums=(0, 1))(*map(sj.array, dense))
    gradient = sj.grad(loss, argnums=(0, 1))

    def forced(A, B):
        with sj.config.using(choose=f"random:{seed}"):
            return sj.jit(gradient)(A, B)

    for gradient_of in (gradient, sj.jit(gradient), forced):
        for made, whole, x in zip(gradient_of(A, B), wanted, dense, strict=True):
            found, kept = np.where(x != 0, whole.todense(), 0), made.todense() * (x != 0)
            np.testing.assert_allclose(kept, found, rtol=1e-10, atol=1e-12, err_msg=str(names))
    value, (_, made) = sj.jit(sj.value_and_grad(loss, argnums=(0, 1)))(A, B)
    np.testing.assert_allclose(value, loss(*dense), rtol=1e-10)
    found, kept = np.where(dense[1] != 0, wanted[1].todense(), 0), made.todense() * (dense[1] != 0)
    np.testing.assert_allclose(kept, found, rtol=1e-10, atol=1e-12)


PRODUCTS = {
    "(A @ B) @ v": lambda A, B: ((A @ B) @ V).sum(),
    "(A @ A) @ v": lambda A, B: ((A @ A) @ V).sum(),
    "(A @ B).sum()": lambda A, B: (A @ B).sum(),
    "((A @ B) @ X) ** 2": lambda A, B: (((A @ B) @ X) ** 2).sum(),
    "(A @ B).T @ v": lambda A, B: ((A @ B).T @ V).sum(),
    "v @ (A @ B)": lambda A, B: ((V @ (A @ B)) * U).sum(),
    "(A @ B) * v": lambda A, B: ((A @ B) * V).sum(),
    "(A @ B) * v[:, None]": lambda A, B: ((A @ B) * V[:, None]).sum(),
    "(A @ B @ A) @ v": lambda A, B: ((A @ B @ A) @ V).sum(),
    "(A.T @ B) @ v": lambda A, B: ((A.T @ B) @ V).sum(),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_no_product_of_sparse_arrays(name):
    """What is left has no contraction of two sparse arrays under a mask, and no mask that is one."""
    A, B = (sj.array(sparse(seed), format="csr") for seed in (0, 1))
    jaxpr = pipeline.cleaned(sj.make_jaxpr(sj.grad(PRODUCTS[name], argnums=(0, 1)))(A, B).jaxpr)
    products = {e.outputs[0] for e in jaxpr.eqns if e.primitive.name == "contract" and "mask" not in e.param_dict}
    for eqn in jaxpr.eqns:
        asked = eqn.inputs[-1] if "mask" in eqn.param_dict or eqn.primitive.name == "sample" else None
        assert asked is None or asked.aval.format.is_dense or asked not in products, str(jaxpr)
        if "mask" in eqn.param_dict:
            assert sum(not a.aval.format.is_dense for a in eqn.inputs[:-1]) < 2, str(jaxpr)


def test_masks_of_unions():
    """What is kept of a sum's cotangent is computed where it is kept."""
    A, B = (sj.array(sparse(seed), format="csr") for seed in (0, 1))
    for loss in (
        lambda A, B: ((A + B) @ V).sum(),
        lambda A, B: (snp.maximum(A, -B) @ V).sum(),
        lambda A, B: (((A + A.T) / 2) @ V).sum(),
    ):
        jaxpr = pipeline.cleaned(sj.make_jaxpr(sj.grad(loss))(A, B).jaxpr)
        masked = [e for e in jaxpr.eqns if e.primitive.name == "contract" and e.param_dict.get("mask")]
        sampled = [
            e for e in jaxpr.eqns if e.primitive.name == "sample" and e.inputs[0] in [m.outputs[0] for m in masked]
        ]
        assert masked and not sampled, str(jaxpr)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dcsr"])
def test_products_that_are_sampled(form):
    """A product that everybody reads where another array is stored is computed there alone."""
    dense = sparse(0), sparse(1)
    A, B = (sj.array(x, format=form) for x in dense)
    for loss in (
        lambda A, B: ((A @ B) * A).sum(),
        lambda A, B: ((A @ A) * A).sum(),
        lambda A, B: (A * (A @ A.T)).sum(),
        lambda A, B: (A * (A @ B) * (A @ B)).sum(),
        lambda A, B: snp.where(B > 0.5, A @ A, 0).sum(),
        lambda A, B: ((A @ B) * A + (A @ B) * B).sum(),
    ):
        for made, whole, x in zip(
            sj.jit(sj.grad(loss, argnums=(0, 1)))(A, B),
            sj.grad(loss, argnums=(0, 1))(*map(sj.array, dense)),
            dense,
            strict=True,
        ):
            np.testing.assert_allclose(made.todense(), np.where(x != 0, whole.todense(), 0), rtol=1e-12)
        np.testing.assert_allclose(sj.jit(loss)(A, B), loss(*map(sj.array, dense)), rtol=1e-12)
    A, B = A.asformat("csr"), B.asformat("csr")
    jaxpr = pipeline.cleaned(sj.make_jaxpr(sj.grad(lambda A: ((A @ A) * A).sum()))(A).jaxpr)
    assert all("mask" in e.param_dict for e in jaxpr.eqns if e.primitive.name == "contract"), str(jaxpr)
    jaxpr = pipeline.cleaned(sj.make_jaxpr(lambda A, B: ((A @ B) * A).sum() + (A @ B).sum())(A, B).jaxpr)
    assert not any("mask" in e.param_dict for e in jaxpr.eqns if e.primitive.name == "contract"), str(jaxpr)


def test_masks_that_say_more():
    """A mask stays that leaves out terms which are read, or entries which are kept."""
    A, B, C = (sj.array(sparse(seed), format="csr") for seed in (0, 1, 2))

    def masked(A, B, C):
        return sj.einsum("ij,kj->ik", sj.einsum("i,j->ij", V, U, mask=C), B, mask=A)

    inner = np.where(C.todense() != 0, np.outer(V, U), 0)
    wanted = np.where(A.todense() != 0, inner @ B.todense().T, 0)
    np.testing.assert_allclose(sj.jit(masked)(A, B, C).todense(), wanted, rtol=1e-12)

    def product(A, B, C):
        return sj.einsum("ij,kj->ik", sj.einsum("i,j->ij", V, U, mask=A @ C), B, mask=A)

    inner = np.where((A @ C).todense() != 0, np.outer(V, U), 0)
    wanted = np.where(A.todense() != 0, inner @ B.todense().T, 0)
    np.testing.assert_allclose(sj.jit(product)(A, B, C).todense(), wanted, rtol=1e-12)
