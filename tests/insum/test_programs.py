"""What people write with `sj.insum`, each against plain NumPy: neighbour lists, meshes, edges, tokens, histograms, groups, images, paths."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp

pytestmark = pytest.mark.rotating(12)


@pytest.fixture
def rng():
    return np.random.default_rng(1)


def d(x):
    return x.todense() if hasattr(x, "todense") else np.asarray(x)


def eq(made, wanted):
    np.testing.assert_allclose(d(made), d(wanted), rtol=1e-6, atol=1e-9)


def both(function, *operands):
    """The result at once, which is that under `jit`."""
    made = function(*operands)
    eq(sj.jit(function)(*operands), made)
    return made


def test_histogram(rng):
    b = rng.integers(0, 10, 100)
    eq(both(lambda b: sj.insum("h[b[n]] += 1", h=np.zeros(10, int), b=b), b), np.bincount(b, minlength=10))


def test_histogram2d(rng):
    a, b = rng.integers(0, 4, 100), rng.integers(0, 5, 100)
    want = np.zeros((4, 5), int)
    np.add.at(want, (a, b), 1)
    eq(both(lambda a, b: sj.insum("h[a[n],b[n]] += 1", h=snp.zeros((4, 5), int), a=a, b=b), a, b), want)


def test_weighted_bincount(rng):
    b = rng.integers(0, 10, 100).astype(np.uint8)
    w = rng.random(100, np.float32)
    eq(both(lambda b, w: sj.insum("h[b[n]] += w[n]", h=np.zeros(10), b=b, w=w), b, w), np.bincount(b, w, 10))


def test_neighbour_forces(rng):
    x = rng.random((20, 3))
    I = rng.integers(0, 20, 60)
    J = rng.integers(0, 20, 60)

    def f(x):
        return sj.insum(
            "r[e,c] = x[J[e],c] - x[I[e],c]\nq[e] = r[e,c]*r[e,c]\nF[I[e],c] += r[e,c]/(q[e]+0.1)",
            F=snp.zeros((20, 3)),
            x=x,
            I=I,
            J=J,
        )

    r = x[J] - x[I]
    want = np.zeros((20, 3))
    np.add.at(want, I, r / ((r**2).sum(1)[:, None] + 0.1))
    eq(both(f, x), want)
    g = sj.grad(lambda x: (f(x) ** 2).sum())(x)
    assert np.isfinite(d(g)).all()


def test_neighbour_padded(rng):
    N = rng.integers(-1, 20, (20, 6))
    x = rng.random((20, 3))
    got = sj.insum("s[i,c] = x[N[i,k],c]*M[i,k]", N=N, M=(N >= 0), x=x)
    eq(got, (x[N] * (N >= 0)[..., None]).sum(1))


def test_neighbour_mask_fn(rng):
    N = rng.integers(-1, 20, (20, 6))
    x = rng.random((20, 3))
    got = sj.insum("s[i,c] = where(greater_equal(N[i,k],0), x[N[i,k],c], 0)", N=N, x=x)
    eq(got, np.where((N >= 0)[..., None], x[N], 0).sum(1))


def test_fem_assembly(rng):
    T = rng.integers(0, 15, (25, 3))
    Ke = rng.random((25, 3, 3))
    want = np.zeros((15, 15))
    for e in range(25):
        for a in range(3):
            for b in range(3):
                want[T[e, a], T[e, b]] += Ke[e, a, b]
    eq(both(lambda Ke: sj.insum("K[T[e,a],T[e,b]] += Ke[e,a,b]", K=snp.zeros((15, 15)), T=T, Ke=Ke), Ke), want)
    S = sj.insum("K[T[e,a],T[e,b]] += Ke[e,a,b]", K=sj.array(sp.csr_array((15, 15))), T=T, Ke=Ke)
    assert S.format == sj.formats.Format.parse("csr", 2)
    eq(S, want)
    assert S.nnz == len({(i, j) for t in T for i in t for j in t})


def test_fem_load(rng):
    T = rng.integers(0, 15, (25, 3))
    area = rng.random(25)
    f = rng.random(15)
    want = np.zeros(15)
    np.add.at(want, T.ravel(), np.repeat(area * f[T].sum(1) / 9, 3))
    eq(sj.insum("b[T[e,a]] += area[e]*f[T[e,k]]/9", b=np.zeros(15), T=T, area=area, f=f), want)


def test_fem_geometry(rng):
    T = rng.integers(0, 15, (25, 3))
    X = rng.random((15, 2))
    eq(
        sj.insum(
            "A[e] = (X[T[e,1],0]-X[T[e,0],0])*(X[T[e,2],1]-X[T[e,0],1])-(X[T[e,2],0]-X[T[e,0],0])*(X[T[e,1],1]-X[T[e,0],1])",
            T=T,
            X=X,
        ),
        np.linalg.det(np.stack([X[T[:, 1]] - X[T[:, 0]], X[T[:, 2]] - X[T[:, 0]]], 1)),
    )


def test_edge_attention(rng):
    src, dst = rng.integers(0, 9, 40), rng.integers(0, 9, 40)
    Q, K, V = rng.random((3, 9, 2, 4))

    def f(Q, K, V):
        s = sj.insum("s[e,h] = Q[dst[e],h,c]*K[src[e],h,c]", Q=Q, K=K, src=src, dst=dst)
        return sj.insum(
            "m[dst[e],h] max= s[e,h]\nw[e,h] = exp(s[e,h]-m[dst[e],h])\nz[dst[e],h] += w[e,h]\no[dst[e],h,c] += w[e,h]/z[dst[e],h]*V[src[e],h,c]",
            s=s,
            m=snp.full((9, 2), -np.inf),
            z=snp.zeros((9, 2)),
            o=snp.zeros((9, 2, 4)),
            V=V,
            src=src,
            dst=dst,
        )

    s = (Q[dst] * K[src]).sum(-1)
    m = np.full((9, 2), -np.inf)
    np.maximum.at(m, dst, s)
    w = np.exp(s - m[dst])
    z = np.zeros((9, 2))
    np.add.at(z, dst, w)
    o = np.zeros((9, 2, 4))
    np.add.at(o, dst, (w / z[dst])[..., None] * V[src])
    eq(both(f, Q, K, V), o)
    g = sj.grad(lambda Q: f(Q, K, V).sum())(Q)
    assert np.isfinite(d(g)).all()


def test_embedding_bag(rng):
    E = rng.random((10, 4))
    tok = rng.integers(0, 10, 30)
    bag = np.sort(rng.integers(0, 5, 30))
    want = np.zeros((5, 4))
    np.add.at(want, bag, E[tok])
    eq(both(lambda E: sj.insum("o[bag[t],c] += E[tok[t],c]", o=snp.zeros((5, 4)), bag=bag, tok=tok, E=E), E), want)
    g = sj.grad(
        lambda E: (sj.insum("o[bag[t],c] += E[tok[t],c]", o=snp.zeros((5, 4)), bag=bag, tok=tok, E=E) ** 2).sum()
    )(E)
    wg = np.zeros((10, 4))
    np.add.at(wg, tok, 2 * want[bag])
    eq(g, wg)


def test_embedding_batch(rng):
    E = rng.random((10, 4))
    tok = rng.integers(0, 10, (3, 7))
    eq(both(lambda E, t: sj.insum("o[b,t,c] = E[tok[b,t],c]", tok=t, E=E), E, tok), E[tok])
    eq(sj.vmap(lambda t: sj.insum("o[t,c] = E[tok[t],c]", tok=t, E=E))(tok), E[tok])


def test_permutation(rng):
    p = rng.permutation(12)
    x = rng.random((12, 3))
    eq(sj.insum("y[p[i],c] = x[i,c]", y=np.zeros((12, 3)), p=p, x=x), x[np.argsort(p)])
    inv = sj.insum("q[p[i]] = i", q=np.zeros(12, int), p=p)
    eq(inv, np.argsort(p))
    A = sj.array(sp.random_array((12, 12), density=0.3, rng=rng), format="csr")
    eq(sj.insum("B[i,j] = A[p[i],p[j]]", A=A, p=p), d(A)[np.ix_(p, p)])


def test_masked_update(rng):
    x = rng.random(10)
    m = rng.random(10) < 0.5
    eq(sj.insum("x[i] = where(m[i], 0, y[i])", y=x, m=m, x=np.ones(10)), np.where(m, 0, x))
    eq(sj.insum("y[i] = x[i]*m[i]", x=x, m=m), x * m)


def test_take_along(rng):
    X = rng.random((4, 6))
    Y = rng.integers(0, 6, (4, 3))
    eq(both(lambda X, Y: sj.insum("Z[i,j]=X[i,Y[i,j]]", X=X, Y=Y), X, Y), np.take_along_axis(X, Y, 1))


def test_cross_entropy(rng):
    L = rng.random((8, 5))
    t = rng.integers(0, 5, 8)

    def f(L):
        return sj.insum("z[i] = exp(L[i,k])\nl[i] = log(z[i]) - L[i,t[i]]\nm += l[i]/8", L=L, t=t, m=0.0)

    want = (np.log(np.exp(L).sum(1)) - L[np.arange(8), t]).mean()
    eq(f(L), want)
    eq(both(f, L), want)
    sm = np.exp(L) / np.exp(L).sum(1, keepdims=True)
    sm[np.arange(8), t] -= 1
    eq(sj.grad(f)(L), sm / 8)


def test_sparse_conv(rng):
    n, c, m = 15, 3, 4
    N = np.where(rng.random((n, 9)) < 0.4, rng.integers(0, n, (n, 9)), -1)
    In = rng.random((n, c))
    W = rng.random((9, c, m))
    rows, cols = np.nonzero(N >= 0)
    S = sj.array((N[rows, cols], np.stack([rows, cols])), shape=(n, 9))
    want = np.zeros((n, m))
    for x, z in zip(rows, cols):
        want[x] += In[N[x, z]] @ W[z]

    def f(In, W):
        return sj.insum("Out[x,m] += In[N[x,z],c]*W[z,c,m]", Out=snp.zeros((n, m)), N=S, In=In, W=W)

    eq(both(f, In, W), want)

    def f(In, W):
        return sj.insum("Out[x,m] = In[N[x,z],c]*W[z,c,m]", N=S, In=In, W=W)

    eq(both(f, In, W), want)


def test_scan_pagerank(rng):
    src, dst = rng.integers(0, 9, 40), rng.integers(0, 9, 40)
    deg = np.bincount(src, minlength=9)

    def step(r, _):
        return (
            sj.insum(
                "n[dst[e]] += 0.85*r[src[e]]/deg[src[e]]", n=snp.full(9, 0.15 / 9), src=src, dst=dst, deg=deg, r=r
            ),
            None,
        )

    r, _ = sj.lax.scan(step, snp.full(9, 1 / 9), None, length=5)
    w = np.full(9, 1 / 9)
    for _ in range(5):
        n = np.full(9, 0.15 / 9)
        np.add.at(n, dst, 0.85 * w[src] / deg[src])
        w = n
    eq(r, w)


def test_bellman_ford(rng):
    src, dst, w = rng.integers(0, 9, 40), rng.integers(0, 9, 40), rng.random(40)
    dist = np.full(9, np.inf)
    dist[0] = 0
    got = sj.asarray(dist)
    want = dist.copy()
    for _ in range(4):
        got = sj.insum("d[dst[e]] min= d[src[e]]+w[e]", d=got, src=src, dst=dst, w=w)
        new = want.copy()
        np.minimum.at(new, dst, want[src] + w)
        want = new
    eq(got, want)


def test_bfs_bool(rng):
    src, dst = rng.integers(0, 9, 20), rng.integers(0, 9, 20)
    f = np.zeros(9, bool)
    f[0] = True
    got = sj.insum("n[dst[e]] += f[src[e]]", n=np.zeros(9, bool), f=f, src=src, dst=dst)
    want = np.zeros(9, bool)
    np.logical_or.at(want, dst, f[src])
    eq(got, want)
    assert got.dtype == bool


def test_interpolation(rng):
    t = rng.random(20) * 8
    i = np.floor(t).astype(int)
    y = rng.random(10)
    w = t - i
    eq(sj.insum("o[n] = y[i[n]]*(1-w[n]) + y[j[n]]*w[n]", y=y, i=i, j=i + 1, w=w), np.interp(t, np.arange(10), y))


def test_bilinear(rng):
    img = rng.random((6, 7))
    i, j = rng.integers(0, 5, 9), rng.integers(0, 6, 9)
    eq(sj.insum("o[n] = img[i[n],j[n]]*img[k[n],j[n]]", img=img, i=i, j=j, k=i + 1), img[i, j] * img[i + 1, j])


def test_csr_spmv_arrays(rng):
    A = sp.random_array((10, 8), density=0.3, format="coo", rng=rng)
    x = rng.random(8)
    eq(sj.insum("y[R[p]] += V[p]*x[K[p]]", y=np.zeros(10), R=A.coords[0], K=A.coords[1], V=A.data, x=x), A @ x)


def test_sddmm(rng):
    A = sp.random_array((10, 8), density=0.3, format="coo", rng=rng)
    U, V = rng.random((10, 3)), rng.random((8, 3))
    eq(sj.insum("s[p] = U[R[p],k]*V[K[p],k]", R=A.coords[0], K=A.coords[1], U=U, V=V), (U @ V.T)[A.coords])


def test_group_stats(rng):
    g = rng.integers(0, 4, 30)
    x = rng.random(30)
    _n, _s, m = sj.insum(
        "n[g[p]] += 1\ns[g[p]] += x[p]\nm[k] = s[k]/n[k]",
        g=g,
        x=x,
        n=np.zeros(4),
        s=np.zeros(4),
        returns=("n", "s", "m"),
    )
    eq(m, np.bincount(g, x, 4) / np.bincount(g, minlength=4))
    var = sj.insum("v[g[p]] += (x[p]-m[g[p]])*(x[p]-m[g[p]])", v=np.zeros(4), g=g, x=x, m=m)
    eq(var, [((x[g == k] - x[g == k].mean()) ** 2).sum() for k in range(4)])


def test_group_prod(rng):
    g = rng.integers(0, 4, 30)
    x = rng.random(30)
    eq(sj.insum("v[g[p]] *= x[p]", v=np.ones(4), g=g, x=x), [x[g == k].prod() for k in range(4)])
    gr = sj.grad(lambda x: sj.insum("v[g[p]] *= x[p]", v=np.ones(4), g=g, x=x).sum())(x)
    eq(gr, [x[g == g[p]].prod() / x[p] for p in range(30)])


def test_trace_diag(rng):
    A = sj.array(sp.random_array((6, 6), density=0.5, rng=rng), format="csr")
    eq(sj.insum("t = A[i,i]", A=A), np.trace(d(A)))
    eq(sj.insum("t += A[i,i]", t=2.0, A=A), np.trace(d(A)) + 2)


def test_sparse_lookup(rng):
    A = sp.random_array((10, 8), density=0.3, format="csr", rng=rng)
    I, J = rng.integers(0, 10, 20), rng.integers(-8, 8, 20)
    S = sj.asarray(A)
    D = A.toarray()
    eq(both(lambda S: S[I, J], S), D[I, J])
    eq(both(lambda S: sj.insum("v[p] = A[I[p],J[p]]", A=S, I=I, J=J), S), D[I, J])
    eq(
        sj.grad(lambda S: (sj.insum("v[p] = A[I[p],J[p]]", A=S, I=I, J=J) ** 2).sum())(S),
        np.where(D != 0, 2 * D * np.array([[((i == I) & (j == J % 8)).sum() for j in range(8)] for i in range(10)]), 0),
    )


def test_triangles(rng):
    E = np.array([[0, 1], [1, 2], [0, 2], [2, 3]])
    A = np.zeros((4, 4))
    A[E[:, 0], E[:, 1]] = A[E[:, 1], E[:, 0]] = 1
    S = sj.array(A, format="csr")
    eq(sj.insum("t = A[E[e,0],k]*A[k,E[e,1]]", A=S, E=E), sum((A[a] * A[:, b]).sum() for a, b in E))


def test_coo_to_dense_block(rng):
    eq(
        sj.insum(
            "y[R[p],i,n] += V[p,i,j]*B[K[p],j,n]",
            y=np.zeros((3, 2, 4)),
            R=np.array([0, 2, 2]),
            K=np.array([1, 0, 1]),
            V=np.ones((3, 2, 2)),
            B=np.ones((2, 2, 4)),
        ),
        np.array([2, 0, 4.0])[:, None, None] * np.ones((3, 2, 4)),
    )


def test_argmax_onehot(rng):
    t = rng.integers(0, 5, 8)
    eq(sj.insum("o[i,t[i]] = 1", o=np.zeros((8, 5)), t=t), np.eye(5)[t])


def test_moving_target_vmap(rng):
    x = rng.random((3, 10))
    g = rng.integers(0, 4, (3, 10))
    got = sj.vmap(lambda x, g: sj.insum("v[g[p]] += x[p]", v=snp.zeros(4), g=g, x=x))(x, g)
    eq(got, [np.bincount(a, b, 4) for a, b in zip(g, x)])


def test_hessian_pairs(rng):
    I, J = rng.integers(0, 5, 8), rng.integers(0, 5, 8)
    k = rng.random(8)

    def f(x):
        return sj.insum("E += k[e]*(x[I[e]]-x[J[e]])*(x[I[e]]-x[J[e]])", E=0.0, k=k, x=x, I=I, J=J)

    L = np.zeros((5, 5))
    for a, b, w in zip(I, J, k):
        L[a, a] += 2 * w
        L[b, b] += 2 * w
        L[a, b] -= 2 * w
        L[b, a] -= 2 * w
    eq(sj.hessian(f)(rng.random(5)), L)


def test_complex_gather(rng):
    z = rng.random(6) + 1j * rng.random(6)
    i = rng.integers(0, 6, 10)
    eq(sj.insum("y[p] = conj(z[i[p]])*z[p2[p]]", z=z, i=i, p2=i[::-1].copy()), z[i].conj() * z[i[::-1]])


def test_dedup_positions(rng):
    ids = rng.integers(0, 20, 50)
    first = sj.insum("f[ids[p]] min= p", f=np.full(20, 99), ids=ids)
    w = np.full(20, 99)
    np.minimum.at(w, ids, np.arange(50))
    eq(first, w)


def test_shape_change(rng):
    f = sj.jit(lambda E, t: sj.insum("o[t,c] = E[tok[t],c]", tok=t, E=E))
    for n in (3, 7, 11):
        E = rng.random((n, 4))
        t = rng.integers(-n, n, 2 * n)
        eq(f(E, t), E[t])
    g = sj.jit(lambda A, i, j: A[i, j])
    for n in (5, 9, 20):
        A = sj.array(sp.random_array((n, n), density=0.3, rng=rng), format="csr")
        i, j = rng.integers(0, n, 2 * n), rng.integers(0, n, 2 * n)
        eq(g(A, i, j), d(A)[i, j])
    h = sj.jit(lambda A, i, v: A.at[i].set(v))
    for n in (5, 9, 20):
        A = sj.array(sp.random_array((n, n), density=0.3, rng=rng), format="csr")
        i = rng.integers(0, n, 3)
        v = rng.random((3, n))
        w = d(A).copy()
        w[i] = v
        eq(h(A, i, v), w)
    h = sj.jit(lambda A, i, v: A.at[i].set(v))
    for n in (5, 9, 20):
        A = rng.random((n, n))
        i = rng.integers(0, n, n + 3)
        v = rng.random((n + 3, n))
        w = A.copy()
        w[i] = v
        eq(h(A, i, v), w)
    pr = sj.jit(sj.grad(lambda v, R: sj.insum("C[R[p]] *= v[p]", C=snp.ones(4), R=R, v=v).sum()))
    for n in (5, 9, 20):
        R = rng.integers(0, 4, n)
        v = rng.random(n)
        eq(pr(v, R), [v[R[p] == R].prod() / v[p] for p in range(n)])
