"""`sparsejax.numpy` with creation functions whose results are sparse, in csr (matrices), csf and coo in rotation: what the suite of the
array API runs on instead of dense arrays."""

import functools
import itertools

import sparsejax.numpy as snp

CREATION = (
    "arange", "asarray", "empty", "empty_like", "eye", "full", "full_like", "linspace", "meshgrid", "ones", "ones_like",
    "zeros", "zeros_like", "from_dlpack",
)  # fmt: skip
TURNS = itertools.cycle(("csr", "csf", "coo"))


def stored(x):
    """The array in the next format; vectors are csf or coo, numbers have none."""
    if isinstance(x, list | tuple):
        return type(x)(map(stored, x))
    if not hasattr(x, "asformat") or not x.ndim or not x.format.is_dense:
        return x
    form = next(TURNS)
    return x.asformat("coo" if form == "csr" and x.ndim != 2 else form)


def sparse(function):
    @functools.wraps(function)
    def made(*args, **kwargs):
        return stored(function(*args, **kwargs))

    return made


globals().update({name: getattr(snp, name) for name in dir(snp)})
globals().update({name: sparse(getattr(snp, name)) for name in CREATION})
__array_api_version__ = snp.__array_api_version__
