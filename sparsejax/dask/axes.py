"""Axes of a program, loops and branches included, that can be cut without anything that passes between the parts.

    y = 0.85 * (A @ x) + 0.15 * x, ten times        the columns of x and y are one class; rows are summed over, and must be whole

Axes that an operation's rule gives one variable are of one class, as are those of a value that a loop carries, before it, in its body and after it. A class
in which an axis is summed over, or must be whole for another reason, is not free. What lies on the axes of a free class is computed part by part, each part
by itself through all rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Atom, ClosedJaxpr, Eqn, Jaxpr, Var
from sparsejax.core.symbolic import span
from sparsejax.dask.layouts import rule_of
from sparsejax.lax.control import Loop, cond_p, scan_p, while_p
from sparsejax.lax.indirect import statements
from sparsejax.lax.indirect.index_arrays import checked_p
from sparsejax.lax.indirect.kernels import indirect_p
from sparsejax.lax.structural import convert_format
from sparsejax.transforms import staging

CONTROL = (cond_p, scan_p, while_p)
Place = tuple[Var, int]
Parts = Mapping[int, int]
"""The extent of the part of each dimension of a grid that a task has."""


class Classes:
    """The classes of the axes of a jaxpr's values, in bodies too."""

    def __init__(self, jaxpr: Jaxpr) -> None:
        self._parent: dict[Place, Place] = {}
        self._whole: set[Place] = set()
        self._walk(jaxpr)

    def of(self, var: Var, axis: int) -> Place:
        """What stands for the class of an axis."""
        place = var, axis
        while (above := self._parent.setdefault(place, place)) != place:
            self._parent[place] = self._parent[above]
            place = above
        return place

    def free(self, var: Var, axis: int) -> bool:
        """Whether an axis can be cut."""
        return self.of(var, axis) not in self._whole

    def members(self) -> Iterator[Place]:
        """All axes that were met."""
        return iter(list(self._parent))

    def _same(self, places: Sequence[Place]) -> None:
        roots = [self.of(*p) for p in places]
        whole = any(r in self._whole for r in roots) or len({v.aval.shape[d] for v, d in places}) > 1
        for root in roots[1:]:
            self._parent[root] = roots[0]
        if roots and whole:
            self._whole.add(roots[0])

    def _fixed(self, atom: Atom, axis: int) -> None:
        if isinstance(atom, Var):
            self._whole.add(self.of(atom, axis))

    def _tied(self, first: Sequence[Atom], second: Sequence[Atom], shift: int = 0) -> None:
        """Values that are the same, but for the axes that the first have in front."""
        for a, b in zip(first, second, strict=True):
            for d in range(shift):
                self._fixed(a, d)
            for d in range(b.aval.ndim):
                if isinstance(a, Var) and isinstance(b, Var):
                    self._same([(a, d + shift), (b, d)])
                else:  # a constant, whose parts nobody makes
                    self._fixed(a, d + shift)
                    self._fixed(b, d)

    def _walk(self, jaxpr: Jaxpr) -> None:
        for var in (*jaxpr.consts, *jaxpr.inputs):
            for d, n in enumerate(var.aval.format.blocks):
                self.of(var, d)
                if n > 1:  # which no cut may divide
                    self._fixed(var, d)
        for eqn in jaxpr.eqns:
            if eqn.primitive in CONTROL:
                self._control(eqn)
                continue
            rule = rule_of(eqn)
            atoms = (*eqn.inputs, *eqn.outputs)
            axes = [(None,) * a.aval.ndim for a in atoms] if rule is None else [*rule.operands, *rule.outputs]
            kept = frozenset[int]() if rule is None else rule.kept
            found: dict[int, list[Place]] = {}
            for atom, own in zip(atoms, axes, strict=True):
                for d, v in enumerate(own):
                    if v is None or v not in kept or atom.aval.format.blocks[d] > 1:
                        self._fixed(atom, d)
                    if v is not None and isinstance(atom, Var):
                        found.setdefault(v, []).append((atom, d))
            for places in found.values():
                self._same(places)

    def _control(self, eqn: Eqn) -> None:
        params = eqn.param_dict
        for body in eqn.bodies:
            self._walk(body.jaxpr)
        if eqn.primitive is cond_p:
            for branch in params["branches"]:
                self._tied(eqn.inputs[1:], branch.jaxpr.inputs)
                self._tied(eqn.outputs, branch.jaxpr.outputs)
        elif eqn.primitive is while_p:
            first, second = params["counts"]
            going, body = params["cond"].jaxpr, params["body"].jaxpr
            self._tied((*eqn.inputs[:first], *eqn.outputs), going.inputs)
            self._tied(eqn.inputs[first:], body.inputs)
            self._tied(eqn.inputs[first + second :], eqn.outputs)
            self._tied(eqn.outputs, body.outputs)
        else:
            loop = Loop(**params)
            consts, carry, xs = loop.divided(eqn.inputs)
            inner, goes, slices = loop.divided(loop.body.jaxpr.inputs)
            last, stacks = loop.results(eqn.outputs)
            ends, made = loop.results(loop.body.jaxpr.outputs)
            self._tied((*consts, *carry), (*inner, *goes))
            self._tied(xs, slices, 1)
            self._tied(goes, ends)
            self._tied(last, ends)
            self._tied(stacks, made, 1)


