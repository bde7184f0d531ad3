"""The compiler, top to bottom: every pass in the order in which it runs.

    a jaxpr       JAXPR_PASSES        what is computed: dead code, common subexpressions, patterns       once per jaxpr
                  inner_sums          operands summed before they are multiplied, where that is cheaper  "
                  reassociate         products of three operands, in the cheaper order                   "
                  shared_products     what several products can begin with, once                         "
                  thinned_products    entries dropped as they are made                                   "
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

Each pass is a file that opens with what it makes of an example, and is entered where the condition that stands beside it here holds, on what the
kernel has (`ir/features`): found once per kernel. `jit(f).lower(*args).as_text(stage)` shows what
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
    inner_sums,
    intermediate_storage,
    one_sum,
    padded_sums,
    reassociate,
    scatter_order,
    shared_products,
    split_fills,
    static_constants,
    thinned_products,
    turned_results,
)
from sparsejax.jit.graph.between import recomputed, stored_factors
from sparsejax.jit.graph.partition import KernelStep, Step
from sparsejax.jit.graph.patterns import broadcast_factors, implied_masks, returned_sums, sampled_products, witnesses
from sparsejax.jit.ir import blocks, choices, cin, policies, simplify
from sparsejax.jit.ir.features import Features
from sparsejax.jit.ir.nest import Nest
from sparsejax.jit.ir.program import Program, ordered
from sparsejax.jit.rewrite import (
    assigned_once,
    concretize,
    contract_arrays,
    drained_masks,
    fission,
    in_place,
    iteration,
    legalize,
    over_result,
    pack,
    parallelize,
    scatter_operands,
    single_valued,
    stores,
    straight_line,
    tile,
    vectorize,
)
from sparsejax.jit.schedule import column_panels, decide, models, replan, row_blocking, row_panels, search, static_cost
from sparsejax.jit.schedule.schedules import Schedule
from sparsejax.transforms import staging

Observed = Mapping[Var, Storage]
"""What the operands of a first call hold."""

# ------------------------------------------------------------------------------------------------------------ a jaxpr, to steps

JAXPR_PASSES: tuple[tuple[Callable[[Jaxpr], Jaxpr], int], ...] = (
    (staging.clean, 0),
    (witnesses.asked, 2),
    (broadcast_factors.read, 2),
    (implied_masks.left_out, 2),
    (sampled_products.masked, 3),
    (returned_sums.returned, 3),
    (padded_sums.merged, 3),
    (staging.dead_code, 2),
)
"""What is made of a jaxpr that has at least so many equations."""


JAXPR_CHOICES = {
    "inner_sums": inner_sums.cheapest,
    "reassociate": reassociate.cheapest,
    "shared_products": shared_products.shared,
    "thinned_products": thinned_products.merged,
}
"""What is made of a jaxpr, given what operands of a first call hold and the results that are not to be changed; with what was decided."""


@dataclass(frozen=True)
class StepPass:
    """What is made of the steps of a program that has at least so many, where some kernel has what is `wanted`."""

    run: Callable[[list[Step], Jaxpr, Observed], list[Step]]
    least: int = 1
    wanted: Callable[[Features], bool] = lambda f: True

    def applies(self, steps: Sequence[Step]) -> bool:
        """Whether there is something to do."""
        return len(steps) >= self.least and choices.applies(
            any(self.wanted(s.nest.features) for s in steps if isinstance(s, KernelStep))
        )


STEP_PASSES = {
    "split_fills": StepPass(split_fills.apart, wanted=lambda f: f.reduced and f.fills),
    "intermediate_storage": StepPass(intermediate_storage.stored, 2),
    "fuse_reductions": StepPass(fuse_reductions.merged, 2),
    "recomputed": StepPass(recomputed.moved, 3),
    "stored_factors": StepPass(stored_factors.stored, wanted=lambda f: f.sparse > 0 and f.loops > 1),
    "one_sum": StepPass(one_sum.merged, wanted=lambda f: f.sparse > 0 and f.rank > 2),
    "dense_rows": StepPass(dense_rows.summed, wanted=lambda f: f.sparse_result and f.rank > 2),
    "scatter_order": StepPass(
        scatter_order.ordered, 2, wanted=lambda f: not f.sparse_result and f.sparse > 0 and f.rank > 1
    ),
    "turned_results": StepPass(
        turned_results.turned, wanted=lambda f: not f.sparse_result and f.sparse > 0 and f.rank > 1
    ),
}


def cleaned(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr without what nobody needs."""
    for run, least in JAXPR_PASSES:
        jaxpr = run(jaxpr) if len(jaxpr.eqns) >= least else jaxpr
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
        notes: list[reassociate.Chosen] = []
        for name, chosen in JAXPR_CHOICES.items():
            if refused is not None and len(jaxpr.eqns) > 1 and choices.does(name):
                jaxpr, made = chosen(jaxpr, observed, refused)
                notes += made
        steps = fuse.fuse(jaxpr, static_constants.Constants.of(constants) if constants else None)
        for name, each in STEP_PASSES.items():
            steps = each.run(steps, jaxpr, observed) if each.applies(steps) and choices.does(name) else steps
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
            if found is not None and choices.applies(nest.features.rank > 2):
                found = row_panels.chosen(nest, known, found, _in_panels)
            if found is not None and choices.applies(nest.features.loops > 2 and not nest.features.sparse_result):
                found = column_panels.chosen(nest, known, found)
    if found is None:
        raise ScheduleError(f"no loop order can run {nest.value} as one kernel")
    return found


