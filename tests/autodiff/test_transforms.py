"""`grad` and its relatives: arguments, pytrees, auxiliary data, errors, custom derivatives, composition with `jit`."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp
from tests.autodiff.checks import array, dense, direction, same_buffers

RNG = np.random.default_rng(0)
A = array(RNG, (4, 4), "csr")
X = RNG.random((4, 3))


def loss(A, X):
    return snp.sin(A @ X).sum()


def by_hand(A, X):
    back = np.cos(dense(A) @ X)
    return (back @ X.T) * (dense(A) != 0), dense(A).T @ back


def test_argnums():
    first, second = by_hand(A, X)
    np.testing.assert_allclose(dense(sj.grad(loss)(A, X)), first)
    np.testing.assert_allclose(sj.grad(loss, 1)(A, X), second)
    np.testing.assert_allclose(sj.grad(loss, -1)(A, X), second)
    both = sj.grad(loss, (1, 0))(A, X)
    np.testing.assert_allclose(both[0], second)
    np.testing.assert_allclose(dense(both[1]), first)
    assert same_buffers(A, both[1])
    with pytest.raises(TypeError, match="requires at least 3 positional arguments"):
        sj.grad(loss, 2)(A, X)


def test_keywords_and_captured_values():
    np.testing.assert_allclose(sj.grad(lambda X, *, A: loss(A, X))(X, A=A), by_hand(A, X)[1])
    np.testing.assert_allclose(sj.grad(lambda X: loss(A, X))(X), by_hand(A, X)[1])


def test_pytrees():
    def f(p):
        return loss(p["layers"][0], p["X"]) * p["scale"]

    value, g = sj.value_and_grad(f)({"layers": (A,), "X": X, "scale": 2.0})
    np.testing.assert_allclose(value, 2 * dense(loss(A, X)))
    assert same_buffers(A, g["layers"][0])
    np.testing.assert_allclose(g["X"], 2 * by_hand(A, X)[1])
    np.testing.assert_allclose(g["scale"], dense(loss(A, X)))


def test_scipy_operands():
    S = sp.csr_array(dense(A))
    g = sj.grad(loss)(S, X)
    assert str(g.format) == "csr" and g.nnz == S.nnz
    np.testing.assert_allclose(dense(g), by_hand(A, X)[0])


def test_aux():
    def f(x):
        return (x * x).sum(), {"twice": x * 2, "n": 3}

    (value, aux), g = sj.value_and_grad(f, has_aux=True)(X)
    np.testing.assert_allclose(g, 2 * X)
    np.testing.assert_allclose(aux["twice"], 2 * X)
    assert float(aux["n"]) == 3 and np.isclose(float(value), (X * X).sum())
    g, aux = sj.grad(f, has_aux=True)(X)
    np.testing.assert_allclose(g, 2 * X)
    _, pull, aux = sj.vjp(f, X, has_aux=True)
    np.testing.assert_allclose(pull(1.0)[0], 2 * X)
    _out, tangent, aux = sj.jvp(f, (X,), (X,), has_aux=True)
    np.testing.assert_allclose(tangent, 2 * (X * X).sum())
    assert isinstance(sj.jacrev(lambda x: (x * 2, x), has_aux=True)(X[0])[1], sj.Array)
    with pytest.raises(TypeError, match="two-element tuple"):
        sj.grad(lambda x: x.sum(), has_aux=True)(X)


def test_the_value_is_zero_where_nothing_depends():
    g = sj.grad(lambda A, X: X.sum())(A, X)
    assert same_buffers(A, g) and not g.storage.vals.any() and g.nnz == A.nnz
    np.testing.assert_array_equal(sj.grad(lambda A, X: A.sum(), 1)(A, X), np.zeros_like(X))


def test_integers():
    with pytest.raises(TypeError, match="grad requires real- or complex-valued inputs"):
        sj.grad(lambda n: n * 2.0)(3)
    g = sj.grad(lambda n: n * 2.0, allow_int=True)(np.arange(3)[0])
    assert g.dtype == sj.float0
    assert sj.vjp(lambda n, x: n * x, np.arange(3), np.ones(3))[1](np.ones(3))[0].dtype == sj.float0
    _out, tangent = sj.jvp(lambda n, x: n * x, (np.arange(3), np.ones(3)), (np.zeros(3, sj.float0), np.ones(3)))
    np.testing.assert_array_equal(tangent, np.arange(3))


def test_results_must_be_scalars():
    with pytest.raises(
        TypeError, match=r"Gradient only defined for scalar-output functions. Output had shape: \(4, 3\)"
    ):
        sj.grad(lambda x: x)(X)
    with pytest.raises(TypeError, match="requires real-valued outputs"):
        sj.grad(lambda x: x * 1j)(1.0)
    with pytest.raises(TypeError, match="Gradient only defined"):
        sj.grad(lambda x: (x, x))(1.0)


def test_complex_arguments_as_in_jax():
    z = np.array([1 + 2j, 3 - 1j])
    np.testing.assert_allclose(sj.grad(lambda z: (snp.abs(z) ** 2).sum())(z), 2 * z.conj())
    np.testing.assert_allclose(sj.grad(lambda z: (z * z).sum(), holomorphic=True)(z), 2 * z)
    with pytest.raises(TypeError, match="holomorphic=True requires inputs with complex dtype"):
        sj.grad(lambda z: z, holomorphic=True)(1.0)
    np.testing.assert_allclose(sj.grad(lambda z: (z.real * 3 + z.imag).sum())(z), np.full(2, 3 - 1j))


def test_wrong_tangents():
    with pytest.raises(TypeError, match="same tree structure"):
        sj.jvp(lambda x: x, (1.0,), (1.0, 2.0))
    with pytest.raises(ValueError, match="different primal and tangent shapes"):
        sj.jvp(lambda x: x, (X,), (X[0],))
    with pytest.raises(TypeError, match="dtypes must be equal"):
        sj.jvp(lambda x: x, (X,), (X.astype("f4"),))
    with pytest.raises(TypeError, match="must be tuples or lists"):
        sj.jvp(lambda x: x, X, X)
    _, pull = sj.vjp(lambda x: (x, x), X)
    with pytest.raises(ValueError, match="unexpected tree structure"):
        pull(X)
    with pytest.raises(ValueError, match="unexpected type"):
        pull((X, X[0]))


def test_cotangents_in_other_formats_are_sampled():
    _out, pull = sj.vjp(lambda A: A * 3.0, A)
    for ct in (np.ones((4, 4)), np.zeros((4, 4)), sj.array(np.eye(4), format="coo")):
        (g,) = pull(ct)
        assert same_buffers(A, g)
        np.testing.assert_allclose(dense(g), 3 * dense(sj.array(ct)) * (dense(A) != 0))


def test_composition_with_jit():
    want = by_hand(A, X)
    step = sj.jit(sj.grad(loss, (0, 1)))
    for f in (step, sj.grad(sj.jit(loss), (0, 1)), sj.jit(sj.grad(sj.jit(loss), (0, 1)))):
        for got, w in zip(f(A, X), want, strict=True):
            np.testing.assert_allclose(dense(got), w)
    assert same_buffers(A, step(A, X)[0])


def test_nesting():
    def f(x):
        return snp.exp(x) * snp.sin(x)

    g = f
    for k in range(4):
        g = sj.grad(g)
        want = np.exp(0.3) * 2 ** ((k + 1) / 2) * np.sin(0.3 + (k + 1) * np.pi / 4)
        np.testing.assert_allclose(g(0.3), want)
    mixed = sj.jit(sj.grad(lambda x: sj.jvp(sj.jit(sj.grad(f)), (x,), (1.0,))[1]))
    np.testing.assert_allclose(mixed(0.3), np.exp(0.3) * 2**1.5 * np.sin(0.3 + 3 * np.pi / 4))


def test_perturbations_are_not_confused():
    np.testing.assert_allclose(sj.grad(lambda x: x * sj.grad(lambda y: x + y)(1.0))(1.0), 1.0)
    np.testing.assert_allclose(sj.grad(lambda x: sj.grad(lambda y: x * y * y)(2.0) * x)(3.0), 24.0)


def test_hessian_vector_products():
    f = lambda A: (snp.sin(A) * A).sum() + (A @ A).sum()  # noqa: E731
    t = direction(RNG, A)
    forward_over_reverse = sj.jvp(sj.grad(f), (A,), (t,))[1]
    reverse_over_reverse = sj.grad(lambda A: (sj.grad(f)(A) * t).sum())(A)
    np.testing.assert_allclose(dense(forward_over_reverse), dense(reverse_over_reverse), rtol=1e-12)
    assert same_buffers(A, reverse_over_reverse)


def test_jacobians():
    M = RNG.random((3, 4))
    for jac in (sj.jacfwd, sj.jacrev):
        np.testing.assert_allclose(jac(lambda x: snp.sin(M @ x))(X[:, 0]), np.cos(M @ X[:, 0])[:, None] * M)
        J = jac(lambda A: A @ X[:, 0])(A)
        assert str(J.format) == "(d,d,c)@(0,1,2)" and J.nnz == 4 * A.nnz
        np.testing.assert_allclose(J.todense(), want_jacobian())
        both = jac(lambda x, y: {"s": x * y}, (0, 1))(X[0], X[1])["s"]
        np.testing.assert_allclose(both[0], np.diag(X[1]))
        np.testing.assert_allclose(both[1], np.diag(X[0]))
    H = sj.hessian(lambda A: (A * A * A).sum())(A)
    assert H.nnz == A.nnz**2 and H.shape == (4, 4, 4, 4)
    np.testing.assert_allclose(H.todense().reshape(16, 16), np.diag(6 * dense(A).ravel()))
    np.testing.assert_allclose(sj.jit(sj.hessian(lambda x: (x * x * x).sum()))(X[0]), np.diag(6 * X[0]))


def want_jacobian():
    """d (A x)[i] / d A[k,l] = [i = k] x[l] where A stores k, l."""
    return np.einsum("ik,kl,l->ikl", np.eye(4), dense(A) != 0, X[:, 0])


@pytest.mark.rotating(5)
@pytest.mark.parametrize("form", ["rle", "(d,n)", "csr", "ell", "groupcoo:2"])
def test_jacobians_by_arrays_in_other_formats(form):
    """Runs of equal values, and duplicates, can only be the last level."""
    A = array(np.random.default_rng(0), (3, 4), form)
    B = A.asformat("csr")
    for make, f in [
        (sj.jacfwd, lambda A: A * A),
        (sj.jacrev, lambda A: A * A),
        (sj.hessian, lambda A: (A.T @ A * A.sum()).sum()),
    ]:
        np.testing.assert_allclose(dense(make(f)(A)), dense(make(f)(B)), rtol=1e-12, err_msg=make.__name__)


def test_linearize():
    _y, linear = sj.linearize(loss, A, X)
    t, s = direction(RNG, A), RNG.random(X.shape)
    np.testing.assert_allclose(linear(t, s), sj.jvp(loss, (A, X), (t, s))[1])
    np.testing.assert_allclose(linear(t, 0 * s) + linear(0.0 * t, s), linear(t, s))
    with pytest.raises(TypeError, match="structure"):
        linear(t)


def test_stop_gradient():
    np.testing.assert_allclose(sj.grad(lambda x: x * sj.stop_gradient(x * x))(3.0), 9.0)
    g = sj.grad(lambda A: (sj.stop_gradient({"a": A})["a"] * A).sum())(A)
    np.testing.assert_allclose(dense(g), dense(A))


def test_custom_jvp():
    @sj.custom_jvp
    def f(x, y):
        return snp.sin(x) * y

    with pytest.raises(AttributeError, match="No JVP defined"):
        sj.grad(f)(1.0, 2.0)
    f.defjvps(lambda t, out, x, y: 10 * t, None)
    np.testing.assert_allclose(sj.grad(f, (0, 1))(1.0, 2.0), (10.0, 0.0))
    np.testing.assert_allclose(sj.jit(f)(1.0, 2.0), f(1.0, 2.0))
    np.testing.assert_allclose(sj.jit(sj.grad(sj.jit(f)))(1.0, 2.0), 10.0)
    np.testing.assert_allclose(sj.jvp(f, (1.0, 2.0), (3.0, 0.0))[1], 30.0)

    @sj.custom_jvp
    def g(x):
        return snp.sin(x), {"square": x * x}

    @g.defjvp
    def _(primals, tangents):
        (x,), (t,) = primals, tangents
        return g(x), (5 * t, {"square": x * t})

    np.testing.assert_allclose(sj.grad(lambda x: g(x)[0] + g(x)[1]["square"])(2.0), 7.0)
    np.testing.assert_allclose(sj.grad(sj.grad(lambda x: g(x)[1]["square"]))(2.0), 1.0)


def test_custom_vjp():
    calls = []

    @sj.custom_vjp
    def clipped(A, x):
        return A @ x

    def bwd(residuals, ct):
        calls.append(1)
        A, x = residuals
        return sj.vjp(lambda A: A @ x, A)[1](snp.clip(ct, -1, 1))[0], None

    clipped.defvjp(lambda A, x: (A @ x, (A, x)), bwd)
    x = X[:, 0]
    g = sj.grad(lambda A, x: (clipped(A, x) * np.array([5.0, 0.5, -3, 0])).sum(), (0, 1))(A, x)
    assert same_buffers(A, g[0]) and calls
    np.testing.assert_allclose(dense(g[0]), np.outer([1, 0.5, -1, 0], x) * (dense(A) != 0))
    np.testing.assert_array_equal(g[1], np.zeros(4))
    with pytest.raises(TypeError, match="can't apply forward-mode"):
        sj.jvp(clipped, (A, x), (A, x))
    np.testing.assert_allclose(sj.jit(clipped)(A, x), dense(A) @ x)


def test_cotangents_of_custom_functions_have_the_shapes_of_arguments():
    @sj.custom_vjp
    def double(x):
        return x * 2

    double.defvjp(lambda x: (x * 2, None), lambda residuals, ct: (ct[:2],))
    with pytest.raises(ValueError, match=r"rule for function double .* shape \(2,\) for an argument of shape \(3,\)"):
        sj.grad(lambda x: double(x).sum())(np.ones(3))


def test_static_arguments_of_custom_functions():
    @sj.custom_vjp
    def f(x):
        return x * 2

    f.defvjp(lambda x: (x * 2, None), lambda residuals, ct: (ct * 7,))
    np.testing.assert_allclose(sj.grad(lambda x: f(x) + sj.jit(f)(x))(1.0), 14.0)


def test_ties_go_to_the_first():
    x = np.array([1.0, 3.0, 3.0])
    np.testing.assert_array_equal(sj.grad(lambda x: x.max())(x), [0, 1, 0])
    np.testing.assert_array_equal(sj.grad(lambda x: snp.maximum(x, 3.0).sum())(x), [0, 1, 1])
    S = sj.array(np.array([[2.0, 0, 2.0], [0, 0, -1.0]]), format="csr")
    np.testing.assert_array_equal(dense(sj.grad(lambda S: S.max(axis=1).sum())(S)), [[1, 0, 0], [0, 0, 0]])


def test_products_with_zeros():
    for x in ([2.0, 3, 4], [2.0, 0, 4], [0.0, 0, 4], [0.0, 0, 0]):
        x = np.array(x)
        want = np.array([np.prod(np.delete(x, k)) for k in range(3)])
        np.testing.assert_allclose(sj.grad(snp.prod)(x), want)
        second = [[0 if i == j else np.prod(np.delete(x, [i, j])) for i in range(3)] for j in range(3)]
        np.testing.assert_allclose(sj.hessian(snp.prod)(x), second)


def test_gcn_by_hand():
    """Two layers and cross entropy; all gradients against NumPy's."""
    rng = np.random.default_rng(3)
    adjacency = sj.array(sp.random_array((12, 12), density=0.3, rng=rng, format="csr"))
    H, W1, W2 = rng.random((12, 5)), rng.standard_normal((5, 4)), rng.standard_normal((4, 3))
    labels = np.eye(3)[rng.integers(0, 3, 12)]

    def network(A, W1, W2):
        logits = A @ (snp.maximum(A @ (H @ W1), 0) @ W2)
        shifted = logits - logits.max(axis=1, keepdims=True)
        return -((shifted - snp.log(snp.exp(shifted).sum(axis=1, keepdims=True))) * labels).sum() / 12

    gA, g1, g2 = sj.jit(sj.grad(network, (0, 1, 2)))(adjacency, W1, W2)
    D = dense(adjacency)
    U = D @ (H @ W1)
    Z = np.maximum(U, 0)
    logits = D @ (Z @ W2)
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    back = (p / p.sum(axis=1, keepdims=True) - labels) / 12
    dZW = D.T @ back
    dU = (dZW @ W2.T) * (U >= 0)
    np.testing.assert_allclose(g2, Z.T @ dZW, rtol=1e-10)
    np.testing.assert_allclose(g1, H.T @ (D.T @ dU), rtol=1e-10)
    np.testing.assert_allclose(dense(gA), (back @ (Z @ W2).T + dU @ (H @ W1).T) * (D != 0), rtol=1e-10)
    assert same_buffers(adjacency, gA)
