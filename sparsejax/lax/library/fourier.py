"""Fourier transforms of dense arrays along one axis, by SciPy (pocketfft): not normalised, of the length that the axis has.

y = fourier[fft] x      y[k] = sum_n x[n] e^(-2 pi i k n / N)          symmetric: its own transpose
y = fourier[ifft] x     the same with e^(+…), not divided by N
y = fourier[rfft] x     the first N // 2 + 1 of fft of a real x        transpose: the real part of fft of the cotangent and zeros
x = fourier[irfft] y    the real x of which y is the first half        transpose: rfft, the middle counted twice, conjugated
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparsejax.core.avals import Aval
from sparsejax.core.primitive import Primitive, asarray
from sparsejax.core.symbolic import span
from sparsejax.lax import typing_rules as rules
from sparsejax.lax.elementwise import convert_element_type, elementwise, real
from sparsejax.lax.extents import filled, is_known, number
from sparsejax.lax.indexing import concatenate, window
from sparsejax.lax.library.calls import on_arrays
from sparsejax.lax.rules.batching import faithful
from sparsejax.lax.structural import convert_format, integer, normal_axis


def _transformed(x: NDArray[Any], kind: str, axis: int, n: int) -> NDArray[Any]:
    import scipy.fft

    if kind == "fft":
        made = scipy.fft.fft(x, axis=axis)
    elif kind == "ifft":
        made = scipy.fft.ifft(x, axis=axis, norm="forward")
    elif kind == "rfft":
        made = scipy.fft.rfft(x, axis=axis)
    else:
        made = scipy.fft.irfft(x, n, axis=axis, norm="forward")
    return np.asarray(made)


def _typing(x: Aval, kind: str, axis: int, n: int) -> Aval:
    shape, dtype = list(x.shape), x.dtype
    if kind == "rfft":
        shape[axis], dtype = n // 2 + 1, np.result_type(x.dtype, np.complex64)
    elif kind == "irfft":
        shape[axis], dtype = n, np.dtype(f"f{x.dtype.itemsize // 2}")
    return rules.dense(tuple(shape), dtype)


def _transpose(ct: Any, x: Any, kind: str, axis: int, n: int) -> list[Any]:
    ct = convert_format(ct, "dense")
    if kind in ("fft", "ifft"):
        return [fourier_p.bind(ct, kind=kind, axis=axis, n=n)]
    if kind == "rfft":
        return [real(fourier_p.bind(resized(ct, axis, n), kind="fft", axis=axis, n=n))]
    middle = np.full(n // 2 + 1, 2.0, ct.dtype)
    middle[0] = 1.0
    if n % 2 == 0:
        middle[-1] = 1.0
    made = fourier_p.bind(ct, kind="rfft", axis=axis, n=n)
    weights = middle.reshape([-1 if d == axis else 1 for d in range(made.ndim)])
    return [elementwise("conjugate", elementwise("multiply", made, weights))]


fourier_p: Primitive = Primitive(
    "fourier",
    typing=_typing,
    reference=_transformed,
    call=on_arrays(_transformed),
    jvp=lambda primals, tangents, out, kind, axis, n: fourier_p.bind(
        convert_format(tangents[0], "dense"), kind=kind, axis=axis, n=n
    ),
    transpose=_transpose,
    batch=lambda size, x, kind, axis, n: fourier_p.bind(
        convert_format(faithful(x).value, "dense"), kind=kind, axis=axis, n=n
    ),
    describe=lambda kind, axis, n: f"{kind} axis={axis}",
)


def resized(x: Any, axis: int, n: int) -> Any:
    """`x` cut off, or continued with zeros, to `n` entries along `axis`."""
    have = x.shape[axis]
    if have >= n:
        return window(x, [span(0, n if d == axis else m) for d, m in enumerate(x.shape)])
    rest = filled([n - have if d == axis else m for d, m in enumerate(x.shape)], 0, x.dtype)
    return concatenate([x, rest], axis)


def transform(kind: str, x: Any, n: int | None, axis: int, norm: str | None) -> Any:
    """`numpy.fft`'s fft, ifft, rfft or irfft along one axis of an array, in the precision of `x`. O(n log n) per line.

    >>> transform("rfft", np.array([1.0, 0.0, 0.0, 0.0]), None, 0, None)
    Array([1.+0.j, 1.+0.j, 1.+0.j], dtype=complex128)

    Sparse arrays are stored densely first, since their transforms are dense.
    """
    x = asarray(x)
    x = convert_format(x, "dense")
    place = normal_axis(axis, x.ndim)
    if kind == "rfft":
        if x.dtype.kind == "c":
            raise TypeError(f"rfft takes real numbers, not {x.dtype}")
        x = x if x.dtype.kind == "f" else convert_element_type(x, np.float64)
    else:
        x = convert_element_type(x, np.result_type(x.dtype, np.complex64))
    length = (2 * (x.shape[place] - 1) if kind == "irfft" else x.shape[place]) if n is None else integer(n, "n")
    if length < 1:
        raise ValueError(f"{kind}: n={length} must be at least 1")
    made = fourier_p.bind(
        resized(x, place, length // 2 + 1 if kind == "irfft" else length), kind=kind, axis=place, n=length
    )
    return _scaled(made, norm, length, kind in ("ifft", "irfft"))


def _scaled(x: Any, norm: str | None, n: Any, inverse: bool) -> Any:
    powers = {"backward": (0, -1), "ortho": (-0.5, -0.5), "forward": (-1, 0)}
    if norm is not None and norm not in powers:
        raise ValueError(f"norm={norm!r} must be 'backward', 'ortho' or 'forward'")
    power = powers[norm or "backward"][inverse]
    if not power:
        return x
    if is_known((n,)):
        scale = 1 / n if power == -1 else n**power
        return x if scale == 1 else elementwise("multiply", x, scale)
    return elementwise("divide", x, number(n) if power == -1 else elementwise("sqrt", number(n)))
