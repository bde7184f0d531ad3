"""Products with a constant, written out: a line for every entry, in place of loops over them.

before:  forall b                                          C holds (p,i,j,k) = (0,0,1,2): 0.5, (0,1,0,2): 0.3
           forall p                                        W is not indexed by b
             forall i
               ...  out[b,k,w] += C[p,i,j,k] * X[b,i,u] * Y[b,j] * W[p,u,w]

after:   forall bo
           where z: dense
             forall bi
               forall u (tile)
                 z[0,bi,u] = X[bo,bi,0,u] * (0.5 * Y[bo,bi,1]) + X[bo,bi,1,u] * (0.3 * Y[bo,bi,0])
           then
             forall bi (tile)
               forall w (tile)
                 where t: scalar
                   forall u
                     t += z[0,bi,u] * W[0,u,w]
                 then
                   out[bo,bi,2,w] = t

The steps are those of `static_products`. What lies between two of them is kept for a block of coordinates of the loop around them all, in the first cache:
the entries are taken in pieces that fit (`_pieces`), by the coordinates of the operand that is met last. Every operand is read along its last
storage level: one that is not stored so is read in another order, which the runtime converts, once per array. Coordinates and values of the
constant stand in the code; nothing of it is loaded.

Where something is added to every element of the result, the first piece that does assigns it, so that nobody has to clear it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sparsejax.cached import cached_property
from sparsejax.formats import Dense, Format
from sparsejax.jit.backend import host
from sparsejax.jit.ir import blocks, choices, cin, indices, simplify, static_products
from sparsejax.jit.ir.nest import Nest
from sparsejax.jit.ir.program import Program
from sparsejax.jit.ir.static_products import Factor, Part, Product, Step, Term, Values
from sparsejax.jit.rewrite.vectorize import vectorizable

BLOCKS, LONG = (12, 10, 8), 32
"""Coordinates of the outer loop for which steps keep what they make: the first that leaves none over, or the last; where the result is summed over
it. A bound of the registers that a row of values takes, no price: there is one way to write the code."""
ROOM = 1 << 14
"""Bytes of what one step keeps for the next, about: a third of the smallest first cache of today's processors."""
TOGETHER = {False: 6, True: 7}
"""Sums that run at once where they read the same, and no rows do, without masks and with them: a bound of registers, of which there are 32 with masks (seven
times four vectors), and what an addition takes to be there."""

RUN = 64
"""Terms of a sum that are added one to the other."""

Write = Callable[[Values, cin.Expr], cin.Stmt]
"""Writes the sum for some values of fixed variables."""
Read = Callable[[Factor | Step, Values], cin.Expr]
"""What a child is, at some values of its fixed variables."""


def program(nest: Nest) -> Program | None:
    """The program of a nest whose constant is written out; None where it has none."""
    product = static_products.product_of(nest)
    if product is None:
        return None
    parts = _parts(nest, product)
    last = static_products.step_of(product, parts[0].steps)
    outer = static_products.outer_of(product, last)
    ordered = nest.in_formats(_formats(nest, product, parts) or {})
    made, around = ordered, outer
    shared = outer is not None and _shares(product, parts, outer)
    if outer is not None and shared:
        extent = product.extents[outer]
        fit = [n for n in BLOCKS if type(extent) is int and extent % n == 0]
        size = min([*fit, BLOCKS[-1]][0] if outer in nest.indices else LONG, max(1, int(extent)))
        split = _split(ordered, product, outer, size)
        if split is not None:
            made, around = split
    product = static_products.product_of(made)
    assert product is not None
    stmt, whole = _written(product, parts, around, shared)
    return _program(nest, made, stmt, whole)


def _parts(nest: Nest, product: Product) -> tuple[Part, ...]:
    """The entries by the steps in which they are contracted: all in the same, or some in others, where every operand can be read in one order."""
    whole, found = static_products.whole(product), static_products.parts(product)
    apart = len(found) > 1 and _formats(nest, product, found) is not None
    return (
        found if choices.pick("steps", ("one", "apart")[: 1 + apart], "apart" if apart else "one") == "apart" else whole
    )


def _shares(product: Product, parts: Sequence[Part], outer: cin.IndexVar) -> bool:
    """Whether coordinates of the loop around all steps share an operand of a sum, or the result: these keep values for some of them."""
    sums: list[Step] = []
    for part in parts:
        last = static_products.step_of(product, part.steps)
        inner = list(static_products.inner_steps(last))
        sums += [step for step in (*inner, last) if inner and step.summed]
    found = any(isinstance(c, Factor) and outer not in c.loops for step in sums for c in step.children)
    return found or (bool(sums) and outer not in product.out.indices)


