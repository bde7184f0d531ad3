"""Storage formats: level types and how they combine."""

from sparsejax.formats.format import Format
from sparsejax.formats.grouping import group_size, to_groupcoo
from sparsejax.formats.levels.banded import Banded
from sparsejax.formats.levels.bitmap import Bitmap
from sparsejax.formats.levels.compressed import Compressed
from sparsejax.formats.levels.coordinate import Coordinate
from sparsejax.formats.levels.dense import Dense
from sparsejax.formats.levels.diagonal import Diagonal
from sparsejax.formats.levels.ell import Ell
from sparsejax.formats.levels.grouped import Grouped
from sparsejax.formats.levels.hashed import Hash
from sparsejax.formats.levels.level import Level
from sparsejax.formats.levels.loose import LooseCompressed
from sparsejax.formats.levels.runlength import RunLength
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