def _in_panels(nest: Nest, known: Facts) -> Schedule | None:
    """The cheapest schedule of a nest with an operand in panels: what else is chosen, is chosen of the other one."""
    with choices.pricing():
        return decide.schedule(nest, known)


@dataclass(frozen=True)
class Pass:
    """One named rewrite of a program under its schedule, and where it may change anything: of kernels that have what is `wanted`, those to which it
    `applies`."""

    name: str
    run: Callable[[Program, Schedule], Program]
    applies: Callable[[Program, Schedule], bool] = lambda program, schedule: True
    wanted: Callable[[Features, Schedule], bool] = lambda features, schedule: True


def _tiles(features: Features, schedule: Schedule) -> bool:
    """Whether loops may become tiles: over a variable of a result, or of a workspace."""
    kept = schedule.scattered or schedule.workspace or schedule.places or schedule.columns is not None
    return features.tiles or bool(kept)


STATEMENT_PASSES = (
    Pass(
        "scatter_operands",
        lambda p, s: _rewritten(p, lambda stmt: scatter_operands.scattered(stmt, s.scattered)),
        lambda p, s: bool(s.scattered),
    ),
    Pass("exhaust", lambda p, s: _rewritten(p, lambda stmt: simplify.exhaust_stmt(stmt, ()))),
    Pass("fission", lambda p, s: _rewritten(p, fission.split), wanted=lambda f, s: not f.products),
    Pass("pack", lambda p, s: pack.packed(p), lambda p, s: s.columns is not None),
    Pass("vectorize", lambda p, s: _rewritten(p, vectorize.mark_vectors)),
    Pass("tile", lambda p, s: _rewritten(p, tile.tile), wanted=_tiles),
    Pass("contract_arrays", lambda p, s: _rewritten(p, contract_arrays.forwarded), lambda p, s: _keeps(p, "dense")),
    Pass("assigned_once", lambda p, s: assigned_once.noted(p), lambda p, s: p.output.format.full),
    Pass(
        "over_result",
        lambda p, s: over_result.noted(p),
        lambda p, s: p.output.format.is_dense and isinstance(p.stmt, cin.Where),
    ),
    Pass("single_valued", lambda p, s: single_valued.noted(p), lambda p, s: _keeps(p, *policies.MARKED)),
    Pass("drained_masks", lambda p, s: drained_masks.noted(p, s.inserted), lambda p, s: bool(p.single)),
    Pass("stores", lambda p, s: stores.noted(p), lambda p, s: p.whole, wanted=_tiles),
    Pass("in_place", lambda p, s: in_place.settled(p), lambda p, s: not p.output.format.is_dense),
)


