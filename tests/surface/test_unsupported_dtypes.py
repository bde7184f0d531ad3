"""Values of unsupported dtypes and types are called what the caller calls them."""

import numpy as np
import pytest
import scipy.sparse as sp

import sparsejax as sj
import sparsejax.numpy as snp

HALF = np.ones(3, np.float16)
SAID = "dtype float16 is not supported; convert to single precision first"


@pytest.mark.parametrize(
    ("name", "call"),
    {
        r"operand 1": lambda: sj.einsum("i,i->i", np.ones(3), HALF),
        r"operand 0": lambda: sj.einsum(HALF, [0], np.ones(3), [0]),
        r"the second operand of matmul": lambda: snp.matmul(np.ones(3), HALF),
        r"argument 1 of add": lambda: snp.add(np.ones(3), HALF),
        r"argument A\['a'\]": lambda: sj.jit(lambda n, A: A["a"], static_argnums=0)(2, {"a": HALF}),
        r"argument B\[1\]": lambda: sj.jit(lambda A, B: A)(np.ones(3), B=(np.ones(3), HALF)),
        r"argument 1\['a'\]": lambda: sj.jit(lambda *given: given[0])(np.ones(3), {"a": HALF}),
    }.items(),
)
def test_the_one_of_a_dtype_that_is_not_supported_is_named(name, call):
    with pytest.raises(TypeError, match=f"^{name}: {SAID}"):
        call()


def test_arguments_of_other_types_are_named():
    with pytest.raises(TypeError, match=r"^argument B\['a'\] is of type str; "):
        sj.jit(lambda A, B: A)(sp.eye_array(3), {"a": "three"})
    compiled = sj.jit(lambda A, B: A + B["a"]).lower(np.ones(3), {"a": np.ones(3)}).compile()
    with pytest.raises(TypeError, match=rf"^argument 1\['a'\]: {SAID}"):
        compiled(np.ones(3), {"a": HALF})
