"""Mutations of the compiler, one at a time: which of them do tests see?

    python -m tests.mutation.run 100 --seed 0                100 mutations, drawn by a seed, of FOLDERS
    python -m tests.mutation.run 20 --under schedule/search  of files whose path has this in it

A mutation changes one operator, constant or condition inside a function: `<` becomes `<=`, `+` becomes `-`, `and` becomes `or`, a condition is negated
or taken for true, an int is another one, `min` becomes `max`. A process is forked for each, in which the code of the function is replaced, so that all
who refer to it run the changed one; the fastest of these comes first, and the first that sees a difference ends it:

    tests      tests of the suite that need no machine code, or little (TESTS); last of all, those of the changed file (NEAR)
    results    programs against NumPy, with the cheapest alternatives and with drawn ones: what a wrong compiler computes, or fails at
    plans      LLVM texts, plans (`tests.golden.texts`) and the alternatives that were taken, of the same programs; prices, statements, texts and
               formats of kernels that are only planned (`tests.golden.kernels`): what is as right, and planned otherwise
    survived   none sees a difference

Annotations are no code, and `strict` of a zip says what never happens: both are left alone.
Prices of what is chosen anyway are seen by plans at best. A mutation that never ends is one that is seen.
"""

from __future__ import annotations

import argparse
import ast
import collections
import contextlib
import copy
import functools
import gc
import hashlib
import importlib
import itertools
import os
import pickle
import random
import resource
import select
import signal
import sys
import time
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import sparsejax
import sparsejax as sj
from sparsejax.formats import passes
from sparsejax.jit.ir import choices, infer_formats
from sparsejax.jit.runtime.passes import conversions
from sparsejax.jit.runtime.passes.between import block_conversions, dense_conversions
from tests.enumeration import cases
from tests.fuzz import definitions, engine, forced, functions, rows, semirings, test_forced
from tests.golden import kernels, texts

