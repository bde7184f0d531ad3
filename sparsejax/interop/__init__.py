"""Arrays of other libraries in and out. Each library is imported by the function that wants it: `pip install 'sparsejax[interop]'` for all.

`copy=False` shares values, and coordinates where both have the same dtype; whoever asks for it promises that nobody writes to them.
SciPy's and NumPy's arrays need none of this: `sparsejax.array` takes them, `.to_scipy()` and `.todense()` make them.
"""

from sparsejax.interop import dask_adapter  # noqa: F401  (Dask learns of arrays)
from sparsejax.interop.graphblas_adapter import from_graphblas, to_graphblas
from sparsejax.interop.jax_adapter import from_jax, to_jax
from sparsejax.interop.networkx_adapter import from_networkx, to_networkx
from sparsejax.interop.pandas_adapter import from_pandas, to_pandas
from sparsejax.interop.pydata_adapter import from_pydata, to_pydata
from sparsejax.interop.scipy_adapter import scipy
from sparsejax.interop.torch_adapter import from_torch, to_torch

__all__ = [
    "from_graphblas",
    "from_jax",
    "from_networkx",
    "from_pandas",
    "from_pydata",
    "from_torch",
    "scipy",
    "to_graphblas",
    "to_jax",
    "to_networkx",
    "to_pandas",
    "to_pydata",
    "to_torch",
]


def __dir__() -> list[str]:
    return __all__
