"""Dense arrays that lose elements under transformations: as at once, without an array of all elements in between."""

import numpy as np
import pytest

import sparsejax as sj

RNG = np.random.default_rng(0)
DENSE = RNG.normal(size=(20, 15)).round(1)
FLAGS = sj.array(RNG.random(DENSE.shape) > 0.5)
WAYS = {
    "keep": lambda a: sj.prune(a, keep=3),
    "tolerance": lambda a: sj.prune(a, tol=0.7),
    "a tolerance per row": lambda a: sj.prune(a, tol=np.linspace(0, 2, len(DENSE))[:, None]),
    "zeros": lambda a: sj.prune(a),
    "keep of all": lambda a: sj.prune(a, keep=9, axis=None),
    "keep of columns": lambda a: sj.prune(a, keep=2, axis=0),
    "predicate": lambda a: sj.prune(a, predicate=lambda v: v > 0),
    "both": lambda a: sj.prune(a, predicate=lambda v: abs(v) > 0.2, keep=4),
    "flags": lambda a: sj.prune(a, predicate=FLAGS, tol=0.1),
    "sparse flags": lambda a: sj.prune(a, predicate=FLAGS.asformat("csr")),
}


@pytest.mark.parametrize("way", WAYS)
def test_transformations(way):
    prune, x = WAYS[way], sj.array(DENSE)
    wanted = prune(x)
    values = wanted.todense()
    made = sj.jit(prune)(x)
    assert made.format == wanted.format
    assert made.nnz == wanted.nnz
    np.testing.assert_array_equal(made.todense(), values)

    def squares(a):
        return (prune(a) ** 2).sum()

    for gradient in (sj.grad(squares), sj.jit(sj.grad(squares))):
        np.testing.assert_allclose(gradient(x).todense(), 2 * values)
    tangent = sj.jvp(prune, (x,), (sj.array(np.ones_like(DENSE)),))[1]
    np.testing.assert_array_equal(tangent.todense(), values != 0)
    batch = RNG.normal(size=(3, *DENSE.shape)).round(1)
    for mapped in (sj.vmap(prune), sj.jit(sj.vmap(prune))):
        found = mapped(sj.array(batch))
        for k, part in enumerate(batch):
            np.testing.assert_array_equal(found[k].todense(), prune(sj.array(part)).todense())
    slopes = sj.vmap(sj.grad(squares))(sj.array(batch)).todense()
    np.testing.assert_allclose(slopes, 2 * np.stack([prune(sj.array(part)).todense() for part in batch]))


def test_masks_of_a_batch():
    batch, x = RNG.random((3, *DENSE.shape)) > 0.5, sj.array(DENSE)
    found = sj.vmap(lambda mask: sj.prune(x, predicate=mask))(sj.array(batch))
    for k, part in enumerate(batch):
        np.testing.assert_array_equal(found[k].todense(), np.where(part, DENSE, 0))
    cube = sj.jit(lambda a: sj.prune(a, tol=0.5))(sj.array(RNG.normal(size=(4, 3, 5))))
    assert str(cube.format) == "coo"


def test_no_array_of_all_elements():
    text = str(sj.make_jaxpr(WAYS["keep"])(sj.array(DENSE)))
    assert "sifted" in text
    assert "convert" not in text


@pytest.mark.parametrize("choose", ["auto", "passes=numpy", "passes=compiled"])
@pytest.mark.parametrize("kind", ["f8", "f4", "i1", "i8", "u2", "c16", "?"])
def test_largest_of_a_whole_small_matrix(kind, choose):
    """What is past a bound, if a bound tells, else by flags: ties, NaN, infinities, zeros, the least integer."""
    rng = np.random.default_rng(5)
    for case in range(20):
        shape = tuple(rng.integers(1, 12, 2))
        dense = rng.integers(-3, 4, shape) if case % 2 else rng.normal(size=shape) * 40
        if kind == "c16":
            dense = dense + 1j * rng.normal(size=shape).round(1)
        dense = np.abs(dense).astype(kind) if kind == "u2" else np.asarray(dense).astype(kind)
        if kind[0] in "fc":
            dense[rng.random(shape) < 0.1] = [np.nan, np.inf, -np.inf, -0.0][case % 4]
        if kind == "i1":
            dense[rng.random(shape) < 0.1] = -128
        flat = dense.ravel()
        size = np.abs(flat.astype("i8" if kind[0] in "iu?" else kind)).astype("f8")
        order = np.argsort(np.where(np.isnan(size), -np.inf, np.where(size == np.inf, -1e300, -size)), kind="stable")
        for keep in {1, flat.size // 2 or 1, flat.size - 1 or 1, flat.size, flat.size + 3}:
            expected = np.zeros_like(flat)
            expected[order[:keep]] = flat[order[:keep]]
            with sj.config.using(choose=choose):
                found = sj.prune(sj.array(dense), keep=keep, axis=None)
            np.testing.assert_array_equal(found.todense(), expected.reshape(shape))
            assert found.nnz == np.count_nonzero(expected)