ROOT = Path(sparsejax.__file__).parent
TREE = ROOT.parent
FOLDERS = ("jit/ir", "jit/rewrite", "jit/schedule")
SECONDS = 60.0
"""Processor time after which a mutation is taken for one that never ends: of all tests, and of every plan."""
LONGEST = 1800.0
"""Seconds that any may take on a busy computer."""
TESTS = (
    "rewrite/test_passes.py",
    "rewrite/test_indices.py",
    "schedule/test_plans.py",
    "ir/test_formats.py",
    "ir/test_operators.py",
    "ir/test_simplify.py",
)
"""What every mutation is shown to first."""
NEAR = {
    "ir/blocks": ("ir/test_blocks.py",),
    "ir/operators": ("nn/test_random.py", "semirings/test_semirings.py", "codegen/test_sums.py"),
    "ir/simplify": ("codegen/test_special_values.py", "codegen/test_unstored.py", "semirings/test_semirings.py"),
    "ir/static_products": ("rewrite/test_straight_line.py",),
    "rewrite/assigned_once": ("rewrite/test_assigned.py",),
    "rewrite/contract_arrays": ("schedule/test_panels.py",),
    "rewrite/drained_masks": ("schedule/test_drained_masks.py",),
    "rewrite/fission": ("rewrite/test_fission.py", "codegen/test_many_factors.py", "codegen/test_sums.py"),
    "rewrite/in_place": ("rewrite/test_given.py", "rewrite/test_whole.py"),
    "rewrite/iteration": (
        "codegen/test_intersections.py",
        "codegen/test_levels_in_kernels.py",
        "rewrite/test_loop_shapes.py",
    ),
    "rewrite/loop_shapes": (
        "codegen/test_jammed.py",
        "codegen/test_row_ends.py",
        "codegen/test_pairs.py",
        "rewrite/test_loop_shapes.py",
    ),
    "rewrite/masked_inserts": ("schedule/test_masked_insert.py",),
    "rewrite/over_result": ("rewrite/test_over_result.py",),
    "rewrite/parallelize": ("threads/test_parallel_kernels.py", "threads/test_reductions.py"),
    "rewrite/row_bodies": ("codegen/test_flat_rows.py", "codegen/test_distributed.py"),
    "rewrite/shared_positions": ("rewrite/test_given.py", "graph/test_masked_products.py", "runtime/test_positions.py"),
    "rewrite/straight_line": ("rewrite/test_straight_line.py",),
    "rewrite/summation": ("codegen/test_sums.py",),
    "rewrite/stores": ("codegen/test_tiles.py",),
    "rewrite/tile": ("codegen/test_held_rows.py", "codegen/test_tiles.py", "schedule/test_row_panels.py"),
    "rewrite/vectorize": ("codegen/test_bool_lanes.py", "codegen/test_complex_lanes.py", "codegen/test_held_rows.py"),
    "schedule/column_panels": ("schedule/test_column_panels.py",),
    "schedule/concordant": ("schedule/test_concordant.py",),
    "schedule/loop_costs": ("schedule/test_waiting.py", "schedule/test_loop_orders.py"),
    "schedule/placement": ("inspect/test_explain.py", "rewrite/test_overlay.py"),
    "schedule/regions": ("schedule/test_regions.py",),
    "schedule/replan": ("schedule/test_replan.py", "schedule/test_remembered.py"),
    "schedule/row_panels": ("schedule/test_targets.py", "schedule/test_row_panels.py"),
    "schedule/row_blocking": ("schedule/test_tile_waits.py", "schedule/test_panels.py"),
    "schedule/search": ("schedule/test_targets.py", "schedule/test_loop_orders.py"),
    "schedule/statements": ("schedule/test_waiting.py", "inspect/test_explain.py", "rewrite/test_overlay.py"),
    "schedule/tile_waits": ("schedule/test_tile_waits.py",),
    "schedule/tiled_loops": ("schedule/test_tile_waits.py",),
    "schedule/waiting": ("schedule/test_waiting.py",),
}
"""What a mutation of a file is shown to last."""
COMPARED = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
COMPUTED = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
IMPORTING = ("_table",)
"""Functions that have run when this process mutates them: what they made stays."""
CALLED = {"min": "max", "max": "min", "any": "all", "all": "any", "issubset": "issuperset"}


@dataclass(frozen=True)
class Mutation:
    """The place of a changed node, by the number of the node in its file, and the number of the change."""

    path: Path
    node: int
    change: int


