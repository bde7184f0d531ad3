"""`sparsejax.interop`: functions and estimators of other libraries, of our arrays."""

from sparsejax.interop.scipy_adapter import scipy

__all__ = ["scipy"]


def __dir__() -> list[str]:
    return __all__
