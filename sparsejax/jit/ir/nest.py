"""A kernel before it is scheduled: one output, and the reductions it reads.

    Nest(output, indices, producers, value)     out[indices] = value,   where value may read t[indices] for each
    Producer(target, op, rhs)                   target op= rhs          reduced over the variables of rhs not in the target

Example: `relu(A @ H)` is  out[i,j] = max(t[i,j], 0)  with  t[i,j] += A[i,k] * H[k,j]. A producer may read the targets of those before
it, and its target may lack variables of the output: exp(A) divided by its row sums is  out[i,j] = exp(A[i,j]) / s[i]  with
s[i] += exp(A[i,k]).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sparsejax.cached import cached_property
from sparsejax.formats import Format
from sparsejax.jit.ir import cin, features, operators
from sparsejax.jit.ir.bounded import Bounded

COMPOSED = 256
"""Nodes up to which a kernel of several statements is also seen as one expression."""


@dataclass(frozen=True)
class Producer:
    """What is computed inside the kernel before the value: `target op= rhs` (op None: every entry is assigned once)."""

    target: cin.Access
    op: str | None
    rhs: cin.Expr

    def moved(self, move: Callable[[cin.Expr], cin.Expr]) -> Producer:
        """The same with both sides changed."""
        target = move(self.target)
        assert isinstance(target, cin.Access)
        return Producer(target, self.op, move(self.rhs))


@dataclass(frozen=True)
class Nest:
    """One kernel: `output[indices] = value`, reading inputs and the targets of `producers`."""

    output: cin.Tensor
    indices: tuple[cin.Index, ...]
    producers: tuple[Producer, ...]
    value: cin.Expr

    def changed(self, change: Callable[[cin.Expr], cin.Expr]) -> Nest:
        """The same with everything that it reads, and every result and its place, changed; of the output, only the indices."""
        out = change(cin.Access(self.output, self.indices))
        assert isinstance(out, cin.Access)
        return Nest(self.output, out.indices, tuple(p.moved(change) for p in self.producers), change(self.value))

    def substituted(self, known: dict[cin.Access, cin.Expr]) -> Nest:
        """The same with expressions in place of accesses."""
        return self.changed(lambda expr: cin.substitute(expr, known))

    def in_formats(self, formats: Mapping[cin.Access, Format]) -> Nest:
        """The same where some accesses read their tensors in other formats."""
        return self.substituted({a: cin.Access(a.tensor._replace(format=f), a.indices) for a, f in formats.items()})

    def over(self, indices: Sequence[cin.Index]) -> Nest:
        """The same over other indices: what an access with these reads."""
        names: dict[cin.Index, cin.Index] = dict(zip(self.indices, indices, strict=True))
        return self.changed(lambda expr: cin.rename(expr, names))

    def inlined(self, known: Mapping[cin.Access, Nest]) -> Nest:
        """The same with what other nests compute in place of accesses; each of their producers runs once, before its own."""
        first = {p.target: p for nest in known.values() for p in nest.producers}
        values = {access: nest.value for access, nest in known.items()}
        own = [Producer(p.target, p.op, cin.substitute(p.rhs, values)) for p in self.producers]
        return Nest(self.output, self.indices, (*first.values(), *own), cin.substitute(self.value, values))

    def respelled(
        self, inputs: dict[cin.Access, cin.Expr], targets: Sequence[str], variables: dict[cin.Index, cin.Index]
    ) -> Nest:
        """The same with other accesses of inputs, and other names for the results of producers and for variables."""
        made = {}
        for p, name in zip(self.producers, targets, strict=True):
            access = cin.moved_access(p.target, inputs)
            made[p.target.tensor.name] = cin.Access(access.tensor._replace(name=name), access.indices)
        return self.changed(lambda e: cin.rename(cin.replaced(cin.substitute(e, inputs), made), variables))

    @cached_property
    def direct(self) -> bool:
        """Whether the output is a reduction itself, with nothing applied to it."""
        return len(self.producers) == 1 and self._is_last

    @property
    def op(self) -> str | None:
        """The operator that the output accumulates with; None where it is assigned, as where a reduction is broadcast."""
        return self.producers[-1].op if self._is_last else None

    @cached_property
    def _is_last(self) -> bool:
        """Whether the output is what the last producer makes, in all of its dimensions but those of extent one, which kernels do not know (`units`)."""
        if not self.producers or self.value != self.producers[-1].target:
            return False
        known = set(self.producers[-1].target.indices)
        return all(v in known or n == 1 for v, n in zip(self.indices, self.output.shape, strict=True))

    @cached_property
    def targets(self) -> frozenset[str]:
        """The names of what producers make. Readers may see it over another fill."""
        return frozenset(p.target.tensor.name for p in self.producers)

    @cached_property
    def composite(self) -> cin.Expr:
        """The value with every reduction replaced by what it reduces."""
        made = self.value
        for p in reversed(self.producers):
            made = cin.substitute(made, {a: p.rhs for a in cin.accesses(made) if a.tensor.name == p.target.tensor.name})
        return made

    @cached_property
    def reads(self) -> tuple[cin.Access, ...]:
        """The accesses of inputs, in order of first use: those of `composite`, which is not made for it; then those of arrays that hold
        coordinates of results."""
        found: dict[cin.Access, None] = {}
        unseen = {p.target.tensor.name: p.rhs for p in self.producers}

        def look(expr: cin.Expr) -> None:
            for access in cin.accesses(expr):
                if access.tensor.name in unseen:
                    look(unseen.pop(access.tensor.name))
                elif access.tensor.name not in self.targets:
                    found[access] = None

        look(self.value)
        for written in (*(p.target for p in self.producers), cin.Access(self.output, self.indices)):
            found |= dict.fromkeys(written.entries)
        return tuple(found)

    @property
    def expressions(self) -> tuple[cin.Expr, ...]:
        """What its statements compute: every producer's, then the value."""
        return (*(p.rhs for p in self.producers), self.value)

    @cached_property
    def asked(self) -> frozenset[str]:
        """The names of the tensors of which it must find arrays (`patterns`)."""
        return frozenset(a.tensor.name for e in self.expressions for a in patterns(e))

    @cached_property
    def wholes(self) -> tuple[cin.Expr, ...]:
        """What it computes as expressions of inputs: `composite`, or where that is large (what is read twice is in it twice) the
        statements, which read targets."""
        sizes: dict[str, int] = {}
        for p in self.producers:
            sizes[p.target.tensor.name] = _size(p.rhs, sizes)
        return (self.composite,) if _size(self.value, sizes) <= COMPOSED else self.expressions

    @cached_property
    def nested(self) -> bool:
        """Whether it has statements over different variables, or that read each other's results (`placement`)."""
        own = set(self.storage_indices)
        return any(set(cin.bound_by(p.target)) != own for p in self.producers) or any(
            a.tensor.name in self.targets for p in self.producers for a in cin.accesses(p.rhs)
        )

    @cached_property
    def inputs(self) -> tuple[cin.Tensor, ...]:
        """The tensors the kernel reads, in order of first use."""
        return tuple(dict.fromkeys(a.tensor for a in self.reads))

    @cached_property
    def blocked(self) -> bool:
        """Whether a tensor is in blocks: one that is read or written, or a result between its statements."""
        tensors = (self.output, *self.inputs, *(p.target.tensor for p in self.producers))
        return any(t.format.blocked for t in tensors)

    @property
    def has_constant(self) -> bool:
        """Whether it reads an array whose entries are known (`static_products`)."""
        return any(t.constant is not None for t in self.inputs)

    @cached_property
    def apart(self) -> dict[tuple[int, frozenset[str]], Nest]:
        """Its statements as kernels of their own (`schedule.placement`), as far as anyone asked."""
        return {}

    @cached_property
    def features(self) -> features.Features:
        """What it has, by which passes say where they apply."""
        out = cin.Access(self.output, self.indices)
        return features.of(
            out, self.reads, [*((p.target, p.op, p.rhs) for p in self.producers), (out, None, self.value)]
        )

    @cached_property
    def bounded(self) -> bool:
        """Whether it serves many shapes: of some extents it knows a bound alone."""
        return any(isinstance(n, Bounded) for t in (self.output, *self.inputs) for n in t.shape)

    @cached_property
    def variables(self) -> tuple[cin.IndexVar, ...]:
        """All index variables, those of the output first."""
        found = (*self.indices, *(ix for a in self.reads for ix in a.indices))
        return tuple(dict.fromkeys(cin.followed(found)))

    @cached_property
    def storage_indices(self) -> tuple[cin.IndexVar, ...]:
        """The output's variables in the order of its storage levels; those of the array that it is beside."""
        return cin.bound_by(cin.Access(self.output, tuple(self.indices[d] for d in self.output.format.order)))


