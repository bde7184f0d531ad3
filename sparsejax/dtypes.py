"""The dtypes that arrays may have, and NumPy 2 promotion with weak Python scalars."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

DType = np.dtype[Any]

SHORT_NAMES = {
    "bool": "b1", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "u8", "uint16": "u16",
    "uint32": "u32", "uint64": "u64", "float32": "f32", "float64": "f64", "complex64": "c64", "complex128": "c128",
}  # fmt: skip


_CANONICAL: dict[DType, DType] = {np.dtype(name): np.dtype(name) for name in SHORT_NAMES}


_PLAIN = frozenset([type(None), type, str])
_USUAL: dict[Any, DType] = {
    kind: np.dtype(kind) for kind in (None, bool, int, float, complex, *(d.type for d in _CANONICAL), *SHORT_NAMES)
}
"""What else stands for a dtype, as it is usually spelled."""


def canonical(dtype: Any) -> DType:
    """The supported dtype for `dtype`: native byte order.

    Raises TypeError for dtypes without a machine representation here (float16, object, str, longdouble, datetime).

    >>> canonical(">f4")
    dtype('float32')
    """
    known = (
        _CANONICAL.get(dtype) if isinstance(dtype, np.dtype) else _USUAL.get(dtype) if type(dtype) in _PLAIN else None
    )
    if known is not None:
        return known
    try:
        made: DType = np.dtype(dtype).newbyteorder("=")
    except TypeError:
        raise TypeError(f"dtype={dtype!r} is not a dtype") from None
    if made == np.float16:
        raise TypeError("dtype float16 is not supported; convert to single precision first, .astype('float32')")
    if made.name not in SHORT_NAMES:
        raise TypeError(
            f"dtype {made} is not supported; use bool, (u)int8-64, float32/64 or complex64/128, e.g. .astype('float64')"
        )
    return np.dtype(made.name)  # one dtype of each name: NumPy has two 64-bit integers on most platforms


def short_name(dtype: DType) -> str:
    """The name of `dtype` in printed types, such as f64 or b1.

    >>> short_name(np.dtype("complex64"))
    'c64'
    """
    return SHORT_NAMES[dtype.name]


_WEAK = {"b": False, "i": 0, "u": 0, "f": 0.0, "c": 0j}


def weak_value(dtype: DType) -> Any:
    """A Python scalar that promotes as a weakly typed value of `dtype` does."""
    return _WEAK[dtype.kind]


@functools.lru_cache(maxsize=4096)
def result_type(*dtypes: tuple[DType, bool]) -> DType:
    """NumPy 2 promotion of (dtype, weak) pairs.

    >>> result_type((np.dtype("float32"), False), (np.dtype("float64"), True))
    dtype('float32')
    """
    return canonical(np.result_type(*(weak_value(d) if weak else d for d, weak in dtypes)))