def changes(node: ast.AST) -> Iterator[tuple[str, Callable[[ast.AST], ast.AST]]]:
    """What could be in the place of a node: in words, and a function that changes a copy."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in COMPARED:
            new = COMPARED[type(op)]
            yield f"{type(op).__name__} -> {new.__name__}", lambda n: _with(n, ops=[new()])
        case ast.BinOp(op=op) if type(op) in COMPUTED:
            other = COMPUTED[type(op)]
            yield f"{type(op).__name__} -> {other.__name__}", lambda n: _with(n, op=other())
        case ast.BoolOp(op=ast.And()):
            yield "and -> or", lambda n: _with(n, op=ast.Or())
        case ast.BoolOp(op=ast.Or()):
            yield "or -> and", lambda n: _with(n, op=ast.And())
        case ast.UnaryOp(op=ast.Not()):
            yield "no not", lambda n: n.operand  # type: ignore[attr-defined]
        case ast.If() | ast.IfExp() | ast.While():
            yield "condition negated", lambda n: _with(n, test=ast.UnaryOp(ast.Not(), n.test))  # type: ignore[attr-defined]
        case ast.Constant(value=bool() as value):
            yield f"{value} -> {not value}", lambda n: ast.Constant(not n.value)  # type: ignore[attr-defined]
        case ast.Constant(value=int() as value):
            yield f"{value} -> {value + 1}", lambda n: ast.Constant(n.value + 1)  # type: ignore[attr-defined]
        case ast.Call(func=ast.Name(id=name)) if name in CALLED:
            yield f"{name} -> {CALLED[name]}", lambda n: _with(n, func=ast.Name(CALLED[name], ast.Load()))


def _with(node: ast.AST, **fields: object) -> ast.AST:
    for name, value in fields.items():
        setattr(node, name, value)
    return node


def functions_of(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions of a module and of its classes, by qualified name."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.{f.name}", f) for f in node.body if isinstance(f, ast.FunctionDef))


def _inside(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """Every node of the body that is run, but for `strict` of a zip: without annotations."""
    left: list[ast.AST] = [*function.body]
    while left:
        node = left.pop()
        yield node
        noted = {id(getattr(node, name, None)) for name in ("annotation", "returns")}
        if not isinstance(node, ast.keyword) or node.arg != "strict":
            left += [child for child in ast.iter_child_nodes(node) if id(child) not in noted]


def all_of(under: str) -> list[Mutation]:
    """Every mutation of the files in FOLDERS whose path has `under` in it."""
    made = []
    for path in sorted(p for folder in FOLDERS for p in (ROOT / folder).glob("*.py") if under in str(p)):
        tree = ast.parse(path.read_text())
        nodes = {id(n): k for k, n in enumerate(ast.walk(tree))}
        for name, function in functions_of(tree):
            if name in IMPORTING:
                continue
            for node in _inside(function):
                made += [Mutation(path, nodes[id(node)], k) for k, _ in enumerate(changes(node))]
    return made


def placed(mutation: Mutation) -> tuple[ast.Module, ast.AST, str, ast.FunctionDef]:
    """The syntax of the file, the node that is changed, and the function that it is in, with its name."""
    tree = ast.parse(mutation.path.read_text())
    node = next(n for k, n in enumerate(ast.walk(tree)) if k == mutation.node)
    name, function = next((q, f) for q, f in functions_of(tree) if any(n is node for n in _inside(f)))
    return tree, node, name, function


def told(mutation: Mutation) -> str:
    """Where a mutation is, and how the code changes."""
    _, node, name, _ = placed(mutation)
    line = mutation.path.read_text().splitlines()[node.lineno - 1].strip()  # type: ignore[attr-defined]
    where = f"{mutation.path.relative_to(ROOT)}:{node.lineno} {name}"  # type: ignore[attr-defined]
    return f"{where}: {list(changes(node))[mutation.change][0]} in `{line}`"


def apply(mutation: Mutation) -> None:
    """Replace the code of the function that is changed, in this process."""
    tree, node, name, function = placed(mutation)
    _, change = list(changes(node))[mutation.change]
    replaced = _Replaced(node, change(copy.copy(node)))
    function.body = [replaced.visit(statement) for statement in function.body]
    code = compile(ast.fix_missing_locations(tree), str(mutation.path), "exec")
    module = importlib.import_module(".".join(("sparsejax", *mutation.path.relative_to(ROOT).with_suffix("").parts)))
    target: object = module
    for part in name.split("."):
        target = vars(target)[part]
    while not isinstance(target, types.FunctionType) or hasattr(target, "__wrapped__"):
        known = vars(target) if hasattr(target, "__dict__") else {}
        inner = known.get("__wrapped__") or known.get("_make") or getattr(target, "fget", None)
        target = inner or target.__func__  # type: ignore[attr-defined]
    target.__code__ = _code(code, name.split("."))


class _Replaced(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self._old, self._new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self._new if node is self._old else super().visit(node)


def _code(code: types.CodeType, names: list[str]) -> types.CodeType:
    """The code of a function inside that of a module."""
    for name in names:
        code = next(c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name == name)
    return code


# ------------------------------------------------------------------------------------------------------- what is run


def wrong(wanted: dict[str, list[object]]) -> None:
    """Small programs and kernels against what they should be: raises where one is not."""
    test_forced.differences(wanted, list(wanted)[::3])
    for seed in range(20):
        _none(definitions.check(seed, blocked=seed % 3 == 0))
    stride = cases.count() // 15
    for number in range(11, cases.count(), stride):
        case = cases.case(number)
        _none(definitions.fault_of(case, definitions.planned(case)()))
    for seed in range(6):
        _none(forced.every(functions.check)(seed))
        _none(forced.every(rows.check)(seed) if seed < 3 else None)
        _none(forced.every(semirings.check_order)(seed))
    with forced.alternatives(3):
        test_forced.differences(wanted, list(wanted)[1::3])
    for seed in range(20, 40):
        _none(forced.every(definitions.check)(seed))


def _none(fault: str | None) -> None:
    if fault is not None:
        raise AssertionError(fault)


@contextlib.contextmanager
def unlearnt() -> Iterator[None]:
    """Inside the block, how often passes and conversions ran before makes no difference: those of few entries are not compiled."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(passes, "_few", passes.Learning(passes._many, sys.maxsize)))
        for module in (conversions, dense_conversions, block_conversions):
            for name in ("LOADED", "COMPILED"):
                stack.enter_context(mock.patch.object(module, name, sys.maxsize))
        stack.enter_context(mock.patch.object(passes, "LOADED", sys.maxsize))
        yield


