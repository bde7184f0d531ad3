"""Random numbers: known answers, one stream for every format and shape, moments, keys under jit."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.jit.ir import operators
from tests.autodiff.checks import array

pytestmark = pytest.mark.rotating(16)

FORMATS = ["csr", "csc", "coo", "dcsr", "bsr:2x2", "ell", "groupcoo:2", "bitmap", "hash", "dia", "banded"]


@pytest.mark.parametrize(
    ("key", "counter", "wanted"),
    [
        (0, 0, 0x6B20015999BA4EFE),
        (2**64 - 1, 2**64 - 1, 0x1CB996FCBB002BE7),
        (0x13198A2E03707344, 0x243F6A8885A308D3, 0xC4923A9C483DF7A0),
    ],
)
def test_known_answers_of_random123(key, counter, wanted):
    assert operators.get("threefry").numpy(key, counter) == wanted


@pytest.mark.parametrize("shape", [(), (0,), (1,), (37,), (5, 7), (3, 4, 5), (2, 0, 3)])
def test_compiled_bits_are_the_reference(shape):
    size = int(np.prod(shape))
    wanted = operators.get("threefry").numpy(np.uint64(9), np.arange(size, dtype=np.uint64)).reshape(shape)
    for made in (sj.random.bits(sj.random.key(9), shape), sj.jit(lambda k: sj.random.bits(k, shape))(sj.random.key(9))):
        np.testing.assert_array_equal(made.todense(), wanted)


@pytest.mark.parametrize("form", FORMATS)
def test_stored_entries_draw_the_same_numbers_in_any_format(form):
    A = array(np.random.default_rng(0), (6, 9), form)
    made, everywhere = sj.random.bits(sj.random.key(2), like=A), sj.random.bits(sj.random.key(2), A.shape)
    kept = sj.lax.pattern(A, bool).todense()
    assert made.format == A.format and made.fill_value == 0 and made.nnz == A.nnz
    np.testing.assert_array_equal(made.todense(), np.where(kept, everywhere.todense(), 0))
    for draw in (
        sj.random.uniform,
        sj.random.normal,
        lambda k, like: sj.random.uniform(k, minval=2, maxval=3, like=like),
    ):
        numbers = draw(sj.random.key(2), like=A)
        assert numbers.format == A.format and numbers.fill_value == 0
        assert not numbers.todense()[~kept].any() and numbers.todense()[kept].all()


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_distributions(dtype):
    key, count = sj.random.key(1), 200_000
    unit = sj.random.uniform(key, count, dtype).todense()
    assert unit.dtype == dtype and 0 <= unit.min() < 1e-4 and 1 - 1e-4 < unit.max() < 1
    assert abs(unit.mean() - 0.5) < 4 / np.sqrt(12 * count)
    assert np.abs(np.histogram(unit, 16)[0] - count / 16).max() < 5 * np.sqrt(count / 16)
    bell = sj.random.normal(key, count, dtype).todense()
    assert bell.dtype == dtype and abs(bell.mean()) < 4 / np.sqrt(count)
    assert abs(bell.std() - 1) < 0.01 and abs((bell**4).mean() - 3) < 0.1
    wide = sj.random.uniform(key, count, dtype, -2, 5).todense()
    assert wide.dtype == dtype and -2 <= wide.min() < -1.99 and 4.99 < wide.max() < 5
    assert abs(sj.random.bernoulli(key, 0.3, count).todense().mean() - 0.3) < 4 * np.sqrt(0.21 / count)


def test_integers():
    made = sj.random.randint(sj.random.key(1), 70_000, -3, 4, np.int32).todense()
    assert made.dtype == np.int32
    assert np.abs(np.bincount(made + 3, minlength=7) - 10_000).max() < 5 * np.sqrt(10_000)
    with pytest.raises(ValueError, match="minval=3 must be below"):
        sj.random.randint(sj.random.key(1), 3, 3, 3)
    with pytest.raises(ValueError, match="fit int8"):
        sj.random.randint(sj.random.key(1), 3, 0, 200, np.int8)


def test_permutations():
    key, rng = sj.random.key(4), np.random.default_rng(0)
    order = sj.random.permutation(key, 50).todense()
    assert sorted(order) == list(range(50)) and (order != np.arange(50)).any()
    cube = rng.normal(size=(5, 2, 3))
    np.testing.assert_array_equal(
        sj.random.permutation(key, cube).todense(), cube[sj.random.permutation(key, 5).todense()]
    )
    A = array(rng, (50, 4), "csr")
    np.testing.assert_array_equal(sj.jit(sj.random.permutation)(key, A).todense(), A.todense()[order])


def test_keys_are_independent():
    key = sj.random.key(0)
    keys = [key, *sj.random.split(key, 5), sj.random.fold_in(key, 0), sj.random.fold_in(key, 1)]
    keys += [k for parent in keys[1:] for k in sj.random.split(parent)]
    drawn = np.stack([sj.random.bits(k, 100).todense() for k in keys])
    assert len(np.unique(drawn)) == drawn.size
    flipped = np.unpackbits((drawn[1:] ^ drawn[:-1]).view(np.uint8)).mean()
    assert abs(flipped - 0.5) < 0.01


def test_jit_takes_keys():
    def step(key, x):
        key, use = sj.random.split(key)
        return key, x + sj.random.normal(use, x.shape)

    key, x = sj.random.key(5), np.zeros((4, 3))
    traced = sj.jit(step)
    for _ in range(3):
        (plain_key, plain), (key, x) = step(key, x), traced(key, x)
        np.testing.assert_allclose(plain.todense(), x.todense(), rtol=1e-14, atol=1e-14)  # products and sums fuse
        assert plain_key.todense() == key.todense()
    assert "random_bits" in str(sj.make_jaxpr(step)(key, x))


def test_numbers_are_constants_of_derivatives():
    grad = sj.grad(lambda w, k: (w * sj.random.uniform(k, w.shape)).sum())(np.ones(5), sj.random.key(0))
    np.testing.assert_array_equal(grad.todense(), sj.random.uniform(sj.random.key(0), 5).todense())


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: sj.random.uniform(3), TypeError, "key must be made by"),
        (lambda: sj.random.key(np.zeros(2)), TypeError, "seed must be one integer"),
        (lambda: sj.random.uniform(sj.random.key(0), (2,), int), TypeError, "dtype must be a floating"),
        (lambda: sj.random.bits(sj.random.key(0), (-1,)), ValueError, "has extent -1"),
        (lambda: sj.random.fold_in(sj.random.key(0), -1), ValueError, "data=-1"),
        (lambda: sj.random.permutation(sj.random.key(0), 1.5 * snp.ones(())), ValueError, "x must be an integer or"),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("form", ["csr", "coo", "bsr:2x2"])
def test_batches_of_keys_and_of_patterns(form):
    keys = sj.random.split(sj.random.key(3), 4)
    A = array(np.random.default_rng(0), (4, 6), form)
    for draw in (
        lambda k: sj.random.uniform(k, (3, 2)),
        lambda k: sj.random.bits(k),
        lambda k: sj.random.split(k, 3),
        lambda k: sj.random.normal(k, like=A),
        lambda k: sj.random.permutation(k, 7),
    ):
        made = sj.vmap(draw)(keys).todense()
        np.testing.assert_allclose(made, [draw(k).todense() for k in keys], rtol=1e-14)
    rows = sj.array(np.stack([A.todense(), np.roll(A.todense(), 1, 0)]), format="(d,d,c)")
    made = sj.vmap(lambda x: sj.random.bits(sj.random.key(1), like=x))(rows).todense()
    np.testing.assert_array_equal(
        made, [sj.random.bits(sj.random.key(1), like=sj.array(x, format="csr")).todense() for x in rows.todense()]
    )