def _program(nest: Nest, made: Nest, stmt: cin.Stmt, whole: bool) -> Program:
    """The program of `stmt`, which reads the operands of `nest` as `made` does; the constant as it is."""
    given = {t.name: t for t in nest.inputs}
    inputs = tuple(given[t.name] if t.constant is not None else t for t in made.inputs)
    extents: dict[cin.IndexVar, tuple[str, int]] = {}
    for access in (*made.reads, cin.Access(made.output, made.indices)):
        if access.tensor.constant is None:
            for dimension, index in enumerate(access.indices):
                var = cin.follows(index)
                if var is not None:
                    extents.setdefault(var, (access.tensor.name, dimension))
    return Program(stmt, inputs, made.output, extents, whole=whole, literal=True)


# -------------------------------------------------------------------------------------------------------------- layouts

Lanes = dict[Step, cin.IndexVar | None]


def _lanes(last: Step, ends: Sequence[cin.IndexVar], outer: cin.IndexVar | None) -> Lanes:
    """The loop of every step that runs in lanes: of the last one that along which the result lies, of others the one that most of what they
    read lies along, that of their reader before others. Not the loop around them all."""
    made: Lanes = {last: ends[0] if ends and ends[0] in last.loops and ends[0] != outer else None}

    def visit(step: Step) -> None:
        for child in step.children:
            if isinstance(child, Step):
                read = [
                    f.access.level_index(len(f.access.indices) - 1)
                    for f in child.children
                    if isinstance(f, Factor) and f.access.indices
                ]
                fit = [v for v in child.loops if v != outer]
                wanted = made[step] or next(iter(v for v in step.summed), None)
                made[child] = max(fit, key=lambda v: (read.count(v) + (v == wanted), v == wanted), default=None)
                visit(child)

    visit(last)
    return made


def _formats(nest: Nest, product: Product, parts: Sequence[Part]) -> dict[cin.Access, Format] | None:
    """The formats of the operands of `nest` that are not stored along the lanes of the steps that read them; None where some are read along
    other lanes by other entries."""
    ends, wanted = cin.followed(nest.indices)[-1:], dict[cin.Access, int]()
    for part in parts:
        last = static_products.step_of(product, part.steps)
        lanes = _lanes(last, ends, static_products.outer_of(product, last))
        for step in (*static_products.inner_steps(last), last):
            along = lanes[step] or (step.summed[-1] if step.summed else None)
            for factor in step.children:
                if isinstance(factor, Factor) and along in factor.loops:
                    axis = factor.access.indices.index(along)
                    if wanted.setdefault(factor.access, axis) != axis and len(parts) > 1:
                        return None
                    wanted[factor.access] = axis
    made: dict[cin.Access, Format] = {}
    for access, axis in wanted.items():
        form = access.tensor.format
        if form.order[-1] != axis:
            made[access] = Format(form.levels, (*(d for d in form.order if d != axis), axis))
    return made


def _split(nest: Nest, product: Product, outer: cin.IndexVar, size: int) -> tuple[Nest, cin.IndexVar] | None:
    """`nest` with its outer loop in blocks, and the loop over these; None where some operand does not store it so that it can be."""
    accesses = (product.out, *(f.access for f in product.factors))
    if any(a.tensor.source is not None or any(blocks.unpaired(a, {outer})) for a in accesses):
        return None
    nest = nest.in_formats({product.constant: Format((Dense(),) * len(product.constant.indices))})
    around = cin.IndexVar(f"{outer.name}o")
    within = cin.IndexVar(f"{outer.name}i", around, size, product.extents[outer] % size)
    return blocks.split_in(nest, {outer: (around, within)}), around


# ------------------------------------------------------------------------------------------------------------ statements


@dataclass(frozen=True)
class _Kept:
    """What a step makes for the next: a workspace, and the slot of every value in it."""

    tensor: cin.Tensor
    indices: tuple[cin.IndexVar, ...]
    slots: dict[Values, int]

    def access(self, values: Values) -> cin.Access:
        return cin.Access(self.tensor, (self.slots[values], *self.indices))


@dataclass(frozen=True)
class _Reduction:
    """A step that sums over loops: what it sums over, and how its values are written and those of its children read."""

    step: Step
    summed: tuple[cin.IndexVar, ...]
    write: Write
    read: Read


