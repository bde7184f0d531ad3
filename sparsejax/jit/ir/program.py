"""What scheduling hands to code generation: a statement, with everything that lowering must know of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sparsejax.formats import Format
from sparsejax.jit.ir import cin
from sparsejax.jit.ir.loop_plans import LoopPlans


def ordered(inputs: Iterable[cin.Tensor], given: Iterable[cin.Tensor]) -> tuple[cin.Tensor, ...]:
    """The inputs of what a kernel has become in the order in which its operands are `given`: as first used, they may stand in another one, since a
    tensor in blocks has its dimensions in the order of its levels (`blocks`), and its index arrays with them."""
    places = {t.name: k for k, t in enumerate(given)}
    return tuple(sorted(inputs, key=lambda t: places[t.name]))


def heads(tensor: cin.Tensor) -> tuple[int, ...]:
    """The sparse levels that start a segment: every compressed level, and the first of each coordinate run."""
    form = tensor.format
    return tuple(
        level for level in range(len(form.levels)) if not form.levels[level].full and not form.continues(level)
    )


@dataclass(frozen=True)
class Chunking:
    """How many chunks a kernel is cut into (0: it is not), what each computes apart to be combined by more calls (nothing, a
    "scalar", or a dense "output"), how many nanoseconds are expected in all, and why. Where the plan serves many shapes, `along` is the tensor
    and dimension with the extent that is cut, `each` the nanoseconds of one coordinate: calls of less than `least` run whole.
    """

    count: int = 0
    partial: str = ""
    work: float = 0.0
    reason: str = ""
    along: tuple[str, int] | None = None
    each: float = 0.0
    least: float = 0.0

    def __str__(self) -> str:
        return f"{self.count} chunks, {self.reason}" if self.count else f"one thread: {self.reason}"


@dataclass(frozen=True)
class Given:
    """The operand whose level `level` gives the output's last sparse level its positions; `whole` where every value of a block is
    assigned, so that none must be cleared."""

    access: cin.Access
    level: int
    whole: bool


@dataclass(frozen=True)
class Shared:
    """The same for who calls the kernel: the number of the input, the level, and which of its buffers are the output's own: `pos`,
    and `crd` from the level `first` on."""

    input: int
    level: int
    pos: bool
    first: int

    @staticmethod
    def of(given: Given, inputs: tuple[cin.Tensor, ...], output: cin.Tensor) -> Shared:
        """What the output of a kernel shares."""
        names, form = [t.name for t in inputs], given.access.tensor.format
        own, head = _head(form, given.level), heads(output)[0]
        pos = own == head and all(level.full for level in form.levels[:own])
        return Shared(names.index(given.access.tensor.name), given.level, pos, max(own, head))


def _head(form: Format, level: int) -> int:
    """The level that starts the run of `level`."""
    while form.continues(level):
        level -= 1
    return level


@dataclass(frozen=True)
class Program:
    """A concrete statement with its parameters."""

    stmt: cin.Stmt | None
    inputs: tuple[cin.Tensor, ...]
    output: cin.Tensor
    extents: Mapping[cin.IndexVar, tuple[str, int]]
    """Where the extent of each variable is found: a tensor's name and a dimension."""
    chunking: Chunking = field(default_factory=Chunking)
    """How the loop that is marked parallel is cut."""
    given: Given | None = None
    """The operand whose positions are the output's."""
    lengths: Mapping[tuple[str, int], float] = field(default_factory=dict)
    """How many entries segments of levels of inputs are expected to hold on average, where that is known."""
    blocks: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """Levels of inputs that are expected to hold many entries in segments of moderate length: how many of these make a block (`row_blocks`)."""
    many: frozenset[tuple[str, int]] = frozenset()
    """Levels of inputs that are expected to hold more entries than the processor remembers the lengths of segments of."""

    whole: bool = False
    """Whether every element of a dense output is assigned, whatever it held before: nobody has to clear it."""
    past: bool = False
    """Whether strips store such a result past the caches (`rewrite/stores`)."""
    single: tuple[str, ...] = ()
    """Workspaces all of whose entries are one constant, which is not stored (`rewrite/single_valued`), by name."""
    drained: tuple[str, ...] = ()
    """Workspaces whose masks are tested where they are drained (`rewrite/drained_masks`), by name."""
    resting: tuple[str, ...] = ()
    """The workspace that lies where the result will (`rewrite/over_result`), by name, if there is one."""
    literal: bool = False
    """Whether extents stand in the code, where they are known: it is long, and of use for these alone."""

    loops: LoopPlans | None = None
    """How every loop runs (`rewrite/iteration`), once all rewrites are done."""

    def __str__(self) -> str:
        """The statement, with how every loop of it runs."""
        if self.stmt is None:
            return ""
        text = cin.as_text(self.stmt) if self.loops is None else cin.as_text(self.stmt, 0, self.loops.note)
        said = [f"\n# {name}: all entries are one constant" for name in self.single]
        said += [f"\n# {name}: its mask is tested where it is drained" for name in self.drained]
        said += [f"\n# {name}: where {self.output.name} will be" for name in self.resting]
        said += [f"\n# {self.output.name}: stored past the caches"] if self.past else []
        return text + "".join(said)

    def extent(self, var: cin.IndexVar) -> int:
        """The extent of a variable, as the types of the program say."""
        name, dimension = self.extents[var]
        return next(t for t in (*self.inputs, self.output) if t.name == name).shape[dimension]

    @property
    def shared(self) -> Shared | None:
        """What the output shares with an operand: for who calls the kernel."""
        return None if self.given is None else Shared.of(self.given, self.inputs, self.output)
