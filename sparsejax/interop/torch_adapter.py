"""PyTorch's tensors: strided, COO (hybrid ones too), CSR, CSC, BSR and BSC."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from sparsejax.core.array import Array
from sparsejax.errors import FormatError
from sparsejax.formats import Format, convert, ingest
from sparsejax.formats.levels.segments import Array as Buffer
from sparsejax.formats.ownership import refuse_copy
from sparsejax.interop import arrays
from sparsejax.optional import optional


def from_torch(tensor: Any, *, format: str | Format | None = None, copy: bool | None = None) -> Array:
    """The array of a tensor, in the format of its layout or in `format`: coo (dense dimensions of hybrid tensors stay dense), csr, csc, bsr or dense.

    Memory is PyTorch's, which may write to it: it is copied, unless `copy=False` says that nobody will: values are shared then, and coordinates that
    have our dtype; ValueError where values must move (duplicates, no order). Tensors on other devices are fetched; gradients are left behind.
    FormatError for batches of csr matrices and for dtypes that NumPy lacks. Linear in the entries.
    """
    torch = optional("torch", "interop")
    here = tensor.detach()
    if here.device.type != "cpu":
        refuse_copy(copy, f"the tensor is on {here.device}")
        here = here.cpu()
    if here.dtype in (torch.bfloat16, torch.float16):
        raise FormatError(f"dtype {here.dtype} is not supported; call .float() first")
    layout, shape = here.layout, tuple(here.shape)
    if layout == torch.strided:
        return arrays.made(ingest.as_storage(here.numpy(), copy=copy if copy is False else True), format)
    if layout == torch.sparse_coo:
        columns = list(here._indices().numpy())
        if here.sparse_dim() == 0:
            return from_torch(here.to_dense(), format=format)
        return arrays.made(arrays.coordinates(columns, here._values().numpy(), shape, copy), format)
    by_row = layout in (torch.sparse_csr, torch.sparse_bsr)
    if here.values().ndim != (3 if layout in (torch.sparse_bsr, torch.sparse_bsc) else 1):
        raise FormatError(
            f"tensors of layout {layout} with batches or dense dimensions are not taken; call .to_sparse_coo() first"
        )
    pos = (here.crow_indices() if by_row else here.ccol_indices()).numpy()
    crd, data = (here.col_indices() if by_row else here.row_indices()).numpy(), here.values().numpy()
    if layout == torch.sparse_bsc:  # the transpose is bsr, of blocks that are turned
        refuse_copy(copy, "bsc has no counterpart here")
        turned = arrays.compressed("bsr", shape[::-1], pos, crd, np.ascontiguousarray(data.transpose(0, 2, 1)), True)
        return Array(
            convert.convert(Array(turned).T.storage, Format.parse(format or f"bsr:{data.shape[1]}x{data.shape[2]}", 2))
        )
    names = {torch.sparse_csr: "csr", torch.sparse_csc: "csc", torch.sparse_bsr: "bsr"}
    return arrays.made(arrays.compressed(names[layout], shape, pos, crd, data, copy), format)


def to_torch(x: Any, *, copy: bool | None = None) -> Any:
    """A tensor of the layout that is nearest to the format: csr, csc, bsr (where blocks tile the shape), strided, hybrid COO (coordinates above dense
    levels), COO for all others. COO tensors are coalesced.

    Values and coordinates are copied; `copy=False` shares what it can, by your word that nobody writes to the tensor. FormatError for a
    fill that is not zero. Linear in the entries.
    """
    torch = optional("torch", "interop")
    storage = arrays.storage_of(x, "a PyTorch tensor")

    def tensor(buffer: Buffer) -> Any:
        with (
            warnings.catch_warnings()
        ):  # PyTorch warns of memory that cannot be written to; that is what copy=False promises
            warnings.simplefilter("ignore", UserWarning)
            return torch.from_numpy(arrays.given(buffer, copy))

    if storage.format.is_dense:
        return tensor(convert.to_dense(storage))
    name, shape = str(storage.format), storage.shape
    tiled = name.startswith("bsr:") and not storage.format.pads(shape)
    if name in ("csr", "csc") or tiled:
        pos, crd = storage.buffers[1]
        values = storage.vals.reshape(len(crd), *storage.format.blocks) if tiled else storage.vals
        layout = getattr(torch, f"sparse_{name.split(':')[0]}")
        ends, places = tensor(pos), tensor(crd.astype(np.int64, copy=False))
        with warnings.catch_warnings():  # that compressed layouts are in beta
            warnings.simplefilter("ignore", UserWarning)
            return torch.sparse_compressed_tensor(
                ends, places, tensor(values), size=shape, layout=layout, check_invariants=False
            )
    many = arrays.sparse_dimensions(storage.format)
    if many is None:
        many = storage.ndim
        storage = convert.convert(storage, Format.parse("coo", storage.ndim))
    indices = np.stack([level[-1] for level in storage.buffers[:many]]).astype(np.int64, copy=False)
    values = storage.vals.reshape(indices.shape[1], *shape[many:])
    return torch.sparse_coo_tensor(tensor(indices), tensor(values), shape, is_coalesced=True, check_invariants=False)
