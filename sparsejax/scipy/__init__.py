"""`sparsejax.scipy`: functions of SciPy and `jax.scipy` over arrays in any format."""

from sparsejax.scipy import sparse

__all__ = ["sparse"]
