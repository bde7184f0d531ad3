"""`sparsejax.nn` against NumPy and SciPy on dense arrays, in every format; derivatives against central differences."""

import numpy as np
import pytest
import scipy.special as special

import sparsejax as sj
from sparsejax import nn
from sparsejax.lax import pattern
from tests.autodiff import checks
from tests.autodiff.checks import array
from tests.fuzz import engine

pytestmark = pytest.mark.rotating(28)

FORMATS = [
    "csr",
    "csc",
    "coo",
    "dcsr",
    "bsr:2x2",
    "ell",
    "groupcoo:2",
    "bitmap",
    "hash",
    "dia",
    "banded",
    "lil",
    "(d,c,d)@(0,1,2)",
]


@pytest.fixture(autouse=True, scope="module")
def without_optimisation():
    with engine.quick():
        yield


ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "leaky_relu": lambda x: np.where(x >= 0, x, 0.01 * x),
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "silu": lambda x: x * special.expit(x),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "softplus": lambda x: np.logaddexp(x, 0),
    "sigmoid": special.expit,
    "tanh": np.tanh,
}


@pytest.mark.parametrize("form", ["dense", "csr", "bsr:2x2", "hash"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name, form):
    rng = np.random.default_rng(0)
    x, f = array(rng, (5, 6), form), getattr(nn, name)
    made = f(x)
    assert made.format == x.format
    np.testing.assert_allclose(made.todense(), ACTIVATIONS[name](x.todense()), rtol=1e-12, atol=1e-15)
    checks.check(rng, f, x, second=form == "csr")


def test_activations_at_extremes():
    x = np.array([-1e3, -0.0, 0.0, 1e3])
    for name, f in ACTIVATIONS.items():
        with np.errstate(over="ignore"):
            np.testing.assert_allclose(getattr(nn, name)(x).todense(), f(x), rtol=1e-12, atol=1e-300)
    slopes = [float(sj.grad(getattr(nn, name))(0.0).todense()) for name in ("relu", "elu", "silu", "gelu", "softplus")]
    assert slopes == [0, 1, 0.5, 0.5, 0.5]
    assert nn.relu(np.array([-1, 2])).dtype == np.int64 and nn.gelu(np.array([1])).dtype == np.float64


def _lines(x):
    """The values of stored entries, -inf elsewhere."""
    return np.where(pattern(x, bool).todense(), x.todense(), -np.inf) if not x.format.is_dense else x.todense()


@pytest.mark.parametrize("form", ["dense", *FORMATS])
@pytest.mark.parametrize(("axis", "fill"), [(0, 0), (-1, 3), (None, 0), ((0, 1), 3)])
def test_softmax(form, axis, fill):
    shape = (4, 5, 2) if "(" in form else (7, 6)
    x = array(np.random.default_rng(1), shape, form, density=0.35, high=30, fill=fill)
    lines, kept = _lines(x), np.isfinite(_lines(x))
    with np.errstate(all="ignore"):
        wanted = np.nan_to_num(special.softmax(lines, axis=axis))
        log = np.where(kept, special.log_softmax(lines, axis=axis), -np.inf)
        total = special.logsumexp(lines, axis=axis)
    made, logs, sums = nn.softmax(x, axis), nn.log_softmax(x, axis), nn.logsumexp(x, axis)
    np.testing.assert_allclose(made.todense(), wanted, rtol=1e-12)
    np.testing.assert_allclose(logs.todense(), log, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(sums.todense(), total, rtol=1e-12)
    if form != "dense":
        assert made.nnz == logs.nnz == pattern(x).nnz and made.fill_value == 0 and logs.fill_value == -np.inf
        assert form == "lil" or made.format == logs.format == x.format
    assert nn.logsumexp(x, axis, keepdims=True).ndim == x.ndim
    if form not in ("dense", "csr", "dcsr", "bsr:2x2"):
        return
    traced = sj.jit(lambda x: (nn.softmax(x, axis), nn.log_softmax(x, axis)))(x)
    np.testing.assert_allclose(traced[0].todense(), wanted, rtol=1e-12)
    np.testing.assert_allclose(traced[1].todense(), log, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("form", ["coo", "csf", "dcsc"])
@pytest.mark.parametrize("axis", [0, 1, None])
def test_softmax_of_a_huge_matrix_has_its_pattern(form, axis):
    rows, columns, values = [0, 7, 7, 2**39], [1, 1, 2**35, 1], np.array([2.0, -3.0, 5.0, 0.5])
    A = sj.array((values, (rows, columns)), shape=(2**40, 2**40)).asformat(form)
    made = sj.jit(lambda A: nn.softmax(A, axis))(A)
    lines = {0: columns, 1: rows, None: [0] * 4}[axis]
    grown = np.exp(values)
    total = [sum(grown[k] for k in range(4) if lines[k] == line) for line in lines]
    assert made.format == A.format and made.fill_value == 0
    made = made.asformat("coo")
    np.testing.assert_allclose(made.to_scipy().data, grown / total)


@pytest.mark.parametrize("function", [nn.softmax, nn.log_softmax, nn.logsumexp])
@pytest.mark.parametrize("form", ["dense", *FORMATS])
def test_derivatives_of_softmax(form, function):
    rng = np.random.default_rng(2)
    shape = (3, 4, 2) if "(" in form else (4, 5)
    x = array(rng, shape, form, density=0.7)
    checks.check(rng, lambda x: function(x, 1), x, second=form == "csr")


def test_softmax_of_infinities():
    x = np.array([[-np.inf, -np.inf], [-np.inf, 0]])
    assert nn.logsumexp(x, 1).todense().tolist() == [-np.inf, 0]
    assert nn.softmax(x[1]).todense().tolist() == [0, 1]
    assert nn.softmax(np.array([1, 1])).todense().tolist() == [0.5, 0.5]
    with pytest.raises(ValueError, match="no entries along axis 1"):
        nn.softmax(np.zeros((2, 0)))
    with pytest.raises(TypeError, match="x must be real"):
        nn.softmax(np.ones(2, complex))


IDS = np.array([3, 0, 3, 1, 0, 0, 5, -1])


@pytest.mark.parametrize("shape", [(8,), (8, 3), (8, 2, 2)])
def test_segments(shape):
    data, ids = np.random.default_rng(3).normal(size=shape), np.append(IDS, [4])[:8]
    groups = [data[ids == k] for k in range(5)]
    for f, combine, empty in (
        (nn.segment_sum, np.sum, 0),
        (nn.segment_max, np.max, -np.inf),
        (nn.segment_min, np.min, np.inf),
        (nn.segment_mean, np.mean, 0),
    ):
        wanted = [combine(g, axis=0) if len(g) else np.full(shape[1:], empty) for g in groups]
        np.testing.assert_allclose(f(data, ids, 5).todense(), wanted, rtol=1e-12)
        np.testing.assert_allclose(sj.jit(f, static_argnums=2)(data, ids, 5).todense(), wanted, rtol=1e-12)
    made = nn.segment_softmax(data, ids, 5).todense()
    for k, group in enumerate(groups):
        np.testing.assert_allclose(made[ids == k], special.softmax(group, axis=0) if len(group) else group, rtol=1e-12)


def test_segments_of_integers_and_sparse_rows():
    assert nn.segment_sum(np.arange(8), IDS, 4).todense().tolist() == [10, 3, 0, 2]
    assert nn.segment_max(np.arange(8), IDS, 4).todense().tolist() == [5, 3, np.iinfo(np.int64).min, 2]
    A = array(np.random.default_rng(0), (8, 5), "csr")
    wanted = np.zeros((4, 5))
    np.add.at(wanted, IDS[(IDS >= 0) & (IDS < 4)], A.todense()[(IDS >= 0) & (IDS < 4)])
    np.testing.assert_allclose(nn.segment_sum(A, IDS, 4).todense(), wanted, rtol=1e-12)
    np.testing.assert_array_equal(
        nn.segment_sum(np.arange(8), segment_ids=IDS), nn.segment_sum(np.arange(8), IDS, num_segments=IDS.max() + 1)
    )
    with pytest.raises(TypeError, match="num_segments must be given"):
        sj.jit(nn.segment_sum)(np.arange(8), IDS)
    with pytest.raises(ValueError, match="segment_ids of shape"):
        nn.segment_sum(np.ones(3), IDS, 4)
    with pytest.raises(TypeError, match="segment_ids must be integers"):
        nn.segment_sum(np.ones(3), np.ones(3), 4)


@pytest.mark.parametrize(
    "function", [nn.segment_sum, nn.segment_max, nn.segment_min, nn.segment_mean, nn.segment_softmax]
)
def test_derivatives_of_segments(function):
    rng, ids = np.random.default_rng(4), np.array([1, 0, 1, 2, 0, 1])
    checks.check(rng, lambda x: function(x, ids, 3), array(rng, (6, 2)), second=function is nn.segment_softmax)


def test_one_hot_and_embed():
    for labels in (np.array(2), IDS, np.array([[0, 1], [4, 2]], np.uint8)):
        wanted = (labels[..., None] == np.arange(4)).astype(float)
        made = nn.one_hot(labels, 4)
        np.testing.assert_array_equal(made.todense(), wanted)
        assert made.nnz == wanted.sum()
        table = np.random.default_rng(0).normal(size=(4, 3))
        np.testing.assert_allclose(nn.embed(table, labels).todense(), wanted @ table)
    rng = np.random.default_rng(0)
    checks.check(rng, lambda t: nn.embed(t, np.array([1, 1, 0])), array(rng, (4, 3)))


@pytest.mark.parametrize("weights", ["dense", "csr", "bsr:2x2"])
@pytest.mark.parametrize("inputs", ["dense", "csr"])
def test_linear(inputs, weights):
    rng = np.random.default_rng(5)
    x, w, b = array(rng, (4, 6), inputs), array(rng, (6, 3), weights), array(rng, (3,))
    np.testing.assert_allclose(nn.linear(x, w, b).todense(), x.todense() @ w.todense() + b.todense(), rtol=1e-12)
    checks.check(rng, nn.linear, x, w, b)


def _attention(q, k, v, kept, bias=0):
    scores = np.where(kept, np.einsum("...nd,...md->...nm", q, k) / np.sqrt(q.shape[-1]) + bias, -np.inf)
    with np.errstate(all="ignore"):
        return np.nan_to_num(special.softmax(scores, axis=-1)) @ v


@pytest.mark.parametrize("form", [None, "dense", "csr", "csc", "coo", "dcsr", "bsr:2x2", "banded", "bitmap"])
@pytest.mark.parametrize("heads", [(), (3,), (2, 3)])
def test_attention(heads, form):
    rng = np.random.default_rng(6)
    q, k, v = (rng.normal(size=(*heads, n, d)) for n, d in ((6, 4), (8, 4), (8, 5)))
    mask = None if form is None else array(rng, (6, 8), form if form != "dense" else "csr")
    kept = np.ones((6, 8), bool) if mask is None else pattern(mask, bool).todense()
    if form == "dense":
        kept[:, 0] = True
        mask = sj.array(kept)
    made = nn.dot_product_attention(q, k, v, mask)
    np.testing.assert_allclose(made.todense(), _attention(q, k, v, kept), rtol=1e-11, atol=1e-13)
    made = sj.jit(nn.dot_product_attention)(q, k, v, mask, bias=rng.normal(size=(6, 8)) * 0 + 1)
    np.testing.assert_allclose(made.todense(), _attention(q, k, v, kept), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("form", ["csr", "bsr:2x2"])
@pytest.mark.parametrize("heads", [(), (2,)])
def test_derivatives_of_attention(heads, form):
    rng = np.random.default_rng(7)
    mask = array(rng, (4, 5), form, density=0.6)
    q, k, v = (array(rng, (*heads, n, d)) for n, d in ((4, 2), (5, 2), (5, 3)))
    checks.check(rng, lambda *xs: nn.dot_product_attention(*xs, mask), q, k, v)


def test_attention_names_what_does_not_fit():
    q = np.ones((3, 2))
    with pytest.raises(ValueError, match="query of shape"):
        nn.dot_product_attention(q, np.ones((3, 4)), q)
    with pytest.raises(ValueError, match="value of shape"):
        nn.dot_product_attention(q, q, np.ones((4, 2)))


def test_losses():
    rng = np.random.default_rng(8)
    logits, labels = rng.normal(size=(6, 4)) * 30, rng.integers(0, 4, 6)
    wanted = -special.log_softmax(logits, axis=1)[np.arange(6), labels]
    np.testing.assert_allclose(
        nn.softmax_cross_entropy_with_integer_labels(logits, labels).todense(), wanted, rtol=1e-12, atol=1e-13
    )
    spread = rng.dirichlet(np.ones(4), 6)
    np.testing.assert_allclose(
        nn.softmax_cross_entropy(logits, spread).todense(), -(spread * special.log_softmax(logits, axis=1)).sum(1)
    )
    np.testing.assert_allclose(nn.mean_squared_error(logits, spread).todense(), ((logits - spread) ** 2).mean())
    x = array(rng, (6, 4))
    checks.check(rng, lambda x: nn.softmax_cross_entropy_with_integer_labels(x, labels), x, second=True)
    with pytest.raises(ValueError, match="labels of shape"):
        nn.softmax_cross_entropy_with_integer_labels(logits, labels[:3])


@pytest.mark.parametrize("form", ["dense", "csr", "bsr:2x2", "dia"])
def test_dropout(form):
    x = array(np.random.default_rng(0), (60, 70), form, low=1, signed=False)
    made = nn.dropout(sj.random.key(0), x, 0.25)
    assert made.format == x.format and made.fill_value == 0
    kept = made.todense() != 0
    np.testing.assert_allclose(made.todense()[kept], x.todense()[kept] / 0.75)
    assert abs(kept.sum() / (x.todense() != 0).sum() - 0.75) < 0.05
    slope = sj.grad(lambda x: nn.dropout(sj.random.key(0), x, 0.25).sum())(x)
    np.testing.assert_allclose(slope.todense(), kept / 0.75)
    with pytest.raises(ValueError, match="rate=1"):
        nn.dropout(sj.random.key(0), x, 1)


def _descend(optimizer, params, steps=3):
    def loss(p):
        return ((p["w"] * p["w"] - 1) * p["w"]).sum() + (p["b"] * 3).sum()

    @sj.jit
    def step(params, state):
        updates, state = optimizer.update(sj.grad(loss)(params), state, params)
        return nn.apply_updates(params, updates), state

    state = optimizer.init(params)
    for _ in range(steps):
        params, state = step(params, state)
    return params


def _by_hand(update, w, b, steps=3):
    for t in range(1, steps + 1):
        w, b = update(0, t, w, 3 * w**2 - 1), update(1, t, b, np.full_like(b, 3.0))
    return w, b


def _adam(rate, decay, decoupled):
    moments = {0: (0, 0), 1: (0, 0)}

    def update(k, t, p, g):
        g = g if decoupled else g + decay * p
        m, v = 0.9 * moments[k][0] + 0.1 * g, 0.999 * moments[k][1] + 0.001 * g * g
        moments[k] = (m, v)
        step = rate * m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        return p - step - (rate * decay * p if decoupled else 0)

    return update


def _sgd(rate, momentum, nesterov):
    velocity = {0: 0, 1: 0}

    def update(k, t, p, g):
        velocity[k] = momentum * velocity[k] + g
        return p - rate * (momentum * velocity[k] + g if nesterov else velocity[k])

    return update


OPTIMIZERS = {
    "adam": (nn.adam(0.1, weight_decay=0.01), lambda: _adam(0.1, 0.01, False)),
    "adamw": (nn.adamw(0.1, weight_decay=0.01), lambda: _adam(0.1, 0.01, True)),
    "sgd": (nn.sgd(0.1), lambda: _sgd(0.1, 0, False)),
    "momentum": (nn.sgd(0.1, 0.9), lambda: _sgd(0.1, 0.9, False)),
    "nesterov": (nn.sgd(0.1, 0.9, nesterov=True), lambda: _sgd(0.1, 0.9, True)),
}


@pytest.mark.parametrize("form", ["dense", "csr", "bsr:2x2"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name, form):
    rng = np.random.default_rng(9)
    params = {"w": array(rng, (5, 4), form), "b": array(rng, (3,))}
    optimizer, reference = OPTIMIZERS[name]
    made = _descend(optimizer, params)
    w, b = _by_hand(reference(), params["w"].todense(), params["b"].todense())
    kept = _lines(params["w"]) > -np.inf
    np.testing.assert_allclose(made["w"].todense(), np.where(kept, w, 0), rtol=1e-9)
    np.testing.assert_allclose(made["b"].todense(), b, rtol=1e-9)
    assert made["w"].format == params["w"].format and made["w"].nnz == params["w"].nnz


def test_decay_needs_parameters():
    optimizer = nn.adamw(0.1)
    with pytest.raises(ValueError, match="weight decay needs the parameters"):
        optimizer.update(np.ones(2), optimizer.init(np.ones(2)))


@pytest.mark.parametrize("form", ["csr", "bsr:2x2"])
def test_memory_of_attention_is_that_of_the_mask(form):
    """Nothing in the program of attention with heads, forwards or backwards, is sparse with a dense level per token."""
    rng, n = np.random.default_rng(0), 64
    mask = array(rng, (n, n), form, density=0.05)
    q = rng.normal(size=(2, n, 4))
    made = sj.make_jaxpr(sj.grad(lambda q, m: (nn.dot_product_attention(q, q, q, m) ** 2).sum()))(q, mask)
    for eqn in made.jaxpr.eqns:
        for aval in (v.aval for v in eqn.outputs):
            letters = "".join(level.letter for level in aval.format.levels)
            assert aval.shape[-2:] != (n, n) or letters in ("ddc", "ddcdd", "dc", "dcdd"), eqn


def test_batches():
    rng = np.random.default_rng(0)
    x, labels, mask = rng.normal(size=(3, 4, 5)), rng.integers(0, 5, (3, 4)), array(rng, (4, 4), "csr")
    for f, args in (
        (nn.softmax, (x,)),
        (nn.log_softmax, (x,)),
        (lambda x: nn.logsumexp(x, 0), (x,)),
        (nn.softmax_cross_entropy_with_integer_labels, (x, labels)),
        (lambda d, i: nn.segment_softmax(d, i, 5), (x, labels)),
        (lambda x: nn.dot_product_attention(x, x, x, mask), (x,)),
        (sj.grad(lambda x: (nn.dot_product_attention(x, x, x, mask) ** 2).sum()), (x,)),
    ):
        wanted = [f(*parts).todense() for parts in zip(*args, strict=True)]
        np.testing.assert_allclose(sj.vmap(f)(*args).todense(), wanted, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (0, 0)])
@pytest.mark.parametrize("axis", [0, 1])
def test_lines_of_no_elements(shape, axis):
    x = sj.array(np.zeros(shape)).asformat("csr")
    assert nn.softmax(x, axis).shape == shape and nn.log_softmax(x, axis).shape == shape
    np.testing.assert_array_equal(nn.logsumexp(x, axis).todense(), np.full(shape[1 - axis], -np.inf))


@pytest.mark.parametrize("form", ["dense", "csr", "csc", "coo", "bitmap"])
def test_sums_of_exponentials_of_what_is_no_number(form):
    """Are none; of infinite ones, infinite."""
    dense = np.array([[1, np.nan, 2], [np.inf, 3, np.nan], [np.inf, 1, 5], [-np.inf, -np.inf, -np.inf], [1, 2, 3]])
    with np.errstate(all="ignore"):
        wanted = special.logsumexp(dense, axis=1)
    x = sj.array(dense, format=form)
    np.testing.assert_allclose(nn.logsumexp(x, 1).todense(), wanted, rtol=1e-15)
    np.testing.assert_allclose(sj.jit(lambda x: nn.logsumexp(x, 1))(x).todense(), wanted, rtol=1e-15)


@pytest.mark.parametrize("form", ["dense", "csr", "coo"])
def test_softmax_of_lines_with_infinity(form):
    """Is no number anywhere, as in JAX: which share an infinite entry has is not known."""
    dense = np.array([[np.inf, 1, 2], [np.inf, 1, np.inf], [1, np.nan, 3], [-np.inf, 1, 2], [1, 2, 3]])
    x = sj.array(dense, format=form)
    with np.errstate(all="ignore"):
        shares = special.softmax(dense, 1)
        wanted = {nn.softmax: shares, nn.log_softmax: np.log(shares)}
    for function, right in wanted.items():
        np.testing.assert_allclose(sj.jit(lambda x, f=function: f(x, 1))(x).todense(), right, rtol=1e-13)
