"""`sparsejax.numpy`: NumPy's functions over arrays in any format, by NumPy's names and rules; a namespace of the array API standard,
2025.12.

>>> import sparsejax as sj, sparsejax.numpy as snp, numpy as np
>>> A = sj.array(np.eye(3), format="csr")
>>> snp.exp(A).fill_value
np.float64(1.0)
"""

from __future__ import annotations

import sys

import numpy as _np
from numpy import (
    bool_,
    complex64,
    complex128,
    complexfloating,
    dtype,
    e,
    euler_gamma,
    float32,
    float64,
    floating,
    inexact,
    inf,
    int8,
    int16,
    int32,
    int64,
    integer,
    nan,
    newaxis,
    number,
    pi,
    signedinteger,
    uint8,
    uint16,
    uint32,
    uint64,
    unsignedinteger,
)

from sparsejax.core.methods import register_surface
from sparsejax.lax.contract import einsum, matmul, tensordot
from sparsejax.lax.elementwise import erf, imag, logistic, real
from sparsejax.lax.library.special import special
from sparsejax.lax.structural import broadcast_to, diagonal, transpose
from sparsejax.lax.structural import convert_format as asformat
from sparsejax.lax.thinning import eliminate_zeros
from sparsejax.numpy import fft, linalg, protocols
from sparsejax.numpy.arranging import column_stack, dstack, fliplr, flipud, repeat, roll, rot90, take_along_axis, tile
from sparsejax.numpy.choosing import delete, insert, lexsort, piecewise, put_along_axis, select
from sparsejax.numpy.creation import (
    diagflat,
    diags,
    empty,
    empty_like,
    from_dlpack,
    linspace,
    tri,
    vander,
)
from sparsejax.numpy.data_types import (
    API_VERSION,
    array_namespace_info,
    can_cast,
    finfo,
    iinfo,
    isdtype,
    issubdtype,
    promote_types,
    result_type,
)
from sparsejax.numpy.elementwise import (
    angle,
    binary,
    deg2rad,
    divmod,
    fabs,
    fix,
    float_power,
    fmod,
    heaviside,
    iscomplex,
    isneginf,
    isposinf,
    isreal,
    logaddexp2,
    operators,
    rad2deg,
    sinc,
    unary,
)
from sparsejax.numpy.functions import (
    allclose,
    array_equal,
    astype,
    clip,
    copy,
    diag,
    expand_dims,
    isclose,
    moveaxis,
    ndim,
    ravel,
    round,
    shape,
    size,
    squeeze,
    swapaxes,
    trace,
    tril,
    triu,
)
from sparsejax.numpy.indexing import array_split, flip, getitem, hsplit, hstack, split, stack, take, vsplit, vstack
from sparsejax.numpy.linalg import cross, vecdot
from sparsejax.numpy.making import (
    arange,
    array,
    asarray,
    eye,
    full,
    full_like,
    identity,
    ones,
    ones_like,
    zeros,
    zeros_like,
)
from sparsejax.numpy.manipulation import (
    append,
    atleast_1d,
    atleast_2d,
    atleast_3d,
    block,
    block_diag,
    broadcast_arrays,
    broadcast_shapes,
    concat,
    matrix_transpose,
    meshgrid,
    pad,
    permute_dims,
    reshape,
    unstack,
)
from sparsejax.numpy.manipulation import concatenate_all as concatenate
from sparsejax.numpy.nans import (
    nan_to_num,
    nanargmax,
    nanargmin,
    nancumsum,
    nanmax,
    nanmean,
    nanmedian,
    nanmin,
    nanprod,
    nanstd,
    nansum,
    nanvar,
)
from sparsejax.numpy.on_diagonals import setdiag
from sparsejax.numpy.products import dot, inner, kron, outer, vdot
from sparsejax.numpy.reductions import (
    all,
    any,
    average,
    count_nonzero,
    cumprod,
    cumsum,
    cumulative_prod,
    cumulative_sum,
    diff,
    max,
    mean,
    min,
    prod,
    ptp,
    std,
    sum,
    var,
)
from sparsejax.numpy.sampled import convolve, correlate, gradient, trapezoid
from sparsejax.numpy.searching import (
    argmax,
    argmin,
    argsort,
    argwhere,
    flatnonzero,
    median,
    nonzero,
    searchsorted,
    sort,
    where,
)
from sparsejax.numpy.sets import (
    intersect1d,
    isin,
    setdiff1d,
    setxor1d,
    union1d,
    unique,
    unique_all,
    unique_counts,
    unique_inverse,
    unique_values,
)
from sparsejax.numpy.statistics import (
    argpartition,
    bincount,
    corrcoef,
    cov,
    digitize,
    histogram,
    histogram_bin_edges,
    interp,
    nanpercentile,
    nanquantile,
    partition,
    percentile,
    quantile,
)
from sparsejax.numpy.updates import At

