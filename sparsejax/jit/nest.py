"""A kernel before it is scheduled: one output, and the reductions it reads.

    Nest(output, indices, producers, value)     out[indices] = value,   where value may read t[indices] for each
    Producer(target, op, rhs)                   target op= rhs          reduced over the variables of rhs not in the target

Example: `relu(A @ H)` is  out[i,j] = max(t[i,j], 0)  with  t[i,j] += A[i,k] * H[k,j]. A producer may read the targets of those before
it, and its target may lack variables of the output: exp(A) divided by its row sums is  out[i,j] = exp(A[i,j]) / s[i]  with
s[i] += exp(A[i,k]).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from sparsejax.jit import cin, operators


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
    indices: tuple[cin.IndexVar, ...]
    producers: tuple[Producer, ...]
    value: cin.Expr

    @functools.cached_property
    def direct(self) -> bool:
        """Whether the output is a reduction itself, with nothing applied to it."""
        return len(self.producers) == 1 and self.value == self.producers[0].target

    @property
    def op(self) -> str | None:
        """The operator that the output accumulates with; None where it is assigned."""
        last = self.producers[-1] if self.producers else None
        return last.op if last is not None and self.value == last.target else None

    @functools.cached_property
    def composite(self) -> cin.Expr:
        """The value with every reduction replaced by what it reduces."""
        made = self.value
        for p in reversed(self.producers):
            made = cin.substitute(made, {p.target: p.rhs})
        return made

    @functools.cached_property
    def nested(self) -> bool:
        """Whether it has statements over different variables, or that read each other's results (`placement`)."""
        own = set(self.indices)
        targets = {p.target for p in self.producers}
        return any(set(t.indices) != own for t in targets) or any(
            a in targets for p in self.producers for a in cin.accesses(p.rhs)
        )

    @functools.cached_property
    def inputs(self) -> tuple[cin.Tensor, ...]:
        """The tensors the kernel reads, in order of first use."""
        return tuple(dict.fromkeys(a.tensor for a in cin.accesses(self.composite)))

    @functools.cached_property
    def variables(self) -> tuple[cin.IndexVar, ...]:
        """All index variables, those of the output first."""
        return tuple(dict.fromkeys((*self.indices, *cin.variables(self.composite))))

    @functools.cached_property
    def storage_indices(self) -> tuple[cin.IndexVar, ...]:
        """The output's variables in the order of its storage levels."""
        return tuple(self.indices[d] for d in self.output.format.order)


def outside(nest: Nest) -> dict[cin.IndexVar, frozenset[cin.IndexVar]]:
    """The variables in whose loops the loop over each variable that runs inside blocks must lie.

    Its own outer one; and those of other dimensions, so that blocks are visited whole, unless some tensor stores these below.
    """
    accesses = (cin.Access(nest.output, nest.indices), *cin.accesses(nest.composite))
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
    indices = tuple(ix for ix in definition.indices if isinstance(ix, cin.IndexVar))
    if definition.op is None:
        return Nest(output, indices, (), definition.rhs)
    identity = operators.get(definition.op).identity(output.dtype)
    temporary = cin.Tensor(f"{output.name}_t", output.shape, output.dtype, output.format, identity)
    target = cin.Access(temporary, indices)
    return Nest(output, indices, (Producer(target, definition.op, definition.rhs),), target)
