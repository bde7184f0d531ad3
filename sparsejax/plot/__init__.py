"""Plots by matplotlib (`pip install 'sparsejax[plot]'`): where an array stores entries, where a function
stands under the roofline of this machine, and which tasks make an array in shards."""

from sparsejax.plot.roofline import Roof, Standing, measured_roof, roofline
from sparsejax.plot.spy import spy
from sparsejax.plot.tasks import task_graph

__all__ = ["Roof", "Standing", "measured_roof", "roofline", "spy", "task_graph"]
