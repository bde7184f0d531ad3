"""Exported programs of any extents: the same results as the program exported for numbers; what does not hold is refused; texts are only read."""

import json

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.core.symbolic import Scope
from sparsejax.export import LayoutError, deserialize, export, extents, programs

rng = np.random.default_rng(0)


def struct(*shape, format="dense", dtype="float64"):
    return sj.ShapeDtypeStruct(shape, dtype, format=format)


def loop(A, x):
    return sj.lax.fori_loop(0, 3, lambda k, x: 0.85 * (A @ x) + 0.15 / x.shape[0], x)


# name: (function, its types)
PROGRAMS = {
    "layer": (
        lambda A, X: snp.maximum(A @ (X * 2.5), 0) / A.shape[0],
        (struct("n", "m", format="csr"), struct("m", "k")),
    ),
    "halves": (lambda x: (x[: x.shape[0] // 2] * 2, x[(x.shape[0] + 1) // 2 :].sum()), (struct("n"),)),
    "joined": (lambda A: snp.concatenate([A, A[1:] * 2]).sum(axis=1), (struct("n", 7, format="csr"),)),
    "reshaped": (lambda x: x.reshape(x.shape[0] * x.shape[1]) % 3, (struct("n", "m"),)),
    "product": (lambda A: A @ A, (struct("n", "n", format="csr"),)),
    "gradients": (sj.grad(lambda A, x: ((A @ x) ** 2).sum(), (0, 1)), (struct("n", "m", format="csr"), struct("m"))),
    "gradients of slices": (
        sj.grad(lambda x: ((x[1:] - x[:-1]) ** 2).sum() + (x[-1, ::2] * x[0, ::2]).sum()),
        (struct("n", "m"),),
    ),
    "loop": (loop, (struct("n", "n", format="csr"), struct("n"))),
    "a bare index": (
        lambda A, x: sj.insum("O[i] = A[i,j] * x[j] + i", A=A, x=x),
        (struct("n", "m", format="csr"), struct("m")),
    ),
    "mean": (lambda A: A - A.mean(axis=0), (struct("n", 5, format="coo"),)),
    "tree": (
        lambda d: {"y": d["A"] * d["x"][:, None], "n": d["x"].shape[0]},
        ({"A": struct("n", 4, format="csc"), "x": struct("n")},),
    ),
}


def drawn(types, sizes):
    def made(t):
        shape = [n if isinstance(n, int) else sizes[str(n)] for n in t.shape]
        dense = rng.normal(size=shape) * (rng.random(shape) < (1 if t.aval.is_dense else 0.4))
        return sj.array(dense, format=str(t.format))

    return sj.tree_util.tree_map(made, types)


@pytest.mark.parametrize("name", PROGRAMS)
def test_any_shapes(name):
    function, types = PROGRAMS[name]
    program = export(sj.jit(function))(*types)
    data = program.serialize()
    back = deserialize(data)
    assert back.serialize() == data and [str(a) for a in back.in_avals] == [str(a) for a in program.in_avals]
    for sizes in ({"n": 6, "m": 4, "k": 3}, {"n": 40, "m": 13, "k": 2}, {"n": 301, "m": 9, "k": 5}):
        args = drawn(types, sizes)
        fixed = export(sj.jit(function))(*args).call(*args)
        for one, two, three in zip(
            *map(sj.tree_util.tree_leaves, (program.call(*args), back.call(*args), fixed)), strict=True
        ):
            assert (one.aval.strong(), one.format) == (three.aval.strong(), three.format) and one.aval == two.aval
            np.testing.assert_array_equal(one.todense(), two.todense())
            np.testing.assert_allclose(one.todense(), three.todense(), rtol=1e-12, atol=1e-14)


def test_what_does_not_hold_is_refused():
    program = deserialize(export(sj.jit(lambda A, x: A @ x))(struct("n", "m", format="csr"), struct("m")).serialize())
    good = drawn((struct(5, 6, format="csr"), struct(6)), {})
    assert program.call(*good).shape == (5,)
    for bad in ((good[0], np.ones(7)), (sj.array(np.ones((1, 6)), format="csr"), good[1])):
        with pytest.raises(TypeError, match="extents of one name must be equal"):
            program.call(*bad)
    for bad in ((good[0].asformat("csc"), good[1]), (good[0].astype("f4"), good[1])):
        with pytest.raises(TypeError, match="exported for arguments of types"):
            program.call(*bad)


def test_what_was_asked_must_hold():
    program = deserialize(export(sj.jit(lambda x: x * 2 if x.shape[0] > 100 else x))(struct("n")).serialize())
    assert program.call(np.ones(200))[0] == 2
    with pytest.raises(TypeError, match="that n > 100"):
        program.call(np.ones(50))


def test_programs_that_need_numbers():
    with pytest.raises(LayoutError, match=r"the extent n is needed itself at .*test_open_extents.py"):
        export(sj.jit(lambda x: sum(x[k] for k in range(x.shape[0]))))(struct("n"))
    with pytest.raises(LayoutError, match=r"the extent n is needed itself at .*test_open_extents.py"):
        export(sj.jit(lambda A: A.asformat("bsr:2x1") * 2))(struct("n", "m", format="csr"))
    with pytest.raises(LayoutError, match="the extent m is needed itself at an argument in blocks"):
        export(sj.jit(lambda A, x: A @ x))(struct("n", "m", format="bsr:1x2"), struct("m"))
    with pytest.raises(ValueError, match="is an expression"):
        n = struct("n").shape[0]
        export(sj.jit(lambda x: x))(struct(n + 1))
    with pytest.raises(ValueError, match=r"dimension|extent|shape|size"):
        export(sj.jit(lambda A, x: A @ x))(struct("n", "m", format="csr"), struct("k"))


def changed(data, change):
    end = 20 + int.from_bytes(data[8:16], "little")
    header = json.loads(data[20:end])
    change(header)
    text = json.dumps(header, separators=(",", ":")).encode()
    return programs.headed(text) + data[end + -end % 64 :]


BAD = [
    "__import__('os').system('true')",
    "n.scope",
    "n**9",
    "(lambda: 1)()",
    "x",
    "[n][0]",
    "n if n else n",
    "1.5",
    "n//0",
    "n and n",
    "(" * 5000,
    "True",
    "9" * 5000,
    None,
    ["n"],
]


@pytest.mark.parametrize("text", BAD, ids=lambda t: str(t)[:20])
def test_texts_are_only_read(text):
    data = export(sj.jit(lambda x: x * 2))(struct("n")).serialize()

    def in_aval(header):
        header["jaxpr"]["inputs"][0][0][0] = {"extent": text}

    def in_guard(header):
        header["symbols"]["guards"].append(f"{text} < 0")

    def in_name(header):
        header["symbols"]["names"][0] = text

    for change in (in_aval, in_guard, in_name):
        if not (change is in_name and text == "x"):
            with pytest.raises(LayoutError):
                deserialize(changed(data, change))
    assert deserialize(changed(data, lambda h: None)).call(np.ones(3)).shape == (3,)


def test_expressions_of_extents():
    """Random polynomials, quotients and remainders: as text and back."""
    draws = np.random.default_rng(1)
    for _ in range(200):
        scope = Scope({"n": 1009, "m": 1110})
        made = scope.symbol("n")
        for _ in range(draws.integers(1, 7)):
            other = [scope.symbol("n"), scope.symbol("m"), int(draws.integers(2, 9))][draws.integers(3)]
            made = [
                lambda a, b: a + b,
                lambda a, b: a - b,
                lambda a, b: a * b,
                lambda a, b: a // b,
                lambda a, b: a % b,
            ][draws.integers(5)](made, other)
            if isinstance(made, int):
                made = scope.symbol("n") + made
        back = extents.parsed(made.code, Scope({"n": 1009, "m": 1110}))
        assert (getattr(back, "code", back), getattr(back, "hint", back)) == (made.code, made.hint)