def observed(wanted: dict[str, list[object]]) -> str:
    """A hash of what the compiler made of these programs, which are right: texts, plans, and the alternatives that were taken."""
    sj.clear_caches()
    choices.TAKEN.clear()
    with engine.quick(), unlearnt(), texts.recorded() as record:
        wrong(wanted)
    made = sorted(set(record.texts)), sorted(set(record.plans)), sorted(choices.TAKEN.items())
    return hashlib.sha256(repr(made).encode()).hexdigest()


class Judge:
    """What sees a mutation, in a process of its own."""

    def __init__(self, session: pytest.Session) -> None:
        self._items: dict[str, list[pytest.Item]] = collections.defaultdict(list)
        for item in session.items:
            self._items[str(item.path.relative_to(TREE / "tests"))].append(item)
        with engine.quick():
            self._wanted = {name: test_forced.results(name) for name in test_forced.PROGRAMS}
        observed(self._wanted)  # what all kernels share is compiled by the first ones alone
        list(kernels.hashes())  # and random definitions are made
        self._failed: dict[str, set[str]] = {}
        self._judging = False
        self._known = self._apart(lambda: dict(self._plans()))
        if (found := self.of(None)) != "survived":
            raise RuntimeError(f"what is not changed is seen: {found}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test that fails where it should not ends the process."""
        if report.failed and self._judging and report.nodeid not in self._failed[report.nodeid.split("::")[0]]:
            raise _Seen(f"tests ({report.nodeid})")
        if report.failed and not self._judging:
            self._failed[report.nodeid.split("::")[0]].add(report.nodeid)

    def _try(self, file: str) -> set[str]:
        """The tests of a file that fail where nothing is changed: those of optimised machine code."""
        self._failed[f"tests/{file}"] = set()
        self._test([file])
        return self._failed[f"tests/{file}"]

    def _plans(self) -> Iterator[tuple[str, str]]:
        yield "programs", observed(self._wanted)
        yield from kernels.hashes()

    def _test(self, files: Sequence[str]) -> None:
        for file in files:
            _hurry()
            items = self._items[file]
            with engine.quick():
                for item, following in itertools.zip_longest(items, items[1:]):
                    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)

    def of(self, mutation: Mutation | None) -> str:
        """What sees a mutation; without one, nothing should."""
        near = () if mutation is None else NEAR.get(str(mutation.path.relative_to(ROOT / "jit").with_suffix("")), ())
        for file in (*TESTS, *near):
            if f"tests/{file}" not in self._failed:
                self._failed[f"tests/{file}"] = self._apart(functools.partial(self._try, file))

        def judged() -> str:
            self._judging = True
            if mutation is not None:
                apply(mutation)
            _forget()
            try:
                self._test(TESTS)
                for name, found in self._plans():
                    if self._known[name] != found:
                        return f"plans ({name})"
                    _hurry()
                self._test(near)
            except _Seen as seen:
                return str(seen)
            except Exception as error:
                return f"results ({type(error).__name__} {_where(error)})"
            return "survived"

        return self._apart(judged) or "results (ended the process, or never ended)"

    def _apart(self, run: Callable[[], Any]) -> Any:
        """What `run` returns in a forked process; None where that has died."""
        reads, writes = os.pipe()
        child = os.fork()
        if not child:
            with os.fdopen(writes, "wb", buffering=0) as pipe:
                try:
                    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
                    _hurry()
                    pipe.write(pickle.dumps(run()))
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(0)
        os.close(writes)
        found, deadline = b"", time.monotonic() + LONGEST
        with os.fdopen(reads, "rb", buffering=0) as pipe:
            while select.select([pipe], [], [], max(0, deadline - time.monotonic()))[0] and (
                more := pipe.read(1 << 16)
            ):
                found += more
        if time.monotonic() >= deadline:
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return pickle.loads(found) if found else None


