"""Kernels as parts of records: what running them takes, with their plans for some facts, and kernels by position that run in their place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax import config
from sparsejax.jit.backend import compiler
from sparsejax.jit.cost import collisions
from sparsejax.jit.cost.lookups import Lookup
from sparsejax.jit.graph import shared_patterns
from sparsejax.jit.graph.shared_patterns import Families, Patterns, Positional
from sparsejax.jit.ir import cin
from sparsejax.jit.runtime import plan_cache
from sparsejax.jit.runtime.kept import encoding
from sparsejax.jit.runtime.kept.encoding import Fields, Unkept, tupled
from sparsejax.jit.runtime.kernel_planner import KernelPlanner
from sparsejax.jit.runtime.kernels import KernelRunner
from sparsejax.jit.runtime.runnable import Observed, Planned, Runnable, bound

PLANS = 4
"""Plans of a kernel, for different facts, that a record has at most."""

Images = dict[str, bytes]
"""Machine code by the digests of its texts."""


def of_runner(runner: KernelRunner, images: Images) -> Fields:
    """A kernel with its plans under the settings as they are, whose machine code is added to `images`; Unkept where it has none."""
    settings = config.planning()
    plans = []
    for (*under, order, _), planned in list(runner.plans.items())[-PLANS:]:
        image = compiler.latest.get(planned.binding.key)
        if tuple(under) == settings and not order and planned.recipe is not None and image is not None:
            images[planned.binding.key] = image
            plans.append(_of_planned(planned, planned.recipe))
    known = [] if runner.variants is None else runner.variants.known(settings)
    if not plans and not known:
        raise Unkept
    variants = [(families, None if found is None else _of_variant(*found, images)) for families, found in known]
    return {"kernel": _of_runnable(runner.runnable), "plans": plans, "variants": variants}


def plans_of(runner: KernelRunner) -> int:
    """How many plans it has that a record may have."""
    settings = config.planning()
    known = [] if runner.variants is None else runner.variants.known(settings)
    return len(runner.plans) + len(known) + sum(len(found[1].plans) for _, found in known if found is not None)


def runner_of(fields: Fields, images: Images, shared: bool, planner: Callable[[], KernelPlanner]) -> KernelRunner:
    """The kernel that `of_runner` told, which reads its numbers at run time if it is `shared`. What is asked beyond that, its `planner` says."""
    settings, kernel = config.planning(), _runnable(fields["kernel"], shared)
    runner = KernelRunner(kernel, planner)
    for told in fields["plans"]:
        planned = _planned(told, kernel, images)
        runner.plans[(*settings, (), planned.observed)] = planned
    if runner.variants is not None:
        for families, found in fields["variants"]:
            made = None if found is None else _variant(found, images, runner)
            runner.variants.learn(settings, tupled(families), made)
    return runner


def _of_runnable(kernel: Runnable) -> Fields:
    patterns, meeting = kernel.patterns, kernel.meeting
    return {
        "output": encoding.of_tensor(kernel.output),
        "aval": encoding.of_aval(kernel.aval),
        "op": kernel.op,
        "inputs": kernel.inputs,
        "bounded": kernel.bounded,
        "mixed": kernel.mixed,
        "watched": kernel.watched,
        "alike": kernel.alike,
        "joins": list(kernel.joins.items()),
        "lookups": list(kernel.lookups.items()),
        "meeting": None if meeting is None else _of_meeting(meeting),
        "beside": kernel.beside,
        "patterns": None if patterns is None else (patterns.groups, patterns.alone),
    }


def _runnable(fields: Fields, shared: bool) -> Runnable:
    patterns, meeting = fields["patterns"], fields["meeting"]
    return Runnable(
        encoding.tensor(fields["output"]),
        encoding.aval(fields["aval"]),
        fields["op"],
        tuple(fields["inputs"]),
        shared,
        fields["bounded"],
        fields["mixed"],
        tupled(fields["watched"]),
        fields["alike"],
        dict(tupled(fields["joins"])),
        {key: Lookup(*how) for key, how in tupled(fields["lookups"])},
        None if meeting is None else _meeting(meeting),
        tupled(fields["beside"]),
        None if patterns is None else Patterns(tupled(patterns[0]), patterns[1]),
    )


def _of_meeting(how: collisions.Plan) -> Fields:
    named = {cin.IndexVar(v.name) for v in how.extents}
    if not named.issuperset(how.extents) or not named.issuperset(v for a in how.accesses for v in a.indices):
        raise Unkept
    return {
        "accesses": [(encoding.of_tensor(a.tensor), [str(v) for v in a.indices]) for a in how.accesses],
        "variable": how.variable.name,
        "indices": [v.name for v in how.indices],
        "repeated": how.repeated,
        "spread": how.spread,
        "extents": [(v.name, n) for v, n in how.extents.items()],
    }


def _meeting(fields: Fields) -> collisions.Plan:
    return collisions.Plan(
        tuple([cin.Access(encoding.tensor(t), tuple(map(cin.IndexVar, names))) for t, names in fields["accesses"]]),
        cin.IndexVar(fields["variable"]),
        tuple(map(cin.IndexVar, fields["indices"])),
        fields["repeated"],
        fields["spread"],
        {cin.IndexVar(name): n for name, n in fields["extents"]},
    )


def _of_planned(planned: Planned, recipe: plan_cache.Recipe) -> tuple[Any, ...]:
    numbers = planned.binding.numbers
    read = None if numbers is None else numbers.tobytes().hex()
    return planned.observed, plan_cache.encoded(recipe), planned.binding.key, read


def _planned(told: Sequence[Any], kernel: Runnable, images: Mapping[str, bytes]) -> Planned:
    observed: Observed = tupled(told[0])
    _, recipe, key, numbers = told
    read: NDArray[Any] | None = None if numbers is None else np.frombuffer(bytearray.fromhex(numbers), np.uint8)
    return bound(compiler.loaded(key, images[key]), plan_cache.decoded(recipe, ""), kernel, read, observed)


def _of_variant(read: Positional, runner: KernelRunner, images: Images) -> Fields:
    return {
        "reads": read.reads,
        "like": read.like,
        "fill": encoding.of_number(read.fill_value),
        "families": read.families,
        "sizes": encoding.of_shape(read.sizes),
        "runner": of_runner(runner, images),
    }


def _variant(fields: Fields, images: Images, given: KernelRunner) -> tuple[Positional, KernelRunner]:
    """A kernel by position in the place of a `given` one."""
    families: Families = tupled(fields["families"])
    sizes = encoding.shape(fields["sizes"])

    def planner() -> KernelPlanner:
        made = shared_patterns.of_sizes(given.planner.step, families, sizes)
        assert made is not None
        return KernelPlanner(made[0], given.planner.shared, given.planner.made, positional=False)

    read = Positional(tupled(fields["reads"]), fields["like"], encoding.number(*fields["fill"]), families, sizes)
    return read, runner_of(fields["runner"], images, given.runnable.shared, planner)
