"""The passes that conversions are made of, each linear in its entries (and in its segments or buckets).

    owners     pos = [0, 2, 2, 3]           -> 0 0 2           the segment of every position
    offsets    parent = 0 0 2, parents = 3  -> 0 2 2 3         the reverse
    take       column, index                -> column[index]
    ordered    key = 1 0 1, columns         -> 0 1 1, and columns with entries in the same, stable order
    bucketed   key = 1 0 1, columns         -> 0 1 3, and columns in that order: as offsets(ordered)
    distinct   columns, entries in order    -> columns without equal neighbours, and the number of every entry among them
    grid       count = 2, extent = 3        -> 0 0 0 1 1 1     the entries of a dense level: whose, and which
                                               0 1 2 0 1 2
    joined     block, place, size           -> block * size + place
    spread     vals, position, count, fill  -> fill but for vals at their positions
    turned     a matrix                     -> its columns, one behind the other
    sifted     a matrix, fill, tol, flags   -> pos, crd and vals of what differs from the fill in its rows, or whose flags hold

Those of parts of arrays work on segments, `pos[k] <= p < pos[k + 1]`, which need not begin at 0:

    numbered   listed = 2 0 2, extent = 3   -> 0 1 1 3, 1 0 2  where in a list each coordinate is, side by side, and where these begin
    picked     pos, index                   -> where the segments of `index` begin, and `pos` of these side by side
    copied     start, pos, columns          -> columns of the segments that begin at `start`, side by side
    within     pos, crd, range, columns     -> pos, crd and columns of the entries whose coordinate is in a range, renumbered
    below      pos, crd, k                  -> how many entries up to coordinate r + k the segments before r have
    named      pos, crd, listed, extent, columns -> the same for coordinates that a list names, in its order, as often as it names them
    begun      list, extent, wanted         -> as picked, of the segments of equal numbers in a list that increases
    located    pos, crd, parent, wanted     -> the position of a coordinate in the segment of `parent`, -1 where it is not stored
    carried    pos, crd, vals, pos, crd     -> the values at the entries of other segments, 0 where theirs have none
    rotated    pos, crd, vals, cut, extent  -> crd and vals with another coordinate as the first one of every segment
    repeated   a vector, count              -> every element so many times
    regrouped  columns, extents, others     -> the same places in row-major order under other extents
    crossed    (pos, crd, vals) of two     -> rows, columns and both values of every pair of entries: those of a Kronecker product
    chosen     pos, flags, columns          -> pos and columns of the entries whose flags hold
    flagged    key, flags, vals, extent     -> values whose flags hold, in the stable order of a key
    distant    pos, fill, tol, columns      -> the same of entries that in the last column differ from the fill by more than a number
    tidied     pos, crd, vals               -> crd and vals in order in every segment, and whether no coordinate comes twice in one
    folded     pos, crd, vals               -> the same with the sum of equal neighbours of a segment in their place
    entered    row, column, vals, extents   -> pos, crd and vals of the rows that these entries in any order have, each place once
    lined      extents, offsets, lines      -> pos, crd and vals of the matrix with these vectors on its diagonals
    met        pos, crd, start, step, vals  -> the segments r that have coordinate start + r * step, and the values there
    woven      pos, crds, vals, places, new -> pos, crds and vals with an entry for every place
    admitted   pos, columns, extents, vals  -> copies of what is inside, and whether coordinates increase in every segment
    largest    numbers, pos, keep           -> which are among the largest of their segment
    foremost   a matrix, keep               -> pos, crd and vals of the largest elements of its rows
    recurred   x, b, begins                 -> y[k] = b[k] + x[k] * y[k - 1], from 0 where a segment begins

Those that put arrays together are in `joining_passes`.

Here they are in NumPy, for few entries. From `MANY` on they are machine code, once the compiler has registered its own (`use`),
as this floor knows of no compiler.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sparsejax import config
from sparsejax.formats import admission, largest, searches
from sparsejax.formats.distances import differs, magnitudes
from sparsejax.formats.in_numpy import crossed, lined, naming, recurrences, regrouped, rotated, woven
from sparsejax.formats.joining_passes import JoiningPasses
from sparsejax.formats.runs import added, before, changes, keys_of
from sparsejax.formats.runs import crd_dtype as crd_dtype

Array = NDArray[Any]
Chosen = tuple[Array, list[Array]]
Room = Callable[[int], Sequence[Array]]
Woven = tuple[Array, list[Array], Array, Array, Array]
Thinner = Callable[[Array, Sequence[Array], Sequence[Array]], Chosen | None]

MANY = 4096
"""Entries from which machine code is worth its call, and a process that has none yet its loading."""

LOADED, OFTEN = 32, 256
"""Passes of one kind over few entries after which machine code is loaded that another process has compiled; after which it is compiled."""


class Passes(JoiningPasses):
    """The passes in NumPy."""

    def loaded(self, name: str, args: Sequence[Any]) -> Any:
        """The pass `name` of arguments, where that compiles nothing; else None."""
        return getattr(self, name)(*args)

    def owners(self, pos: Array) -> Array:
        """The segment of every position; `pos` starts at zero.

        >>> Passes().owners(np.array([0, 2, 2, 3]))
        array([0, 0, 2], dtype=int32)
        """
        parents = len(pos) - 1
        return np.repeat(np.arange(parents, dtype=crd_dtype(parents)), np.diff(pos))

    def offsets(self, parent: Array, parents: int, shift: int = 0, dtype: Any = np.int64, base: int = 0) -> Array:
        """Where the segment of each of `parents` begins, and after them where the last one ends; `parent` increases, from `base` on, and 2^shift of its
        numbers, side by side, are one of them.

        >>> Passes().offsets(np.array([0, 0, 2]), 3), Passes().offsets(np.array([0, 0, 2]), 2, 1)
        (array([0, 2, 2, 3]), array([0, 2, 3]))
        """
        parent = parent if not base and not shift else (parent - parent.dtype.type(base)) >> shift
        return before(np.bincount(parent, minlength=parents)).astype(dtype, copy=False)

    def take(self, column: Array, index: Array) -> Array:
        """`column[index]`; indices are in bounds."""
        return np.take(column, index)

    def ordered(self, key: Array, columns: Sequence[Array], extent: int) -> tuple[Array, list[Array]]:
        """(key, columns) with entries ordered, stably, by `key`, whose numbers are below `extent`.

        >>> Passes().ordered(np.array([1, 0, 1]), [np.array([5.0, 6.0, 7.0])], 2)
        (array([0, 1, 1]), [array([6., 5., 7.])])
        """
        # a radix sort for 16-bit numbers
        order = np.argsort(key.astype(np.uint16) if extent <= 2**16 else key, kind="stable")
        return np.take(key, order), [np.take(column, order) for column in columns]

    def bucketed(
        self, key: Array, columns: Sequence[Array], extent: int, kinds: Sequence[np.dtype[Any]] | None = None
    ) -> tuple[Array, list[Array]]:
        """As `ordered`; but instead of the key, where the entries of each of its `extent` values begin, and where they end. Columns have these dtypes then,
        if they are given, which hold the numbers of their columns.

        >>> Passes().bucketed(np.array([1, 0, 1]), [np.array([5.0, 6.0, 7.0])], 3)
        (array([0, 1, 3, 3]), [array([6., 5., 7.])])
        """
        if kinds is not None:
            columns = [column.astype(kind, copy=False) for column, kind in zip(columns, kinds, strict=True)]
        key, moved = self.ordered(key, columns, extent)
        return self.offsets(key, extent), moved

    def distinct(self, columns: Sequence[Array]) -> tuple[list[Array], Array]:
        """Columns without equal neighbours, and the number that every entry has among those left.

        >>> Passes().distinct([np.array([1, 1, 2])])
        ([array([1, 2])], array([0, 0, 1]))
        """
        fresh = changes(columns)
        return [column[fresh] for column in columns], np.cumsum(fresh) - 1

    def grid(self, count: int, extent: int) -> tuple[Array, Array]:
        """The owner and the number of every element of `count` rows of `extent` elements.

        >>> Passes().grid(2, 3)
        (array([0, 0, 0, 1, 1, 1], dtype=int32), array([0, 1, 2, 0, 1, 2], dtype=int32))
        """
        owners, numbers = (np.arange(n, dtype=crd_dtype(n)) for n in (count, extent))
        return np.repeat(owners, extent), np.tile(numbers, count)

    def joined(self, block: Array, place: Array, size: int, extent: int) -> Array:
        """`block * size + place`, coordinates below `extent`.

        >>> Passes().joined(np.array([0, 2]), np.array([1, 0]), 3, 9)
        array([1, 6], dtype=int32)
        """
        return (block.astype(crd_dtype(extent + size), copy=False) * size + place).astype(crd_dtype(extent), copy=False)

    def spread(self, vals: Array, position: Array, count: int, fill: Any) -> Array:
        """`count` values: `vals` at their positions, `fill` elsewhere.

        >>> Passes().spread(np.array([1.0, 2.0]), np.array([2, 0]), 4, 0)
        array([2., 0., 1., 0.])
        """
        made = np.full(count, fill, vals.dtype)
        made[position] = vals
        return made

    def turned(self, matrix: Array) -> Array:
        """The columns of a matrix, one behind the other.

        >>> Passes().turned(np.array([[1, 2], [3, 4]]))
        array([1, 3, 2, 4])
        """
        return matrix.T.reshape(-1)

    def sifted(self, matrix: Array, fill: Any, tol: Any = 0, flags: Array | None = None) -> tuple[Array, Array, Array]:
        """(pos, crd, vals) of the elements in the rows of a matrix that differ from the fill, by more than `tol`, or whose flags hold.

        >>> Passes().sifted(np.array([[0, 5], [0, 0], [6, 7]]), 0)
        (array([0, 1, 1, 3]), array([1, 0, 1], dtype=int32), array([5, 6, 7]))
        """
        far = differs(matrix, fill, tol) if flags is None else flags
        return before(np.count_nonzero(far, axis=1)), far.nonzero()[1].astype(crd_dtype(matrix.shape[1])), matrix[far]

    def numbered(self, listed: Array, extent: int) -> tuple[Array, Array]:
        """(ends, order): coordinate c, below `extent`, is in the list at `order[ends[c]:ends[c + 1]]`.

        >>> Passes().numbered(np.array([2, 0, 2]), 3)
        (array([0, 1, 1, 3], dtype=int32), array([1, 0, 2], dtype=int32))
        """
        ends = np.zeros(extent + 1, crd_dtype(len(listed) + 1))
        np.cumsum(np.bincount(listed, minlength=extent), out=ends[1:])
        return ends, listed.argsort(kind="stable").astype(crd_dtype(len(listed)), copy=False)

    def places(self, listed: Array, extent: int) -> object:
        """What `named` looks up of a list, where it looks up the same one again."""
        return None

    def picked(self, pos: Array, index: Array, ends: Array | None = None) -> tuple[Array, Array]:
        """Where the segments of `index` begin, and where they begin and end when they stand side by side; with `ends`, as many segments from each on as
        these are apart.

        >>> Passes().picked(np.array([0, 2, 2, 3]), np.array([2, 0]))
        (array([2, 0]), array([0, 1, 3]))
        """
        start = pos[index]
        return start, before(pos[index + (1 if ends is None else ends[1:] - ends[:-1])] - start)

    def begun(self, listed: Array, extent: int, wanted: Array) -> tuple[Array, Array]:
        """As `picked`, of the segments of equal numbers, below `extent`, in a list that increases.

        >>> Passes().begun(np.array([0, 0, 2]), 3, np.array([2, 1, 0]))
        (array([2, 2, 0]), array([0, 1, 1, 3]))
        """
        start, end = searches.equal(listed, wanted)
        return start, before(end - start)

    def copied(self, start: Array, pos: Array, columns: Sequence[Array], places: bool = False) -> list[Array]:
        """Columns of the segments that begin at `start` and stand at `pos` afterwards, side by side; with `places`, where each entry was, too.

        >>> Passes().copied(np.array([2, 0]), np.array([0, 1, 3]), [np.array([5, 6, 7])])
        [array([7, 5, 6])]
        """
        index = np.arange(pos[-1])
        index += np.repeat(start - pos[:-1], pos[1:] - pos[:-1])
        return [*(column[index] for column in columns), *([index] if places else [])]

    def within(
        self, pos: Array, crd: Array, chosen: range, columns: Sequence[Array]
    ) -> tuple[Array, Array, list[Array]]:
        """(pos, crd, columns) of the entries whose coordinate is in the range `chosen`, of positive step, numbered by their places in it.

        >>> Passes().within(np.array([0, 2, 3]), np.array([0, 4, 2]), range(2, 5, 2), [np.array([5, 6, 7])])
        (array([0, 1, 2]), array([1, 0], dtype=int32), [array([6, 7])])
        """
        first, end = int(pos[0]), int(pos[-1])
        crd, columns = crd[first:end], [column[first:end] for column in columns]
        inside = (crd >= chosen.start) & (crd < chosen.stop)
        if chosen.step > 1:
            inside &= (crd - crd.dtype.type(chosen.start)) % chosen.step == 0
        number = inside.nonzero()[0]
        made = crd[number]
        made -= made.dtype.type(chosen.start)
        if chosen.step > 1:
            made //= made.dtype.type(chosen.step)
        made = made.astype(crd_dtype(len(chosen)), copy=False)
        return before(inside)[pos - first], made, [column[number] for column in columns]

    def below(self, pos: Array, crd: Array, k: int) -> Array:
        """How many entries up to coordinate r + k the segments before each r have, and all of them; `pos` begins at 0.

        >>> Passes().below(np.array([0, 2, 3]), np.array([0, 4, 2]), 0)
        array([0, 1, 1])
        """
        ends = np.arange(k, k + len(pos) - 1).repeat(pos[1:] - pos[:-1])
        return before(crd <= ends)[pos]

    def named(
        self,
        pos: Array,
        crd: Array,
        listed: Array,
        extent: int,
        columns: Sequence[Array],
        places: object = None,
        room: Room | None = None,
    ) -> tuple[Array, Array, list[Array]] | None:
        """(pos, crd, columns) of the entries at coordinates (below `extent`) that a list names: a coordinate becomes its places there; ordered in
        every segment; `places` of the list may be given, and `room` for as many coordinates and values. None where that is no work for this pass.

        >>> Passes().named(np.array([0, 2]), np.array([0, 2]), np.array([2, 0, 2]), 3, [np.array([5, 6])])
        (array([0, 3]), array([0, 1, 2], dtype=int32), [array([6, 5, 6])])
        """
        pos, crd, columns = naming.named(pos, crd, Passes.numbered(self, listed, extent), columns)
        if room is not None:
            out, moved = room(len(crd))
            out[:], moved[:], crd, columns = crd, columns[0], out, [moved]
        return pos, crd, columns

    def located(self, pos: Array, crd: Array, parent: Array, wanted: Array) -> Array:
        """The position of coordinate `wanted` in the segment of `parent`, whose coordinates increase; -1 where it is not stored.

        >>> Passes().located(np.array([0, 2, 3]), np.array([0, 4, 2]), np.array([0, 1, 1]), np.array([4, 2, 0]))
        array([ 1,  2, -1])
        """
        number, place = searches.sought(pos[parent], pos[parent + 1], crd, wanted)
        here = np.full(len(wanted), -1)
        here[number] = place
        return here

    def carried(self, pos: Array, crd: Array, vals: Array, to_pos: Array, to_crd: Array) -> Array:
        """For every entry of as many other segments the value that the same segment of these has at its coordinate, else 0. Coordinates increase in
        all segments.

        >>> Passes().carried(np.array([0, 1, 2]), np.array([4, 2]), np.array([5, 6]), np.array([0, 2, 3]), np.array([0, 4, 3]))
        array([0, 5, 0])
        """
        made = np.zeros(len(to_crd), vals.dtype)
        here = self.located(to_pos, to_crd, self.owners(pos), crd)
        there = here >= 0
        made[here[there]] = vals[there]
        return made

    def rotated(self, pos: Array, crd: Array, vals: Array, cut: int, extent: int) -> tuple[Array, Array]:
        """(crd, vals) with coordinate `cut` of `extent` as the first one, and those before it behind the others; ordered in every segment as before.

        >>> Passes().rotated(np.array([0, 2, 3]), np.array([0, 2, 1]), np.array([5, 6, 7]), 1, 3)
        (array([1, 2, 0]), array([6, 5, 7]))
        """
        return rotated.rotated(pos, crd, vals, cut, extent)

    def repeated(self, column: Array, count: int, counted: np.dtype[Any] | None = None) -> Array:
        """Every element `count` times, or, as `counted`, times this number and the numbers behind.

        >>> Passes().repeated(np.array([2, 0]), 2), Passes().repeated(np.array([2, 0]), 2, np.dtype(np.int32))
        (array([2, 2, 0, 0]), array([4, 5, 0, 1], dtype=int32))
        """
        return rotated.repeated(column, count, counted)

    def recurred(self, x: Array, b: Array, begins: Array) -> Array:
        """y[k] = b[k] + x[k] * y[k - 1], where y[k - 1] counts as 0 at every k at which a segment `begins`.

        >>> Passes().recurred(np.array([2, 3, 4]), np.array([2, 0, 4]), np.array([True, False, True]))
        array([2, 6, 4])
        """
        return recurrences.recurred(x, b, begins)

    def largest(self, size: Array, pos: Array, keep: int, absolute: bool = False) -> Array:
        """Which numbers are among the `keep` largest of their segment, one or more, also by their absolute values: of equal ones the first, NaN before
        all numbers.

        >>> Passes().largest(np.array([3, 1, 2, 2, 2]), np.array([0, 3, 5]), 1)
        array([ True, False, False,  True, False])
        """
        return largest.largest(magnitudes(size) if absolute else size, pos, keep)

    def admitted(
        self, pos: Array | None, columns: Sequence[Array], extents: Sequence[int], vals: Array, copies: bool
    ) -> admission.Admitted | None:
        """(pos, columns, vals, increases): read-only copies, or what was given, of entries that somebody else made, and whether coordinates increase in
        every segment (without `pos`: in all); None where one is outside, or `pos` is none. What is behind entries that fall, without `pos`, is not seen."""
        return admission.admitted(pos, columns, extents, vals, copies)

    def placed(self, pos: Array, crd: Array, parent: Array, wanted: Array, vals: Array) -> tuple[Array, Array]:
        """(number, values): the places, each the coordinate `wanted` in the segment of `parent`, that are stored, and the values there.

        >>> Passes().placed(np.array([0, 2, 3]), np.array([0, 4, 2]), np.array([0, 1, 1]), np.array([4, 2, 0]), np.array([5, 6, 7]))
        (array([0, 1], dtype=int32), array([6, 7]))
        """
        return searches.placed(pos[parent], pos[parent + 1], crd, wanted, vals)

    def spotted(
        self, listed: Array, crd: Array, extent: int, row: Array, wanted: Array, vals: Array
    ) -> tuple[Array, Array]:
        """As `placed`, of places in the segments of equal numbers, below `extent`, in a list that increases.

        >>> Passes().spotted(np.array([0, 0, 2]), np.array([0, 4, 2]), 3, np.array([0, 1, 2]), np.array([4, 2, 0]), np.array([5, 6, 7]))
        (array([0], dtype=int32), array([6]))
        """
        return searches.placed(*searches.equal(listed, row), crd, wanted, vals)

    def met(self, pos: Array, crd: Array, start: int, step: int, vals: Array) -> tuple[Array, Array]:
        """(number, values): the segments r that have an entry at coordinate `start + r * step`, and the values there.

        >>> Passes().met(np.array([0, 2, 3]), np.array([0, 4, 1]), 0, 1, np.array([5, 6, 7]))
        (array([0, 1], dtype=int32), array([5, 7]))
        """
        first, end = int(pos[0]), int(pos[-1])
        owner = np.arange(len(pos) - 1, dtype=crd_dtype(len(pos))).repeat(pos[1:] - pos[:-1])
        here = (crd[first:end] == (owner * np.int64(step) + start if step else start)).nonzero()[0]
        return owner[here], vals[first:end][here]

    def lined(
        self, extents: tuple[int, int], offsets: Sequence[int], lines: Sequence[Array] | None
    ) -> tuple[Array, Array, Array | None]:
        """(pos, crd, vals) of the matrix of `extents` with vectors on its diagonals, in increasing `offsets`: of one value, or of one for every
        place. All have one dtype. No values without `lines`.

        >>> Passes().lined((2, 3), [0, 2], [np.array([5, 6]), np.array([7])])
        (array([0, 2, 3]), array([0, 2, 1], dtype=int32), array([5, 7, 6]))
        """
        return lined.lined(extents, offsets, lines)

    def room(self, count: int, dtype: np.dtype[Any]) -> tuple[Array, Array]:
        """A vector for a result, of memory that is used again where there is some, and the same memory to be written to."""
        made = np.empty(count, dtype)
        return made, made

    def crossed(
        self,
        one: tuple[Array, Array, Array],
        other: tuple[Array, Array, Array],
        width: int,
        extents: tuple[int, int],
        multiplied: bool = False,
    ) -> tuple[Array, ...]:
        """(rows, columns, values, values) of every pair of entries of two matrices, row by row of both: coordinates i * m + j, k * width + l,
        where the other has m segments and coordinates below `width`; `extents` are those of the result. Values of one dtype, which numbers
        have, may be `multiplied`.

        >>> eye = np.array([0, 1, 2]), np.array([0, 1]), np.array([5.0, 6.0])
        >>> [a.tolist() for a in Passes().crossed(eye, eye, 2, (4, 4))]
        [[0, 1, 2, 3], [0, 1, 2, 3], [5.0, 5.0, 6.0, 6.0], [5.0, 6.0, 5.0, 6.0]]
        """
        return crossed.crossed(one, other, width, extents, multiplied)

    def regrouped(self, columns: Sequence[Array], old: Sequence[int], new: Sequence[int]) -> list[Array]:
        """Coordinates under extents `new` of places that have coordinates `columns` under `old`, in row-major order; fewer than 2^63 places.

        >>> Passes().regrouped([np.array([0, 2]), np.array([1, 0])], (3, 2), (2, 3))
        [array([0, 1], dtype=int32), array([1, 1], dtype=int32)]
        """
        return regrouped.regrouped(columns, old, new)

    def chosen(self, pos: Array, flags: Array, columns: Sequence[Array]) -> Chosen:
        """`pos`, which begins at 0, and columns of the entries whose flags hold.

        >>> Passes().chosen(np.array([0, 2, 3]), np.array([False, True, True]), [np.array([5, 6, 7])])
        (array([0, 1, 2]), [array([6, 7])])
        """
        number = flags.nonzero()[0]
        return before(flags)[pos], [column[number] for column in columns]

    def flagged(self, key: Array, flags: Array, vals: Array, extent: int) -> Array:
        """The values whose flags hold, ordered, stably, by a key whose numbers are below `extent`.

        >>> Passes().flagged(np.array([1, 0, 1]), np.array([True, True, False]), np.array([5, 6, 7]), 2)
        array([6, 5])
        """
        number = flags.nonzero()[0]
        return vals[number[key[number].argsort(kind="stable")]]

    def distant(self, pos: Array, fill: Any, tol: Any, columns: Sequence[Array]) -> Chosen | None:
        """`chosen` by whether the last column differs from the fill by more than `tol` (`distances.differs`); None where all do.

        >>> Passes().distant(np.array([0, 2, 3]), 0, 1, [np.array([0.0, -3.0, 0.0])])
        (array([0, 1, 1]), [array([-3.])])
        """
        far = differs(columns[-1], fill, tol)
        return None if far.all() else self.chosen(pos, far, columns)

    def thinner(self, kinds: tuple[np.dtype[Any], ...], fill: Any) -> Thinner | None:
        """`distant` of few entries in contiguous columns of these dtypes as a function of `pos`, columns, and (); None: there is none (yet)."""
        return None

    def tidied(self, pos: Array, crd: Array, vals: Array) -> tuple[Array, Array, bool]:
        """(crd, vals, distinct): entries ordered, stably, by their coordinates in every segment, and whether these differ; `pos` begins at 0.
        The vectors are given up, and may be overwritten.

        >>> Passes().tidied(np.array([0, 2, 3]), np.array([4, 1, 0]), np.array([5, 6, 7]))
        (array([1, 4, 0]), array([6, 5, 7]), True)
        """
        if not len(crd):
            return crd, vals, True
        extent, owners = int(crd.max()) + 1, np.arange(len(pos) - 1).repeat(pos[1:] - pos[:-1])
        (key,) = keys_of([(owners, crd)], len(pos) - 1, extent)
        order = key.argsort(kind="stable")
        key = key[order]
        return crd[order], vals[order], not bool((key[1:] == key[:-1]).any())

    def folded(self, pos: Array, crd: Array, vals: Array) -> tuple[Array, Array, Array]:
        """(pos, crd, vals) with one entry, the sum ("or" of bools), for equal coordinates that follow each other in a segment; `pos` begins at 0.
        What is given may be overwritten.

        >>> Passes().folded(np.array([0, 2, 4]), np.array([1, 1, 1, 2]), np.array([1.0, 2.0, 3.0, 4.0]))
        (array([0, 1, 3]), array([1, 1, 2]), array([3., 3., 4.]))
        """
        if not len(crd):
            return pos, crd, vals
        fresh = changes([crd])
        fresh[pos[:-1][pos[:-1] < pos[1:]]] = True
        starts = np.flatnonzero(fresh)
        return np.searchsorted(starts, pos), crd[starts], added(vals, starts)

    def entered(
        self, row: Array, column: Array, vals: Array, rows: int, extent: int
    ) -> tuple[Array, Array, Array] | None:
        """(pos, crd, vals) of entries in any order, with one entry, the sum ("or" of bools), for each place: columns increase in every row. None
        where a row or a column is outside.

        >>> Passes().entered(np.array([1, 0, 1]), np.array([2, 0, 2]), np.array([1.0, 2.0, 3.0]), 2, 3)
        (array([0, 1, 2]), array([0, 2], dtype=int32), array([2., 4.]))
        """
        for vector, bound in ((row, rows), (column, extent)):
            unsigned = np.ascontiguousarray(vector).view(f"u{vector.itemsize}")
            if np.maximum.reduce(unsigned, initial=0) >= bound:
                return None
        pos, (crd, moved) = self.bucketed(row, [column, vals], rows, [crd_dtype(extent), vals.dtype])
        crd, moved, distinct = self.tidied(pos, crd, moved)
        return (pos, crd, moved) if distinct else self.folded(pos, crd, moved)

    def woven(
        self, pos: Array, crds: Sequence[Array], vals: Array, places: Sequence[Array], new: Array, replace: bool
    ) -> Woven:
        """(pos, crds, vals, at, here): with entries at `places`, segments and then coordinates, in order and each once, whose values are `new` where none
        was stored, or, to `replace`, everywhere; where these entries are, and whether they were `here`. Where all were, vectors are given back as they
        are, and nothing is replaced. `pos` begins at 0, and coordinates increase in every segment, by one column or by several.

        >>> given = np.array([0, 1]), [np.array([1])], np.array([5]), [np.array([0])] * 2, np.array([7])
        >>> [a.tolist() for a in Passes().woven(*given, replace=True)[2:]]
        [[7, 5], [0], [False]]
        """
        return woven.woven(pos, crds, vals, places, new, replace)

    def foremost(self, matrix: Array, keep: int, whole: bool = False) -> tuple[Array, Array, Array, bool] | None:
        """(pos, crd, vals) of the `keep` elements of largest absolute value in each row, or as `whole`, of equal ones the first, NaN before all numbers, and
        whether one of these may be 0; None where that is no work for this pass."""
        return None


class Learning(Passes):
    """The passes over few entries, in NumPy until one of them has run `often` times: from then on it pays to compile its machine code, which
    takes a third of the time. To load what another process has compiled pays after `LOADED` times: a millisecond in place of ten."""

    LEARNT: ClassVar = (
        *("owners", "offsets", "take", "spread", "numbered", "picked", "copied"),
        *("begun", "spotted", "within", "below", "named", "located", "carried", "rotated", "lined", "turned"),
        *("met", "placed", "sifted", "largest", "admitted", "interleaved", "regrouped"),
        *("chosen", "flagged", "distant", "tidied", "folded", "bucketed", "entered"),
        *("woven", "foremost", "repeated", "spliced", "united", "merged"),
        *("halves", "swapped", "shifted", "narrowed"),
    )

    def __init__(self, many: Passes, often: int = OFTEN) -> None:
        self._all = many
        for name in self.LEARNT:
            setattr(self, name, self._counted(name, many, often))

    def thinner(self, kinds: tuple[np.dtype[Any], ...], fill: Any) -> Thinner | None:
        return self._all.thinner(kinds, fill) if self.distant == self._all.distant else None

    def _counted(self, name: str, many: Passes, often: int) -> Callable[..., Any]:
        few, calls = getattr(super(), name), itertools.count(1)

        def run(*args: Any) -> Any:
            number = next(calls)
            if number >= often:
                setattr(self, name, getattr(many, name))
            elif number == LOADED and (found := many.loaded(name, args)) is not None:
                setattr(self, name, getattr(many, name))
                return found
            return few(*args)

        return run


_numpy = _few = _many = Passes()
_prefers: Callable[[int], bool] | None = None


def use(many: Passes, prefers: Callable[[int], bool]) -> None:
    """Run passes over many entries by `many`; where plans are forced (`config.choose`), those over as many as it `prefers`."""
    global _few, _many, _prefers
    _few, _many, _prefers = Learning(many), many, prefers


def over(entries: int) -> Passes:
    """The passes for as many entries."""
    if config.forcing and _prefers is not None:
        return _many if _prefers(entries) else _numpy
    return _few if entries < MANY else _many
