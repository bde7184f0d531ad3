"""The workspaces by the names of their policies (`ir/workspaces`)."""

from __future__ import annotations

from collections.abc import Sequence

from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.codegen.kernel_memory import Keeper
from sparsejax.jit.codegen.workspaces.append import Append
from sparsejax.jit.codegen.workspaces.bitmap import Bitmap, Scattered
from sparsejax.jit.codegen.workspaces.bucket import Bucket
from sparsejax.jit.codegen.workspaces.coordinate import Coordinate
from sparsejax.jit.codegen.workspaces.hashed import Hash
from sparsejax.jit.codegen.workspaces.marks import Marks
from sparsejax.jit.codegen.workspaces.protocol import Workspace
from sparsejax.jit.ir import cin

POLICIES: dict[str, type[Workspace]] = {
    "bitmap": Bitmap,
    "marks": Marks,
    "hash": Hash,
    "coordinate": Coordinate,
    "bucket": Bucket,
}
KINDS: dict[str, type[Workspace]] = {**POLICIES, "append": Append, "scattered": Scattered}
"""All workspaces: "append" cannot be chosen, it needs entries in order; "scattered" is that of operands that are looked up."""


def make(
    b: Builder,
    tensor: cin.Tensor,
    extents: Sequence[Val],
    op: str | None,
    only: cin.Literal | None = None,
    keeper: Keeper | None = None,
) -> Workspace:
    """The workspace for `tensor`, by its policy. All of its entries are `only`, if that is given. What is as large as extents is the `keeper`'s."""
    kind = of(tensor.policy or "")
    if issubclass(kind, Bitmap) and kind is not Scattered:
        return kind(b, tensor, extents, op, only, keeper)
    return kind(b, tensor, extents, op)


def of(policy: str) -> type[Workspace]:
    """The kind of workspace that a policy stands for."""
    return KINDS[policy]
