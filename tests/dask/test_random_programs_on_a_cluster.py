"""Random programs in shards on a cluster of two processes, with their derivatives and batches, against the same on one machine."""

import numpy as np
import pytest

import sparsejax as sj

distributed = pytest.importorskip("distributed", reason="distributed is not installed: pip install 'sparsejax[dask]'")
dask = pytest.importorskip("dask")

import sparsejax.dask as sd  # noqa: E402
from tests.dask import clusters  # noqa: E402
from tests.dask.random_programs import Program  # noqa: E402

limits = pytest.importorskip("threadpoolctl").threadpool_limits
WAYS = ("value", "grad", "vmap")
SEEDS = 24
"""1018 multiplies with an operator that the program defines, which another process did not know."""


@pytest.fixture(scope="module")
def client(shared_cluster):
    sj.clear_caches()  # of kernels that other tests have compiled without optimisation
    with distributed.Client(shared_cluster) as client:
        clusters.as_here(client)
        yield client


def function_of(program, way):
    """The program itself, the derivative of its mean by all arguments of floats, or a batch of it along a new axis of the first such argument. None where
    there is none of these."""
    smooth = tuple(k for k, a in enumerate(program.arguments) if a.dtype.kind == "f" and a.ndim)
    if way == "value":
        return program.function
    if not smooth:
        return None

    def loss(*arguments):
        return sum(r.astype("f8").sum() for r in program.function(*arguments) if r.dtype.kind == "f")

    if way == "grad":
        return lambda *arguments: list(sj.grad(loss, argnums=smooth)(*arguments))
    first = smooth[0]

    def batched(*arguments):
        scales = np.linspace(0.5, 1.5, 3)

        def one(scale):
            return program.function(*(a * scale if k == first else a for k, a in enumerate(arguments)))

        return sj.vmap(one)(scales)

    return batched


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(1000, 1000 + SEEDS))
def test_programs(seed, way, client):
    program = Program(seed)
    function = function_of(program, way)
    if function is None:
        pytest.skip("no argument of floats")
    try:
        expected = sj.jit(function)(*program.arguments)
    except (TypeError, ValueError, NotImplementedError) as error:  # no derivative, or no batch, on one machine either
        pytest.skip(f"{way}: {type(error).__name__}: {error}"[:200])
    arguments = program.sharded()
    lazy = sd.jit(function)(*arguments)
    found = dask.compute(*lazy)
    with limits(1):  # dense products are BLAS's, whose bits depend on its threads; workers run it on one
        here = dask.compute(*lazy, scheduler="threads")
    for a, b, c in zip(expected, found, here, strict=True):
        assert (a.shape, a.dtype, a.format) == (b.shape, b.dtype, b.format)
        np.testing.assert_allclose(b.todense(), a.todense(), rtol=1e-7, atol=1e-9)
        assert b.todense().tobytes() == c.todense().tobytes()
