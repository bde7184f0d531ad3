"""Programs and what became of them, as tables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from sparsejax.pictures import html

if TYPE_CHECKING:
    from sparsejax.core.jaxpr import Jaxpr


class Step(NamedTuple):
    """A step of a program: what it is, what it makes, why; facts in a few words each; and texts that are folded, by their headings."""

    kind: str
    title: str
    result: str
    reason: str
    facts: Sequence[tuple[str, str]] = ()
    texts: Sequence[tuple[str, str]] = ()
    below: Sequence[tuple[str, Sequence[Step]]] = ()


def jaxpr(program: Jaxpr) -> str:
    """A row per equation: what it defines, its type, the operation, its operands, and the line of the user's code. Bodies of loops and branches are
    folded. The text is that of `str(program)`."""
    head, *lines, last = str(program).splitlines()
    rows: list[list[str]] = []
    bodies: list[list[str]] = []
    for line in lines:
        if line.startswith("     "):
            bodies[-1].append(line[6:])
            continue
        defined, _, operation = line.strip().partition(" = ")
        name, brackets, operands = _parts(operation)
        shown = " ".join(_variable(one) for one in defined.split(" "))
        rows.append([shown, f"<b>{html.text(name)}</b>{html.text(brackets)}", html.text(operands)])
        bodies.append([])
    for row, body, eqn in zip(rows, bodies, program.eqns, strict=True):
        row.append(html.text(re.split(r"[/\\]", eqn.source)[-1]))
        if body:
            row[1] += html.folded("runs", html.code("\n".join(body)))
    inputs = head.removeprefix("{ lambda ").removesuffix(". let")
    given = " ".join(_variable(one) for one in inputs.removeprefix("; ").split(" ") if one)
    outputs = html.text(last.strip().removeprefix("in ").removesuffix(" }"))
    made = html.table(_shortened(rows), ("defines", "operation", "of", "line")) if rows else ""
    return f"<div><div>given {given}</div>{made}<div>gives {outputs}</div></div>"


def _variable(told: str) -> str:
    name, _, aval = told.partition(":")
    return html.text(name) if not aval else f"{html.text(name)}<small>:{html.text(aval)}</small>"


def _parts(operation: str) -> tuple[str, str, str]:
    """The name of an operation, its parameters in brackets, and its operands.

    >>> _parts("contract[ij,j->i] a b"), _parts("neg a")
    (('contract', '[ij,j->i]', 'a b'), ('neg', '', 'a'))
    """
    depth = 0
    for k, letter in enumerate(operation):
        depth += (letter == "[") - (letter == "]")
        if letter == " " and not depth:
            name, operands = operation[:k], operation[k + 1 :]
            break
    else:
        name, operands = operation, ""
    name, bracket, rest = name.partition("[")
    return name, bracket + rest, operands


MOST = 60
"""Rows of a table that are shown; of more, the first and the last."""


def _shortened(rows: list[list[str]]) -> list[list[str]]:
    if len(rows) <= MOST:
        return rows
    gap = [f"... {len(rows) - MOST} more ...", *[""] * (len(rows[0]) - 1)]
    return [*rows[: MOST // 2], gap, *rows[-MOST // 2 :]]


def steps(made: Sequence[Step], totals: str = "") -> str:
    """A row per step: what it is, what it makes and why, with everything else folded below it."""
    return f"<div>{_rows(made)}{totals}</div>"


def _rows(made: Sequence[Step]) -> str:
    rows: list[list[str]] = []
    for number, step in enumerate(made, 1):
        facts = html.table([(html.text(k), html.text(v)) for k, v in step.facts]) if step.facts else ""
        more = html.folded("details", facts) if facts else ""
        more += "".join(html.folded(html.text(heading), html.code(content)) for heading, content in step.texts)
        more += "".join(html.folded(html.text(heading), _rows(inner)) for heading, inner in step.below)
        title = f"<code>{html.text(step.title)}</code>"
        rows.append([str(number), html.text(step.kind), title, html.text(step.result), html.text(step.reason)])
        rows[-1].append(more)
    return html.table(_shortened(rows), ("", "step", "computes", "result", "why"))
