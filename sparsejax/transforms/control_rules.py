"""Derivatives of control flow, by those of its bodies.

    scan      x…, y… = scan[known] c… x… z…           with a stack of residuals r… besides its results
              t…, s… = scan[linear] c r… dc… t… dz…   the tangents, step by step; transposed, it runs the other way
    cond      the branches' known parts, with the residuals of all; then the linear part of the one that was taken
    while     carries and tangents go around together: forward mode only

Residuals that do not change from step to step are computed once, outside the loop, and what is scanned is not stacked again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Atom, ClosedJaxpr, Eqn, Var
from sparsejax.core.tangents import Linear, tangent_aval
from sparsejax.lax.control import Loop, cond_p, plain, scan_p, stacked_aval, while_p
from sparsejax.lax.elementwise import elementwise
from sparsejax.lax.linear import empty, zeros, zeros_like
from sparsejax.lax.loops import Traced, sliced_aval, together
from sparsejax.lax.structural import convert_format
from sparsejax.transforms import ad, staging

Values = list[Any]


def _moving(tangents: Sequence[Any]) -> Values:
    return [t for t in tangents if t is not None]


def _inexact(avals: Sequence[Aval], wanted: Sequence[bool]) -> list[bool]:
    return [w and tangent_aval(a) is not None for a, w in zip(avals, wanted, strict=True)]


def _given(aval: Aval, ct: Any) -> Any:
    """A cotangent (None: zero) as a value of a type."""
    return empty(aval) if ct is None else convert_format(ct, aval.format)


def _finished(env: dict[Atom, Any], out: Atom, t: Any) -> Any:
    """The tangent (None: zero) of a result, with its type; known values are in `env`."""
    if out.aval.format.is_dense:
        return convert_format(zeros(out.aval) if t is None else t, out.aval.format)
    return ad.finished_tangent(staging.read(env, out), t)


def _residuals(lin: ad.Linearized, outs: Sequence[Atom]) -> list[Var]:
    """What the linear part reads: also sparse results, whose pattern tangents have."""
    sparse = [a for a in outs if isinstance(a, Var) and not a.aval.format.is_dense]
    return list(dict.fromkeys([*lin.residuals(), *sparse]))


def _placed(flags: Sequence[bool], values: Sequence[Any]) -> Values:
    """The values where flags are set, None elsewhere."""
    rest = iter(values)
    return [next(rest) if flag else None for flag in flags]


def _cotangents(operands: Sequence[Any], made: Sequence[Any]) -> Values:
    return _placed([isinstance(x, Linear) for x in operands], made)


def _point(operands: Sequence[Any]) -> Values:
    """A point at which to differentiate what is linear in some operands: any one that has their patterns."""
    return [convert_format(x.pattern, x.format) if isinstance(x, Linear) else x for x in operands]


def _around(body: ClosedJaxpr, wanted: Sequence[bool], carry: range) -> tuple[ad.Linearized, list[bool]]:
    """The linearised body of a loop, and which inputs move: carries do once anything moves them. `carry` are their inputs."""
    flags = _inexact(body.in_avals, wanted)
    while True:
        lin = ad.linearized(body, flags)
        moved = [t is not None for t in lin.out_tangents[: len(carry)]]
        grown = [*flags]
        for k, moves in zip(carry, moved, strict=True):
            grown[k] = flags[k] or moves
        if grown == flags:
            return lin, flags
        flags = grown


def _instantiated(primals: Sequence[Any], tangents: Sequence[Any], flags: Sequence[bool]) -> Values:
    """The tangents that move, in the formats of their primal values."""
    return [
        zeros_like(x) if t is None else convert_format(t, x.format)
        for x, t, moves in zip(primals, tangents, flags, strict=True)
        if moves
    ]


# ---------------------------------------------------------------------------------------------------------------- scan


class _LinearScan:
    """The linear part of a scan, forwards and backwards.

    Operands: residuals that stay, tangents of constants | of carries | residuals that are stacked, tangents of what is scanned.
    """

    def __init__(self, loop: Loop, lin: ad.Linearized, flags: Sequence[bool]) -> None:
        self.loop, self.lin = loop, lin
        consts, carry, xs = (sum(part) for part in loop.divided(flags))
        self.counts = consts, carry, xs
        self.carried = loop.divided(flags)[1]
        ts = lin.out_tangents[loop.carry :]
        self.ys = [t is not None for t in ts]
        self.moved_outs = [a for a, moves in zip(lin.outs, (*self.carried, *self.ys), strict=True) if moves]
        stay: set[Atom] = {*lin.primals[: loop.consts], *lin.jaxpr.consts}
        self.hoisted: list[Eqn] = []
        for eqn in lin.known:
            if all(not isinstance(a, Var) or a in stay for a in eqn.inputs):
                stay.update(eqn.outputs)
                self.hoisted.append(eqn)
        found = _residuals(lin, self.moved_outs)
        scanned = lin.primals[loop.consts + loop.carry :]
        self.staying = [v for v in found if v in stay]
        self.scanned = [v for v in found if v not in stay and v in scanned]
        self.stacked = [v for v in found if v not in stay and v not in scanned]

    def known(self, primals: Sequence[Any]) -> tuple[Values, Values, Values]:
        """Run the known part: results, residuals that stay, residuals per step."""
        loop, lin = self.loop, self.lin

        def body(*args: Any) -> Values:
            env, outs = ad.known_values(lin, args)
            return [*outs, *(env[v] for v in self.stacked)]

        outs = self._bind(body, loop.body.in_avals, loop.consts, loop.carry, loop.reverse, primals)
        env: dict[Atom, Any] = dict(zip(lin.jaxpr.consts, lin.consts, strict=True))
        env.update(zip(lin.primals[: loop.consts], primals, strict=False))
        staging.bind_eqns(self.hoisted, env)
        count = len(lin.outs)
        given = dict(zip(lin.primals, primals, strict=True))
        return outs[:count], [env[v] for v in self.staying], [*outs[count:], *(given[v] for v in self.scanned)]

    def _bind(
        self,
        body: Any,
        avals: Sequence[Aval],
        consts: int,
        carry: int,
        reverse: bool,
        operands: Sequence[Any],
        adjoint: Any = None,
    ) -> Values:
        traced = Traced(body, avals)
        made: Values = scan_p.bind(
            *traced.consts,
            *operands,
            body=traced.closed,
            length=self.loop.length,
            reverse=reverse,
            consts=len(traced.consts) + consts,
            carry=carry,
            adjoint=adjoint and adjoint(len(traced.consts)),
        )
        return made

    def _env(self, staying: Sequence[Any], slices: Sequence[Any]) -> dict[Atom, Any]:
        per_step = [convert_format(x, v.aval.format) for v, x in zip(self.per_step, slices, strict=True)]
        return {**dict(zip(self.staying, staying, strict=True)), **dict(zip(self.per_step, per_step, strict=True))}

    @property
    def per_step(self) -> list[Var]:
        return [*self.stacked, *self.scanned]

    def _tangent_avals(self) -> tuple[list[Aval], list[Aval], list[Aval]]:
        avals = [v.aval for v in self.lin.tangents]
        first, second, _ = self.counts
        return avals[:first], avals[first : first + second], avals[first + second :]

    def _slices(self) -> list[Aval]:
        return [_sliced(v.aval) for v in self.per_step]

    def forward(self, staying: Values, tangents: Values, per_step: Values) -> Values:
        """Run the linear part: tangents of the carries that move, then of the ys that do."""
        first, second, _ = self.counts
        s, r = len(staying), len(per_step)

        def body(*args: Any) -> Values:
            env = self._env(args[:s], args[s + first + second :][:r])
            ts = [*args[s : s + first + second], *args[s + first + second + r :]]
            found = ad.forward(self.lin, env, ts)
            kept = [t for t, moves in zip(found, (*self.carried, *self.ys), strict=True) if moves]
            return [_finished(env, a, t) for a, t in zip(self.moved_outs, kept, strict=True)]

        consts, carry, xs = self._tangent_avals()
        avals = [*(v.aval for v in self.staying), *consts, *carry, *self._slices(), *xs]
        operands = [*staying, *tangents[: first + second], *per_step, *tangents[first + second :]]
        adjoint = lambda extra: _Adjoint(self, extra)  # noqa: E731
        return self._bind(body, avals, s + first, second, self.loop.reverse, operands, adjoint)

    def backward(self, cts: Values, staying: Values, per_step: Values) -> Values:
        """The cotangents of the tangents: of constants, carries, and what is scanned."""
        first, second, third = self.counts
        s, r = len(staying), len(per_step)

        def body(*args: Any) -> Values:
            own, ct_carry = args[:s], args[s : s + second]
            sums, rest = args[s + second : s + second + first], args[s + second + first :]
            env = self._env(own, rest[:r])
            flags = (*self.carried, *self.ys)
            made = ad.backward(self.lin, env, _placed(flags, [*ct_carry, *rest[r:]]))
            added = [_added(x, y) for x, y in zip(sums, made[:first], strict=True)]
            return [*made[first : first + second], *added, *made[first + second :]]

        consts, carry, _ = self._tangent_avals()
        y_avals = [_tangent(a.aval) for a in self.moved_outs[second:]]
        starts = [_given(a, ct) for a, ct in zip(carry, cts[:second], strict=True)]
        sums = [empty(a) for a in consts]
        ct_ys = [_given(stacked_aval(a, self.loop.length), ct) for a, ct in zip(y_avals, cts[second:], strict=True)]
        avals = [*(v.aval for v in self.staying), *carry, *consts, *self._slices(), *(_sliced(a) for a in y_avals)]
        operands = [*staying, *starts, *sums, *per_step, *ct_ys]
        made = self._bind(body, avals, s, second + first, not self.loop.reverse, operands)
        assert len(made) == first + second + third
        return [*made[second : second + first], *made[:second], *made[second + first :]]


class _Adjoint:
    """The transpose of a linear scan that was bound with `extra` constants before its operands."""

    def __init__(self, scan: _LinearScan, extra: int) -> None:
        self.scan, self.extra = scan, extra

    def __call__(self, cts: Values, operands: Sequence[Any]) -> Values:
        first, second, _ = self.scan.counts
        own = list(operands[self.extra :])
        s, r = len(self.scan.staying), len(self.scan.per_step)
        made = self.scan.backward(cts, own[:s], own[s + first + second :][:r])
        return [None] * (self.extra + s) + made[: first + second] + [None] * r + made[first + second :]


def _tangent(aval: Aval) -> Aval:
    made = tangent_aval(aval)
    assert made is not None
    return made


def _sliced(aval: Aval) -> Aval:
    """The type of a slice of a stack of values of type `aval`."""
    return sliced_aval(stacked_aval(aval, 0))


def _added(x: Any, y: Any) -> Any:
    return convert_format(elementwise("add", x, y), x.format)


def _scan_linearize(primals: Values, tangents: Values, **params: Any) -> tuple[Values, Values]:
    loop = Loop(**params)
    carry = range(loop.consts, loop.consts + loop.carry)
    lin, flags = _around(loop.body, [t is not None for t in tangents], carry)
    linear = _LinearScan(loop, lin, flags)
    outs, staying, per_step = linear.known(primals)
    made = linear.forward(staying, _instantiated(primals, tangents, flags), per_step)
    return outs, _placed((*linear.carried, *linear.ys), made)


def _scan_transpose(cts: Values, *operands: Any, **params: Any) -> Values:
    """Where the linear scan was written by the user, it is differentiated at any point."""
    if params["adjoint"] is not None:
        found: Values = params["adjoint"](cts, operands)
        return _cotangents(operands, [ct for x, ct in zip(operands, found, strict=True) if isinstance(x, Linear)])
    loop = Loop(**params)
    carry = range(loop.consts, loop.consts + loop.carry)
    lin, flags = _around(loop.body, [isinstance(x, Linear) for x in operands], carry)
    linear = _LinearScan(loop, lin, flags)
    _, staying, per_step = linear.known(_point(operands))
    kept = [ct for ct, moves in zip(cts, (*linear.carried, *linear.ys), strict=True) if moves]
    made = _placed(flags, linear.backward(kept, staying, per_step))
    return [ct if isinstance(x, Linear) else None for x, ct in zip(operands, made, strict=True)]


scan_p.linearize = _scan_linearize
scan_p.transpose = _scan_transpose

# ---------------------------------------------------------------------------------------------------------------- cond


class _LinearCond:
    """The linear parts of branches, of which one runs. Operands: the index, residuals of all branches, tangents."""

    def __init__(self, branches: Sequence[ClosedJaxpr], wanted: Sequence[bool]) -> None:
        self.flags = _inexact(branches[0].in_avals, wanted)
        self.lins = [ad.linearized(b, self.flags) for b in branches]
        columns = zip(*(lin.out_tangents for lin in self.lins), strict=True)
        self.moved = [any(t is not None for t in column) for column in columns]
        self.found = [
            _residuals(lin, [a for a, moves in zip(lin.outs, self.moved, strict=True) if moves]) for lin in self.lins
        ]
        """The residuals of every branch: operands of the branch first, which are passed on."""
        self.given = [[v for v in own if v in lin.primals] for own, lin in zip(self.found, self.lins, strict=True)]
        self.computed = [
            [v for v in own if v not in lin.primals] for own, lin in zip(self.found, self.lins, strict=True)
        ]
        self.avals = [plain(v.aval) for own in self.computed for v in own]
        self.tangents = [v.aval for v in self.lins[0].tangents]

    def known(self, index: Any, primals: Values) -> tuple[Values, Values]:
        """Run the known part: results and residuals. Those of branches that are not taken are zero."""

        def branch(k: int) -> Any:
            def body(*args: Any) -> Values:
                env, outs = ad.known_values(self.lins[k], args)
                made = [[env[v] if n == k else empty(v.aval) for v in own] for n, own in enumerate(self.computed)]
                return [*outs, *(x for own in made for x in own)]

            return body

        avals = [x.aval for x in self.lins[0].primals]
        outs = _bind_cond(index, [branch(k) for k in range(len(self.lins))], avals, primals)
        count = len(self.lins[0].outs)
        given = [primals[lin.primals.index(v)] for own, lin in zip(self.given, self.lins, strict=True) for v in own]
        return outs[:count], [*given, *outs[count:]]

    def _env(self, k: int, residuals: Sequence[Any]) -> dict[Atom, Any]:
        everything = [(n, v) for n, own in enumerate(self.given) for v in own]
        everything += [(n, v) for n, own in enumerate(self.computed) for v in own]
        return {v: x for (n, v), x in zip(everything, residuals, strict=True) if n == k}

    def _avals(self) -> list[Aval]:
        return [*(v.aval for own in self.given for v in own), *self.avals]

    def forward(self, index: Any, residuals: Values, tangents: Values) -> Values:
        """The tangents of the results that move."""
        count = len(residuals)

        def branch(k: int) -> Any:
            def body(*args: Any) -> Values:
                lin, env = self.lins[k], self._env(k, args[:count])
                found = ad.forward(lin, env, args[count:])
                made = zip(lin.outs, found, self.moved, strict=True)
                return [_finished(env, a, t) for a, t, moves in made if moves]

            return body

        bodies = [branch(k) for k in range(len(self.lins))]
        return _bind_cond(index, bodies, [*self._avals(), *self.tangents], [*residuals, *tangents])

    def backward(self, index: Any, residuals: Values, cts: Values) -> Values:
        """The cotangents of the tangents."""
        count = len(residuals)
        avals = [_tangent(a.aval) for a, moves in zip(self.lins[0].outs, self.moved, strict=True) if moves]

        def branch(k: int) -> Any:
            def body(*args: Any) -> Values:
                return ad.backward(self.lins[k], self._env(k, args[:count]), _placed(self.moved, args[count:]))

            return body

        full = [_given(a, ct) for a, ct in zip(avals, cts, strict=True)]
        bodies = [branch(k) for k in range(len(self.lins))]
        return _bind_cond(index, bodies, [*self._avals(), *avals], [*residuals, *full])


def _bind_cond(index: Any, bodies: Sequence[Any], avals: Sequence[Aval], operands: Values) -> Values:
    consts, closed = together([Traced(b, avals) for b in bodies])
    made: Values = cond_p.bind(index, *consts, *operands, branches=closed)
    return made


def _cond_linearize(primals: Values, tangents: Values, branches: tuple[ClosedJaxpr, ...]) -> tuple[Values, Values]:
    index, *operands = primals
    linear = _LinearCond(branches, [t is not None for t in tangents[1:]])
    outs, residuals = linear.known(index, operands)
    made = linear.forward(index, residuals, _instantiated(operands, tangents[1:], linear.flags))
    return outs, _placed(linear.moved, made)


def _cond_transpose(cts: Values, index: Any, *operands: Any, branches: tuple[ClosedJaxpr, ...]) -> Values:
    linear = _LinearCond(branches, [isinstance(x, Linear) for x in operands])
    _, residuals = linear.known(index, _point(operands))
    kept = [ct for ct, moves in zip(cts, linear.moved, strict=True) if moves]
    return [None, *_placed(linear.flags, linear.backward(index, residuals, kept))]


cond_p.linearize = _cond_linearize
cond_p.transpose = _cond_transpose

# --------------------------------------------------------------------------------------------------------------- while


def _while_jvp(
    primals: Values, tangents: Values, outs: Values, cond: ClosedJaxpr, body: ClosedJaxpr, counts: tuple[int, int]
) -> Values:
    first, second = counts
    asked, operands, ts = primals[:first], primals[first:], tangents[first:]
    lin, flags = _around(body, [t is not None for t in ts], range(second, len(operands)))
    moved = flags[second:]
    own = sum(flags[:second])
    carry, moving = len(moved), sum(moved)

    def step(*args: Any) -> Values:
        """Constants, their tangents, carries, their tangents."""
        consts, const_ts, rest = args[:second], args[second : second + own], args[second + own :]
        env, made = ad.known_values(lin, [*consts, *rest[:carry]])
        found = ad.forward(lin, env, [*const_ts, *rest[carry:]])
        pairs = zip(lin.outs, found, moved, strict=True)
        return [*made, *(_finished(env, a, t) for a, t, moves in pairs if moves)]

    def going(*args: Any) -> Values:
        return staging.bind_jaxpr(cond.jaxpr, (), args[: first + carry])

    avals = [v.aval for v in lin.tangents]
    given = [*(v.aval for v in lin.primals[:second]), *avals[:own]]
    around = [*(v.aval for v in lin.primals[second:]), *avals[own:]]
    traced = Traced(step, [*given, *around])
    asks = Traced(going, [*cond.in_avals[:first], *around])
    moving_ts = _instantiated(operands, ts, flags)
    made = while_p.bind(
        *asks.consts,
        *asked,
        *traced.consts,
        *operands[:second],
        *moving_ts[:own],
        *operands[second:],
        *moving_ts[own:],
        cond=asks.closed,
        body=traced.closed,
        counts=(len(asks.consts) + first, len(traced.consts) + second + own),
    )
    assert len(made) == carry + moving
    return _placed(moved, made[carry:])


def _while_transpose(*args: Any, **params: Any) -> NoReturn:
    raise ValueError(
        "Reverse-mode differentiation does not work for lax.while_loop or lax.fori_loop with dynamic start/stop values. "
        "Try using lax.scan, or using fori_loop with static start/stop."
    )


while_p.jvp = _while_jvp
while_p.transpose = _while_transpose
