"""Files: arrays in and out, of every kind that sparse data comes in. No file is trusted, and none can execute anything.

Every reader takes a path or an open file, checks sizes before it takes memory (`max_bytes` bounds what it may take), and raises FormatError
for whatever is wrong in a file. Of HDF5, what is stored is checked here, but the structure around it is read by a library that a changed file can bring to
loop without end: `isolated` reads files of strangers in a process of its own, with a time limit. `format=` and `dtype=` choose those of the array.
"""

from sparsejax.io.anndata import CellMatrix, read_10x_h5, read_anndata, write_anndata
from sparsejax.io.binsparse import read_binsparse, write_binsparse
from sparsejax.io.edgelist import read_edgelist, write_edgelist
from sparsejax.io.frostt import read_tns, write_tns
from sparsejax.io.isolated import isolated
from sparsejax.io.matrix_market import mmread, mmwrite
from sparsejax.io.npz import load_npz, save_npz

__all__ = [
    "CellMatrix",
    "isolated",
    "load_npz",
    "mmread",
    "mmwrite",
    "read_10x_h5",
    "read_anndata",
    "read_binsparse",
    "read_edgelist",
    "read_tns",
    "save_npz",
    "write_anndata",
    "write_binsparse",
    "write_edgelist",
    "write_tns",
]
