"""Plots by matplotlib (`pip install 'sparsejax[plot]'`): where an array stores entries, and where a function stands under the roofline of this machine."""

from sparsejax.plot.roofline import Roof, Standing, measured_roof, roofline
from sparsejax.plot.spy import spy

__all__ = ["Roof", "Standing", "measured_roof", "roofline", "spy"]
