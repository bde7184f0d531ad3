"""Configuration: a handful of flags, from `SPARSEJAX_<NAME>` in the environment or `config.update`.

check_jaxprs   type-check every traced function (default off)
log_compiles   log every kernel that is compiled, with its time (default off)
"""

from __future__ import annotations

import os

_TRUE, _FALSE = ("1", "true", "on", "yes"), ("", "0", "false", "off", "no")
_flags: dict[str, bool] = {"check_jaxprs": False, "log_compiles": False}


def _read_environment() -> None:
    for name in _flags:
        text = os.environ.get(f"SPARSEJAX_{name.upper()}", "").lower()
        if text not in _TRUE + _FALSE:
            raise ValueError(f"SPARSEJAX_{name.upper()}={text!r} is not a truth value; use 1 or 0")
        _flags[name] = text in _TRUE


def update(name: str, value: bool) -> None:
    """Set a flag.

    >>> update("log_compiles", False)
    """
    if name not in _flags:
        raise ValueError(f"there is no flag {name!r}; flags are {', '.join(_flags)}")
    if not isinstance(value, bool):
        raise TypeError(f"flag {name!r} takes True or False, not {value!r}")
    _flags[name] = value


def check_jaxprs() -> bool:
    """Whether traced functions are type-checked."""
    return _flags["check_jaxprs"]


def log_compiles() -> bool:
    """Whether compiles are logged."""
    return _flags["log_compiles"]


_read_environment()
