"""Operands that are read in panels of rows, column by column, against NumPy: forced where they do not pay, and chosen where they do."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.formats import Format
from tests.fuzz import engine

COLUMNS = "panels=columns"
STATEMENTS = {
    "Out[x,m] = In[N[x,z],c] * W[z,c,m]": "add",
    "Out[x,m] += In[N[x,z],c] * W[z,c,m]": "add",
    "Out[m,x] += In[N[x,z],c] * W[z,c,m]": "transposed",
    "Out[x,m] max= In[N[x,z],c] * W[z,c,m]": "maximum",
}
FORMS = ("coo", "csr", "csc", "dcsr", "groupcoo:2")


def drawn(rng, dtype):
    """A map of neighbours in the order of rows and columns, and the operands of a convolution over it; few rows, or some panels of them."""
    rows, offsets, inner, outer = (
        int(n) for n in (rng.integers(8, 50), rng.integers(1, 5), rng.integers(1, 5), rng.integers(1, 40))
    )
    stored = rng.random((rows, offsets)) < rng.choice((0.1, 0.6, 1.0))
    names = rng.integers(0, rows, stored.shape)
    In, W = (rng.integers(-3, 4, shape).astype(dtype) for shape in ((rows, inner), (offsets, inner, outer)))
    return stored, names, In, W


def products(rows, W, z):
    """Every row times its own matrix: `rows[p] @ W[z[p]]`."""
    made = np.empty((len(rows), W.shape[2]), np.result_type(rows, W))
    for k in range(len(W)):
        made[z == k] = rows[z == k] @ W[k]
    return made


def expected(how, out, stored, names, In, W):
    x, z = np.nonzero(stored)
    terms = products(In[names[x, z]], W, z)
    if how == "maximum":
        terms = In[names[x, z]][:, :, None] * W[z]
        for k in range(terms.shape[1]):
            np.maximum.at(out, x, terms[:, k])
        return out
    target = out.T if how == "transposed" else out
    np.add.at(target, x, terms)
    return out


@pytest.mark.rotating(2)
@pytest.mark.parametrize("text", STATEMENTS)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "c16"])
def test_statements_in_panels(text, dtype):
    rng, how = np.random.default_rng(len(text)), STATEMENTS[text]
    if how == "maximum" and dtype == "c16":
        return
    tiled = 0
    for form in FORMS:
        stored, names, In, W = drawn(rng, dtype)
        out = (
            np.zeros((len(In), W.shape[2]), dtype)
            if " = " in text
            else rng.integers(-3, 4, (len(In), W.shape[2])).astype(dtype)
        )
        out = np.ascontiguousarray(out.T) if how == "transposed" else out
        N = sj.array((names[stored], np.nonzero(stored)), shape=stored.shape).asformat(form)
        given = {} if " = " in text else {"Out": out}
        with engine.quick(), sj.config.using(choose=COLUMNS):
            f = sj.jit(lambda N, In, W, **given: sj.insum(text, N=N, In=In, W=W, **given))
            made = f(N, In, W, **given)
            tiled += "row_tiles" in f.lower(N, In, W, **given).as_text("cin")
        np.testing.assert_array_equal(made.todense(), expected(how, out.copy(), stored, names, In, W), err_msg=form)
    assert tiled or how == "transposed"


@pytest.mark.parametrize("shape", ["row_tiles", "entries"])
def test_values_of_the_operand_itself(shape):
    """What is in panels may be multiplied, and its rows read another operand."""
    rng = np.random.default_rng(3)
    for form in ("csr", "csc", "coo"):
        for rows in (8, 33, 100):
            S = rng.integers(-3, 4, (rows, 4)) * (rng.random((rows, 4)) < 0.5).astype(float)
            H, W = rng.integers(-3, 4, (rows, 3)).astype(float), rng.integers(-3, 4, (4, 3, 17)).astype(float)
            with engine.quick(), sj.config.using(choose=f"{COLUMNS},loop_shape={shape}"):
                made = sj.jit(lambda S, H, W: sj.einsum("ik,il,klj->ij", S, H, W))(sj.array(S, format=form), H, W)
            np.testing.assert_array_equal(made.todense(), np.einsum("ik,il,klj->ij", S, H, W))


def convolution(rows, offsets, channels):
    rng = np.random.default_rng(5)
    stored = rng.random((rows, offsets)) < 0.5
    names = rng.integers(0, rows, stored.shape)
    N = sj.array((names[stored], np.nonzero(stored)), shape=stored.shape)
    In = rng.standard_normal((rows, channels)).astype("f4")
    return N, In, rng.standard_normal((offsets, channels, channels)).astype("f4"), stored, names


ADDED = "Out[x,m] += In[N[x,z],c] * W[z,c,m]"
TEXT = "Out[x,m] = In[N[x,z],c] * W[z,c,m]"


def test_long_index_arrays_that_lead_to_large_matrices_are_read_in_panels():
    N, In, W, stored, names = convolution(4000, 9, 128)
    f = sj.jit(lambda N, In, W: sj.insum(ADDED, N=N, In=In, W=W, Out=snp.zeros((4000, 128), "f4")))
    with sj.config.using(machine="zen4"):
        made = f(N, In, W).todense()
        assert "is converted to (d,d,c)@(0,1,0)/(512,1) first" in f.lower(N, In, W).as_text("plan")
        assert "in panels of rows, column by column" in str(sj.explain(f)(N, In, W))
    want = expected("add", np.zeros((4000, 128), "f4"), stored, names, In, W)
    np.testing.assert_allclose(made, want, rtol=1e-4, atol=1e-3)
    kept = [form for form in N.storage.cache["converted"] if form.blocked]  # the next call finds it
    assert kept == [Format.parse("(d,d,c)@(0,1,0)/(512,1)", 2)]


def test_bits_in_panels_are_the_same_for_any_number_of_threads():
    N, In, W, *_ = convolution(300, 5, 20)
    found = []
    for threads in (1, 2):
        with sj.config.using(choose=f"{COLUMNS},chunks=each", num_threads=threads):
            f = sj.jit(lambda N, In, W: sj.insum(ADDED, N=N, In=In, W=W, Out=snp.zeros((300, 20), "f4")))
            found.append(f(N, In, W).todense())
            assert "row_tiles" in f.lower(N, In, W).as_text("cin")
    np.testing.assert_array_equal(*found)


def test_derivatives_in_panels():
    N, In, W, *_ = convolution(40, 3, 4)
    loss = lambda In, W: (sj.insum(TEXT, N=N, In=In, W=W) ** 2).sum()  # noqa: E731
    with engine.quick():
        plain = sj.grad(loss, (0, 1))(In, W)
        with sj.config.using(choose=COLUMNS):
            made = sj.grad(loss, (0, 1))(In, W)
    for x, y in zip(made, plain, strict=True):
        np.testing.assert_allclose(x.todense(), y.todense(), rtol=1e-4, atol=1e-3)


TOLD = {
    "Out[x,m] += In[N[x,z],c] * W[z,c,m]": (
        "gathered in place",
        "N is walked as it is stored: ",
        " ms in panels of rows",
    ),
    "Out[x,m] = In[N[x,z],c] * W[z,c,m]": ("gathered in place", "not in panels of rows: the result is sparse"),
    "Out[X[p],m] += In[P[p],c] * W[Z[p],c,m]": (
        "gathered in place",
        "sorted by the rows of the result and by what they share",
    ),
    "Out[X[p],m] += W[Z[p],1,m]": ("gathered in place", "no sparse operands are walked"),
    "Y[p] = In[P[p],c] * In[X[p],c]": ("gathered in place", "no sparse operands are walked"),
    "Y[p,c] = In[P[p],c]": ("is copied, at ", "not in place, because it is the result itself"),
}


@pytest.mark.parametrize("text", TOLD)
def test_explain_says_how_gathers_are_read_and_why(text):
    rng = np.random.default_rng(1)
    stored = rng.random((300, 3)) < 0.4
    names = rng.integers(0, 300, stored.shape)
    X, Z = np.nonzero(stored)
    given = {"X": X, "Z": Z, "P": names[stored], "N": sj.array((names[stored], (X, Z)), shape=stored.shape)}
    given |= {"In": rng.random((300, 5)), "W": rng.random((3, 5, 7)), "Out": np.zeros((300, 7))}
    used = {name: x for name, x in given.items() if f"{name}[" in text and not (name == "Out" and " = " in text)}
    told = str(sj.explain(sj.jit(lambda **used: sj.insum(text, **used)))(**used))
    for part in TOLD[text]:
        assert part.removeprefix("N ") in told, told
    if " += In[N" in text:
        with sj.config.using(choose=COLUMNS):
            told = str(sj.explain(sj.jit(lambda **used: sj.insum(text, **used)))(**used))
        assert "is copied in panels of 64 rows" in told or "is copied in panels of 128 rows" in told, told


@pytest.mark.rotating(2)
@pytest.mark.parametrize("text", [t for t in STATEMENTS if " += " not in t])
@pytest.mark.parametrize("dtype", ["f4", "i8", "c16"])
def test_rows_that_are_stored_are_summed_in_a_dense_array(text, dtype):
    """The same entries and the same bits as of rows that are appended, zeros that are stored included, in panels and without."""
    rng, reached = np.random.default_rng(len(text)), 0
    if "max" in text and dtype == "c16":
        return
    for form in FORMS:
        stored, names, In, W = drawn(rng, dtype)
        N = sj.array((names[stored], np.nonzero(stored)), shape=stored.shape).asformat(form)

        def made(choose, N=N, In=In, W=W):
            with engine.quick(), sj.config.using(choose=choose):
                f = sj.jit(lambda N, In, W: sj.insum(text, N=N, In=In, W=W))
                return f(N, In, W), str(sj.explain(f)(N, In, W))

        whole, _ = made("row_sums=stored")
        for choose in ("row_sums=dense", f"row_sums=dense,{COLUMNS}"):
            apart, told = made(choose)
            reached += "rows are summed in a dense array" in told
            assert apart.aval == whole.aval
            np.testing.assert_array_equal(apart.storage.vals, whole.storage.vals)
            for one, other in zip(apart.storage.buffers, whole.storage.buffers, strict=True):
                assert all(map(np.array_equal, one, other))
    assert reached


PAIRS = {
    "Out[X[p],m] += In[Y[p],c] * W[Z[p],c,m]": "pc,pcm->pm",
    "Out[m,X[p]] += In[Y[p],c] * W[Z[p],c,m]": "pc,pcm->pm",
    "Out[X[p],m] += V[p] * In[Y[p],c] * W[Z[p],c,m]": "p,pc,pcm->pm",
    "Out[X[p],m] += In[Y[p],c] * V[p] * W[Z[p],m,c] * V[Y[p]]": "p,pc,pmc,p->pm",
    "Out[X[p],m] += V[Z[p]] * In[p,c] * W[Z[p],c,m]": "p,pc,pcm->pm",
    "Out[X[p],m,d] += In[Y[p],c] * D[X[p],d] * W[Z[p],c,m]": "pc,pd,pcm->pmd",
}


@pytest.mark.rotating(2)
@pytest.mark.parametrize("text", PAIRS)
@pytest.mark.parametrize("dtype", ["f4", "i8", "c16"])
@pytest.mark.parametrize("shape", ["row_tiles", "entries"])
def test_pairs_of_index_arrays_in_panels(text, dtype, shape):
    """Every pair is met once, however often it is there; rows that nothing names stay as they are."""
    rng, tiled = np.random.default_rng(len(text)), 0
    for rows, count in ((40, 300), (17, 60), (130, 90), (16, 16), (25, 1)):
        inner, outer, offsets = (int(n) for n in (rng.integers(1, 5), rng.integers(1, 40), rng.integers(1, 4)))
        X, Y, Z = (rng.integers(0, n, count) for n in (rows, min(rows, count), offsets))
        X = np.sort(X) if rng.random() < 0.5 else X
        numbers = lambda *shape: rng.integers(-3, 4, shape).astype(dtype)  # noqa: E731
        In, D = numbers(count if "In[p" in text else rows, inner), numbers(rows, 2)
        V = numbers(offsets if "V[Z" in text else count)
        W = numbers(offsets, outer, inner) if "W[Z[p],m,c]" in text else numbers(offsets, inner, outer)
        shape_of = {"Out[X[p],m]": (rows, outer), "Out[m,X[p]]": (outer, rows), "Out[X[p],m,d]": (rows, outer, 2)}
        start = numbers(*shape_of[text.split(" ")[0]])
        given = {"X": X, "Y": Y, "Z": Z, "In": In, "W": W, "D": D, "V": V}
        used = {name: x for name, x in given.items() if f"{name}[" in text}
        place = {"p": np.arange(count), "Y[p]": Y, "X[p]": X, "Z[p]": Z}
        read = [t.strip() for t in text.split("+=")[1].split("*")]
        gathered = [given[t[: t.index("[")]][place[t[t.index("[") + 1 : -1].split(",")[0]]] for t in read]
        order = ",".join("p" + "".join(v for v in t[t.index("[") + 1 : -1].split(",")[1:]) for t in read)
        terms = np.einsum(f"{order}->{PAIRS[text].split('->')[1]}", *gathered)
        want = start.copy()
        np.add.at(want.T if "[m,X" in text else want, X, terms)
        with engine.quick(), sj.config.using(choose=f"targets=pairs,{COLUMNS},loop_shape={shape}"):
            f = sj.jit(lambda Out, **used: sj.insum(text, Out=Out, **used))
            made = f(start, **used)
            tiled += "row_tiles" in f.lower(start, **used).as_text("cin")
        np.testing.assert_array_equal(made.todense(), want)
    assert tiled or shape == "entries" or any(part in text for part in ("[m,X", ",d]", ",m,c]"))


@pytest.mark.parametrize("shape", ["row_tiles", "entries"])
def test_pairs_in_panels_multiply_nothing_that_they_do_not_name(shape):
    """A factor that is infinite is read for its own entry alone."""
    X, Y, Z = np.arange(40) % 36, np.arange(40), np.arange(40) % 2
    In, W, V = np.ones((40, 3)), np.ones((2, 3, 20)), np.where(np.arange(40) == 7, np.inf, 1.0)
    text = "Out[X[p],m] += V[p] * In[Y[p],c] * W[Z[p],c,m]"
    with engine.quick(), sj.config.using(choose=f"targets=pairs,{COLUMNS},loop_shape={shape}"):
        f = sj.jit(lambda **given: sj.insum(text, Out=snp.zeros((36, 20)), **given))
        made = f(X=X, Y=Y, Z=Z, In=In, W=W, V=V).todense()
    want = np.zeros((36, 20))
    np.add.at(want, X, np.repeat(3 * V[:, None], 20, axis=1))
    np.testing.assert_array_equal(made, want)


@pytest.mark.rotating(2)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "c16"])
@pytest.mark.parametrize("shape", ["row_tiles", "entries"])
@pytest.mark.parametrize("form", ["csf", "coo", "(d,q,q)@(0,1,2)", "(c,c,c)@(1,2,0)", "(d,d,c)@(1,0,2)"])
def test_selections_in_panels(dtype, shape, form):
    """An einsum with a sparse array of three dimensions: one sum, whose entries have two coordinates in a panel."""
    rng, tiled, flat = np.random.default_rng(7), 0, 0
    for rows, others, offsets, stored in ((40, 40, 3, 0.2), (17, 5, 2, 0.9), (130, 30, 1, 0.05), (16, 9, 4, 0.0)):
        inner, outer = int(rng.integers(1, 5)), int(rng.integers(1, 40))
        numbers = lambda *shape: rng.integers(-3, 4, shape).astype(dtype)  # noqa: E731
        S = numbers(rows, offsets, others) * (rng.random((rows, offsets, others)) < stored)
        In, W = numbers(others, inner), numbers(offsets, inner, outer)
        for text in ("xzy,yc,zcm->xm", "xzy,yc,zcm->mx"):
            with engine.quick(), sj.config.using(choose=f"sums_inside=one,{COLUMNS},loop_shape={shape}"):
                f = sj.jit(lambda S, In, W, text=text: sj.einsum(text, S, In, W))
                made = f(sj.array(S, format=form), In, W)
                told = f.lower(sj.array(S, format=form), In, W).as_text("cin")
                tiled, flat = tiled + ("row_tiles" in told), flat + ("(d,d,q,q)" in told)
            np.testing.assert_array_equal(made.todense(), np.einsum(text, S, In, W))
    assert tiled or shape == "entries", told


def test_long_lists_of_pairs_and_selections_are_read_in_panels():
    rng = np.random.default_rng(5)
    stored = rng.random((4000, 9)) < 0.5
    X, Z = np.nonzero(stored)
    Y = rng.integers(0, 4000, len(X))
    In, W = rng.standard_normal((4000, 128)).astype("f4"), rng.standard_normal((9, 128, 128)).astype("f4")
    S = sj.array((np.ones(len(X), "f4"), (X, Z, Y)), shape=(4000, 9, 4000), format="csf")
    zeros = np.zeros((4000, 128), "f4")
    pairs = sj.jit(lambda X, Y, Z, In, W, Out: sj.insum(next(iter(PAIRS)), X=X, Y=Y, Z=Z, In=In, W=W, Out=Out))
    one = sj.jit(lambda S, In, W: sj.einsum("xzy,yc,zcm->xm", S, In, W))
    want, most = zeros.astype("f8"), zeros.astype("f8")
    np.add.at(want, X, products(In[Y].astype("f8"), W.astype("f8"), Z))
    np.add.at(most, X, products(abs(In[Y]).astype("f8"), abs(W).astype("f8"), Z))
    with sj.config.using(machine="zen4"):
        for f, given in ((pairs, (X, Y, Z, In, W, zeros)), (one, (S, In, W))):
            given = tuple(map(sj.array, given))
            made = f(*given).todense()
            assert (abs(made - want) <= 9 * 129 * np.finfo("f4").eps * most).all()
            told = str(sj.explain(f)(*given))
            assert "(d,d,q,q)@(0,1,0,2)" in told and "row_tiles" in f.lower(*given).as_text("cin"), told


def test_bits_of_pairs_in_panels_are_the_same_for_any_number_of_threads():
    rng = np.random.default_rng(6)
    X, Y, Z = (rng.integers(0, n, 900) for n in (300, 300, 5))
    In, W = rng.standard_normal((300, 20)).astype("f4"), rng.standard_normal((5, 20, 20)).astype("f4")
    found = []
    for threads in (1, 2):
        with sj.config.using(choose=f"targets=pairs,{COLUMNS},chunks=each", num_threads=threads):
            f = sj.jit(lambda **given: sj.insum(next(iter(PAIRS)), Out=snp.zeros((300, 20), "f4"), **given))
            found.append(f(X=X, Y=Y, Z=Z, In=In, W=W).todense())
    np.testing.assert_array_equal(*found)


def test_pairs_are_sorted_once_for_each_second_array():
    rng = np.random.default_rng(6)
    X, Y, Z, other = (sj.array(rng.integers(0, n, 900)) for n in (300, 300, 5, 5))
    In, W = rng.integers(-3, 4, (300, 4)), rng.integers(-3, 4, (5, 4, 20))
    f = sj.jit(lambda **given: sj.insum(next(iter(PAIRS)), Out=snp.zeros((300, 20), "i8"), **given))
    for third in (Z, other, Z):
        want = np.zeros((300, 20), "i8")
        np.add.at(want, X.todense(), np.einsum("pc,pcm->pm", In[Y.todense()], W[third.todense()]))
        with sj.config.using(choose="targets=pairs"):
            np.testing.assert_array_equal(f(X=X, Y=Y, Z=third, In=In, W=W).todense(), want)


def test_derivatives_and_batches_of_pairs_in_panels():
    rng = np.random.default_rng(8)
    X, Y, Z = (rng.integers(0, n, 200) for n in (40, 30, 3))
    In, W = rng.integers(-3, 4, (30, 3)).astype("f8"), rng.integers(-3, 4, (3, 3, 18)).astype("f8")
    rows, ids = rng.integers(-3, 4, (4, 30, 3)).astype("f8"), rng.integers(0, 40, (4, 200))

    def out(X, In, W):
        return sj.insum(next(iter(PAIRS)), X=X, Y=Y, Z=Z, In=In, W=W, Out=snp.zeros((40, 18)))

    def expected(X, In, W):
        want = np.zeros((40, 18))
        np.add.at(want, X, np.einsum("pc,pcm->pm", In[Y], W[Z]))
        return want

    upper = 2 * expected(X, In, W)[X]  # of integers: exact
    slopes = np.zeros_like(In), np.zeros_like(W)
    np.add.at(slopes[0], Y, np.einsum("pm,pcm->pc", upper, W[Z]))
    np.add.at(slopes[1], Z, np.einsum("pm,pc->pcm", upper, In[Y]))
    with engine.quick(), sj.config.using(choose=f"targets=pairs,{COLUMNS}"):
        made = sj.jit(sj.grad(lambda In, W: (out(X, In, W) ** 2).sum(), (0, 1)))(In, W)
        forward = sj.jvp(lambda In, W: out(X, In, W), (In, W), (In, W))[1]
        batched = sj.jit(sj.vmap(lambda In: out(X, In, W)))(rows)
        moved = sj.jit(sj.vmap(lambda X: out(X, In, W)))(ids)
    for x, y in zip(made, slopes, strict=True):
        np.testing.assert_array_equal(x.todense(), y)
    np.testing.assert_array_equal(forward.todense(), 2 * expected(X, In, W))
    np.testing.assert_array_equal(batched.todense(), [expected(X, each, W) for each in rows])
    np.testing.assert_array_equal(moved.todense(), [expected(each, In, W) for each in ids])
