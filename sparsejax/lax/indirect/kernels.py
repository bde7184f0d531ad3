"""Indirect einsums: statements with accesses as indices.

    insum      a statement as it was written, with its derivatives and batches. It stands for
    checked    its index arrays, checked
    positions  the entries of an index array of the target, sorted by the rows that they name, and
    indirect   a kernel: index notation whose indices are accesses

    C[R[p],n] += V[p] * B[K[p],n]       S = positions(R);   C[t,n] += V[p] * B[K[p],n] where S[p,t] is stored

    pairs      two index arrays, of the target and of what its rows share, where panels of rows can have the entries of each share together

    Out[X[p],m] += In[Y[p],c] * W[Z[p],c,m]      S = pairs(X, Z);   Out[t,m] += In[Y[p],c] * W[z,c,m] where S[t,z,p] is stored

so that rows of the target are walked one after the other, each by one thread. Where little is added to each entry, `C[R[p]] += V[p]` is
accumulated as it is written.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsejax import config
from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Jaxpr
from sparsejax.core.primitive import Primitive
from sparsejax.formats import Coordinate, Format
from sparsejax.jit.ir import choices, cin, operators, simplify
from sparsejax.lax import typing_rules as rules
from sparsejax.lax.extents import is_known
from sparsejax.lax.indirect import returned_entries, statements
from sparsejax.lax.indirect.index_arrays import checked, pairs, positions
from sparsejax.lax.indirect.statements import Apply, Expr, Index, Number, Ref, Statement
from sparsejax.lax.linear import empty, full
from sparsejax.lax.structural import convert_format
from sparsejax.transforms.staging import trace_to_jaxpr, without_lines

BOOL: np.dtype[Any] = np.dtype(np.bool_)


@dataclass(frozen=True)
class Label:
    """What errors call an operand, what shows its place, and the numbers that they call its axes (default: their own)."""

    name: str
    pointer: str = ""
    axes: tuple[int, ...] = ()


Names = tuple[Label, ...]
SORTED = 8
"""From so many values for each entry of an index array on, the entries are sorted by the rows that they name."""

SHARED, PANEL = 4, 1024
"""From so many entries on, that name the same and rows of one panel, on average, entries are sorted by both; and the rows of a panel, roughly.
Measured on 8,192 rows and 27 matrices of 16, 32 and 64 columns, float32, Zen 3, calls after the first: with 1 and 2 such entries a statement takes 0.84 to
0.97 of the time sorted by both, with 4 1.18, 0.87 and 0.71, with 8 0.92, 0.76 and 0.70, with 32 0.76, 0.62 and 0.58."""

ROWS = 4
"""Rows of a sparse target for each entry of an index array, up to which all of them are visited."""
TILE, NEAR = 4, 512
"""Rows of a register tile: an entry that has as many of its own shares what it reads with these, and gains nothing from others that name the same where its
block has so many bytes at most (`column_panels.NEAR`): 8 x 8, float32, sorted once, took 0.88 to 0.91 of the time, 32 x 32 1.22 (one run, other programs
beside it)."""

# --------------------------------------------------------------------------------------------------------- indirect


def _index(index: Index, operands: Sequence[rules.Operand]) -> cin.Index:
    if isinstance(index, str):
        return cin.IndexVar(index)
    if isinstance(index, int):
        return index
    assert isinstance(index, Ref), f"{index} is no index"
    made = _entry(index, operands)
    assert isinstance(made, cin.Access)
    return made


def _entry(ref: Ref, operands: Sequence[rules.Operand]) -> cin.Expr:
    return rules.access(operands[ref.array], [_index(ix, operands) for ix in ref.indices])


def _value(expr: Expr, operands: Sequence[rules.Operand]) -> cin.Expr:
    match expr:
        case Ref():
            return _entry(expr, operands)
        case Number(value, dtype):
            return simplify.literal(value, dtype)
        case Apply("cast", (x,), dtype):
            return rules.cast(_value(x, operands), dtype)
        case Apply(op, args, dtype):
            return cin.Call(op, tuple(_value(a, operands) for a in args), dtype)


def _notation(*operands: rules.Operand, statement: Statement) -> cin.Definition:
    """out[target] op= masked(stored(..), value, identity)"""
    s = statement
    made = rules.cast(_value(s.value, operands), s.dtype)
    refs = [_entry(r, operands) for r in s.stored]
    asked = [cin.Call("stored", (r,), BOOL) for r in refs]
    if asked:
        condition = functools.reduce(lambda a, b: cin.Call("logical_and", (a, b), BOOL), asked)
        nothing = simplify.literal(operators.get(s.op).identity(s.dtype), s.dtype, absent=True)
        made = cin.Call("masked", (condition, made, nothing), s.dtype)
    return cin.Definition(tuple(_index(ix, operands) for ix in s.target), None if s.each_once() else s.op, made)


@rules.once
def _typing(*avals: Aval, statement: Statement) -> Aval:
    s = statement
    if s.format is None:
        return rules.infer(_notation, avals, {"statement": s}, s.shape, s.dtype).strong()
    return Aval(s.shape, s.dtype, s.format, 0 if s.format.is_dense else _fill(s, avals))


def _fill(s: Statement, operands: Sequence[Any]) -> Any:
    """The fill of a sparse result."""
    if s.kept and isinstance(s.value, Ref):
        return operands[s.value.array].fill_value
    return operators.get(s.op).identity(s.dtype)


def _reference(*arrays: Any, statement: Statement) -> Any:
    """On dense arrays every entry of an index array is stored, but those of positions are where they are true."""
    s = statement
    grid = dict(zip(s.variables, np.indices(tuple(s.variables.values())), strict=True))

    def value(expr: Expr | Index) -> Any:
        match expr:
            case str():
                return grid[expr]
            case Ref(array, indices):
                return np.asarray(arrays[array])[tuple(value(ix) for ix in indices)]
            case Number(number, dtype):
                return np.asarray(number, dtype)
            case Apply("cast", (x,), dtype):
                return np.asarray(value(x)).astype(dtype)
            case Apply(op, args, dtype):
                return np.asarray(operators.get(op).numpy(*map(value, args))).astype(dtype)
        return expr

    op = operators.get(s.op)
    out = np.full(s.shape, op.identity(s.dtype), s.dtype)
    keep: Any = functools.reduce(
        np.logical_and, [value(r) != 0 for r in s.stored if arrays[r.array].dtype == bool], True
    )
    space = tuple(s.variables.values())
    values, keep = np.broadcast_to(value(s.value), space).astype(s.dtype), np.broadcast_to(keep, space)
    place = tuple(np.broadcast_to(value(ix), space)[keep] for ix in s.target)
    if op.name == "either":  # no place is reached twice
        out[place] = values[keep]
        return out
    ufunc: Any = op.numpy
    ufunc.at(out, place, values[keep])
    return out


indirect_p = Primitive(
    "indirect", typing=_typing, reference=_reference, notation=_notation, describe=lambda statement: spelled(statement)
)


def spelled(s: Statement) -> str:
    """A statement as text, operands by number."""

    def text(x: Expr | Index) -> str:
        match x:
            case Ref(array, indices):
                return f"x{array}[{','.join(map(text, indices))}]"
            case Number(value, _):
                return str(value)
            case Apply(op, args, _):
                return f"{op}({', '.join(map(text, args))})"
        return str(x)

    where = f" where {', '.join(map(text, s.stored))}" if s.stored else ""
    return f"[{','.join(map(text, s.target))}] {s.op}= {text(s.value)}{where}"


# ------------------------------------------------------------------------------------------------------------ insum


def expanded(arrays: Sequence[Any], statement: Statement, names: Names, target: str) -> Any:
    """The result of a statement: its index arrays checked, then a kernel."""
    if returned_entries.serves(arrays, statement):
        return returned_entries.by_number(arrays, statement, lambda xs, s: expanded(xs, s, names, target))
    work = _Expansion(list(arrays), _without_ones(arrays, statement), names, target)
    work.check()
    work.turn()
    made = indirect_p.bind(*work.arrays, statement=work.statement)
    return made if statement.format is None else convert_format(made, statement.format)


def _without_ones(arrays: Sequence[Any], s: Statement) -> Statement:
    """A statement without the variables that run over one coordinate of dense arrays alone: no loop over them can stand in the way of others.

    C[R[p]] += V[p,q] * B[K[p,q]]       C[R[p]] += V[p,0] * B[K[p,0]], q < 1: each slot a group
    """
    dense = [r for r in statements.every(s) if arrays[r.array].format.is_dense]
    fixed = {v for r in statements.every(s) if r not in dense for v in statements.variables_of(*r.indices)}
    fixed |= set(statements.variables_of(*s.target)) | {
        v for r in s.stored for v in statements.variables_of(*r.indices)
    }
    gone = {v for v, n in s.extents if type(n) is int and n == 1 and v not in fixed}
    if not gone:
        return s

    def first(ref: Ref) -> Ref:
        return Ref(ref.array, tuple(0 if isinstance(ix, str) and ix in gone else ix for ix in ref.indices))

    return s.mapped(first).with_(extents=tuple((v, n) for v, n in s.extents if v not in gone))


def _indexed(s: Statement, names: Sequence[Label]) -> bool:
    """Whether arrays without a name, those of `x[index]`, are indices: NumPy checks all of them, also where there is no combination of variables."""
    outer = [r for ref in statements.refs(s.value) for r in statements.inner(ref.indices)]
    read = [r for r in (*outer, *statements.inner(s.target)) if not names[r.array].name]
    extents = s.variables
    return not s.drop and any(all(extents[v] for v in statements.variables_of(r)) for r in read)


def _nothing(s: Statement, operands: Sequence[Any]) -> Any:
    """The result where there is no combination of variables."""
    form = s.format or Format.parse("dense", len(s.shape))
    aval = Aval(s.shape, s.dtype, form, 0 if form.is_dense else _fill(s, operands))
    return full(aval, operators.get(s.op).identity(s.dtype)) if form.is_dense else empty(aval)


class _Expansion:
    """A statement on its way to a kernel: operands are added, and it reads them."""

    def __init__(self, arrays: list[Any], statement: Statement, names: Names, target: str) -> None:
        self.arrays = arrays
        self.statement = statement
        self.names = names
        self.target = target
        self.found: dict[tuple[Ref, int], Ref] = {}
        """The checked entry of every index, by what it indexes."""

    def add(self, array: Any) -> int:
        self.arrays.append(array)
        return len(self.arrays) - 1

    # ------------------------------------------------------------------------------------------------------- checks
    def check(self) -> None:
        """Every index array checked against what it indexes: those at which others are stored first."""
        s = self.statement
        self.domain: list[Ref] = []
        masks = dict.fromkeys(s.stored)
        uses = [(o, self.arrays[o.array].shape, self.names[o.array]) for o in self._outer()]
        for ref, shape, name in (*uses, (Ref(-1, s.target), s.shape, Label(self.target))):
            for d, ix in enumerate(ref.indices):
                if isinstance(ix, Ref) and ix in masks:
                    self._checked(ix, shape[d], _axis(name, d))
                    self.domain.append(ix)
        value = statements.map_outer(s.value, self._ref)
        target = self._indices(Ref(-1, s.target), s.shape, Label(self.target)).indices
        stored: list[Ref] = []
        for ref in s.stored:  # an index array is read where it is checked
            stored += [now for (raw, _), now in self.found.items() if raw == ref] or [self._ref(ref)]
        self.statement = s.with_(value=value, target=target, stored=tuple(stored))

    def _outer(self) -> list[Ref]:
        """Every access that is read, and those in its indices."""
        found = [r for ref in statements.refs(self.statement.value) for r in (*statements.inner(ref.indices), ref)]
        return list(dict.fromkeys([*found, *statements.inner(self.statement.target)]))

    def _ref(self, ref: Ref) -> Ref:
        return self._indices(ref, self.arrays[ref.array].shape, self.names[ref.array])

    def _indices(self, ref: Ref, shape: Sequence[int], name: Label) -> Ref:
        made = [
            self._checked(ix, shape[d], _axis(name, d)) if isinstance(ix, Ref) else ix
            for d, ix in enumerate(ref.indices)
        ]
        return Ref(ref.array, tuple(made))

    def _checked(self, ref: Ref, extent: int, what: str) -> Ref:
        """`ref` reading the checked array."""
        known = self.found.get((ref, extent))
        if known is not None:
            return known
        inside = self._ref(ref)  # with its own indices checked
        stored = tuple(self._ref(r) for r in self.domain if r != ref)
        numbers = list(dict.fromkeys(_arrays_of(inside, *stored)))
        numbers = [inside.array, *(n for n in numbers if n != inside.array)]
        local = {n: k for k, n in enumerate(numbers)}
        own = statements.map_ref(inside, lambda r: Ref(local[r.array], r.indices))
        others = tuple(statements.map_ref(r, lambda r: Ref(local[r.array], r.indices)) for r in stored)
        used = set(statements.variables_of(own, *others))
        extents = tuple((v, n) for v, n in self.statement.extents if v in used)
        array = checked(
            self.arrays[numbers[0]],
            [self.arrays[n] for n in numbers[1:]],
            own,
            others,
            extents,
            extent,
            (self.names[ref.array].name, what, self.names[ref.array].pointer),
            self.statement.drop,
        )
        made = self.found[ref, extent] = Ref(self.add(array), inside.indices)
        self.names = (*self.names, self.names[ref.array])
        return made

    # ------------------------------------------------------------------------------------------------------ targets
    def turn(self) -> None:
        """The first index of the target that is read from an array walked in the order of the rows it names, where that pays or must be."""
        once = self.statement.once or self.statement.each_once()
        self.turn_reads()
        s = self.statement
        if once and not s.each_once() and s.op == "add" and s.dtype.kind in "fc":
            self.statement = s = s.with_(op="either")  # one term: no sum with 0.0, of which -0.0 loses its sign
        sparse = s.format is not None and not s.format.is_dense
        first = True
        for d, ix in enumerate(s.target):
            if isinstance(ix, str):
                continue
            if not sparse and (isinstance(ix, int) or not first or not self._pays(ix)):
                continue
            assert isinstance(ix, Ref), "sparse targets have no constants as indices"
            ref = self._plain(ix)
            extent = s.shape[d]
            var = f"{d}'"
            shared = self._shared(ref, d, ix) if first and not sparse else None
            if shared is None:
                rows = positions(self.arrays[ref.array], extent, first, sparse and self._few(ref, extent))
                condition = Ref(self.add(rows), (*ref.indices, var))
            else:
                condition = self._by_pairs(ref, var, extent, *shared)
            now = self.statement
            read = {r for ref in statements.refs(now.value) for r in statements.inner(ref.indices)}
            known = bool(ref.indices) or ref == ix  # the positions are those of its entries
            stored = (condition, *(r for r in now.stored if r != ix or r in read or not known))
            target = (*now.target[:d], var, *now.target[d + 1 :])
            self.statement = now.with_(target=target, stored=stored, extents=(*now.extents, (var, extent)))
            first = False
        s = self.statement
        if s.like is not None:
            pattern = Ref(s.like, s.target[: self.arrays[s.like].ndim])
            s = self.statement = s.with_(stored=(pattern, *s.stored), like=None)
        if s.format is None and not all(isinstance(ix, str) for ix in s.target):
            self.statement = s.with_(format=Format.parse("dense", len(s.shape)))

    def turn_reads(self) -> None:
        """Factors of the value that store variables above what index arrays name: their entries are walked, each beside what names it.

        y[p,n] = x[K[p],n], x by columns          y[p,n] += x[t,n] where S[p,t] is stored, S = positions(K)
        """
        if self.statement.op not in ("add", "logical_or"):
            return
        for ref in dict.fromkeys(statements.factors(self.statement.value)):
            array = self.arrays[ref.array]
            if array.format.is_dense or array.fill_value or not _walked_first(array.format, ref):
                continue
            changed = [*ref.indices]
            for d, ix in enumerate(ref.indices):
                if not isinstance(ix, Ref):
                    continue
                plain = self._plain(ix)
                var = next(v for v in (f"{d}r{k}" for k in itertools.count()) if v not in self.statement.variables)
                rows = positions(self.arrays[plain.array], array.shape[d], by_target=False)
                stored = (*self.statement.stored, Ref(self.add(rows), (*plain.indices, var)))
                extents = (*self.statement.extents, (var, array.shape[d]))
                self.statement = self.statement.with_(stored=stored, extents=extents)
                changed[d] = var
            exchanged = {ref: Ref(ref.array, tuple(changed))}
            value = statements.map_outer(self.statement.value, functools.partial(_exchanged, exchanged))
            self.statement = self.statement.with_(value=value)

    def _shared(self, ref: Ref, d: int, ix: Ref) -> tuple[Ref, int] | None:
        """A factor that entries of the target's index array `ref` share where another one names the same, W[Z[p],c,m], and which of its axes that is; None
        where there is none, or so few entries name the same in a panel of rows that they are no rows of a tile."""
        s, array = self.statement, self.arrays[ref.array]
        if (
            ref != ix
            or len(ref.indices) != 1
            or s.op != "add"
            or s.drop
            or not array.format.is_dense
            or s.like is not None
        ):
            return None
        others = [x for x in s.target if x is not ix]
        if not all(isinstance(x, str) for x in others) or ref.indices[0] in others:
            return None
        for factor in dict.fromkeys(statements.factors(s.value)):
            own = self.arrays[factor.array]
            places = [k for k, x in enumerate(factor.indices) if isinstance(x, Ref)]
            if len(places) != 1 or not own.format.is_dense or not is_known((*own.shape, *array.shape, *s.shape)):
                continue
            named, rest = factor.indices[places[0]], [x for k, x in enumerate(factor.indices) if k not in places]
            assert isinstance(named, Ref)
            if named.indices != ref.indices or not self.arrays[named.array].format.is_dense or ref.indices[0] in rest:
                continue
            if not any(x in others for x in rest) or not any(isinstance(x, str) and x not in others for x in rest):
                continue
            panels = max(1, s.shape[d] // PANEL)
            rows = math.prod(n for v, n in s.extents if v in others and v not in rest)
            summed = math.prod(n for v, n in s.extents if v in rest and v not in others)
            small = rows >= TILE and rows * summed * own.dtype.itemsize <= NEAR
            pays = not small and math.prod(array.shape) >= SHARED * panels * own.shape[places[0]]
            if choices.pick("targets", ("rows", "pairs"), "pairs" if pays else "rows") == "pairs":
                return factor, places[0]
        return None

    def _by_pairs(self, ref: Ref, var: str, extent: int, factor: Ref, axis: int) -> Ref:
        """What is stored where the entries of `ref` are sorted by the target and by what `factor` is at; the statement reads it there."""
        named = factor.indices[axis]
        assert isinstance(named, Ref)
        shared, count = f"{var}'", self.arrays[factor.array].shape[axis]
        made = pairs(self.arrays[ref.array], self.arrays[named.array], (extent, count))
        moved = Ref(factor.array, (*factor.indices[:axis], shared, *factor.indices[axis + 1 :]))
        value = statements.map_outer(self.statement.value, functools.partial(_exchanged, {factor: moved}))
        extents = (*self.statement.extents, (shared, count))
        self.statement = self.statement.with_(value=value, extents=extents)
        return Ref(self.add(made), (var, shared, *ref.indices))

    def _few(self, ref: Ref, extent: int) -> bool:
        """Whether an index array may name so few rows that those which it does not name should not be visited."""
        shape = self.arrays[ref.array].shape
        return not is_known((*shape, extent)) or extent > ROWS * math.prod(shape)

    def _pays(self, ref: Ref) -> bool:
        own = statements.variables_of(ref)
        return math.prod(n for v, n in self.statement.extents if v not in own) >= SORTED

    def _plain(self, ref: Ref) -> Ref:
        """An index that is an array over distinct variables: another array is made of one that is read elsewhere."""
        names = statements.variables_of(ref)
        if ref.indices == names:
            return ref
        extents = tuple((v, n) for v, n in self.statement.extents if v in names)
        array = self.arrays[ref.array]
        inner = [
            r for r in dict.fromkeys([*statements.inner(ref.indices), ref]) if not self.arrays[r.array].format.is_dense
        ]
        shape = tuple(dict(extents)[v] for v in names)
        form = Format((Coordinate(),) * len(names)) if inner and names else None
        s = Statement("add", names, shape, ref, tuple(inner), extents, array.dtype, form)
        numbers = list(dict.fromkeys(_arrays_of(ref, *inner)))
        local = {n: k for k, n in enumerate(numbers)}
        made = indirect_p.bind(*(self.arrays[n] for n in numbers), statement=statements.renumbered(s, local))
        return Ref(self.add(made), names)


def _walked_first(form: Format, ref: Ref) -> bool:
    """Whether a level is walked above the first that an index array names, over a variable on which no index array depends."""
    named = {v for ix in ref.indices if isinstance(ix, Ref) for v in statements.variables_of(ix)}
    for d in form.order:
        index = ref.indices[d]
        if not isinstance(index, str):
            return False
        if index not in named:
            return any(isinstance(ix, Ref) for ix in ref.indices)
    return False


def _exchanged(others: dict[Ref, Ref], ref: Ref) -> Ref:
    return others.get(ref, ref)


def _axis(name: Label, axis: int) -> str:
    number = name.axes[axis] if name.axes else axis
    return f"axis {number} of {name.name}" if name.name else f"axis {number}"


def _arrays_of(*refs: Ref) -> list[int]:
    """The operands that are read, those of indices too."""
    return [r.array for ref in refs for r in (*statements.inner(ref.indices), ref)]


def _program(statement: Statement, avals: tuple[Aval, ...], names: Names, target: str) -> Jaxpr:
    return _chosen(statement, avals, names, target, config.choose())


@functools.lru_cache(maxsize=1024)
def _chosen(statement: Statement, avals: tuple[Aval, ...], names: Names, target: str, choose: str) -> Jaxpr:
    made = trace_to_jaxpr(lambda *xs: [expanded(xs, statement, names, target)], avals)
    assert not made.consts
    return without_lines(made.jaxpr)


def clear_caches() -> None:
    """Forget the kernels of statements."""
    _chosen.cache_clear()


def _insum_typing(*avals: Aval, **params: Any) -> Aval:
    if tuple(avals) != tuple(params["avals"]):
        raise ValueError(
            f"a statement over {', '.join(map(str, params['avals']))} has operands of {', '.join(map(str, avals))}"
        )
    statements.check(params["statement"], avals)
    made: Aval = _program(**params).outputs[0].aval
    return made


def _resized(
    change: Callable[[Any], Any], avals: tuple[Aval, ...], statement: Statement, **params: Any
) -> dict[str, Any]:
    """The parameters with every extent changed."""
    shape, extents = tuple(map(change, statement.shape)), tuple((v, change(n)) for v, n in statement.extents)
    changed = statement.with_(shape=shape, extents=extents)
    return {"avals": tuple(a.resized(change) for a in avals), "statement": changed, **params}


insum_p = Primitive(
    "insum",
    typing=_insum_typing,
    reference=lambda *arrays, statement, **params: _reference(*arrays, statement=statement),
    inline=lambda **params: _program(**params),
    extents=_resized,
    describe=lambda statement, avals, names, target: spelled(statement),
)


def _counted(s: Statement) -> Statement:
    """A statement without the variables that nothing in it names: the same value is accumulated at each of their coordinates."""
    read = (*statements.refs(s.value), *s.stored, Ref(-1, s.target))
    named = {v for r in read for v in statements.variables_of(*r.indices)}
    count = math.prod(n for v, n in s.extents if v not in named)
    extents = tuple((v, n) for v, n in s.extents if v in named)
    if len(extents) == len(s.extents) or s.op not in ("add", "multiply"):
        return s.with_(extents=extents)
    times = "multiply" if s.op == "add" else "power"
    value = Apply(times, (Apply("cast", (s.value,), s.dtype), Number(s.dtype.type(count), s.dtype)), s.dtype)
    return s.with_(extents=extents, value=value)


def insum(arrays: Sequence[Any], statement: Statement, names: Sequence[Label], target: str) -> Any:
    """The result of one statement over `arrays`, from the identity of its operator. Errors call arrays by
    `names` and `target`.

    Work: combinations of variables, and entries of index arrays, which are checked once. Memory: the result, and where rows of the target are
    named by an index array, 12 bytes for every entry of that.
    """
    if 0 in statement.variables.values() and not _indexed(statement, names):
        return _nothing(statement, arrays)
    statement = _counted(statement)
    read = (*statements.refs(statement.value), *statement.stored, Ref(-1, statement.target))
    also = () if statement.like is None else (statement.like,)
    used = sorted({*also, *(n for r in read for n in _arrays_of(r))} - {-1})
    statement = statements.renumbered(statement, {n: k for k, n in enumerate(used)})
    kept = [arrays[n] for n in used]
    params = {"statement": statement, "names": tuple(names[n] for n in used), "target": target}
    return insum_p.bind(*kept, avals=tuple(x.aval for x in kept), **params)
