"""Segments put together, and parts of them that change places: the passes of `formats.joining_passes`."""
