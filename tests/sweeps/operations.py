"""The public operations, each as a function of one or two matrices, for sweeps over transformations, formats and dtypes.

`missing` names what is public and has no line here, so that a new function without one fails a test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import lax, nn, random
from sparsejax.core.trace import eagerly
from sparsejax.scipy.sparse import linalg
from tests.autodiff.checks import array

N, M = 4, 5
FORMATS = [
    "dense",
    "csr",
    "csc",
    "coo",
    "dcsr",
    "bsr:2x2",
    "ell",
    "groupcoo:2",
    "blockgroupcoo:2x2:2",
    "dia",
    "banded",
    "bitmap",
    "hash",
    "rle",
    "lil",
    "(c,d)@(1,0)",
    "(d,n)",
]


@dataclass(frozen=True)
class Operation:
    """`function` of `arity` matrices of `shape`, whose values are of magnitudes from `low` to `high`.

    `smooth`: it has derivatives that are not zero everywhere; `holomorphic`: for complex numbers too; `twice`: second derivatives
    can be compared with differences; `kind`: the dtypes it takes (float, integer, bool).
    """

    function: Callable[..., Any]
    arity: int = 1
    low: float = 0.3
    high: float = 1.7
    signed: bool = True
    shape: tuple[int, ...] = (N, M)
    smooth: bool = True
    complex: bool = True
    twice: bool = True
    kind: str = "f"


def other(shape, form="dense", seed=6, **extra):
    """An operand that is the same for all."""
    with eagerly():
        return array(np.random.default_rng(seed), shape, form, **extra)


def _square(f):
    return Operation(f, shape=(N, N))


def _system(x):
    """A well-conditioned matrix that depends on `x`."""
    return snp.tanh(snp.real(x)) * 0.2 + sj.array(3 * np.eye(N), format="csr")


def _definite(x):
    s = snp.tanh(snp.real(x)) * 0.2
    return s @ s.T + sj.array(3 * np.eye(N), format="csr")


@sj.custom_jvp
def _own_jvp(x):
    return snp.sin(x)


@_own_jvp.defjvp
def _(primals, tangents):
    return _own_jvp(*primals), snp.cos(primals[0]) * tangents[0]


@sj.custom_vjp
def _own_vjp(x):
    return snp.sin(x)


_own_vjp.defvjp(lambda x: (_own_vjp(x), x), lambda x, ct: (ct * snp.cos(x),))

IDS = np.array([2, 0, 2, 1])
"""Segments of rows."""

OPERATIONS: dict[str, Operation] = {}


def add_lines(prefix: str, **named: Any) -> None:
    for name, made in named.items():
        OPERATIONS[f"{prefix}.{name.rstrip('_')}"] = made if isinstance(made, Operation) else Operation(made)


# ------------------------------------------------------------------------------------------------------ elementwise

for _name in [
    "negative",
    "positive",
    "square",
    "exp",
    "exp2",
    "expm1",
    "sin",
    "cos",
    "sinh",
    "cosh",
    "tanh",
    "arctan",
    "arcsinh",
    "reciprocal",
    "conjugate",
    "conj",
]:
    OPERATIONS[f"np.{_name}"] = Operation(getattr(snp, _name))
for _name in ["sqrt", "log", "log2", "log10", "log1p"]:
    OPERATIONS[f"np.{_name}"] = Operation(getattr(snp, _name), signed=False)
for _name in ["absolute", "abs", "real", "imag"]:
    OPERATIONS[f"np.{_name}"] = Operation(getattr(snp, _name))
for _name in ["cbrt"]:
    OPERATIONS[f"np.{_name}"] = Operation(getattr(snp, _name), complex=False)
OPERATIONS["np.tan"] = Operation(snp.tan, high=1.2)
for _name in ["erf", "logistic"]:
    OPERATIONS[f"np.{_name}"] = Operation(getattr(snp, _name), complex=False)
for _name in ["arcsin", "arccos", "arctanh"]:
    OPERATIONS[f"np.{_name}"] = Operation(getattr(snp, _name), high=0.9)
OPERATIONS["np.arccosh"] = Operation(lambda x: snp.arccosh(x * x + 1.5), low=0.5)
for _name in ["sign", "floor", "ceil", "trunc", "rint", "signbit", "isnan", "isinf", "isfinite", "logical_not"]:
    OPERATIONS[f"np.{_name}"] = Operation(getattr(snp, _name), smooth=False, complex=False)
OPERATIONS["np.invert"] = Operation(snp.invert, smooth=False, complex=False, kind="i")
for _name in ["add", "subtract", "multiply"]:
    OPERATIONS[f"np.{_name}"] = Operation(getattr(snp, _name), arity=2)
for _name in ["maximum", "minimum", "fmax", "fmin", "copysign", "logaddexp"]:
    OPERATIONS[f"np.{_name}"] = Operation(getattr(snp, _name), arity=2, complex=False)
for _name in ["power", "pow"]:
    OPERATIONS[f"np.{_name}"] = Operation(getattr(snp, _name), arity=2, signed=False)
for _name in ["divide", "true_divide", "remainder", "mod", "arctan2", "hypot"]:  # without zeros of both operands
    OPERATIONS[f"np.{_name}"] = Operation(
        lambda x, y, name=_name: getattr(snp, name)(x, y * y + 1.8), arity=2, complex="div" in _name, signed=False
    )
for _name in [
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "logical_and",
    "logical_or",
    "logical_xor",
    "floor_divide",
    "isclose",
]:
    OPERATIONS[f"np.{_name}"] = Operation(getattr(snp, _name), arity=2, smooth=False, complex=False)
for _name in ["bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"]:
    OPERATIONS[f"np.{_name}"] = Operation(
        getattr(snp, _name), arity=2, smooth=False, complex=False, kind="i", signed=False
    )
add_lines(
    "np",
    **{
        "power:number": lambda x: x**3,
        "power:one half": Operation(lambda x: x**0.5, signed=False),
        "add:number": lambda x: x + 1,
        "divide:number": lambda x: x / 2.5,
        "multiply:row": lambda x: x * other((M,)),
        "multiply:column": lambda x: x * other((N, 1), "csr"),
        "where": Operation(lambda x, y: snp.where(x > 0.5, x, y), 2, complex=False),
        "where:condition": Operation(lambda x, y: snp.where(other((N, M)) > 0, x, y), 2),
        "clip": Operation(lambda x: snp.clip(x, -1, 1), complex=False),
        "round": Operation(lambda x: snp.round(x, 1), smooth=False, complex=False),
        "nan_to_num": snp.nan_to_num,
        "allclose": Operation(snp.allclose, 2, smooth=False, complex=False),
        "array_equal": Operation(snp.array_equal, 2, smooth=False),
        "full_like": Operation(lambda x: snp.full_like(x, 2), smooth=False),
        "ones_like": Operation(snp.ones_like, smooth=False),
        "zeros_like": Operation(snp.zeros_like, smooth=False),
    },
)

# ------------------------------------------------------------------------------------------------------ contractions

add_lines(
    "np",
    **{
        "einsum": lambda x: sj.einsum("ij,ik,jk->ij", x, other((N, 2)), other((M, 2))),
        "einsum:two": Operation(lambda x, y: sj.einsum("ij,kj->ik", x, y), 2),
        "einsum:transpose": lambda x: sj.einsum("ij->ji", x),
        "einsum:diagonal": lambda x: sj.einsum("ii->i", x[:, :N]),
        "einsum:trace": lambda x: sj.einsum("ii", x[:, :N]),
        "einsum:diagonal of two": Operation(lambda x, y: sj.einsum("iij,ij->j", x[:, :N, None] * y[:, None, :], y), 2),
        "einsum:to diagonal": lambda x: sj.einsum("ij,jk->ik", x, snp.diag(other((M,)))),
        "einsum:broadcast": lambda x: sj.einsum("...j,...j->...", x, other((M,))),
        "einsum:mask": Operation(lambda x, y: sj.einsum("ik,jk->ij", x, y[:, :M], mask=other((N, N), "csr")), 2),
        "einsum:complement": Operation(
            lambda x, y: sj.einsum("ik,jk->ij", x, y, mask=other((N, N), "csr"), complement=True), 2
        ),
        "einsum:three": Operation(lambda x, y: sj.einsum("ij,kj,kl->il", x, y, x), 2),
        "matmul": Operation(lambda x, y: x @ y.T, 2),
        "matmul:vector": lambda x: x @ other((M,)),
        "matmul:left": lambda x: other((N,)) @ x,
        "matmul:dense": lambda x: x @ other((M, 3)),
        "matmul:csr": lambda x: x @ other((M, 6), "csr"),
        "matmul:stacked": lambda x: snp.stack([x, x]) @ other((2, M, 3)),
        "tensordot": Operation(lambda x, y: snp.tensordot(x, y, ((1,), (1,))), 2),
        "dot": Operation(lambda x, y: snp.dot(x, y.T), 2),
        "vdot": Operation(snp.vdot, 2),
        "inner": Operation(snp.inner, 2),
        "outer": Operation(lambda x, y: snp.outer(x[0], y[1]), 2),
        "kron": Operation(lambda x, y: snp.kron(x[:2, :2], y[:2, :3]), 2),
    },
)
for _ring in ["min_plus", "max_plus", "max_times", "min_max", "plus_min", "plus_max"]:
    OPERATIONS[f"np.einsum:{_ring}"] = Operation(
        lambda x, y, ring=_ring: sj.einsum("ij,kj->ik", x, y, semiring=ring), 2, complex=False
    )
add_lines(
    "np",
    **{
        "einsum:masked min_plus": Operation(
            lambda x, y: sj.einsum("ij,kj->ik", x, y, semiring="min_plus", mask=other((N, N), "csr")), 2, complex=False
        ),
        "einsum:min_plus diagonal": Operation(
            lambda x, y: sj.einsum("ii,ij->j", x[:, :N], y, semiring="min_plus"), 2, complex=False
        ),
        "einsum:broadcast min_plus": Operation(
            lambda x, y: sj.einsum("ij,ij->i", x[:1], y, semiring="min_plus"), 2, complex=False
        ),
        "einsum:or_and": Operation(
            lambda x, y: sj.einsum("ij,kj->ik", x > 0, y > 0, semiring="or_and"), 2, smooth=False, complex=False
        ),
    },
)

# -------------------------------------------------------------------------------------------------------- reductions

for _name in ["sum", "mean"]:
    _f = getattr(snp, _name)
    add_lines(
        "np",
        **{
            _name: _f,
            f"{_name}:0": lambda x, f=_f: f(x, axis=0),
            f"{_name}:1": lambda x, f=_f: f(x, axis=1, keepdims=True),
        },
    )
for _name in ["max", "min", "prod", "std", "var", "nansum", "nanmax", "nanmin", "nanmean", "median", "amax", "amin"]:
    _f = getattr(snp, _name)
    _c = _name in ("prod", "nansum", "nanmean", "std", "var")
    _s = (2 * N, 2 * M) if _name == "std" else (N, M)  # where all of a line are equal, it has no derivative
    add_lines(
        "np",
        **{
            _name: Operation(_f, complex=_c, shape=_s),
            f"{_name}:0": Operation(lambda x, f=_f: f(x, axis=0), complex=_c, shape=_s),
            f"{_name}:1": Operation(lambda x, f=_f: f(x, axis=1, keepdims=True), complex=_c, shape=_s),
        },
    )
for _name in ["any", "all", "count_nonzero", "argmax", "argmin"]:
    _f = getattr(snp, _name)
    add_lines(
        "np",
        **{
            _name: Operation(lambda x, f=_f: f(x), smooth=False, complex=False),
            f"{_name}:0": Operation(lambda x, f=_f: f(x, axis=0), smooth=False, complex=False),
            f"{_name}:1": Operation(lambda x, f=_f: f(x, axis=1), smooth=False, complex=False),
        },
    )
add_lines(
    "np",
    **{
        "cumsum": snp.cumsum,
        "cumsum:0": lambda x: snp.cumsum(x, axis=0),
        "cumsum:1": lambda x: snp.cumsum(x, axis=1),
        "trace": lambda x: snp.trace(x, 1),
        "linalg.norm": lambda x: snp.linalg.norm(x),
        "linalg.norm:rows": Operation(lambda x: snp.linalg.norm(x, axis=1)),
        "linalg.norm:1": Operation(lambda x: snp.linalg.norm(x, ord=1), complex=False),
        "linalg.norm:vector 3": Operation(lambda x: snp.linalg.norm(x, ord=3, axis=0), complex=False),
        "linalg.norm:inf": Operation(lambda x: snp.linalg.norm(x, ord=np.inf, axis=0), complex=False),
        "linalg.trace": snp.linalg.trace,
        "linalg.diagonal": lambda x: snp.linalg.diagonal(x, offset=1),
    },
)

# --------------------------------------------------------------------------------------------------------- structure

add_lines(
    "np",
    **{
        "transpose": snp.transpose,
        "reshape": lambda x: snp.reshape(x, (M, N)),
        "reshape:split": lambda x: snp.reshape(x, (2, 2, M)),
        "ravel": snp.ravel,
        "broadcast_to": lambda x: snp.broadcast_to(x, (2, N, M)),
        "broadcast_to:column": lambda x: snp.broadcast_to(x[:, :1], (N, 3)),
        "expand_dims": lambda x: snp.expand_dims(x, 1),
        "squeeze": lambda x: snp.squeeze(x[:1], 0),
        "moveaxis": lambda x: snp.moveaxis(x[None], 0, 2),
        "swapaxes": lambda x: snp.swapaxes(x, 0, 1),
        "diagonal": lambda x: snp.diagonal(x, 1),
        "diag": lambda x: snp.diag(x, -1),
        "diag:matrix": lambda x: snp.diag(x[1], 1),
        "tril": lambda x: snp.tril(x, -1),
        "triu": lambda x: snp.triu(x, 1),
        "concatenate": lambda x: snp.concatenate([x, x * 2, other((1, M), "csr")]),
        "concatenate:dense": lambda x: snp.concatenate([x, other((N, 2))], axis=1),
        "concatenate:two": Operation(lambda x, y: snp.concatenate([x, y], axis=1), 2),
        "stack": Operation(lambda x, y: snp.stack([x, y], axis=1), 2),
        "vstack": Operation(lambda x, y: snp.vstack([x, y]), 2),
        "hstack": Operation(lambda x, y: snp.hstack([x, y]), 2),
        "dstack": Operation(lambda x, y: snp.dstack([x, y]), 2),
        "column_stack": Operation(lambda x, y: snp.column_stack([x, y[:, 0]]), 2),
        "split": lambda x: snp.split(x, [1, 3], axis=1)[1],
        "flip": lambda x: snp.flip(x, 1),
        "fliplr": snp.fliplr,
        "flipud": snp.flipud,
        "rot90": snp.rot90,
        "roll": lambda x: snp.roll(x, 2, axis=1),
        "roll:all": lambda x: snp.roll(x, 3),
        "tile": lambda x: snp.tile(x, (2, 1)),
        "repeat": lambda x: snp.repeat(x, 2, axis=1),
        "repeat:counts": lambda x: snp.repeat(x, [1, 0, 2, 1], axis=0),
        "take": lambda x: snp.take(x, np.array([2, 0, 2]), axis=1),
        "take:flat": lambda x: snp.take(x, np.array([[2, 7], [0, 7]])),
        "take_along_axis": lambda x: snp.take_along_axis(x, np.array([[1, 0], [2, 2], [4, 1], [0, 0]]), 1),
        "copy": snp.copy,
        "array": Operation(lambda x: snp.array(x), kind="fi"),
        "asarray": lambda x: snp.asarray(x),
        "asformat": lambda x: snp.asformat(x, "csc"),
        "sort": Operation(lambda x: snp.sort(x, 1), complex=False),
        "sort:0": Operation(lambda x: snp.sort(x, 0), complex=False),
        "sort:flat": Operation(lambda x: snp.sort(x, None), complex=False),
        "argsort": Operation(lambda x: snp.argsort(x, 1), smooth=False, complex=False),
        "nonzero": Operation(lambda x: snp.stack(list(snp.nonzero(x, size=9))), smooth=False),
        "flatnonzero": Operation(lambda x: snp.flatnonzero(x, size=9), smooth=False),
        "argwhere": Operation(lambda x: snp.argwhere(x, size=9), smooth=False),
        "unique": Operation(lambda x: snp.unique(x, size=6), smooth=False, complex=False),
        "unique:counts": Operation(
            lambda x: snp.unique(snp.round(x), return_counts=True, size=6)[1], smooth=False, complex=False
        ),
    },
)
for _form in FORMATS:
    if _form != "(d,n)":
        OPERATIONS[f"np.asformat:{_form}"] = Operation(lambda x, form=_form: snp.asformat(x, form))
add_lines(
    "array",
    **{
        "getitem:window": lambda x: x[1:, ::2],
        "getitem:backwards": lambda x: x[::-1, 1:4],
        "getitem:row": lambda x: x[1],
        "getitem:element": lambda x: x[1, 2],
        "getitem:gather": lambda x: x[np.array([2, 0, 2])],
        "getitem:pairs": lambda x: x[np.array([2, 0, 2]), np.array([1, 1, 4])],
        "getitem:grid": lambda x: x[np.array([[2], [0]]), np.array([1, 4])],
        "getitem:mask": lambda x: x[np.array([True, False, True, True])],
        "getitem:newaxis": lambda x: x[:, None, 1:],
        "getitem:traced": lambda x: x[snp.argmax(snp.real(x), axis=0) % N],
        "at:set": lambda x: x.at[np.array([2, 0])].set(1.5),
        "at:set values": Operation(lambda x, y: x.at[1:3].set(y[:2]), 2),
        "at:add": Operation(lambda x, y: x.at[np.array([2, 0, 2])].add(y[:3]), 2),
        "at:min": Operation(lambda x, y: x.at[np.array([2, 0])].min(y[:2]), 2, complex=False),
        "at:max": Operation(lambda x, y: x.at[np.array([2, 0, 2])].max(y[:3]), 2, complex=False),
        "at:get": lambda x: x.at[1].get(),
        "astype": Operation(lambda x: x.astype("c16")),
        "astype:int": Operation(lambda x: x.astype("i4"), smooth=False, complex=False),
    },
)

# -------------------------------------------------------------------------------------------------------- sparsejax.nn

for _name in ["elu", "gelu", "leaky_relu", "relu", "sigmoid", "silu", "softplus", "tanh"]:
    OPERATIONS[f"nn.{_name}"] = Operation(getattr(nn, _name), complex=False)
for _name in ["softmax", "log_softmax", "logsumexp"]:
    _f = getattr(nn, _name)
    for _axis in (0, 1, None):
        OPERATIONS[f"nn.{_name}:{_axis}"] = Operation(lambda x, f=_f, axis=_axis: f(x, axis=axis), complex=False)
for _name in ["segment_max", "segment_mean", "segment_min", "segment_softmax", "segment_sum"]:
    OPERATIONS[f"nn.{_name}"] = Operation(lambda x, name=_name: getattr(nn, name)(x, IDS, 3), complex=False)
add_lines(
    "nn",
    linear=Operation(lambda x, y: nn.linear(x, y[:3].T, other((3,))), 2, complex=False),
    dropout=Operation(lambda x: nn.dropout(random.key(3), x, 0.4), complex=False),
    dot_product_attention=Operation(
        lambda x, y: nn.dot_product_attention(x, y, y, mask=other((N, N), "csr", density=0.8) != 0), 2, complex=False
    ),
    one_hot=Operation(lambda x: nn.one_hot(snp.argmax(x, axis=1), M), smooth=False, complex=False),
    embed=Operation(lambda x: nn.embed(x, np.array([2, 0, 2])), complex=False),
    softmax_cross_entropy_with_integer_labels=Operation(
        lambda x: nn.softmax_cross_entropy_with_integer_labels(x.asformat("dense"), np.arange(N)), complex=False
    ),
    softmax_cross_entropy=Operation(
        lambda x, y: nn.softmax_cross_entropy(x.asformat("dense"), y * y), 2, complex=False
    ),
    mean_squared_error=Operation(nn.mean_squared_error, 2, complex=False),
    adam=Operation(lambda x, y: nn.adam(0.1).update(x, nn.adam(0.1).init(y), y)[0], 2, complex=False),
    adamw=Operation(lambda x, y: nn.adamw(0.1).update(x, nn.adamw(0.1).init(x), x)[0], 2, complex=False),
    sgd=Operation(
        lambda x: nn.sgd(0.1, momentum=0.9).update(x, nn.sgd(0.1, momentum=0.9).init(x), x)[0], complex=False
    ),
    apply_updates=Operation(lambda x: nn.apply_updates(x, x * 2), complex=False),
)

# ------------------------------------------------------------------------------------------------- lax, solvers, random

add_lines(
    "lax",
    **{
        "cond": Operation(lambda x: lax.cond(snp.sum(snp.real(x)) > 0.1, lambda c: snp.sin(c), lambda c: c * 2, x)),
        "switch": lambda x: lax.switch(
            snp.argmax(snp.abs(x).sum(axis=1)) % 3, [snp.sin, lambda c: c * 2, lambda c: c], x
        ),
        "scan": lambda x: lax.scan(lambda c, row: (snp.tanh(c + row.sum()), snp.sin(row) * c), snp.sum(x) * 0.1, x)[1],
        "scan:sparse": lambda x: lax.scan(lambda c, w: (snp.sin(c) * w, c.sum()), x, np.array([1.0, 0.5], "f4"))[0],
        "map": lambda x: lax.map(lambda row: snp.sin(row) * row.sum(), x),
        "fori_loop": lambda x: lax.fori_loop(0, 3, lambda i, c: snp.sin(c) * 1.5, x),
        "while_loop": Operation(
            lambda x: lax.while_loop(lambda s: snp.abs(s).sum() > 1.0, lambda s: s * 0.5, x), smooth=False
        ),
        "top_k": Operation(lambda x: lax.top_k(x, 2)[0], complex=False),
        "top_k:0": Operation(lambda x: lax.top_k(x, 2, axis=0)[0], complex=False),
        "top_k:indices": Operation(lambda x: lax.top_k(x, 2)[1], complex=False, smooth=False),
        "pattern": Operation(lambda x: lax.pattern(x), smooth=False),
        "entries": Operation(lambda x: lax.entries(x), smooth=False),
        "refill": lambda x: lax.refill(x, 0),
        "reduce": lambda x: lax.reduce("sum", x, 1),
        "convert_element_type": Operation(lambda x: lax.convert_element_type(x, "c16")),
        "elementwise": lambda x: lax.elementwise("sin", x),
    },
)
add_lines(
    "sj",
    checkpoint=lambda x: sj.checkpoint(lambda x: snp.sin(snp.sin(x)))(x),
    custom_jvp=_own_jvp,
    custom_vjp=Operation(_own_vjp, twice=False),
    stop_gradient=Operation(lambda x: sj.stop_gradient(x) * x, smooth=False),
    grad=Operation(lambda x: sj.grad(lambda x: snp.sin(x).sum())(x), complex=False),
    jit=lambda x: sj.jit(snp.sin)(x),
    vmap=lambda x: sj.vmap(lambda r: snp.sin(r) * r.sum())(x),
    jacfwd=Operation(lambda x: sj.jacfwd(lambda v: snp.sin(v) * v.sum())(x[0].asformat("dense")), complex=False),
)
add_lines(
    "linalg",
    spsolve=Operation(lambda x: linalg.spsolve(_system(x), other((N,))), shape=(N, N), complex=False),
    **{
        "spsolve:right": Operation(
            lambda x: linalg.spsolve(other((N, N)) + 4 * np.eye(N), x.asformat("dense")), shape=(N, N), complex=False
        ),
        "cg": Operation(lambda x: linalg.cg(_definite(x), other((N,)), tol=1e-14)[0], shape=(N, N), complex=False),
        "gmres": Operation(lambda x: linalg.gmres(_system(x), other((N,)), tol=1e-14)[0], shape=(N, N), complex=False),
    },
)
add_lines(
    "random",
    **{
        "uniform:like": Operation(lambda x: x * random.uniform(random.key(1), like=x), complex=False),
        "normal": Operation(lambda x: x * random.normal(random.key(1), (N, M)), complex=False),
        "bernoulli": Operation(lambda x: x * random.bernoulli(random.key(1), 0.5, (N, M)), complex=False),
        "permutation": Operation(lambda x: random.permutation(random.key(1), x), complex=False),
        "randint": Operation(lambda x: x * random.randint(random.key(1), (N, M), 1, 5), complex=False),
        "bits": Operation(lambda x: x + random.bits(random.key(1), (N, M)) % 2, smooth=False, complex=False),
    },
)

CREATION = [
    "np.arange",
    "np.eye",
    "np.full",
    "np.identity",
    "np.linspace",
    "np.ones",
    "np.zeros",
    "np.ndim",
    "np.shape",
    "np.size",
    "np.linalg",
    "lax.Semiring",
    "lax.contract",
    "lax.contract_p",
    "lax.broadcast_to",
    "lax.convert_format",
    "lax.einsum",
    "lax.reshape",
    "lax.transpose",
    "lax.where",
    "nn.Optimizer",
    "np.astype",
    "np.broadcast_shapes",
    "np.can_cast",
    "np.empty",
    "np.empty_like",
    "np.finfo",
    "np.from_dlpack",
    "np.iinfo",
    "np.isdtype",
    "np.issubdtype",
    "np.promote_types",
    "np.result_type",
    "np.tri",
    "lax.broadcasted_iota",
    "lax.full",
    "lax.iota",
]
"""What takes no array, has another line, or is no function of arrays."""

SIZES = [
    "np.histogram_bin_edges",
    "np.intersect1d",
    "np.setdiff1d",
    "np.setxor1d",
    "np.union1d",
    "np.unique_all",
    "np.unique_counts",
    "np.unique_inverse",
    "np.unique_values",
]
"""Functions whose results have as many elements as their values say: they cannot be traced (`tests/surface/test_more_numpy`)."""


def missing() -> list[str]:
    """Public functions that are nowhere in the table, by this name or another."""
    modules = {"np": snp, "lax": lax, "nn": nn}
    known = {name.split(":")[0] for name in OPERATIONS} | {*CREATION, *SIZES}
    swept = {getattr(modules[m], n, None) for m, _, n in (name.partition(".") for name in known) if m in modules}
    found = []
    for prefix, module in modules.items():
        names = [n for n in module.__all__ if callable(getattr(module, n)) and not isinstance(getattr(module, n), type)]
        found += [f"{prefix}.{n}" for n in names if f"{prefix}.{n}" not in known and getattr(module, n) not in swept]
    return found
