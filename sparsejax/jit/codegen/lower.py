"""CIN to machine code: one walk over the statement, talking to a builder.

State of the walk, an `Env`: the coordinate of every bound variable, and for every access a `Cursor` that says how far
its storage levels are resolved. Binding a variable resolves what can be computed (dense levels) or searched (a sparse
level whose variable was bound earlier: diagonals, fixed coordinates); such a search leaves a `found` flag, and the
statement is emitted twice, with the access and with its fill. Loops are emitted by `coiterate`, outputs by `output`,
workspaces by `operands`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsejax.jit.backend.builder import Builder, Val
from sparsejax.jit.codegen import (
    abi,
    coiterate,
    emit,
    operands,
    register_tiles,
    sums,
    vectors,
)
from sparsejax.jit.codegen.constants import Numbers
from sparsejax.jit.codegen.emit import Num
from sparsejax.jit.codegen.environment import Cursor, Env
from sparsejax.jit.codegen.kernel_memory import Keeper
from sparsejax.jit.codegen.operands import DenseArea, Input, Overlay, Registers, Resting, Scalar
from sparsejax.jit.codegen.output import Output, Span
from sparsejax.jit.codegen.shared_output import GivenOutput
from sparsejax.jit.codegen.workspaces import kinds
from sparsejax.jit.codegen.workspaces.marks import Marks, Sieve
from sparsejax.jit.codegen.workspaces.protocol import Workspace
from sparsejax.jit.ir import choices, cin, indices, policies, simplify
from sparsejax.jit.ir.bounded import Bounded
from sparsejax.jit.ir.program import Program
from sparsejax.jit.rewrite import assigned_once, drained_masks, iteration, loop_shapes, single_valued, summation

KEPT = 3
"""Blocks of a workspace, at most."""


def lower(program: Program, builder: Builder, numbers: Numbers | None = None) -> str:
    """The text of the kernel for `program`; with `numbers`, the constants that are collected there are read at run time."""
    if program.loops is None:
        with choices.drawing(program.stmt):
            program = iteration.planned(program)
    return Lowering(program, builder, numbers).run()


class Lowering:
    """One kernel under construction."""

    def __init__(self, program: Program, builder: Builder, constants: Numbers | None = None) -> None:
        self.program = program
        self.b = builder
        self.constants = constants
        self.operands: dict[str, operands.Operand] = {}

    def run(self) -> str:
        b, program = self.b, self.program
        first = 0 if self.constants is None else 1
        self.constant_area = None if self.constants is None else b.slot(0, "ptr", "constants")
        numbers = {slot: n for n, slot in enumerate(abi.layout(program.inputs, program.output), first)}
        extents: dict[str, list[Val]] = {t.name: [] for t in (*program.inputs, program.output)}
        tensors = {t.name: t for t in (*program.inputs, program.output)}
        for slot, number in numbers.items():
            if slot.what == "extent" and not abi.is_unit(tensors[slot.tensor], slot.number):
                known = abi.literal(tensors[slot.tensor], slot.number) if program.literal else None
                extent = b.slot(number, "i64", str(slot)) if known is None else b.i64(known)
                extents[slot.tensor].append(extent)
        axes = {t.name: operands.axes_of(b, t, extents[t.name]) for t in (*program.inputs, program.output)}
        for tensor in program.inputs:
            self.operands[tensor.name] = self._input(tensor, numbers, axes[tensor.name])
        self.output = self._output(axes[program.output.name], numbers, self._span(len(numbers) + first))
        self.extents = {v: axes[name][d].extent for v, (name, d) in program.extents.items()}
        self.wholes = {v: axes[name][d].span for v, (name, d) in program.extents.items()}
        if program.stmt is not None:
            self._workspaces(program.stmt, numbers)
            start = {a: Cursor(0, b.i64(0)) for a in (*cin.accesses(program.stmt), *iteration.targets(program.stmt))}
            env = self.resolve(Env({}, start, read=self._entry), program.stmt)
            if program.chunking.partial == "output":
                self._apart(program.stmt, env)
            else:
                self.emit(program.stmt, env)
        self.output.finalize(b)
        if program.past:
            b.fence()
        return b.finish(self._epilogue)

    def _output(self, axes: tuple[operands.Axis, ...], numbers: dict[abi.Slot, int], span: Span | None) -> Output:
        b, program, tensor = self.b, self.program, self.program.output
        if program.given is None or program.shared is None:
            return Output(b, tensor, axes, numbers, span)
        return GivenOutput(b, tensor, axes, numbers, span, program.given, program.shared)

    def _span(self, number: int) -> Span | None:
        """The chunk that this call is to run, where the kernel runs in chunks: told by two slots behind all others."""
        if not self.program.chunking.count:
            return None
        self.chunk = self.b.slot(number, "i64", "chunk"), self.b.slot(number + 1, "i64", "chunks")
        if self.program.chunking.partial:
            self.parts = self.b.slot(number + 2, "ptr", "parts")
        zero = self.b.i64(0)
        return Span(self.b.var("first", zero), self.b.var("end", zero), (number, number + 1))

    def _apart(self, stmt: cin.Stmt, env: Env) -> None:
        """`stmt` into a partial output, which belongs to the chunk; calls with higher numbers combine these, piece by piece."""
        number, chunks = self.chunk
        (op,) = {w.op for w in cin.writes(stmt) if w.lhs.tensor.name == self.output.tensor.name}
        assert op is not None

        def produce() -> None:
            with self.output.redirected(self.output.part(self.b, self.parts, number)):
                self.emit(stmt, env)

        def combine() -> None:
            self.output.combine(self.b, op, self.parts, self.b.sub(number, chunks), chunks)

        self.b.if_else(self.b.lt(number, chunks), produce, combine)

    def _reduced(self, stmt: cin.Where, scalar: Scalar, env: Env) -> None:
        """A reduction in chunks: each saves its partial scalar; a call with a higher number combines them and goes on."""
        b, (number, chunks) = self.b, self.chunk
        op = next(w.op for w in cin.writes(stmt.producer) if w.lhs.tensor == scalar.tensor)
        assert op is not None

        def produce() -> None:
            self.emit(stmt.producer, env)
            scalar.save(b, self.parts, number)

        def combine() -> None:
            with b.for_(b.i64(0), chunks, "part") as part:
                scalar.merge(b, op, self.parts, part)
            self.emit(stmt.consumer, env)

        b.if_else(b.lt(number, chunks), produce, combine)

    def _input(self, tensor: cin.Tensor, numbers: dict[abi.Slot, int], axes: tuple[operands.Axis, ...]) -> Input:
        def pointer(what: str, level: int) -> Val:
            slot = abi.Slot(tensor.name, what, level)
            return self.b.slot(numbers[slot], "ptr", str(slot))

        buffers = []
        for level, dimension in enumerate(tensor.format.order):
            machine = {"pos": "i64", "word": "i64", "crd": "i32" if tensor.shape[dimension] <= 2**31 - 1 else "i64"}
            types = tensor.format.levels[level].buffer_types()
            names = tensor.format.buffer_names(level)
            buffers.append({n: operands.Buffer(pointer(n, level), machine[types[n]]) for n in names})
        return Input(tensor, axes, tuple(buffers), pointer("vals", 0))

    def _workspaces(self, stmt: cin.Stmt, numbers: dict[abi.Slot, int]) -> None:
        """Allocate every array workspace once, before all loops."""
        keeper, outside = None, _outside(stmt)
        for write in cin.writes(stmt):
            tensor, name = write.lhs.tensor, write.lhs.tensor.name
            if tensor.policy in (None, "scalar") or name in self.operands:
                continue
            places = zip(write.lhs.indices, tensor.shape, strict=True)
            walked = ((indices.follows(ix), n) for ix, n in places)
            sizes = [self.b.i64(n) if var is None else self.extents[var] for var, n in walked]
            if tensor.policy == policies.OVERLAY:
                self.operands[name] = Overlay(self.b, tensor, self.output.vals(self.b))
            elif name in self.program.resting:
                self.operands[name] = Resting(self.b, tensor, sizes, self.output.vals(self.b))
            elif tensor.policy == "dense":
                self.operands[name] = DenseArea(self.b, tensor, sizes)
            else:
                only = single_valued.constant(stmt, tensor) if name in self.program.single else None
                if name in outside and keeper is None:
                    keeper = self._keeper(numbers)
                keeps = keeper if name in outside and keeper is not None and keeper.left() >= KEPT else None
                self.operands[name] = made = kinds.make(self.b, tensor, sizes, write.op, only, keeps)
                mask = drained_masks.of(stmt, tensor) if name in self.program.drained else None
                if mask is not None:
                    vector = self.operands[mask.access.tensor.name]
                    assert isinstance(made, Marks) and isinstance(vector, Input)
                    made.sieve = Sieve(vector.vals, mask.access.dtype, mask.complement, mask.condition)

    def _keeper(self, numbers: dict[abi.Slot, int]) -> Keeper | None:
        """Who may keep workspaces for the next call: it says so where the values of a growing output will be."""
        program = self.program
        if not self.output.sparse or program.shared is not None or program.chunking.count:
            return None
        slot = abi.Slot(program.output.name, "vals", 0)
        return Keeper(self.b, self.b.slot(numbers[slot], "ptr", "kept"))

    def keep(self, name: str, dtype: np.dtype[Any], size: int) -> DenseArea:
        """Memory for `size` values that a loop keeps until the kernel ends."""
        return operands.kept(self.b, self.operands, name, dtype, size)

    def _epilogue(self) -> None:
        for operand in self.operands.values():
            if not isinstance(operand, Input):
                operand.free(self.b)
        self.output.epilogue(self.b)

    # ------------------------------------------------------------------------------------------------ statements
    def emit(self, stmt: cin.Stmt, env: Env) -> None:
        """`stmt`, emitted twice for every access that may turn out not to be stored, and for every mask.

        A mask is tested as soon as its condition is known, outside all loops that do not change it.
        """
        for condition in simplify.conditions(stmt):
            if iteration.is_known(condition, stmt, env.state()):
                self._decide(condition, stmt, env)
                return
        if iteration.parts_of(stmt):
            self.statement(stmt, env)  # every part is guarded by itself
            return
        for access in dict.fromkeys(cin.accesses(stmt)):
            cursor = env.cursors.get(access)
            if cursor is None or cursor.found is None:
                continue
            found = cursor.found
            without = simplify.exhaust_stmt(stmt, {access})
            here = env.with_cursors({access: cursor._replace(found=None)})

            def present(env: Env = here) -> None:
                self.emit(stmt, self.resolve(env, stmt))

            def absent(left: cin.Stmt | None = without) -> None:
                if left is not None:
                    self.emit(left, env)

            self.b.if_else(found, present, None if without is None else absent)
            return
        self.statement(stmt, env)

    def _decide(self, condition: cin.Expr, stmt: cin.Stmt, env: Env) -> None:
        """`stmt` under a mask whose condition is known."""
        holds = simplify.assume(stmt, condition, True)
        fails = simplify.assume(stmt, condition, False)
        known = simplify.simplify(iteration.all_stored(condition))

        def emit_stmt(left: cin.Stmt | None) -> None:
            if left is not None:
                self.emit(left, env)

        if isinstance(known, cin.Literal):
            emit_stmt(holds if known.value else fails)
            return
        operand = self.operands.get(holds.lhs.tensor.name) if isinstance(holds, cin.Assign) and fails is None else None
        if isinstance(operand, Marks) and operand.sieve is not None and operand.sieve.condition == condition:
            emit_stmt(holds)
            return
        test = emit.truth(self.b, self.value(known, env)).val
        selected = self.program.loops is not None and holds in self.program.loops.selected
        if selected and isinstance(holds, cin.Assign) and isinstance(operand, Workspace):
            keys = [env.coordinate(self.b, ix) for ix in holds.lhs.indices]
            operand.insert_where(self.b, keys, self.value(holds.rhs, env), test)
            return
        if isinstance(holds, cin.Assign) and fails is None and self._appended(holds, condition):
            value = self.value(holds.rhs, env)
            self.output.put_where(self.b, env.cursors[holds.lhs].pos, value, test)
            return
        self.b.if_else(test, lambda: emit_stmt(holds), None if fails is None else lambda: emit_stmt(fails))

    def _appended(self, stmt: cin.Assign, condition: cin.Expr) -> bool:
        """Whether an entry of the output is written by itself, cheap, and of what the condition is of: it is computed also where it is not kept, so that
        no branch is mistaken."""
        if stmt.lhs.tensor.policy is not None or not self.output.appends or stmt.op is not None:
            return False
        return simplify.cheap(stmt.rhs) and set(cin.accesses(stmt.rhs)) <= set(cin.accesses(condition))

    def statement(self, stmt: cin.Stmt, env: Env) -> None:
        match stmt:
            case cin.Assign():
                self._assign(stmt, env)
            case cin.Forall(_, _, "vector"):
                vectors.vector_loop(self, stmt, env)
            case cin.Forall(_, _, "tile"):
                register_tiles.tile_loop(self, stmt, env)
            case cin.Forall():
                coiterate.forall(self, stmt, env)
            case cin.Where():
                self._where(stmt, env)
            case cin.Seq(stmts):
                for inner in stmts:
                    self.emit(inner, env)

    def _where(self, stmt: cin.Where, env: Env) -> None:
        tensor = cin.workspace(stmt)
        b = self.b
        if self.output.sparse and tensor.lacks and loop_shapes.visits_nothing(self.program, stmt.producer):
            gone = {a for a in cin.accesses(stmt.consumer) if a.tensor.name == tensor.name}
            left = simplify.exhaust_stmt(stmt.consumer, gone)
            if left is not None:
                self.emit(left, env)
            return
        if tensor.policy == "scalar":
            tracked, strip = loop_shapes.tracked(self.program, stmt, env.state()), env.mode.strip
            scalar: Scalar | Registers
            if strip is None:
                scalar = Scalar(b, tensor, tracked, self.sum_of(stmt, tensor, env))
            else:
                scalar = Registers(b, tensor, tracked, strip.lanes, strip.registers)
            env = env.with_register(tensor.name, scalar)
            if isinstance(stmt.producer, cin.Forall) and stmt.producer.kind == "parallel":
                assert isinstance(scalar, Scalar)
                self._reduced(stmt, scalar, env)
                return
            self.emit(stmt.producer, env)
            if scalar.mark is not None:
                mark = b.get(scalar.mark)
                read = {
                    a: Cursor(0, b.i64(0), found=mark)
                    for a in cin.accesses(stmt.consumer)
                    if a.tensor.name == tensor.name
                }
                env = env.with_cursors(read)
            self.emit(stmt.consumer, env)
            return
        area = self.operands[tensor.name]
        if isinstance(area, DenseArea) and not self._is_written(stmt, tensor):
            area.clear(b)
        self.emit(stmt.producer, env)
        if isinstance(area, Workspace):
            area.drain(b)
        self.emit(stmt.consumer, env)
        if isinstance(area, Workspace):
            area.reset(b)

    def _is_written(self, stmt: cin.Where, tensor: cin.Tensor) -> bool:
        """Whether the producer of a dense workspace assigns all of it, or all that is read."""
        whole = assigned_once.assigned(stmt.producer, tensor) == stmt.producer
        return whole or assigned_once.before_read(stmt, tensor)

    def sum_of(self, stmt: cin.Where, tensor: cin.Tensor, env: Env) -> sums.Sum | None:
        """The running sum of a scalar workspace that is one."""
        if not summation.is_sum(stmt.producer, tensor):
            return None
        inside = bool(env.bound)
        exact = summation.wants_exact(stmt.producer, inside)
        return sums.Sum(self.b, tensor.name, tensor.dtype, exact, lasting=not inside)

    def _assign(self, stmt: cin.Assign, env: Env) -> None:
        if env.mode.strip is not None:
            register_tiles.assign(self, stmt, env)
            return
        self.write(stmt, env, self.value(stmt.rhs, env))

    def write(self, stmt: cin.Assign, env: Env, value: Num) -> None:
        b, tensor = self.b, stmt.lhs.tensor
        if tensor.policy == "scalar":
            env.scalar(tensor).put(b, stmt.op, value)
        elif tensor.policy in policies.KEYED:
            workspace = self.operands[tensor.name]
            assert isinstance(workspace, Workspace)
            keys = [env.coordinate(b, ix) for ix in stmt.lhs.indices[: workspace.keys]]
            place = env.cursors.get(stmt.lhs)
            if place is None or place.level < len(stmt.lhs.indices):
                workspace.insert(b, keys, value)
            else:
                workspace.update(b, keys, place.pos, value)
        elif tensor.policy in ("dense", policies.OVERLAY):
            area = self.operands[tensor.name]
            assert isinstance(area, DenseArea)
            position = env.cursors[stmt.lhs].pos
            if stmt.op is not None:
                value = emit.apply(b, stmt.op, [area.leaf(b, position), value], tensor.dtype)
            emit.store(b, area.vals, position, value)
        else:
            self.output.put(b, env.cursors[stmt.lhs].pos, stmt.op, value)

    # ----------------------------------------------------------------------------------------------- expressions
    def value(self, expr: cin.Expr, env: Env, lanes: int = 1, known: dict[cin.Expr, Num] | None = None) -> Num:
        """The value of `expr`; `known` holds what was computed already: loop invariants, and sub-expressions that occur twice."""
        known = {} if known is None else known
        found = known.get(expr)
        if found is None:
            found = known[expr] = self._compute(expr, env, lanes, known)
        return found

    def _compute(self, expr: cin.Expr, env: Env, lanes: int, known: dict[cin.Expr, Num]) -> Num:
        match expr:
            case cin.Literal(value, dtype):
                if self.constants is None or not self.constants.holds(expr):
                    return emit.splat(self.b, emit.constant(self.b, value, dtype), lanes)
                assert self.constant_area is not None
                place = self.b.i64(self.constants.place(expr))
                return emit.splat(self.b, emit.load(self.b, self.constant_area, place, dtype, 1, "constant"), lanes)
            case cin.Access(tensor, _):
                if tensor.policy == "scalar":
                    return emit.splat(self.b, env.scalar(tensor).get(self.b), lanes)
                return self.operands[tensor.name].leaf(self.b, env.cursors[expr].pos, lanes)
            case cin.Call(op, args, dtype):
                return emit.apply(self.b, op, [self.value(a, env, lanes, known) for a in args], dtype)

    # ------------------------------------------------------------------------------------------------- positions
    def _entry(self, access: cin.Access, position: Val) -> Val:
        """The coordinate that an array of integers holds at a position: it lies inside what it indexes (`lax.indirect.index_arrays`)."""
        value = self.operands[access.tensor.name].leaf(self.b, position).val
        kind = "zext" if access.dtype.kind == "u" else "sext"
        return value if value.type == "i64" else self.b.convert(kind, value, "i64")

    def bound(self, var: cin.IndexVar, env: Env) -> Val:
        """Where the loop over `var` ends: its extent, but for a last block that sticks out of the shape."""
        extent = self.extents[var]
        if var.outer is None or not var.rest:
            return extent
        if isinstance(var.rest, Bounded):
            first = self.b.mul(env.bound[var.outer], var.size)
            return self.b.named("inside", self.b.min(self.b.i64(var.size), self.b.sub(self.wholes[var.outer], first)))
        return self.b.named("inside", self.b.select(self.in_last_block(var, env), self.b.i64(var.rest), extent))

    def in_last_block(self, var: cin.IndexVar, env: Env) -> Val:
        """Whether the variable around `var`, one that runs inside blocks, has come to the last of these."""
        assert var.outer is not None
        return self.b.eq(env.bound[var.outer], self.b.sub(self.extents[var.outer], 1))

    def axis_of_level(self, access: cin.Access, level: int) -> operands.Axis:
        dimension = access.tensor.format.order[level]
        if access.tensor.name == self.output.tensor.name:
            return self.output.axes[dimension]
        operand = self.operands[access.tensor.name]
        if isinstance(operand, Workspace):
            return operands.Axis(operand.extents[dimension], operand.extents[dimension])
        return operand.axes[dimension]

    def resolve(self, env: Env, stmt: cin.Stmt) -> Env:
        """Resolve the levels of every access of `stmt` whose variables are bound."""
        moved: dict[cin.Access, Cursor] = {}
        reads = dict.fromkeys([a for a in cin.accesses(stmt) if a.tensor.policy != "scalar"])
        for access in (*reads, *[a for a in iteration.targets(stmt) if a not in reads]):
            cursor = env.cursors[access]
            if cursor.level < len(access.indices):
                if moved and access.computed:  # it may be where one of these says
                    env, moved = env.with_cursors(moved), {}
                fresh = self._resolve_one(access, env, access not in reads)
                if fresh is not cursor:
                    moved[access] = fresh
        return env.with_cursors(moved)

    def _resolve_one(self, access: cin.Access, env: Env, target: bool) -> Cursor:
        cursor, levels = env.cursors[access], access.tensor.format.levels
        while cursor.level < len(levels) and cursor.found is None:  # what lies below a miss must not be read
            level = cursor.level
            index = access.level_index(level)
            if not env.known(index):
                break
            if levels[level].full:
                axis = self.axis_of_level(access, level)
                scaled = self.b.mul(cursor.pos, axis.span) if cursor.pos.ref != "0" else None
                coordinate = self.b.mul(env.coordinate(self.b, index), axis.step)
                position = coordinate if scaled is None else self.b.add(scaled, coordinate)
                below = level > 0 and levels[level - 1].full
                base = cursor.base if below else cursor.pos
                cursor = Cursor(level + 1, position, cursor.end, None, base)
            elif target:
                key = self._key(access, env) if access.tensor.policy in policies.KEYED else None
                if key is None:
                    break  # appended by its loop
                cursor = key
            else:
                here = env.with_cursors({access: cursor})
                cursor = coiterate.search(self, access, here, env.coordinate(self.b, index))
        return cursor

    def _key(self, access: cin.Access, env: Env) -> Cursor | None:
        """Where the block of a key begins in a workspace with blocks; None while the key is not complete."""
        workspace = self.operands[access.tensor.name]
        assert isinstance(workspace, Workspace)
        indices = access.indices[: workspace.keys]
        if not all(map(env.known, indices)):
            return None
        return Cursor(workspace.keys, workspace.place(self.b, [env.coordinate(self.b, ix) for ix in indices]))

    def write_lanes(self, stmt: cin.Assign, env: Env, position: Val, value: Num, lanes: int) -> None:
        """`stmt` at `lanes` consecutive positions."""
        b, tensor = self.b, stmt.lhs.tensor
        area = self.operands.get(tensor.name)
        if isinstance(area, Workspace):
            area.update(b, [env.coordinate(b, ix) for ix in stmt.lhs.indices[: area.keys]], position, value, lanes)
            return
        pointer = area.vals if isinstance(area, DenseArea) else self.output.vals(b)
        if stmt.op is not None:
            old = emit.load(b, pointer, position, tensor.dtype, lanes, tensor.name)
            value = emit.apply(b, stmt.op, [old, value], tensor.dtype)
        emit.store(b, pointer, position, value)
        if tensor.policy is None and self.output.sparse:
            b.set(self.output.wrote, b.i64(1))


def _outside(stmt: cin.Stmt) -> set[str]:
    """The workspaces that are filled once, outside of all loops."""
    match stmt:
        case cin.Where():
            return {cin.workspace(stmt).name} | _outside(stmt.producer) | _outside(stmt.consumer)
        case cin.Seq(stmts):
            return {name for inner in stmts for name in _outside(inner)}
    return set()
