"""The protocol of a workspace: entries go in in any order, come out sorted, and read like ordered storage.

    insert(b, coordinates, value)     workspace[coordinates] op= value
    drain(b)                          everything inserted can now be read, in the order of the workspace's variables
    reset(b)                          empty again; costs no more than what was inserted
    free(b)                           give all memory back; also after a failure at any point

Between drain and reset the workspace reads like a tensor whose levels are one coordinate run: `segment`, `within`, `leaf`,
so that co-iteration walks it like any other operand. Where the policy has `blocks`, dense levels may follow the run: then every
key holds a dense block of values, and `update` writes into it at positions as `leaf` reads them. `op` combines what is inserted at equal
coordinates (None: the last one stays); entries that were never inserted read as the tensor's fill, the identity of `op`.

Policies and the cost of n insertions of m distinct entries among N possible coordinates:

    bitmap      n + m                   memory N
    hash        n + sorting m           memory m
    coordinate  sorting n               memory m (n while fewer than the first capacity)
    bucket      sorting n, in parts     memory m
    append      n                       memory m, where entries come in order

Source: "Compilation of Modular and General Sparse Workspaces", sections 5 and 6.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from sparsejax.formats.levels.walk import Place, Segment
from sparsejax.jit.backend.builder import Builder, Val, Var
from sparsejax.jit.codegen import emit
from sparsejax.jit.codegen.kernel_memory import free
from sparsejax.jit.codegen.workspaces.keys import packing
from sparsejax.jit.codegen.workspaces.lists import Entries
from sparsejax.jit.ir import cin


class Workspace(ABC):
    """Entries over the variables of `tensor`, whose extents at run time are `extents`, outermost first."""

    blocks: ClassVar[bool] = False

    def __init__(self, b: Builder, tensor: cin.Tensor, extents: Sequence[Val], op: str | None) -> None:
        self.tensor = tensor
        self.extents = tuple(extents)
        self.op = op
        self.keys = len(tensor.format.sparse)
        """How many variables, the outermost ones, make up a key."""
        self.packing = packing(b, tensor.shape[: self.keys], extents[: self.keys])
        self.count = b.var(f"{tensor.name}_count", b.i64(0))
        """Entries that can be read, once drained."""

    @abstractmethod
    def insert(self, b: Builder, coordinates: Sequence[Val], value: emit.Num) -> None:
        """`self[coordinates] op= value`."""

    def insert_where(self, b: Builder, coordinates: Sequence[Val], value: emit.Num, test: Val) -> None:
        """`insert` where `test` holds, without a jump."""
        raise TypeError(f"{type(self).__name__} workspaces insert by a jump")

    def update(self, b: Builder, keys: Sequence[Val], position: Val, value: emit.Num, lanes: int = 1) -> None:
        """`self[position] op= value`, for `lanes` positions in the block of the key with these coordinates."""
        raise TypeError(f"{type(self).__name__} workspaces have no blocks")

    def place(self, b: Builder, coordinates: Sequence[Val]) -> Val:
        """Where the block of a key begins, in blocks."""
        (key,) = self.packing.pack(b, coordinates)
        return key

    @abstractmethod
    def drain(self, b: Builder) -> None:
        """Make what was inserted readable, sorted and without duplicates."""

    @abstractmethod
    def reset(self, b: Builder) -> None:
        """Forget everything that was inserted."""

    @abstractmethod
    def free(self, b: Builder) -> None:
        """Free all memory; pointers that were never set are null."""

    # reading, after draining
    def segment(self, b: Builder, level: int, place: Place) -> Segment:
        """All entries, by their first coordinate."""
        return self.within(b, level, b.i64(0), b.get(self.count))

    def within(self, b: Builder, level: int, lo: Val, hi: Val) -> Segment:
        """The entries `lo` to `hi`, which share the coordinates above `level`."""
        return Segment(lo, hi, lambda position: self.coordinate(b, level, position), self.child)

    def locate(self, b: Builder, level: int, place: Place, coordinate: Val) -> tuple[Val, Val] | None:
        return None

    @abstractmethod
    def coordinate(self, b: Builder, level: int, position: Val) -> Val:
        """The coordinate of variable `level` of the entry at `position`."""

    def child(self, position: Val, coordinate: Val) -> Val:
        """The position from which the next level continues."""
        return position

    @abstractmethod
    def leaf(self, b: Builder, position: Val, lanes: int = 1) -> emit.Num:
        """The value of an entry."""


class Listed(Workspace):
    """A workspace that drains into a sorted list."""

    def __init__(self, b: Builder, tensor: cin.Tensor, extents: Sequence[Val], op: str | None) -> None:
        super().__init__(b, tensor, extents, op)
        self.entries = Entries(self.packing.words, tensor.dtype, op)
        self.sorted = self.entries.make(b, tensor.name)
        self.spare = self.entries.make(b, f"{tensor.name}_spare")

    def owned(self) -> list[Var]:
        """The variables that hold memory."""
        return [v for lists in (self.sorted, self.spare) for v in (*lists.keys, lists.vals)]

    def free(self, b: Builder) -> None:
        for pointer in self.owned():
            free(b, b.get(pointer))

    def coordinate(self, b: Builder, level: int, position: Val) -> Val:
        word = b.load(b.get(self.sorted.keys[self.packing.fields[level].word]), position, "i64", "key")
        return b.named("j", self.packing.coordinate(b, word, level))

    def leaf(self, b: Builder, position: Val, lanes: int = 1) -> emit.Num:
        return emit.load(b, b.get(self.sorted.vals), position, self.tensor.dtype, lanes, self.tensor.name)
