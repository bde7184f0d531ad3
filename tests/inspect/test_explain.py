"""`sj.explain`: its numbers are those of the compiler, its reasons those of the rules."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import lax


def matrix(n=300, density=0.02, seed=0, format="csr"):
    return sp.random_array((n, n), density=density, format=format, rng=np.random.default_rng(seed))


def test_every_order_is_listed_and_the_cheapest_is_chosen():
    (kernel,) = sj.explain(lambda A, B: A @ B)(matrix(), matrix(seed=1)).kernels
    orders = [tuple(map(str, c.order)) for c in kernel.candidates]
    assert len(orders) == len(set(orders)) == 6
    totals = [c.cost.total for c in kernel.candidates]
    assert totals == sorted(totals)
    assert orders[0] == kernel.order == ("i", "k", "j")
    for c in kernel.candidates:
        assert c.cost.total == c.cost.loops + c.cost.memory + c.cost.output + c.cost.conversions
    assert [str(x.var) for x in kernel.loops] == ["i", "k", "j"]
    assert [x.leaders for x in kernel.loops] == [(), ("A",), ("B",)]


def test_the_chosen_order_is_the_one_that_runs():
    A, B = matrix(), matrix(seed=1, format="csc")
    f = sj.jit(lambda A, B: A @ B)
    (kernel,) = sj.explain(f)(A, B).kernels
    assert f.lower(A, B).as_text("cin") == kernel.cin
    (conversion,) = kernel.conversions
    assert (conversion.name, str(conversion.before), str(conversion.after)) == ("B", "csc", "csr")
    assert "B is converted to csr first" in f.lower(A, B).as_text("plan")


def test_memory_is_that_of_the_arrays():
    A, B = sj.array(matrix(2000, 0.004)), sj.array(matrix(2000, 0.004, 1, format="csc"))
    (kernel,) = sj.explain(lambda A, B: A @ B)(A, B).kernels
    made = A @ B
    assert kernel.memory.inputs == A.nbytes + B.nbytes
    assert kernel.memory.output == pytest.approx(made.nbytes, rel=0.05)
    assert kernel.memory.conversions == pytest.approx(B.asformat("csr").nbytes, rel=0.01)
    total = sum(getattr(kernel.memory, f.name) for f in dataclasses.fields(kernel.memory))
    assert kernel.memory.total == total


def test_dense_output_memory_is_exact():
    A, H = matrix(500), np.ones((500, 7))
    (kernel,) = sj.explain(lambda A, H: A @ H)(A, H).kernels
    assert kernel.memory.output == 500 * 7 * 8
    assert kernel.memory.conversions == 0


def test_workspaces_say_where_and_why():
    explained = sj.explain(lambda A, B: A @ B)(matrix(), matrix())
    (workspace,) = explained.kernels[0].workspaces
    assert (workspace.variables, workspace.loops) == (("j",), ("i",))
    assert "k is reduced outside the loop over j" in workspace.reason
    (kernel,) = sj.explain(lambda A, x: snp.exp(A @ x))(matrix(), np.ones(300)).kernels
    (workspace,) = kernel.workspaces
    assert (workspace.policy, workspace.loops, workspace.nbytes) == ("scalar", ("i",), 8)
    (kernel,) = sj.explain(lambda A: A + A)(matrix()).kernels
    assert kernel.workspaces == ()


@pytest.mark.parametrize(
    ("function", "reasons"),
    [
        (lambda A: A + 1, ["fill 1.0: the value where", "j is compressed: without A it falls back to the fill"]),
        (lambda A: A @ A, ["fill 0.0: the identity of add", "i is dense: ", "j is compressed: without"]),
        (lambda A: A.sum(axis=0), ["i is dense: no operand restricts it"]),
        (lambda A: A + np.ones((300, 300)), ["j is dense: where the sparse operands read their fill"]),
        (lambda A: sj.einsum("ij,jk->ik", A, A, out_format="csc"), ["pinned by out_format"]),
    ],
)
def test_formats_have_reasons(function, reasons):
    (kernel,) = sj.explain(function)(matrix()).kernels
    for wanted in reasons:
        assert any(wanted in found for found in kernel.format_reasons), kernel.format_reasons
    assert str(function(sj.array(matrix())).format) == str(kernel.output_format)


def test_what_is_kept_of_a_row_is_readable():
    """Values that are kept without a reduction are assigned; nothing is said of a reduction where there is none."""
    (kernel,) = sj.explain(lambda A: sj.nn.softmax(A, axis=1))(
        matrix(300, 0.1)
    ).kernels  # of fewer entries, they are computed twice
    assert "w1[i,j] = " in kernel.expression and "w[i] maximum= " in kernel.expression
    assert all("nothing" not in w.reason for w in kernel.workspaces)


def test_library_calls_stand_between_kernels():
    @sj.jit
    def layer(A, H, W):
        return snp.maximum(A @ (H @ W), 0)

    told = sj.explain(layer)(matrix(), np.ones((300, 4)), np.ones((4, 2)))
    assert [type(s).__name__ for s in told.steps] == ["LibraryCall", "Kernel"]
    assert "all operands are dense" in told.calls[0].reason
    text = str(told)
    for word in ("library call contract", "chosen: i,k,j", "workspace", "no conversion", "memory inputs", "LLVM"):
        assert word in text
    assert [line.split()[0] for line in told.times().splitlines()] == ["trace", "function", "kernel", "together"]
    assert told.kernels[0].times.llvm > 0


def test_static_arguments_and_structures():
    f = sj.jit(lambda tree, n: tree["A"] * n, static_argnums=1)
    assert len(sj.explain(f)({"A": matrix()}, 3).kernels) == 1


def test_types_are_not_enough():
    with pytest.raises(TypeError, match="explain needs arrays"):
        sj.explain(lambda A: A + A)(sj.ShapeDtypeStruct((3, 3), "float64", format="csr"))


def test_later_kernels_see_what_earlier_ones_made():
    A = matrix()
    told = sj.explain(lambda A: (A @ A) @ A)(A)
    assert len(told.kernels) == 2
    entries = sj.array(A @ A).nnz
    assert any(x.positions[-1] == entries for x in told.kernels[1].inputs)


def test_a_number_that_is_added_later_does_not_lengthen_a_reduction():
    """The loop over k of `A @ H + b` runs over stored entries, whatever is done to their sum."""
    coords = np.random.default_rng(0).integers(0, 2000, (2, 8000))
    A = sj.array((np.ones(8000), coords), shape=(2000, 2000), format="csr")
    H, b = np.ones((2000, 16)), np.ones(16)

    def price(f):
        return float(sj.jit(f).lower(A, H, b).as_text("plan").split("estimated cost ")[1].split()[0])

    assert price(lambda A, H, b: A @ H + b) < 3 * price(lambda A, H, b: A @ H)


@pytest.mark.parametrize("form", ["dense", "csr"])
def test_long_loops(form):
    A, x = sj.array(matrix(30)).asformat(form), np.ones(30)
    told = sj.explain(lambda A, x: lax.scan(lambda t, a: (t + a, (t * a).sum()), x, A))(A, x)
    assert [body.runs for body in told.steps[-1].bodies] == [30]
    told = sj.explain(lambda A, x: lax.while_loop(lambda s: s[1] < 9, lambda s: (A @ s[0], s[1] + 1), (x, 0)))(A, x)
    assert [body.runs for body in told.steps[-1].bodies] == [10, 9]