class _Seen(BaseException):
    """A test has failed."""


def _hurry() -> None:
    """From now on the process has so many seconds."""
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    resource.setrlimit(resource.RLIMIT_CPU, (int(used + SECONDS), resource.RLIM_INFINITY))


def _forget() -> None:
    """Drop what the functions of the compiler remember of earlier arguments."""
    kept = ("sparsejax.jit.runtime", "sparsejax.jit.backend")
    caches = (found for found in gc.get_objects() if isinstance(found, functools._lru_cache_wrapper))
    for found in caches:
        if str(found.__module__).startswith(
            ("sparsejax.jit", "tests.golden.kernels")
        ) and not found.__module__.startswith(kept):
            found.cache_clear()
    infer_formats.remembered.clear()


def _where(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(last.filename).name}:{last.lineno}"


class Run:
    """The mutations, run by pytest in place of the tests that it has found."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        mutations = all_of(self._args.under)
        if self._args.again:
            survived = {
                line.partition(" | ")[2]
                for line in self._args.again.read_text().splitlines()
                if line.startswith("survived")
            }
            mutations = [m for m in mutations if told(m) in survived]
        chosen = random.Random(self._args.seed).sample(mutations, min(self._args.count, len(mutations)))
        chosen = chosen[self._args.begin :]
        judge = Judge(session)
        session.config.pluginmanager.register(judge)
        counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        started = time.monotonic()
        for mutation in chosen:
            found = judge.of(mutation)
            counts[mutation.path.parent.name][found.split(" ")[0]] += 1
            print(f"{found} | {told(mutation)}", flush=True)
            if time.monotonic() - started > self._args.seconds:
                break
        counts["all"] = sum(counts.values(), collections.Counter())
        for folder, found in counts.items():
            total = sum(found.values())
            print(
                f"{folder}: {dict(found)}; {total - found['survived']} of {total}, {1 - found['survived'] / total:.0%}, seen"
            )
        print(f"of {len(mutations)}")
        return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--under", default="")
    parser.add_argument("--again", type=Path, help="only those that have survived, as the log of an earlier run says")
    parser.add_argument(
        "--begin", type=int, default=0, help="leave so many of those that are drawn out, which ran before"
    )
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    files = dict.fromkeys(file for files in (TESTS, *NEAR.values()) for file in files)
    options = ["-s", "-p", "no:cacheprovider", "-p", "no:terminal"]
    return int(
        pytest.main([*options, *(str(TREE / "tests" / file) for file in files)], plugins=[Run(parser.parse_args())])
    )


if __name__ == "__main__":
    sys.exit(main())
