"""Mutations of the compiler, one at a time: which of them do tests see?

    python -m tests.mutation.run 100 --seed 0                100 mutations, drawn by a seed, of FOLDERS
    python -m tests.mutation.run 20 --under schedule/search  of files whose path has this in it

A mutation changes one operator, constant or condition inside a function: `<` becomes `<=`, `+` becomes `-`, `and` becomes `or`, a condition is negated
or taken for true, an int is another one, `min` becomes `max`. A process is forked for each, in which the code of the function is replaced, so that all
who refer to it run the changed one; small programs run there, the fastest first:

    results    programs against NumPy, with the cheapest alternatives and with drawn ones: what a wrong compiler computes, or fails at
    plans      LLVM texts, plans (`tests.golden.texts`) and the alternatives that were taken, of the same programs: what is as right, and planned otherwise
    survived   neither sees a difference

Conditions that only cost time or memory, prices among them, are seen by plans at best. A mutation that never ends is one that is seen.
"""

from __future__ import annotations

import argparse
import ast
import collections
import copy
import functools as caching
import gc
import hashlib
import importlib
import os
import random
import resource
import select
import signal
import sys
import time
import traceback
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import sparsejax
from sparsejax.jit.ir import choices
from tests.enumeration import cases
from tests.fuzz import definitions, engine, forced, functions, rows, semirings, test_forced
from tests.golden import texts

ROOT = Path(sparsejax.__file__).parent
FOLDERS = ("jit/ir", "jit/rewrite", "jit/schedule")
SECONDS = 60.0
"""Processor time of one mutation, after which it is taken for one that never ends."""
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
    for statement in function.body:
        yield from ast.walk(statement)


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


def applied(mutation: Mutation) -> str:
    """Replace the code of the function that is changed, in this process; where and how."""
    source = mutation.path.read_text()
    tree = ast.parse(source)
    node = next(n for k, n in enumerate(ast.walk(tree)) if k == mutation.node)
    name, function = next((q, f) for q, f in functions_of(tree) if any(n is node for n in _inside(f)))
    text, change = list(changes(node))[mutation.change]
    line = source.splitlines()[node.lineno - 1].strip()  # type: ignore[attr-defined]
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
    where = f"{mutation.path.relative_to(ROOT)}:{node.lineno} {name}"  # type: ignore[attr-defined]
    return f"{where}: {text} in `{line}`"


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


def observed(wanted: dict[str, list[object]]) -> str:
    """A hash of what the compiler made of these programs, which are right: texts, plans, and the alternatives that were taken."""
    choices.TAKEN.clear()
    with engine.quick(), texts.recorded() as record:
        wrong(wanted)
    made = sorted(set(record.texts)), sorted(set(record.plans)), sorted(choices.TAKEN.items())
    return hashlib.sha256(repr(made).encode()).hexdigest()


def judged(mutation: Mutation | None, wanted: dict[str, list[object]], known: str) -> str:
    """What sees the mutation, in a process of its own; without one, what is known of the plans there. (Not all that is planned in a
    forked process is planned in its parent, so that the two are not comparable.)"""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        found = "survived"
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (int(SECONDS), int(SECONDS) + 5))
            resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
            text = "" if mutation is None else applied(mutation)
            _forget()
            os.write(writes, f"{text}\n".encode())
            plans = observed(wanted)
            if mutation is None:
                found = plans
            elif plans != known:
                found = "plans"
        except BaseException as error:
            found = f"results ({type(error).__name__} {_where(error)})"
        os.write(writes, found.encode())
        os._exit(0)
    os.close(writes)
    told, deadline = b"", time.monotonic() + 20 * SECONDS
    while time.monotonic() < deadline and select.select([reads], [], [], deadline - time.monotonic())[0]:
        more = os.read(reads, 1 << 16)
        if not more:
            break
        told += more
    os.close(reads)
    if time.monotonic() >= deadline:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    text, _, found = told.decode().partition("\n")
    if mutation is None:
        return found
    return f"{found or 'results (ended the process, or never ended)'} | {text or mutation}"


def _forget() -> None:
    """Drop what the functions of the compiler remember of earlier arguments."""
    kept = ("sparsejax.jit.runtime", "sparsejax.jit.backend")
    caches = (found for found in gc.get_objects() if isinstance(found, caching._lru_cache_wrapper))
    for found in caches:
        if str(found.__module__).startswith("sparsejax.jit") and not found.__module__.startswith(kept):
            found.cache_clear()


def _where(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(last.filename).name}:{last.lineno}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--under", default="")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    args = parser.parse_args()
    mutations = all_of(args.under)
    chosen = random.Random(args.seed).sample(mutations, min(args.count, len(mutations)))
    with engine.quick():
        wanted = {name: test_forced.results(name) for name in test_forced.PROGRAMS}
    observed(wanted)  # what all kernels share is compiled by the first ones alone
    known = judged(None, wanted, "")
    if judged(None, wanted, "") != known:
        raise RuntimeError("these programs are not planned alike in every run")
    counts: collections.Counter[str] = collections.Counter()
    started = time.monotonic()
    for mutation in chosen:
        told = judged(mutation, wanted, known)
        counts[told.split(" ")[0]] += 1
        print(told, flush=True)
        if time.monotonic() - started > args.seconds:
            break
    total = sum(counts.values())
    print(
        f"{total} of {len(mutations)} mutations: {dict(counts)}; seen {(total - counts['survived']) / max(1, total):.0%}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
