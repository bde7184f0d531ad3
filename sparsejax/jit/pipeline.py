"""The compiler, top to bottom: every pass in the order in which it runs.

    a jaxpr       JAXPR_PASSES        what is computed: dead code, common subexpressions, patterns       once per jaxpr
                  reassociate         products of three operands, in the cheaper order                   "
                  fuse                kernels and library calls                                          "
                  STEP_PASSES         sums over fills apart, storage of values between kernels, merging  "
    a kernel      schedule            loop order, conversions, workspaces, from observed facts           once per kernel and bucket of facts
                  NEST_PASSES         formats that kernels read, blocks as dimensions, blocks of rows    "
                  concretize          loops, `where`, policies of workspaces                             "
                  STATEMENT_PASSES    named rewrites of the statement                                    "
                  iteration           who leads every loop, its cases and its shape                      "
                  lower               LLVM text through the builder                                      "
    text          compile             machine code (`backend/compiler`)                                  once per text
    a call        bind, call          slots, memory, one call (`runtime`)                                every time

Each pass is a file that opens with what it makes of an example, and is entered where it applies. `jit(f).lower(*args).as_text(stage)` shows what
became of a function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sparsejax import config
from sparsejax.core.jaxpr import Jaxpr, Var
from sparsejax.errors import ScheduleError
from sparsejax.formats.storage import Storage
from sparsejax.jit.backend.llvm import LLVMBuilder
from sparsejax.jit.codegen import lower
from sparsejax.jit.codegen.constants import Numbers
from sparsejax.jit.cost import statistics
from sparsejax.jit.cost.statistics import Facts
from sparsejax.jit.graph import (
    dense_rows,
    fuse,
    fuse_reductions,
    intermediate_storage,
    pattern_sources,
    reassociate,
    split_fills,
    static_constants,
    turned_results,
)
from sparsejax.jit.graph.partition import Step
from sparsejax.jit.ir import blocks, choices, cin, simplify
from sparsejax.jit.ir.nest import Nest
from sparsejax.jit.ir.program import Program
from sparsejax.jit.rewrite import (
    assigned_once,
    concretize,
    contract_arrays,
    fission,
    in_place,
    iteration,
    legalize,
    pack,
    parallelize,
    scatter_operands,
    stores,
    straight_line,
    tile,
    vectorize,
)
from sparsejax.jit.schedule import column_panels, decide, models, replan, row_blocking, row_panels, search, static_cost
from sparsejax.jit.schedule.schedules import Schedule

Observed = Mapping[Var, Storage]
"""What the operands of a first call hold."""

# ------------------------------------------------------------------------------------------------------------ a jaxpr, to steps

JAXPR_PASSES: tuple[Callable[[Jaxpr], Jaxpr], ...] = (pattern_sources.clean,)
STEP_PASSES: dict[str, tuple[Callable[[list[Step], Jaxpr, Observed], list[Step]], int]] = {
    "split_fills": (split_fills.apart, 1),
    "intermediate_storage": (intermediate_storage.stored, 2),
    "fuse_reductions": (fuse_reductions.merged, 2),
    "dense_rows": (dense_rows.summed, 1),
    "turned_results": (turned_results.turned, 1),
}
"""What is made of the steps of a program that has at least so many."""


def cleaned(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr without what nobody needs."""
    for run in JAXPR_PASSES:
        jaxpr = run(jaxpr)
    return jaxpr


def steps_of(
    jaxpr: Jaxpr,
    observed: Observed,
    refused: frozenset[Var] | None = frozenset(),
    constants: Mapping[Var, Storage] | None = None,
) -> tuple[list[Step], list[reassociate.Chosen]]:
    """The kernels and library calls of a jaxpr that is `cleaned`, and what was decided of its products. Those that are `refused` are
    associated as the program says, or all of them (None). `constants` are those of its operands that never change."""
    with choices.drawing(jaxpr), models.remembering():
        as_written = refused is None or len(jaxpr.eqns) < 2 or not choices.does("reassociate")
        jaxpr, notes = (jaxpr, []) if as_written else reassociate.cheapest(jaxpr, observed, refused or frozenset())
        steps = fuse.fuse(jaxpr, static_constants.Constants.of(constants) if constants else None)
        for name, (run, least) in STEP_PASSES.items():
            steps = run(steps, jaxpr, observed) if len(steps) >= least and choices.does(name) else steps
        for note in notes:
            steps = note.noted(steps)
        return steps, notes


# ---------------------------------------------------------------------------------------------------- a kernel, to a program


def static_schedule(nest: Nest) -> Schedule | None:
    """The schedule of a product with a constant, for whose entries code is written out; None of another kernel."""
    return static_cost.schedule(nest) if nest.has_constant else None


def schedule_of(nest: Nest, known: Facts, order: replan.Order = ()) -> Schedule:
    """The loop order, conversions and workspaces of a kernel; or those of one `order` that was chosen before."""
    with choices.drawing("schedule", nest):
        if order:
            found: Schedule | None = replan.schedule(nest, known, order, config.workspace())
        else:
            found = decide.schedule(nest, known, config.workspace())
            found = found and row_panels.chosen(nest, known, found, _in_panels)
            found = found and column_panels.chosen(nest, known, found)
    if found is None:
        raise ScheduleError(f"no loop order can run {nest.value} as one kernel")
    return found


