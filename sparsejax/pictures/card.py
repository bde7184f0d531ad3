"""What an array is, in a few lines and a picture."""

from __future__ import annotations

import numpy as np

from sparsejax.formats import convert
from sparsejax.formats.storage import Storage
from sparsejax.pictures import html, spy


def array(storage: Storage) -> str:
    """HTML of an array: shape, dtype, format, entries, density and memory beside a spy plot; of a small dense array, its values.

    Under 20 kB and in a few milliseconds for any size.
    """
    size = 1
    for n in storage.shape:
        size *= n
    nnz = storage.nnz
    rows = [
        ("shape", html.text(" x ".join(f"{n:,}" for n in storage.shape) or "()")),
        ("dtype", html.text(storage.dtype)),
        ("format", f"<code>{html.text(storage.format)}</code>"),
    ]
    if not storage.format.is_dense:
        rows += [
            ("entries", f"{nnz:,}"),
            ("density", f"{nnz / size:.3g}" if size else "none"),
            ("fill", html.text(storage.fill_value)),
        ]
    if size:
        rows.append(
            (
                "memory",
                f"{html.bytes_as_text(storage.nbytes)} (dense: {html.bytes_as_text(size * storage.dtype.itemsize)})",
            )
        )
    facts = html.table(rows)
    if storage.format.is_dense:
        return html.box(facts, html.code(np.array2string(convert.to_dense(storage), threshold=100, edgeitems=3)))
    if not storage.ndim:
        return html.box(facts)
    columns = spy.CELLS * 4 if storage.ndim == 1 else spy.CELLS
    found = spy.grid(storage, columns=columns)
    title = f"{nnz:,} entries of {storage.format}"
    if storage.ndim > 2:
        title += ", summed over all dimensions but the last two"
    if found.step > 1:
        title += f", one of {found.step} positions counted"
    return html.box(facts, spy.svg(found, html.text(title)))