def _keeps(program: Program, *names: str) -> bool:
    """Whether a program fills a workspace of one of these policies."""
    return program.stmt is not None and any(w.lhs.tensor.policy in names for w in cin.writes(program.stmt))


def _rewritten(program: Program, change: Callable[[cin.Stmt], cin.Stmt | None]) -> Program:
    made = None if program.stmt is None else change(program.stmt)
    return program if made is program.stmt else replace(program, stmt=made)


def rewritten(
    program: Program, schedule: Schedule, features: Features, passes: Sequence[Pass] = STATEMENT_PASSES
) -> Program:
    """A program, of a kernel with such features, after the named rewrites of its statement."""
    for each in passes:
        if (
            each.applies(program, schedule)
            and choices.applies(each.wanted(features, schedule))
            and choices.does(each.name)
        ):
            program = each.run(program, schedule)
    return program


def program_of(nest: Nest, schedule: Schedule, known: Facts | None = None) -> Program:
    """The program of `nest` under a schedule of what it splits into; its inputs are those of `nest`, in that order, in the formats that the
    kernel reads. Loops are cut into chunks and blocks by what is `known` of the inputs, if anything is."""
    with choices.drawing("program", nest):
        return iteration.planned(_program_of(nest, schedule, known))


def _program_of(nest: Nest, schedule: Schedule, known: Facts | None) -> Program:
    written_out = straight_line.program(nest) if nest.has_constant else None
    if written_out is not None:
        written_out = replace(written_out, inputs=ordered(written_out.inputs, nest.inputs))
        return parallelize.parallelize(written_out, schedule.cost) if choices.does("parallelize") else written_out
    split = blocks.split(nest)
    if schedule.panels is not None:
        split, known = row_panels.read(split, known, schedule.panels)
        nest = row_panels.with_panels(nest, schedule.panels)
    made, cut = prepared(nest, schedule)
    program = rewritten(concretize.concretize(made, cut), cut, made.features)
    program = replace(program, inputs=ordered(program.inputs, nest.inputs))
    if known is None:
        return program
    inputs, read = ordered(split.inputs, nest.inputs), known
    if schedule.conversions:
        moved = dict(schedule.conversions)
        found = {t.name: t for t in blocks.split(blocks.with_formats(nest, moved)).inputs if t.name in moved}
        inputs, read = tuple(found.get(t.name, t) for t in inputs), statistics.converted(known, found.values())
    lengths, taken, many = (
        statistics.lengths(inputs, read),
        statistics.blocks(inputs, read),
        statistics.many(inputs, read),
    )
    if any(len(a.format.levels) != len(b.format.levels) for a, b in zip(inputs, program.inputs, strict=True)):
        now = row_blocking.levels(inputs, program.inputs)
        lengths, taken = {now[x]: n for x, n in lengths.items()}, {now[x]: n for x, n in taken.items()}
        many = frozenset(now[x] for x in many)
    program = replace(program, lengths=lengths, blocks=taken, many=many)
    if not choices.does("parallelize"):
        return program
    return parallelize.parallelize(program, schedule.cost, lambda: search.level_counts(split, known)[-1])


def in_order(nest: Nest, schedule: Schedule) -> Program:
    """The program of a nest without blocks as it is, under a schedule; its result is put together by appending."""
    return rewritten(concretize.concretize(nest, schedule), schedule, nest.features, STATEMENT_PASSES[:-1])


def prepared(nest: Nest, schedule: Schedule) -> tuple[Nest, Schedule]:
    """`nest` as the kernel reads it: converted, without blocks, and in blocks of rows where these pay; with its schedule."""
    if schedule.conversions:
        nest = blocks.with_formats(nest, dict(schedule.conversions))
    split = blocks.split(readable(nest, schedule) if choices.applies(not nest.features.plain) else nest)
    if schedule.columns is not None:
        return column_panels.cut(split, schedule)
    blocking = choices.applies(split.features.loops > 2) and choices.does("row_blocking")
    return row_blocking.cut(split, schedule) if blocking else (split, schedule)


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
