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
