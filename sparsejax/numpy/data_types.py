"""The standard's functions about dtypes, and its inspection of the namespace (array API 2025.12)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsejax import dtypes
from sparsejax.core.methods import DEVICE, ArrayBase
from sparsejax.core.trace import is_python_scalar
from sparsejax.lax.elementwise import aval_of

API_VERSION = "2025.12"

_KINDS = {
    "bool": "b",
    "signed integer": "i",
    "unsigned integer": "u",
    "integral": "iu",
    "real floating": "f",
    "complex floating": "c",
    "numeric": "iufc",
}


def result_type(*arrays_and_dtypes: Any) -> np.dtype[Any]:
    """The dtype of a result of arrays, numbers and dtypes; Python's numbers are weak, as in NumPy 2.

    >>> result_type(np.float32, 1.5), result_type(np.int8, np.ones(2))
    (dtype('float32'), dtype('float64'))
    """
    if not arrays_and_dtypes:
        raise ValueError("result_type takes at least one array or dtype")
    pairs = []
    for value in arrays_and_dtypes:
        if is_python_scalar(value) or isinstance(value, ArrayBase | np.ndarray | np.generic | list):
            aval = aval_of(value)
            pairs.append((aval.dtype, aval.weak_type))
        else:
            pairs.append((dtypes.canonical(value), False))
    if all(weak for _, weak in pairs):
        pairs = [(dtype, False) for dtype, _ in pairs]
    return dtypes.result_type(*pairs)


def promote_types(type1: Any, type2: Any) -> np.dtype[Any]:
    """`numpy.promote_types`: the smallest dtype that both can be cast to."""
    return dtypes.result_type((dtypes.canonical(type1), False), (dtypes.canonical(type2), False))


def can_cast(from_: Any, to: Any, casting: Any = "safe") -> bool:
    """`numpy.can_cast`, of a dtype or an array.

    >>> can_cast(np.int32, np.float64), can_cast(np.float64, np.float32)
    (True, False)
    """
    return bool(np.can_cast(_dtype_of(from_), to, casting))


def _dtype_of(value: Any) -> Any:
    return value.dtype if isinstance(value, ArrayBase | np.ndarray | np.generic) else value


@dataclass(frozen=True)
class FloatInfo:
    """The limits of a floating-point dtype, as Python's numbers, by the names of `numpy.finfo`."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    smallest_subnormal: float
    resolution: float
    dtype: np.dtype[Any]

    @property
    def tiny(self) -> float:
        """The older name of `smallest_normal`."""
        return self.smallest_normal


def finfo(type: Any) -> FloatInfo:
    """`numpy.finfo`: the limits of a floating-point dtype, or of that of an array.

    >>> finfo(np.float32).eps == 2.0**-23
    True
    """
    found = np.finfo(_dtype_of(type))
    names = ("eps", "max", "min", "smallest_normal", "smallest_subnormal", "resolution")
    limits = {name: float(getattr(found, name)) for name in names}
    return FloatInfo(bits=found.bits, dtype=np.dtype(found.dtype), **limits)


def iinfo(type: Any) -> Any:
    """`numpy.iinfo`: the limits of an integer dtype, or of that of an array."""
    return np.iinfo(_dtype_of(type))


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether `dtype` is of a kind: a dtype, "bool", "signed integer", "unsigned integer", "integral", "real floating",
    "complex floating", "numeric", or a tuple of them.

    >>> isdtype(np.float32, ("integral", "real floating"))
    True
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, str) and kind in _KINDS:
        return np.dtype(dtype).kind in _KINDS[kind]
    if isinstance(kind, str):
        raise ValueError(f"kind={kind!r} is not known; it must be a dtype or one of {', '.join(_KINDS)}")
    return bool(np.dtype(dtype) == np.dtype(kind))


def issubdtype(arg1: Any, arg2: Any) -> bool:
    """`numpy.issubdtype`: whether a dtype is one of a class of them, as `numpy.floating`."""
    return bool(np.issubdtype(arg1, arg2))


class NamespaceInfo:
    """What `__array_namespace_info__` tells: capabilities, devices and dtypes."""

    def capabilities(self) -> dict[str, Any]:
        """Boolean masks and shapes that depend on data work outside `jit`; arrays have at most 64 dimensions."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        """The device that arrays are made on."""
        return DEVICE

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype[Any]]:
        """What is made of numbers without a dtype."""
        _check(device)
        return {
            "real floating": np.dtype(np.float64),
            "complex floating": np.dtype(np.complex128),
            "integral": np.dtype(np.int64),
            "indexing": np.dtype(np.int64),
        }

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, np.dtype[Any]]:
        """The dtypes that arrays may have, by name; of one kind or several, as for `isdtype`."""
        _check(device)
        made = {name: np.dtype(name) for name in dtypes.SHORT_NAMES}
        return made if kind is None else {name: d for name, d in made.items() if isdtype(d, kind)}

    def devices(self) -> tuple[str, ...]:
        """All devices."""
        return (DEVICE,)


def _check(device: Any) -> None:
    if device not in (None, DEVICE):
        raise ValueError(f"device={device!r} is not known here; arrays are on the device {DEVICE!r}")


def array_namespace_info() -> NamespaceInfo:
    """`__array_namespace_info__` of the standard.

    >>> array_namespace_info().default_device()
    'cpu'
    """
    return NamespaceInfo()
