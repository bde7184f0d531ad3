"""Errors and warnings of sparsejax; names follow JAX where JAX has the thing."""

from __future__ import annotations


class FormatError(ValueError):
    """A format, or an array in it, is malformed: the message names the fault, its position and the mend."""


class JaxprTypeError(TypeError):
    """A jaxpr breaks its own typing rules."""


class ScheduleError(RuntimeError):
    """No schedule can run an expression as asked."""


class SparseEfficiencyWarning(UserWarning):
    """An operation works, but far more slowly or with far more memory than another spelling."""


class ConcretizationTypeError(TypeError):
    """A traced value was needed as a concrete one."""


class TracerArrayConversionError(TypeError):
    """A traced value was converted to a NumPy array."""


class TracerIntegerConversionError(TypeError):
    """A traced value was used as a Python integer."""


class TracerBoolConversionError(ConcretizationTypeError):
    """A traced value was used as a condition."""


class NonConcreteBooleanIndexError(IndexError):
    """A traced boolean array was used as an index."""


class UnexpectedTracerError(TypeError):
    """A traced value was used after its trace had ended."""


NEGATIVE_POWER = "Integers to negative integer powers are not allowed."
"""What NumPy says, and we: such a power is 0, 1 or -1, or no integer."""
