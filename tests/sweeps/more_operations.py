"""More lines of the table `tests.sweeps.operations`: functions of `lax`, of statistics and sets, and of dense linear algebra."""

from __future__ import annotations

from functools import partial

import numpy as np

import sparsejax as sj
import sparsejax.numpy as snp
from sparsejax import lax, nn
from sparsejax.scipy.sparse import linalg
from tests.sweeps.operations import OPERATIONS, M, N, Operation, _definite, _system, add_lines, other

IDS = np.array([2, 0, 2, 1])


def _spd(x):
    """A symmetric, positive definite, dense matrix that depends on `x`."""
    s = snp.tanh(snp.real(x)).asformat("dense") * 0.3
    return s @ s.T + 2 * np.eye(x.shape[0])


def _own_root(x):
    """The y with y ** 3 + y = x, entry by entry."""

    def solve(f, y):
        for _ in range(40):
            y = y - f(y) / (3 * y * y + 1)
        return y

    x = x.asformat("dense")
    return lax.custom_root(lambda y: y**3 + y - x, x * 0, solve, lambda g, y: y / g(snp.ones_like(y)))


def _own_solve(x):
    """Three by a linear solve of its own: 2 y = x."""
    return lax.custom_linear_solve(
        lambda y: y * 2.0, x.asformat("dense"), lambda _, b: b / 2.0, lambda _, b: b / 2.0, symmetric=True
    )


# ------------------------------------------------------------------------------------------------------ elementwise

NUMPY_SMOOTH = ["angle", "deg2rad", "degrees", "fabs", "rad2deg", "radians", "sinc"]
for _name in NUMPY_SMOOTH:
    OPERATIONS[f"np.{_name}"] = Operation(getattr(snp, _name), complex=False)
for _name in ["fix", "iscomplex", "isneginf", "isposinf", "isreal"]:
    OPERATIONS[f"np.{_name}"] = Operation(getattr(snp, _name), smooth=False, complex=False)
add_lines(
    "np",
    diff=lambda x: snp.diff(x, axis=1),
    divmod=Operation(lambda x, y: snp.divmod(x, y * y + 1.8)[1], 2, complex=False, smooth=False, signed=False),
    float_power=Operation(lambda x: snp.float_power(x, 3), signed=False, complex=False),
    heaviside=Operation(lambda x: snp.heaviside(x, 0.5), smooth=False, complex=False),
    logaddexp2=Operation(snp.logaddexp2, 2, complex=False),
    nextafter=Operation(snp.nextafter, 2, smooth=False, complex=False),
    interp=Operation(lambda x: snp.interp(x, np.linspace(-3, 3, 7), np.arange(7.0) ** 2), smooth=False, complex=False),
    fmod=Operation(lambda x, y: snp.fmod(x, y * y + 0.1), 2, complex=False),
    convolve=lambda x: snp.convolve(x[0], x[1]),
    correlate=lambda x: snp.correlate(x[0], x[1], "full"),
    delete=lambda x: snp.delete(x, [1, 3], axis=1),
    gradient=lambda x: snp.gradient(x, axis=0),
    insert=lambda x: snp.insert(x, 2, x[0, 1], axis=1),
    lexsort=Operation(lambda x: snp.lexsort((x[1], x[0])), smooth=False, complex=False),
    piecewise=Operation(lambda x: snp.piecewise(x, [x < 0], [lambda v: v * v, lambda v: 3 * v]), complex=False),
    put_along_axis=lambda x: snp.put_along_axis(x, IDS[:, None], x[:, :1], axis=1),
    select=Operation(lambda x: snp.select([x > 1, x < -1], [x * x, 2 * x], 0), complex=False),
    trapezoid=lambda x: snp.trapezoid(x, dx=0.5, axis=1),
)
LAX_SMOOTH = [
    "cos",
    "cosh",
    "exp",
    "exp2",
    "expm1",
    "neg",
    "reciprocal",
    "sin",
    "sinh",
    "square",
    "tanh",
    "asinh",
    "atan",
    "conj",
]
for _name in LAX_SMOOTH:
    OPERATIONS[f"lax.{_name}"] = Operation(getattr(lax, _name))
for _name in ["sqrt", "log", "log1p"]:
    OPERATIONS[f"lax.{_name}"] = Operation(getattr(lax, _name), signed=False)
for _name in ["abs", "cbrt", "erfc"]:
    OPERATIONS[f"lax.{_name}"] = Operation(getattr(lax, _name), complex=False)
