"""Independent parts: a body that accumulates several terms one by one needs one test per part, not a case per subset.

    forall j                               v = min over parts of the coordinate where they start
      where s: scalar                      while v < n:
        s += A[i,j]                          s = 0
        s += B[i,j] * C[i,j]                 if A is at v: s += A
        s += D[i,j]                          if B and C are at v: s += B * C
      then                                   if D is at v: s += D
        out[i,j] = s                         out[i, v] = s, if anything was added

Code and compile time are linear in the parts (`fission` makes them). Source: reference section 1.3, shape S5.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparsejax.jit.backend.builder import Val
from sparsejax.jit.codegen.loops.merge import Match, sentinel
from sparsejax.jit.codegen.loops.walker import Loop
from sparsejax.jit.ir.loop_plans import Leaders


def independent(loop: Loop, keys: Sequence[Leaders]) -> None:
    """Every coordinate where something may be left to do: the leaders of one of `keys` are there (the empty key: everywhere)."""
    b = loop.b

    def run(coordinate: Val, match: Match) -> None:
        found = {a: match.cursor(a)._replace(found=match.hit[a]) for a in match.hit}
        loop.visit(loop.body, coordinate, found)

    if frozenset() not in keys:
        sentinel(loop, keys, run)
        return
    for walker in loop.walkers.values():
        walker.start(b)
    with b.for_(loop.begin, loop.extent, loop.var.name) as coordinate:
        match = Match(b, loop.walkers, coordinate)
        run(coordinate, match)
        match.advance()
