"""Names beside those of NumPy, the array API standard, SciPy and JAX: `python -m tests.names.table` prints docs/reference/names.md.

What is counted: public functions, not classes, constants or submodules. JAX is asked where it is installed.
"""

import importlib
import types

import numpy as np

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax.scipy.sparse import linalg

# fmt: off
STANDARD = {
    "main": [
        "abs", "acos", "acosh", "add", "all", "any", "arange", "argmax", "argmin", "argsort", "asarray", "asin",
        "asinh", "astype", "atan", "atan2", "atanh", "bitwise_and", "bitwise_invert", "bitwise_left_shift",
        "bitwise_or", "bitwise_right_shift", "bitwise_xor", "broadcast_arrays", "broadcast_shapes", "broadcast_to",
        "can_cast", "ceil", "clip", "concat", "conj", "copysign", "cos", "cosh", "count_nonzero", "cumulative_prod",
        "cumulative_sum", "diff", "divide", "empty", "empty_like", "equal", "exp", "expand_dims", "expm1", "eye",
        "finfo", "flip", "floor", "floor_divide", "from_dlpack", "full", "full_like", "greater", "greater_equal",
        "hypot", "iinfo", "imag", "isdtype", "isfinite", "isin", "isinf", "isnan", "less", "less_equal", "linspace",
        "log", "log10", "log1p", "log2", "logaddexp", "logical_and", "logical_not", "logical_or", "logical_xor",
        "matmul", "matrix_transpose", "max", "maximum", "mean", "meshgrid", "min", "minimum", "moveaxis", "multiply",
        "negative", "nextafter", "nonzero", "not_equal", "ones", "ones_like", "permute_dims", "positive", "pow",
        "prod", "real", "reciprocal", "remainder", "repeat", "reshape", "result_type", "roll", "round",
        "searchsorted", "sign", "signbit", "sin", "sinh", "sort", "sqrt", "square", "squeeze", "stack", "std",
        "subtract", "sum", "take", "take_along_axis", "tan", "tanh", "tensordot", "tile", "tril", "triu", "trunc",
        "unique_all", "unique_counts", "unique_inverse", "unique_values", "unstack", "var", "vecdot", "where",
        "zeros", "zeros_like",
    ],
    "linalg": [
        "cholesky", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "matmul", "matrix_norm",
        "matrix_power", "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "svd",
        "svdvals", "tensordot", "trace", "vecdot", "vector_norm",
    ],
    "fft": [
        "fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft", "irfftn",
        "rfft", "rfftfreq", "rfftn",
    ],
}
# fmt: on


def functions(module):
    """The public functions of a module."""
    listed = getattr(module, "__all__", dir(module))
    kinds = type, types.ModuleType
    return {
        n
        for n in listed
        if not n.startswith("_") and callable(v := getattr(module, n, None)) and not isinstance(v, kinds)
    }


def pairs():
    """(whose names, their names, our module)."""
    yield "array API 2025.12", set(STANDARD["main"]), snp
    yield "array API 2025.12, linalg", set(STANDARD["linalg"]), snp.linalg
    yield "array API 2025.12, fft", set(STANDARD["fft"]), snp.fft
    yield "numpy", functions(np), snp
    yield "numpy.linalg", functions(np.linalg), snp.linalg
    yield "numpy.fft", functions(np.fft), snp.fft
    yield "scipy.sparse.linalg", functions(importlib.import_module("scipy.sparse.linalg")), linalg
    try:
        jax = importlib.import_module("jax")
    except ImportError:
        return
    for name, ours in (("lax", sj.lax), ("nn", sj.nn), ("random", sj.random), ("numpy", snp), ("tree", sj.tree)):
        yield f"jax.{name}", functions(importlib.import_module(f"{jax.__name__}.{name}")), ours


def table():
    """docs/reference/names.md."""
    lines = [
        "# Names",
        "",
        "Made by `python -m tests.names.table > docs/reference/names.md`. Why names are missing: [compatibility.md](compatibility.md).",
        "",
        "| names of | ours | theirs | missing |",
        "|---|---|---|---|",
    ]
    for whose, theirs, module in pairs():
        missing = sorted(n for n in theirs if not hasattr(module, n))
        lines.append(f"| {whose} | {len(theirs) - len(missing)} | {len(theirs)} | {' '.join(missing) or 'none'} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
