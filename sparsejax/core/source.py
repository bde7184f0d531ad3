"""Who called: the line of the user's program, or an operator of SciPy's sparse arrays."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def user_line() -> str:
    """`file:line` of the nearest caller outside this package, or "an unknown line"."""
    frame = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_PACKAGE):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return "an unknown line"


def by_user() -> bool:
    """Whether a special method runs for code outside this package: the nearest caller that is no module of Python's own decides."""
    frame = sys._getframe(2)
    while frame is not None:
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if package not in sys.stdlib_module_names:
            return bool(package != "sparsejax")
        frame = frame.f_back  # type: ignore[assignment]
    return True


_OPERATORS = frozenset(f"__{name}__" for name in ("matmul", "mul", "truediv", "eq", "ne", "lt", "le", "gt", "ge"))


def in_scipy_operator() -> bool:
    """Whether the caller's caller is an operator of a SciPy sparse array that asks what its right operand is.

    SciPy gives way to the other operand's operator (by NotImplemented) when NumPy can make nothing of it but an object.
    """
    frame, outermost = sys._getframe(2), ""
    while frame is not None and (name := frame.f_globals.get("__name__", "")).startswith("scipy.sparse"):
        if name.startswith("scipy.sparse.linalg"):
            return False  # its operators take results as NumPy's arrays
        outermost = frame.f_code.co_name
        frame = frame.f_back  # type: ignore[assignment]
    return outermost in _OPERATORS


def as_object(value: object) -> NDArray[Any]:
    """`value` as NumPy takes things that it does not know: an array of no dimensions that holds it."""
    made = np.empty((), object)
    made[()] = value
    return made