def patterns(expr: cin.Expr) -> Iterator[cin.Access]:
    """The accesses of which `expr` asks whether they are stored, or that say where another is: these must be arrays, not expressions."""
    if isinstance(expr, cin.Access):
        yield from expr.others
    elif isinstance(expr, cin.Call):
        for arg in expr.args:
            if expr.op == "stored" and isinstance(arg, cin.Access):
                yield arg
            else:
                yield from patterns(arg)


def _size(expr: cin.Expr, targets: Mapping[str, int]) -> int:
    """The nodes of an expression with as many in place of every target."""
    if isinstance(expr, cin.Call):
        return 1 + sum(_size(a, targets) for a in expr.args)
    return targets.get(expr.tensor.name, 1) if isinstance(expr, cin.Access) else 1


def outside(nest: Nest) -> dict[cin.IndexVar, frozenset[cin.IndexVar]]:
    """The variables in whose loops the loop over each variable that runs inside blocks must lie.

    Its own outer one; and those of other dimensions, so that blocks are visited whole, unless some tensor stores these below.
    """
    accesses = (cin.Access(nest.output, nest.indices), *nest.reads)
    orders = [[a.level_index(level) for level in range(len(a.indices))] for a in dict.fromkeys(accesses)]
    blocks = {v.outer for v in nest.variables if v.outer is not None}
    return {
        v: frozenset({v.outer})
        | frozenset(u for u in blocks if not any(v in order and u in order[order.index(v) :] for order in orders))
        for v in nest.variables
        if v.outer is not None
    }