def _written(
    product: Product, parts: Sequence[Part], around: cin.IndexVar | None, shared: bool
) -> tuple[cin.Stmt, bool]:
    """The statement of a product, inside the loop `around` all steps, and whether it assigns all of the result. Where coordinates of that loop share
    nothing of what is summed, a piece has the entries that meet one matrix: what is read once is read in the order in which it lies."""
    last = static_products.step_of(product, parts[0].steps)
    place = [product.fixed.index(v) for v in last.fixed if v in product.fixed]
    reached = len({tuple(entry[k] for k in place) for entry in product.entries})
    own = dict(zip(product.out.indices, product.out.tensor.shape, strict=True))
    whole = (around is None or around in product.out.indices) and math.prod(own[v] for v in last.fixed) == reached
    written = set[Values]() if whole else None
    writers = [
        _Writer(product.only(part.numbers), part.steps, around, "z" + number * "h", written, ROOM if shared else 0)
        for number, part in enumerate(parts)
    ]
    pieces = [(first, writer, piece) for writer in writers for first, piece in writer.pieces()]
    if not shared:  # in the order in which what is read once lies
        pieces.sort(key=lambda found: found[0])
    stmt = cin.sequence(writer.piece(piece) for _, writer, piece in pieces)
    return (stmt if around is None else cin.Forall(around, stmt)), whole