for _name in ["lgamma", "digamma", "rsqrt"]:
    OPERATIONS[f"lax.{_name}"] = Operation(
        partial(lambda f, x: f(x * x + 1.2), getattr(lax, _name)), complex=_name == "rsqrt", twice=_name == "rsqrt"
    )
OPERATIONS["lax.tan"] = Operation(lax.tan, high=1.2)
OPERATIONS["lax.acosh"] = Operation(lambda x: lax.acosh(x * x + 1.5), low=0.5)
for _name in ["acos", "asin", "atanh"]:
    OPERATIONS[f"lax.{_name}"] = Operation(getattr(lax, _name), high=0.9)
OPERATIONS["lax.erf_inv"] = Operation(lax.erf_inv, high=0.9, complex=False)
for _name in ["sign", "floor", "ceil", "round", "is_finite"]:
    OPERATIONS[f"lax.{_name}"] = Operation(getattr(lax, _name), smooth=False, complex=False)
for _name in ["add", "sub", "mul"]:
    OPERATIONS[f"lax.{_name}"] = Operation(getattr(lax, _name), 2)
for _name in ["max", "min"]:
    OPERATIONS[f"lax.{_name}"] = Operation(getattr(lax, _name), 2, complex=False)
for _name in ["div", "rem", "atan2"]:
    OPERATIONS[f"lax.{_name}"] = Operation(
        partial(lambda f, x, y: f(x, y * y + 1.8), getattr(lax, _name)), 2, complex=_name == "div", signed=False
    )
OPERATIONS["lax.pow"] = Operation(lax.pow, 2, signed=False)
for _name in ["eq", "ne", "lt", "le", "gt", "ge", "nextafter"]:
    OPERATIONS[f"lax.{_name}"] = Operation(getattr(lax, _name), 2, smooth=False, complex=False)
for _name in ["bitwise_and", "bitwise_or", "bitwise_xor", "shift_left"]:
    OPERATIONS[f"lax.{_name}"] = Operation(getattr(lax, _name), 2, smooth=False, complex=False, kind="i", signed=False)
OPERATIONS["lax.bitwise_not"] = Operation(lax.bitwise_not, smooth=False, complex=False, kind="i")
for _name in ["igamma", "igammac"]:
    OPERATIONS[f"lax.{_name}"] = Operation(
        partial(lambda f, x: f(1.7, x * x + 0.2), getattr(lax, _name)), complex=False, twice=False
    )
for _name in ["celu", "hard_sigmoid", "hard_tanh", "log_sigmoid", "relu6", "selu", "soft_sign", "swish"]:
    OPERATIONS[f"nn.{_name}"] = Operation(getattr(nn, _name), complex=False)
for _name in ["layer_norm", "rms_norm", "standardize", "batch_norm"]:
    OPERATIONS[f"nn.{_name}"] = Operation(getattr(nn, _name), complex=False)

# ---------------------------------------------------------------------------------------------- reductions and scans

for _name in ["sum", "max", "min", "prod"]:
    OPERATIONS[f"lax.reduce_{_name}"] = Operation(
        partial(lambda f, x: f(x, (1,)), getattr(lax, f"reduce_{_name}")), complex=_name in ("sum", "prod")
    )
for _name in ["and", "or"]:
    OPERATIONS[f"lax.reduce_{_name}"] = Operation(
        partial(lambda f, x: f(x > 0.5, (1,)), getattr(lax, f"reduce_{_name}")), smooth=False, complex=False
    )
for _name in ["argmax", "argmin"]:
    OPERATIONS[f"lax.{_name}"] = Operation(
        partial(lambda f, x: f(x, 1), getattr(lax, _name)), smooth=False, complex=False
    )
    OPERATIONS[f"np.nan{_name}"] = Operation(
        partial(lambda f, x: f(x, axis=1), getattr(snp, f"nan{_name}")), smooth=False, complex=False
    )
for _name in ["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"]:
    OPERATIONS[f"lax.{_name}"] = Operation(
        partial(lambda f, x: f(x, 1), getattr(lax, _name)), complex=_name in ("cumsum", "cumprod")
    )
for _name in ["cumprod", "cumulative_prod", "cumulative_sum", "nancumsum"]:
    OPERATIONS[f"np.{_name}"] = Operation(partial(lambda f, x: f(x, axis=1), getattr(snp, _name)))
