"""Data-driven tiling: statistics of sparse arrays, the traffic of tiled contractions, and tile sizes (docs/measurements/traffic.md)."""

from sparsejax.dataflow.analysis import tile_sizes, traffic
from sparsejax.dataflow.report import Candidate, Level, Tiling, Traffic
from sparsejax.dataflow.statistics import Statistics, stats

__all__ = ["Candidate", "Level", "Statistics", "Tiling", "Traffic", "stats", "tile_sizes", "traffic"]
