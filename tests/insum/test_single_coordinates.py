"""Variables that run over one coordinate: no loop is made of those over dense operands alone, and results are what they are with loops."""

import numpy as np
import pytest

import sparsejax as sj
import sparsejax.numpy as snp
from tests.insum_interpreter import interpret

STATEMENTS = {
    "groups of one": "C[R[p],n] += V[p,q] * B[K[p,q],n]",
    "a vector": "C[R[p]] += V[p,q] * x[K[p,q]]",
    "no target": "C[n] += V[p,q] * B[K[p,q],n]",
    "in the target": "C[R[p],q] max= V[p,q] * x[K[p,q]]",
    "assigned": "C[p] = V[p,q] + x[K[p,q]]",
    "its value": "C[R[p],n] += V[p,q] * (q + 1) * B[K[p,q],n]",
    "products": "C[R[p]] *= V[p,q]",
    "smallest": "C[R[p]] min= V[p,q] - x[K[p,q]]",
}
ROWS, SLOTS, COLUMNS = 9, 40, 7


def _operands(width, negative=False):
    rng = np.random.default_rng(width)
    K = rng.integers(-ROWS if negative else 0, ROWS, (SLOTS, width))
    return {
        "R": np.sort(rng.integers(0, ROWS, SLOTS)),
        "K": K,
        "V": rng.integers(-3, 4, (SLOTS, width)).astype(float),
        "B": rng.integers(-3, 4, (ROWS, COLUMNS)).astype(float),
        "x": rng.integers(-3, 4, ROWS).astype(float),
    }


def _target(name):
    shapes = {
        "no target": (COLUMNS,),
        "in the target": (ROWS, 1),
        "assigned": (SLOTS,),
        "groups of one": (ROWS, COLUMNS),
    }
    return np.ones(shapes.get(name, (ROWS, COLUMNS) if name == "its value" else (ROWS,)))


@pytest.mark.parametrize("jitted", (False, True))
@pytest.mark.parametrize(
    "name, sparse", [(n, s) for n, t in STATEMENTS.items() for s in ("", "V", "K", "B") if not s or f"{s}[" in t]
)
def test_they_change_nothing(name, jitted, sparse):
    """Of whole numbers, so that sums are exact; operands dense, and one of them sparse."""
    text, operands = STATEMENTS[name], _operands(1, negative=sparse != "K")
    given = {k: x for k, x in operands.items() if f"{k}[" in text}
    C = _target(name)
    stored = {"K": np.ones((SLOTS, 1), bool)} if sparse == "K" else {}
    expected = interpret(text, {**given, "C": C}, stored)["C"]
    ours = {k: sj.array(x) for k, x in given.items()}
    if sparse == "K":
        places = np.indices((SLOTS, 1)).reshape(2, -1)
        ours["K"] = sj.array((given["K"].reshape(-1), tuple(places)), shape=(SLOTS, 1), format="coo")
    elif sparse:
        ours[sparse] = ours[sparse].asformat("csr")
    run = (lambda **a: sj.insum(text, **a)) if not jitted else sj.jit(lambda **a: sj.insum(text, **a))
    np.testing.assert_array_equal(run(C=sj.array(C), **ours).todense(), expected)


def test_one_program_for_other_widths():
    """The same function with one slot in a group, and with others."""
    text = STATEMENTS["groups of one"]
    f = sj.jit(lambda **a: sj.insum(text, C=snp.zeros((ROWS, COLUMNS)), **a))
    for width in (1, 3, 1, 2):
        given = {k: x for k, x in _operands(width).items() if k != "x"}
        expected = interpret(text, {**given, "C": np.zeros((ROWS, COLUMNS))})["C"]
        np.testing.assert_array_equal(f(**{k: sj.array(x) for k, x in given.items()}).todense(), expected)


def test_no_loop_runs_over_them():
    text = STATEMENTS["groups of one"]
    loops = {}
    for width in (1, 2):
        given = {k: sj.array(x) for k, x in _operands(width).items() if k != "x"}
        f = sj.jit(lambda **a: sj.insum(text, C=snp.zeros((ROWS, COLUMNS)), **a))
        loops[width] = f.lower(**given).as_text("cin").count("forall")
    assert loops[1] < loops[2]


@pytest.mark.parametrize("jitted", (False, True))
def test_errors_name_the_place(jitted):
    text, given = STATEMENTS["a vector"], _operands(1)
    given["K"][5, 0] = ROWS
    run = sj.jit(lambda **a: sj.insum(text, **a)) if jitted else (lambda **a: sj.insum(text, **a))
    with pytest.raises(
        IndexError, match=rf"index {ROWS} at K\[5,0\] is out of bounds for axis 0 of x with size {ROWS}"
    ):
        run(C=np.zeros(ROWS), **{k: given[k] for k in "RKVx"})


def test_gradients_by_operands():
    """Derivatives keep the axes of their operands."""
    text, given = STATEMENTS["a vector"], _operands(1)

    def loss(V, x):
        made = sj.insum(text, C=snp.zeros(ROWS), R=given["R"], K=given["K"], V=V, x=x)
        return (made * made).sum()

    by_V, by_x = sj.grad(loss, argnums=(0, 1))(sj.array(given["V"]), sj.array(given["x"]))
    out = interpret(text, {**{k: given[k] for k in "RKVx"}, "C": np.zeros(ROWS)})["C"]
    K, R = given["K"][:, 0], given["R"]
    np.testing.assert_array_equal(by_V.todense(), (2 * out[R] * given["x"][K])[:, None])
    expected = np.zeros(ROWS)
    np.add.at(expected, K, 2 * out[R] * given["V"][:, 0])
    np.testing.assert_array_equal(by_x.todense(), expected)
