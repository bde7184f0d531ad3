"""Storage formats: level types and how they combine."""

from sparsejax.formats.compressed import Compressed
from sparsejax.formats.coordinate import Coordinate
from sparsejax.formats.dense import Dense
from sparsejax.formats.format import Format
from sparsejax.formats.level import Level

__all__ = ["Compressed", "Coordinate", "Dense", "Format", "Level"]
