"""The steps of a program: kernels, and calls of libraries."""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass
from typing import Any

from sparsejax.core.jaxpr import Eqn, Var
from sparsejax.formats import Storage
from sparsejax.jit.ir.nest import Nest


@dataclass(frozen=True)
class KernelStep:
    """A kernel: its nest, with canonical names, and the variable behind each input tensor."""

    nest: Nest
    arguments: tuple[Var, ...]
    output: Var
    priced: tuple[str, ...] = ()
    """What was moved into the kernel, with the costs of both ways (`fuse_reductions`)."""
    filled: bool = False
    """Whether the result may store every entry of its mask, zeros where nothing contributes."""
    notes: tuple[str, ...] = ()
    """What was decided about its constants (`static_constants`)."""

    @property
    def outputs(self) -> tuple[Var, ...]:
        return (self.output,)


@dataclass(frozen=True)
class CallStep:
    """A library call, or an operation that runs other jaxprs."""

    eqn: Eqn

    @property
    def outputs(self) -> tuple[Var, ...]:
        return self.eqn.outputs

    def call(self, inputs: Sequence[Storage], bodies: Sequence[Any], unread: Collection[int] = ()) -> list[Storage]:
        """The results; `bodies` run what `eqn.bodies` says. Of those that are `unread`, by position, a partial operation is not told the type:
        they may be anything."""
        primitive, params = self.eqn.primitive, self.eqn.param_dict
        assert primitive.call is not None
        avals: tuple[Any, ...] = tuple(v.aval for v in self.outputs)
        if bodies:
            params["bodies"] = bodies
        if primitive.partial:
            avals = tuple(None if k in unread else a for k, a in enumerate(avals))
        made = primitive.call(*inputs, out_aval=avals if primitive.multiple else avals[0], **params)
        return list(made) if primitive.multiple else [made]


Step = KernelStep | CallStep


def made_anew(step: Step, before: Set[Var]) -> tuple[Var, ...]:
    """The results of a step that every call makes anew, given those of steps `before` it: all, but what is remembered with operands that stay."""
    if isinstance(step, CallStep) and step.eqn.primitive.remembered and before.isdisjoint(step.eqn.inputs):
        return ()
    return step.outputs
