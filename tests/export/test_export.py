"""Programs as bytes: the same results in a process that never saw the function; what is damaged or unknown is refused."""

import contextlib
import copy
import json
import random
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.core.jaxpr import evaluate
from sparsejax.export import LayoutError, defined, deserialize, export, layout, programs
from sparsejax.lax.semiring import ring_of, semiring_of
from sparsejax.transforms import staging

rng = np.random.default_rng(0)
S = sp.random_array((20, 20), density=0.2, format="csr", rng=rng)
A = sj.array(S)
D = S.toarray()
X = rng.normal(size=(20, 4))
x = rng.normal(size=20)

PROGRAMS = {
    "matvec": (lambda A, x: A @ x, (A, x)),
    "layer": (lambda A, X: snp.maximum(A @ (X * 2.5), 0), (A, X)),
    "grad": (sj.grad(lambda A, X: ((A @ X) ** 2).sum(), (0, 1)), (A, X)),
    "softmax": (lambda A: sj.nn.softmax(A, axis=1), (A,)),
    "constants": (lambda A: A @ x + np.arange(20), (A,)),
    "sparse constants": (lambda x: A @ x, (x,)),
    "loop": (lambda A, x: sj.lax.fori_loop(0, 3, lambda k, x: A @ x + k, x), (A, x)),
    "while": (lambda A, x: sj.lax.while_loop(lambda c: c[1] < 3, lambda c: (A @ c[0], c[1] + 1), (x, 0))[0], (A, x)),
    "cond": (lambda x: sj.lax.cond(x.sum() > 0, lambda x: x, lambda x: -x, x), (x,)),
    "scan": (lambda X: sj.lax.scan(lambda c, r: (c + r, c * r), np.zeros(4), X), (X,)),
    "semiring": (lambda A: sj.einsum("ij,jk->ik", A, A, semiring="min_plus"), (A,)),
    "formats": (lambda A: A.asformat("csc")[2:9, ::2].T, (A,)),
    "argmax": (lambda A: A.argmax(axis=1), (A,)),
    "trees": (lambda A, d: {"a": [A @ d["x"], d["k"] + 1], "b": (None, A)}, (A, {"x": x, "k": 3})),
    "complex": (lambda A, z: A * (1 + 2j) @ z, (A, x + 1j)),
}


def gradients():
    Z = 2 * (D @ X)
    return (D != 0) * (Z @ X.T), D.T @ Z


def min_plus():
    B = np.where(D != 0, D, np.inf)
    return [np.min(B[:, :, None] + B[None], axis=1)]


BY_HAND = {"grad": gradients, "semiring": min_plus}
"""Results by NumPy where those of a jaxpr on dense arrays do not know which entries are stored."""


def flat(tree):
    return [np.asarray(leaf.todense()) for leaf in sj.tree_util.tree_leaves(tree)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_results(name):
    function, args = PROGRAMS[name]
    data = export(sj.jit(function))(*args).serialize()
    program = deserialize(data)
    by_hand = BY_HAND.get(name)
    expected = by_hand() if by_hand else evaluate(sj.make_jaxpr(function)(*args), *sj.tree_util.tree_leaves(args))
    for one, two, three in zip(flat(program.call(*args)), flat(sj.jit(function)(*args)), expected, strict=True):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_allclose(one, three, rtol=1e-9, atol=1e-12)
    assert deserialize(program.serialize()).serialize() == data


@pytest.mark.parametrize("name", PROGRAMS)
def test_text_of_jaxprs(name):
    function, args = PROGRAMS[name]
    jaxpr = staging.clean(sj.make_jaxpr(function)(*args).jaxpr)
    assert str(layout.loads(layout.dumps(jaxpr))) == str(jaxpr)
    assert layout.dumps(layout.loads(layout.dumps(jaxpr))) == layout.dumps(jaxpr)


SEMIRINGS: dict[str, Any] = {
    "min_plus": "min_plus",
    "max_times": "max_times",
    "of lambdas": sj.Semiring(lambda x, y: snp.where(x > y, x, y), lambda x, y: 2 * x + y / 3, -np.inf, 0),
    "logical": "or_and",
    "second": "plus_second",
}


def test_semirings_in_another_process(tmp_path):
    """What a program multiplies and adds with is in the file: another process has not traced it."""
    made = {}
    for name, semiring in SEMIRINGS.items():
        program = sj.jit(lambda A, semiring=semiring: sj.einsum("ij,jk->ik", A, A, semiring=semiring))
        if name == "max_times":
            program = sj.jit(sj.grad(lambda A: sj.einsum("ij,jk->ik", abs(A), abs(A), semiring="max_times").sum()))
        made[name] = program(A)
        (tmp_path / f"{name}.program").write_bytes(export(program)(A).serialize())
    sj.save_npz(tmp_path / "A.npz", A)
    program = f"""if True:
        import numpy as np, sparsejax as sj
        from sparsejax.export import deserialize
        for name in {list(SEMIRINGS)}:
            out = deserialize(open(name + ".program", "rb").read()).call(sj.load_npz("A.npz"))
            np.save(name + ".npy", out.todense())
    """
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path)
    for name, expected in made.items():
        np.testing.assert_array_equal(np.load(tmp_path / f"{name}.npy"), expected.todense())


