"""Supported dtypes, their names, and NumPy 2 promotion; errors and flags, which are as small."""

import itertools

import numpy as np
import pytest

from sparsejax import config, dtypes, errors

NAMES = {
    "?": "b1",
    "i1": "i8",
    "u2": "u16",
    "i8": "i64",
    "u8": "u64",
    "f4": "f32",
    "f8": "f64",
    "c8": "c64",
    "c16": "c128",
}


@pytest.mark.parametrize("code", NAMES)
def test_names(code):
    assert dtypes.short_name(np.dtype(code)) == NAMES[code]
    assert dtypes.canonical(code) == np.dtype(code)
    assert dtypes.canonical(np.dtype(code).newbyteorder()).isnative


def test_other_dtypes():
    with pytest.raises(TypeError, match="float32"):
        dtypes.canonical("f2")
    assert dtypes.canonical(np.longlong).char == np.dtype(np.int64).char
    assert dtypes.canonical(float) == np.float64
    for code in ("O", "U3", "S3", "g", "G", "M8[s]", "m8[s]", "i4,i4"):
        with pytest.raises(TypeError, match="not supported"):
            dtypes.canonical(code)


def test_promotion_is_numpy_with_weak_python_numbers():
    strong = [np.dtype(c) for c in ("?", "i1", "u1", "i4", "u4", "i8", "f4", "f8", "c8", "c16")]
    weak = {np.dtype(np.int64): 0, np.dtype(np.float64): 0.0, np.dtype(np.complex128): 0j}
    for a, b in itertools.product(strong, strong):
        assert dtypes.result_type((a, False), (b, False)) == np.result_type(a, b)
    for a, (w, number) in itertools.product(strong, weak.items()):
        assert dtypes.result_type((a, False), (w, True)) == np.result_type(a, number)


def test_errors_inherit_as_in_jax():
    assert issubclass(errors.FormatError, ValueError)
    assert issubclass(errors.TracerBoolConversionError, errors.ConcretizationTypeError)
    assert issubclass(errors.NonConcreteBooleanIndexError, IndexError)
    for error in ("ConcretizationTypeError", "TracerArrayConversionError", "TracerIntegerConversionError"):
        assert issubclass(getattr(errors, error), TypeError)
    assert issubclass(errors.UnexpectedTracerError, TypeError)


def test_flags(monkeypatch):
    with pytest.raises(ValueError, match="flags are check_jaxprs, log_compiles"):
        config.update("check_jaxpr", True)
    with pytest.raises(TypeError, match="True or False"):
        config.update("check_jaxprs", 1)
    before = config.log_compiles()
    monkeypatch.setenv("SPARSEJAX_LOG_COMPILES", "perhaps")
    with pytest.raises(ValueError, match="SPARSEJAX_LOG_COMPILES='perhaps'"):
        config._read_environment()
    monkeypatch.setenv("SPARSEJAX_LOG_COMPILES", "on")
    config._read_environment()
    assert config.log_compiles()
    config.update("log_compiles", before)
