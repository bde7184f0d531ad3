"""`numpy.fft` of dense arrays, by SciPy's pocketfft; differentiable and batched. The precision of the argument is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsejax import dtypes
from sparsejax.core.array import Array
from sparsejax.core.primitive import asarray
from sparsejax.lax.elementwise import elementwise
from sparsejax.lax.library.fourier import transform
from sparsejax.lax.structural import integer, normal_axes, signed_integers
from sparsejax.numpy.arranging import roll
from sparsejax.numpy.making import check_device, own

__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]

Axes = Sequence[int] | None
Lengths = Sequence[int] | None


def __dir__() -> list[str]:
    return __all__


def fft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """`numpy.fft.fft`.

    >>> fft(np.array([1.0, 0.0]))
    Array([1.+0.j, 1.+0.j], dtype=complex128)
    """
    return transform("fft", x, n, axis, norm)


def ifft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """`numpy.fft.ifft`."""
    return transform("ifft", x, n, axis, norm)


def rfft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """`numpy.fft.rfft`: the first half of the transform of real numbers."""
    return transform("rfft", x, n, axis, norm)


def irfft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """`numpy.fft.irfft`: the real numbers of which `x` is the first half of the transform."""
    return transform("irfft", x, n, axis, norm)


_SWAPPED = {"backward": "forward", "forward": "backward", "ortho": "ortho", None: "forward"}


def hfft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """`numpy.fft.hfft`: the real transform of a signal of which the second half is the conjugate of the first."""
    x = asarray(x)
    return transform("irfft", elementwise("conjugate", x), n, axis, _swapped(norm))


def ihfft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """`numpy.fft.ihfft`: the inverse of `hfft`."""
    return elementwise("conjugate", transform("rfft", x, n, axis, _swapped(norm)))


def _swapped(norm: str | None) -> str:
    if norm not in _SWAPPED:
        raise ValueError(f"norm={norm!r} must be 'backward', 'ortho' or 'forward'")
    return _SWAPPED[norm]


def _over(x: Any, s: Lengths, axes: Axes) -> list[tuple[int, int | None]]:
    """(axis, length or None) of a transform along several axes."""
    x = asarray(x)
    if axes is None:
        count = x.ndim if s is None else len(signed_integers(s, "s"))
        places = tuple(range(x.ndim - count, x.ndim))
    else:
        places = normal_axes(tuple(signed_integers(axes, "axes")), x.ndim, "axes")
    lengths = [None] * len(places) if s is None else [n if n != -1 else None for n in signed_integers(s, "s")]
    if len(lengths) != len(places):
        raise ValueError(f"s has {len(lengths)} lengths, but there are {len(places)} axes")
    return list(zip(places, lengths, strict=True))


def fftn(x: Any, s: Lengths = None, axes: Axes = None, norm: str | None = None) -> Array:
    """`numpy.fft.fftn`."""
    for axis, n in reversed(_over(x, s, axes)):
        x = fft(x, n, axis, norm)
    return x


def ifftn(x: Any, s: Lengths = None, axes: Axes = None, norm: str | None = None) -> Array:
    """`numpy.fft.ifftn`."""
    for axis, n in reversed(_over(x, s, axes)):
        x = ifft(x, n, axis, norm)
    return x


def rfftn(x: Any, s: Lengths = None, axes: Axes = None, norm: str | None = None) -> Array:
    """`numpy.fft.rfftn`: `rfft` along the last of the axes, `fft` along the others."""
    *others, (last, n) = _over(x, s, axes)
    x = rfft(x, n, last, norm)
    for axis, m in reversed(others):
        x = fft(x, m, axis, norm)
    return x


def irfftn(x: Any, s: Lengths = None, axes: Axes = None, norm: str | None = None) -> Array:
    """`numpy.fft.irfftn`: the inverse of `rfftn`."""
    *others, (last, n) = _over(x, s, axes)
    for axis, m in others:
        x = ifft(x, m, axis, norm)
    return irfft(x, n, last, norm)


def fft2(x: Any, s: Lengths = None, axes: Axes = (-2, -1), norm: str | None = None) -> Array:
    """`numpy.fft.fft2`: `fftn` along two axes."""
    return fftn(x, s, axes, norm)


def ifft2(x: Any, s: Lengths = None, axes: Axes = (-2, -1), norm: str | None = None) -> Array:
    """`numpy.fft.ifft2`: `ifftn` along two axes."""
    return ifftn(x, s, axes, norm)


def rfft2(x: Any, s: Lengths = None, axes: Axes = (-2, -1), norm: str | None = None) -> Array:
    """`numpy.fft.rfft2`: `rfftn` along two axes."""
    return rfftn(x, s, axes, norm)


def irfft2(x: Any, s: Lengths = None, axes: Axes = (-2, -1), norm: str | None = None) -> Array:
    """`numpy.fft.irfft2`: `irfftn` along two axes."""
    return irfftn(x, s, axes, norm)


def _frequencies(made: Any, dtype: Any, device: Any) -> Any:
    check_device(device)
    return own(made if dtype is None else made.astype(dtypes.canonical(dtype)))


def fftfreq(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None) -> Array:
    """`numpy.fft.fftfreq`: the frequencies of the entries of a transform of `n` samples, `d` apart."""
    return _frequencies(np.fft.fftfreq(integer(n, "n"), d), dtype, device)


def rfftfreq(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None) -> Array:
    """`numpy.fft.rfftfreq`: those of `rfft`."""
    return _frequencies(np.fft.rfftfreq(integer(n, "n"), d), dtype, device)


def _shifted(x: Any, axes: Any, sign: int) -> Any:
    x = asarray(x)
    places = tuple(range(x.ndim)) if axes is None else normal_axes(tuple(signed_integers(axes, "axes")), x.ndim, "axes")
    shift = [x.shape[a] // 2 if sign > 0 else -(x.shape[a] // 2) for a in places]
    return roll(x, shift, places) if places else x


def fftshift(x: Any, axes: Any = None) -> Array:
    """`numpy.fft.fftshift`: frequency zero in the middle.

    >>> fftshift(np.array([0, 1, 2]))
    Array([2, 0, 1], dtype=int64)
    """
    return _shifted(x, axes, 1)


def ifftshift(x: Any, axes: Any = None) -> Array:
    """`numpy.fft.ifftshift`: the inverse of `fftshift`."""
    return _shifted(x, axes, -1)