for _name in ["nanprod", "nanvar", "nanstd", "nanmedian", "ptp"]:
    OPERATIONS[f"np.{_name}"] = Operation(
        partial(lambda f, x: f(x, axis=1), getattr(snp, _name)), complex=_name in ("nanprod", "nanvar", "nanstd")
    )
for _name, _q in [("quantile", 0.3), ("percentile", 30), ("nanquantile", 0.3), ("nanpercentile", 30)]:
    OPERATIONS[f"np.{_name}"] = Operation(
        partial(lambda f, q, x: f(x, q, axis=1), getattr(snp, _name), _q), complex=False
    )
add_lines(
    "np",
    average=lambda x: snp.average(x, axis=1, weights=np.arange(1.0, M + 1)),
    cov=Operation(snp.cov, complex=False),
    corrcoef=Operation(snp.corrcoef, complex=False),
    vecdot=Operation(snp.vecdot, 2, complex=False),
    cross=lambda x: snp.cross(x[:, :3], other((N, 3))),
)
add_lines(
    "lax",
    associative_scan=lambda x: lax.associative_scan(snp.add, x.asformat("dense")),
    batch_matmul=lambda x: lax.batch_matmul(snp.stack([x, x]), other((2, M, 3))),
    dot=Operation(lambda x, y: lax.dot(x, y.T), 2),
    integer_pow=lambda x: lax.integer_pow(x, 3),
    clamp=Operation(lambda x: lax.clamp(-1.0, x, 1.0), complex=False),
    custom_root=Operation(_own_root, complex=False),
    custom_linear_solve=Operation(_own_solve, complex=False),
    stop_gradient=Operation(lambda x: lax.stop_gradient(x) * x, smooth=False),
)

# --------------------------------------------------------------------------------------------------------- structure

add_lines(
    "np",
    append=lambda x: snp.append(x, other((1, M), "csr"), axis=0),
    array_split=lambda x: snp.array_split(x, 3, axis=1)[1],
    atleast_1d=snp.atleast_1d,
    atleast_2d=snp.atleast_2d,
    atleast_3d=snp.atleast_3d,
    block=Operation(lambda x, y: snp.block([[x, y], [y, x]]), 2),
    block_diag=Operation(lambda x, y: snp.block_diag(x, y), 2),
    broadcast_arrays=lambda x: snp.broadcast_arrays(x, other((1, M)))[0],
    concat=lambda x: snp.concat([x, x * 2]),
    diagflat=lambda x: snp.diagflat(x[0]),
    diags=lambda x: snp.diags([x[0, :3], x[1, :4]], [1, 0], shape=(4, 4)),
    hsplit=lambda x: snp.hsplit(x, [2])[1],
    vsplit=lambda x: snp.vsplit(x, [2])[1],
    matrix_transpose=snp.matrix_transpose,
    meshgrid=lambda x: snp.meshgrid(x[0], x[1, :3])[0],
    pad=lambda x: snp.pad(x, ((1, 0), (0, 2))),
    permute_dims=lambda x: snp.permute_dims(x, (1, 0)),
    setdiag=lambda x: snp.setdiag(x, np.arange(1.0, 5)),
    unstack=lambda x: snp.unstack(x, axis=1)[1],
    vander=lambda x: snp.vander(x[0], 3),
    partition=Operation(lambda x: snp.partition(x, 2, axis=1), complex=False),
    argpartition=Operation(lambda x: snp.sort(snp.argpartition(x, 2, axis=1), 1), smooth=False, complex=False),
    bincount=Operation(lambda x: snp.bincount(IDS, x[:, 0], length=3), complex=False),
    digitize=Operation(lambda x: snp.digitize(x, np.array([-1.0, 0.1, 1.0])), smooth=False, complex=False),
    searchsorted=Operation(lambda x: snp.searchsorted(np.array([-1.0, 0.1, 1.0]), x), smooth=False, complex=False),
    histogram=Operation(
        lambda x: snp.histogram(x, bins=np.array([-2.0, -0.5, 0.5, 2.0]))[0], smooth=False, complex=False
    ),
    **{
        "unique:inverse": Operation(
            lambda x: snp.unique(snp.round(x), return_inverse=True, size=6)[1], smooth=False, complex=False
        )
    },
    isin=Operation(lambda x: snp.isin(snp.round(x), np.array([1.0, -1.0])), smooth=False, complex=False),
)
add_lines(
    "lax",
    concatenate=lambda x: lax.concatenate([x, x * 2], 1),
    dynamic_index_in_dim=lambda x: lax.dynamic_index_in_dim(x, 2, 1),
    dynamic_slice=lambda x: lax.dynamic_slice(x, (1, 1), (2, 3)),
    dynamic_slice_in_dim=lambda x: lax.dynamic_slice_in_dim(x, 1, 3, 1),
    dynamic_update_index_in_dim=lambda x: lax.dynamic_update_index_in_dim(x, other((M,)), 1, 0),
    dynamic_update_slice=Operation(lambda x, y: lax.dynamic_update_slice(x, y[:2, :2], (1, 1)), 2),
    dynamic_update_slice_in_dim=Operation(lambda x, y: lax.dynamic_update_slice_in_dim(x, y[:2], 1, 0), 2),
    expand_dims=lambda x: lax.expand_dims(x, 1),
    rev=lambda x: lax.rev(x, (1,)),
    select=Operation(lambda x, y: lax.select(other((N, M)) > 0, x.asformat("dense"), y.asformat("dense")), 2),
    select_n=Operation(lambda x, y: lax.select_n(other((N, M)) > 0, x.asformat("dense"), y.asformat("dense")), 2),
    slice=lambda x: lax.slice(x, (1, 0), (4, 3)),
    slice_in_dim=lambda x: lax.slice_in_dim(x, 1, 4, axis=1),
    sort=Operation(lambda x: lax.sort(x, 1), complex=False),
    squeeze=lambda x: lax.squeeze(x[:1], 0),
)
add_lines("nn", glu=Operation(lambda x: nn.glu(x[:, :4]), complex=False))