# --------------------------------------------------------------------------------------------- programs on parts


def bind(
    jaxpr: Jaxpr,
    env: dict[Any, Any],
    parts: Parts,
    dims: Callable[[Var, int], int | None],
    sized: Mapping[int, Sequence[int]] | None = None,
) -> None:
    """Bind the equations of a jaxpr on the values in `env`, which are parts of those that the jaxpr speaks of: shapes among parameters are theirs.

    `dims` says along which dimension of the grid an axis is cut, None for whole ones; `sized` the same of the axes of equations whose parameters have the
    shape of the result (-1 for whole ones), where it is known beforehand.
    """
    for number, eqn in enumerate(jaxpr.eqns):
        params, values = eqn.param_dict, [staging.read(env, a) for a in eqn.inputs]
        if eqn.primitive in CONTROL:
            params = _bodies(eqn, parts, dims)
        elif (own := _sized(eqn, dims) if sized is None else sized.get(number)) is not None:
            _resize(params, own, parts)
        if eqn.primitive is indirect_p:
            params["statement"] = statements.resized(params["statement"], [x.shape for x in values])
        elif eqn.primitive is checked_p:
            sizes = dict(params["extents"])
            sizes |= {ix: n for ix, n in zip(params["ref"].indices, values[0].shape, strict=True) if ix in sizes}
            params["extents"] = tuple(sizes.items())
        made = eqn.primitive.bind(*values, **params)
        for out, value in zip(eqn.outputs, made if eqn.primitive.multiple else [made], strict=True):
            env[out] = value if value.format == out.aval.format else convert_format(value, out.aval.format)


def _sized(eqn: Eqn, dims: Callable[[Var, int], int | None]) -> Sequence[int] | None:
    """The dimension of the grid, or -1, of every axis whose extent is a parameter."""
    rule = rule_of(eqn)
    if rule is None or not rule.sized:
        return None
    atom = eqn.inputs[0] if rule.by_operand else eqn.outputs[0]
    found = [dims(atom, d) if isinstance(atom, Var) else None for d in range(atom.aval.ndim)]
    return [-1 if k is None else k for k in found]


def _resize(params: dict[str, Any], axes: Sequence[int], parts: Parts) -> None:
    name = "ranges" if "ranges" in params else "shape"
    resized = zip(axes, params[name], strict=True)
    params[name] = tuple(n if k < 0 else span(0, parts[k], 1) if name == "ranges" else parts[k] for k, n in resized)


def _bodies(eqn: Eqn, parts: Parts, dims: Callable[[Var, int], int | None]) -> dict[str, Any]:
    """The parameters of a loop or a branch, with bodies for parts."""
    inner = [v for body in eqn.bodies for v in body.jaxpr.inputs]
    outer = [v for v in (*eqn.inputs, *eqn.outputs, *inner) if isinstance(v, Var)]
    if all(dims(v, d) is None for v in outer for d in range(v.aval.ndim)):
        return eqn.param_dict

    def part(value: Any) -> Any:
        if isinstance(value, ClosedJaxpr):
            return _traced(value.jaxpr, parts, dims)
        return tuple(map(part, value)) if isinstance(value, tuple) else value

    return {name: part(value) for name, value in eqn.params}


def _traced(jaxpr: Jaxpr, parts: Parts, dims: Callable[[Var, int], int | None]) -> ClosedJaxpr:
    def run(*values: Any) -> list[Any]:
        env: dict[Any, Any] = dict(zip(jaxpr.inputs, values, strict=True))
        bind(jaxpr, env, parts, dims)
        return [staging.read(env, a) for a in jaxpr.outputs]

    return staging.interned(staging.trace_to_jaxpr(run, [_part(v, parts, dims) for v in jaxpr.inputs]).jaxpr)


def _part(var: Var, parts: Parts, dims: Callable[[Var, int], int | None]) -> Aval:
    aval = var.aval
    own = [dims(var, d) for d in range(aval.ndim)]
    shape = [n if k is None else parts[k] for n, k in zip(aval.shape, own, strict=True)]
    return Aval(shape, aval.dtype, aval.format, aval.fill_value, aval.weak_type)
