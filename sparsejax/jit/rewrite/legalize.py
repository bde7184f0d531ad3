"""What kernels read and write directly, where that is less than what formats can say.

before:  out:ell[i,j] = A:hash[i,j] + B:csr-with-duplicates[i,j]
after:   out:csr[i,j] = A:csr[i,j] + B:csr[i,j],   A and B converted before, out after; the plan says so

Read: every level type, but duplicates are combined first, and an unordered level is looked up, or walked alone where
the order does not matter (`LoopPlan.unordered`); elsewhere it is read as a compressed one. So are diagonals in blocks that stick
out of the shape, where they store what lies outside. Blocks: see `blocks`. Written: what `Format.as_written` says; levels that tell why kernels
do not write them (`Level.unwritten`) are assembled compressed and converted. Conversions are linear in the entries.
"""

from __future__ import annotations

from collections.abc import Callable

from sparsejax.core.avals import Aval
from sparsejax.formats import Compressed, Format, convert
from sparsejax.formats.storage import Storage
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.nest import Nest


def assembled(output: cin.Tensor) -> cin.Tensor:
    """A result in the format in which a kernel writes it."""
    return output._replace(format=output.format.as_written(output.shape, output.dtype.itemsize))


def without_lone_coordinates(form: Format) -> Format:
    """`form` with coordinate levels that are no run as compressed ones: the buffers are the same, and so is the kernel."""
    lone = {first for first, stop in form.runs if stop == first + 1 and form.levels[first].chained}
    if not lone:
        return form
    levels = [Compressed() if k in lone else level for k, level in enumerate(form.levels)]
    return Format(levels, form.order, form.blocks)


def finished(made: Storage, aval: Aval) -> Storage:
    """The result of a kernel in the format of `aval`."""
    if made.format.is_dense:  # a dense array has no fill of its own
        return convert.from_dense(convert.to_dense(made), aval.format, aval.fill_value)
    return convert.convert(made, aval.format)


def readable(nest: Nest, walked: Callable[[Nest], cin.Tensor | None]) -> Nest:
    """`nest` with its inputs in the formats that its kernel reads. `walked` tells which tensor with an unordered level some loop has to walk
    in order, if there is one: that depends on all that the loop does.
    """
    made = _changed(nest, _read)
    while not all(level.ordered for tensor in made.inputs for level in tensor.format.levels):
        found = walked(made)
        if found is None:
            break
        made = _ordered(made, found)
    return made


def _read(tensor: cin.Tensor, number: int) -> bool:
    form = tensor.format
    sticks_out = form.is_inner(number) and tensor.shape[form.order[number]] % form.blocks[form.order[number]] != 0
    return form.levels[number].unique and not (sticks_out and form.levels[number].relative)


def _ordered(nest: Nest, walked: cin.Tensor) -> Nest:
    return _changed(nest, lambda tensor, number: tensor.format.levels[number].ordered or tensor.name != walked.name)


def _changed(nest: Nest, keep: Callable[[cin.Tensor, int], bool]) -> Nest:
    """`nest` where the levels of its inputs that are not kept are compressed ones."""
    formats = {}
    for tensor in nest.inputs:
        form = tensor.format
        levels = [level if keep(tensor, number) else Compressed() for number, level in enumerate(form.levels)]
        formats[tensor] = Format(levels, form.order, form.blocks)
    return nest.in_formats({a: formats[a.tensor] for a in nest.reads})
