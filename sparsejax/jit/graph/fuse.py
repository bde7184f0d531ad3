"""Fusion: a jaxpr becomes a list of kernels and library calls.

    - an elementwise result used once moves into its consumer
    - a reduction used once, by an elementwise consumer over the same indices, becomes a producer inside that
      consumer's kernel (`relu(A @ H)`: each row is reduced into a workspace and finished from there)
    - so does one of a sparse result that the consumer reads twice, once through a value that has moved into it (`where(c < d, c, 0)` of a product c)
    - a dense product whose only reader masks it with something sparse is not computed as a whole but entry by entry
      where the mask is stored (SDDMM written as `A * (U @ V.T)`)
    - other dense products, views, conversions and reshapes are library calls between kernels

before:  b = contract A X;  c = add b bias;  d = maximum c 0
after:   one kernel   out[i,j] = max(w[i,j] + bias[j], 0),   w[i,j] += A[i,k] * X[k,j]

An elementwise result with several readers is made again in each where that is cheap, but not where it reads several dense arrays and is stored
anyway, for a library call. An elementwise producer moves into a reduction only where it is not recomputed: when it has all the reduction's
variables, or is cheap and sparse. A kernel never grows beyond its budget (`limits`): then values are stored between kernels.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from sparsejax.core.avals import Aval
from sparsejax.core.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from sparsejax.formats import Format
from sparsejax.jit.graph import divided, limits, lone_functions
from sparsejax.jit.graph.partition import CallStep, KernelStep, Step
from sparsejax.jit.graph.static_constants import Constants
from sparsejax.jit.ir import choices, cin, operators, simplify
from sparsejax.jit.ir.nest import Nest, Producer, of_definition, patterns
from sparsejax.jit.rewrite import legalize


def keeps_variables(before: cin.Expr, after: cin.Expr, indices: Collection[cin.Index]) -> bool:
    """Whether what takes the place of a reduced expression has all of its variables but the `indices` of the result: of one that
    is gone, nothing would tell how far it runs."""
    return set(cin.variables(before)) <= {*cin.variables(after), *indices}


def fuse(jaxpr: Jaxpr, constants: Constants | None = None) -> list[Step]:
    """The steps of `jaxpr`, in an order that respects its dependencies; `constants` may be written out (`static_constants`)."""
    return _Fuser(jaxpr, constants).run()


class _Fuser:
    def __init__(self, jaxpr: Jaxpr, constants: Constants | None) -> None:
        self.jaxpr = jaxpr
        self.constants = constants
        self.static: set[Var] = set()
        """Products with a constant that are written out: kernels by themselves."""
        self.notes: dict[Var, tuple[str, ...]] = {}
        self.uses = Counter(a for eqn in jaxpr.eqns for a in eqn.inputs if isinstance(a, Var))
        self.kept = {a for a in jaxpr.outputs if isinstance(a, Var)}
        self.consumer = {a: eqn for eqn in jaxpr.eqns for a in eqn.inputs if isinstance(a, Var)}
        self.readers = Counter(a for eqn in jaxpr.eqns for a in set(eqn.inputs) if isinstance(a, Var))
        self.readers.update(self.kept)
        calls = (eqn for eqn in jaxpr.eqns if eqn.primitive.notation is None)
        self.stored = {a for eqn in calls for a in eqn.inputs if isinstance(a, Var)}
        """What library calls read."""
        self.reading: dict[Atom, set[Var]] = {}
        """The results of the equations that read a value."""
        for eqn in jaxpr.eqns:
            for a in eqn.inputs:
                self.reading.setdefault(a, set()).update(eqn.outputs)
        self.fragments: dict[Var, Nest] = {}
        self.parts: dict[Var, tuple[Var, ...]] = {}
        """What is stored before a result, being more than one kernel may hold (`divided`)."""
        self.vars: dict[str, Var] = {}
        self.apart = {eqn.outputs[0] for eqn in jaxpr.eqns if _scatters(eqn)}
        self.count = 0

    def run(self) -> list[Step]:
        for eqn in self.jaxpr.eqns:
            if not self._is_call(eqn):
                made = self._whole(eqn)
                if self.constants is not None:
                    found, self.notes[eqn.outputs[0]] = self.constants.written_out(made, eqn.outputs[0], self.vars)
                    if found is not None:
                        made = found
                        self.static.add(eqn.outputs[0])
                        self.apart.add(eqn.outputs[0])
                self.fragments[eqn.outputs[0]] = self._inline(eqn, made)
        steps: list[Step] = []
        needed = set(self.kept)
        for eqn in reversed(self.jaxpr.eqns):
            var = eqn.outputs[0]
            fragment = self.fragments.get(var)
            refuses = eqn.primitive.refuses is not None and eqn.primitive.refuses(**eqn.param_dict)
            if not needed.isdisjoint(eqn.outputs) or eqn.effect or refuses:  # else moved into every reader
                view = fragment is not None and _is_view(fragment) and eqn.primitive.views
                step = CallStep(eqn) if fragment is None or view else self._step(var, fragment)
                if isinstance(step, KernelStep) and eqn.param_dict.get("mask") == "pattern":
                    step = replace(step, filled=True)
                steps.append(step)
                read = step.arguments if isinstance(step, KernelStep) else eqn.inputs
                needed.update(a for a in read if isinstance(a, Var))
            for part in filter(needed.__contains__, reversed(self.parts.get(var, ()))):
                before = self._step(part, self.fragments[part])
                steps.append(before)
                needed.update(before.arguments)
        return steps[::-1]

    def _is_call(self, eqn: Eqn) -> bool:
        if not eqn.primitive.uses_call([a.aval for a in eqn.inputs], eqn.param_dict):
            return False
        if eqn.primitive.notation is None:
            return True
        cheapest = "kernel" if self._masked(eqn.outputs[0]) else "library"
        return choices.pick("products", ("library", "kernel"), cheapest) == "library"

    def _masked(self, var: Var) -> bool:
        """Whether just the entries of something sparse are kept of a dense result: by its only reader, or by the only reader of what
        elementwise operations, one after the other, make of it."""
        size = 0
        while True:
            reader = self.consumer.get(var)
            if reader is None or self.uses[var] != 1 or var in self.kept or reader.primitive.notation is None:
                return False
            out = reader.outputs[0]
            if out.aval.shape != var.aval.shape:
                return False
            if not out.aval.format.is_dense:
                return True
            if reader.primitive.call is not None:
                return False
            made = self._define(reader)
            size += limits.nodes(made.rhs)
            if made.op is not None or size > limits.NODES // 2:  # more might not fit into the kernel of the entries
                return False
            var = out

    def _tensor(self, atom: Atom) -> cin.Tensor | cin.Literal:
        if isinstance(atom, Literal):
            return simplify.literal(atom.value, atom.aval.dtype)
        name = f"v{atom.number}"
        self.vars[name] = atom
        return tensor_of(name, atom.aval)

    def _define(self, eqn: Eqn) -> cin.Definition:
        made: cin.Definition = eqn.primitive.notation(  # type: ignore[misc]
            *(self._tensor(a) for a in eqn.inputs), **eqn.param_dict
        )
        self.count += 1
        found = dict.fromkeys((*(v for ix in made.indices for v in cin.variables_of(ix)), *cin.variables(made.rhs)))
        fresh: dict[cin.Index, cin.Index] = {v: cin.IndexVar(f"{v.name}.{self.count}") for v in found}
        indices = tuple(cin.renamed(ix, fresh) for ix in made.indices)
        return cin.Definition(indices, made.op, cin.rename(made.rhs, fresh))

    def _whole(self, eqn: Eqn) -> cin.Definition:
        """What an equation computes, but for the parts that are stored before."""
        made = self._define(eqn)
        sparse = {a: len(a.tensor.format.sparse) for a in cin.accesses(made.rhs)}
        if math.prod(1 + n for n in sparse.values()) <= limits.PIECES:
            return made
        before, made = divided.divided(made)
        if before:
            self.parts[eqn.outputs[0]] = tuple(before)
        for var, definition in before.items():
            self.vars[f"v{var.number}"] = var
            self.apart.add(var)
            output = legalize.assembled(tensor_of("out", var.aval))
            self.fragments[var] = of_definition(output, definition)
        return made

    def _inline(self, eqn: Eqn, made: cin.Definition) -> Nest:
        indices, out = made.indices, eqn.outputs[0]
        result = tensor_of("out", out.aval)
        result = result if out.aval.format.is_dense else legalize.assembled(result)
        inside: dict[cin.Access, Nest] = {}
        accesses = list(dict.fromkeys(cin.accesses(made.rhs)))
        asked = set(patterns(made.rhs))
        times = Counter(cin.accesses(made.rhs))
        size = limits.nodes(made.rhs) if self.fragments else 0
        whole = made.rhs
        for access in accesses:
            var = self.vars.get(access.tensor.name)
            fragment = self.fragments.get(var) if var is not None else None
            if var is None or fragment is None or var in self.kept or access in asked or var in self.apart:
                continue
            if out in self.static and not _is_view(fragment):
                continue
            if sum(a.tensor.name == access.tensor.name for a in accesses) > 1:
                continue
            grown, many = limits.nodes(fragment.composite), self.readers[var] > 1
            recomputed = (
                not fragment.producers and simplify.cheap(fragment.value) and made.op is None and grown <= limits.SHARED
            )
            again = recomputed or (choices.free() and made.op is None and not fragment.producers)
            if many and not again:
                continue
            if size + times[access] * (grown - 1) > limits.NODES:
                continue
            if not entrywise(fragment, var.aval):
                continue
            moved = self._moved(access, fragment, made, indices, out)
            if moved is None:
                continue
            tried = cin.substitute(whole, {access: moved.composite})
            if limits.pieces(tried, made.op) > limits.PIECES:
                continue
            if made.op is not None and not keeps_variables(whole, tried, indices):
                continue
            way = "again" if many else "together"
            stored = many and (not recomputed or (var in self.stored and self._reads_several(fragment)))
            stored = stored or (made.op is None and lone_functions.pays(moved, made.rhs, indices, out.aval))
            if choices.pick("fusion", (way, "apart"), "apart" if stored else way) == "apart":
                continue
            size, whole = size + times[access] * (grown - 1), tried
            inside[access] = moved
        if made.op is None:
            nest = Nest(result, indices, (), made.rhs).inlined(inside)
            return self._joined(nest, out, {self.vars[a.tensor.name] for a in inside}, asked)
        identity = operators.get(made.op).identity(out.aval.dtype)
        temporary = tensor_of(f"t{out.number}", out.aval)._replace(fill_value=identity)
        target = cin.Access(temporary, indices)
        return Nest(result, indices, (Producer(target, made.op, made.rhs),), target).inlined(inside)

    def _joined(self, nest: Nest, out: Var, inside: Collection[Var], asked: Collection[cin.Access]) -> Nest:
        """An elementwise kernel, with the sparse product that it reads both by itself and through what has been moved `inside`: stored, the product would
        be read by this kernel alone."""
        if not inside or out.aval.format.is_dense:
            return nest
        alone = {v for v in inside if self.reading[v] == {out} and v not in self.kept}
        for access in dict.fromkeys(cin.accesses(nest.value)):
            var = self.vars.get(access.tensor.name)
            fragment = self.fragments.get(var) if var is not None else None
            if var is None or fragment is None or not fragment.producers or var.aval.format.is_dense:
                continue
            if var in self.kept or access in asked or var in self.apart or not self.reading[var] <= {out, *alone}:
                continue
            if len({a for a in cin.accesses(nest.composite) if a.tensor.name == access.tensor.name}) > 1:
                continue
            made = cin.Definition(nest.indices, None, nest.value)
            moved = self._moved(access, fragment, made, nest.indices, out)
            if nest.producers or moved is None or not entrywise(fragment, var.aval):
                continue
            tried = cin.substitute(nest.composite, {access: moved.composite})
            if limits.nodes(tried) > limits.NODES or limits.pieces(tried, None) > limits.PIECES:
                continue
            if choices.pick("fusion", ("together", "apart"), "together") == "together":
                nest = nest.inlined({access: moved})
        return nest

    def _moved(
        self, access: cin.Access, fragment: Nest, made: cin.Definition, indices: tuple[cin.Index, ...], out: Var
    ) -> Nest | None:
        """`fragment` over the indices of `access`; None where moving it would cost more than it saves. A result of the program may have axes of
        extent one beside these."""
        if not cin.are_variables(fragment.indices):
            return None  # its values are at coordinates that an array holds: they are not told by where they are read
        if fragment.producers:
            units = {v for v, n in zip(indices, out.aval.shape, strict=True) if n == 1 and not self.uses[out]}
            same = len(set(access.indices)) == len(access.indices) and set(access.indices) | units == set(indices)
            if made.op is not None or not same or len(out.aval.format.sparse) > 2:
                return None
        elif made.op is not None and not {*indices, *cin.variables(made.rhs)} <= set(access.indices):
            sparse = any(not a.tensor.format.is_dense for a in cin.accesses(fragment.value))
            if not (sparse and simplify.cheap(fragment.value)):
                return None
        return fragment.over(access.indices)

    def _reads_several(self, fragment: Nest) -> bool:
        """Whether a value is made of several dense arrays, so that it is cheaper to read where it is stored anyway."""
        arrays = {a.tensor.name for a in cin.accesses(fragment.value) if a.indices}
        return len(arrays) > 1 and all(a.tensor.format.is_dense for a in cin.accesses(fragment.value))

    def _step(self, var: Var, fragment: Nest) -> KernelStep:
        nest = _once(replace(fragment, value=simplify.simplify(fragment.value)))
        return replace(canonical(nest, var, self.vars), notes=self.notes.get(var, ()))


def _is_view(fragment: Nest) -> bool:
    """Whether the value is another variable's, indexed in another way."""
    return not fragment.producers and isinstance(fragment.value, cin.Access)


