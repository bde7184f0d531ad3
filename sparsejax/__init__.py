"""sparsejax: functional sparse arrays, traced, fused and compiled to machine code.

>>> import numpy as np, scipy.sparse as sp, sparsejax as sj, sparsejax.numpy as snp
>>> A = sj.array(sp.eye_array(3, format="csr"))
>>> @sj.jit
... def layer(A, H, W):
...     return snp.maximum(A @ (H @ W), 0)
>>> layer(A, np.ones((3, 2)), np.ones((2, 1))).T
Array([[2., 2., 2.]], dtype=float64)
"""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

from sparsejax import config, debug, formats, interop, io, lax, nn, numpy, plot, random, scipy, tree, tree_util
from sparsejax.core.array import Array
from sparsejax.core.avals import ShapeDtypeStruct
from sparsejax.core.trace import disable_jit
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
from sparsejax.insum.build import insum
from sparsejax.io.npz import load_npz, save_npz
from sparsejax.jit.api import explain
from sparsejax.jit.runtime.passes import conversions  # noqa: F401  (conversions as machine code)
from sparsejax.jit.runtime.passes.between import dense_conversions, diagonal_conversions, walked_entries  # noqa: F401  (the same)
from sparsejax.lax.contract import einsum
from sparsejax.lax.semiring import Semiring
from sparsejax.lax.thinning import prune
from sparsejax.numpy.builder import Builder
from sparsejax.numpy.creation import diags, from_dlpack
from sparsejax.numpy.making import array, asarray, eye
from sparsejax.numpy.manipulation import block_diag
from sparsejax.transforms import control_rules  # noqa: F401  (derivatives)
from sparsejax.transforms.checkpoint import checkpoint, remat
from sparsejax.transforms.custom import custom_jvp, custom_vjp, stop_gradient
from sparsejax.transforms.equations import custom_linear_solve, custom_root
from sparsejax.transforms.gradients import float0, grad, jvp, linearize, value_and_grad, vjp
from sparsejax.transforms.jacobians import hessian, jacfwd, jacrev
from sparsejax.transforms.sparse_jacobian import sparse_hessian, sparse_jacobian
from sparsejax.transforms.vmap import vmap
from sparsejax.utilities import (
    block_until_ready,
    clear_caches,
    coo_array,
    csc_array,
    csr_array,
    device_put,
    devices,
    pure_callback,
)

from sparsejax.jit.api import eval_shape, jit, make_jaxpr  # isort: skip  (last: `jit` is also a folder)

__version__ = "0.1.0"

lax.provide({"custom_linear_solve": custom_linear_solve, "custom_root": custom_root, "stop_gradient": stop_gradient})

__all__ = [
    "Array",
    "Builder",
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
    "block_diag",
    "block_until_ready",
    "checkpoint",
    "clear_caches",
    "config",
    "coo_array",
    "csc_array",
    "csr_array",
    "custom_jvp",
    "custom_vjp",
    "debug",
    "device_put",
    "devices",
    "diags",
    "disable_jit",
    "einsum",
    "eval_shape",
    "explain",
    "eye",
    "float0",
    "formats",
    "from_dlpack",
    "grad",
    "hessian",
    "insum",
    "interop",
    "io",
    "jacfwd",
    "jacrev",
    "jit",
    "jvp",
    "lax",
    "linearize",
    "load_npz",
    "make_jaxpr",
    "nn",
    "numpy",
    "plot",
    "prune",
    "pure_callback",
    "random",
    "remat",
    "save_npz",
    "scipy",
    "sparse_hessian",
    "sparse_jacobian",
    "stats",
    "stop_gradient",
    "tile_sizes",
    "traffic",
    "tree",
    "tree_util",
    "value_and_grad",
    "vjp",
    "vmap",
]


_LATER = ("dask", "export")
"""Folders that are loaded at their first use: most programs need neither."""


if TYPE_CHECKING:
    from sparsejax import dask as dask
    from sparsejax import export as export
else:

    def __getattr__(name: str) -> ModuleType:
        """Load a folder of `_LATER`; `sparsejax.dask` needs the extra `sparsejax[dask]`."""
        if name in _LATER:
            return importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, *_LATER]
