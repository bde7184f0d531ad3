"""What type checkers know of `x.at`; `sparsejax.numpy.indexing` has the classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from sparsejax.core.array import Array


class Part(Protocol):
    """`x.at[key]`."""

    def get(self) -> Array: ...
    def set(self, values: Any) -> Array: ...
    def add(self, values: Any) -> Array: ...
    def min(self, values: Any) -> Array: ...
    def max(self, values: Any) -> Array: ...


class Updates(Protocol):
    """`x.at`."""

    def __getitem__(self, key: Any) -> Part: ...
