"""An `Explanation` as HTML: its steps as a table, loops and everything else about a kernel folded below its row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparsejax.pictures import html, programs

if TYPE_CHECKING:
    from sparsejax.jit.inspect.explanation import ControlFlow, Explained, Explanation, Kernel, LibraryCall


def explanation(made: Explanation) -> str:
    """The table of an explanation, and its times."""
    times = html.folded("times in ms", html.code(made.times()))
    return programs.steps([_step(step) for step in made.steps], times)


def _step(step: Explained) -> programs.Step:
    found: programs.Step = getattr(_Steps, type(step).__name__)(step)
    return found


class _Steps:
    """A row for every kind of step."""

    @staticmethod
    def Kernel(step: Kernel) -> programs.Step:
        facts = [
            ("result", f"{step.entries[0]:.4g} entries expected, {step.entries[1]:.4g} made"),
            ("threads", step.threads),
            ("memory", str(step.memory)),
        ]
        facts += [("fused", text) for text in step.fused]
        facts += [("workspace", str(w)) for w in step.workspaces]
        facts += [("conversion", str(c)) for c in step.conversions]
        return programs.Step(
            "kernel",
            step.expression,
            f"{step.output} {step.output_format}",
            f"loops over {', '.join(step.order) or 'nothing'}: {step.reason}",
            facts,
            [("loops", step.cin), ("all decisions", str(step))],
        )

    @staticmethod
    def LibraryCall(step: LibraryCall) -> programs.Step:
        return programs.Step("library call", step.name, step.output, step.reason)

    @staticmethod
    def ControlFlow(step: ControlFlow) -> programs.Step:
        below: list[tuple[str, Sequence[programs.Step]]] = [
            (f"body {k}: {body.runs} runs", [_step(inner) for inner in body.steps])
            for k, body in enumerate(step.bodies)
        ]
        return programs.Step("control flow", step.name, step.output, "", below=below)
