"""What running a kernel takes: found out where it is planned (`kernel_planner`), or read from disk (`kept`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from sparsejax.core.avals import Aval
from sparsejax.formats import Format
from sparsejax.jit.backend import compiler
from sparsejax.jit.cost import collisions, lookups
from sparsejax.jit.graph.shared_patterns import Patterns
from sparsejax.jit.ir import cin
from sparsejax.jit.runtime import binding, plan_cache
from sparsejax.jit.schedule import replan

Observed = tuple[tuple[Any, ...], ...]
"""Positions per level of every input; the couplings of all joins of the kernel, if it has any; how near the rows lie that its index arrays name; its
points and collisions, if these can be known."""


@dataclass(frozen=True)
class Runnable:
    """What running a kernel takes besides its plans."""

    output: cin.Tensor
    """What it makes."""
    aval: Aval
    """The type of the result: in another format, it is converted last."""
    op: str | None
    """The operator by which a dense output accumulates (None: it is assigned)."""
    inputs: tuple[str, ...]
    """The names of what it reads."""
    shared: bool
    """Whether numbers are read at run time, so that the kernel serves other numbers too."""
    bounded: bool
    """Whether it serves many shapes."""
    mixed: bool
    """Whether a dense result is made of sparse operands, so that it may be out of proportion."""
    watched: tuple[tuple[int, str], ...]
    """Where storages of which inputs keep what the plan depends on."""
    alike: bool
    """Whether nothing is read but in the order in which it is stored, so that the plan depends on how many positions levels have, no more."""
    joins: Mapping[tuple[str, int, str, int], tuple[int, int, int, int]]
    """Where inputs meet: names and dimensions, with numbers in place of names."""
    lookups: Mapping[lookups.Key, lookups.Lookup]
    """Its index arrays of many entries."""
    meeting: collisions.Plan | None
    """How collisions are sampled, where a plan depends on them."""
    beside: tuple[tuple[int, int], ...]
    """Inputs that are values beside another, with the numbers of these."""
    patterns: Patterns | None
    """What of it can be computed by position."""


@dataclass(frozen=True)
class Planned:
    """A scheduled and compiled kernel."""

    binding: binding.Binding
    moves: tuple[tuple[int, Format], ...]
    """Inputs, by position, that are converted first, with their formats."""
    observed: Observed = ()
    account: replan.Account | None = None
    """Of a plan with remembered copies, where there is one."""
    over: tuple[int, ...] = ()
    """Inputs, by position, that the result may overwrite (`donation`)."""
    starts: tuple[int, ...] = ()
    """Inputs, by position, that are copied where they do not begin with a line (`line_starts`)."""
    recipe: plan_cache.Recipe | None = None
    """What it was made by, but for the text; None of a kernel for one of the shapes that another one serves."""

    @property
    def as_given(self) -> bool:
        """Whether the kernel reads the inputs themselves."""
        return not self.moves and not self.starts


def bound(
    compiled: compiler.Kernel,
    recipe: plan_cache.Recipe,
    kernel: Runnable,
    numbers: NDArray[Any] | None,
    observed: Observed,
) -> Planned:
    """A compiled `kernel`, ready to run, that reads these `numbers`."""
    made = binding.Binding(
        compiled, kernel.output, kernel.op, recipe.cut, recipe.expected, numbers, recipe.shared, recipe.whole
    )
    account = None if recipe.later is None else replan.Account(recipe.later)
    return Planned(made, recipe.moves, observed, account, recipe.over, recipe.starts, recipe)
