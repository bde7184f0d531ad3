"""Where entries of a result were taken of an array: an operation that takes entries, of the numbers of these, tells it; by that they go back.

    like      pos 0 2 3, crd 0 4 3      numbered      1 2 3
    x[1, 0]   numbered                  places        pos 0 1 3, crd 3 0 4, 3 1 2
    values    at these entries  a b c   returned      b c a at the entries of like

The compiler writes these two: what is differentiated and batched is the operation.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsejax.core.avals import Aval
from sparsejax.core.primitive import Primitive
from sparsejax.formats.storage import Storage


def _numbered(like: Storage, out_aval: Aval) -> Storage:
    return like.with_values(np.arange(1, len(like.vals) + 1), np.int64(0))


numbered_p = Primitive(
    "numbered",
    typing=lambda like: Aval(like.shape, np.int64, like.format, 0),
    reference=lambda like: np.arange(1, np.size(like) + 1).reshape(np.shape(like)),
    call=_numbered,
)


def numbered(like: Any) -> Any:
    """The number of every entry of a sparse array, from 1 on, over the same index buffers. O(entries).

    >>> import sparsejax as sj
    >>> numbered(sj.array(np.array([[0.0, 5.0], [6.0, 0.0]]), format="csr")).todense()
    array([[0, 1],
           [2, 0]])
    """
    return numbered_p.bind(like)


def _returned(values: Storage, places: Storage, like: Storage, out_aval: Aval) -> Storage:
    own, at = values.vals, places.vals - 1
    made = np.zeros(len(like.vals), own.dtype)
    if own.dtype.kind == "c":  # ufunc.at has no fast loop for these
        np.add.at(made.real, at, own.real)
        np.add.at(made.imag, at, own.imag)
    else:
        np.add.at(made, at, own)
    return like.with_values(made, own.dtype.type(0))


def _returned_reference(values: Any, places: Any, like: Any) -> Any:
    made = np.zeros(np.size(like) + 1, np.asarray(values).dtype)
    np.add.at(made, np.ravel(places), np.ravel(values))
    return made[1:].reshape(np.shape(like))


returned_p = Primitive(
    "returned",
    typing=lambda values, places, like: Aval(like.shape, values.dtype, like.format, 0),
    reference=_returned_reference,
    call=_returned,
)


def returned(values: Any, places: Any, like: Any) -> Any:
    """The array with the pattern of a sparse `like` whose entry number n is the sum of the `values` of which `places`, with the same entries over the
    same buffers, say that they are of number n. O(entries of all).

    >>> import sparsejax as sj
    >>> A = sj.array(np.array([[0.0, 5.0], [6.0, 0.0]]), format="csr")
    >>> rows = numbered(A)[np.array([1, 1])]
    >>> returned(sj.array(np.array([[3.0, 0.0], [4.0, 0.0]]), format="csr"), rows, A).todense()
    array([[0., 0.],
           [7., 0.]])
    """
    return returned_p.bind(values, places, like)