def _once(nest: Nest) -> Nest:
    """A sum of products with its dense factors summed first, where the result has a variable that they lack.

    before:  out[i,j,b] += A[i,j,b] * U[i,k] * W[j,k]
    after:   out[i,j,b] = A[i,j,b] * w[i,j],  w[i,j] += U[i,k] * W[j,k]

    Under a mask likewise, which then holds where the result is computed.
    """
    if not nest.direct or nest.op != "add" or len(nest.producers) != 1 or nest.output.format.is_dense:
        return nest
    if not cin.are_variables(nest.indices):
        return nest
    product, condition = nest.producers[0].rhs, None
    if (
        isinstance(product, cin.Call)
        and product.op == "masked"
        and not set(cin.variables(product.args[0])) - {*nest.indices}
    ):
        condition, product, _ = product.args
    factors = _factors(product)
    own = [f for f in factors if set(cin.variables(f)) <= set(nest.indices)]
    rest = [f for f in factors if f not in own]
    read = [a for f in rest for a in cin.accesses(f)]
    shared = tuple(v for v in nest.indices if v in {ix for a in read for ix in a.indices})
    extents = {ix: n for a in (*read, *cin.accesses(product)) for ix, n in zip(a.indices, a.tensor.shape, strict=True)}
    dense = all(a.tensor.format.is_dense for a in read) and 0 not in extents.values()
    if not own or not rest or not dense or len(shared) == len(nest.indices):
        return nest
    dtype = product.dtype
    made = cin.Tensor(
        nest.producers[0].target.tensor.name,
        tuple(extents[v] for v in shared),
        dtype,
        Format.parse("dense", len(shared)),
        dtype.type(0),
    )
    target = cin.Access(made, shared)
    value = _product([*own, target])
    if condition is not None:
        value = cin.Call(
            "masked", (condition, value, simplify.literal(nest.output.fill_value, value.dtype)), value.dtype
        )
    return replace(nest, producers=(Producer(target, "add", _product(rest)),), value=value)


