"""Errors and warnings of sparsejax; names follow JAX where JAX has the thing."""

from __future__ import annotations


class FormatError(ValueError):
    """A format, or an array in it, is malformed: the message names the fault, its position and the mend."""


class JaxprTypeError(TypeError):
    """A jaxpr breaks its own typing rules."""


class ScheduleError(RuntimeError):
    """No schedule can run an expression as asked."""
