"""`sparsejax.scipy.sparse`: see `linalg`."""

from sparsejax.scipy.sparse import linalg

__all__ = ["linalg"]
