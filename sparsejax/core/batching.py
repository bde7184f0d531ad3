"""Batches: how operands that differ from element to element of a batch stand in rules.

    batch(size, *operands, **params) -> result          a list of results where the primitive is `multiple`

Every operand is a value that all elements share (an array, a tracer, a Python number), or `Batched`: an array that has the batch
as its last dimension, whatever its storage order. At least one is `Batched`. A result is an array with the batch as its last
dimension, or one without it, which all elements share: one dimension less. `params` are those of one element.

The batch is one more index variable. Its place in storage decides what is computed: as dense levels below the others it is values
under one pattern; above a sparse level every element has a pattern of its own.
"""

from __future__ import annotations

from typing import Any

from sparsejax.core.avals import Aval
from sparsejax.formats import Dense, Format, Level, selection


class Batched:
    """An operand that is different for every element: `value` has the batch as its last dimension, `aval` is the type of an element.

    A dense element of dimensions is stored as a dense array, a sparse one as a sparse array of the same fill. Numbers may be stored
    as a sparse vector.
    """

    __slots__ = ("aval", "value")

    def __init__(self, value: Any, aval: Aval) -> None:
        self.value = value
        self.aval = aval

    @property
    def is_ragged(self) -> bool:
        """Whether elements have patterns of their own."""
        form: Format = self.value.format
        return not form.is_dense and not has_shared_pattern(form)


def has_shared_pattern(form: Format) -> bool:
    """Whether an array in `form`, batched along its last dimension, has one pattern for all elements.

    >>> [has_shared_pattern(Format.parse(f, 3)) for f in ("(d,c,d)@(0,1,2)", "(d,d,c)@(2,0,1)")]
    [True, False]
    """
    return all(level.full for level in form.levels[form.order.index(form.ndim - 1) :])


def element_format(form: Format, axis: int) -> Format:
    """The format of one element of a batch along `axis` of an array in `form`: without the level of the batch, where the other
    levels store the same entries then, else coo. That is so for dense levels and the outermost level.

    >>> element_format(Format.parse("(d,c,d)@(1,2,0)", 3), 0), element_format(Format.parse("csr", 2), 1)
    (Format('csr'), Format('coo'))
    """
    place = form.order.index(axis)
    below = form.levels[place + 1 : place + 2]
    same = form.levels[place].full or (place == 0 and form.blocks[axis] == 1)
    if form.is_dense or (same and not any(level.relative for level in below)):
        return selection.without(form, (axis,))
    return Format.parse("coo", form.ndim - 1) if form.ndim > 1 else Format(())


def batched_format(form: Format, ragged: bool) -> Format:
    """The format of a batch of arrays in `form`, the batch being the last dimension: a dense level, the outermost where every
    element has a pattern of its own, else the innermost (where `form` lets a level follow).

    >>> batched_format(Format.parse("csr", 2), False), batched_format(Format.parse("csr", 2), True)
    (Format('(d,c,d)@(0,1,2)'), Format('(d,d,c)@(2,0,1)'))
    """
    last: Level | None = form.levels[-1] if form.levels else None
    outermost = ragged or (last is not None and (last.shared or not last.unique))
    place = 0 if outermost else len(form.levels)
    levels, order = [*form.levels], [*form.order]
    levels.insert(place, Dense())
    order.insert(place, form.ndim)
    return Format(levels, order, (*form.blocks, 1))