def _factors(expr: cin.Expr) -> list[cin.Expr]:
    if isinstance(expr, cin.Call) and expr.op == "multiply" and all(a.dtype == expr.dtype for a in expr.args):
        return [f for a in expr.args for f in _factors(a)]
    return [expr]


def _product(factors: Sequence[cin.Expr]) -> cin.Expr:
    return functools.reduce(lambda x, y: cin.Call("multiply", (x, y), x.dtype), factors)


def _scatters(eqn: Eqn) -> bool:
    """Whether a result is stored at the pattern of its mask and sums what sparse operands lead to: by itself it is accumulated in
    any loop order (`shared_patterns`), inside another kernel only in the order of its storage."""
    params = eqn.param_dict
    if params.get("mask") != "pattern":
        return False
    output = set(params["output"])
    return any(
        not a.aval.is_dense and not output.issuperset(labels)
        for a, labels in zip(eqn.inputs, params["inputs"], strict=False)
    )


def tensor_of(name: str, aval: Aval) -> cin.Tensor:
    """The CIN tensor of an abstract value."""
    return cin.Tensor(name, aval.shape, aval.dtype, aval.format, aval.fill_value)


def entrywise(fragment: Nest, aval: Aval) -> bool:
    """Whether the result of `fragment` has no entry exactly where its value falls back to the fill.

    The outer sum of two sparse vectors is dense: where both are absent it holds the number 0, and inlined it would not.
    """
    lacking = {a for a in cin.accesses(fragment.value) if a.tensor.lacks}
    if fragment.producers or not isinstance(simplify.exhaust(fragment.value, lacking), cin.Literal):
        return True
    order, sparse = aval.format.order, max(aval.format.sparse, default=-1)
    whole = {fragment.indices[d] for d in order[sparse + 1 :]}
    return not any(
        a.level_index(k) in whole and not level.full for a in lacking for k, level in enumerate(a.tensor.format.levels)
    )


