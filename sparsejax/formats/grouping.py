"""Matrices in groups of entries: how many slots groups should have, and the arrays of indirect einsums.

Source: Won et al., "Insum: Sparse GPU Kernels Simplified and Optimized with Indirect Einsums" (ASPLOS 2026), sections 4 and 5.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from sparsejax.errors import FormatError
from sparsejax.formats import convert, ingest
from sparsejax.formats.format import Format, block_sparse
from sparsejax.formats.levels.compressed import Compressed
from sparsejax.formats.levels.coordinate import Coordinate
from sparsejax.formats.levels.grouped import LARGEST, Grouped
from sparsejax.formats.levels.segments import Array
from sparsejax.formats.storage import Storage

SLOT = 4
"""A slot takes as long as this many groups do: products with 128 columns of six matrices of 7 to 76 entries a row, in groups of 1 to 16, as `A @ B` and as
`insum` (float32, an EPYC of the third generation). A padded slot multiplies a row of the other operand, or waits for one."""


def group_size(A: Any) -> int:
    """The number of slots with which groups of the entries of every row of a matrix cost least: a power of two.

    `A` is an array, or anything that `sparsejax.array` takes, of two dimensions; of one in blocks, the blocks of every row of blocks are counted. What
    is least, exactly, is `(4 * g + 1) * sum(ceil(n / g))` over the numbers `n` of entries of the rows: g slots and one row for each group, where a
    slot costs what four groups do. The paper counts accesses by an index, `(g + 1) * sum(ceil(n / g))`, as if padding cost no products, and relaxes
    that to `g = sqrt(S / rows)`, with `S` entries in all, which rows that are empty lead astray, as do rows that are all of one length.
    Here every power of two is evaluated on the histogram of `n`, in which empty rows do not count; of equal ones the smallest is taken,
    and 1 where nothing is stored.

    FormatError unless `A` has two dimensions; ConcretizationTypeError for a traced value: types do not depend on data. O(entries).

    >>> import scipy.sparse as sp
    >>> group_size(sp.eye_array(100)), group_size(np.ones((3, 16)))
    (1, 16)
    """
    storage = _matrix(A, "group_size")
    occupied, rows = np.unique(_row_lengths(storage), return_counts=True)
    occupied, rows = occupied[occupied > 0], rows[occupied > 0]
    longest = int(occupied.max(initial=1))
    sizes = [1 << k for k in range(LARGEST.bit_length()) if 1 << k < 2 * longest]
    costs = {g: (SLOT * g + 1) * int((-(-occupied // g) * rows).sum()) for g in sizes}
    return min(sizes, key=costs.__getitem__)


def to_groupcoo(A: Any, g: int | None = None) -> tuple[Array, Array, Array]:
    """The paper's arrays of a matrix in groups of `g` entries of one row: rows R of shape (groups,), columns K (groups, g), values V (groups, g).

    Groups are sorted by row; what is left over of the last group of a row repeats its last column, with value 0. Of a matrix in blocks,
    R and K number rows and columns of blocks, and V has shape (groups, g, rows of a block, columns of a block). `g` is that of the format of
    `A` where this has groups, else `group_size(A)`. The arrays are NumPy's and read-only; they share memory with `A` where it has this format.

    In sums over them, padding is multiplied like entries: `0 * inf` is NaN where column K of the other operand holds an infinity. The
    format `groupcoo:g` itself never reads padding.

    FormatError unless `A` has two dimensions and fill 0; ConcretizationTypeError for a traced value. O(entries).

    >>> R, K, V = to_groupcoo(np.array([[0, 1, 2, 3], [0, 0, 0, 0], [4, 0, 0, 0]]), 2)
    >>> R, K.tolist(), V.tolist()
    (array([0, 0, 2]), [[1, 2], [3, 3], [0, 0]], [[1, 2], [3, 0], [4, 0]])
    """
    storage = _matrix(A, "to_groupcoo")
    if storage.fill_value != 0:
        raise FormatError(
            f"to_groupcoo: the matrix has fill {storage.fill_value}; padding holds the fill, and sums over the arrays need 0"
        )
    form = storage.format
    own = form.levels[1] if len(form.levels) > 1 else None
    if g is None:
        g = own.g if isinstance(own, Grouped) and form == block_sparse(*form.blocks, level=own) else group_size(storage)
    storage = convert.convert(storage, block_sparse(*form.blocks, level=Grouped(g)))
    pos, _, crd = storage.buffers[1]
    rows = np.repeat(np.arange(len(pos) - 1), np.diff(pos))
    inside = [b for b in form.blocks if b > 1] and list(form.blocks)
    made = rows, crd.reshape(-1, g), storage.vals.reshape(-1, g, *inside)
    for array in made:
        array.flags.writeable = False
    return made


def names_groups(name: object) -> bool:
    """Whether a format is the name of groups of no size: "groupcoo" or "blockgroupcoo:32x32"."""
    return isinstance(name, str) and _UNSIZED.fullmatch(name.strip().lower()) is not None


_UNSIZED = re.compile(r"groupcoo|blockgroupcoo:(\d+)x(\d+)")


def sized(storage: Storage, name: str) -> Format:
    """The format of such a name with groups that suit a matrix."""
    match = _UNSIZED.fullmatch(name.strip().lower())
    assert match is not None
    if match[1] is None:
        return block_sparse(1, 1, level=Grouped(group_size(convert.convert(storage, storage.format.unblocked()))))
    blocks = int(match[1]), int(match[2])
    return block_sparse(*blocks, level=Grouped(group_size(convert.convert(storage, block_sparse(*blocks)))))


def _matrix(A: Any, name: str) -> Storage:
    found = A if isinstance(A, Storage) else getattr(A, "storage", None)
    storage = found if isinstance(found, Storage) else ingest.as_storage(A, copy=True)
    if storage.ndim != 2:
        raise FormatError(f"{name}: A has {storage.ndim} dimensions; it must be a matrix")
    return storage


def _row_lengths(storage: Storage) -> Array:
    """How many entries, or blocks, every row has; rows may be left out where they have none."""
    form = storage.format
    own = form.levels[1] if form.levels[1] == Compressed() or isinstance(form.levels[1], Grouped) else Compressed()
    if form.blocked and form != block_sparse(*form.blocks, level=own):
        form = block_sparse(*form.blocks)
        storage = convert.convert(storage, form)
    if form.blocked or (form.order == (0, 1) and form.levels[0].full):
        if form.levels[1] == Compressed():
            return np.diff(storage.buffers[1][0])
        if isinstance(form.levels[1], Grouped):
            return storage.buffers[1][1]
    if form.is_dense or not all(level.unique for level in form.levels):  # zeros are no entries, nor are duplicates
        storage = convert.convert(storage, Format((Coordinate(), Coordinate())))
    (row, _), _ = storage.expand()
    few = storage.shape[0] <= 4 * len(row) + 1024
    lengths: Array = np.bincount(row) if few else np.unique(row, return_counts=True)[1]
    return lengths
