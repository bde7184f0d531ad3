"""A where inside the producer of another: register tiles inside a dense workspace."""

import numpy as np

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.formats import Format, convert
from sparsejax.jit.ir import cin


def test_the_outer_workspace_is_cleared_though_the_inner_one_is_a_register():
    """The reduction runs in register tiles, then its workspace, a whole row, is read by the elementwise operation."""
    dense = np.zeros((4, 33))
    dense[2] = np.arange(33)
    x = sj.array(dense, format=Format.parse("(q,d)@(0,1)", 2))
    function = sj.jit(lambda v: snp.absolute(snp.sum(v, axis=0) - 5))
    for _ in range(5):
        np.testing.assert_array_equal(convert.to_dense(function(x).storage), np.abs(dense.sum(0) - 5))


def test_workspace_of_nested_wheres():
    i = cin.IndexVar("i")
    scalar, form = Format(()), Format.parse("dense", 1)
    row = cin.Access(cin.Tensor("w", (3,), np.dtype("f8"), form, 0.0, "dense"), (i,))
    register = cin.Access(cin.Tensor("w_t", (), np.dtype("f8"), scalar, 0.0, "scalar"), ())
    out = cin.Access(cin.Tensor("out", (3,), np.dtype("f8"), form, 0.0), (i,))
    one = cin.Literal(1.0, np.dtype("f8"))
    inner = cin.Where(cin.Assign(row, "add", register), cin.Assign(register, "add", one))
    outer = cin.Where(cin.Forall(i, cin.Assign(out, None, row)), cin.Forall(i, inner))
    assert cin.workspace(inner) == register.tensor
    assert cin.workspace(outer) == row.tensor
    assert cin.as_text(outer).startswith("where w: dense")
