"""Plans as parts of records; and how a record is packed."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable

from sparsejax.core.array import Array
from sparsejax.jit.runtime import sequence
from sparsejax.jit.runtime.kept import encoding, kernels
from sparsejax.jit.runtime.kept.encoding import Fields, Unkept, tupled
from sparsejax.jit.runtime.kept.kernels import Images
from sparsejax.jit.runtime.kernel_planner import KernelPlanner
from sparsejax.jit.runtime.kernels import KernelRunner
from sparsejax.jit.runtime.plan import Plan

FOREIGN = ValueError, KeyError, TypeError, IndexError, AttributeError, SyntaxError
"""What is wrong with a record that these sources did not write, whatever its key says."""


def packed(fields: Fields, images: Images) -> bytes:
    """A record: a line of JSON, and machine code."""
    head = fields | {"code": [(key, len(image)) for key, image in images.items()]}
    return json.dumps(head).encode() + b"\n" + b"".join(images.values())


def unpacked(record: bytes) -> tuple[Fields, Images]:
    """What `packed` was given."""
    head, _, code = record.partition(b"\n")
    fields = json.loads(head)
    images: Images = {}
    for key, size in fields["code"]:
        images[key], code = code[:size], code[size:]
    return fields, images


def constants(fields: Fields) -> tuple[Array, ...]:
    """Those of the program of a record."""
    return tuple([encoding.constant(*c) for c in fields["consts"]])


def of_plan(plan: Plan, images: Images) -> Fields:
    """What running a plan takes, whose machine code is added to `images`; Unkept where records do not tell it."""
    if plan.has_bodies or any(len(made) != 1 for made in plan.made):
        raise Unkept
    return {
        "operands": plan.operands,
        "literals": [encoding.of_number(s.vals[0]) for s in plan.literals],
        "avals": [encoding.of_aval(a) for a in plan.out_avals],
        "steps": [
            ("kernel", kernels.of_runner(s, images))
            if isinstance(s, KernelRunner)
            else ("call", encoding.of_call(s.eqn))
            for s in plan.steps
        ],
        "reads": plan.reads,
        "results": plan.results,
        "dead": plan.dead,
        "checks": plan.layout.checks,
        "fresh": plan.fresh,
        "by_facts": plan.by_facts,
    }


def plan_of(fields: Fields, images: Images, shared: bool, full: Callable[[], Plan]) -> Plan:
    """The plan that `of_plan` told; what is asked beyond that, the `full` one says, which is made then."""

    def planner(number: int) -> KernelPlanner:
        step = full().steps[number]
        assert isinstance(step, KernelRunner)
        return step.planner

    steps = [
        kernels.runner_of(told, images, shared, functools.partial(planner, number))
        if kind == "kernel"
        else encoding.call(*told)
        for number, (kind, told) in enumerate(fields["steps"])
    ]
    literals = [encoding.literal(*n) for n in fields["literals"]]
    count, first = len(steps), fields["operands"] + len(literals)
    layout = sequence.Layout(
        fields["operands"],
        len(literals),
        tupled(fields["reads"]),
        tuple([(first + number,) for number in range(count)]),
        (False,) * count,
        tupled(fields["dead"]),
        tupled(fields["results"]),
        tupled(fields["checks"]),
    )
    avals = [encoding.aval(a) for a in fields["avals"]]
    return Plan(layout, steps, literals, avals, fields["fresh"], fields["by_facts"], {}, lambda: full().source())
