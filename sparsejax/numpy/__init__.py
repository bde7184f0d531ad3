"""`sparsejax.numpy`: NumPy's functions over arrays in any format, by NumPy's names and rules.

>>> import sparsejax as sj, sparsejax.numpy as snp, numpy as np
>>> A = sj.array(np.eye(3), format="csr")
>>> snp.exp(A).fill_value
np.float64(1.0)
"""

from __future__ import annotations

from numpy import (
    bool_,
    complex64,
    complex128,
    e,
    float32,
    float64,
    inf,
    int8,
    int16,
    int32,
    int64,
    nan,
    newaxis,
    pi,
    uint8,
    uint16,
    uint32,
    uint64,
)

from sparsejax.core.array import register_numpy, register_surface
from sparsejax.lax.contract import einsum, matmul, tensordot
from sparsejax.lax.elementwise import erf, imag, logistic, real
from sparsejax.lax.indexing import concatenate
from sparsejax.lax.reduce import mean, var
from sparsejax.lax.structural import broadcast_to, diagonal, reshape, transpose
from sparsejax.lax.structural import convert_format as asformat
from sparsejax.numpy import linalg
from sparsejax.numpy.arranging import column_stack, dstack, fliplr, flipud, repeat, roll, rot90, take_along_axis, tile
from sparsejax.numpy.elementwise import binary, logaddexp, operators, unary
from sparsejax.numpy.functions import (
    allclose,
    arange,
    array,
    array_equal,
    asarray,
    astype,
    clip,
    copy,
    diag,
    dot,
    expand_dims,
    eye,
    full,
    full_like,
    identity,
    inner,
    isclose,
    kron,
    linspace,
    moveaxis,
    ndim,
    ones,
    ones_like,
    outer,
    ravel,
    round,
    shape,
    size,
    squeeze,
    swapaxes,
    trace,
    tril,
    triu,
    vdot,
    zeros,
    zeros_like,
)
from sparsejax.numpy.indexing import At, flip, getitem, hstack, split, stack, take, vstack
from sparsejax.numpy.nans import nan_to_num, nanmax, nanmean, nanmin, nansum
from sparsejax.numpy.reductions import all, any, count_nonzero, cumsum, max, min, prod, std, sum
from sparsejax.numpy.searching import (
    argmax,
    argmin,
    argsort,
    argwhere,
    flatnonzero,
    median,
    nonzero,
    sort,
    unique,
    where,
)

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
fmax = binary["fmax"]
fmin = binary["fmin"]
abs, conj, mod, true_divide, pow = absolute, conjugate, remainder, divide, power
amax, amin = max, min

_functions = {
    **unary,
    **binary,
    **{
        f.__name__: f
        for f in (
            all,
            allclose,
            any,
            argmax,
            argmin,
            argsort,
            argwhere,
            array_equal,
            broadcast_to,
            clip,
            column_stack,
            concatenate,
            copy,
            count_nonzero,
            cumsum,
            diag,
            diagonal,
            dot,
            dstack,
            einsum,
            expand_dims,
            flatnonzero,
            flip,
            fliplr,
            flipud,
            full_like,
            hstack,
            imag,
            inner,
            isclose,
            kron,
            logaddexp,
            matmul,
            max,
            mean,
            median,
            min,
            moveaxis,
            nan_to_num,
            nanmax,
            nanmean,
            nanmin,
            nansum,
            nonzero,
            ones_like,
            outer,
            prod,
            ravel,
            real,
            repeat,
            reshape,
            roll,
            rot90,
            round,
            sort,
            split,
            squeeze,
            stack,
            std,
            sum,
            swapaxes,
            take,
            take_along_axis,
            tensordot,
            tile,
            trace,
            transpose,
            tril,
            triu,
            unique,
            var,
            vdot,
            vstack,
            where,
            zeros_like,
        )
    },
}
register_numpy(
    {**_functions, "abs": absolute, "conj": conj, "amax": max, "amin": min, "shape": shape, "ndim": ndim, "size": size}
)
register_numpy(
    {
        "linalg.norm": linalg.norm,
        "linalg.trace": linalg.trace,
        "linalg.diagonal": linalg.diagonal,
        "linalg.matmul": matmul,
        "linalg.outer": outer,
        "linalg.tensordot": tensordot,
    }
)
register_surface({**_functions, **operators, "astype": astype, "asformat": asformat, "getitem": getitem, "at": At})

__all__ = [
    "abs",
    "absolute",
    "add",
    "all",
    "allclose",
    "amax",
    "amin",
    "any",
    "arange",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "argmax",
    "argmin",
    "argsort",
    "argwhere",
    "array",
    "array_equal",
    "asarray",
    "asformat",
    "astype",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "bool_",
    "broadcast_to",
    "cbrt",
    "ceil",
    "clip",
    "column_stack",
    "complex128",
    "complex64",
    "concatenate",
    "conj",
    "conjugate",
    "copy",
    "copysign",
    "cos",
    "cosh",
    "count_nonzero",
    "cumsum",
    "diag",
    "diagonal",
    "divide",
    "dot",
    "dstack",
    "e",
    "einsum",
    "equal",
    "erf",
    "exp",
    "exp2",
    "expand_dims",
    "expm1",
    "eye",
    "flatnonzero",
    "flip",
    "fliplr",
    "flipud",
    "float32",
    "float64",
    "floor",
    "floor_divide",
    "fmax",
    "fmin",
    "full",
    "full_like",
    "greater",
    "greater_equal",
    "hstack",
    "hypot",
    "identity",
    "imag",
    "inf",
    "inner",
    "int16",
    "int32",
    "int64",
    "int8",
    "invert",
    "isclose",
    "isfinite",
    "isinf",
    "isnan",
    "kron",
    "left_shift",
    "less",
    "less_equal",
    "linalg",
    "linspace",
    "log",
    "log10",
    "log1p",
    "log2",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logistic",
    "matmul",
    "max",
    "maximum",
    "mean",
    "median",
    "min",
    "minimum",
    "mod",
    "moveaxis",
    "multiply",
    "nan",
    "nan_to_num",
    "nanmax",
    "nanmean",
    "nanmin",
    "nansum",
    "ndim",
    "negative",
    "newaxis",
    "nonzero",
    "not_equal",
    "ones",
    "ones_like",
    "outer",
    "pi",
    "positive",
    "pow",
    "power",
    "prod",
    "ravel",
    "real",
    "reciprocal",
    "remainder",
    "repeat",
    "reshape",
    "right_shift",
    "rint",
    "roll",
    "rot90",
    "round",
    "shape",
    "sign",
    "signbit",
    "sin",
    "sinh",
    "size",
    "sort",
    "split",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "std",
    "subtract",
    "sum",
    "swapaxes",
    "take",
    "take_along_axis",
    "tan",
    "tanh",
    "tensordot",
    "tile",
    "trace",
    "transpose",
    "tril",
    "triu",
    "true_divide",
    "trunc",
    "uint16",
    "uint32",
    "uint64",
    "uint8",
    "unique",
    "var",
    "vdot",
    "vstack",
    "where",
    "zeros",
    "zeros_like",
]
