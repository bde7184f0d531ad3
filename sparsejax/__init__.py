"""sparsejax: functional sparse arrays, traced, fused and compiled to machine code.

>>> import numpy as np, scipy.sparse as sp, sparsejax as sj, sparsejax.numpy as snp
>>> A = sj.array(sp.eye_array(3, format="csr"))
>>> @sj.jit
... def layer(A, H, W):
...     return snp.maximum(A @ (H @ W), 0)
>>> layer(A, np.ones((3, 2)), np.ones((2, 1))).T
Array([[2., 2., 2.]], dtype=float64)
"""

from sparsejax import config, formats, io, lax, nn, numpy, random, scipy, tree_util
from sparsejax.core.array import Array
from sparsejax.core.avals import ShapeDtypeStruct
from sparsejax.dataflow import stats, tile_sizes, traffic
from sparsejax.errors import (
    ConcretizationTypeError,
    FormatError,
    JaxprTypeError,
    NonConcreteBooleanIndexError,
    ScheduleError,
    SparseEfficiencyWarning,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
    UnexpectedTracerError,
)
from sparsejax.io.npz import load_npz, save_npz
from sparsejax.jit.api import explain
from sparsejax.jit.runtime import conversions  # noqa: F401  (conversions as machine code)
from sparsejax.lax.contract import einsum
from sparsejax.lax.semiring import Semiring
from sparsejax.numpy.functions import array, asarray
from sparsejax.transforms import control_rules  # noqa: F401  (derivatives)
from sparsejax.transforms.checkpoint import checkpoint, remat
from sparsejax.transforms.custom import custom_jvp, custom_vjp, stop_gradient
from sparsejax.transforms.gradients import float0, grad, jvp, linearize, value_and_grad, vjp
from sparsejax.transforms.jacobians import hessian, jacfwd, jacrev
from sparsejax.transforms.sparse_jacobian import sparse_hessian, sparse_jacobian
from sparsejax.transforms.vmap import vmap

from sparsejax.jit.api import eval_shape, jit, make_jaxpr  # isort: skip  (last: `jit` is also a folder)

__version__ = "0.1.0"

__all__ = [
    "checkpoint",
    "remat",
    "vmap",
    "vjp",
    "value_and_grad",
    "stop_gradient",
    "sparse_jacobian",
    "sparse_hessian",
    "linearize",
    "jvp",
    "jacrev",
    "jacfwd",
    "hessian",
    "grad",
    "io",
    "load_npz",
    "save_npz",
    "float0",
    "custom_vjp",
    "custom_jvp",
    "Array",
    "ConcretizationTypeError",
    "FormatError",
    "JaxprTypeError",
    "NonConcreteBooleanIndexError",
    "ScheduleError",
    "Semiring",
    "ShapeDtypeStruct",
    "SparseEfficiencyWarning",
    "TracerArrayConversionError",
    "TracerBoolConversionError",
    "TracerIntegerConversionError",
    "UnexpectedTracerError",
    "__version__",
    "array",
    "asarray",
    "config",
    "einsum",
    "eval_shape",
    "explain",
    "formats",
    "jit",
    "lax",
    "make_jaxpr",
    "nn",
    "numpy",
    "random",
    "stats",
    "tile_sizes",
    "traffic",
    "scipy",
    "tree_util",
]