class _Writer:
    """The statements of a product in steps, inside the loop `around` all of them; `written` has the values of the result that were assigned already,
    if those that were not are to be."""

    def __init__(
        self,
        product: Product,
        way: static_products.Steps,
        around: cin.IndexVar | None,
        name: str,
        written: set[Values] | None,
        room: int,
    ) -> None:
        self.product, self.around, self.name, self.written, self.room = product, around, name, written, room
        self.last = static_products.step_of(product, way)
        self.lanes = _lanes(self.last, cin.followed(product.out.indices)[-1:], around)
        self.inner = list(static_products.inner_steps(self.last))

    def pieces(self) -> list[tuple[Values, Product]]:
        """The entries in pieces, for each of which all steps are run after the other, and the first coordinates of the operand by which they are cut."""
        place = [self.product.fixed.index(v) for v in (self._partition() if self.inner else ())]
        found = [(numbers, self.product.entries[numbers[0]]) for numbers in self._pieces()]
        return [(tuple(entry[k] for k in place), self.product.only(numbers)) for numbers, entry in found]

    # --------------------------------------------------------------------------------------------------------- pieces
    def _pieces(self) -> list[list[int]]:
        """The entries, by number, in pieces of which what is kept between steps fits into `ROOM`: those with the same coordinates of the operand
        that meets what is kept stay together."""
        count = len(self.product.entries)
        if not self.inner:
            return [list(range(count))]
        by = self._partition()
        place = [self.product.fixed.index(v) for v in by]
        groups: dict[Values, list[int]] = {}
        for number, entry in enumerate(self.product.entries):
            groups.setdefault(tuple(entry[k] for k in place), []).append(number)
        made: list[list[int]] = []
        for own in groups.values():
            if made and self._bytes([*made[-1], *own]) <= self.room:
                made[-1] += own
            else:
                made.append(list(own))
        return made

    def _partition(self) -> tuple[cin.IndexVar, ...]:
        """The fixed variables of the operand that is largest and lacks the loop around all steps."""
        outer = self.inner[0].loops
        found = [f for s in (*self.inner, self.last) for f in s.children if isinstance(f, Factor)]
        apart = [f for f in found if not any(v in outer and v.outer is not None for v in f.loops)]
        steps = [s for s in (*self.inner, self.last) if len(s.children) == 2 and not s.scaled]
        near = [f for s in steps for f in s.children if isinstance(f, Factor)]
        chosen = [f for f in near if f in apart] or near or found
        return max(chosen, key=lambda f: len(f.loops)).fixed

    def _bytes(self, numbers: Sequence[int]) -> float:
        part, total = self.product.only(numbers), 0.0
        for step in self.inner:
            slots = len(static_products.terms_of(part, step))
            room = math.prod(float(self.product.extents[v]) for v in step.loops if v != self.around)
            total += slots * room * self.product.dtype.itemsize
        return total

    def piece(self, part: Product) -> cin.Stmt:
        """All steps for some of the entries."""
        kept: dict[Step, _Kept] = {}
        made: list[cin.Stmt] = []
        for number, step in enumerate(self.inner):
            terms = static_products.terms_of(part, step)
            kept[step] = self._kept(number, step, terms)
            made.append(self.step(step, terms, kept))
        stmt = self.step(self.last, static_products.terms_of(part, self.last), kept)
        for producer in reversed(made):
            stmt = cin.Where(stmt, producer)
        return stmt

    def _kept(self, number: int, step: Step, terms: Mapping[Values, object]) -> _Kept:
        lane = self.lanes[step]
        own = [v for v in step.loops if v != self.around and v != lane]
        loops = (*own, *([lane] if lane is not None else []))
        shape = (self._slots[step], *(self.product.extents[v] for v in loops))
        dtype = self.product.dtype
        form = Format((Dense(),) * len(shape))
        name = self.name if len(self.inner) == 1 else f"{self.name}{number}"
        tensor = cin.Tensor(name, shape, dtype, form, dtype.type(0), "dense", form)
        return _Kept(tensor, loops, {values: k for k, values in enumerate(terms)})

    @cached_property
    def _slots(self) -> dict[Step, int]:
        """How many values every step keeps at once."""
        parts = [self.product.only(numbers) for numbers in self._pieces()]
        return {s: max(len(static_products.terms_of(p, s)) for p in parts) for s in self.inner}

    # ---------------------------------------------------------------------------------------------------------- steps
    def target(self, values: Values) -> cin.Access:
        """The result at some values of its fixed variables."""
        return _at(self.product.out, dict(zip(self.last.fixed, values, strict=True)))

    def step(self, step: Step, terms: Mapping[Values, list[Term]], kept: Mapping[Step, _Kept]) -> cin.Stmt:
        """One step for some of the entries."""

        def write(values: Values, rhs: cin.Expr) -> cin.Stmt:
            if step is not self.last:
                return cin.Assign(kept[step].access(values), None, rhs)
            first = self.written is not None and values not in self.written
            if self.written is not None:
                self.written.add(values)
            return cin.Assign(self.target(values), None if first else "add", rhs)

        def read(child: Factor | Step, values: Values) -> cin.Expr:
            if isinstance(child, Step):
                return kept[child].access(values)
            access = _at(child.access, dict(zip(child.fixed, values, strict=True)))
            return access if access.dtype == child.dtype else cin.Call("cast", (access,), child.dtype)

        summed = tuple(v for v in step.summed if v != self.around)
        if not summed:
            return self._loops(step, [write(v, self._sum(step, own, read)) for v, own in terms.items()])
        return self._reduced(_Reduction(step, summed, write, read), terms)

    def _sum(self, step: Step, terms: Sequence[Term], read: Read) -> cin.Expr:
        """A sum of products: what lacks the lanes is summed first, for each value of the rest."""
        lane, dtype = self.lanes[step], self.product.dtype
        wide = [k for k, c in enumerate(step.children) if lane is not None and lane in c.loops]
        narrow = [k for k in range(len(step.children)) if k not in wide]
        by: dict[tuple[Values, ...], list[cin.Expr]] = {}
        for term in terms:
            parts: list[cin.Expr] = [read(step.children[k], term.children[k]) for k in narrow]
            if term.coefficient is not None:
                parts.insert(0, simplify.literal(term.coefficient, dtype))
            inner = by.setdefault(tuple(term.children[k] for k in wide), [])
            inner += [_product(parts)] if parts else []
        made = []
        for values, inner in by.items():
            own = [read(step.children[k], v) for k, v in zip(wide, values, strict=True)]
            made.append(_product([*own, *([_sum(inner)] if inner else [])]))
        return _sum(made)

    def _loops(self, step: Step, stmts: Sequence[cin.Stmt]) -> cin.Stmt:
        """Statements inside the loops of a step, in lanes where that can be."""
        lane = self.lanes[step]
        order = [v for v in step.loops if v not in (self.around, lane)]
        body = cin.sequence(stmts)
        if lane is not None:
            tiled = all(vectorizable(cin.Forall(lane, w)) for w in cin.writes(body))
            body = cin.Forall(lane, body, "tile" if tiled else "serial")
        return cin.around(order, body)

    def _reduced(self, of: _Reduction, terms: Mapping[Values, list[Term]]) -> cin.Stmt:
        """Sums over loops, in registers: rows by lanes where something is read for several rows, else some that read the same."""
        step, lane = of.step, self.lanes[of.step]
        order = [v for v in step.loops if v not in (self.around, lane)]
        if lane is None:
            return cin.around(order, self._dots(of, terms))
        wide = [c for c in step.children if lane in c.loops]
        rows = [v for v in order if any(v not in c.loops for c in wide) and v not in of.summed]
        waiting = list(terms.items())
        count = 1 if rows else -(-len(waiting) // -(-len(waiting) // TOGETHER[host.has_masks()]))
        body = cin.sequence(self._registers(of, waiting[k : k + count]) for k in range(0, len(waiting), count))
        tiled = all(_lies_along(a, lane) for a in (*cin.accesses(body), *(w.lhs for w in cin.writes(body))))
        if not tiled:
            return cin.around([*order, lane], body)
        body = cin.Forall(lane, body, "tile")
        if rows:
            row = max(rows, key=lambda v: (v.outer is not None, self.product.extents[v]))
            return cin.around([v for v in order if v != row], cin.Forall(row, body, "tile"))
        return cin.around(order, body)

    def _registers(self, of: _Reduction, group: Sequence[tuple[Values, list[Term]]]) -> cin.Stmt:
        """Some sums in a register each."""
        step, dtype = of.step, self.product.dtype
        registers = [
            cin.Access(cin.Tensor(f"t{k}", (), dtype, Format(()), dtype.type(0), "scalar"), ())
            for k in range(len(group))
        ]
        together: dict[tuple[Values, ...], list[cin.Stmt]] = {}
        factors = [k for k, c in enumerate(step.children) if isinstance(c, Factor)]
        wide = [k for k in factors if self.lanes[step] in step.children[k].loops]
        shared = (wide or factors) if len(group) > 1 else None
        for register, (_, terms) in zip(registers, group, strict=True):
            for term in terms:
                rhs = self._sum(step, [term], of.read)
                key = term.children if shared is None else tuple(term.children[k] for k in shared)
                together.setdefault(key, []).append(cin.Assign(register, "add", rhs))
        loops = [cin.around(of.summed, cin.sequence(s)) for s in together.values()]
        consumer = cin.sequence(of.write(values, r) for r, (values, _) in zip(registers, group, strict=True))
        return _where(registers, consumer, cin.sequence(loops))

    def _dots(self, of: _Reduction, terms: Mapping[Values, list[Term]]) -> cin.Stmt:
        """Sums along what is read: in lanes that are added up."""
        dtype = self.product.dtype
        register = cin.Access(cin.Tensor("t", (), dtype, Format(()), dtype.type(0), "scalar"), ())
        made: list[cin.Stmt] = []
        for values, own in terms.items():
            loop = cin.Forall(of.summed[-1], cin.Assign(register, "add", self._sum(of.step, own, of.read)))
            loop = replace(loop, kind="vector") if vectorizable(loop) else loop
            made.append(cin.Where(of.write(values, register), cin.around(of.summed[:-1], loop)))
        return cin.sequence(made)


def _where(registers: Sequence[cin.Access], consumer: cin.Stmt, producer: cin.Stmt) -> cin.Stmt:
    """`consumer` after `producer`, which fills some registers: the last that it writes by itself, others start from 0."""
    last = producer.writes[-1].lhs
    made: cin.Stmt = cin.Where(consumer, producer)
    for register in registers:
        if register != last:
            made = cin.Where(made, cin.Assign(register, None, simplify.literal(0, register.dtype)))
    return made


def _at(access: cin.Access, bound: Mapping[cin.IndexVar, int]) -> cin.Access:
    """An access with values in place of fixed variables."""
    names: dict[cin.Index, cin.Index] = {var: value for var, value in bound.items()}  # noqa: C416  (wider types)
    return indices.renamed_access(access, names)


def _lies_along(access: cin.Access, lane: cin.IndexVar) -> bool:
    """Whether an access does not depend on the lanes, or is stored along them."""
    if lane not in access.indices:
        return True
    return access.level_index(len(access.indices) - 1) == lane and access.indices.count(lane) == 1


def _product(factors: Sequence[cin.Expr]) -> cin.Expr:
    return functools.reduce(lambda x, y: cin.Call("multiply", (x, y), x.dtype), factors)


def _sum(terms: Sequence[cin.Expr]) -> cin.Expr:
    """A sum, term by term; a long one as the sum of parts, of `RUN` terms each: expressions nest no deeper than passes follow."""
    if len(terms) > RUN:
        return _sum([_sum(terms[k : k + RUN]) for k in range(0, len(terms), RUN)])
    return functools.reduce(lambda x, y: cin.Call("add", (x, y), x.dtype), terms)
