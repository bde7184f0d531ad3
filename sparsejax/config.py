"""Configuration flags."""

from __future__ import annotations


def log_compiles() -> bool:
    return False