def of_definition(output: cin.Tensor, definition: cin.Definition) -> Nest:
    """The kernel of a single definition."""
    indices = definition.indices
    if definition.op is None:
        return Nest(output, indices, (), definition.rhs)
    identity = operators.get(definition.op).identity(output.dtype)
    temporary = cin.Tensor(f"{output.name}_t", output.shape, output.dtype, output.format, identity)
    target = cin.Access(temporary, indices)
    return Nest(output, indices, (Producer(target, definition.op, definition.rhs),), target)


def orders(nest: Nest, prefix: tuple[cin.IndexVar, ...] = ()) -> Iterator[tuple[cin.IndexVar, ...]]:
    """All loop orders that begin with `prefix` and in which no loop is outside of the blocks that it runs in. O(v! v)."""
    around = outside(nest)
    rest = [v for v in nest.variables if v not in prefix]
    for order in itertools.permutations(rest):
        made = (*prefix, *order)
        if all(around.get(v, frozenset()) <= set(made[:k]) for k, v in enumerate(made)):
            yield made


def storage_orders(
    nest: Nest, around: Mapping[cin.IndexVar, Collection[cin.IndexVar]]
) -> list[tuple[cin.IndexVar, ...]]:
    """The loop orders that follow one tensor's storage, and then the others': always among the candidates of a narrow search."""
    accesses = [*nest.reads, cin.Access(nest.output, nest.indices)]
    chains = [[a.level_index(lv) for lv in range(len(a.indices))] for a in accesses]
    made = []
    for first in chains:
        found = dict.fromkeys(v for chain in (first, *chains) for v in cin.followed(chain))
        order = tuple(found)
        if len(order) == len(nest.variables) and all(
            set(around.get(v, ())) <= set(order[:k]) for k, v in enumerate(order)
        ):
            made.append(order)
    return list(dict.fromkeys(made))