@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "i8", "c16"])
def test_defined_operators(dtype):
    found = 0
    for semiring in SEMIRINGS.values():
        try:
            ring = ring_of(semiring_of(semiring), np.dtype(dtype))
        except (TypeError, ValueError):  # complex numbers have no order, integers no fractions
            continue
        for name in (ring.add, ring.mul):
            if defined.is_defined(name):
                found += 1
                text = json.dumps(defined.encoded(name))
                assert defined.decoded(json.loads(text)) == name
                assert layout.decode(json.loads(json.dumps(layout.encode(name)))) == name
    assert found or dtype == "c16"
    good = defined.encoded("{add(x, y); zero inf; one 0.0; float64}")
    for change in (
        {"kind": "x"}, {"body": ["x"]}, {"body": ["os.system", "<f8", ["scalar", "<f8", "x"]]}, {"body": ["add", "<f8", ["scalar", "<f8", "x"]]},
        {"body": ["scalar", "<f8", "x y"]},
        {"constant": "00"}, {"dtype": "?x"}, {"body": None},
    ):  # fmt: skip
        with pytest.raises(LayoutError):
            defined.decoded(good | change)


def test_another_process(tmp_path):
    data = export(sj.jit(lambda A, X: snp.maximum(A @ X, 0) @ np.ones(4)))(A, X).serialize()
    (tmp_path / "program").write_bytes(data)
    sj.save_npz(tmp_path / "A.npz", A)
    np.save(tmp_path / "X.npy", X)
    program = """if True:
        import numpy as np, sparsejax as sj, sys
        from sparsejax.export import deserialize
        from sparsejax.transforms import staging
        made = deserialize(open("program", "rb").read())
        def traced(*args): raise AssertionError("traced")
        staging.trace_to_jaxpr = traced
        out = made.call(sj.load_npz("A.npz"), np.load("X.npy"))
        np.save("out.npy", out.todense())
    """
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), np.maximum(D @ X, 0) @ np.ones(4))


def test_types_without_data():
    types = sj.ShapeDtypeStruct((20, 20), "float64", format="csr"), sj.ShapeDtypeStruct((20,), "float64")
    program = deserialize(export(sj.jit(lambda A, x: A @ x))(*types).serialize())
    np.testing.assert_allclose(program.call(A, x).todense(), D @ x)
    with pytest.raises(TypeError, match="exported for arguments of types"):
        program.call(A, x[:5])
    with pytest.raises(TypeError, match="exported for arguments of the structure"):
        program.call(A)


@pytest.mark.parametrize("dtype", ["bool", "int32", "float32", "float64", "complex64"])
def test_numbers_of_python_for_types_without_dimensions(dtype):
    types = sj.ShapeDtypeStruct((), dtype), sj.ShapeDtypeStruct((20,), "float64")
    program = deserialize(export(sj.jit(lambda s, x: s * x))(*types).serialize())
    kinds = {bool: "b", int: "iufc", float: "fc", complex: "c"}
    for number in (True, 3, 0.3, 2j):
        if np.dtype(dtype).kind in kinds[type(number)]:
            made, wanted = program.call(number, x), np.dtype(dtype).type(number) * x
            assert made.dtype == wanted.dtype
            np.testing.assert_array_equal(made.todense(), wanted)
        else:
            with pytest.raises(TypeError, match="~: a number of Python's"):
                program.call(number, x)
    if dtype == "int32":
        with pytest.raises(OverflowError):
            program.call(2**40, x)


