"""The passes that put arrays together, or parts of them (`passes`), in NumPy.

    strung       vectors, shifts               -> one behind the other, a number added to each
    interleaved  (pos, crd, ...) of each       -> the segments of all behind each other, a number added to the coordinates of each
    spliced      (pos, column, shift) of each  -> the same of one column, a number added to each segment of each
    united       (pos, crds) of two            -> pos and coordinates of what either has, and how many entries of each come before
    merged       (pos, columns) of two         -> the columns of both, ordered in every segment
    halves       pos, crd, cut                 -> where in every segment coordinates from a cut on begin
    swapped      pos, halves, columns, shifts  -> second halves before first ones, numbers added to both
    shifted      pos, pieces, below            -> `pos` of pieces of segments, side by side
    narrowed     above, pos, crd, chosen, columns -> entries whose coordinate is chosen, and above them what still has some

A column to whose segments numbers are added is `pos` of a level below: its segments are elsewhere afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.formats.in_numpy import merging, woven

Array = NDArray[Any]


class JoiningPasses:
    """The passes in NumPy."""

    def strung(self, columns: Sequence[Array], shifts: Sequence[int] | None, dtype: np.dtype[Any]) -> Array:
        """Vectors one behind the other as `dtype`, with a number added to each where there are `shifts`.

        >>> JoiningPasses().strung([np.array([0, 1]), np.array([0])], [0, 5], np.dtype(np.int64))
        array([0, 1, 5])
        """
        return woven.strung(columns, shifts, dtype)

    def interleaved(
        self, parts: Sequence[tuple[Array, ...]], shifts: Sequence[int] | None, out: Sequence[Array] | None = None
    ) -> tuple[Array, ...]:
        """(pos, crd, *columns) of segments that hold those of all parts, one behind the other, with a number added to the coordinates of each where
        there are `shifts`; `out` is what crd and columns are written to, if it is given.

        >>> one = np.array([0, 1, 2]), np.array([0, 1], np.int32), np.array([5, 6])
        >>> JoiningPasses().interleaved([one, one], [0, 2])
        (array([0, 2, 4]), array([0, 2, 1, 3], dtype=int32), array([5, 5, 6, 6]))
        """
        return woven.interleaved(parts, shifts, out)

    def spliced(self, parts: Sequence[tuple[Array, Array, Array]], end: int) -> Array:
        """The column of segments that hold those of all parts, one behind the other, with a number added to each segment of each, and an `end` behind them.

        >>> pos = np.array([0, 1, 2])
        >>> JoiningPasses().spliced([(pos, np.array([0, 2]), np.array([0, 5])), (pos, np.array([0, 1]), np.array([2, 9]))], 11)
        array([ 0,  2,  7, 10, 11])
        """
        return merging.spliced(parts, end)

    def united(self, one: Sequence[Array], other: Sequence[Array]) -> tuple[Array, list[Array], Array, Array]:
        """(pos, crds, number, number) of segments with the coordinates that either of two parts has, each `pos` and one or several columns that increase
        in every segment, and of each part how many entries come before each of them, and in all.

        >>> JoiningPasses().united((np.array([0, 2]), np.array([0, 3])), (np.array([0, 2]), np.array([3, 4])))[1:]
        ([array([0, 3, 4])], array([0, 1, 2, 2], dtype=int32), array([0, 0, 1, 2], dtype=int32))
        """
        return merging.united(one, other)

    def merged(self, one: Sequence[Array], other: Sequence[Array], by: int, shift: int) -> list[Array]:
        """The columns of both parts, each `pos` and columns, of which the first `by` do not fall in any segment: ordered by these, of equal ones those of
        the first part first; a number is added to the next column of the other part.

        >>> one = np.array([0, 2]), np.array([0, 3]), np.array([1, 1])
        >>> JoiningPasses().merged(one, one, 1, 5)
        [array([0, 0, 3, 3]), array([1, 6, 1, 6])]
        """
        return merging.merged(one, other, by, shift)

    def halves(self, pos: Array, crd: Array, cut: int) -> Array:
        """Where in every segment, whose coordinates do not fall, those from `cut` on begin.

        >>> JoiningPasses().halves(np.array([0, 2, 3]), np.array([0, 2, 1]), 2)
        array([1, 3])
        """
        return merging.halves(pos, crd, cut)

    def swapped(
        self,
        pos: Array,
        half: Array,
        columns: Sequence[Array],
        shifts: tuple[int, int] | tuple[Array, Array] | None = None,
    ) -> list[Array]:
        """Columns with the second half of every segment, from `half` on, before the first one. `pos` begins at 0. With `shifts`, numbers are added to the
        second and the first halves of the first column: two, or those that `pos` and halves of what is below tell, where it holds positions there.

        >>> JoiningPasses().swapped(np.array([0, 2, 3]), np.array([1, 3]), [np.array([0, 2, 1])], (-2, 1))
        [array([0, 1, 2])]
        >>> JoiningPasses().swapped(np.array([0, 2]), np.array([1]), [np.array([0, 3])], (np.array([0, 5]), np.array([3])))
        [array([0, 2])]
        """
        return merging.swapped(pos, half, columns, shifts)

    def shifted(self, pos: Array, pieces: tuple[Array, Array], below: tuple[Array, Array]) -> Array:
        """`pos` of pieces of segments, each from where it begins on, which stand at ends afterwards; `below` tells the same of what is in these segments.

        >>> JoiningPasses().shifted(np.array([0, 3, 4, 6]), (np.array([2, 0]), np.array([0, 1, 3])), (np.array([4, 0]), np.array([0, 2, 6])))
        array([0, 2, 5, 6])
        """
        return merging.shifted(pos, pieces, below)

    def narrowed(
        self, above: Sequence[Array], pos: Array, crd: Array, chosen: merging.Chosen, columns: Sequence[Array] | None
    ) -> tuple[list[Array], Array, Array, list[Array]]:
        """(above, pos, crd, columns) of the entries whose coordinate is in a range of positive step, or has a place, not -1, in a table: they become their
        places. Segments without one are left out, and their entries in `above`: the `pos` of a level, which begins at 0, and its columns. Without columns,
        the numbers of entries. Of a number and whether it is the largest, coordinates stay that are so much larger than what is in the last column above them.

        >>> above = np.array([0, 2]), np.array([5, 6])
        >>> JoiningPasses().narrowed(above, np.array([0, 2, 3]), np.array([0, 4, 1]), range(1, 2), None)
        ([array([0, 1]), array([6])], array([0, 1]), array([0], dtype=int32), [array([2], dtype=int32)])
        """
        return merging.narrowed(above, pos, crd, chosen, columns)
