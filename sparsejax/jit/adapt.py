"""What kernels read and write directly, where that is less than what formats can say.

before:  out:bitmap[i,j] = A:hash[i,j] + B:csr-with-duplicates[i,j]
after:   out:csr[i,j] = A:csr[i,j] + B:csr[i,j],   A and B converted before, out after; the plan says so

Read: every level type, but duplicates are combined first, and an unordered level is looked up, or walked alone where
the order does not matter (`coiterate.Unordered`); elsewhere it is read as a compressed one. Written: dense, compressed and
coordinate levels; others are assembled compressed and converted. Conversions are linear in the entries.
"""

from __future__ import annotations

from collections.abc import Callable

from sparsejax.formats import Compressed, Coordinate, Dense, Format, Level
from sparsejax.jit import cin, coiterate, concretize, lower
from sparsejax.jit.nest import Nest
from sparsejax.jit.pretty import PrettyBuilder


def assembled(form: Format) -> Format:
    """The format in which a kernel writes a result of format `form`."""
    levels = [lv if isinstance(lv, Dense | Coordinate) or lv == Compressed() else Compressed() for lv in form.levels]
    return form if tuple(levels) == form.levels else Format(levels, form.order)


def readable(nest: Nest, order: tuple[cin.IndexVar, ...], workspace: str | None = None) -> Nest:
    """`nest` with its inputs in the formats that its kernel reads, when its loops are in `order`.

    Whether a loop may walk an unordered level depends on all that the loop does: lowering finds out.
    """
    made = _changed(nest, lambda tensor, level: level.unique)
    while not all(level.ordered for tensor in made.inputs for level in tensor.format.levels):
        try:
            lower.lower(concretize.concretize(made, order, workspace), PrettyBuilder())
        except coiterate.Unordered as fault:
            made = _ordered(made, fault.tensor)
        else:
            break
    return made


def _ordered(nest: Nest, walked: cin.Tensor) -> Nest:
    return _changed(nest, lambda tensor, level: level.ordered or tensor != walked)


def _changed(nest: Nest, keep: Callable[[cin.Tensor, Level], bool]) -> Nest:
    """`nest` where the levels of its inputs that are not kept are compressed ones."""
    formats = {}
    for tensor in nest.inputs:
        levels = [level if keep(tensor, level) else Compressed() for level in tensor.format.levels]
        formats[tensor] = Format(levels, tensor.format.order)
    return concretize.with_formats(nest, formats)