def test_functions_are_refused():
    called = sj.jit(lambda x: sj.pure_callback(np.sin, sj.ShapeDtypeStruct((20,), "float64"), x))
    with pytest.raises(LayoutError, match="callback"):
        export(called)(x).serialize()


def test_other_layouts_are_refused():
    data = bytearray(export(sj.jit(lambda x: x + 1))(x).serialize())
    with pytest.raises(LayoutError, match="no exported program"):
        deserialize(b"PK" + data)
    data[7] = 9
    with pytest.raises(LayoutError, match="layout 9"):
        deserialize(data)


def test_unknown_operations_are_refused():
    data = export(sj.jit(lambda x: x + 1))(x).serialize()
    for other in (b"primitives:bdd", b"primitives:xxx"):
        with pytest.raises(LayoutError, match="has no operation"):
            deserialize(signed(data.replace(b"primitives:add", other)))
    with pytest.raises(LayoutError, match="has no operation"):
        layout.primitive_named("os:system")
    with pytest.raises(LayoutError, match="has no operation"):
        layout.primitive_named("sparsejax.jit.api:jit")


def test_types_that_are_no_types():
    """What NumPy's parser of types raises is damage like other damage."""
    data = export(sj.jit(lambda x: x + 1))(x).serialize()
    for other in (b"01,", b",,,", b"(1,", b"zzz"):
        assert b"<f8" in data
        with pytest.raises(LayoutError, match="damaged"):
            deserialize(signed(data.replace(b"<f8", other)))


def signed(data):
    """A file whose header was changed, with its checksum."""
    end = 20 + int.from_bytes(data[8:16], "little")
    return programs.headed(bytes(data[20:end])) + bytes(data[end + -end % 64 :])


def test_damage_is_refused():
    """Bytes changed anywhere."""
    data = export(sj.jit(lambda A: A @ x))(A).serialize()
    assert signed(data) == data
    bad = bytearray(data)
    bad[20], bad[21] = bad[21], bad[20]
    with pytest.raises(LayoutError, match="header is damaged"):
        deserialize(bad)
    draws = random.Random(0)
    for count in (1, 2, 5) * 200:
        bad = bytearray(data)
        for place in draws.sample(range(len(bad)), count):
            bad[place] ^= draws.randrange(1, 256)
        with pytest.raises(LayoutError):
            deserialize(bad)
    for place in range(len(data)):
        with pytest.raises(LayoutError):
            deserialize(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])


def test_damage_with_its_checksum_is_refused_or_harmless():
    """A byte changed anywhere by who writes checksums too: LayoutError, or another program of the same kind; never another error."""
    data = export(sj.jit(lambda A: A @ x))(A).serialize()
    draws = random.Random(0)
    end = 20 + int.from_bytes(data[8:16], "little")
    for _ in range(300):
        bad = bytearray(data)
        bad[draws.randrange(20, end)] ^= 1 << draws.randrange(8)
        with contextlib.suppress(LayoutError):
            deserialize(signed(bad))
    for stop in (0, 5, 12, 60, len(data) // 2, len(data) - 1):
        with pytest.raises(LayoutError):
            deserialize(data[:stop])


def places(node):
    """Every list and dictionary of a header, with each of its keys."""
    for key, own in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield node, key
        yield from places(own)


ODD = None, 0, -1, 1, 3, 1 << 31, 1 << 63, 1e300, "", "x", [], {}, True


def test_headers_that_say_something_else_are_refused_or_harmless():
    """With their checksums: any value of the header in place of another, or odd ones. LayoutError, and nothing that takes time or memory."""
    data = export(sj.jit(lambda A: sj.lax.fori_loop(0, 2, lambda k, y: A @ y, x)))(A).serialize()
    draws = random.Random(0)
    end = 20 + int.from_bytes(data[8:16], "little")
    refused = 0
    for turn in range(400):
        header = json.loads(data[20:end])
        found = [(node, key) for node, key in places(header) if key != "sha256"]
        (node, key), (other, name) = draws.sample(found, 2)
        node[key] = copy.deepcopy(other[name]) if turn % 2 else draws.choice(ODD)
        try:
            deserialize(programs.headed(json.dumps(header).encode()) + data[end + -end % 64 :])
        except LayoutError:
            refused += 1
    assert refused > 100
    bad = data[20:end].replace(b'{"format":["csr",2]}', b'{"format":["csr",1073741824]}')
    with pytest.raises(LayoutError, match="1073741824 dimensions"):
        deserialize(programs.headed(bad) + data[end + -end % 64 :])
