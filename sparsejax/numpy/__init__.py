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
from sparsejax.lax.elementwise import erf, imag, logistic, real, where
from sparsejax.lax.indexing import concatenate
from sparsejax.lax.reduce import mean, var
from sparsejax.lax.structural import broadcast_to, diagonal, reshape, transpose
from sparsejax.lax.structural import convert_format as asformat
from sparsejax.numpy import linalg
from sparsejax.numpy.elementwise import binary, operators, unary
from sparsejax.numpy.functions import (
    allclose,
    arange,
    array,
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
    vdot,
    zeros,
    zeros_like,
)
from sparsejax.numpy.indexing import At, flip, getitem, hstack, split, stack, take, vstack
from sparsejax.numpy.reductions import all, any, count_nonzero, max, min, prod, std, sum

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
            broadcast_to,
            clip,
            concatenate,
            copy,
            count_nonzero,
            diag,
            diagonal,
            dot,
            einsum,
            expand_dims,
            flip,
            full_like,
            hstack,
            imag,
            inner,
            isclose,
            kron,
            matmul,
            max,
            mean,
            min,
            moveaxis,
            ones_like,
            outer,
            prod,
            ravel,
            real,
            reshape,
            round,
            split,
            squeeze,
            stack,
            std,
            sum,
            swapaxes,
            take,
            tensordot,
            trace,
            transpose,
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
    "array",
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
    "complex128",
    "complex64",
    "concatenate",
    "conj",
    "conjugate",
    "copy",
    "cos",
    "cosh",
    "count_nonzero",
    "diag",
    "diagonal",
    "divide",
    "dot",
    "e",
    "einsum",
    "equal",
    "erf",
    "exp",
    "exp2",
    "expand_dims",
    "expm1",
    "eye",
    "flip",
    "float32",
    "float64",
    "floor",
    "floor_divide",
    "full",
    "full_like",
    "greater",
    "greater_equal",
    "hstack",
    "hypot",
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
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logistic",
    "matmul",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "mod",
    "moveaxis",
    "multiply",
    "nan",
    "ndim",
    "negative",
    "newaxis",
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
    "reshape",
    "right_shift",
    "rint",
    "round",
    "shape",
    "sign",
    "sin",
    "sinh",
    "size",
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
    "tan",
    "tanh",
    "tensordot",
    "trace",
    "transpose",
    "true_divide",
    "trunc",
    "uint16",
    "uint32",
    "uint64",
    "uint8",
    "var",
    "vdot",
    "vstack",
    "where",
    "zeros",
    "zeros_like",
]
