"""The kinds of workspaces that a statement may name as the policy of a tensor; their code is in `codegen/workspaces`, their prices in `cost`.

scalar, dense                                          a register, an array over the whole extent
bitmap, marks, hash, coordinate, bucket                sparse results are scattered through these, filled in any order and drained in order
append                                                 entries that come in order
scattered                                              an operand that is looked up
overlay                                                values in the memory of the output, at the positions of an operand
"""

from __future__ import annotations

SPARSE = ("bitmap", "marks", "hash", "coordinate", "bucket")
"""Policies of which the cheapest is chosen."""
KEYED = (*SPARSE, "append", "scattered")
"""Policies of workspaces that hold entries by their keys."""
MARKED = ("bitmap", "marks")
"""Policies with a mark for every coordinate."""
BLOCKS = ("bitmap", "marks", "append")
"""Policies that can hold a block of dense values per key."""
OVERLAY = "overlay"