def _in_panels(nest: Nest, known: Facts) -> Schedule | None:
    """The cheapest schedule of a nest with an operand in panels: what else is chosen, is chosen of the other one."""
    with choices.pricing():
        return decide.schedule(nest, known)


@dataclass(frozen=True)
class Pass:
    """One named rewrite of a program under its schedule, and where it may change anything."""

    name: str
    run: Callable[[Program, Schedule], Program]
    applies: Callable[[Program, Schedule], bool] = lambda program, schedule: True


STATEMENT_PASSES = (
    Pass(
        "scatter_operands",
        lambda p, s: _rewritten(p, lambda stmt: scatter_operands.scattered(stmt, s.scattered)),
        lambda p, s: bool(s.scattered),
    ),
    Pass("exhaust", lambda p, s: _rewritten(p, lambda stmt: simplify.exhaust_stmt(stmt, ()))),
    Pass("fission", lambda p, s: _rewritten(p, fission.split)),
    Pass("pack", lambda p, s: pack.packed(p), lambda p, s: s.columns is not None),
    Pass("vectorize", lambda p, s: _rewritten(p, vectorize.mark_vectors)),
    Pass("tile", lambda p, s: _rewritten(p, tile.tile)),
    Pass("contract_arrays", lambda p, s: _rewritten(p, contract_arrays.forwarded), lambda p, s: _keeps(p, "dense")),
    Pass("assigned_once", lambda p, s: assigned_once.noted(p), lambda p, s: p.output.format.full),
    Pass("stores", lambda p, s: stores.noted(p), lambda p, s: p.whole),
    Pass("in_place", lambda p, s: in_place.settled(p), lambda p, s: not p.output.format.is_dense),
)


def _keeps(program: Program, policy: str) -> bool:
    """Whether a program fills a workspace of a policy."""
    return program.stmt is not None and any(w.lhs.tensor.policy == policy for w in cin.writes(program.stmt))


def _rewritten(program: Program, change: Callable[[cin.Stmt], cin.Stmt | None]) -> Program:
    return program if program.stmt is None else replace(program, stmt=change(program.stmt))


def rewritten(program: Program, schedule: Schedule, passes: Sequence[Pass] = STATEMENT_PASSES) -> Program:
    """A program after the named rewrites of its statement."""
    for each in passes:
        program = (
            each.run(program, schedule) if each.applies(program, schedule) and choices.does(each.name) else program
        )
    return program


def program_of(nest: Nest, schedule: Schedule, known: Facts | None = None) -> Program:
    """The program of `nest` under a schedule of what it splits into; its inputs have the formats that the kernel reads. Loops are cut into
    chunks and blocks by what is `known` of the inputs, if anything is."""
    with choices.drawing("program", nest):
        return iteration.planned(_program_of(nest, schedule, known))


def _program_of(nest: Nest, schedule: Schedule, known: Facts | None) -> Program:
    written_out = straight_line.program(nest) if nest.has_constant else None
    if written_out is not None:
        return parallelize.parallelize(written_out, schedule.cost) if choices.does("parallelize") else written_out
    split, known = row_panels.read(blocks.split(nest), known, schedule.panels)
    nest = row_panels.with_panels(nest, schedule.panels)
    made, cut = prepared(nest, schedule)
    program = rewritten(concretize.concretize(made, cut), cut)
    if known is None:
        return program
    moved = dict(schedule.conversions)
    now = row_blocking.levels(split.inputs, program.inputs)
    lengths, taken = statistics.lengths(split.inputs, known, moved), statistics.blocks(split.inputs, known, moved)
    program = replace(
        program, lengths={now[x]: n for x, n in lengths.items()}, blocks={now[x]: n for x, n in taken.items()}
    )
    if not choices.does("parallelize"):
        return program
    return parallelize.parallelize(program, schedule.cost, lambda: search.level_counts(split, known)[-1])


def in_order(nest: Nest, schedule: Schedule) -> Program:
    """The program of a nest without blocks as it is, under a schedule; its result is put together by appending."""
    return rewritten(concretize.concretize(nest, schedule), schedule, STATEMENT_PASSES[:-1])


def prepared(nest: Nest, schedule: Schedule) -> tuple[Nest, Schedule]:
    """`nest` as the kernel reads it: converted, without blocks, and in blocks of rows where these pay; with its schedule."""
    reading = readable(blocks.with_formats(nest, dict(schedule.conversions)), schedule)
    split = blocks.split(reading)
    if schedule.columns is not None:
        return column_panels.cut(split, schedule)
    return row_blocking.cut(split, schedule) if choices.does("row_blocking") else (split, schedule)


def readable(nest: Nest, schedule: Schedule) -> Nest:
    """`nest` with its inputs in the formats that its kernel reads (`legalize`), under a schedule of what it splits into."""

    def walked(made: Nest) -> cin.Tensor | None:
        with choices.pricing():
            program = iteration.planned(in_order(blocks.split(made), schedule))
        return None if program.loops is None else program.loops.unordered

    return legalize.readable(nest, walked)


def text_of(program: Program, constants: Numbers | None = None) -> str:
    """The LLVM text of a program; numbers are read from `constants` at run time, if these are given."""
    return lower.lower(program, LLVMBuilder(), constants)