__array_api_version__ = API_VERSION
__array_namespace_info__ = array_namespace_info

bool = bool_
negative = unary["negative"]
positive = unary["positive"]
absolute = unary["absolute"]
sign = unary["sign"]
square = unary["square"]
sqrt = unary["sqrt"]
cbrt = unary["cbrt"]
reciprocal = unary["reciprocal"]
exp = unary["exp"]
exp2 = unary["exp2"]
expm1 = unary["expm1"]
log = unary["log"]
log2 = unary["log2"]
log10 = unary["log10"]
log1p = unary["log1p"]
sin = unary["sin"]
cos = unary["cos"]
tan = unary["tan"]
arcsin = unary["arcsin"]
arccos = unary["arccos"]
arctan = unary["arctan"]
sinh = unary["sinh"]
cosh = unary["cosh"]
tanh = unary["tanh"]
arcsinh = unary["arcsinh"]
arccosh = unary["arccosh"]
arctanh = unary["arctanh"]
logical_not = unary["logical_not"]
invert = unary["invert"]
isnan = unary["isnan"]
isinf = unary["isinf"]
isfinite = unary["isfinite"]
signbit = unary["signbit"]
floor = unary["floor"]
ceil = unary["ceil"]
trunc = unary["trunc"]
rint = unary["rint"]
conjugate = unary["conjugate"]
add = binary["add"]
subtract = binary["subtract"]
multiply = binary["multiply"]
divide = binary["divide"]
floor_divide = binary["floor_divide"]
remainder = binary["remainder"]
power = binary["power"]
maximum = binary["maximum"]
minimum = binary["minimum"]
equal = binary["equal"]
not_equal = binary["not_equal"]
less = binary["less"]
less_equal = binary["less_equal"]
greater = binary["greater"]
greater_equal = binary["greater_equal"]
logical_and = binary["logical_and"]
logical_or = binary["logical_or"]
logical_xor = binary["logical_xor"]
bitwise_and = binary["bitwise_and"]
bitwise_or = binary["bitwise_or"]
bitwise_xor = binary["bitwise_xor"]
left_shift = binary["left_shift"]
right_shift = binary["right_shift"]
arctan2 = binary["arctan2"]
hypot = binary["hypot"]
copysign = binary["copysign"]
logaddexp = binary["logaddexp"]
nextafter = binary["nextafter"]
fmax = binary["fmax"]
fmin = binary["fmin"]
# other names of these
abs = absolute
conj = conjugate
mod = remainder
true_divide = divide
pow = power
amax = max
amin = min
acos = arccos
acosh = arccosh
asin = arcsin
asinh = arcsinh
atan = arctan
atan2 = arctan2
atanh = arctanh
bitwise_left_shift = left_shift
bitwise_right_shift = right_shift
bitwise_invert = invert
bitwise_not = invert
radians = deg2rad
degrees = rad2deg
around = round