def canonical(nest: Nest, output: Var, variables: dict[str, Var]) -> KernelStep:
    """`nest` with one tensor per access (A, B, …), workspaces w, w1, … and indices i, j, k, …; equal kernels of
    different programs so become the same text."""
    read = {a.tensor.name for a in cin.accesses(nest.value)}
    used: list[Producer] = []
    for p in reversed(nest.producers):
        if p.target.tensor.name in read:
            used.insert(0, p)
            read.update(a.tensor.name for a in cin.accesses(p.rhs))
    nest = Nest(nest.output, nest.indices, tuple(used), nest.value)
    letters = "ijklmnopqrstuvwxyz"
    names: dict[cin.Index, cin.Index] = {}
    for k, var in enumerate(nest.variables):
        names[var] = cin.IndexVar(letters[k] if k < len(letters) else f"i{k}")
    arguments: list[Var] = []
    tensors: dict[cin.Access, cin.Expr] = {}
    for access in nest.reads:
        fresh = _tensor_name(len(arguments))
        arguments.append(variables[access.tensor.name])
        form = access.tensor.format
        form = legalize.without_lone_coordinates(form) if any(level.chained for level in form.levels) else form
        tensors[access] = cin.Access(access.tensor._replace(name=fresh, format=form), access.indices)
    made = nest.respelled(tensors, [f"w{k or ''}" for k in range(len(nest.producers))], names)
    by_name = {_tensor_name(k): v for k, v in enumerate(arguments)}
    return KernelStep(made, tuple(by_name[t.name] for t in made.inputs), output)


def _tensor_name(k: int) -> str:
    letters = "ABCDEFGHKLMNPQRSTUVXYZ"
    return letters[k] if k < len(letters) else f"T{k}"
