"""Types of results are inferred once per operation, parameters and types of operands, until they are forgotten."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.core.symbolic import Scope
from sparsejax.jit.ir import infer_formats
from sparsejax.jit.runtime import plan_cache
from sparsejax.lax.elementwise import primitives
from tests.fuzz import programs


@pytest.fixture
def inferred(monkeypatch):
    """The definitions whose types are inferred, not remembered."""
    plan_cache.forget()
    found, real = [], infer_formats.infer
    monkeypatch.setattr(infer_formats, "infer", lambda *args: found.append(args[0]) or real(*args))
    yield found
    plan_cache.forget()


def typed(fun, *args):
    """The jaxpr of a function, which infers the types of its results."""
    return str(sj.make_jaxpr(fun)(*args))


def matrix(form="csr", shape=(5, 7), fill=0.0, dtype="f8"):
    return sj.ShapeDtypeStruct(shape, dtype, format=form, fill_value=fill)


def test_a_type_is_inferred_once(inferred):
    first = typed(lambda x: snp.exp(x), matrix())
    count = len(inferred)
    assert count > 0
    assert typed(lambda x: snp.exp(x), matrix()) == first
    assert len(inferred) == count


@pytest.mark.parametrize("forget", [plan_cache.forget, sj.clear_caches])
def test_types_are_forgotten(inferred, forget):
    typed(lambda x: snp.exp(x), matrix())
    count = len(inferred)
    forget()
    typed(lambda x: snp.exp(x), matrix())
    assert len(inferred) == 2 * count


def test_types_that_differ_in_anything_are_inferred_apart(inferred):
    """Fills are told apart by their bits, dtypes and extents too."""
    kinds = [matrix(), matrix("csc"), matrix(shape=(5, 8)), matrix(fill=-0.0), matrix(fill=1.0), matrix(dtype="f4")]
    kinds += [matrix(fill=np.nan), matrix(fill=np.inf), matrix("dense")]
    counts = []
    for kind in kinds:
        before = len(inferred)
        typed(lambda x: snp.exp(x), kind)
        counts.append(len(inferred) - before)
    assert min(counts) > 0


def test_literals_are_told_apart_by_their_bits():
    plan_cache.forget()
    one = matrix(fill=1.0)
    fills = [sj.make_jaxpr(lambda x, n=n: snp.copysign(x, n))(one).out_avals[0].fill_value for n in (0.0, -0.0, 0.0)]
    assert fills == [1.0, -1.0, 1.0]


def test_extents_that_are_not_known_are_not_remembered(inferred):
    """What inference asks of a symbol is a guard of the trace that asks."""
    n = Scope({"n": 5}).symbol("n")
    aval = matrix().aval.shaped((n, 7))
    for count in (1, 2):
        made = primitives["exp"].typing(aval, loops=((aval.dtype,), aval.dtype))
        assert made.shape[0] is n and len(inferred) == count


def test_errors_are_not_remembered():
    for _ in range(2):
        with pytest.raises(ValueError, match="broadcast"):
            typed(lambda x, y: x + y, matrix(), matrix(shape=(4, 7)))


@pytest.mark.rotating(2)
@pytest.mark.parametrize("seed", range(60))
def test_remembered_types_are_those_inferred_anew(seed):
    """Random programs: the jaxpr that the types of other programs help to make is the one that none helps to make."""
    case = programs.program(seed)
    arrays = [x.array() for x in case.inputs]

    def run(*inputs):
        return programs.evaluate(snp, case.result, inputs)

    def jaxpr():
        return str(sj.make_jaxpr(run)(*arrays))

    remembered = jaxpr(), jaxpr()
    infer_formats.remembered.clear()
    assert remembered == (jaxpr(), jaxpr())
