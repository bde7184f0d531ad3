"""Primitives: one operation in one block, with all its rules."""

from sparsejax.lax import (  # noqa: F401  (rules of transformations)
    batch_rules,
    contract_rules,
    control_batch,
    elementwise_rules,
    pushdown_rules,
    structural_rules,
)
from sparsejax.lax.contract import contract, contract_p, einsum
from sparsejax.lax.elementwise import convert_element_type, elementwise, where
from sparsejax.lax.loops import cond, fori_loop, scan, switch, while_loop
from sparsejax.lax.mapping import map
from sparsejax.lax.reduce import reduce
from sparsejax.lax.semiring import Semiring
from sparsejax.lax.structural import broadcast_to, convert_format, entries, pattern, refill, reshape, transpose
from sparsejax.lax.top_k import top_k

__all__ = [
    "while_loop",
    "switch",
    "scan",
    "map",
    "fori_loop",
    "cond",
    "Semiring",
    "broadcast_to",
    "contract",
    "contract_p",
    "convert_element_type",
    "convert_format",
    "einsum",
    "elementwise",
    "entries",
    "pattern",
    "reduce",
    "refill",
    "reshape",
    "top_k",
    "transpose",
    "where",
]