# fmt: off
__all__ = [
    "abs", "absolute", "acos", "acosh", "add", "all", "allclose", "amax", "amin", "angle", "any", "append", "arange",
    "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "argmax", "argmin", "argpartition",
    "argsort", "argwhere", "around", "array", "array_equal", "array_split", "asarray", "asformat", "asin", "asinh",
    "astype", "atan", "atan2", "atanh", "atleast_1d", "atleast_2d", "atleast_3d", "average", "bincount",
    "bitwise_and", "bitwise_invert", "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift",
    "bitwise_xor", "block", "block_diag", "bool", "bool_", "broadcast_arrays", "broadcast_shapes", "broadcast_to",
    "can_cast", "cbrt", "ceil", "clip", "column_stack", "complex128", "complex64", "complexfloating", "concat",
    "concatenate", "conj", "conjugate", "convolve", "copy", "copysign", "corrcoef", "correlate", "cos", "cosh", "count_nonzero", "cov",
    "cross", "cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "deg2rad", "degrees", "delete", "diag", "diagflat",
    "diagonal", "diags", "diff", "digitize", "divide", "divmod", "dot", "dstack", "dtype", "e", "einsum", "empty",
    "empty_like", "equal", "erf", "euler_gamma", "exp", "exp2", "expand_dims", "expm1", "eye", "fabs", "fft", "finfo",
    "fix", "flatnonzero", "flip", "fliplr", "flipud", "float32", "float64", "float_power", "floating", "floor",
    "floor_divide", "fmax", "fmin", "fmod", "from_dlpack", "full", "full_like", "gradient", "greater", "greater_equal", "heaviside",
    "histogram", "histogram_bin_edges", "hsplit", "hstack", "hypot", "identity", "iinfo", "imag", "inexact", "inf",
    "inner", "insert", "int16", "int32", "int64", "int8", "integer", "interp", "intersect1d", "invert", "isclose", "iscomplex",
    "isdtype", "isfinite", "isin", "isinf", "isnan", "isneginf", "isposinf", "isreal", "issubdtype", "kron",
    "left_shift", "less", "less_equal", "lexsort", "linalg", "linspace", "log", "log10", "log1p", "log2", "logaddexp",
    "logaddexp2", "logical_and", "logical_not", "logical_or", "logical_xor", "logistic", "matmul", "matrix_transpose",
    "max", "maximum", "mean", "median", "meshgrid", "min", "minimum", "mod", "moveaxis", "multiply", "nan",
    "nan_to_num", "nanargmax", "nanargmin", "nancumsum", "nanmax", "nanmean", "nanmedian", "nanmin", "nanpercentile", "nanprod", "nanquantile",
    "nanstd", "nansum", "nanvar", "ndim", "negative", "newaxis", "nextafter", "nonzero", "not_equal", "number",
    "ones", "ones_like", "outer", "pad", "partition", "percentile", "permute_dims", "pi", "piecewise", "positive", "pow", "power",
    "prod", "promote_types", "ptp", "put_along_axis", "quantile", "rad2deg", "radians", "ravel", "real", "reciprocal", "remainder",
    "repeat", "reshape", "result_type", "right_shift", "rint", "roll", "rot90", "round", "searchsorted", "select", "setdiag",
    "setdiff1d", "setxor1d", "shape", "sign", "signbit", "signedinteger", "sin", "sinc", "sinh", "size", "sort",
    "split", "sqrt", "square", "squeeze", "stack", "std", "subtract", "sum", "swapaxes", "take", "take_along_axis",
    "tan", "tanh", "tensordot", "tile", "trace", "transpose", "trapezoid", "tri", "tril", "triu", "true_divide", "trunc", "uint16",
    "uint32", "uint64", "uint8", "union1d", "unique", "unique_all", "unique_counts", "unique_inverse",
    "unique_values", "unsignedinteger", "unstack", "vander", "var", "vdot", "vecdot", "vsplit", "vstack", "where",
    "zeros", "zeros_like",
]
# fmt: on


def __dir__() -> list[str]:
    return [*__all__, "__array_api_version__", "__array_namespace_info__"]


def _namespace(api_version: str | None) -> object:
    if api_version is not None and api_version not in ("2021.12", "2022.12", "2023.12", "2024.12", API_VERSION):
        raise ValueError(f"api_version={api_version!r} is not known; this namespace conforms to {API_VERSION}")
    return sys.modules[__name__]


def _register() -> None:
    """Redirect NumPy's functions of the same names, and SciPy's ufuncs, to ours; provide operators and methods."""
    ours = {name: globals()[name] for name in __all__ if callable(globals()[name])}
    redirected = {n: f for n, f in ours.items() if hasattr(_np, n) and not isinstance(f, type)}
    for module, prefix in ((linalg, "linalg"), (fft, "fft")):
        named = {f"{prefix}.{n}": getattr(module, n) for n in module.__all__}
        redirected |= {n: f for n, f in named.items() if callable(f) and not isinstance(f, type)}
    ufuncs = ("gammaln", "gamma", "psi", "erfc", "erfinv", "ndtr", "ndtri", "log_ndtr", "i0", "i1", "i0e", "i1e")
    redirected |= {op: lambda x, op=op: special(op, x) for op in ufuncs}
    protocols.register(redirected | {"erf": erf, "expit": logistic})
    register_surface(ours | operators | {"getitem": getitem, "at": At, "namespace": _namespace})
    register_surface({"eliminate_zeros": eliminate_zeros})
    register_surface({"ufunc": protocols.apply_ufunc, "array_function": protocols.apply_function})


_register()
