"""Primitives: one operation in one block, with all its rules; and the names of `jax.lax`."""

from collections.abc import Callable, Mapping
from typing import Any

from sparsejax.lax.contract import contract, contract_p, einsum
from sparsejax.lax.elementwise import convert_element_type, elementwise, erf, imag, logistic, real, where
from sparsejax.lax.library.scans import associative_scan
from sparsejax.lax.loops import cond, fori_loop, scan, switch, while_loop
from sparsejax.lax.mapping import map
from sparsejax.lax.names import (
    BINARY,
    UNARY,
    argmax,
    argmin,
    batch_matmul,
    broadcasted_iota,
    clamp,
    concatenate,
    cumlogsumexp,
    cummax,
    cummin,
    cumprod,
    cumsum,
    digamma,
    dot,
    dynamic_index_in_dim,
    dynamic_slice,
    dynamic_slice_in_dim,
    dynamic_update_index_in_dim,
    dynamic_update_slice,
    dynamic_update_slice_in_dim,
    erf_inv,
    erfc,
    full,
    igamma,
    igammac,
    integer_pow,
    iota,
    lgamma,
    reciprocal,
    reduce_and,
    reduce_max,
    reduce_min,
    reduce_or,
    reduce_prod,
    reduce_sum,
    rem,
    rev,
    rsqrt,
    select,
    select_n,
    slice,
    slice_in_dim,
    sort,
)
from sparsejax.lax.reduce import reduce
from sparsejax.lax.rules import (  # noqa: F401  (rules of transformations)
    batch_rules,
    contract_rules,
    control_batch,
    elementwise_rules,
    pushdown_rules,
    structural_rules,
)
from sparsejax.lax.semiring import Semiring
from sparsejax.lax.structural import (
    broadcast_to,
    convert_format,
    entries,
    expand_dims,
    pattern,
    refill,
    reshape,
    squeeze,
    transpose,
)
from sparsejax.lax.top_k import top_k

globals().update(UNARY | BINARY)

# fmt: off
__all__ = [
    "Semiring", "abs", "acos", "acosh", "add", "argmax", "argmin", "asin", "asinh", "associative_scan", "atan",
    "atan2", "atanh", "batch_matmul", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "broadcast_to",
    "broadcasted_iota", "cbrt", "ceil", "clamp", "concatenate", "cond", "conj", "contract", "contract_p",
    "convert_element_type", "convert_format", "cos", "cosh", "cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum",
    "digamma", "div", "dot", "dynamic_index_in_dim", "dynamic_slice", "dynamic_slice_in_dim",
    "dynamic_update_index_in_dim", "dynamic_update_slice", "dynamic_update_slice_in_dim", "einsum", "elementwise",
    "entries", "eq", "erf", "erf_inv", "erfc", "exp", "exp2", "expand_dims", "expm1", "floor", "fori_loop", "full",
    "ge", "gt", "igamma", "igammac", "imag", "integer_pow", "iota", "is_finite", "le", "lgamma", "log", "log1p",
    "logistic", "lt", "map", "max", "min", "mul", "ne", "neg", "nextafter", "pattern", "pow", "real", "reciprocal",
    "reduce", "reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_prod", "reduce_sum", "refill", "rem",
    "reshape", "rev", "round", "rsqrt", "scan", "select", "select_n", "shift_left", "sign", "sin", "sinh", "slice",
    "slice_in_dim", "sort", "sqrt", "square", "squeeze", "sub", "switch", "tan", "tanh", "top_k", "transpose",
    "where", "while_loop",
]
# fmt: on


def provide(functions: Mapping[str, Callable[..., Any]]) -> None:
    """Add names whose implementations live on higher floors: they are made of derivatives."""
    globals().update(functions)
    __all__.extend(name for name in functions if name not in __all__)


def __dir__() -> list[str]:
    return sorted(__all__)
