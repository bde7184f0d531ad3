"""Whose memory it is: buffers are borrowed and frozen, or copied, so that nobody can change an array afterwards.

copy=None   borrow where the whole memory of the source can be marked read-only, copy otherwise: memory of which the source
            is only a part (freezing it would freeze its neighbours too), and memory that NumPy does not own
copy=True   always copy
copy=False  borrow, ValueError where that is impossible; memory that cannot be frozen is shared as it is, by the caller's word

Copies begin at multiples of 64 bytes (`ALIGNMENT`), where vectors of a kernel do not straddle lines of the cache: products with rows of misaligned
memory take 1.2 to 1.5 times as long (measured; NumPy's memory is 16 bytes off).

Views that were made of a source before it was borrowed stay writeable: NumPy does not know them. Borrowing is a contract.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsejax.formats.levels.segments import Array

ALIGNMENT = 64


def own(buffer: Array, dtype: np.dtype[Any], copy: bool | None, what: str, source: Array) -> Array:
    """`buffer` as a contiguous read-only array of `dtype`, borrowed or copied; ValueError, naming `what`, if it may not be.

    `buffer` is `source` or a view of it.

    >>> x = np.arange(3.0)
    >>> own(x, np.dtype(float), None, "x", x) is x, x.flags.writeable
    (False, False)
    """
    if buffer.dtype != dtype:
        refuse_copy(copy, f"{what} has dtype {buffer.dtype} and is needed as {dtype}")
    elif not buffer.flags.c_contiguous:
        refuse_copy(copy, f"{what} is not contiguous")
    elif not copy:
        return borrow(buffer, copy, source)
    return copied(buffer, dtype)


def copied(source: Array, dtype: np.dtype[Any]) -> Array:
    """A contiguous read-only copy of `source` as `dtype`, aligned in memory.

    >>> copied(np.arange(3.0), np.dtype(int)).ctypes.data % ALIGNMENT
    0
    """
    size = source.size * dtype.itemsize
    whole = np.empty(size + ALIGNMENT, np.uint8)
    start = -whole.__array_interface__["data"][0] % ALIGNMENT
    made = whole[start : start + size].view(dtype).reshape(source.shape)
    np.copyto(made, source, casting="unsafe")
    for array in (made, whole):
        array.flags.writeable = False
    return made


def refuse_copy(copy: bool | None, why: str) -> None:
    """Raise ValueError if copying is forbidden, saying why a copy is needed."""
    if copy is False:
        raise ValueError(f"{why}, so that its memory cannot be shared; use copy=None to allow a copy")


def borrow(buffer: Array, copy: bool | None, source: Array) -> Array:
    """A read-only view of `buffer`; `source` and its owner are frozen. A copy when that cannot be and `copy` is None."""
    chain = [buffer, source]  # both: the base of a view is the owner of the memory, not the array that it was made of
    while isinstance(chain[-1].base, np.ndarray):
        chain.append(chain[-1].base)
    owner = chain[-1]
    if copy is None:
        foreign = owner.base is not None
        part = owner.nbytes != buffer.nbytes and any(array.flags.writeable for array in chain[1:])
        if foreign or part:
            return copied(buffer, buffer.dtype)
    for array in chain:
        if array.flags.writeable:
            array.flags.writeable = False
    return buffer.view(np.ndarray)
