"""JAX's arrays: dense, and BCOO and BCSR of `jax.experimental.sparse`."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsejax.core.array import Array
from sparsejax.errors import FormatError
from sparsejax.formats import Format, convert, ingest
from sparsejax.formats.storage import Storage
from sparsejax.interop import arrays
from sparsejax.optional import optional


def from_jax(x: Any, *, format: str | Format | None = None, copy: bool | None = None) -> Array:
    """The array of a JAX array: dense; coo of a BCOO (its dense dimensions stay dense); csr of a BCSR; or in `format`.

    JAX's arrays do not change, so memory on this machine is shared where the format allows; `copy=True` copies, `copy=False` raises
    ValueError where a copy is needed. Entries beyond the shape, which JAX pads with, are dropped. FormatError for batches. Linear in the entries.
    """
    sparse = optional("jax.experimental.sparse", "interop")
    share = arrays.immutable(copy)

    def attempt(make: Any) -> Storage:
        try:
            made: Storage = make(share)
        except ValueError:
            if copy is not None:
                raise
            made = make(None)
        return made

    if isinstance(x, sparse.BCSR | sparse.BCOO) and x.n_batch:
        raise FormatError(
            "sparse arrays of JAX with batch dimensions are not taken; make one without: .update_layout(n_batch=0)"
        )
    if isinstance(x, sparse.BCSR):
        if x.n_dense:
            raise FormatError("a BCSR with dense dimensions is not taken; call .to_bcoo() first")
        pos, crd, data = np.asarray(x.indptr), np.asarray(x.indices), np.asarray(x.data)
        return arrays.made(attempt(lambda how: arrays.compressed("csr", x.shape, pos, crd, data, how)), format)
    if isinstance(x, sparse.BCOO):
        places, data = np.asarray(x.indices), np.asarray(x.data)
        inside = (places < np.array(x.shape[: places.shape[1]])).all(axis=1)
        if not inside.all():
            places, data = places[inside], data[inside]
        if not places.shape[1]:
            return from_jax(x.todense(), format=format, copy=copy)
        columns = [np.ascontiguousarray(column) for column in places.T]
        return arrays.made(attempt(lambda how: arrays.coordinates(columns, data, x.shape, how)), format)
    return arrays.made(attempt(lambda how: ingest.as_storage(np.asarray(x), copy=how)), format)


def to_jax(x: Any) -> Any:
    """A JAX array: dense; BCSR of csr; BCOO of all other formats, where dense levels below coordinates stay dense.

    FormatError for a fill that is not zero, and for numbers of 64 bits, which JAX would cut down silently, unless `jax_enable_x64` is set.
    Linear in the entries.
    """
    jax = optional("jax", "interop")
    sparse = optional("jax.experimental.sparse", "interop")
    storage = arrays.storage_of(x, "a sparse array of JAX")
    wide = storage.dtype in (np.int64, np.uint64, np.float64, np.complex128)
    if not jax.config.jax_enable_x64:
        if wide:
            raise FormatError(
                f'JAX would cut values of dtype {storage.dtype} down to 32 bits; convert them with .astype, or jax.config.update("jax_enable_x64", True)'
            )
        if not storage.format.is_dense and max(storage.shape) >= 2**31:
            raise FormatError(
                f'the shape {storage.shape} needs indices of 64 bits; jax.config.update("jax_enable_x64", True)'
            )
    if storage.format.is_dense:
        return jax.numpy.asarray(convert.to_dense(storage))
    if str(storage.format) == "csr" and len(storage.vals) < 2**31:
        pos, crd = storage.buffers[1]
        made = tuple(jax.numpy.asarray(part) for part in (storage.vals, crd, pos.astype(crd.dtype)))
        return sparse.BCSR(made, shape=storage.shape, indices_sorted=True, unique_indices=True)
    many = arrays.sparse_dimensions(storage.format)
    if many is None:
        many = storage.ndim
        storage = convert.convert(storage, Format.parse("coo", storage.ndim))
    places = np.stack([level[-1] for level in storage.buffers[:many]], axis=1)
    values = storage.vals.reshape(len(places), *storage.shape[many:])
    parts = (jax.numpy.asarray(values), jax.numpy.asarray(places))
    return sparse.BCOO(parts, shape=storage.shape, indices_sorted=True, unique_indices=True)
