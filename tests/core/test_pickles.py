"""Arrays, formats, jitted functions and what derivatives make of them travel to other processes and are copied."""

import copy
import pickle
import subprocess
import sys

import cloudpickle
import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.formats import Format
from tests.formats.strategies import NAMED

DENSE = sp.random_array((6, 6), density=0.4, rng=0).toarray()
A = sj.array(DENSE, format="csr")
FORMATS = [*NAMED, "(d,c)@(1,0)"]
WAYS = {
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "oldest protocol": lambda x: pickle.loads(pickle.dumps(x, protocol=2)),
    "cloudpickle": lambda x: cloudpickle.loads(cloudpickle.dumps(x)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


@pytest.mark.rotating(3)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("form", FORMATS)
def test_arrays_and_formats(form, way):
    x = A.asformat(form)
    made = WAYS[way](x)
    assert type(made) is sj.Array
    assert made.aval == x.aval
    assert made.fill_value == x.fill_value
    np.testing.assert_array_equal(made.todense(), DENSE)
    np.testing.assert_array_equal((made @ DENSE).todense(), (x @ DENSE).todense())
    assert WAYS[way](x.format) == x.format == Format.parse(form, 2)


def test_arrays_with_fills_and_in_containers():
    kept = {"a": [snp.exp(A), 1], "b": sj.random.key(0), "c": sj.ShapeDtypeStruct((2, 3), "float32", format="csr")}
    for way in WAYS.values():
        made = way(kept)
        assert made["a"][0].fill_value == 1
        assert made["c"] == kept["c"]
        np.testing.assert_array_equal(made["a"][0].todense(), np.exp(DENSE))
        np.testing.assert_array_equal(sj.random.normal(made["b"], (3,)), sj.random.normal(kept["b"], (3,)))


def test_copies_share_no_state_with_their_source():
    again = copy.deepcopy(A)
    assert not np.shares_memory(again.data, A.data)
    with pytest.raises(TypeError, match="immutable"):
        again[0, 0] = 1


FUNCTIONS = {
    "jit": sj.jit(lambda x: A @ x),
    "jit with options": sj.jit(lambda x, n=2: (A @ x) * n, static_argnames="n"),
    "grad": sj.grad(lambda x: snp.sum((A @ x) ** 2)),
    "jit of value_and_grad": sj.jit(sj.value_and_grad(lambda x: snp.sum((A @ x) ** 2))),
    "hessian": sj.hessian(lambda x: snp.sum((A @ x) ** 2)),
    "vmap": sj.vmap(lambda x: A * x),
    "checkpoint": sj.checkpoint(lambda x: A @ x),
    "sparse_jacobian": sj.sparse_jacobian(lambda x: A @ x),
    "solver": lambda x: sj.scipy.sparse.linalg.cg(A.T @ A + sj.eye(6), x)[0],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    function, x = FUNCTIONS[name], np.arange(6.0)
    want = sj.tree.leaves(function(x))
    for way in ("cloudpickle", "deepcopy"):
        for a, b in zip(sj.tree.leaves(WAYS[way](function)(x)), want, strict=True):
            np.testing.assert_allclose(a.todense(), b.todense())


def test_jitted_functions_need_no_cloudpickle():
    made = WAYS["pickle"](FUNCTIONS["jit with options"])
    np.testing.assert_allclose(made(np.ones(6), n=3), DENSE.sum(1) * 3)


def test_another_process_compiles_again(tmp_path):
    (tmp_path / "f").write_bytes(pickle.dumps((sj.jit(lambda A, x: A @ x), A, np.ones(6))))
    program = "import pickle, sys; f, A, x = pickle.load(open(sys.argv[1], 'rb')); print(float(f(A, x).sum()))"
    told = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "f")], capture_output=True, text=True, check=True
    )
    assert float(told.stdout) == pytest.approx(DENSE.sum())


def test_compiled_machine_code_does_not_travel():
    compiled = sj.jit(lambda A, x: A @ x).lower(A, np.ones(6)).compile()
    for dumps in (pickle.dumps, cloudpickle.dumps):
        with pytest.raises(TypeError, match="pickle the jitted function"):
            dumps(compiled)
    assert copy.copy(compiled) is compiled is copy.deepcopy(compiled)


def test_traced_values_do_not_travel():
    with pytest.raises(sj.ConcretizationTypeError, match="pickle"):
        sj.jit(lambda x: pickle.dumps(x))(np.ones(3))
