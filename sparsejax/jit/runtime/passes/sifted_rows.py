"""The elements of rows of a dense matrix that pass a test, such as to differ from the fill: two kernels, of which one counts, so that nothing is made beside
the result.

counted    as many elements as a word has bits are compared at a time, and bits that are set are counted
written    the same words; bits that are set, lowest first, are the next entries
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sparsejax.formats.passes import Array, crd_dtype
from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.runtime.passes import entry_tests
from sparsejax.jit.runtime.passes.pass_kernels import INT64, address, as_kernel, empty, run_parts, vectors

WORDS = 32, 8, 1
"""Elements that are compared at once, and of what is left in a row."""


def sifted(
    matrix: Array, test: entry_tests.Test, asked: Array, shares: Sequence[tuple[int, int]]
) -> tuple[Array, Array, Array]:
    """(pos, crd, vals) of what passes a test in the rows of a matrix, which is stored row by row; `asked` is the fill, a bound, or all flags."""
    rows, columns = matrix.shape
    made = np.empty(rows + 1, INT64)
    made[0] = 0
    given = columns, address(matrix), address(asked), address(made)
    size = crd_dtype(columns).itemsize
    run_parts(_counted(test, matrix.itemsize), [(*share, *given) for share in shares])
    np.add.accumulate(made, out=made)
    found = int(made[-1])
    crd, vals = empty(found, crd_dtype(columns)), empty(found, matrix.dtype)
    behind = *given, address(crd), address(vals)
    run_parts(_written(test, matrix.itemsize, size), [(*share, *behind) for share in shares])
    return made, crd, vals


class _Rows:
    """The rows of a matrix, word by word. Slots: the first row and the last; columns; the matrix; what is asked; where rows of the result begin."""

    def __init__(self, b: Builder, test: entry_tests.Test, size: int) -> None:
        self.b = b
        self.first, self.end, self._columns = (
            b.slot(k, "i64", name) for k, name in enumerate(("first", "end", "columns"))
        )
        flagged = isinstance(test, entry_tests.Flags)
        self.matrix, asked, self.made = vectors(b, 3, (size, 1 if flagged else size, 8), ("matrix", "asked", "made"))
        self.compared = test.within(b, asked, None) if flagged else test.within(b, self.matrix, asked)

    def walk(self, row: Val, what: Callable[[Val, Val, Val, int], None]) -> None:
        """Call `what` with the bits of every word of a row, its first column, where that is in the matrix, and how many elements it has."""
        b = self.b
        begin, done = b.named("begin", b.mul(row, self._columns)), b.i64(0)
        for count in WORDS:
            stop = self._columns if count == 1 else b.named("stop", b.and_(self._columns, b.i64(-count)))
            with b.for_(done, stop, "c", step=count) as c:
                at = b.named("at", b.add(begin, c))
                what(b.named("bits", self.compared.bits(at, count)), c, at, count)
            done = stop

    def whole(self, count: int) -> int:
        """The bits of so many elements that all differ."""
        return (1 << count) - 1 if self.compared.parts == 1 else entry_tests.EVEN & ((1 << 2 * count) - 1)

    def number(self, place: Val) -> Val:
        """The number of the element whose bit is at a place."""
        return place if self.compared.parts == 1 else self.b.binary("lshr", place, self.b.i64(1))


@as_kernel
def _counted(b: Builder, test: entry_tests.Test, size: int) -> None:
    rows = _Rows(b, test, size)
    with b.for_(rows.first, rows.end, "r") as row:
        found = b.var("found", b.i64(0))
        b.set(found, b.i64(0))

        def counted(bits: Val, *_: Any) -> None:
            b.increment(found, b.call("llvm.ctpop.i64", "i64", [rows.compared.of_elements(bits)]))

        rows.walk(row, counted)
        rows.made.put(b, b.add(row, 1), b.get(found))


@as_kernel
def _written(b: Builder, test: entry_tests.Test, size: int, crd_size: int) -> None:
    rows = _Rows(b, test, size)
    crd, vals = vectors(b, 6, (crd_size, size), ("crd", "vals"))
    at = b.var("at", rows.made.get(b, rows.first))

    def put(number: Val, column: Val, element: Val) -> None:
        crd.put(b, b.get(at), crd.element(b, b.add(column, number)))
        vals.put(b, b.get(at), rows.matrix.get(b, b.add(element, number)))
        b.increment(at)

    def written(bits: Val, column: Val, element: Val, count: int) -> None:
        bits = b.named("elements", rows.compared.of_elements(bits))

        def all_of_them() -> None:
            with b.for_(b.i64(0), b.i64(count), "k") as k:
                put(k, column, element)

        def some() -> None:
            with b.bits_of(bits) as bit:
                put(rows.number(bit), column, element)

        b.if_else(b.eq(bits, b.i64(rows.whole(count))), all_of_them, some)

    with b.for_(rows.first, rows.end, "r") as row:
        rows.walk(row, written)
