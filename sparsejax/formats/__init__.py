"""Storage formats: level types and how they combine."""

from sparsejax.formats.banded import Banded
from sparsejax.formats.bitmap import Bitmap
from sparsejax.formats.compressed import Compressed
from sparsejax.formats.coordinate import Coordinate
from sparsejax.formats.dense import Dense
from sparsejax.formats.diagonal import Diagonal
from sparsejax.formats.ell import Ell
from sparsejax.formats.format import Format
from sparsejax.formats.grouped import Grouped
from sparsejax.formats.grouping import group_size, to_groupcoo
from sparsejax.formats.hashed import Hash
from sparsejax.formats.level import Level
from sparsejax.formats.loose import LooseCompressed
from sparsejax.formats.runlength import RunLength
from sparsejax.formats.storage import Storage

__all__ = [
    "Banded",
    "Bitmap",
    "Compressed",
    "Coordinate",
    "Dense",
    "Diagonal",
    "Ell",
    "Format",
    "Grouped",
    "Hash",
    "Level",
    "LooseCompressed",
    "RunLength",
    "Storage",
    "group_size",
    "to_groupcoo",
]
