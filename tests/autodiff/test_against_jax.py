"""Dense programs have the derivatives that JAX gives (where JAX is installed)."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")


@pytest.fixture(autouse=True)
def _double_precision():
    jax.config.update("jax_enable_x64", True)


RNG = np.random.default_rng(0)
M, V, W = RNG.uniform(0.2, 0.9, (4, 4)), RNG.uniform(0.2, 0.9, 4), RNG.standard_normal((4, 3))
Z = M + 1j * RNG.random((4, 4))
SCALARS = {
    "network": lambda np, x: np.sum(np.tanh(np.tanh(x @ M) @ W) ** 2),
    "reductions": lambda np, x: np.sum(np.max(x, axis=0) * np.prod(x, axis=1) / np.mean(x)),
    "elementwise": lambda np, x: np.sum(np.arctan2(x, V) + np.hypot(x, V) + x**V + np.log1p(x) * np.arcsin(x)),
    "structure": lambda np, x: (
        np.sum(np.reshape(x.T, (2, 8)) @ np.reshape(x, (8, 2))) + np.trace(x @ x) + np.sum(np.diagonal(x, 1) ** 2)
    ),
    "einsum": lambda np, x: np.einsum("ij,jk,kl,i->", x, x, W, V),
    "choices": lambda np, x: np.sum(np.where(x > 0.5, x * x, np.sin(x)) + np.clip(x, 0.3, 0.6) + np.abs(x - 0.5)),
}
COMPLEX = {
    "absolute": lambda np, z: np.sum(np.abs(z)),
    "parts": lambda np, z: np.sum(np.real(z * z) + np.imag(np.exp(z)) ** 2),
    "conjugate": lambda np, z: np.sum(np.real(np.conj(z) * z * z)),
}


@pytest.mark.parametrize("name", SCALARS)
def test_gradients(name):
    f = SCALARS[name]
    ours, theirs = lambda x: f(snp, x), lambda x: f(jnp, x)
    np.testing.assert_allclose(sj.grad(ours)(M), jax.grad(theirs)(M), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(sj.jit(sj.grad(ours))(M), jax.grad(theirs)(M), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(
        sj.jvp(sj.grad(ours), (M,), (M * M,))[1], jax.jvp(jax.grad(theirs), (M,), (M * M,))[1], rtol=1e-11, atol=1e-11
    )


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_gradients(name):
    f = COMPLEX[name]
    np.testing.assert_allclose(sj.grad(lambda z: f(snp, z))(Z), jax.grad(lambda z: f(jnp, z))(Z), rtol=1e-12)


def test_holomorphic_and_jacobians():
    np.testing.assert_allclose(
        sj.grad(lambda z: snp.sum(snp.sin(z) * z), holomorphic=True)(Z),
        jax.grad(lambda z: jnp.sum(jnp.sin(z) * z), holomorphic=True)(Z),
        rtol=1e-12,
    )
    for name in ("jacfwd", "jacrev", "hessian"):
        ours = getattr(sj, name)(lambda x: snp.sin(M @ x) * x)(V)
        np.testing.assert_allclose(ours, getattr(jax, name)(lambda x: jnp.sin(M @ x) * x)(V), rtol=1e-12, atol=1e-14)


BATCH = RNG.uniform(0.2, 0.9, (3, 4, 4))
LABELS = np.array([0, 2, 1, 2])
LOOPS = {
    "fori": lambda lax, np, x: lax.fori_loop(0, 4, lambda i, c: np.sin(c @ x) + i, x),
    "while": lambda lax, np, x: lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, np.tanh(s[1] @ x)), (0, x))[1],
    "scan": lambda lax, np, x: lax.scan(lambda c, r: (c * r + 0.1, np.exp(c)), x[0], x),
    "map": lambda lax, np, x: lax.map(lambda r: r * np.sum(r), x),
    "cond": lambda lax, np, x: lax.cond(np.sum(x) > 9, lambda y: y * 2, lambda y: np.sin(y), x),
    "switch": lambda lax, np, x: lax.switch(2, [lambda y: y, lambda y: -y, lambda y: y * y], x),
}
NETWORKS = {
    "activations": lambda nn, np, x: [
        getattr(nn, name)(x - 0.5)
        for name in ("relu", "leaky_relu", "elu", "gelu", "silu", "sigmoid", "softplus", "tanh")
    ],
    "softmax": lambda nn, np, x: [nn.softmax(x, axis=0), nn.log_softmax(x), nn.logsumexp(x, axis=1)],
}


def _agree(ours, theirs, rtol=1e-12):
    ours, theirs = sj.tree_util.tree_leaves(ours), jax.tree_util.tree_leaves(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(np.asarray(mine), np.asarray(other), rtol=rtol, atol=1e-13)


@pytest.mark.parametrize("name", LOOPS)
def test_control_flow(name):
    f = LOOPS[name]
    ours, theirs = lambda x: f(sj.lax, snp, x), lambda x: f(jax.lax, jnp, x)
    _agree(ours(M), theirs(M))
    _agree(sj.jit(sj.vmap(ours))(BATCH), jax.vmap(theirs)(BATCH))
    _agree(sj.jvp(ours, (M,), (M * M,))[1], jax.jvp(theirs, (M,), (M * M,))[1])
    if name != "while":
        total = lambda np, f: lambda x: sum(np.sum(y) for y in jax.tree_util.tree_leaves(f(x)))  # noqa: E731
        _agree(
            sj.grad(total(snp, lambda x: sj.tree_util.tree_leaves(ours(x))))(M), jax.grad(total(jnp, theirs))(M), 1e-11
        )


@pytest.mark.parametrize("axes", [(0, None), (1, 0), (-1, 1)])
@pytest.mark.parametrize("out", [0, 1, -1])
def test_batches(axes, out):
    f = lambda np: lambda x, y: np.sin(x @ y) * np.sum(y, axis=-1)  # noqa: E731
    ours = sj.vmap(f(snp), in_axes=axes, out_axes=out)
    theirs = jax.vmap(f(jnp), in_axes=axes, out_axes=out)
    y = M if axes[1] is None else np.moveaxis(np.stack([M, M * 2, M * 3, M]), 0, axes[1])
    x = np.moveaxis(np.stack([M, M + 1, M * 3, M]), 0, axes[0])
    _agree(ours(x, y), theirs(x, y))
    grads = [
        module.grad(lambda x, run=run, np=np: np.sum(run(x, y) ** 2))(x)
        for module, run, np in ((sj, ours, snp), (jax, theirs, jnp))
    ]
    _agree(*grads)


@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name):
    f, nn = NETWORKS[name], jax.nn
    nn.logsumexp, nn.tanh = jax.scipy.special.logsumexp, jnp.tanh
    ours, theirs = lambda x: f(sj.nn, snp, x), lambda x: f(nn, jnp, x)
    _agree(ours(M), theirs(M))
    _agree(sj.jvp(ours, (M,), (M * M,))[1], jax.jvp(theirs, (M,), (M * M,))[1])


def test_losses():
    ours = lambda x: sj.nn.softmax_cross_entropy_with_integer_labels(x, LABELS).mean()  # noqa: E731
    theirs = lambda x: -jnp.take_along_axis(jax.nn.log_softmax(x), LABELS[:, None], 1).mean()  # noqa: E731
    _agree(sj.value_and_grad(ours)(M), jax.value_and_grad(theirs)(M))
    _agree(sj.hessian(ours)(M), jax.hessian(theirs)(M))
