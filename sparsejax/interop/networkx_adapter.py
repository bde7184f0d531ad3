"""NetworkX's graphs as adjacency matrices, through its own exchange with SciPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsejax import dtypes
from sparsejax.core.array import Array
from sparsejax.errors import FormatError
from sparsejax.formats import Format, convert, scipy_io
from sparsejax.interop import arrays
from sparsejax.optional import optional


def from_networkx(
    graph: Any,
    *,
    nodelist: Sequence[Any] | None = None,
    weight: str | None = "weight",
    dtype: Any = None,
    format: str | Format | None = None,
) -> Array:
    """The adjacency matrix of a graph, as csr or in `format`: A[i, j] is the weight of the edge from node i to node j, in the order of `nodelist`, or
    of the graph.

    Edges without the attribute `weight` count 1, all edges for `weight=None`; parallel edges are summed; an undirected edge is there in both
    directions. O(nodes + edges).
    """
    networkx = optional("networkx", "interop")
    if not len(graph if nodelist is None else nodelist):  # NetworkX has no matrix of it
        kind = np.dtype(float) if dtype is None else dtypes.canonical(dtype)
        empty = convert.from_coords(np.empty((2, 0), np.int64), np.empty(0, kind), (0, 0), Format.parse("csr", 2), 0)
        return arrays.made(empty, format)
    made = networkx.to_scipy_sparse_array(graph, nodelist=nodelist, weight=weight, dtype=dtype, format="csr")
    return arrays.made(scipy_io.from_scipy(made), format)


def to_networkx(x: Any, *, create_using: Any = None, weight: str = "weight") -> Any:
    """A graph with an edge for every stored entry of a square matrix, its value as attribute `weight`; of nodes 0, 1, 2, ...

    Directed, unless `create_using` is another class of graph; undirected ones keep the last of an edge's two directions. FormatError for other shapes
    and for a fill that is not zero. O(nodes + edges).
    """
    networkx = optional("networkx", "interop")
    storage = arrays.storage_of(x, "a graph")
    if storage.ndim != 2 or storage.shape[0] != storage.shape[1]:
        raise FormatError(f"a graph is a square matrix, but this array has shape {storage.shape}")
    if storage.format.is_dense:
        storage = convert.convert(storage, Format.parse("csr", 2))
    made = scipy_io.to_scipy(storage)
    return networkx.from_scipy_sparse_array(made, create_using=create_using or networkx.DiGraph, edge_attribute=weight)
