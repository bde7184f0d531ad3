"""Blocks: a tensor stored in blocks is a tensor with more dimensions, and its index variables split in two.

before:  y[i] += A[i,j] * x[j],                         A bsr:2x3, shapes (4,), (4,9), (9,)
after:   y[io,ii] += A[io,jo,ii,ji] * x[jo,ji],         A (d,c,d,d), shapes (2,2), (2,3,2,3), (3,3);  y and x paired

A dimension in blocks of size b becomes two, of extents ceil(n / b) and b, each with a storage level of its own. Where a
variable is split for one tensor it is for all. Those that do not store it in blocks have a dense level there, which is
read as two, the outer one of stride b (`cin.Tensor.paired`), over the same memory. The inner variable of a last block that sticks
out of the shape runs only as far as the shape does (`cin.IndexVar.rest`), so that nothing outside is ever read or written.

That needs block sizes that agree, and dense levels where there are no blocks. Where it is not so, blocked tensors are read,
and written, in their unblocked formats instead (`adapted`), by explicit conversions. In the results of `split` no format has
blocks: nothing behind this pass knows of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sparsejax.formats import Coordinate, Dense, Format, Level
from sparsejax.jit.ir import cin, units
from sparsejax.jit.ir.nest import Nest, Producer

Parts = Mapping[cin.Index, tuple[cin.IndexVar, cin.IndexVar]]
"""The outer and the inner variable of every variable that is split."""


# ------------------------------------------------------------------------------------------------------- block sizes


def sizes_of(accesses: Iterable[cin.Access]) -> dict[cin.Index, set[int]]:
    """The block sizes in which variables are stored, 1 among them where they are stored without blocks."""
    found: dict[cin.Index, set[int]] = {}
    for access in accesses:
        for index, b in zip(access.indices, access.tensor.format.blocks, strict=True):
            var = cin.follows(index)
            if var is not None:
                found.setdefault(var, set()).add(b)
    return found


def parts_of(accesses: Iterable[cin.Access]) -> dict[cin.Index, tuple[cin.IndexVar, cin.IndexVar]]:
    """The parts of every variable that some access stores in blocks; sizes must agree."""
    found: dict[cin.Index, tuple[cin.IndexVar, cin.IndexVar]] = {}
    for access in accesses:
        tensor = access.tensor
        for index, b, n in zip(access.indices, tensor.format.blocks, tensor.shape, strict=True):
            var = cin.follows(index)
            if b > 1 and var is not None:
                outer = cin.IndexVar(f"{var.name}o")
                found[var] = outer, cin.IndexVar(f"{var.name}i", outer, b, n % b)
    return found


def parts_of_nest(nest: Nest) -> dict[cin.Index, tuple[cin.IndexVar, cin.IndexVar]]:
    """The parts of the variables of a nest that is `adapted`."""
    return parts_of((cin.Access(nest.output, nest.indices), *nest.reads))


def adapted(nest: Nest) -> Nest:
    """`nest` with the blocked tensors that it cannot read or write as they are in unblocked formats."""
    while True:
        out = cin.Access(nest.output, nest.indices)
        accesses = list(dict.fromkeys((out, *nest.reads)))
        split = {v: sizes - {1} for v, sizes in sizes_of(accesses).items() if sizes - {1}}
        wrong = {v for v, sizes in split.items() if len(sizes) > 1}
        wrong |= {ix for a in accesses for ix in (*unpaired(a, split), *_whole(a))}
        if not wrong:
            return nest
        if _in_blocks(out, wrong):
            plain = nest.output.format.unblocked().as_written(nest.output.shape, nest.output.dtype.itemsize)
            nest = replace(nest, output=nest.output._replace(format=plain))
            continue
        nest = nest.in_formats({a: a.tensor.format.unblocked() for a in accesses if _in_blocks(a, wrong)})


def unpaired(access: cin.Access, split: Collection[cin.Index]) -> Iterator[cin.Index]:
    """The split variables that `access` stores without blocks, but not in a level that can be read as two."""
    form = access.tensor.format
    for level, d in enumerate(form.order):
        if access.indices[d] in split and form.blocks[d] == 1:
            below = form.levels[level + 1 : level + 2]
            if not form.levels[level].full or any(lv.relative for lv in below):
                yield access.indices[d]


def _whole(access: cin.Access) -> Iterator[cin.Index]:
    """The indices of blocked dimensions that cannot be split: those whose coordinates are computed."""
    for index, b in zip(access.indices, access.tensor.format.blocks, strict=True):
        if b > 1 and cin.follows(index) is None and cin.fixed(index) is None:
            yield index


def _in_blocks(access: cin.Access, variables: set[cin.Index]) -> bool:
    return any(b > 1 and ix in variables for ix, b in zip(access.indices, access.tensor.format.blocks, strict=True))


# ------------------------------------------------------------------------------------------------------- definitions


@dataclass(frozen=True)
class SplitDefinition:
    """A definition without blocks, the shape of its result, and the dimension that each of these was."""

    definition: cin.Definition
    shape: tuple[int, ...]
    dimensions: tuple[int, ...]
    blocks: tuple[int, ...]

    def joined(self, form: Format) -> Format:
        """The format of the result, given that of the split one; a dense result has no blocks."""
        if form.is_dense:
            return Format((Dense(),) * len(self.blocks))
        return Format(form.levels, [self.dimensions[d] for d in form.order], self.blocks)


def split_definition(definition: cin.Definition, shape: tuple[int, ...]) -> SplitDefinition:
    """`definition` in blocks, where all sparse operands agree on their sizes; else with their formats unblocked.

    All outer variables of the result come first, then the inner ones.
    """
    accesses = list(dict.fromkeys(cin.accesses(definition.rhs)))
    sizes = sizes_of(a for a in accesses if not a.tensor.format.is_dense)
    agreed = all(len(found) == 1 for found in sizes.values()) and not any(tuple(_whole(a)) for a in accesses)
    parts = parts_of(accesses) if agreed else {}
    moved: dict[cin.Access, cin.Expr] = {}
    for a in accesses:
        plain = cin.Access(a.tensor._replace(format=a.tensor.format.unblocked()), a.indices)
        moved[a] = split_access(a, parts) if agreed else plain
    inner = [d for d, ix in enumerate(definition.indices) if ix in parts]
    indices = [parts[ix][0] if ix in parts else ix for ix in definition.indices]
    within = [parts[definition.indices[d]][1] for d in inner]
    block = tuple(parts[ix][1].size if ix in parts else 1 for ix in definition.indices)
    return SplitDefinition(
        cin.Definition((*indices, *within), definition.op, cin.substitute(definition.rhs, moved)),
        (*(-(-n // b) for n, b in zip(shape, block, strict=True)), *(v.size for v in within)),
        (*range(len(shape)), *inner),
        block,
    )


# ---------------------------------------------------------------------------------------------------------- the pass


def has_blocks(nest: Nest) -> bool:
    """Whether a tensor of `nest` is in blocks: one that is read or written, or a result between its statements."""
    return nest.blocked


def split(nest: Nest) -> Nest:
    """`nest` without blocks (see above), and without axes of extent one (`units`). It must be `adapted`."""
    nest = units.dropped(nest)
    if not has_blocks(nest):  # blocks of which one is read have no parts
        return nest
    return split_in(nest, parts_of_nest(nest))


def split_in(nest: Nest, parts: Parts) -> Nest:
    """`nest` with its variables in `parts`."""
    out = cin.Access(nest.output, nest.indices)
    moved: dict[cin.Access, cin.Expr] = {a: split_access(a, parts) for a in nest.reads}
    targets = {p.target: cin.moved_access(split_workspace(p.target, parts), moved) for p in nest.producers}
    made = cin.moved_access(split_access(out, parts), moved)
    producers = tuple(Producer(targets[p.target], p.op, cin.substitute(p.rhs, moved)) for p in nest.producers)
    value = cin.substitute(nest.value, {**moved, **targets})
    return Nest(made.tensor, made.indices, producers, value)


def split_workspace(access: cin.Access, parts: Parts) -> cin.Access:
    """A workspace of a nest over split variables."""
    indices: list[cin.Index] = []
    shape: list[int] = []
    for index, n in zip(access.indices, access.tensor.shape, strict=True):
        outer, inner = parts.get(index, (index, None))
        indices.append(outer)
        shape.append(n if inner is None else -(-n // inner.size))
        if inner is not None:
            indices.append(inner)
            shape.append(inner.size)
    full = access.tensor.format.full
    form = Format((Dense() if full else Coordinate(),) * len(shape))  # all that is asked is whether it lacks entries
    return cin.Access(access.tensor.reshaped(shape, form), tuple(indices))


@dataclass(frozen=True)
class _Dimension:
    """One dimension of a split tensor: its index and extent; and whether it is of constant extent, or the inner one of a pair."""

    index: cin.Index
    extent: int
    inner: bool = False
    paired: bool = False


def split_access(access: cin.Access, parts: Parts) -> cin.Access:
    """`access` with a dimension for every part of its own; of a blocked tensor, in the order of its levels."""
    tensor, form = access.tensor, access.tensor.format
    if not form.blocked and not any(ix in parts for ix in access.indices):
        return access
    places = _places(access, parts)
    flat = [dimension for place in places for dimension in place]
    first = {k: sum(map(len, places[:k])) for k in range(len(places))}
    levels: list[Level] = []
    order: list[int] = []
    for number, level in enumerate(form.levels):
        place = number if form.blocked else form.order[number]
        levels += [level] * len(places[place])
        order += range(first[place], first[place] + len(places[place]))
    before = () if form.blocked else [(first[k], k) for k in range(len(places))]
    made = tensor.reshaped([d.extent for d in flat], Format(levels, order))._replace(
        source=tensor.stored,
        inner=tuple(sorted({k for k, d in enumerate(flat) if d.inner} | {k for k, d in before if d in tensor.inner})),
        paired=tuple(
            sorted({k for k, d in enumerate(flat) if d.paired} | {k for k, d in before if d in tensor.paired})
        ),
        units=tensor.units,
    )
    return cin.Access(made, tuple(d.index for d in flat))


def _places(access: cin.Access, parts: Parts) -> list[list[_Dimension]]:
    """For every level of a blocked tensor, or every dimension of another one, one dimension or a pair."""
    tensor, form = access.tensor, access.tensor.format
    made: list[list[_Dimension]] = []
    sources = list(enumerate(form.order)) if form.blocked else [(-1, d) for d in range(form.ndim)]
    for level, d in sources:
        index, n, b = access.indices[d], tensor.shape[d], form.blocks[d]
        if b > 1:
            inner = form.is_inner(level)
            at = cin.fixed(index)
            if at is not None:
                part: cin.Index = at % b if inner else at // b
            else:
                part = parts[index][inner]
            made.append([_Dimension(part, b if inner else -(-n // b), inner)])
        elif index in parts:
            outer, within = parts[index]
            made.append([_Dimension(outer, -(-n // within.size)), _Dimension(within, within.size, True, True)])
        else:
            made.append([_Dimension(index, n)])
    return made


# --------------------------------------------------------------------------------------------------------- and back


def joined(access: cin.Access, parts: Parts, form: Format) -> Format:
    """The format of the tensor of `access` that splits into `form`.

    Blocks of a tensor that is not blocked stay only where `form` separates the levels of a pair.
    """
    source = access.tensor.format
    plain = split_access(access, parts).tensor
    if form == plain.format:
        return source
    of: list[int] = []  # the dimension of every dimension of the split tensor
    for place, dimensions in enumerate(_places(access, parts)):
        of += [source.order[place] if source.blocked else place] * len(dimensions)
    merged = {
        k
        for k in plain.paired
        if form.order.index(k) == form.order.index(k - 1) + 1
        and all(form.levels[form.order.index(x)].full for x in (k - 1, k))
    }
    blocks = [1] * source.ndim
    for k in plain.inner:
        if k not in merged:
            blocks[of[k]] = plain.shape[k]
    kept = [(level, of[k]) for level, k in zip(form.levels, form.order, strict=True) if k not in merged]
    return Format([level for level, _ in kept], [d for _, d in kept], blocks)


def with_formats(nest: Nest, formats: Mapping[str, Format]) -> Nest:
    """`nest` reading inputs in other formats: by name, those into which they are to split."""
    left = units.dropped(nest)
    parts = parts_of_nest(left)
    made = {a.tensor.name: a for a in left.reads if a.tensor.name in formats}
    found = {n: units.restored(a.tensor, joined(a, parts, formats[n])) for n, a in made.items()}
    return nest.in_formats({a: found[a.tensor.name] for a in nest.reads if a.tensor.name in found})


def split_counts(access: cin.Access, parts: Parts, counts: Sequence[float]) -> tuple[float, ...]:
    """Observed positions per level, of the split tensor."""
    plain = split_access(access, parts).tensor
    if not plain.paired:
        return tuple(counts)
    made: list[float] = []
    given = iter(counts)
    for k in plain.format.order:
        if k in plain.paired:
            made.append(made[-1])
            made[-2] = max(1.0, made[-1] / plain.shape[k])
        else:
            made.append(next(given))
    return tuple(made)
