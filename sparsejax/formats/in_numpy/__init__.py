"""Passes in NumPy that take more than a few lines: see `formats.passes`."""
