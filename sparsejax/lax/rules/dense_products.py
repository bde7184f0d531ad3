"""Products of two dense arrays as one function of NumPy's.

"ij,jk->ik"      ndarray.dot           "i,i->"      ndarray.dot           ",ij->ij", "i,j->ji"      multiply
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

BOOL = np.dtype(np.bool_)
Labels = tuple[int, ...]


@functools.lru_cache(maxsize=1024)
def numpy_product(
    shapes: tuple[tuple[int, ...], ...], inputs: tuple[Labels, ...], output: Labels, dtype: Any
) -> Callable[..., Any] | None:
    """A product of two arrays as a function of these and of memory for the result, where NumPy has one that is called at once; None where it is left to
    `numpy.einsum`, which takes 40 microseconds to find out what to do."""
    if len(inputs) != 2 or any(len(set(labels)) < len(labels) for labels in (*inputs, output)):
        return None
    left, right = inputs
    if len(left) == 1 and left == right and not output and shapes[0] == shapes[1]:
        return np.matmul if dtype == BOOL else np.ndarray.dot
    if set(output) == {*left, *right}:  # nothing is summed
        orders = [[labels.index(x) for x in output if x in labels] for labels in inputs]
        spread = [tuple(slice(None) if x in labels else None for x in output) for labels in inputs]

        def times(a: Any, b: Any, out: Any = None) -> Any:
            return np.multiply(a.transpose(orders[0])[spread[0]], b.transpose(orders[1])[spread[1]], out)

        return times
    return _matrix_product(shapes, inputs, output, dtype)


def _matrix_product(
    shapes: tuple[tuple[int, ...], ...], inputs: tuple[Labels, ...], output: Labels, dtype: Any
) -> Callable[..., Any] | None:
    """The product of a matrix and a matrix or vector, any of them transposed, which BLAS takes as they are: as a function of these and of
    memory for the result. None of anything else."""
    if len(inputs) != 2 or len(set(inputs[0])) != 2 or not 0 < len(set(inputs[1])) == len(inputs[1]) < 3:
        return None
    rows, columns = inputs
    shared = set(rows) & set(columns)
    if len(shared) != 1 or len(rows) != 2 or set(output) != set(rows) ^ set(columns):
        return None
    (k,) = shared
    if shapes[0][rows.index(k)] != shapes[1][columns.index(k)]:
        return None  # one of them is broadcast
    times: Callable[..., Any] = (
        np.matmul if dtype == BOOL else np.ndarray.dot
    )  # half a microsecond less; of booleans, more
    if rows[1] == k and columns[0] == k and output[0] in rows:
        return times

    def product(left: Any, right: Any, out: Any = None) -> Any:
        left, right = left if rows[1] == k else left.T, right if columns[0] == k else right.T
        return times(left, right, out) if output[0] in rows else times(right.T, left.T, out)

    return product