add_lines(
    "sj",
    prune=lambda x: sj.prune(x.asformat("csr"), tol=0.8),
    **{
        "prune:predicate": Operation(lambda x: sj.prune(x.asformat("coo"), predicate=lambda a: a > 0), complex=False),
        "prune:keep": lambda x: sj.prune(x.asformat("csr"), keep=2, axis=0),
        "prune:zeros": lambda x: (x * (snp.abs(x) > 0.8)).asformat("csc").eliminate_zeros(),
    },
)

# ------------------------------------------------------------------------------------------------ dense linear algebra

for _name in ["det", "inv", "cholesky"]:
    OPERATIONS[f"np.linalg.{_name}"] = Operation(
        partial(lambda f, x: f(_spd(x)), getattr(snp.linalg, _name)), shape=(N, N), complex=False
    )
add_lines(
    "np",
    **{
        "linalg.eigh": Operation(lambda x: snp.linalg.eigh(_spd(x))[0], shape=(N, N), complex=False, twice=False),
        "linalg.svd": Operation(
            lambda x: snp.linalg.svd(_spd(x), compute_uv=False), shape=(N, N), complex=False, twice=False
        ),
        "linalg.qr": Operation(lambda x: snp.linalg.qr(_spd(x))[1], shape=(N, N), complex=False, twice=False),
        "linalg.slogdet": Operation(lambda x: snp.linalg.slogdet(_spd(x))[1], shape=(N, N), complex=False),
        "fft.fft": lambda x: snp.real(snp.fft.fft(x.asformat("dense"))),
    },
)

# ---------------------------------------------------------------------------------------------- solvers and callbacks

add_lines(
    "linalg",
    spsolve_triangular=Operation(
        lambda x: linalg.spsolve_triangular(snp.tril(_system(x)), other((N,))), shape=(N, N), complex=False
    ),
    eigsh=Operation(
        lambda x: linalg.eigsh(_definite(x), 2, return_eigenvectors=False), shape=(N, N), complex=False, twice=False
    ),
    spilu=Operation(
        lambda x: linalg.cg(_definite(x), other((N,)), tol=1e-14, M=linalg.spilu(_definite(sj.stop_gradient(x))))[0],
        shape=(N, N),
        complex=False,
    ),
)
OPERATIONS["np.linalg.eigvals"] = Operation(
    lambda x: snp.sort(snp.real(snp.linalg.eigvals(_spd(x)))), shape=(N, N), complex=False, smooth=False
)


def _observed(x):
    """The same, after a function of the host has seen it."""
    sj.debug.callback(lambda y: None, x.sum())
    return x * 2


add_lines(
    "sj",
    pure_callback=Operation(
        lambda x: sj.pure_callback(np.sin, sj.ShapeDtypeStruct((N, M), x.dtype), x.asformat("dense")), smooth=False
    ),
    **{"debug.callback": Operation(_observed)},
)
